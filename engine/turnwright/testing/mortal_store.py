"""The store of a scripted process, which dies after so many appends or at a moment."""

from collections import Counter
from collections.abc import Sequence

import anyio

from turnwright.errors import StoreError
from turnwright.store import Claim, InboxItem, NewTurn, Status, Store
from turnwright_states import facts as f
from turnwright_states.facts import Fact

from .faults.wrapper import StoreWrapper
from .turn_script import Death, JournalCounts


class MortalStore(StoreWrapper):
    """The handle of one process. After `appends` appends, or `kill`, all that it does raises `StoreError`."""

    def __init__(self, inner: Store, appends: int | None) -> None:
        super().__init__(inner)
        self.dead = False
        #: The scope of everything that the process does.
        self.life = anyio.CancelScope()
        #: The id of the turn that it began or claimed.
        self.turn = ""
        self._left = appends
        self._died_at = self._wrote_at = 0.0
        #: The facts of the append after which it died.
        self._last: Sequence[Fact] = ()

    @property
    def inline(self) -> bool:
        """See `Store.inline`. Only a process that dies after an append has one that raises."""
        return self._left is None and self.inner.inline

    def kill(self) -> None:
        """Let the process die now."""
        self.dead, self._died_at = True, anyio.current_time()
        self.life.cancel()

    def enter(self) -> None:
        """Raise `StoreError` if the process is dead."""
        if self.dead:
            raise StoreError("its process is dead")

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        """See `Store.create`. It counts as an append."""
        self.turn = self.turn or new.id
        claim = await super().create(new, facts, status, driven=driven)
        self._appended(facts)
        return claim

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`. The process may die after it."""
        self.turn = self.turn or claim.turn
        waiting = await super().append(claim, facts, status, consumed)
        self._appended(facts)
        return waiting

    def _appended(self, facts: Sequence[Fact]) -> None:
        self._wrote_at = anyio.current_time()
        if self._left is None:
            return
        self._left -= 1
        if self._left <= 0:
            self.dead, self._died_at, self._last = True, self._wrote_at, facts
            raise StoreError("its process died after this append")

    async def asking(self, turn: str) -> dict[str, int]:
        """Return the place of the call that each question is about."""
        facts = [fact for _, fact in await self.inner.facts(turn)]
        places = {call.id: place for place, call in enumerate(_calls(facts))}
        return {one.interrupt.id: places[one.call] for one in facts if isinstance(one, f.CallWaiting)}

    def death(self, journal: Sequence[tuple[int, Fact]]) -> Death:
        """Return the death of the process, with what its turn has in its journal."""
        facts = [fact for _, fact in journal]
        places = {call.id: place for place, call in enumerate(_calls(facts))}
        kinds = Counter(map(type, facts))
        starts = Counter(fact.call for fact in facts if isinstance(fact, f.CallStarted))
        return Death(
            at=self._died_at,
            written=JournalCounts(
                steps=kinds[f.StepStarted],
                replies=kinds[f.ModelReplied],
                failures=kinds[f.AttemptFailed] + kinds[f.Concluded],
                compactions=kinds[f.CompactionStarted] + kinds[f.Compacted],
                syntheses=kinds[f.Synthesized],
                reviews=kinds[f.Reviewed],
                pauses=kinds[f.Paused],
                answers=kinds[f.Answered],
                messages=kinds[f.MessageAdded],
                stopped=bool(kinds[f.Stopping]),
                ended=bool(kinds[f.TurnEnded]),
                starts=tuple(starts[call] for call in places),
                results=frozenset(places[fact.call] for fact in facts if isinstance(fact, f.CallSettled)),
            ),
            just_started=frozenset(places[fact.call] for fact in self._last if isinstance(fact, f.CallStarted)),
            lost=self._died_at - self._wrote_at,
        )


def _calls(facts: Sequence[Fact]) -> list[f.CallMade]:
    return [call for fact in facts if isinstance(fact, f.ModelReplied) for call in fact.calls]
