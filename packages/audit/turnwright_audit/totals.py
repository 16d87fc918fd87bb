"""The totals of an audit. They are added up file by file, in memory that does not grow with the number of runs."""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from pathlib import PurePath
from typing import Final, Self

from msgspec import Struct, field

from turnwright._base.words import count
from turnwright_states.rules import RuleList

from .distribution import Distribution
from .loops import Loop
from .measure import Counts, RunMeasure, TurnMeasure
from .numbers import percent
from .trials import TRIALS, Trial, effect, may_matter
from .verdicts import Invariants

#: Costs are counted in millionths.
MICRO: Final = 1_000_000
#: Groups and endings that are kept apart; the rest is one.
_MOST_GROUPS: Final = 200
OTHERS: Final = "(others)"
#: The loops, and the runs with calls without a result, that are kept for a report.
_KEPT: Final = 200


class _Sum(Struct):
    """Numbers that are added up."""

    def merge(self, addend: Self) -> None:
        """Add the numbers of another one."""
        _add(self, addend)


class Tally(_Sum):
    """The effect of one limit: the runs that it changes, with what they would have saved.

    `succeeded` of the runs had succeeded, `failed` had failed. `refused` are calls that were refused in steps that
    stay. `at` has the step of each stop, counted in its turn. `saved_failed` are the saved steps of failed runs.
    `with_tokens` and `with_cost` of the runs have them for each step. Of the others the saved ones are unknown.
    """

    runs: int = 0
    stopped: int = 0
    succeeded: int = 0
    failed: int = 0
    steps: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    refused: int = 0
    saved_failed: int = 0
    with_tokens: int = 0
    with_cost: int = 0
    at: Distribution = field(default_factory=Distribution)

    def take(self, trial: Trial, turns: Sequence[TurnMeasure], success: bool | None) -> None:
        """Count what a limit does to the turns of a run."""
        is_changed = is_stopped = False
        for turn in turns:
            kept_steps, refused_calls = effect(turn, trial)
            if kept_steps == turn.steps and not refused_calls:
                continue
            is_changed = True
            self.refused += refused_calls
            saved_steps = turn.steps - kept_steps
            self.steps += saved_steps
            self.saved_failed += saved_steps if success is False else 0
            self.calls += sum(turn.calls[kept_steps:]) + refused_calls
            self.tokens += sum(turn.tokens[kept_steps:])
            self.cost += sum(turn.cost[kept_steps:])
            if saved_steps or trial.max_calls_per_step is None:
                is_stopped = True
                self.at.add(kept_steps)
        self.runs += is_changed
        self.with_tokens += is_changed and any(map(any, (turn.tokens for turn in turns)))
        self.with_cost += is_changed and any(map(any, (turn.cost for turn in turns)))
        self.stopped += is_stopped
        self.succeeded += is_changed and success is True
        self.failed += is_changed and success is False


class Group(_Sum):
    """The runs of one agent with one model."""

    runs: int = 0
    succeeded: int = 0
    labeled: int = 0
    steps: Distribution = field(default_factory=Distribution)
    calls: Distribution = field(default_factory=Distribution)
    tokens: Distribution = field(default_factory=Distribution)
    cost: Distribution = field(default_factory=Distribution)

    def take(self, run: RunMeasure) -> None:
        """Count a run."""
        self.runs += 1
        self.labeled += run.success is not None
        self.succeeded += run.success is True
        self.steps.add(run.steps)
        self.calls.add(run.calls)
        # Without a recorded usage the tokens are unknown, and no cost is known.
        if run.tokens:
            self.tokens.add(run.tokens)
        if run.cost:
            self.cost.add(round(run.cost * MICRO))


class OfFormat(_Sum):
    """The runs of one format. `loops` are counted by kind."""

    files: int = 0
    runs: int = 0
    turns: int = 0
    steps: int = 0
    calls: int = 0
    results: int = 0
    unpaired: int = 0
    unreadable: int = 0
    loops: dict[str, int] = field(default_factory=dict)


class OfKind(_Sum):
    """The loops of one kind. Tokens after several loops of a turn count once; `with_tokens` of the runs have them."""

    loops: int = 0
    runs: int = 0
    succeeded: int = 0
    rounds: int = 0
    tokens_after: int = 0
    with_tokens: int = 0


class OfRule(_Sum):
    """The runs that break one rule, and their calls that do. `succeeded` and `failed` are labels."""

    runs: int = 0
    succeeded: int = 0
    failed: int = 0
    calls: int = 0

    def take(self, run: RunMeasure, calls: int) -> None:
        """Count a run with so many calls that break the rule."""
        self.runs += 1
        self.succeeded += run.success is True
        self.failed += run.success is False
        self.calls += calls


class _OfRun(Struct):
    file: str
    run: str

    @property
    def name(self) -> str:
        """The name of the run: of one that has a number only, with the name of its file."""
        return f"{PurePath(self.file).name}:{self.run}" if self.run.isdecimal() else self.run


class SeenLoop(_OfRun):
    """A loop with its run. `has_tokens`: the run has the tokens of each step, so those after the loop are known."""

    steps: int
    success: bool | None
    loop: Loop
    has_tokens: bool = True


class UnpairedRun(_OfRun):
    """A run with calls without a result, which are counted by tool."""

    calls: int
    tools: dict[str, int]


class GoodRuns(_Sum):
    """The runs that went well, from which limits are suggested. Each counts with its largest turn."""

    runs: int = 0
    steps: Distribution = field(default_factory=Distribution)
    calls: Distribution = field(default_factory=Distribution)
    tokens: Distribution = field(default_factory=Distribution)
    cost: Distribution = field(default_factory=Distribution)

    def take(self, run: RunMeasure) -> None:
        """Count a run, if it has turns. Tokens and cost count where they are known for each turn."""
        turns = run.measured
        if not turns:
            return
        self.runs += 1
        self.steps.add(max(turn.steps for turn in turns))
        self.calls.add(max(sum(turn.ran) for turn in turns))
        alone = len(turns) == 1
        if tokens := run.tokens if alone else max(sum(turn.tokens) for turn in turns):
            self.tokens.add(tokens)
        if cost := run.cost if alone else max(sum(turn.cost) for turn in turns):
            self.cost.add(round(cost * MICRO))


class Totals(Counts, kw_only=True):
    """The totals of all runs. `succeeded` and `failed` are labels; runs without one are in neither.

    `good` are the runs that succeeded, `finished` those that gave an answer. `failed_steps` are the steps of
    failed runs, of which a detector saves a share. `step_tokens` and `step_cost` are the parts of the tokens and of the
    cost that are known for each step; a recording may have only those of the whole run.
    """

    runs: int = 0
    unpaired_runs: int = 0
    cut: int = 0
    succeeded: int = 0
    failed: int = 0
    failed_steps: int = 0
    step_tokens: int = 0
    step_cost: float = 0.0
    looping: int = 0
    endings: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    all: Group = field(default_factory=Group)
    groups: dict[str, Group] = field(default_factory=dict)
    formats: dict[str, OfFormat] = field(default_factory=dict)
    kinds: dict[str, OfKind] = field(default_factory=dict)
    loops: list[SeenLoop] = field(default_factory=list)
    without_results: list[UnpairedRun] = field(default_factory=list)
    good: GoodRuns = field(default_factory=GoodRuns)
    finished: GoodRuns = field(default_factory=GoodRuns)
    tallies: dict[str, Tally] = field(default_factory=dict)
    invariants: Invariants = field(default_factory=Invariants)
    #: The rules of the audit that runs break, and the runs that break one whose effect is more than a report.
    rules: dict[str, OfRule] = field(default_factory=dict)
    breaking: OfRule = field(default_factory=OfRule)

    def take(self, run: RunMeasure) -> None:
        """Count a run."""
        _add_fields(self, run, Counts.__struct_fields__)
        self.runs += 1
        self.step_tokens += sum(sum(turn.tokens) for turn in run.measured)
        self.step_cost += sum(sum(turn.cost) for turn in run.measured)
        self.cut += run.cut
        if run.unpaired:
            self.unpaired_runs += 1
            self.without_results.append(UnpairedRun(run.file, run.run, run.unpaired, run.unpaired_tools))
        self.looping += bool(run.loops)
        self.succeeded += run.success is True
        self.failed += run.success is False
        self.failed_steps += run.steps if run.success is False else 0
        ending = _choose_group(self.endings, run.ending)
        self.endings[ending] = self.endings.get(ending, 0) + 1
        for finding, number in run.findings.items():
            self.findings[finding] = self.findings.get(finding, 0) + number
        self.all.take(run)
        self.groups.setdefault(_choose_group(self.groups, f"{run.agent} / {run.model}"), Group()).take(run)
        self._take_format(run)
        self._take_loops(run)
        if max(len(self.loops), len(self.without_results)) > 2 * _KEPT:
            self._keep_the_worst()
        if run.invariants:
            self.invariants.merge(run.invariants)
        self._take_rules(run)
        self._take_good(run)
        for name, trial in TRIALS.items():
            if may_matter(run.measured, trial):
                self.tallies.setdefault(name, Tally()).take(trial, run.measured, run.success)

    @property
    def labeled(self) -> int:
        """The number of the runs with a label."""
        return self.succeeded + self.failed

    def show_labeled(self, number: int) -> str:
        """Return a number of runs that succeeded or failed, or `?` if no run has a label."""
        return f"{number:,}" if self.labeled else "?"

    def rule_rows(self, rules: RuleList) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield each rule: name, effect, the runs that break it (the most first), those that failed, and the calls."""
        rows = ((rule, self.rules.get(rule.name, OfRule())) for rule in rules.rules)
        for rule, broken in sorted(rows, key=lambda row: -row[1].runs):
            yield rule.name, rule.effect, f"{broken.runs:,}", self.show_labeled(broken.failed), f"{broken.calls:,}"

    def describe_breaking(self) -> str:
        """Return how many runs break a rule, and how many of them failed."""
        runs, failed = self.breaking.runs, self.breaking.failed
        words = f"{count(runs, 'run')} of {self.runs:,} {'breaks' if runs == 1 else 'break'} a rule"
        if not runs or not self.failed:
            return words
        return f"{words}; {failed:,} of them failed, {percent(failed, self.failed)} of all failures"

    def saved_tokens(self, tally: Tally) -> int | None:
        """Return the tokens that a limit saves; None if the recordings do not have those of the steps that it saves."""
        has_tokens = tally.with_tokens or (self.step_tokens and not tally.runs)
        return tally.tokens if has_tokens else None

    def saved_cost(self, tally: Tally) -> float | None:
        """Return the cost that a limit saves; None as for `saved_tokens`."""
        has_cost = tally.with_cost or (self.step_cost and not tally.runs)
        return tally.cost if has_cost else None

    def shares_saved(self, tally: Tally) -> tuple[str, str]:
        """Return the shares of the tokens and of the cost that are saved, of those that are known for each step.

        A share is `?` if it is not known, and empty if nothing was recorded.
        """
        tokens, cost = self.saved_tokens(tally), self.saved_cost(tally)
        return (
            "" if not self.all.tokens.n else "?" if tokens is None else percent(tokens, self.step_tokens),
            "" if not self.all.cost.n else "?" if cost is None else percent(cost, self.step_cost),
        )

    def merge(self, addend: "Totals") -> None:
        """Add the totals of other runs."""
        _add(self, addend)
        self._keep_the_worst()

    def _take_format(self, run: RunMeasure) -> None:
        format_totals = self.formats.setdefault(run.format, OfFormat())
        format_totals.files += run.first
        format_totals.runs += 1
        _add_fields(format_totals, run, ("turns", "steps", "calls", "results", "unpaired", "unreadable"))
        for loop in run.loops:
            format_totals.loops[loop.kind] = format_totals.loops.get(loop.kind, 0) + 1

    def _take_good(self, run: RunMeasure) -> None:
        if run.success:
            self.good.take(run)
        if run.finished:
            self.finished.take(run)

    def _take_rules(self, run: RunMeasure) -> None:
        for name, rule in run.rules.items():
            self.rules.setdefault(name, OfRule()).take(run, rule.calls)
        if run.breaks_rules:
            self.breaking.take(run, sum(rule.calls for rule in run.rules.values() if rule.effect != "report"))

    def _take_loops(self, run: RunMeasure) -> None:
        has_tokens = run.has_step_tokens
        for loop in run.loops:
            kind = self.kinds.setdefault(loop.kind, OfKind())
            kind.loops += 1
            kind.rounds += loop.length
            self.loops.append(SeenLoop(run.file, run.run, run.steps, run.success, loop, has_tokens))
        for name in {loop.kind for loop in run.loops}:
            self.kinds[name].runs += 1
            self.kinds[name].succeeded += run.success is True
            self.kinds[name].tokens_after += run.tokens_after.get(name, 0)
            self.kinds[name].with_tokens += has_tokens

    def _keep_the_worst(self) -> None:
        self.loops = nlargest(_KEPT, self.loops, key=_worth)
        self.without_results = nlargest(_KEPT, self.without_results, key=lambda unpaired_run: unpaired_run.calls)


def _worth(seen_loop: SeenLoop) -> tuple[int, int]:
    return seen_loop.loop.tokens_after, seen_loop.loop.length


def _choose_group(entries: "dict[str, int] | dict[str, Group]", name: str) -> str:
    return name if name in entries or len(entries) < _MOST_GROUPS else OTHERS


def _add_fields(total: Struct, addend: Struct, names: Sequence[str]) -> None:
    for name in names:
        setattr(total, name, getattr(total, name) + getattr(addend, name))


def _add(total: Struct, addend: Struct) -> None:
    """Add each number, distribution and list of `addend` to `total`."""
    for name in total.__struct_fields__:
        total_value, addend_value = getattr(total, name), getattr(addend, name)
        if isinstance(total_value, dict):
            for key, value in addend_value.items():
                kept_key = _choose_group(total_value, key)
                if kept_key not in total_value:
                    total_value[kept_key] = value
                elif isinstance(value, int):
                    total_value[kept_key] += value
                else:
                    total_value[kept_key].merge(value)
        elif isinstance(total_value, Struct):
            total_value.merge(addend_value)  # type: ignore[attr-defined]  # each struct in a total has it
        else:
            _add_fields(total, addend, (name,))
