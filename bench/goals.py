"""The targets, each with what was measured before the work on them, and now."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench.results import Flight, Measured, Results

MEMORY: Final = "Turnwright, in memory"
NORMAL: Final = "Turnwright, SQLite NORMAL"
FULL: Final = "Turnwright, SQLite FULL"
POSTGRES: Final = "Turnwright, PostgreSQL"
OURS: Final = (MEMORY, NORMAL, FULL, POSTGRES)
SHORT: Final = {MEMORY: "in memory", NORMAL: "SQLite NORMAL", FULL: "SQLite FULL"}

#: The kinds of pages that have a target.
PAGES: Final = ("list", "search", "agents", "statistics", "sessions", "needs you")

NOT_MEASURED: Final = "not measured"
MISSED: Final = "**missed**"


@dataclass(frozen=True, slots=True)
class Goal:
    """A target in words, with the value of 2026-11-23, the value now, and whether it is met."""

    label: str
    before: str
    target: str
    now: str
    verdict: str


@dataclass(frozen=True, slots=True)
class _Value:
    """A value beside its bound: at most that, or at least. `label` is the name of the value within its row."""

    label: str
    value: float | None
    bound: float
    least: bool = False

    @property
    def met(self) -> bool:
        """Whether the value keeps to the bound."""
        return self.value is not None and (self.value >= self.bound if self.least else self.value <= self.bound)

    def words(self, text: str) -> str:
        """A text with the label."""
        return f"{text} ({self.label})" if self.label else text


def goals(results: Results) -> list[Goal]:
    """All targets."""
    return list(_goals(results))


def _goals(results: Results) -> Iterator[Goal]:
    ours = {subject["name"]: subject for subject in results["subjects"] if subject["name"] in OURS}
    counts, figures = results["counts"].get, results["figures"].get

    def ratio(name: str) -> float | None:
        return _of(ours, name, lambda measured: measured.get("steps", {})["50"]["ratio"])

    def rate(name: str, turns: str) -> float | None:
        return _of(ours, name, lambda measured: measured["flight"][turns]["steps_per_cpu_s"])

    def kept(name: str) -> float | None:
        many, few = rate(name, "10000"), rate(name, "100")
        return many / few if many and few else None

    def session(name: str) -> float | None:
        return _of(
            ours,
            name,
            lambda measured: measured.get("session", {})["500"]["ratio"] / measured.get("session", {})["5"]["ratio"],
        )

    yield _row(
        "CPU of a step over the bare loop's, N = 50",
        "7.1 to 9.0 (in memory), 17 to 18 (NORMAL), 32 (FULL)",
        "{:.2g}",
        [
            _Value("in memory", ratio(MEMORY), 4.5),
            _Value("NORMAL", ratio(NORMAL), 6.5),
            _Value("FULL", ratio(FULL), 14),
        ],
    )
    yield _row(
        "function calls per step",
        "606 to 625 (in memory), 732 to 749 (SQLite)",
        "{:,.0f}",
        [_Value("in memory", counts("calls-memory"), 400), _Value("SQLite", counts("calls-sqlite"), 480)],
    )
    yield _row(
        "commits a step with two calls at once",
        "4",
        "{:,.2g}",
        [
            _Value("as a rule", counts("commits-sqlite"), 2),
            _Value("repeatable steps", counts("commits-repeatable"), 1),
        ],
    )
    yield _row("round trips a step, PostgreSQL", "10", "{:,.3g}", [_Value("", counts("trips-postgres"), 3)])
    cpu = _of(ours, POSTGRES, lambda measured: measured.get("steps", {})["50"]["cpu_us"] / 1e3)
    yield _row("CPU of a step, PostgreSQL, ms", "2.9", "{:.2g}", [_Value("", cpu, 0.7)])
    yield _row(
        "durable steps a CPU second, 1,000 turns in flight",
        "1,334 to 1,557",
        "{:,.0f}",
        [
            _Value("NORMAL", rate(NORMAL, "1000"), 4_000, least=True),
            _Value("FULL", rate(FULL, "1000"), 4_000, least=True),
        ],
    )
    yield _row("KiB of a turn in flight, tracemalloc", "34", "{:.3g}", [_Value("", counts("kib-in-flight"), 25)])
    yield _row(
        "steps a CPU second with 10,000 turns in flight over those with 100",
        "0.65",
        "{:.2g}",
        [_Value(SHORT[name], kept(name), 0.8, least=True) for name in (MEMORY, NORMAL, FULL)],
    )
    yield _row(
        "CPU of turn 500 of a session over turn 5",
        "more than 20",
        "{:.3g}",
        [_Value(SHORT[name], session(name), 2) for name in (MEMORY, NORMAL)],
    )
    yield _row(
        "CPU over `python -c pass`",
        "30 (`--version`), 67 (`--help`), 26 (`import turnwright`)",
        "{:.3g}",
        [
            _Value("`--version`", figures("start-version"), 4),
            _Value("`--help`", figures("start-help"), 20),
            _Value("`import turnwright`", figures("start-import"), 12),
        ],
    )
    yield _row("CPU of `from turnwright import Engine`, ms", "140", "{:.0f}", [_Value("", figures("engine-ms"), 150)])
    yield _row("facts a CPU second, verified replay", "42,000", "{:,.0f}", [_facts(figures("replay-facts-per-s"))])
    yield _row(
        "CPU of lists of 10,000 turns, ms",
        "109 (`turns --limit 50`), 750 (start of `serve`), 120 (its first page)",
        "{:.0f}",
        [
            _Value("`turns --limit 50`", figures("turns-ms"), 20),
            _Value("start of `serve`", figures("serve-start-ms"), 300),
            _Value("its first page", figures("serve-page-ms"), 60),
        ],
    )
    for store in ("SQLite", "PostgreSQL"):
        yield _row(
            f"CPU of the inspector's dearest page of each kind, 100,000 turns, {store}, ms",
            NOT_MEASURED,
            "{:.0f}",
            [_Value(kind, _dearest(results, kind, f"{store} CPU"), 150) for kind in PAGES],
        )
    yield _row("CPU of the walk of `verify`, s", "about 110", "{:.0f}", [_Value("", figures("walk-cpu-s"), 50)])
    yield _row(
        "CPU of the last 50 of 200 steps over the first 50",
        "0.98 (in memory), 0.93 (SQLite NORMAL), 1.05 (SQLite FULL)",
        "{:.2f}",
        [
            _Value(
                SHORT[name],
                _of(ours, name, lambda measured: growth["ratio"] if (growth := measured.get("growth")) else None),
                1.1,
            )
            for name in (MEMORY, NORMAL, FULL)
        ],
    )
    yield _row(
        "bytes between the largest and the smallest step of a turn, digits apart",
        "0",
        "{:,.0f}",
        [_Value("", counts("bytes-spread"), 0)],
    )
    yield _row("bytes stored a step, SQLite", "965", "{:,.0f}", [_Value("", counts("bytes-sqlite"), 1_000)])
    yield _nothing_lost([flight for name in (MEMORY, NORMAL, FULL) if (flight := _flight(ours, name)) is not None])
    yield _row("CPU of a paced chunk over httpx's with a hand split", "0.99", "{:.3g}", _paced(results))


def _facts(value: float | None) -> _Value:
    return _Value("", value, 250_000, least=True)


def _of(ours: dict[str, Measured], name: str, value: Callable[[Measured], float | None]) -> float | None:
    """A value of a subject; None where it was not measured."""
    try:
        return value(ours[name])
    except KeyError:
        return None


def _dearest(results: Results, kind: str, figure: str) -> float | None:
    """The largest figure of the pages of a kind; None where none was measured."""
    values = (page.get(figure) for page in results["reads"] if page["what"] == kind)
    return max((value for value in values if isinstance(value, float)), default=None)


def _flight(ours: dict[str, Measured], name: str) -> Flight | None:
    return ours[name]["flight"].get("10000") if name in ours else None


def _nothing_lost(flights: Sequence[Flight]) -> Goal:
    right = all(flight["right"] == flight["turns"] and not flight["looks_missing"] for flight in flights)
    words = ", ".join(f"{flight['right']:,}" for flight in flights)
    return Goal(
        "of 10,000 turns in flight, those that took all steps and ended with the answer, each call run once",
        "10,000",
        "all",
        words or NOT_MEASURED,
        _verdict([right] if flights else []),
    )


def _paced(results: Results) -> list[_Value]:
    paced = (row for row in results["streams"] if row["pace"] == "paced" and row["client"] == "Turnwright")
    ratios = {row["api"]: ratio for row in paced if isinstance(ratio := row["ratio"], float)}
    return [_Value(api, ratios.get(api), 1) for api in ("chat completions", "messages")]


def _row(label: str, before: str, form: str, values: Sequence[_Value]) -> Goal:
    measured_values = [value for value in values if value.value is not None]
    bounds = {value.bound for value in values}
    target = (
        form.format(values[0].bound)
        if len(bounds) == 1
        else ", ".join(value.words(form.format(value.bound)) for value in values)
    )
    return Goal(
        label,
        before,
        f"{'at least' if values[0].least else 'at most'} {target}",
        ", ".join(value.words(form.format(value.value)) for value in measured_values) or NOT_MEASURED,
        _verdict([value.met for value in measured_values]),
    )


def _verdict(met: Sequence[bool]) -> str:
    if not met:
        return NOT_MEASURED
    return "met" if all(met) else f"{sum(met)} of {len(met)} met" if any(met) else MISSED
