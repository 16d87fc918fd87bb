"""The facts of one append: the starts of calls come with their reply."""

from collections.abc import Mapping, Sequence

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from turnwright import Agent, Engine, tool
from turnwright.model.protocol import ModelRequest
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import Claim, InboxItem, MemoryStore, Status, Store
from turnwright.tools.tool import Tool
from turnwright_states import Limits, Outcome
from turnwright_states.facts import CallSettled, CallStarted, Fact, ModelReplied
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing.faults.wrapper import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")


class Recording(StoreWrapper):
    """Keeps the facts of each append."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.appended_facts: list[list[Fact]] = []

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        self.appended_facts.append(list(facts))
        return await super().append(claim, facts, status, consumed)

    def of(self, *kinds: type[Fact]) -> list[list[str]]:
        """The kinds of the facts of these kinds, by append."""
        return [
            fact_kinds
            for facts in self.appended_facts
            if (fact_kinds := [fact.kind for fact in facts if isinstance(fact, kinds)])
        ]


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


@tool(needs_approval=True)
async def erase() -> str:
    return "erased"


@tool(sequential=True)
async def alone() -> str:
    return "alone"


@tool(concurrency=5)
async def limited() -> str:
    return "limited"


async def appends(*calls: tuple[str, Mapping[str, JsonValue]], max_parallel_tools: int = 4) -> list[list[str]]:
    """The replies and starts of a turn with these calls, by append."""
    store = Recording(MemoryStore())
    tools: list[Tool] = [note, erase, alone, limited]
    model = ScriptedModel(asks_for(*calls), "Done.")
    await Engine(model=model, tools=tools, store=store, max_parallel_tools=max_parallel_tools).run(AGENT, "hi")
    return store.of(ModelReplied, CallStarted)


async def test_the_starts_of_calls_are_appended_with_their_reply() -> None:
    together = ["model_replied", "call_started", "call_started"]
    assert await appends(("note", {"n": 1}), ("note", {"n": 2})) == [together, ["model_replied"]]
    assert await appends(("alone", {})) == [together[:2], ["model_replied"]]
    refused = ("note", {"n": "many"})
    assert await appends(refused, ("note", {})) == [together[:2], ["model_replied"]]


@pytest.mark.parametrize("tool_name", ["erase", "alone", "limited"])
async def test_calls_with_a_possible_wait_start_later(tool_name: str) -> None:
    first, second, *_ = await appends(("note", {}), (tool_name, {}))
    assert (first, second[0]) == (["model_replied"], "call_started")


async def test_calls_beyond_the_parallel_limit_start_later() -> None:
    calls = [("note", {"n": n}) for n in range(3)]
    assert (await appends(*calls, max_parallel_tools=2))[0] == ["model_replied"]


async def test_turn_of_refused_calls_lets_other_tasks_run() -> None:
    """Nothing of such a turn waits: no tool, no store, and no model."""
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await anyio.lowlevel.checkpoint()

    model = ScriptedModel(*[asks_for((f"none_{n}", {})) for n in range(9)], "Done.")
    async with anyio.create_task_group() as group:
        group.start_soon(count)
        limits = Limits(idle_steps=None)
        await Engine(model=model, tools=[note], store=MemoryStore(), limits=limits).run(AGENT, "hi")
        group.cancel_scope.cancel()
    assert rounds >= 9


class AbortedReply(Recording):
    """Aborts the turn from another engine, as its first reply is written."""

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        if not self.appended_facts:
            await Engine(store=self.inner).abort(claim.turn)
        return await super().append(claim, facts, status, consumed)


async def test_no_call_runs_after_an_abort_with_the_append_of_the_start() -> None:
    ran: list[str] = []

    @tool
    async def mark() -> str:
        ran.append("mark")
        return "marked"

    store = AbortedReply(MemoryStore())
    turn = await Engine(model=ScriptedModel(asks_for(("mark", {}))), tools=[mark], store=store).run(AGENT, "hi")
    assert (turn.outcome, ran) == (Outcome.ABORTED, [])
    facts = await store.facts(turn.id)
    (settled,) = [fact for _, fact in facts if isinstance(fact, CallSettled)]
    assert settled.result.endswith("it had begun: verify before retrying")
    assert replay(facts).check.verdict is Verdict.HOLDS


async def test_no_call_starts_with_a_reply_after_the_abort() -> None:
    """The abort is known before the reply is written, and the model has ignored it."""
    engines: list[Engine] = []

    class Deaf(ScriptedModel):
        """Aborts the turn that asks it."""

        async def stream(self, request: ModelRequest):  # type: ignore[no-untyped-def]  # noqa: ANN202
            """See `Model.stream`."""
            (row,) = await engines[0].store.turns()
            await engines[0].abort(row.id)
            async for item in super().stream(request):
                yield item

    store = Recording(MemoryStore())
    engines.append(Engine(model=Deaf(asks_for(("note", {}))), tools=[note], store=store))
    turn = await engines[0].run(AGENT, "hi")
    assert (turn.outcome, store.of(CallStarted)) == (Outcome.ABORTED, [])
