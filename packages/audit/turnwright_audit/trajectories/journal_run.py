"""Makes the trajectory of a turn from its journal: for `turnwright export`, and for the reader of journals.

Times are known at the start of each step; those of results are computed from it, unless the turn was paused in between.
A reply that no followers receive has no text here either (docs/rules.md#guardrails).
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from pydantic import JsonValue

from turnwright._base.ids import child_id
from turnwright.transcript.wording import UNCHECKED, withheld_text
from turnwright_states import CallStatus, Outcome, State, Usage
from turnwright_states import facts as f
from turnwright_states.fact import PAYLOAD_VERSION
from turnwright_states.payload import thaw

from .atif import (
    WAITING,
    Extra,
    ResultStatus,
    StepMetrics,
    StepNotes,
    SubagentRef,
    Trajectory,
    TrajectoryCall,
    TrajectoryStep,
)
from .builder import RunBuilder

NAME: Final = "turnwright"
#: Returns the facts of a sub-agent's turn; None if there are none.
Journals = Callable[[str], Sequence[f.Fact] | None]

_REFUSED: Final = "withheld: the reply was refused"
_STATUSES: Final[dict[CallStatus, ResultStatus]] = {
    CallStatus.OK: "ok",
    CallStatus.ERROR: "error",
    CallStatus.UNKNOWN: "error",
    CallStatus.REJECTED: "denied",
    CallStatus.REFUSED: "denied",
    CallStatus.ABORTED: "canceled",
}


def run_of(
    facts: Iterable[f.Fact],
    *,
    turn: str | None = None,
    journals: Journals = lambda _: None,
    damaged: bool = False,
) -> Trajectory:
    """Return the trajectory of a turn. The runs of its sub-agents are in it, as far as `journals` has them.

    `turn` is its id, if it is known. `damaged`: some facts could not be read, so a result may lack its call.
    """
    return _JournalRun(turn, journals, damaged=damaged).read(facts)


class _JournalRun:
    """One turn in the making."""

    def __init__(self, turn: str | None, journals: Journals, *, damaged: bool) -> None:
        self.turn = turn
        self.builder = RunBuilder(NAME, agent="", run=turn, id=turn)
        self.journals = journals
        self.damaged = damaged
        self.calls: dict[str, f.CallMade] = {}
        self.trajectory_calls: dict[str, TrajectoryCall] = {}
        self.started: dict[str, str | None] = {}
        self.waiting: set[str] = set()
        #: The start of the step, and the active seconds of the turn then; None if unknown.
        self.clock: tuple[datetime, float] | None = None
        self.at: str | None = None
        self.attempt = 1
        self.review: TrajectoryStep | None = None
        self.prompt: TrajectoryStep | None = None
        self.conclusion: TrajectoryStep | None = None
        #: The steps so far, and whether one is kept for the conclusion.
        self.steps, self.keeps_step = 0, False
        self.asks_for_conclusion = True
        self.usage = Usage()
        self.tool_calls = 0

    def read(self, facts: Iterable[f.Fact]) -> Trajectory:
        last: f.Fact | None = None
        notes = self.builder.notes
        for fact in facts:
            self._take(fact)
            if usage := fact.new_usage:
                self.usage += usage
            notes.hash = fact.hash or notes.hash
            last = fact
        if last is not None:
            notes.spent = {
                "steps": self.steps,
                "tool_calls": self.tool_calls,
                "seconds": last.elapsed,
                **self.usage.to_json(),
            }
        notes.journal_format = PAYLOAD_VERSION
        if self.review is not None:
            self.review.message = UNCHECKED
        self._open_calls()
        ending, success = None, None
        if isinstance(last, f.TurnEnded):
            ending = f"{last.outcome}: {last.reason}"
            success = False if last.outcome is Outcome.FAILED else None
        elif last is not None and last.state is State.PAUSED:
            ending = "paused"
        return self.builder.finish(ending=ending, success=success, cut=ending is None, totals=_metrics(self.usage))

    def _take(self, fact: f.Fact) -> None:  # noqa: C901, PLR0912 (one case a fact: flat)
        match fact:
            case f.TurnStarted():
                self._start(fact)
            case f.StepStarted(started_at=at):
                self.at, self.attempt, self.clock = at, 1, None
                if at is not None:
                    with suppress(ValueError):  # a date that is none
                        self.clock = datetime.fromisoformat(at), fact.elapsed
                if self.prompt is not None and self.prompt.timestamp is None:
                    self.prompt.timestamp = at
            case f.ModelReplied():
                self._reply(fact)
            case f.AttemptFailed(attempt=attempt, cause=cause):
                words = f"{cause}: {fact.message}" if fact.message else str(cause)
                step = self.builder.system(words, at=self.at, error=True)
                step.extra = Extra(turnwright=StepNotes(turn_id=self.turn, attempt=attempt, error=True))
                self.attempt = attempt + 1
            case f.CallStarted(call=call):
                self.tool_calls += call not in self.started
                self.started[call] = self._time(fact)
            case f.CallSettled():
                self._settle(fact)
            case f.CallWaiting(call=call):
                self.clock = None
                self.waiting.add(call)
            case f.Paused():
                self.clock = None
            case f.Reviewed():
                self._end_review(fact)
            case f.Compacted():
                words = "Old tool results were cleared." if fact.cleared else fact.text
                self.builder.system(f"The conversation was compacted. {words}".strip(), at=self.at)
            case f.MessageAdded(text=text):
                step = self.builder.user(text, at=self.at)
                step.extra = Extra(turnwright=StepNotes(turn_id=self.turn, steered=True))
            case f.Stopping(reason=reason):
                self.builder.system(f"A limit was reached: {reason}", at=self.at)
                self.attempt, self.clock = 1, None
            case f.Concluded() if self.asks_for_conclusion:
                self.conclusion = self._add_reply(fact.text or "", fact.usage)
                self._mark_conclusion(self.conclusion)
            case f.Synthesized(text=str() as text):
                self.builder.system(f"The app gave the answer: {text}", at=self.at)
            case f.TurnEnded():
                self._end(fact)
            case _:
                pass

    def _start(self, fact: f.TurnStarted) -> None:
        run, agent = self.builder.trajectory, thaw(fact.agent)
        if self.turn is None and fact.parent_turn and fact.parent_call:
            self.turn = run.trajectory_id = self.builder.notes.run = child_id(fact.parent_turn, fact.parent_call)
        name = agent.get("name") if isinstance(agent, dict) else None
        run.agent.name = name if isinstance(name, str) and name else run.agent.name
        run.agent.model_name = fact.model or None
        run.session_id = fact.session
        if fact.continue_from:
            run.notes = f"It continues turn {fact.continue_from}."
        elif fact.forked_from:
            run.notes = f"It was forked from turn {fact.forked_from} after fact {fact.forked_at}."
        self.asks_for_conclusion = fact.limits.asks_for_conclusion
        self.keeps_step = fact.limits.concluding == "within" and fact.limits.cap > 0
        limits = fact.to_json()["limits"]
        self.builder.notes.limits = limits if isinstance(limits, dict) else None
        instructions = agent.get("instructions") if isinstance(agent, dict) else None
        if isinstance(instructions, str) and instructions:
            self.builder.system(instructions)
        self.prompt = self.builder.user(fact.prompt)

    def _add_reply(self, text: str, usage: Usage | None, reasoning: str = "", finish: str = "") -> TrajectoryStep:
        metrics = None if usage is None else _metrics(usage)
        model = self.builder.trajectory.agent.model_name
        step = self.builder.reply(text, at=self.at, model=model, reasoning=reasoning, metrics=metrics)
        notes = StepNotes(turn_id=self.turn, attempt=self.attempt, stop_reason=finish or None)
        step.extra = Extra(turnwright=notes)
        self.attempt = 1
        self.steps += 1
        return step

    def _mark_conclusion(self, step: TrajectoryStep) -> None:
        """Mark a reply that is not counted as a step, if none is kept for it (docs/rules.md#steps)."""
        if not self.keeps_step:
            step.note().conclusion = True
            self.steps -= 1
        self.keeps_step = False

    def _reply(self, fact: f.ModelReplied) -> None:
        step = self._add_reply(fact.text, fact.usage, fact.reasoning, str(fact.finish))
        if fact.state is State.TEXT_ONLY:
            self._mark_conclusion(step)
        self.review = step if fact.state is State.REVIEW else None
        for call in fact.calls:
            self.calls[call.id] = call
            arguments: JsonValue = call.raw if call.arguments is None else {**thaw(call.arguments)}
            trajectory_call = self.builder.call(call.id, call.name, arguments, step=step)
            self.trajectory_calls[trajectory_call.tool_call_id] = trajectory_call

    def _settle(self, fact: f.CallSettled) -> None:
        call = self.calls.get(fact.call)
        status = _STATUSES[fact.status]
        if fact.status is CallStatus.REFUSED and call is not None and call.invalid:
            status = "error"
        start, end = self.started.get(fact.call), self._time(fact)
        below = self._below(fact.call)
        result = self.builder.result(fact.call, fact.result, status=status, started=start, ended=end, subagent=below)
        result.result_notes.unreadable = self.damaged and call is None

    def _below(self, call: str) -> SubagentRef | None:
        """Add the run of the sub-agent that a call ran."""
        if self.turn is None:
            return None
        child = child_id(self.turn, call)
        facts = self.journals(child)
        if facts is None:
            return None
        self.builder.subagent(run_of(facts, turn=child, journals=self.journals, damaged=self.damaged))
        return SubagentRef(trajectory_id=child)

    def _open_calls(self) -> None:
        """Say why calls have no result, and add the runs of their sub-agents."""
        for call in self.builder.open_calls:
            is_refused = call in self.calls and self.calls[call].refused
            state = "started" if call in self.started else "not started"
            state = "refused" if is_refused else WAITING if call in self.waiting else state
            self.trajectory_calls[call].note().state = state
            self._below(call)

    def _end_review(self, fact: f.Reviewed) -> None:
        step, self.review = self.review, None
        if not fact.refused:
            return
        if step is not None:
            step.message, step.reasoning_content = _REFUSED, None
            for call in step.tool_calls or ():
                if call.tool_call_id in self.calls and self.calls[call.tool_call_id].output:
                    call.arguments = {}
        self.builder.system("The reply was refused.", at=self.at)

    def _end(self, fact: f.TurnEnded) -> None:
        self.clock = None
        if fact.guardrail is not None:
            text = withheld_text(fact.guardrail.name)
            if fact.guardrail.checks == "input" and self.prompt is not None:
                self.prompt.message = text
            step = self.review or (self.conclusion if fact.guardrail.checks == "output" else None)
            if step is not None:
                step.message, self.review = text, None
        if fact.error:
            self.builder.system(fact.error, error=True)

    def _time(self, fact: f.Fact) -> str | None:
        """Return when a fact was written; None if the turn was paused since its step began."""
        if self.clock is None:
            return None
        start, elapsed = self.clock
        try:
            return (start + timedelta(seconds=fact.elapsed - elapsed)).isoformat()
        except OverflowError:
            return None


def _metrics(usage: Usage) -> StepMetrics:
    return StepMetrics(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens or None,
        cost_usd=usage.cost or None,
    )
