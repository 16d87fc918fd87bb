"""Facts are in the journal before anything follows from them, and nothing follows from a fact that is not written.

Except for the calls of a repeatable step, which may run before their starts are written.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import anyio.lowlevel
from hypothesis import given
from hypothesis import strategies as st

from turnwright import Agent, Engine, StoreError, TurnResult, agent_tool, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.store import Claim, InboxItem, MemoryStore, NewTurn, Status
from turnwright.tools import Tool, ToolContext
from turnwright.transcript.events import TurnEvent
from turnwright_states import facts as f
from turnwright_states.facts import Fact
from turnwright_testing.clock import run
from turnwright_testing.faults import StoreWrapper

ROOT = Agent(name="Root")
HELPER = Agent(name="Helper", description="Helps.", steps=2)
#: Rounds of the event loop before an append is written: everything that does not wait for it continues.
ROUNDS = 8


class SlowStore(StoreWrapper):
    """A store that knows what it has written, and whose appends take time. Its `fails_at`-th append fails."""

    def __init__(self, fails_at: int) -> None:
        super().__init__(MemoryStore())
        self.stored_facts: dict[str, list[Fact]] = defaultdict(list)
        #: The claims under which an append has failed, by turn and epoch.
        self.failed: set[tuple[str, int]] = set()
        self.faults: list[str] = []
        self._appends = 0
        self._fails_at = fails_at

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        """See `Store.create`."""
        claim = await super().create(new, facts, status, driven=driven)
        self.stored_facts[new.id] += facts
        return claim

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        if (claim.turn, claim.epoch) in self.failed:
            self.faults.append(f"{claim.turn}: {[fact.kind for fact in facts]} after an append that failed")
        for _ in range(ROUNDS):
            await anyio.lowlevel.checkpoint()
        self._appends += 1
        if self._appends == self._fails_at:
            self.failed.add((claim.turn, claim.epoch))
            raise StoreError("the disk is full, as planned")
        waiting = await super().append(claim, facts, status, consumed)
        self.stored_facts[claim.turn] += facts
        return waiting


@dataclass(frozen=True)
class Script:
    """The tools of each batch of the root turn, the engine's room, and whether steps of the root are repeatable."""

    batches: Sequence[Sequence[str]]
    room: int
    repeatable: bool


scripts = st.builds(
    Script,
    batches=st.lists(
        st.lists(st.sampled_from(["note", "note", "slow", "alone", "erase", "Helper"]), min_size=1, max_size=3),
        min_size=1,
        max_size=3,
    ),
    room=st.sampled_from([8, 1]),
    repeatable=st.booleans(),
)


class SlowTurn:
    """One turn on a slow store, with everything that its tools and its observers see."""

    def __init__(self, script: Script, fails_at: int) -> None:
        self.script = script
        self.store = SlowStore(fails_at)
        self.faults = self.store.faults

    def engine(self) -> Engine:
        """Return the engine of one process."""
        return Engine(
            model=ScriptedModel(self.replies, repeat=True),
            tools=[*self.tools(), agent_tool(HELPER)],
            store=self.store,
            max_parallel_tools=self.script.room,
            on_event=[self.observed],
        )

    def replies(self, request: ModelRequest) -> ModelResponse:
        """Reply with the next batch; the helper takes one note."""
        step = sum(bool(message.calls) for message in request.messages)
        helps = any(message.text == "help" for message in request.messages)
        batches = [["note"]] if helps else self.script.batches
        if step >= len(batches):
            return ModelResponse(text="Done.")
        calls = [(name, {"prompt": "help"} if name == "Helper" else {"n": n}) for n, name in enumerate(batches[step])]
        return asks_for(*calls)

    def tools(self) -> list[Tool]:
        """Return a quick tool, a slow one, one that runs alone, and one that needs approval."""

        @tool(read_only=True)
        async def note(n: int, context: ToolContext) -> str:
            if not self.may_be_early(context):
                self.started(context)
            return f"noted {n}"

        @tool
        async def slow(n: int, context: ToolContext) -> str:
            self.started(context)
            for _ in range(3 * ROUNDS):
                await anyio.lowlevel.checkpoint()
            return f"done {n}"

        @tool(sequential=True)
        async def alone(n: int, context: ToolContext) -> str:
            self.started(context)
            return f"done {n} alone"

        @tool(needs_approval=True)
        async def erase(n: int, context: ToolContext) -> str:
            self.started(context)
            return f"erased {n}"

        return [note, slow, alone, erase]

    def may_be_early(self, context: ToolContext) -> bool:
        """Whether the step of this call is repeatable: each of its calls is a note of the root."""
        return (
            self.script.repeatable and context.agent == "Root" and {*self.script.batches[context.step - 1]} == {"note"}
        )

    def started(self, context: ToolContext) -> None:
        """Check that the start of the call is written."""
        starts = [fact for fact in self.store.stored_facts[context.turn_id] if isinstance(fact, f.CallStarted)]
        if (context.call_id, context.attempt) not in [(fact.call, fact.attempt) for fact in starts]:
            self.faults.append(f"{context.call_id} runs before its start is written")

    def observed(self, event: TurnEvent) -> None:
        """Check that the fact of an event is written."""
        if event.seq > len(self.store.stored_facts[event.turn]):
            self.faults.append(f"{event.type} {event.seq} is published before its fact is written")

    async def play(self) -> None:
        """Run the turn until it has ended, or until its append fails."""
        with suppress(StoreError):
            async with self.engine() as engine:
                turn: TurnResult = await engine.run(
                    ROOT.model_copy(update={"repeatable_steps": self.script.repeatable}), "hi"
                )
                while turn.outcome is None:
                    turn = await engine.resume(turn.id, {interrupt.id: True for interrupt in turn.interrupts})
                self.returned(turn)

    def returned(self, turn: TurnResult) -> None:
        """Check that the end of the turn is written."""
        last = self.store.stored_facts[turn.id][-1]
        if not isinstance(last, f.TurnEnded) or last.reason is not turn.reason:
            self.faults.append(f"{turn.reason} is returned before it is written")


@given(script=scripts)
def test_tools_run_and_events_are_published_only_after_the_append(script: Script) -> None:
    """A call's start is written before its tool runs, each fact before its event, the end before the result."""
    slow_turn = SlowTurn(script, 0)
    run(slow_turn.play)
    assert slow_turn.faults == []


@given(script=scripts, fails_at=st.integers(1, 30))
def test_failed_append_has_no_consequence(script: Script, fails_at: int) -> None:
    """The same driver writes nothing more, and what was not written starts no tool and no event."""
    slow_turn = SlowTurn(script, fails_at)
    run(slow_turn.play)
    assert slow_turn.faults == []
