"""The core of the reference simulator: steps, limits, tools, people and endings. See `reference`."""

from collections.abc import Generator
from dataclasses import replace
from itertools import cycle
from math import inf
from typing import NoReturn

from turnwright_states import CallStatus, Cause, EndReason, Finish, Outcome

from .reference_parts import (
    LASTING,
    OUTCOMES,
    REASONS,
    Call,
    Counted,
    EndError,
    Life,
    LimitError,
    agrees,
    has_answer,
    is_idle,
)
from .turn_script import CHANGED_BY, Course, PersonAct, ScriptedCall, ScriptedReply


def course_of(turn: "Turn") -> Course:
    """Run a turn to its end, and return its course."""
    life, people = turn.live(), cycle(turn.script.people)
    try:
        next(life)
        while True:
            life.send(next(people))
    except StopIteration:
        return turn.course()


class Turn(Counted):
    """One turn."""

    def live(self) -> Life:
        """Run the turn until it ends (docs/chart.md)."""
        try:
            try:
                if self.allowance == 0 or self.budget == 0:
                    self._wrote()
                    self._answer_in_text()
                while True:
                    yield from self._check()
                    yield from self._take_step(self._reply(step=True))
            except LimitError as limit:
                self._close()
                self._conclude(limit)
        except EndError as end:
            self._close(superseded=end.why is EndReason.SUPERSEDED)
            self.end = end
            self.outcome = next((one for one, whys in OUTCOMES.items() if end.why in whys), Outcome.FAILED)
            self.ended = True
            self._wrote()

    def _wrote(self) -> None:
        """Note that the journal has everything so far. A process may die here: see `reference_crashes`."""

    def _is_lost(self) -> bool:
        """Return whether the process died before the I/O that comes next, which then counts as a failed attempt."""
        return False

    def _close(self, *, superseded: bool = False) -> None:
        """Close the open calls. A new message of the session rejects those that wait (docs/rules.md#sessions)."""
        for call in self.calls:
            rejected = superseded and not call.approved
            call.status = call.status or (CallStatus.REJECTED if rejected else CallStatus.ABORTED)

    def _check(self) -> Life:
        """Start a step, unless a limit is reached: the first one is the reason (docs/rules.md#precedence)."""
        if self.limits.doom_compare == "results":
            self._end_round()
        while True:
            reached = self._reached()
            spent = bool(set(reached) - {EndReason.STEP_CAP, EndReason.DOOM_LOOP})
            if EndReason.STEP_CAP in reached or (reached and EndReason.DOOM_LOOP not in reached):
                self._stop(reached[0])
            if not reached:
                break
            if self.nudges_left and not spent:
                self.nudges_left -= 1
                break
            if self.limits.doom_response == "stop" or spent or self.pauses == self.limits.max_pauses:
                self._stop(EndReason.DOOM_LOOP)
            yield from self._ask_about_loop()
        self.steps += 1
        self._wrote()

    def _reply(self, *, step: bool) -> ScriptedReply:
        """Call the model until it replies. Only causes that may pass are retried (docs/rules.md#retries)."""
        self.retries_left, once_more = self.limits.max_retries, not step
        while True:
            reply = self._attempt_or_crash(step=step)
            # A reply with no calls and a blank text is a failed attempt (docs/rules.md#replies). So is the first reply
            # of a turn without steps that has only calls (docs/rules.md#zero).
            wants = reply.calls and not (once_more and self.retries_left)
            blank = not wants and not reply.text.strip() and reply.finish is not Finish.CONTENT_FILTER
            once_more = once_more and not (reply.error is Cause.EMPTY_REPLY or (reply.error is None and blank))
            cause = reply.error or (Cause.EMPTY_REPLY if blank else None)
            if cause is None:
                return reply
            filtered = cause is Cause.CONTENT_FILTER  # it is a reply without calls
            self.replies, self.failures = self.replies + filtered, self.failures + (not filtered)
            if not self._recovered(cause):
                raise EndError(REASONS.get(cause, EndReason.MODEL_ERROR))

    def _attempt_or_crash(self, *, step: bool) -> ScriptedReply:
        if not self._is_lost():
            self._prepare(step=step)
            if not self._is_lost():
                return self._attempt_step()
        return ScriptedReply(error=Cause.CRASH)

    def _prepare(self, *, step: bool) -> None:
        """Begin an attempt at a reply, with the messages that came."""
        self._begin()
        if step:
            self._read_messages()

    def _attempt_step(self) -> ScriptedReply:
        return self._attempt()

    def _recovered(self, cause: Cause) -> bool:
        """Return whether the turn continues after a failed attempt of a step."""
        return self._may_retry(cause)

    def _may_retry(self, cause: Cause) -> bool:
        """Take a retry for a failed attempt, if one is left and its cause may pass."""
        if cause in LASTING or not self.retries_left:
            return False
        self.retries_left -= 1
        self._wrote()
        return True

    def _attempt(self, most_seconds: float = inf) -> ScriptedReply:
        """Make one model call, and count its tokens (docs/rules.md#model-calls)."""
        reply = self._next_reply()
        self.model_calls += 1
        self._receive(min(reply.seconds, most_seconds))
        if reply.seconds > most_seconds:
            return ScriptedReply(error=Cause.TIMEOUT)
        self.tokens += reply.tokens
        return reply

    def _receive(self, seconds: float) -> None:
        """Receive a reply that takes so long."""
        self._work(seconds)

    def _next_reply(self) -> ScriptedReply:
        return self.script.replies[self.model_calls % len(self.script.replies)]

    def _answer_in_text(self) -> NoReturn:
        """Make the one model call of a turn that may take no step or run no tool (docs/rules.md#zero)."""
        try:
            reply = self._reply(step=False)
        except LimitError as limit:
            raise EndError(limit.why, limit.also) from None
        self.calls += [Call(asked, None, CallStatus.REFUSED) for asked in reply.calls]
        self.replies += 1
        if reply.finish is Finish.CONTENT_FILTER:
            raise EndError(EndReason.CONTENT_FILTER)
        raise EndError(EndReason.TEXT_ONLY)

    def _conclude(self, limit: LimitError) -> NoReturn:
        """Let the model sum up, without tools and without the turn's deadline (docs/rules.md#concluding)."""
        self.stopped_by, self.deadline = (limit.why, *limit.also), inf
        self.retries_left, sharper, self.stopped = self.limits.max_retries, False, True
        self._wrote()
        while self.limits.concluding != "never":
            reply = ScriptedReply(error=Cause.CRASH) if self._is_lost() else self._attempt_conclusion()
            self.failures += 1
            silent = reply.error is Cause.EMPTY_REPLY or (reply.error is None and not reply.text.strip())
            again = not sharper if silent else reply.error is not None and reply.error not in LASTING
            if not again or not self.retries_left:
                raise EndError(limit.why, limit.also)
            self.retries_left, sharper = self.retries_left - 1, sharper or silent
            self._wrote()
        raise EndError(limit.why, limit.also)

    def _attempt_conclusion(self) -> ScriptedReply:
        self._begin()
        return self._attempt(self.limits.conclude_seconds)

    def _read_messages(self) -> None:
        """Add the messages that came. They clear the doom-loop detector (docs/rules.md#messages)."""
        while self._unread() and not self.lost:
            self.read += 1
            self._forget_rounds()
            self._wrote()

    def _take_step(self, reply: ScriptedReply) -> Life:
        """Run the calls of a reply, whatever its finish reason says (docs/rules.md#replies)."""
        batch = self._decided(reply)
        self.calls += batch
        self.replies += 1
        self._wrote()
        if reply.finish is Finish.CONTENT_FILTER:
            raise EndError(EndReason.CONTENT_FILTER)
        self._watch_for_loops(batch)
        if not self._accepted(reply, batch):
            return
        self.retries_left = self.limits.max_retries
        if not batch:
            raise EndError(EndReason.TRUNCATED if reply.finish is Finish.LENGTH else EndReason.ANSWERED)
        try:
            while any(call.status is None for call in batch):
                yield from self._run([call for call in batch if call.status is None], batch)
        except LimitError:
            if not has_answer(batch):
                raise
        if has_answer(batch):
            raise EndError(EndReason.ANSWERED)
        self._synthesize(batch)
        self.idle += is_idle(batch)

    def _accepted(self, reply: ScriptedReply, batch: list[Call]) -> bool:  # noqa: ARG002 (an agent without reviews)
        """Return whether the reply passes its review. Nothing reviews this one (docs/rules.md#reviews)."""
        return True

    def _decided(self, reply: ScriptedReply) -> list[Call]:
        """Give the calls the places that are left, in their order (docs/rules.md#budgets)."""
        places = self.limits.max_calls_per_step
        if self.budget is not None:
            places = min(places, self.budget - self.started)
        batch = [self._call(asked) for asked in reply.calls]
        for call in batch:
            if call.tool is None:
                call.status = CallStatus.ERROR
            elif not call.asked.fits or self.asked_again[call.tool.name] > call.tool.retries:
                call.status = CallStatus.ERROR
                call.result = self.asked_again[call.tool.name] > call.tool.retries or "does not fit"
            elif places <= 0:
                call.status = CallStatus.REFUSED
            else:
                places -= 1
        return batch

    def _call(self, asked: ScriptedCall) -> Call:
        tool = self.tools.get(asked.tool)
        if tool is None:
            return Call(asked, tool)
        return Call(asked, tool, asks=tool.needs_approval, answers=tool.return_direct)

    def _run(self, open_: list[Call], batch: list[Call]) -> Life:
        """Run the open calls of a batch, then ask a person about those that need one (docs/rules.md#approvals)."""
        self._begin()
        waiting = [call for call in open_ if call.asks and not call.approved]
        if self.pauses == self.limits.max_pauses:
            for call in waiting:
                call.status = CallStatus.REFUSED
        self._run_side_by_side([call for call in open_ if call not in waiting])
        if not has_answer(batch) and not self._goes_on(open_, batch):
            self._read_messages()
        waiting = [call for call in open_ if call.status is None and call.asks and not call.approved]
        if waiting:
            yield from self._ask_about(waiting)

    def _goes_on(self, calls: list[Call], batch: list[Call]) -> bool:
        """Return whether these calls settle the batch and a step follows in any case. It reads the messages then."""
        idle = self.limits.idle_steps is not None and self.idle + is_idle(batch) >= self.limits.idle_steps
        stops = self.script.synthesis or self._reached() or self._loop() or idle
        return not stops and all(call.status for call in calls)

    def _run_side_by_side(self, calls: list[Call]) -> None:
        """Run calls until the last one has its result, or an abort or the deadline cuts them off.

        A call counts when it starts (docs/rules.md#budgets). An abort leaves it `cancel_grace` seconds
        (docs/rules.md#aborts).
        """
        began, cut = self.now, self._cut()
        self._start(calls)
        for call in sorted(calls, key=self._lasts):
            if began + self._lasts(call) > cut:
                self.now = cut
                self._begin()
            self.now = began + self._lasts(call)
            self._settle(call)

    def _cut(self) -> float:
        return min(self.deadline, self.abort_at + self.script.cancel_grace)

    def _start(self, calls: list[Call]) -> None:
        calls = [call for call in calls if self._runs(call)]
        self._count_starts(calls)
        self.executed += [call.asked for call in calls]

    def _count_starts(self, calls: list[Call]) -> None:
        self.started += sum(not call.starts for call in calls)
        self.idle = 0 if calls else self.idle
        for call in calls:
            call.starts += 1

    def _judge(self, call: Call) -> None:
        """Ask the hooks before a call. An agent of this class has none."""

    def _trips(self, call: Call) -> bool:  # noqa: ARG002 (an agent without hooks)
        """Return whether a hook or a guardrail of the call ends the turn."""
        return False

    def _runs(self, call: Call) -> bool:  # noqa: ARG002 (an agent without hooks)
        """Return whether the tool of a call runs."""
        return True

    def _lasts(self, call: Call) -> float:
        return call.asked.seconds

    def _settle(self, call: Call) -> None:
        call.status = CallStatus.OK if call.asked.does == "return" else CallStatus.ERROR
        call.result = call.asked.number if call.asked.does == "return" else call.asked.does
        self.asked_again[call.asked.tool] += call.asked.does == "retry"

    def _synthesize(self, batch: list[Call]) -> None:
        """Offer the batch to the app's synthesis. One whose own model fails is retried, then skipped."""
        if not self.script.synthesis:
            return
        while cause := Cause.CRASH if self._is_lost() else self._offer(batch):
            self.failures += 1
            if not self._may_retry(cause):
                break
        self.syntheses += 1

    def _offer(self, batch: list[Call]) -> Cause | None:
        """Ask the synthesis, which may end the turn with a text. Return why its own model failed, if it did."""
        self._begin()
        successes = sum(call.status is CallStatus.OK for call in batch)
        said = self.script.synthesis[(successes if self.in_team else self.offers) % len(self.script.synthesis)]
        self.offers += 1
        if isinstance(said, Cause):
            return said
        if isinstance(said, type):
            raise EndError(EndReason.ENGINE_ERROR, self.stopped_by)
        if said and said.strip():
            self.syntheses += 1
            raise EndError(EndReason.SYNTHESIZED)
        return None

    def _ask_about_loop(self) -> Life:
        """Ask whether the turn may go on. `always` stops watching the tools of the loop."""
        self.stopped_by = (EndReason.DOOM_LOOP,)
        self._pause()
        act = yield from self._ask(expires=False)
        self.answers += 1
        self._wrote()
        if not agrees(act):
            self._stop(EndReason.DOOM_LOOP)
        if act == "always":
            self.unwatched |= self.loop_tools
        self._forget_rounds()
        self.stopped_by = ()

    def _ask_about(self, calls: list[Call]) -> Life:
        """Ask about each call. Nothing runs before the last answer (docs/rules.md#approvals)."""
        self._pause()
        while calls := [call for call in calls if not call.approved and call.status is None]:
            act = yield from self._ask(expires=calls[0].expires)
            expired = act == "expire" and calls[0].expires
            for call in self._expiring([one for one in calls if one.expires]) if expired else calls[:1]:
                self._answer(call, act)
                self.answers += 1
                self._wrote()
        self.retries_left = self.limits.max_retries

    def _answer(self, call: Call, act: PersonAct) -> None:
        call.approved, self.idle = agrees(act), 0
        if not call.approved:
            call.status = call.declined
        if act == "change" and call.declined is CallStatus.REJECTED:  # not a question about a crash
            call.asked = replace(call.asked, number=call.asked.number + CHANGED_BY)

    def _pause(self) -> None:
        self.pauses += 1
        self._wrote()
        if self.abort_at <= self.now:
            raise EndError(EndReason.ABORTED, self.stopped_by)

    def _ask(self, *, expires: bool) -> Generator[None, PersonAct, PersonAct]:  # noqa: ARG002 (all people act)
        """Return the act of a person, whose question may expire. Paused time does not count."""
        act = yield
        if act in ("abort", "message"):
            raise EndError(EndReason.ABORTED if act == "abort" else EndReason.SUPERSEDED, self.stopped_by)
        return act

    def _begin(self) -> None:
        """Begin I/O, unless somebody has aborted the turn or its time is up (docs/rules.md#aborts)."""
        if self.abort_at <= self.now:
            raise EndError(EndReason.ABORTED, self.stopped_by)
        if self.deadline <= self.now:
            self._stop(EndReason.DEADLINE)

    def _work(self, seconds: float) -> None:
        """Let I/O take its time, unless an abort or the deadline cuts it off."""
        ends, first = self.now + seconds, min(self.abort_at, self.deadline)
        self.now = min(ends, first)
        if first < ends:
            self._begin()
