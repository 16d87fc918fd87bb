"""The chart's Promela model, checked by SPIN. A fault is returned as a path of the chart's rows.

Each claim of the model is checked alone, over every state that the model can reach. Two more checks need no formula:
no state is a deadlock, and every row of the chart is taken. The model proves nothing about a row that it cannot take.
The rule is docs/rules.md#termination.
"""

import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from turnwright.draw.promela import CLAIMS, Bounds, rows_by_line, to_promela
from turnwright.errors import ConfigError
from turnwright_states.chart import CHART, Chart
from turnwright_states.verdict import Check, Verdict

from .pan import NoAnswerError, Pan, SpinSearch, Tools, Trail, Which, find

_DEADLOCK: Final = "deadlock"
_ROWS: Final = "rows"
#: The sentence of each check, by its name: the claims of the model, and the two checks without a formula.
CHECKS: Final[Mapping[str, str]] = {
    **CLAIMS,
    _DEADLOCK: "no state is a deadlock",
    _ROWS: "every row of the chart is taken somewhere",
}
#: The claim that needs fairness: it holds only if a process that can always act does act.
_FAIR: Final = "ends"
#: SPIN's words for a fault of the chart. Any other word is a fault of the model itself.
_FAULTS_OF_CLAIMS: Final = frozenset({"assertion violated", "acceptance cycle"})
_FAULTS_OF_ENDS: Final = frozenset({"invalid end state"})


def verify_with_spin(
    chart: Chart = CHART,
    *,
    seconds: float = 300,
    bounds: Bounds | None = None,
    only: Collection[str] = (),
    optimize: bool = True,
    which: Which = shutil.which,
) -> tuple[Check, ...]:
    """Return all checks of `each_check` at once."""
    return tuple(each_check(chart, seconds=seconds, bounds=bounds, only=only, optimize=optimize, which=which))


def each_check(
    chart: Chart = CHART,
    *,
    seconds: float = 300,
    bounds: Bounds | None = None,
    only: Collection[str] = (),
    optimize: bool = True,
    which: Which = shutil.which,
) -> Iterator[Check]:
    """Yield the checks of a chart's model, in the order of `CHECKS`, each as soon as SPIN has finished it.

    `seconds` limits all of them together. `only` names the checks to run; empty means all. Without `optimize` the
    verifier compiles faster and searches more slowly, which pays within small bounds. `which` finds the programs.

    A check that holds counts its states and transitions. A violated one has the path as its witness (rows with their
    numbers, oldest first), and the limits of that turn in its detail. One that did not finish (time or memory ran out,
    SPIN refused the model) is inconclusive, with the reason. When a program or the model is missing, a single
    inconclusive check is returned. Raises `ValueError` when `only` names an unknown check.
    """
    if unknown := sorted(set(only) - CHECKS.keys()):
        raise ValueError(f"no such check: {', '.join(unknown)} (there are {', '.join(CHECKS)})")
    try:
        tools, model = find(which), to_promela(chart, bounds)
    except (NoAnswerError, ConfigError) as error:
        yield Check("SPIN proves the model of the chart", Verdict.INCONCLUSIVE, str(error))
        return
    with TemporaryDirectory(prefix="turnwright-spin-") as where:
        run = _SpinRun(chart, model, tools, Path(where), until=time.monotonic() + seconds, optimize=optimize)
        for name in CHECKS:
            if not only or name in only:
                yield run.check(name)


class _SpinRun:
    """One model in one temporary directory. A verifier is compiled when the first check needs it."""

    def __init__(self, chart: Chart, model: str, tools: Tools, where: Path, *, until: float, optimize: bool) -> None:
        self._chart, self._model, self._tools = chart, model, tools
        self._where, self._until, self._optimize = where, until, optimize

    def check(self, name: str) -> Check:
        """Run one check. It is inconclusive if SPIN gives no answer."""
        try:
            if name in CLAIMS:
                search = self._claims.search(name, fair=name == _FAIR)
                return self._verdict(name, self._claims, search, _FAULTS_OF_CLAIMS)
            if name == _ROWS:
                return self._rows(self._whole)
            return self._verdict(name, self._unclaimed, self._whole, _FAULTS_OF_ENDS)
        except NoAnswerError as error:
            return Check(CHECKS[name], Verdict.INCONCLUSIVE, str(error))

    @cached_property
    def _claims(self) -> Pan:
        return self._pan("claims", claims=True)

    @cached_property
    def _unclaimed(self) -> Pan:
        # The processes that only watch can always act, which would hide a deadlock.
        return self._pan("unclaimed", claims=False, define="NOBODY_ELSE")

    @cached_property
    def _whole(self) -> SpinSearch:
        return self._unclaimed.search()

    def _pan(self, name: str, *, claims: bool, define: str = "") -> Pan:
        directory = self._where / name
        return Pan(
            self._model,
            directory,
            self._tools,
            until=self._until,
            claims=claims,
            define=define,
            optimize=self._optimize,
        )

    def _verdict(self, name: str, pan: Pan, search: SpinSearch, faults: frozenset[str]) -> Check:
        if not search.fault:
            return Check(CHECKS[name], Verdict.HOLDS, _counts(search))
        if search.fault not in faults:
            raise NoAnswerError(f"SPIN stopped at a fault of the model itself: {search.fault}")
        detail, witness = self._path(pan.replay(name if name in CLAIMS else ""))
        return Check(CHECKS[name], Verdict.VIOLATED, detail, witness)

    def _path(self, trail: Trail) -> tuple[str, tuple[str, ...]]:
        """Return the details of a trail (the limits of the turn first), and the rows that the turn took."""
        limits, refused, rows, before_cycle = "", "", list[str](), 0
        for at, line in enumerate(trail.lines):
            match line.split():
                case ["limits", *values]:
                    limits = _limits(values)
                case ["row", number]:
                    rows.append(f"{number}. {self._chart.rows[int(number) - 1].name}")
                    before_cycle += trail.cycle is None or at < trail.cycle
                case ["refused", number]:
                    refused = f"then {trail.name_of(number)} finds no row"
        cycle = "" if trail.cycle is None else _cycle(len(rows) - before_cycle)
        return "; ".join(filter(None, (limits, refused, cycle))), tuple(rows)

    def _rows(self, search: SpinSearch) -> Check:
        rows, lines = self._chart.rows, rows_by_line(self._model)
        if search.fault:
            raise NoAnswerError(f"SPIN stopped before the search was complete: {search.fault}")
        if "driver" not in search.unreached or len(lines) != len(rows):
            raise NoAnswerError("SPIN does not report which rows it took")
        untaken = sorted(lines[line] for line in search.unreached["driver"] & lines.keys())
        if untaken:
            named = "; ".join(f"{number}. {rows[number - 1].name}" for number in untaken)
            return Check(CHECKS[_ROWS], Verdict.VIOLATED, f"no path takes {named}")
        return Check(CHECKS[_ROWS], Verdict.HOLDS, f"{len(rows)} rows; {_counts(search)}")


def _counts(search: SpinSearch) -> str:
    return f"{search.states:,} states, {search.transitions:,} transitions, depth {search.depth:,}"


def _limits(values: list[str]) -> str:
    allowance, budgeted, budget, retries, pauses, nudges, asks, output_retries, compactions = map(int, values)
    return (
        f"allowance {allowance}, {f'budget {budget}' if budgeted else 'no budget'}, max_retries {retries}, "
        f"max_pauses {pauses}, nudges {nudges}, doom_response {'ask' if asks else 'stop'}, "
        f"output_retries {output_retries}, max_compactions {compactions}"
    )


def _cycle(rows: int) -> str:
    match rows:
        case 0:
            return "then the turn never changes again"
        case 1:
            return "the last row repeats without end"
        case _:
            return f"the last {rows} rows repeat without end"
