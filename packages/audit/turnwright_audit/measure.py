"""The measures of one run, small enough to be kept while thousands of other runs are read."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from msgspec import Struct, field

from turnwright_audit.trajectories.atif import (
    WAITING,
    FinalMetrics,
    RunNotes,
    Trajectory,
    TrajectoryStep,
)
from turnwright_audit.trajectories.checks import findings_of

from .broken_rules import BrokenRule
from .loops import Loop, loops_of
from .rounds import AuditStep, is_reply, is_step, late_results, read_count, shared_result, turns_of
from .verdicts import Invariants

_UNKNOWN: Final = "unknown"
_ANSWERED: Final = "answered"
_TERMINAL: Final = "terminal tool"
_BY_ITSELF: Final = (_ANSWERED, _TERMINAL)
#: The endings of agents that said they were done, though their last reply is a call, or the last message the user's.
_DONE: Final = frozenset({"Submitted", "submitted", "task_done", "user_stop"})
#: The endings of a reply that is an answer, though the model's server ran calls in it.
_REPLY_DONE: Final = frozenset(
    {"end_turn", "stop_sequence", "stop", "completed", "task_complete", "turn_complete", "success", "natural stop"}
)
#: How endings begin, up to a colon, of runs that something stopped, though their last reply may be a text.
_STOPPED: Final = frozenset(
    {
        "cap_hit",
        "doom_loop",
        "failed",
        "inconclusive",
        "paused",
        "pause_turn",
        "continued",
        "cap",
        "max turns",
        "blocked",
    }
)
#: Other parts of the names of such endings, which differ between versions: LimitsExceeded, turn_aborted, exit_cost.
_STOPPED_WORD: Final = re.compile(
    r"abort|cancel|content_filter|error|exceed|exit_(?:api|context|cost|format)|incomplete|interrupt|length|limit|max_"
    r"|time(?:d[ _]?)?out",
    re.IGNORECASE,
)


class TurnMeasure(Struct):
    """One turn as the limits see it: a number for each step, and the places of steps at which loop detectors act.

    `calls` are those that take a place in a budget, and `ran` those of them that were not denied. `first` is the
    number of the turn's first step in the run.
    """

    first: int
    calls: list[int]
    ran: list[int]
    tokens: list[int]
    cost: list[float]
    acts: dict[str, list[int]]

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.calls)


class Counts(Struct, kw_only=True):
    """The counts of a run, which are added up for all runs. The input tokens include the cached ones.

    Of the `calls`, those that have no result are `terminal` (calls of terminal tools), `unreadable` (the record of the
    result could not be read), `waiting` (the run is paused, and a person answers first) or else `unpaired`.
    `lost_calls` could not be read, `orphans` are results whose call is nowhere.
    """

    turns: int = 0
    steps: int = 0
    calls: int = 0
    results: int = 0
    unpaired: int = 0
    terminal: int = 0
    unreadable: int = 0
    waiting: int = 0
    lost_calls: int = 0
    orphans: int = 0
    errors: int = 0
    denied: int = 0
    failed_requests: int = 0
    unreadable_lines: int = 0
    subagents: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens


class RunMeasure(Counts, kw_only=True):
    """One run with its sub-agents.

    `unpaired_tools` counts the unpaired calls by tool. `findings` counts what cannot be so in a recording, by kind.
    `finished`: it ended by itself, with an answer or a terminal tool. `first` marks the first run of a file.
    `tokens_after` are those after the first loop of each kind in each turn.
    """

    file: str
    run: str
    format: str
    agent: str
    model: str
    ending: str = ""
    success: bool | None = None
    cut: bool = False
    finished: bool = False
    first: bool = False
    findings: dict[str, int] = field(default_factory=dict)
    unpaired_tools: dict[str, int] = field(default_factory=dict)
    loops: list[Loop] = field(default_factory=list)
    tokens_after: dict[str, int] = field(default_factory=dict)
    measured: list[TurnMeasure] = field(default_factory=list)
    invariants: Invariants | None = None
    #: The rules of the audit that the run breaks, by their names.
    rules: dict[str, BrokenRule] = field(default_factory=dict)

    @property
    def breaks_rules(self) -> bool:
        """Whether the run breaks a rule whose effect is more than a report."""
        return any(rule.effect != "report" for rule in self.rules.values())

    @property
    def has_step_tokens(self) -> bool:
        """Whether the tokens are known for each step, and not as a sum alone."""
        return any(any(turn.tokens) for turn in self.measured)


def measure(run: Trajectory, file: str, place: int = 0) -> RunMeasure:
    """Return the measures of a run. `place` is its position in the file, from 0, for a run without a name."""
    notes = run.run_notes
    run_measure = RunMeasure(
        file=file,
        run=notes.run or run.session_id or run.trajectory_id or str(place),
        format=notes.format or _UNKNOWN,
        agent=run.agent.name,
        model=_model(run),
        ending=_ending(run, notes),
        success=notes.success,
        cut=notes.cut,
        finished=is_finished(run),
        first=not place,
        findings=dict(Counter(finding.kind for finding in findings_of(run))),
    )
    for trajectory in run.every():
        run_measure.subagents += trajectory is not run
        _count(trajectory, run_measure)
        for number, turn in enumerate(turns_of(trajectory)):
            _take(turn, run_measure, new=trajectory is run and (number > 0 or _begins_with_message(trajectory)))
    return run_measure


def is_finished(run: Trajectory) -> bool:
    """Whether a run ended by itself: with an answer, or with a call of a terminal tool."""
    notes = run.run_notes
    ending = (notes.ending or "").partition(":")[0]
    if notes.cut or ending in _STOPPED or _STOPPED_WORD.search(ending):
        return False
    return ending in _DONE or _last_seen(run, notes) in _BY_ITSELF or (ending in _REPLY_DONE and _answers(run))


def _take(turn: list[AuditStep], run_measure: RunMeasure, *, new: bool) -> None:
    run_measure.turns += new
    if not turn:
        return
    loops, acts = loops_of(turn)
    run_measure.loops += loops
    for kind in {loop.kind for loop in loops}:
        after = max(loop.tokens_after for loop in loops if loop.kind is kind)
        run_measure.tokens_after[kind] = run_measure.tokens_after.get(kind, 0) + after
    run_measure.errors += sum(call.status == "error" for step in turn for call in step.calls)
    run_measure.denied += sum(call.status == "denied" for step in turn for call in step.calls)
    run_measure.measured.append(
        TurnMeasure(
            turn[0].number,
            [sum(call.valid for call in step.calls) for step in turn],
            [sum(call.valid and call.status != "denied" for call in step.calls) for step in turn],
            [step.tokens for step in turn],
            [step.cost for step in turn],
            acts,
        )
    )


def _count(run: Trajectory, run_measure: RunMeasure) -> None:
    notes = run.run_notes
    run_measure.unreadable_lines += notes.unreadable_lines
    late = late_results(run)
    run_measure.orphans += len(
        late.keys() - {call.tool_call_id for step in run.steps for call in step.tool_calls or ()}
    )
    last = next((step for step in reversed(run.steps) if is_reply(step)), None)
    for step in run.steps:
        if step.is_copied_context:
            continue
        if is_step(step):
            run_measure.steps += 1
        run_measure.failed_requests += step.step_notes.error
        run_measure.lost_calls += step.step_notes.unreadable_calls
        _pair(step, late, run_measure, notes.terminal_tools or (), cut=notes.cut and step is last)
    _spend(run, run_measure)


def _pair(
    step: TrajectoryStep, late: Collection[str], run_measure: RunMeasure, terminal: Collection[str], *, cut: bool
) -> None:
    """Count the calls of a step, and what became of them."""
    unreadable_by_id: dict[str, bool] = {}
    for result in step.results:
        notes = result.result_notes
        if result.source_call_id is None:
            run_measure.orphans += notes.orphan_id is not None and not notes.unreadable
        else:
            unreadable_by_id[result.source_call_id] = notes.unreadable
    is_shared = None if shared_result(step) is None else False
    for call in step.tool_calls or ():
        name = call.function_name
        run_measure.calls += 1
        unreadable = unreadable_by_id.get(call.tool_call_id, False if call.tool_call_id in late else is_shared)
        if unreadable is not None:
            run_measure.results += not unreadable
            run_measure.unreadable += unreadable
        elif name in terminal:
            run_measure.terminal += 1
        elif cut:
            run_measure.unreadable += 1
        elif call.call_notes.state == WAITING:
            run_measure.waiting += 1
        else:
            run_measure.unpaired += 1
            run_measure.unpaired_tools[name] = run_measure.unpaired_tools.get(name, 0) + 1


def _spend(run: Trajectory, run_measure: RunMeasure) -> None:
    """Add the tokens and the cost: the sums of the steps, or those of the run where a step lacks them.

    The sums of a turn of a journal have the requests that failed too.
    """
    steps = [step for step in run.steps if not step.is_copied_context and (step.metrics or is_reply(step))]
    totals = run.final_metrics or FinalMetrics()
    for name, field_name, total in (
        ("input_tokens", "prompt_tokens", totals.total_prompt_tokens),
        ("output_tokens", "completion_tokens", totals.total_completion_tokens),
        ("cached_tokens", "cached_tokens", totals.total_cached_tokens),
        ("cost", "cost_usd", totals.total_cost_usd),
    ):
        amounts = [getattr(step.metrics, field_name, None) for step in steps]
        amount = sum(map(read_count, amounts))
        if None in amounts or run.run_notes.spent is not None or not amount:
            amount = max(amount, read_count(total))
        setattr(run_measure, name, getattr(run_measure, name) + amount)


def _model(run: Trajectory) -> str:
    if run.agent.model_name:
        return run.agent.model_name
    names = (step.model_name for step in run.steps if step.source == "agent" and step.model_name)
    return next(names, _UNKNOWN)


def _begins_with_message(run: Trajectory) -> bool:
    """Whether a user message comes before the first reply, so that the first turn is one."""
    first = next(_own_steps(run), None)
    return first is not None and first.source == "user"


def _own_steps(run: Trajectory) -> Iterator[TrajectoryStep]:
    return (step for step in run.steps if step.source == "user" or is_reply(step) if not step.is_copied_context)


def _ending(run: Trajectory, notes: RunNotes) -> str:
    """Return the ending in the words of the recording, or what the last step shows."""
    return notes.ending or ("cut" if notes.cut else _last_seen(run, notes))


def _answers(run: Trajectory) -> bool:
    """Whether the last reply has a text, and no message of the user follows it."""
    last = next((step for step in reversed(run.steps) if step.source != "system"), None)
    return last is not None and last.source == "agent" and bool(last.message)


def _last_seen(run: Trajectory, notes: RunNotes) -> str:
    last = next((step for step in reversed(run.steps) if step.source != "system" or step.step_notes.error), None)
    if last is None:
        return "empty"
    if last.source == "system":
        return "model error"
    if last.source == "user":
        return "message without a reply"
    hosted = {result.source_call_id for result in last.results if result.result_notes.hosted}
    if not last.tool_calls or (last.message and hosted.issuperset(call.tool_call_id for call in last.tool_calls)):
        return _ANSWERED
    if any(call.function_name in (notes.terminal_tools or ()) for call in last.tool_calls):
        return _TERMINAL
    return "after a tool call"
