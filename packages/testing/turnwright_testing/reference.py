"""A reference simulator: the rules of a turn as two short programs.

`predict` returns the course of a scripted turn. It is written by hand from docs/rules.md, and shares no code with the
machine, the limits or the driver: a test checks its imports. `differential.observe` runs the same script on the real
engine. Where both return the same course, two programs agree on the rules. `reference_core` has a turn of a plain
agent. `reference_hooks` adds hooks and guardrails of calls, `reference_helpers` sub-agents, `reference_guards` the
guardrails of prompts and texts, this module reviews, typed answers and compaction. `reference_crashes` and
`reference_mortals` add deaths of processes.
"""

from collections.abc import Sequence
from dataclasses import replace

from turnwright_states import CallStatus, Cause, EndReason, Outcome

from .reference_core import course_of
from .reference_guards import GuardedTurn
from .reference_hooks import FAULTS, HookedCalls
from .reference_parts import Call, EndError, Life
from .turn_script import (
    ANSWER,
    LONG,
    OUTPUT_TOOL,
    Course,
    Death,
    ScriptedCall,
    ScriptedReply,
    TurnScript,
)

__all__ = ["predict"]


def predict(script: TurnScript, deaths: Sequence[Death] = ()) -> Course:
    """Return the course of a scripted turn whose processes died so. See docs/rules.md.

    Raises `AssertionError` for a death at which the journal had what no turn by the rules has written then, and
    `CoincidenceError` if after a death work ends at the very moment of a deadline.
    """
    if not deaths:
        return course_of(AgentTurn(script))
    from .reference_mortals import MortalTurn  # noqa: PLC0415 (it is an agent's turn)

    turn = MortalTurn(script, deaths)
    course = course_of(turn)
    if turn.deaths:
        raise AssertionError(f"by the rules the journal never has what it had at this death: {turn.deaths[0]}")
    return course


class AgentTurn(HookedCalls, GuardedTurn):
    """One turn of an agent with hooks, guardrails, a typed answer or a compaction."""

    def __init__(self, script: TurnScript) -> None:
        super().__init__(script)
        self.output_retries = script.limits.output_retries
        self.compactions_left = script.compactions
        #: Whether each reply in the conversation has results that can be cleared.
        self.spoken: list[bool] = []
        #: Whether the next request is too long.
        self.is_long = False
        #: The step of the last compaction.
        self.compacted = 0
        if script.typed:
            self.unwatched.add(OUTPUT_TOOL)

    def course(self) -> Course:
        """Return what the turn did, with the model calls of its sub-agents."""
        return replace(super().course(), model_calls=self.model_calls + self.helper_calls)

    # Compaction (docs/rules.md#compaction).

    def _prepare(self, *, step: bool) -> None:
        """Begin an attempt: guardrails and hooks first, and a compaction of a conversation that is too long."""
        super()._prepare(step=step)
        if not self.lost and self._offered() == "raise":
            raise self._failed()
        if step:
            self._read_messages()
        left = not self.lost and self.compactions_left and self.compacted != self.steps
        if step and self.is_long and left and self._can_compact(self.script.keep_steps):
            self._compact()
            if not self.lost:
                super()._prepare(step=step)

    def _recovered(self, cause: Cause) -> bool:
        if cause is Cause.CONTEXT_OVERFLOW and self.compactions_left and self.steps:
            self._compact()
            return True
        return super()._recovered(cause)

    def _compact(self) -> None:
        """Replace the replies so far by a summary. It shares the retries of its step, and may fail."""
        self.compactions_left -= 1
        self.compacted = self.steps
        self.compactions += 1
        self._wrote()
        while cause := Cause.CRASH if self._is_lost() else self._shorten():
            self.failures += 1
            if not self._may_retry(cause):
                self._wrote()
                return
        self.compactions += 1
        self.is_long = False
        spent = [reason for reason in self._reached() if reason in (EndReason.TOKENS, EndReason.COST)]
        if spent:
            self._stop(spent[0])
        self._wrote()

    def _shorten(self) -> Cause | None:
        """Make the conversation shorter. Return why it failed, if it did."""
        self._begin()
        keep = self.script.keep_steps
        while keep and not self._can_compact(keep):
            keep = keep // 2 if keep > 1 else 0
        if not self._can_compact(keep):
            return Cause.CONTEXT_OVERFLOW
        older = len(self.spoken) - keep
        if self.script.clears:
            self.spoken[:older] = [False] * older
            return None
        reply = self._attempt()
        if reply.error is None and reply.text.strip():
            del self.spoken[:older]
            return None
        return reply.error or Cause.EMPTY_REPLY

    def _can_compact(self, keep: int) -> bool:
        """Return whether there is something to compact before the last steps."""
        older = self.spoken[: max(len(self.spoken) - keep, 0)]
        return any(older) if self.script.clears else bool(older)

    # Reviews and typed answers (docs/rules.md#reviews, #typed-answers).

    def _take_step(self, reply: ScriptedReply) -> Life:
        self.spoken.append(bool(reply.calls))
        self.is_long = reply.tokens >= LONG
        return super()._take_step(reply)

    def _call(self, asked: ScriptedCall) -> Call:
        if self.script.typed and asked.tool == OUTPUT_TOOL:
            return Call(asked, None, answers=True)
        names = self._offered()
        if names is None or asked.tool in names or asked.tool not in self.tools:
            return super()._call(asked)
        return Call(asked, None, result=names)

    def _offered(self) -> tuple[str, ...] | str | None:
        """Return the tools that the hook before the model offers in this step."""
        offered = self.script.offered
        return offered[(max(self.steps, 1) - 1) % len(offered)] if offered else None

    def _decided(self, reply: ScriptedReply) -> list[Call]:
        """Give the calls their places. A typed answer takes none."""
        is_answer = [self.script.typed and asked.tool == OUTPUT_TOOL for asked in reply.calls]
        asked = tuple(one for one, answers in zip(reply.calls, is_answer, strict=True) if not answers)
        others = iter(super()._decided(replace(reply, calls=asked)))
        return [
            self._call(one) if answers else next(others) for one, answers in zip(reply.calls, is_answer, strict=True)
        ]

    def _decision(self, call: Call) -> tuple[str, str]:
        """Return the decisions about a call. A sub-agent that asks a person or is aborted has no result."""
        before, after = super()._decision(call)
        child = self.children.get(id(call))
        has_result = child is None or (child.ended and child.outcome is not Outcome.ABORTED)
        return before, after if has_result else ""

    def _accepted(self, reply: ScriptedReply, batch: list[Call]) -> bool:
        """Review a reply, unless nothing does."""
        if not self._is_reviewed():
            return True
        self.retries_left = self.limits.max_retries
        accepted = self._review(reply, batch)
        self.reviews += 1
        self._wrote()
        return accepted

    def _is_reviewed(self) -> bool:
        return self.script.hooked or self.script.typed or self.unchecked

    def _review(self, reply: ScriptedReply, batch: list[Call]) -> bool:
        """Return whether a reply is accepted. A refused one has results for all its calls, and ends its step."""
        self._begin()
        self._finish_beside()
        if not self._check_prompt():
            return self._review_again(reply, batch)
        if self.script.hooked and reply.fault in ("raise", "late"):
            self._work(FAULTS[reply.fault])
            raise self._failed()
        if self._refuses(reply, batch):
            if not self.output_retries:
                self.reviews += 1
                raise EndError(EndReason.INVALID_OUTPUT)
            self.output_retries -= 1
            for call in batch:
                call.status = call.status or CallStatus.REFUSED
            return False
        answers = [call for call in batch if _is_output(call)]
        chosen = next((call for call in answers if _is_valid(call.asked)), None)
        if self.script.hooked and (reply.text.strip() or chosen is not None) and self._is_undecided(reply):
            return self._review_again(reply, batch)
        for call in answers:
            call.status = CallStatus.OK if call is chosen else CallStatus.REFUSED
        return True

    def _review_again(self, reply: ScriptedReply, batch: list[Call]) -> bool:
        """Review a reply once more, because a guardrail's own model failed."""
        self.failures += 1
        if not self.retries_left:
            raise EndError(EndReason.MODEL_ERROR)
        self.retries_left -= 1
        self._wrote()
        return self._review(reply, batch)

    def _refuses(self, reply: ScriptedReply, batch: list[Call]) -> bool:
        if self.script.hooked and reply.refused:
            return True
        answers = [call.asked for call in batch if _is_output(call)]
        if answers:
            return not any(map(_is_valid, answers))
        return self.script.typed and not batch and reply.text != ANSWER


def _is_output(call: Call) -> bool:
    return call.tool is None and call.answers


def _is_valid(answer: ScriptedCall) -> bool:
    """Return whether a typed answer fits its type and passes its validator."""
    return answer.fits and answer.does != "retry"
