"""Crashes in the reference simulator: the deaths of processes, and what the next one does (docs/rules.md#recovery).

A death says when a process died and what it had written. The engine may write several facts in one append, so the
simulator finds the moment at which a turn by the rules has written exactly that.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from turnwright_states import CallStatus, Cause

from .reference_core import Turn
from .reference_parts import Call, CoincidenceError, Life, has_answer
from .turn_script import Death, JournalCounts, ScriptedReply

#: Times that differ by less are equal.
_MOMENT = 1e-6


class DiedError(Exception):
    """The process died during a model call."""


class Mortal(Turn):
    """A turn whose processes die."""

    #: The deaths to come.
    deaths: list[Death]
    #: The tokens of a reply that the journal does not have yet.
    unwritten = 0
    #: The calls that wait for a person, by the journal at the last death.
    waiting: frozenset[int] = frozenset()

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
            helpers=self._helpers_written(),
        )

    def _helpers_written(self) -> tuple[tuple[int, JournalCounts], ...]:
        return ()

    def _wrote(self) -> None:
        self.lost, self.unwritten = False, 0
        if self._next_is_now() and self.deaths[0].written == self._written():
            self._die()
            self._revive()

    def _wrote_in_batch(self, rerun: Call | None = None) -> None:
        """Do what `_wrote` does beside messages, which are written before the last result."""
        self.lost = False
        if self._next_is_now() and _without_messages(self.deaths[0].written) == _without_messages(self._written()):
            if rerun is not None and self._place(rerun) not in self.deaths[0].just_started:
                self.executed.append(rerun.asked)
            self._die()
            self._revive()

    def _place(self, call: Call) -> int:
        return next(place for place, one in enumerate(self.calls) if one is call)

    def _next_is_now(self) -> bool:
        return bool(self.deaths) and abs(self.deaths[0].at - self.now) < _MOMENT

    def _die(self) -> Death:
        """Let the process die, and each one after it that wrote only a question. Lost seconds do not count."""
        death = last = self.deaths.pop(0)
        while self.deaths and death.at == self.deaths[0].at and death.written == self.deaths[0].written:
            last = self.deaths.pop(0)
        self.waiting = last.written.waits
        self.now, self.lost = max(death.at, self.now), not death.released
        self.lost_seconds += death.lost
        self.deadline += death.lost
        if death.written.messages > self.read:
            self.read = death.written.messages
            self._forget_rounds()
        return death

    def _revive(self) -> None:
        """Let the next process go on. That of a sub-agent waits for its caller."""

    def _is_lost(self) -> bool:
        lost, self.lost = self.lost, False
        if lost and self.abort_at <= self.now:
            self._begin()  # an aborted turn needs no repair
        return lost

    # A model call is made again, for a retry.

    def _work(self, seconds: float) -> None:
        ends = min(self.now + seconds, self.abort_at, self.deadline)
        if self.deaths and self._is_between(self.deaths[0].at, ends) and self.deaths[0].written == self._written():
            self._die()
            self._revive()
            raise DiedError
        self._need_order(self.now + seconds, min(self.abort_at, self.deadline))
        super()._work(seconds)

    def _need_order(self, ends: float, cut: float) -> None:
        """Raise `CoincidenceError` if work ends when it is cut off: a crash may shift the deadlines of a team so."""
        if abs(ends - cut) < _MOMENT:
            raise CoincidenceError

    def _settle(self, call: Call) -> None:
        self._need_order(self.now, self._cut())
        super()._settle(call)

    def _is_between(self, moment: float, ends: float) -> bool:
        """Return whether a moment is before the end of work. What it wrote at the end is known then."""
        return self.now < moment < ends

    def _attempt_or_crash(self, *, step: bool) -> ScriptedReply:
        return self._unless_crashed(lambda: super(Mortal, self)._attempt_or_crash(step=step))

    def _attempt_conclusion(self) -> ScriptedReply:
        return self._unless_crashed(super()._attempt_conclusion)

    def _attempt(self, most_seconds: float = inf) -> ScriptedReply:
        before, reply = self.tokens, self._unless_crashed(lambda: super(Mortal, self)._attempt(most_seconds))
        self.unwritten = self.tokens - before
        return reply

    def _unless_crashed(self, attempt: Callable[[], ScriptedReply]) -> ScriptedReply:
        """Make an attempt. If the process releases the turn before it dies, it is made anew."""
        while True:
            try:
                return attempt()
            except DiedError:
                self.tokens, self.unwritten = self.tokens - self.unwritten, 0
                if self._is_lost():
                    return ScriptedReply(error=Cause.CRASH)
                self._begin()

    def _expiring(self, calls: list[Call]) -> list[Call]:
        """Return calls whose questions expire at once, those with results at the next death first: any order may be."""
        results = self.deaths[0].written.results if self.deaths else ()
        return sorted(calls, key=lambda call: self._place(call) not in results)

    # Calls with results stay, calls that had not started run, and the policy of its tool is for an interrupted one.

    def _run(self, open_: list[Call], batch: list[Call]) -> Life:
        crashed = any(call.runs and call.status is None for call in batch)
        while not self._recover(batch):
            pass
        open_ = [call for call in open_ if call.status is None]
        if open_:
            self.lost = False  # nothing of them was under way
        elif not has_answer(batch) and not self._goes_on(batch, batch):
            self._read_messages()
        if self.deaths and _phase(self.deaths[0].written) == _phase(self._written()):
            self._begin()
            self._die_in(open_)
        elif crashed and open_ and self._may_ask() and all(map(self._waits, open_)):
            # The turn pauses with the last of the others, also while an abort leaves it time.
            if not has_answer(batch):
                self._read_messages()
            yield from self._ask_about(open_)
        elif open_:
            yield from super()._run(open_, batch)

    def _die_in(self, calls: list[Call]) -> None:
        """Run calls until the process dies. What it wrote says which of them had started and finished."""
        death = self.deaths[0]
        for call in calls:
            self._judge(call)
        for call in calls:
            place = self._place(call)
            if call.status is not None:  # by a hook, if its decision was written
                call.status, call.judged = (call.status, True) if place in death.written.results else (None, False)
            elif not self._leave(call, place, death):
                raise AssertionError(f"by the rules call {place} is not like that at this death: {death}")
        self._die()
        self._revive()

    def _leave(self, call: Call, place: int, death: Death) -> bool:
        """Leave a call as it was when the process died. Return whether the rules let it be so."""
        began, settled, starts = self.now, place in death.written.results, death.written.starts[place] - call.starts
        if call.asks and not call.approved:
            if settled and not self._may_ask():
                call.status = CallStatus.REFUSED
            return not starts and (not settled or call.status is not None)
        if not 0 <= starts <= 1 or (settled and not starts):
            return False
        if starts and self._runs(call):
            self._start([call])
            if place in death.just_started:
                self.executed.pop()
        call.runs = bool(starts) and not settled
        if settled:
            self._settle(call)
            return began + self._lasts(call) < death.at + _MOMENT
        ends_later = began + self._lasts(call) > death.at - _MOMENT
        return ends_later and (bool(starts) or not self._runs(call) or death.at < began + _MOMENT)

    def _waits(self, call: Call) -> bool:
        """Return whether a call waits for a person in the journal. A question about a crash is written first."""
        written = call.declined is CallStatus.UNKNOWN or self._place(call) in self.waiting
        return call.asks and not call.approved and written

    def _may_ask(self) -> bool:
        return self.pauses < self.limits.max_pauses

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
        if policy == "ask" and self._may_ask():
            call.runs, call.asks, call.approved = False, True, False
            call.declined, call.expires = CallStatus.UNKNOWN, False
            return True
        if policy != "rerun" or not (self.retries_left or call.crash_paid):
            call.status = CallStatus.UNKNOWN
        elif not self._rerun(call):
            return False
        call.runs = False
        self._wrote_in_batch()
        return not self.lost

    def _rerun(self, call: Call) -> bool:
        """Run an interrupted call again. Return False if the process died meanwhile.

        The first call of a crash costs a retry, for all the calls that the crash interrupted.
        """
        if not call.crash_paid:
            self.retries_left -= 1
            for other in self.calls:
                other.crash_paid = other.runs and other.status is None
        call.crash_paid = False
        call.starts += 1
        self._wrote_in_batch(call)
        if self.lost:
            return False
        self.executed.append(call.asked)
        ends, cut = self.now + self._lasts(call), min(self.deadline, self.abort_at + self.script.cancel_grace)
        same = self.deaths and _without_messages(self.deaths[0].written) == _without_messages(self._written())
        if same and self.deaths[0].at < min(ends, cut) + _MOMENT:
            self._die()
            self._revive()
            return False
        self.now, deaths = min(ends, cut), len(self.deaths)
        if ends > cut:
            self._begin()
            if len(self.deaths) < deaths:  # the process died when it ended sub-agents, and the turn has time again
                return False
        self._settle(call)
        return True


def _without_messages(written: JournalCounts) -> JournalCounts:
    return replace(written, messages=0)


def _phase(written: JournalCounts) -> JournalCounts:
    return replace(written, messages=0, starts=(), results=frozenset(), helpers=())
