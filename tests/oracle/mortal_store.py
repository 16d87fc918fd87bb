"""The store of a scripted process, which dies after so many appends or at a moment."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar

import anyio
from tests.oracle.turn_script import Death, JournalCounts

from turnwright._base.ids import child_id
from turnwright.errors import StoreError, TurnNotFoundError
from turnwright.store import Store
from turnwright_states import facts as f
from turnwright_states.facts import Fact
from turnwright_testing.faults.wrapper import StoreCall, StoreWrapper

R = TypeVar("R")

#: The turn that the task has last claimed or written to.
DRIVEN: ContextVar[str] = ContextVar("driven")


class MortalStore(StoreWrapper):
    """The handle of one process. After `appends` appends, or `kill`, all that it does raises `StoreError`.

    `ran` counts the runs of tools by idempotency key.
    """

    def __init__(self, inner: Store, appends: int | None, ran: Counter[str]) -> None:
        super().__init__(inner)
        self.dead = False
        #: The scope of everything that the process does.
        self.life = anyio.CancelScope()
        #: The id of the turn that it began or claimed.
        self.turn = ""
        self._remaining_appends = appends
        self._ran, self._started, self._ran_before = ran, Counter[str](), Counter(ran)
        self._died_at = 0.0
        #: The times of the last append to each turn that it drives, or of its claim.
        self._wrote_at: dict[str, float] = {}
        #: The seconds from there to the release, of each turn that it has released.
        self._lost: dict[str, float] = {}

    @property
    def inline(self) -> bool:
        """See `Store.inline`. Only a process that dies after an append has one that raises."""
        return self._remaining_appends is None and self.inner.inline

    def kill(self) -> None:
        """Let the process die now."""
        self.dead, self._died_at = True, anyio.current_time()
        self.life.cancel()

    def enter(self) -> None:
        """Raise `StoreError` if the process is dead."""
        if self.dead:
            raise StoreError("its process is dead")

    async def around(self, call: StoreCall, make: Callable[[], Awaitable[R]]) -> R:
        """See `StoreWrapper.around`. The process may die after an append; `create` counts as one."""
        result = await super().around(call, make)
        match call.name:
            case "create" | "append":
                self._wrote(call.turn)
                self._appended(call.turn, call.facts)
            case "claim":
                self._wrote(call.turn)
            case "release":
                self._lost[call.turn] = anyio.current_time() - self._wrote_at.pop(call.turn)
        return result

    def _wrote(self, turn: str) -> None:
        self.turn = self.turn or turn.partition(":")[0]
        self._wrote_at[turn] = anyio.current_time()
        DRIVEN.set(turn)

    def _appended(self, turn: str, facts: Sequence[Fact]) -> None:
        self._started.update(f"{turn}:{fact.call}" for fact in facts if isinstance(fact, f.CallStarted))
        if self._remaining_appends is None:
            return
        self._remaining_appends -= 1
        if self._remaining_appends <= 0:
            self.dead, self._died_at = True, anyio.current_time()
            raise StoreError("its process died after this append")

    async def asking(self, turn: str) -> dict[str, int]:
        """Return the place of the call that each question is about."""
        facts = [fact for _, fact in await self.inner.facts(turn)]
        places = {call.id: place for place, call in enumerate(_calls(facts))}
        waits = [fact for fact in facts if isinstance(fact, f.CallWaiting)]
        return {interrupt.id: places[wait.call] for wait in waits for interrupt in wait.interrupts}

    async def death(self, store: Store, turn: str, model_calls: Mapping[str, int]) -> Death:
        """Return the death of the process as `store`, which is that of the next one, has it.

        `model_calls` are those of each sub-agent's turn so far.
        """
        facts = [fact for _, fact in await store.facts(turn)]
        places = {call.id: place for place, call in enumerate(_calls(facts))}
        kinds = Counter(map(type, facts))
        starts = Counter(fact.call for fact in facts if isinstance(fact, f.CallStarted))
        last = {fact.call: fact for fact in facts if isinstance(fact, f.CallStarted | f.CallWaiting)}
        results = frozenset(places[fact.call] for fact in facts if isinstance(fact, f.CallSettled))
        helpers: list[tuple[int, Death]] = []
        for call, place in places.items():
            if starts[call] and place not in results:
                with suppress(TurnNotFoundError):  # no sub-agent, or it has not begun
                    helpers.append((place, await self.death(store, child_id(turn, call), model_calls)))
        counts = JournalCounts(
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
            results=results,
            waits=frozenset(places[call] for call, fact in last.items() if isinstance(fact, f.CallWaiting)),
            helpers=tuple((place, death.counts) for place, death in helpers),
        )
        return Death(
            at=self._died_at,
            counts=counts,
            just_started=frozenset(place for call, place in places.items() if self._has_not_run(f"{turn}:{call}")),
            lost=self._died_at - self._wrote_at[turn] if turn in self._wrote_at else self._lost.get(turn, 0.0),
            released=turn not in self._wrote_at,
            calls=model_calls.get(turn, 0),
            helpers=tuple(helpers),
        )

    def _has_not_run(self, key: str) -> bool:
        """Return whether this process has started a call whose tool has not run."""
        return self._started[key] > self._ran[key] - self._ran_before[key]


def _calls(facts: Sequence[Fact]) -> list[f.CallMade]:
    return [call for fact in facts if isinstance(fact, f.ModelReplied) for call in fact.calls]
