"""The goals, each beside what was measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.measured import Flight, Measured
from bench.results import Results

MEMORY: Final = "Turnwright, in memory"
NORMAL: Final = "Turnwright, SQLite NORMAL"
FULL: Final = "Turnwright, SQLite FULL"
OURS: Final = (MEMORY, NORMAL, FULL)
SHORT: Final = {MEMORY: "in memory", NORMAL: "SQLite NORMAL", FULL: "SQLite FULL"}


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal in words, what was measured, and whether it is met: none where it was not measured."""

    what: str
    wanted: str
    measured: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class _At:
    """A value, and what it is a value of."""

    of: str
    value: float


def goals(results: Results) -> list[Goal]:
    """All goals."""
    ours = {subject["name"]: subject for subject in results["subjects"] if subject["name"] in OURS}
    flat = results["counts"].get("bytes-spread")
    return [
        *(_ratio(ours, name, most) for name, most in ((MEMORY, 2), (NORMAL, 5), (FULL, 12))),
        _most(
            "function calls a step, in memory",
            400,
            _values(ours, (MEMORY,), lambda one: one.get("calls_per_step")),
            "{:,.0f}",
        ),
        *(_growth(ours, name) for name in OURS),
        Goal(
            "bytes stored a step, the last 50 as the first 50",
            "the same to the byte, digits apart",
            "not measured" if flat is None else f"{flat:,.0f} bytes between the smallest and the largest step",
            None if flat is None else flat == 0,
        ),
        _most("bytes of facts stored a step", 1_000, _bytes(ours), "{:,.0f}"),
        _most(
            "CPU of `from turnwright import Engine`, ms",
            150,
            _values(ours, (MEMORY,), lambda one: one.get("import_ms")),
            "{:.0f}",
        ),
        _most(
            "memory of a turn in flight, KiB",
            40,
            _in_flight(ours, OURS, ("1000", "10000"), lambda flight: flight["kib_per_turn"]),
            "{:.1f}",
        ),
        _nothing_lost(ours),
        _least(
            "steps a CPU second with 10,000 turns in flight, of those with 100",
            0.8,
            [
                _At(SHORT[name], many / few)
                for name in OURS
                if (many := _rate(ours, name, "10000")) and (few := _rate(ours, name, "100"))
            ],
            "{:.2f}",
        ),
        _least(
            "durable steps a CPU second with 1,000 turns in flight",
            5_000,
            _in_flight(ours, (NORMAL, FULL), ("1000",), lambda flight: flight["steps_per_cpu_s"]),
            "{:,.0f}",
        ),
        _most("CPU a chunk of a paced stream, of httpx with a hand split", 1, _paced(results), "{:.2f}"),
    ]


def _ratio(ours: dict[str, Measured], name: str, most: float) -> Goal:
    steps = ours[name].get("steps", {}) if name in ours else {}
    values = [_At(f"N = {size}", found["ratio"]) for size, found in steps.items()]
    return _most(f"CPU a step, of the bare loop's, {SHORT[name]}", most, values, "{:.1f}")


def _growth(ours: dict[str, Measured], name: str) -> Goal:
    growth = ours[name].get("growth") if name in ours else None
    values = [_At("", growth["ratio"])] if growth is not None else []
    return _most(f"CPU of the last 50 of 200 steps, of the first 50, {SHORT[name]}", 1.10, values, "{:.2f}")


def _bytes(ours: dict[str, Measured]) -> list[_At]:
    stored = ours[FULL].get("bytes") if FULL in ours else None
    return [_At("first 50", stored["first"]), _At("last 50", stored["last"])] if stored else []


def _values(ours: dict[str, Measured], names: Sequence[str], value: Callable[[Measured], float | None]) -> list[_At]:
    found = [(name, value(ours[name])) for name in names if name in ours]
    return [_At(SHORT[name] if len(names) > 1 else "", one) for name, one in found if one is not None]


def _flight(ours: dict[str, Measured], name: str, turns: str) -> Flight | None:
    return ours[name]["flight"].get(turns) if name in ours else None


def _rate(ours: dict[str, Measured], name: str, turns: str) -> float | None:
    found = _flight(ours, name, turns)
    return None if found is None else found["steps_per_cpu_s"]


def _in_flight(
    ours: dict[str, Measured], names: Sequence[str], many: Sequence[str], value: Callable[[Flight], float | None]
) -> list[_At]:
    found: list[_At] = []
    for name in names:
        for turns in many:
            flight = _flight(ours, name, turns)
            one = None if flight is None else value(flight)
            if one is not None:
                found.append(_At(SHORT[name] + (f", {int(turns):,}" if len(many) > 1 else ""), one))
    return found


def _nothing_lost(ours: dict[str, Measured]) -> Goal:
    found = [(name, flight) for name in OURS if (flight := _flight(ours, name, "10000")) is not None]
    words = "; ".join(f"{SHORT[name]}: {flight['right']:,}" for name, flight in found)
    right = all(flight["right"] == flight["turns"] and not flight["looks_missing"] for _, flight in found)
    return Goal(
        "of 10,000 turns in flight, those that took their 10 steps and ended with the answer",
        "all, and each call ran once",
        words or "not measured",
        right if found else None,
    )


def _paced(results: Results) -> list[_At]:
    found: list[_At] = []
    for row in results["streams"]:
        client, ratio = str(row["client"]), row["ratio"]
        if row["pace"] == "paced" and client.startswith("Turnwright") and isinstance(ratio, float):
            found.append(_At(str(row["api"]), ratio))
    return found


def _most(what: str, most: float, values: list[_At], form: str) -> Goal:
    return Goal(
        what, f"at most {most:,g}", _words(values, form), all(at.value <= most for at in values) if values else None
    )


def _least(what: str, least: float, values: list[_At], form: str) -> Goal:
    return Goal(
        what, f"at least {least:,g}", _words(values, form), all(at.value >= least for at in values) if values else None
    )


def _words(values: list[_At], form: str) -> str:
    return "; ".join((f"{at.of}: " if at.of else "") + form.format(at.value) for at in values) or "not measured"
