"""The facts of one append: what starts or comes together is journaled together."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from turnwright import Agent, CallView, Engine, before_tool, tool
from turnwright.context import HooksBase
from turnwright.errors import StoreError
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import Claim, InboxItem, MemoryStore, Status, Store
from turnwright.tools import Rate, Tool, ToolContext
from turnwright_states import CallStatus, Limits, Outcome
from turnwright_states.facts import CallSettled, CallStarted, Fact, ModelReplied
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore
from turnwright_testing.faults.wrapper import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")
READER = Agent(name="Reader", budget=100)


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


async def test_call_that_asks_or_waits_shares_the_append_of_the_reply() -> None:
    together = ["model_replied", "call_started", "call_started"]
    assert (await appends(("note", {}), ("limited", {})))[0] == together
    assert (await appends(("note", {}), ("erase", {})))[0] == together[:2]
    assert (await appends(("note", {}), ("alone", {})))[:2] == [together[:2], ["call_started"]]


async def test_calls_up_to_the_parallel_limit_start_with_the_reply() -> None:
    calls = [("note", {"n": n}) for n in range(3)]
    together = ["model_replied", "call_started", "call_started"]
    assert (await appends(*calls, max_parallel_tools=2))[:2] == [together, ["call_started"]]


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


async def append_step(called_tool: Tool, calls: int = 2, hooks: Sequence[HooksBase[None]] = ()) -> list[list[str]]:
    """Return the appends of a turn with one step of so many calls, without that of its last reply."""
    store = Recording(MemoryStore())
    model = ScriptedModel(asks_for(*[(called_tool.name, {"place": place}) for place in range(calls)]), "Done.")
    async with Engine(model=model, tools=[called_tool], hooks=hooks, store=store) as engine:
        turn = await engine.run(READER, "hi")
        journal = await store.facts(turn.id)
    assert turn.outcome is Outcome.FINISHED
    settled = [fact for _, fact in journal if isinstance(fact, CallSettled)]
    assert [fact.status for fact in settled] == [CallStatus.OK] * calls
    assert replay(journal).check.verdict is Verdict.HOLDS
    return [[fact.kind for fact in facts] for facts in store.appended_facts if facts][:-1]


@tool
async def look(place: int) -> str:
    """Look at a place."""
    return f"at {place}"


@tool
async def gaze(place: int) -> str:
    """Look at a place, in another round of the event loop."""
    await anyio.lowlevel.checkpoint()
    return f"at {place}"


@pytest.mark.parametrize("called_tool", [look, gaze])
@pytest.mark.parametrize(("calls", "appends"), [(1, 2), (2, 2), (8, 2), (9, 3), (16, 3), (32, 5)])
async def test_step_with_more_calls_than_places_appends_by_the_round(
    calls: int, appends: int, called_tool: Tool
) -> None:
    """Calls start with the reply, or with the results of the calls whose places they take."""
    assert len(await append_step(called_tool, calls)) == appends


@before_tool
async def allow(_: ToolContext, call: CallView) -> None:
    """Decide nothing."""


def never(place: int) -> bool:
    """Need no approval."""
    return place < 0


async def never_async(place: int) -> bool:
    """Need no approval."""
    return place < 0


@tool(needs_approval=never)
async def ask_sync(place: int) -> str:
    """Look at a place."""
    return f"at {place}"


@tool(needs_approval=never_async)
async def ask_async(place: int) -> str:
    """Look at a place."""
    return f"at {place}"


@tool(rate=Rate(100, 60))
async def rated(place: int) -> str:
    """Look at a place."""
    return f"at {place}"


@tool(concurrency=20)
async def few_at_once(place: int) -> str:
    """Look at a place."""
    return f"at {place}"


@tool(needs_approval=never, rate=Rate(100, 60), concurrency=20)
async def all_of_these(place: int) -> str:
    """Look at a place."""
    return f"at {place}"


@pytest.mark.parametrize("calls", [1, 2, 8])
@pytest.mark.parametrize(
    ("called_tool", "hooks"),
    [
        (look, [allow]),
        (look, [allow, allow, allow]),
        (ask_sync, []),
        (ask_async, []),
        (rated, []),
        (few_at_once, []),
        (all_of_these, [allow]),
    ],
    ids=["hook", "hooks", "check", "async check", "rate", "concurrency", "all"],
)
async def test_check_that_decides_without_waiting_costs_no_append(
    called_tool: Tool, hooks: Sequence[HooksBase[None]], calls: int
) -> None:
    """The reply, the starts and the decisions are one append, and the results another."""
    reply, results = await append_step(called_tool, calls, hooks)
    assert reply == ["model_replied", *["call_started"] * calls]
    assert results[:calls] == ["call_settled"] * calls


async def test_checks_of_more_calls_than_places_cost_no_append() -> None:
    """A call is asked about when it has its place, with the results that gave it the place still to be journaled."""
    assert len(await append_step(look, 9, [allow])) == 3
    assert len(await append_step(few_at_once, 16)) == 3


async def test_reply_is_journaled_while_a_check_waits() -> None:
    """A check that waits for something loses no reply, and the calls beside it start."""
    kinds: list[list[str]] = []

    @before_tool
    async def wait_for_reply(_: ToolContext, call: CallView) -> None:
        if call.arguments["place"]:
            await anyio.sleep(10)
            kinds.append([fact.kind for facts in store.appended_facts for fact in facts])

    store = Recording(MemoryStore())
    model = ScriptedModel(asks_for(("look", {"place": 0}), ("look", {"place": 1})), "Done.")
    async with Engine(model=model, tools=[look], hooks=[wait_for_reply], store=store) as engine:
        await engine.run(AGENT, "hi")
    assert kinds == [["model_replied", "call_started", "call_settled"]]


def visit_then_end(request: ModelRequest) -> ModelResponse | str:
    """Ask for 20 calls, then answer."""
    if any(message.calls for message in request.messages):
        return "Done."
    return asks_for(*[("visit", {"place": place}) for place in range(20)])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("hooks", [[], [allow]], ids=["plain", "hook"])
async def test_crash_at_any_append_of_a_wide_step_loses_no_call(
    hooks: Sequence[HooksBase[None]], *, after: bool
) -> None:
    """Each call of 20 has its result, wherever the process dies."""

    @tool(idempotent=True)
    async def visit(place: int) -> str:
        return f"at {place}"

    for at in range(1, 5):
        memory, model = MemoryStore(), ScriptedModel(visit_then_end, repeat=True)
        with suppress(StoreError):
            dying = FaultyStore(memory, at=at, after=after)
            await Engine(model=model, tools=[visit], hooks=hooks, store=dying).run(READER, "hi")
        await memory.aclose()
        (row,) = await memory.turns()
        turn = await Engine(model=model, tools=[visit], hooks=hooks, store=memory).resume(row.id)
        journal = await memory.facts(row.id)
        assert turn.outcome is Outcome.FINISHED
        assert sum(isinstance(fact, CallSettled) and fact.status is CallStatus.OK for _, fact in journal) == 20
        assert replay(journal).check.verdict is Verdict.HOLDS
