"""Crashes of agents with guardrails and of sub-agents in the reference simulator. See `reference_crashes`."""

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

from turnwright_states import EndReason

from .reference import AgentTurn
from .reference_crashes import DiedError, Mortal
from .reference_helpers import HelperTurn, is_helper
from .reference_parts import Call, EndError
from .turn_script import Death, JournalCounts, PersonAct, ScriptedReply, TurnScript

#: Times that differ by less are equal.
_MOMENT = 1e-6


class MortalTurn(Mortal, AgentTurn):
    """The turn of an agent whose processes die."""

    def __init__(self, script: TurnScript, deaths: Sequence[Death]) -> None:
        super().__init__(script)
        self.deaths = list(deaths)
        #: Whether it makes a model call, or reviews its reply.
        self.in_step = True

    def _die(self) -> Death:
        """Let the process die. The guardrail of the prompt is asked again, unless the journal has that it passed."""
        guardrail = self.script.guardrail
        if guardrail is not None and self.steps <= 1 and self.in_step and not self.prepared:
            self.unchecked, self.questions = True, 0
        return super()._die()

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

    # Sub-agents die with their caller. Each has a journal of its own.

    def _helpers_written(self) -> tuple[tuple[int, JournalCounts], ...]:
        written = ((place, self._helper_written(call)) for place, call in enumerate(self.calls))
        return tuple((place, one) for place, one in written if one is not None)

    def _ask(self, *, expires: bool) -> Generator[None, PersonAct, PersonAct]:
        """Ask a person. A new message of the session ends the sub-agents first, and is lost if a process dies then."""
        try:
            return (yield from super()._ask(expires=expires))
        except EndError as end:
            if end.why is EndReason.SUPERSEDED and self._dies_ending_children():
                return (yield from self._ask(expires=expires))
            raise

    def _begin(self) -> None:
        while min(self.abort_at, self.deadline) <= self.now and self._dies_ending_children():
            pass  # an abort is kept, and a crash may give time back
        super()._begin()

    def _end_children(self) -> None:
        while self._dies_ending_children():
            pass
        super()._end_children()

    def _dies_ending_children(self) -> bool:
        """End the sub-agents, one after the other. Return whether the process dies after one of them."""
        for call in self.calls:
            child = self.children.get(id(call))
            if child is not None and not child.ended:
                self.children[id(call)] = child.run("abort", 0.0, 0.0, rejects=False)
                if self._next_is_now() and self.deaths[0].written == self._written():
                    self._die()
                    return True
        return False

    def _new_helper(self) -> HelperTurn:
        return MortalHelper(self._lent())

    def _leave(self, call: Call, place: int, death: Death) -> bool:
        its_death = dict(death.helpers).get(place)
        if not is_helper(call) or not self._runs(call) or (call.asks and not call.approved):
            self._end_early(call, its_death)
            return super()._leave(call, place, death)
        # A sub-agent is run as far as its own journal goes.
        if call.starts < death.written.starts[place]:
            self._count_starts([call])
            call.due = False
        if call.starts != death.written.starts[place]:
            return False
        written = self._helper_written(call)
        cut = self._cut_in([one for one in self.calls if one.status is None and (one.approved or not one.asks)])
        if place in death.written.results:
            self._run_helper(call, cut)
            child = self.children[id(call)]
            ends = self.now + child.lasted()
            self._settle(call)
            return child.ended and ends < death.at + _MOMENT
        if its_death is None:
            return written is None
        before = self.children.get(id(call))
        rests = before is not None and (before.asks or before.ended or before.lost)
        if its_death.written == written and (its_death.released or rests):  # it was not driven
            return True
        self._run_helper(call, cut, replace(its_death, at=death.at - self.now))
        child = self.children[id(call)]
        ends = self.now + child.lasted() if child.ended else inf
        if child.asks:
            self._settle(call)
        self._end_early(call, its_death)
        return its_death.written == self._helper_written(call) and ends > death.at - _MOMENT

    def _end_early(self, call: Call, its_death: Death | None) -> None:
        """End a sub-agent that asks a person, if the process died when it ended the turn."""
        child = self.children.get(id(call))
        if child is not None and child.asks and its_death is not None and its_death.written.ended:
            self.children[id(call)] = child.run("abort", 0.0, 0.0, rejects=False)

    def _helper_written(self, call: Call) -> JournalCounts | None:
        """Return the journal of the sub-agent of a call, if it has begun."""
        child = self.children.get(id(call))
        return child.written() if isinstance(child, MortalHelper) else None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of a sub-agent until it ends, asks a person, or dies. See `HelperTurn.run`."""

    act: PersonAct | None
    aborted: float
    cut: float
    rejects: bool
    #: The death that ends it, in seconds from its beginning, if it does.
    death: Death | None
    #: Whether the question of the sub-agent has expired.
    is_late: bool


class SuspendedError(Exception):
    """A sub-agent has died, and its caller has not resumed it."""


class MortalHelper(Mortal, HelperTurn):
    """The turn of a sub-agent whose processes die. For each stretch of it, its life is computed anew."""

    def __init__(self, script: TurnScript, stretches: tuple[Stretch, ...] = ()) -> None:
        super().__init__(script)
        self.origin, self.stretches, self.left = script, stretches, list(stretches)
        self.deaths = []

    def written(self) -> JournalCounts:
        """Return the facts in its journal."""
        return self._written()

    def run(
        self, act: PersonAct | None, aborted: float, cut: float, *, rejects: bool, death: Death | None = None
    ) -> HelperTurn:
        """Run until the turn ends, asks a person or dies. Return it as it is then. See `HelperTurn.run`."""
        stretch = Stretch(act, aborted, cut, rejects, death, self.is_late)
        turn = MortalHelper(self.origin, (*self.stretches, stretch))
        with suppress(SuspendedError):
            while turn.left:
                one = turn.left[0]
                turn._next_stretch()
                turn._go_on(one.act)
                while turn.asks and one.rejects:
                    turn._go_on("no")
        return turn

    def _next_stretch(self) -> None:
        one = self.left.pop(0)
        self._begin_stretch(one.aborted, one.cut)
        self.is_late = self.is_late or one.is_late
        self.deaths = [] if one.death is None else [replace(one.death, at=self.now + one.death.at)]
        if one.death is not None and one.death.written.stopped and self.abort_at == self.deadline:
            self.abort_at += _MOMENT / 2  # it was faster than its caller, whose time ends too

    def _revive(self) -> None:
        if self.left:
            self._next_stretch()
        elif not self.ended:
            raise SuspendedError

    def _is_between(self, moment: float, ends: float) -> bool:
        """Return whether a moment is before the end of work, or at it: its caller may have died at the same time."""
        return self.now - _MOMENT < moment < ends + _MOMENT

    def _die(self) -> Death:
        death = super()._die()
        if abs(self.model_calls - death.calls) > 1:
            raise AssertionError(f"by the rules a sub-agent has not made so many model calls at this death: {death}")
        self.model_calls = death.calls
        return death
