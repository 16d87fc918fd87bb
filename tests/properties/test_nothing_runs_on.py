"""Once a turn has ended or concludes, nothing of it runs on: no turn of a sub-agent is open, and no tool works."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
from hypothesis import given
from hypothesis import strategies as st

from turnwright import Agent, Engine, TurnResult, agent_tool, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.store import MemoryStore, Store
from turnwright.tools import Tool
from turnwright_states import Limits, Outcome
from turnwright_testing.clock import run

ROOT = Agent(name="Root")
HELPERS = [
    Agent(name="Left", description="Helps."),
    Agent(name="Right", description="Helps.", tools=["work", "erase", "Left"]),
]
#: The calls of a reply, by name.
Batch = Sequence[str]


@dataclass(frozen=True)
class Script:
    """The batches of the root and of both helpers, and what stops the root: a deadline, an abort, or both.

    `elsewhere`: the abort comes from another process, so it waits in the inbox until the driver reads it.
    """

    batches: dict[str, Sequence[Batch]]
    work: float
    deadline: float | None
    abort_at: float | None
    elsewhere: bool


def batches(*names: str) -> st.SearchStrategy[Sequence[Batch]]:
    """Return up to two replies that call these tools."""
    return st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=3), min_size=1, max_size=2)


#: Work ends at whole seconds, and the turn is stopped between them.
between = st.integers(0, 12).map(lambda n: n + 0.5)
scripts = st.builds(
    Script,
    batches=st.fixed_dictionaries(
        {
            "Root": batches("Left", "Right", "work"),
            "Left": batches("work", "erase"),
            "Right": batches("work", "Left", "Left"),
        }
    ),
    work=st.sampled_from([0.0, 1.0, 3.0]),
    deadline=st.none() | between,
    abort_at=st.none() | between,
    elsewhere=st.booleans(),
)


class TurnTree:
    """A tree of turns on one store, and the tools that work in it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.store: Store = MemoryStore()
        self.working = 0
        #: When the root asked its model.
        self.request_times: list[float] = []
        self.faults: list[str] = []

    def engine(self) -> Engine:
        """Return the engine. Its clock is the loop's."""
        return Engine(
            model=ScriptedModel(self.replies, repeat=True),
            tools=[*self.tools(), *map(agent_tool, HELPERS)],
            store=self.store,
            limits=Limits(seconds=self.script.deadline),
            clock=anyio.current_time,
        )

    def replies(self, request: ModelRequest) -> ModelResponse:
        """Reply with the next batch of the agent that asks."""
        name = next(message.text for message in request.messages if message.role == "user")
        if name == ROOT.name:
            self.request_times.append(anyio.current_time())
        if request.tool_choice == "none":
            return ModelResponse(text="So far.")
        step = sum(bool(message.calls) for message in request.messages)
        mine = self.script.batches[name]
        if step >= len(mine):
            return ModelResponse(text="Done.")
        helpers = [helper.name for helper in HELPERS]
        return asks_for(
            *[(name, {"prompt": name} if name in helpers else {"n": n}) for n, name in enumerate(mine[step])]
        )

    def tools(self) -> list[Tool]:
        """Return a tool that works for a while, and one that needs approval."""

        @contextmanager
        def at_work() -> Iterator[None]:
            self.working += 1
            try:
                yield
            finally:
                self.working -= 1

        @tool
        async def work(n: int) -> str:
            with at_work():
                await anyio.sleep(self.script.work)
            return f"done {n}"

        @tool(needs_approval=True)
        async def erase(n: int) -> str:
            return f"erased {n}"

        return [work, erase]

    async def play(self) -> None:
        """Run the tree until its root has ended, and look for what is left of it."""
        async with self.engine() as engine:
            turn = await self.ended(engine)
            end = f"the turn has ended ({turn.outcome}, {turn.reason})"
            for row in await self.store.turns():
                if row.status.outcome is None:
                    self.faults.append(f"{row.id} is open, and {end}")
                if await self.store.is_driven(row.id):
                    self.faults.append(f"{row.id} is driven, and {end}")
            if self.working:
                self.faults.append(f"{self.working} tools work, and {end}")
            if self.script.abort_at is not None and max(self.request_times) > self.script.abort_at:
                self.faults.append(f"the root asked its model at {max(self.request_times)}, after its abort")
            assert turn.outcome is not Outcome.FAILED, turn.error

    async def ended(self, engine: Engine) -> TurnResult:
        """Run the tree to its end. A turn that waits for a person is approved, or aborted."""
        handle = await engine.start(ROOT, "Root")
        async with anyio.create_task_group() as group:
            if self.script.abort_at is not None:
                group.start_soon(self.abort_later, engine, handle.id, self.script.abort_at)
            interrupts = (await handle.result()).interrupts
            while interrupts:
                if self.script.abort_at is not None:
                    await engine.abort(handle.id)
                    break
                interrupts = (
                    await engine.resume(handle.id, {interrupt.id: True for interrupt in interrupts})
                ).interrupts
            group.cancel_scope.cancel()
        return await engine.get(handle.id)

    async def abort_later(self, engine: Engine, turn: str, seconds: float) -> None:
        """Abort the turn after these seconds."""
        await anyio.sleep(seconds)
        aborting_engine = Engine(store=self.store) if self.script.elsewhere else engine
        await aborting_engine.abort(turn)


@given(script=scripts)
def test_ended_turn_leaves_no_running_work(script: Script) -> None:
    """An abort, a deadline or an answer ends it, while its sub-agents and their tools are anywhere."""
    turn_tree = TurnTree(script)
    run(turn_tree.play)
    assert turn_tree.faults == []
