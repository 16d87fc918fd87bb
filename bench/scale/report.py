"""The results of the scale run: as `docs/scale.json`, and as the tables of `docs/scale.md`."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from bench.results import Machine
from bench.scale.model import PARTS, Capacity, Cost, Costs, Fleet, Work, actions, capacity
from bench.scale.run import Measured, Spread
from msgspec import Struct

_NAMES: Final = {
    "worker": "workers",
    "client": "submitter",
    "postgres": "PostgreSQL",
    "temporal": "Temporal",
}
_COUNTS: Final = ("tool executions", "turns taken over", "model calls repeated")
_PHASES: Final = {"slots": "few slots", "full": "no kills", "killed": "workers killed"}


class Death(Struct, frozen=True):
    """One worker that was killed, or (`stalled`) stopped: seconds until the turns that it drove continued elsewhere."""

    stalled: bool
    seconds: Spread


class Report(Struct, frozen=True):
    """A run.

    `start` and `idle` are CPU seconds by part: of a worker until it is ready, and of a second without work.
    `calibration` are the phases `few` and `many` (steps, one turn at a time) and `empty` (turns without steps, many at
    once); `phases` those that the model is compared with. `faults` are counted by claim, zeros included.
    """

    runtime: str
    machine: Machine
    versions: dict[str, str]
    start: dict[str, float]
    idle: dict[str, float]
    calibration: dict[str, Measured]
    phases: dict[str, Measured]
    faults: dict[str, int]
    counts: dict[str, int]
    endings: dict[str, int]
    deaths: list[Death]
    recovery: Spread

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Read what `to_json` wrote. Raises `msgspec.ValidationError` for anything else."""
        return msgspec.json.decode(text, type=cls)

    def to_json(self) -> str:
        """The report as JSON text, to be committed."""
        rounded = _rounded(msgspec.to_builtins(self))
        return msgspec.json.format(msgspec.json.encode(rounded), indent=2).decode() + "\n"

    def costs(self) -> Costs:
        """The unit costs, for the model.

        What a step costs is the difference between turns of many steps and of few, one at a time. What a turn costs
        beside its steps is that of turns without any, many at once: alone it costs more, for nothing is shared.
        """
        few, many, empty = (self.calibration[name] for name in ("few", "many", "empty"))

        def step(of_few: float, of_many: float) -> Cost:
            return Cost.through((few.load.steps, of_few), (many.load.steps, of_many))

        cpu = {
            part: Cost(self._cpu(empty, part), step(self._cpu(few, part), self._cpu(many, part)).step) for part in PARTS
        }
        return Costs(
            cpu=cpu,
            idle=self.idle,
            waits=step(_waits(few), _waits(many)),
            commits=step(few.appends, many.appends),
            commit=many.append.median,
            actions=empty.rate * actions(empty.drive.median) if self.runtime == "temporal" else None,
        )

    def _cpu(self, measured: Measured, part: str) -> float:
        """Return a turn's share of a part, without its use without turns."""
        workers = measured.load.workers if part == "worker" else 1
        apart = (self.start[part] + self.idle[part] * measured.seconds) * workers / measured.load.turns
        return max(measured.cpu[part] - apart, 0.0)

    def predicted(self, measured: Measured) -> Capacity:
        """Return the model's prediction of a phase of this run: everything on this machine."""
        load = measured.load
        fleet = Fleet(load.workers, load.concurrency, cores=self.machine["cores"])
        return capacity(fleet, Work(load.steps, load.model, load.tool), self.costs())

    def tables(self) -> str:
        """The report as tables in Markdown."""
        return "\n".join(self._lines())

    @property
    def bad(self) -> int:
        """Return the number of violations."""
        return sum(self.faults.values())

    def _lines(self) -> Iterator[str]:
        there, load = self.machine, next(iter(self.phases.values())).load
        yield (
            f"{there['cores']} cores for everything ({there['processor']}), {there['memory_gib']:.0f} GiB,"
            f" {there['system']}; {', '.join(map(' '.join, self.versions.items()))}; {there['date']}. A turn has"
            f" {load.steps} steps, a model call takes {load.model:g} s, a tool {load.tool:g} s."
        )
        yield ""
        yield from _table(("", *(_PHASES[name] for name in self.phases)), self._results())
        yield ""
        yield (
            f"With workers killed: {self.bad} violations of the {len(self.faults)} checks,"
            f" {', '.join(f'{self.counts[name]:,} {name}' for name in _COUNTS)}."
            " [`scale.json`](scale.json) has the checks and all counts."
        )
        yield ""
        yield (
            f"{self.recovery.count:,} turns continued after one of {len(self.deaths)} workers had died: the median took"
            f" {self.recovery.median:.1f} s from the death to the next fact, the slowest {self.recovery.most:.1f} s."
        )
        yield ""
        yield "Unit costs:"
        yield ""
        yield from _table(("", "per turn", "per step"), self._costs())

    def _results(self) -> Iterator[Sequence[str]]:
        """The phases: their load, what was measured, and the rates that the model predicts."""
        every, predictions = list(self.phases.values()), [self.predicted(phase) for phase in self.phases.values()]
        yield "turns", *(f"{phase.load.turns:,}" for phase in every)
        yield "workers x concurrency", *(f"{phase.load.workers} x {phase.load.concurrency}" for phase in every)
        yield (
            "s to drive a turn, median and p90",
            *(f"{phase.drive.median:.1f}, {phase.drive.p90:.1f}" for phase in every),
        )
        yield "database, KiB per turn", *(f"{phase.kib:.0f}" for phase in every)
        yield "turns per second, measured", *(f"**{_number(phase.rate)}**" for phase in every)
        yield (
            "predicted, and the bound",
            *(f"**{_number(prediction.turns)}** ({prediction.bound_by})" for prediction in predictions),
        )

    def _costs(self) -> Iterator[Sequence[str]]:
        costs = self.costs()
        for part in PARTS:
            yield f"CPU of {_NAMES[part]}, ms", *_ms_cost(costs.cpu[part])
        yield "slot held beyond model and tools, ms", *_ms_cost(costs.waits)
        yield f"appends of {1000 * costs.commit:.1f} ms", f"{costs.commits.turn:.1f}", f"{costs.commits.step:.1f}"
        if costs.actions is not None:
            yield "actions per second of this Temporal server", f"{costs.actions:.0f}", ""

    def example(self) -> str:
        """The model's answers for fleets that were not measured, as a table."""
        costs = self.costs()
        fleets = {
            "4 workers": Fleet(4, actions=500.0),
            "50 workers": Fleet(50, actions=500.0),
            "50 workers, heartbeat every 10 s": Fleet(50, actions=500.0, heartbeat=10.0),
            "50 workers, 5,000 actions per second": Fleet(50, actions=5000.0),
        }
        capacities = {name: capacity(fleet, _EXAMPLE, costs) for name, fleet in fleets.items()}
        rows = [(name, f"**{_number(bound.turns)}** ({bound.bound_by})") for name, bound in capacities.items()]
        return "\n".join(_table(("", "turns per second, and the bound"), rows))


#: Eight steps of a model that takes 3 seconds, and of tools that take one.
_EXAMPLE: Final = Work(steps=8, model=3.0, tools=1.0)


def put_into(page: str, report: Report) -> str:
    """The page with the report's tables between its marks. Raises `ValueError` for a page without marks."""
    return _between(_between(page, "measured", report.tables()), "example", report.example())


def _between(page: str, mark: str, text: str) -> str:
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    new_page, count = re.subn(f"(?<={begin}\n).*?(?={end})", lambda _: f"\n{text}\n\n", page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page must have {begin} and {end} once, each on a line of its own")
    return new_page


def _waits(measured: Measured) -> float:
    """The seconds for which a turn held its slot beyond its model and its tools, where there was one at a time."""
    load = measured.load
    return max(1 / measured.rate - Work(load.steps, load.model, load.tool).thinking, 0.0)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| --- |{' ---: |' * (len(head) - 1)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _ms_cost(cost: Cost) -> tuple[str, str]:
    return f"{1000 * cost.turn:.1f}", f"{1000 * cost.step:.1f}"


def _number(rate: float) -> str:
    """A rate as a reader wants it: none where nothing bounds it."""
    if rate == float("inf"):
        return "-"
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"  # noqa: PLR2004 (three digits say enough)


def _rounded(value: object) -> object:
    """The same with floats of few digits: nobody reads the others."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value
