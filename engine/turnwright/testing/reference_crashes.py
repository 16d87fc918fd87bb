"""Crashes in the reference simulator: the deaths of processes, and what the next one does (docs/rules.md#recovery).

A death says when a process died and what it had written. The engine may write several facts in one append, so the
simulator finds the moment at which a turn by the rules has written exactly that.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from turnwright_states import CallStatus, Cause, EndReason

from .reference import AgentTurn
from .reference_parts import Call, EndError, Life, has_answer
from .turn_script import Death, JournalCounts, ScriptedReply, TurnScript

#: Times that differ by less are equal.
_MOMENT = 1e-6


class DiedError(Exception):
    """The process died during a model call."""


class MortalTurn(AgentTurn):
    """A turn whose processes die."""

    def __init__(self, script: TurnScript, deaths: Sequence[Death]) -> None:
        super().__init__(script)
        self.deaths = list(deaths)
        #: Whether it makes a model call, or reviews its reply.
        self.in_step = True

    def _written(self) -> JournalCounts:
        settled = frozenset(place for place, call in enumerate(self.calls) if call.status is not None)
        return JournalCounts(
            steps=self.steps,
            replies=self.replies,
            failures=self.failures,
            compactions=self.compactions,
            syntheses=self.syntheses,
            reviews=self.reviews,
            pauses=self.pauses,
            answers=self.answers,
            messages=self.read,
            stopped=self.stopped,
            ended=self.ended,
            starts=tuple(call.starts for call in self.calls),
            results=settled,
        )

    def _wrote(self) -> None:
        self.lost = False
        if self._next_is_now() and self.deaths[0].written == self._written():
            self._die()

    def _wrote_in_batch(self) -> None:
        """Do what `_wrote` does beside messages, which are written before the last result."""
        self.lost = False
        if self._next_is_now() and _without_messages(self.deaths[0].written) == _without_messages(self._written()):
            self._die()

    def _next_is_now(self) -> bool:
        return bool(self.deaths) and abs(self.deaths[0].at - self.now) < _MOMENT

    def _die(self) -> Death:
        """Let the process die, and each one after it that wrote only a question. Lost seconds do not count."""
        death = self.deaths.pop(0)
        while self.deaths and death.at == self.deaths[0].at and death.written == self.deaths[0].written:
            self.deaths.pop(0)
        self.now, self.lost = max(death.at, self.now), True
        self._forget_prompt()
        self.lost_seconds += death.lost
        self.deadline += death.lost
        if death.written.messages > self.read:
            self.read = death.written.messages
            self._forget_rounds()
        return death

    def _forget_prompt(self) -> None:
        """Ask the guardrail of the prompt again, unless the journal has that it passed (docs/rules.md#guardrails)."""
        guardrail = self.script.guardrail
        if guardrail is not None and self.steps <= 1 and self.in_step and (guardrail.parallel or self.unchecked):
            self.unchecked, self.questions = True, 0

    def _is_lost(self) -> bool:
        lost, self.lost = self.lost, False
        if lost and self.abort_at <= self.now:
            self._begin()  # an aborted turn needs no repair
        return lost

    # A model call is made again, for a retry.

    def _work(self, seconds: float) -> None:
        ends = min(self.now + seconds, self.abort_at, self.deadline)
        if self.deaths and self.now < self.deaths[0].at < ends and self.deaths[0].written == self._written():
            self._die()
            raise DiedError
        super()._work(seconds)

    def _attempt_or_crash(self, *, step: bool) -> ScriptedReply:
        try:
            return super()._attempt_or_crash(step=step)
        except DiedError:
            self.lost = False
            return ScriptedReply(error=Cause.CRASH)

    def _attempt(self, most_seconds: float = inf) -> ScriptedReply:
        try:
            return super()._attempt(most_seconds)
        except DiedError:
            self.lost = False
            return ScriptedReply(error=Cause.CRASH)

    # Calls with results stay, calls that had not started run, and the policy of its tool is for an interrupted one.

    def _accepted(self, reply: ScriptedReply, batch: list[Call]) -> bool:
        self.in_step = self._is_reviewed()
        accepted = super()._accepted(reply, batch)
        self.in_step = False
        return accepted

    def _review(self, reply: ScriptedReply, batch: list[Call]) -> bool:
        """Review a reply, for which a crash costs a retry."""
        while True:
            if self._is_lost():
                self.failures += 1
                if not self.retries_left:
                    raise EndError(EndReason.CRASHED)
                self.retries_left -= 1
                self._wrote()
                continue
            try:
                accepted = super()._review(reply, batch)
            except DiedError:
                continue
            self.in_step = False
            return accepted

    def _run(self, open_: list[Call], batch: list[Call]) -> Life:
        while not self._recover(batch):
            pass
        open_ = [call for call in open_ if call.status is None]
        if open_:
            self.lost = False  # nothing of them was under way
        elif not has_answer(batch) and not self._goes_on(batch):
            self._read_messages()
        if self.deaths and _phase(self.deaths[0].written) == _phase(self._written()):
            self._begin()
            self._die_in(open_)
        elif open_:
            yield from super()._run(open_, batch)

    def _start(self, calls: list[Call]) -> None:
        calls = [call for call in calls if self._runs(call)]
        self.started += sum(not call.starts for call in calls)
        for call in calls:
            call.starts += 1
        self.executed += [call.asked for call in calls]

    def _die_in(self, calls: list[Call]) -> None:
        """Run calls until the process dies. What it wrote says which of them had started and finished."""
        began, death = self.now, self._die()
        for call in calls:
            place = next(place for place, one in enumerate(self.calls) if one is call)
            settled, ends = place in death.written.results, began + self._lasts(call)
            starts = death.written.starts[place] - call.starts
            self._judge(call)
            if call.status is not None:  # by a hook, if its decision was written
                call.status, call.judged = (call.status, True) if settled else (None, False)
                continue
            if call.asks and not call.approved:
                if settled and self.pauses == self.limits.max_pauses:
                    call.status = CallStatus.REFUSED
                wrong = starts or (settled and call.status is None)
            else:
                wrong = not 0 <= starts <= 1 or (settled and not starts)
                wrong = wrong or (not settled and not starts and self._runs(call) and death.at > began + _MOMENT)
                wrong = wrong or (settled and ends > death.at + _MOMENT) or (not settled and ends < death.at - _MOMENT)
                if starts:
                    self._start([call])
                    call.runs = not settled
                if place in death.just_started and self._runs(call):
                    self.executed.pop()
                if settled:
                    self._settle(call)
            if wrong:
                raise AssertionError(f"by the rules call {place} is not like that at this death: {death}")

    def _recover(self, batch: list[Call]) -> bool:
        """Apply the policy to the calls that were interrupted. Return False if the process died once more."""
        interrupted = [call for call in batch if call.runs and call.status is None]
        if interrupted:
            self._begin()
            self._wrote_in_batch()  # only messages
            if self.lost:
                return False
        return all(map(self._recover_call, interrupted))

    def _recover_call(self, call: Call) -> bool:
        policy = "unknown" if call.tool is None else call.tool.on_crash
        if policy == "ask" and self.pauses < self.limits.max_pauses:
            call.runs, call.asks, call.approved = False, True, False
            call.declined, call.expires = CallStatus.UNKNOWN, False
            return True
        if policy != "rerun" or not self.retries_left:
            call.status = CallStatus.UNKNOWN
        elif not self._rerun(call):
            return False
        call.runs = False
        self._wrote_in_batch()
        return not self.lost

    def _rerun(self, call: Call) -> bool:
        """Run an interrupted call again, for a retry. Return False if the process died meanwhile."""
        self.retries_left -= 1
        call.starts += 1
        self._wrote_in_batch()
        if self.lost:
            return False
        self.executed.append(call.asked)
        ends, cut = self.now + self._lasts(call), min(self.deadline, self.abort_at + self.script.cancel_grace)
        same = self.deaths and _without_messages(self.deaths[0].written) == _without_messages(self._written())
        if same and self.deaths[0].at < min(ends, cut) + _MOMENT:
            self._die()
            return False
        self.now = min(ends, cut)
        if ends > cut:
            self._begin()
        self._settle(call)
        return True


def _without_messages(written: JournalCounts) -> JournalCounts:
    return replace(written, messages=0)


def _phase(written: JournalCounts) -> JournalCounts:
    return replace(written, messages=0, starts=(), results=frozenset())
