"""The bench that the suite needs: a place for stores, and turns that a test writes by hand."""

from collections.abc import Sequence
from typing import Final, Protocol

import pytest

from turnwright.store import Claim, NewTurn, Status, Store
from turnwright_states import (
    AbortInput,
    AnsweredInput,
    CallWaitingInput,
    Decision,
    InterruptKind,
    ModelRepliedInput,
    StartedInput,
    ToolCall,
    TurnMachine,
    Usage,
)
from turnwright_states.facts import Fact

#: The creation time of the youngest turn.
NOW: Final = 1_700_000_000.0


class Bench(Protocol):
    """The place where the store under test keeps its data, empty at first."""

    async def open(self) -> Store:
        """Open the store there, as one process would. Each call is another process, where the store allows several."""
        ...

    async def bury(self, store: Store) -> None:
        """Make the process behind `store` look dead to the others. Its handle still works, as after a stall."""
        ...


class Written:
    """A turn that a test writes by hand: its machine, its claim, and the facts that should be in the store."""

    def __init__(
        self,
        turn_id: str = "t1",
        *,
        session: str | None = None,
        prompt: str = "hi",
        age: float = 0,
        title: str = "",
    ) -> None:
        self.machine, first = TurnMachine.start(StartedInput(prompt=prompt, session=session))
        self.facts: list[Fact] = list(first)
        self.new = NewTurn(turn_id, session, "Tidier", "scripted", NOW - age, title)

    @property
    def status(self) -> Status:
        return Status.of(self.machine.turn)

    async def create(self, store: Store) -> Claim:
        return await store.create(self.new, self.facts, self.status)

    def calls(self, *names: str) -> Sequence[Fact]:
        calls = tuple(ToolCall(name=name, arguments={"n": 1}) for name in names)
        return self.keep(
            self.machine.feed(ModelRepliedInput(calls=calls, usage=Usage(input_tokens=3, cost=0.1), elapsed=0.5))
        )

    def answer(self, text: str = "done") -> Sequence[Fact]:
        return self.keep(self.machine.feed(ModelRepliedInput(text=text, elapsed=1.25)))

    def pause(self) -> Sequence[Fact]:
        facts = list(
            self.machine.feed(ModelRepliedInput(calls=(ToolCall(name="delete_file", arguments={}),), elapsed=0.5))
        )
        (call,) = self.machine.turn.batch
        return self.keep(facts + self.machine.feed(CallWaitingInput(call=call, interrupt_kind=InterruptKind.APPROVAL)))

    def approve(self, interrupt: str) -> Sequence[Fact]:
        answer = AnsweredInput(interrupt=interrupt, decision=Decision.APPROVE, elapsed=0.5)
        return self.keep(self.machine.feed(answer))

    def abort(self) -> Sequence[Fact]:
        return self.keep(self.machine.feed(AbortInput(elapsed=2)))

    def keep(self, facts: list[Fact]) -> Sequence[Fact]:
        self.facts += facts
        return facts


class StoreFacts:
    """Part of `StoreSuite`: tests of a store, and of another handle of its data, as another process has it."""

    @pytest.fixture
    async def store(self, bench: Bench) -> Store:
        return await bench.open()

    @pytest.fixture
    async def other_store(self, bench: Bench) -> Store:
        return await bench.open()

    @pytest.fixture
    def draft(self) -> Written:
        """Return the turn `t1`, which the store does not have yet."""
        return Written()

    @pytest.fixture
    async def claim(self, store: Store, draft: Written) -> Claim:
        """Write the draft into the store, and return the claim of its driver."""
        return await draft.create(store)
