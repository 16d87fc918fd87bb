"""The pages `bench/RESULTS.md`, by which a user compares, and `bench/DETAILS.md`, which has all tables."""

from collections.abc import Mapping, Sequence
from typing import Final

import bench.bodies
import bench.guard
import bench.measure
import bench.program
import bench.reads
import bench.streams
from bench.goals import MEMORY, OURS, goals
from bench.results import FOLDER, Measured, Record, ResultCost, Results, Taken

SIZES: Final = ("10", "50", "200")
FLIGHTS: Final = ("10", "100", "1000", "10000")
NONE: Final = ""
BARE: Final = "bare loop"
PAGE: Final = FOLDER / "page.md"
DETAILS: Final = FOLDER / "details_page.md"
#: The stores of durable subjects, in the order of the table.
STORES: Final = ("SQLite NORMAL", "SQLite FULL", "SQLite", "PostgreSQL", "Temporal")


def page(results: Results) -> str:
    """The page of results: `bench/page.md`, with each `{{name}}` filled in."""
    parts = {
        "plain": _results([subject for subject in results["subjects"] if _is_in_memory(subject, streamed=False)]),
        "streamed": _results([subject for subject in results["subjects"] if _is_in_memory(subject, streamed=True)]),
        "durable": _durable(results),
        "queues": _queues(results),
        "goals": _goals(results),
        "notes": _notes(results),
        "machine": _machine(results),
        "run": results["run"],
        "minutes": f"{sum(map(_minutes, _taken(results).values())):.0f}",
        "versions": _versions(results),
    }
    return _filled(PAGE.read_text(), parts)


def details(results: Results) -> str:
    """The page with all tables: `bench/details_page.md`, with each `{{name}}` filled in."""
    parts = {
        "steps": _steps(results),
        "notes": _notes(results),
        "flights": _flights(results),
        "streams": _records("A chunk of a stream", bench.streams, results["streams"]),
        "reads": _records("The inspector's pages", bench.reads, results["reads"]),
        "bodies": _printed("The body of a request", bench.bodies, results["bodies"]),
        "counts": _counts(results),
        "sessions": _sessions(results),
        "method": _docstring(bench.measure),
        "program": _docstring(bench.program),
        "times": _times(results),
    }
    return _filled(DETAILS.read_text(), parts)


def _filled(text: str, parts: Mapping[str, str]) -> str:
    for name, part in parts.items():
        text = text.replace(f"{{{{{name}}}}}\n\n" if not part else f"{{{{{name}}}}}", part)
    return text


def _goals(results: Results) -> str:
    rows = [(goal.label, goal.target, goal.now, goal.verdict) for goal in goals(results)]
    return table(("what", "target", "now", ""), rows)


def _is_in_memory(subject: Measured, *, streamed: bool) -> bool:
    is_bare = subject["name"] == BARE
    return (not subject["durable"] and not subject["store_kind"] and subject["streamed"] == streamed) or is_bare


def _results(subjects: Sequence[Measured]) -> str:
    """CPU of a step by the size of its results, the cheapest first."""
    head = (
        "",
        *(f"ms, {kib} KiB" if kib else "ms, 15 bytes" for kib in bench.measure.RESULTS_KIB),
        "48 KiB over 15 bytes",
    )
    rows: list[tuple[str, ...]] = []
    for subject, costs_by_kib in _by_cost(subjects):
        costs = [cost["cpu_ms"] for cost in costs_by_kib.values()]
        rows.append((subject["name"], *map(_number, costs), _number(costs[-1] / costs[0])))
    return table(head, rows)


def _by_cost(subjects: Sequence[Measured]) -> list[tuple[Measured, dict[str, ResultCost]]]:
    """The subjects with their costs of results, the cheapest first."""
    measured = [(subject, costs) for subject in subjects if (costs := subject.get("results"))]
    return sorted(measured, key=lambda pair: pair[1]["0"]["cpu_ms"])


def _durable(results: Results) -> str:
    """CPU of a durable step, in the process and in its server, by store."""
    head = ("", "store", "ms, 15 bytes", "server, ms", "ms, 48 KiB", "server, ms", "steps a CPU second", "with 48 KiB")
    rows: list[tuple[str, ...]] = []
    for store in STORES:
        subjects = [subject for subject in results["subjects"] if subject["durable"] and subject["store_kind"] == store]
        for subject, costs_by_kib in _by_cost(subjects):
            costs = [costs_by_kib[kib] for kib in ("0", "48")]
            cells = [_number(value) for cost in costs for value in (cost["cpu_ms"], cost["server_ms"])]
            rates = [_number(1e3 / (cost["cpu_ms"] + (cost["server_ms"] or 0.0))) for cost in costs]
            rows.append((subject["name"], store, *cells, *rates))
    return table(head, rows)


def _queues(results: Results) -> str:
    speeds = ("submits a second", "first turn ended after, s", "turns a second")
    head = ("", "workers", *speeds, "ms a turn, workers", "ms a turn, database")
    rows = [
        (
            subject["name"],
            str(queue["workers"]),
            *map(_number, (queue["submits_per_s"], queue["first_s"], queue["turns_per_s"])),
            *map(_number, (queue["worker_ms"], queue["server_ms"])),
        )
        for subject in results["subjects"]
        for queue in subject.get("queue", [])
    ]
    return table(head, rows)


def ordered(subjects: Sequence[Measured]) -> list[Measured]:
    """The bare loops, then Turnwright, then the peers from the cheapest to the dearest."""

    def place(subject: Measured) -> tuple[int, float]:
        name = subject["name"]
        if name in OURS:
            return 1, OURS.index(name)
        return 0 if name.startswith(BARE) else 2, subject.get("steps", {}).get("50", {"ratio": 0.0})["ratio"]

    return sorted(subjects, key=place)


def _steps(results: Results) -> str:
    head = ("", *(f"us, N = {size}" for size in SIZES), *(f"of bare, {size}" for size in SIZES))
    head += ("growth", "calls", "stored", "written", "peak, MiB", "import, ms")
    rows: list[tuple[str, ...]] = []
    for subject in ordered(results["subjects"]):
        steps, stored, growth = subject.get("steps", {}), subject.get("bytes"), subject.get("growth")
        rows.append(
            (
                subject["name"],
                *(_number(steps[size]["cpu_us"]) if size in steps else NONE for size in SIZES),
                *(_number(steps[size]["ratio"]) if size in steps else NONE for size in SIZES),
                f"{growth['ratio']:.2f}" if growth else NONE,
                _number(subject.get("calls_per_step")),
                _pair(stored["first"], stored["last"]) if stored else NONE,
                _pair(stored["written_first"], stored["written_last"]) if stored else NONE,
                _number(subject.get("peak_mib")),
                _number(subject.get("import_ms")),
            )
        )
    return table(head, rows)


def _flights(results: Results) -> str:
    head = ("", *(f"steps a CPU second, {int(turns):,} turns" for turns in FLIGHTS))
    head += (*(f"KiB a turn, {int(turns):,}" for turns in FLIGHTS[2:]), "right", "wall, s")
    rows: list[tuple[str, ...]] = []
    for subject in ordered(results["subjects"]):
        flight = subject["flight"]
        most = flight[max(flight, key=int)] if flight else None
        rows.append(
            (
                subject["name"],
                *(_number(flight[turns]["steps_per_cpu_s"]) if turns in flight else NONE for turns in FLIGHTS),
                *(_number(flight[turns]["kib_per_turn"]) if turns in flight else NONE for turns in FLIGHTS[2:]),
                _right(most["right"], most["turns"], most["looks_missing"]) if most else NONE,
                _number(most["wall_s"]) if most else NONE,
            )
        )
    return table(head, rows)


def _sessions(results: Results) -> str:
    head = ("", "ms, turn 5", *(f"of bare, {place}" for place in bench.measure.PLACES), "last over first")
    rows: list[tuple[str, ...]] = []
    for subject in ordered(results["subjects"]):
        turns = list(subject.get("session", {}).values())
        if turns:
            ratios = [turn["ratio"] for turn in turns]
            cells = [_number(ratio) for ratio in ratios] + [NONE] * (len(bench.measure.PLACES) - len(ratios))
            rows.append((subject["name"], _number(turns[0]["cpu_ms"]), *cells, _number(ratios[-1] / ratios[0])))
    return table(head, rows)


def _times(results: Results) -> str:
    """The date of each part, the minutes that it took, and the load before its measurements."""
    rows = [
        (
            name,
            ", ".join(sorted({part["run"][:10] for part in parts_of_name})),
            f"{_minutes(parts_of_name):.1f}",
            f"{max(part['load'] for part in parts_of_name):.1f}",
        )
        for name, parts_of_name in _taken(results).items()
        if parts_of_name
    ]
    return table(("part", "measured", "minutes", "highest load"), rows)


def _taken(results: Results) -> dict[str, list[Taken]]:
    """The measurements of each part and subject."""
    parts: dict[str, list[Taken]] = {name: [part] for name, part in results["taken"].items()}
    for subject in ordered(results["subjects"]):
        parts[subject["name"]] = [*subject["taken"].values()]
    return parts


def _minutes(measurements: Sequence[Taken]) -> float:
    return sum(measurement["seconds"] for measurement in measurements) / 60


def _right(right: int, turns: int, missing: int) -> str:
    return f"{right:,} of {turns:,}" + (f", {missing:,} calls lost or doubled" if missing else "")


def _notes(results: Results) -> str:
    """Return notes: the subjects' own, and the parts that were not measured, or measured less often."""
    names_by_note: dict[str, list[str]] = {}
    for subject in ordered(results["subjects"]):
        fewer = [
            f"N = {size}: {figures['pairs']}"
            for size, figures in subject.get("steps", {}).items()
            if figures["pairs"] < bench.measure.FEW
        ]
        notes = [
            *subject["notes"],
            *([f"Fewer pairs than {bench.measure.FEW}, for it is slow ({', '.join(fewer)})."] if fewer else []),
            *(f"Not measured: {part}, {why}." for part, why in subject["failed"].items()),
        ]
        for note in notes:
            names_by_note.setdefault(note, []).append(subject["name"])
    lines = [f"- {'; '.join(names)}: {note}" for note, names in names_by_note.items()]
    if results["missing"]:
        lines.append(f"- Not installed, and not measured: {', '.join(results['missing'])}.")
    return "\n".join(lines)


def _counts(results: Results) -> str:
    allowed = bench.guard.limits()
    rows = [
        (
            key,
            f"{results['counts'][key]:,.6g}" if key in results["counts"] else NONE,
            f"{limit.most:,.6g}",
            limit.reason,
        )
        for key, limit in allowed.items()
    ]
    return f"{_docstring(bench.guard)}\n\n" + table(("count", "counted", "at most", "because"), rows)


def _docstring(module: object) -> str:
    """Return a module's docstring without its first line and its command line."""
    text = (getattr(module, "__doc__", None) or "").split("\n\n", 1)[1]
    return "\n\n".join(part.strip("\n") for part in text.split("\n\n") if not part.startswith("    "))


def _versions(results: Results) -> str:
    rows = [
        (subject["name"], ", ".join(f"{name} {version}" for name, version in subject["versions"].items()))
        for subject in ordered(results["subjects"])
        if subject["versions"] and (subject["name"] == MEMORY or subject["name"] not in OURS)
    ]
    return table(("", "packages"), rows)


def _records(title: str, module: object, records: Sequence[Record]) -> str:
    if not records:
        return ""
    head = tuple(records[0])
    rows = [tuple(_cell(record.get(name)) for name in head) for record in records]
    return f"## {title}\n\n{_docstring(module)}\n\n{table(head, rows)}"


def _printed(title: str, module: object, text: str) -> str:
    return f"## {title}\n\n{_docstring(module)}\n\n```text\n{text}\n```" if text else ""


def _machine(results: Results) -> str:
    where = results["machine"]
    return (
        f"{where['processor']}, {where['cores']} cores, {where['memory_gib']:.0f} GiB of memory, {where['system']},"
        f" Python {where['python']}, SQLite {where['sqlite']}."
    )


def _cell(value: str | float | None) -> str:
    return value if isinstance(value, str) else _number(value)


def _pair(first: float | None, last: float | None) -> str:
    return NONE if first is None or last is None else f"{first:,.0f} / {last:,.0f}"


def _number(value: float | None) -> str:
    """Three digits that matter, and no exponent."""
    if value is None:
        return NONE
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2  # noqa: PLR2004
    return f"{value:,.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; columns of numbers are set right."""
    right = [all(row[at][:1].isdigit() or not row[at] for row in rows) and bool(rows) for at in range(len(head))]
    lines = [
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---:" if is_right else "---" for is_right in right) + " |",
    ]
    lines.extend("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join(lines)
