"""A reference simulator: the rules of a turn as two short programs.

`predict` returns the course of a scripted turn. It is written by hand from docs/rules.md, and shares no code with the
machine, the limits or the driver: a test checks its imports. `differential.observe` runs the same script on the real
engine. Where both return the same course, two programs agree on the rules. `reference_core` has a turn of a plain
agent. `reference_helpers` adds sub-agents, and this module hooks, guardrails, typed answers
and compaction.
"""

from collections.abc import Sequence
from dataclasses import replace

from turnwright_states import CallStatus, Cause, EndReason

from .reference_core import course_of
from .reference_helpers import LeadingTurn
from .reference_parts import Call, EndError, Life
from .turn_script import (
    ANSWER,
    CHANGED_BY,
    LATE_AFTER,
    LONG,
    OUTPUT_TOOL,
    RAISES_AFTER,
    TRIPS_AFTER,
    Course,
    Death,
    ScriptedCall,
    ScriptedReply,
    TurnScript,
)

__all__ = ["predict"]

#: The faults of hooks and guardrails of calls, and the seconds until they end the turn.
_FAULTS = {"trip": TRIPS_AFTER, "raise": RAISES_AFTER, "late": LATE_AFTER}


def predict(script: TurnScript, deaths: Sequence[Death] = ()) -> Course:
    """Return the course of a scripted turn whose processes died so. See docs/rules.md.

    Raises `AssertionError` for a death at which the journal had what no turn by the rules has written then.
    """
    if not deaths:
        return course_of(AgentTurn(script))
    from .reference_crashes import MortalTurn  # noqa: PLC0415 (it is an agent's turn)

    turn = MortalTurn(script, deaths)
    course = course_of(turn)
    if turn.deaths:
        raise AssertionError(f"by the rules the journal never has what it had at this death: {turn.deaths[0]}")
    return course


class AgentTurn(LeadingTurn):
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
        #: Whether the guardrail of the prompt has yet to pass.
        self.unchecked = script.guardrail is not None
        self.prompt_left = 0.0
        #: How often the output guardrail was asked.
        self.asked = 0
        if script.typed:
            self.unwatched.add(OUTPUT_TOOL)

    def course(self) -> Course:
        """Return what the turn did, with the model calls of its sub-agents."""
        return replace(super().course(), model_calls=self.model_calls + self.helper_calls)

    # Guardrails (docs/rules.md#guardrails).

    def _trip(self) -> EndError:
        return EndError(EndReason.GUARDRAIL, self.stopped_by)

    def _failed(self) -> EndError:
        """Return the end of a turn of which a hook or a guardrail raises, or takes too long."""
        return EndError(EndReason.ENGINE_ERROR, self.stopped_by)

    def _judge_prompt(self) -> None:
        guardrail = self.script.guardrail
        if guardrail is not None and (guardrail.raises or guardrail.trips):
            raise self._failed() if guardrail.raises else self._trip()

    def _check_prompt(self) -> None:
        """Ask the guardrail of the prompt, unless it has passed."""
        guardrail = self.script.guardrail
        if guardrail is not None and self.unchecked:
            self._work(guardrail.seconds)
            self._judge_prompt()
            self.unchecked = False

    def _check_text(self, reply: ScriptedReply) -> None:
        """Ask the output guardrail about a text that nothing reviews."""
        if self.script.hooked and reply.error is None and reply.text.strip():
            retries = self.limits.max_retries
            while self._is_undecided(reply):
                if not retries:
                    raise self._failed()
                retries -= 1

    def _is_undecided(self, reply: ScriptedReply) -> bool:
        """Ask the output guardrail. Return whether its own model fails."""
        self.asked += 1
        if reply.fault == "guardrail":
            raise self._failed()
        if reply.fault == "model" or (reply.fault == "once" and self.asked % 2):
            return True
        if reply.trips:
            raise self._trip()
        return False

    def _prepare(self, *, step: bool) -> None:
        """Begin an attempt: blocking guardrails first, and a compaction of a conversation that is too long."""
        self._begin()
        if self.script.guardrail is not None and not self.script.guardrail.parallel:
            self._check_prompt()
            self._wrote()
        if self._offered() == "raise":
            raise self._failed()
        super()._prepare(step=step)
        left = self.compactions_left and self.compacted != self.steps
        if step and self.is_long and left and self._can_compact(self.script.keep_steps):
            self._compact()
            super()._prepare(step=step)

    def _attempt_step(self) -> ScriptedReply:
        """Make an attempt beside the guardrail of the prompt, of which each cancels the other if it fails."""
        guardrail = self.script.guardrail
        if guardrail is None or not self.unchecked:
            return self._attempt()
        began = self.now
        if (guardrail.trips or guardrail.raises) and guardrail.seconds < self._next_reply().seconds:
            self.model_calls += 1
            self._work(guardrail.seconds)
            self._judge_prompt()
        try:
            reply = self._attempt()
        finally:  # it may have passed before the attempt was cut off
            self.unchecked = self.now - began < guardrail.seconds
        self.prompt_left = guardrail.seconds - (self.now - began)
        return reply

    def _finish_prompt(self) -> None:
        """Wait for the guardrail of the prompt that ran beside the reply."""
        guardrail = self.script.guardrail
        if guardrail is not None and self.unchecked:
            self._work(self.prompt_left)
            self._judge_prompt()
            self.unchecked = False

    def _text_reply(self) -> ScriptedReply:
        reply = super()._text_reply()
        self._check_text(reply)
        self._finish_prompt()
        return reply

    def _attempt_conclusion(self) -> ScriptedReply:
        if self.abort_at > self.now:
            self._check_prompt()
        reply = super()._attempt_conclusion()
        self._check_text(reply)
        return reply

    # Compaction (docs/rules.md#compaction).

    def _recovered(self, cause: Cause) -> bool:
        if cause is Cause.CONTEXT_OVERFLOW and self.compactions_left and self.steps:
            self._compact()
            return True
        return super()._recovered(cause)

    def _compact(self) -> None:
        """Replace the replies so far by a summary. It shares the retries of its step, and may fail."""
        self.compactions_left -= 1
        self.compacted = self.steps
        keep = self.script.keep_steps
        while keep and not self._can_compact(keep):
            keep = keep // 2 if keep > 1 else 0
        if not self._can_compact(keep):
            return
        older = len(self.spoken) - keep
        if self.script.clears:
            self._begin()
            self.spoken[:older] = [False] * older
            self.is_long = False
            return
        while True:
            self._begin()
            reply = self._attempt()
            blank = reply.error is None and not reply.text.strip()
            cause = Cause.EMPTY_REPLY if blank else reply.error
            if cause is None:
                break
            if not super()._recovered(cause):
                return
        del self.spoken[:older]
        self.is_long = False
        spent = [reason for reason in self._reached() if reason in (EndReason.TOKENS, EndReason.COST)]
        if spent:
            self._stop(spent[0])

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
        return super()._call(asked) if names is None or asked.tool in names else Call(asked, None)

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
        self._finish_prompt()
        if self.script.hooked and reply.fault in ("raise", "late"):
            self._work(_FAULTS[reply.fault])
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
            self.failures += 1
            if not self.retries_left:
                raise EndError(EndReason.MODEL_ERROR)
            self.retries_left -= 1
            self._wrote()
            return self._review(reply, batch)
        for call in answers:
            call.status = CallStatus.OK if call is chosen else CallStatus.REFUSED
        return True

    def _refuses(self, reply: ScriptedReply, batch: list[Call]) -> bool:
        if self.script.hooked and reply.refused:
            return True
        answers = [call.asked for call in batch if _is_output(call)]
        if answers:
            return not any(map(_is_valid, answers))
        return self.script.typed and not batch and reply.text != ANSWER

    # Hooks and guardrails of calls (docs/rules.md#hooks).

    def _run(self, open_: list[Call], batch: list[Call]) -> Life:
        self._begin()
        for call in open_:
            self._judge(call)
        return super()._run([call for call in open_ if call.status is None], batch)

    def _judge(self, call: Call) -> None:
        """Ask the hook before a call, once."""
        if call.judged or not self.script.hooked:
            return
        call.judged = True
        match call.asked.before:
            case "reject":
                call.status = CallStatus.REJECTED
            case "spoil":
                call.status = CallStatus.ERROR
            case "change":
                call.asked = replace(call.asked, number=call.asked.number + CHANGED_BY)
            case "ask":
                call.asks = True
            case "result" | "trip" | "raise" | "late":
                call.asks = False
            case _:
                pass

    def _decision(self, call: Call) -> tuple[str, str]:
        """Return the decisions before and after a call."""
        return (call.asked.before, call.asked.after) if self.script.hooked else ("", "")

    def _trips(self, call: Call) -> bool:
        return any(one in _FAULTS for one in self._decision(call))

    def _runs(self, call: Call) -> bool:
        return self._decision(call)[0] not in ("result", *_FAULTS)

    def _lasts(self, call: Call) -> float:
        before, after = self._decision(call)
        seconds = super()._lasts(call) if self._runs(call) else 0.0
        return seconds + _FAULTS.get(before if before in _FAULTS else after, 0.0)

    def _settle(self, call: Call) -> None:
        before, after = self._decision(call)
        if self._trips(call):
            raise self._trip() if (before if before in _FAULTS else after) == "trip" else self._failed()
        if before == "result":
            self.started, call.starts = self.started + 1, call.starts + 1
        if before == "result" or after == "hide":
            call.status = CallStatus.OK
        else:
            super()._settle(call)


def _is_output(call: Call) -> bool:
    return call.tool is None and call.answers


def _is_valid(answer: ScriptedCall) -> bool:
    """Return whether a typed answer fits its type and passes its validator."""
    return answer.fits and answer.does != "retry"
