"""Results that come in one round of the event loop share one append, and nothing follows from them before it."""

import asyncio
from collections.abc import Mapping, Sequence

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from turnwright import Agent, Engine, StoreError, TurnResult, tool
from turnwright.driver.subagents import agent_tool
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import Claim, InboxItem, MemoryStore, Status, Store
from turnwright.tools import Tool, ToolContext
from turnwright.transcript.events import FactEvent
from turnwright_states import CallStatus, EndReason, Limits, Outcome
from turnwright_states.facts import CallSettled, CallStarted, CallWaiting, Fact, MessageAdded, ModelReplied
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore
from turnwright_testing.faults.wrapper import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")


class Recording(StoreWrapper):
    """Keeps the kinds of the facts of each append, and calls `during` before it writes."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.appended_kinds: list[list[str]] = []

    async def during(self, facts: Sequence[Fact]) -> None:
        """Do nothing."""

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        about = CallSettled | CallWaiting | ModelReplied | MessageAdded
        self.appended_kinds.append([fact.kind for fact in facts if isinstance(fact, about)])
        await self.during(facts)
        return await super().append(claim, facts, status, consumed)


RAN: list[str] = []


@tool
async def note(n: int = 0) -> str:
    RAN.append(f"note {n}")
    return f"noted {n}"


@tool(idempotent=True)
async def again(n: int = 0) -> str:
    RAN.append(f"again {n}")
    return f"again {n}"


@tool
async def slow(seconds: float) -> str:
    await anyio.sleep(seconds)
    return f"slept {seconds}"


@tool
async def stuck() -> str:
    await anyio.sleep_forever()
    return "never"


@tool
async def asking(context: ToolContext) -> str:
    return context.ask("Shall I?")


@tool(return_direct=True)
async def answer() -> str:
    return "the answer"


TOOLS: list[Tool] = [note, again, slow, stuck, asking, answer]
Asked = tuple[str, Mapping[str, JsonValue]]


def build_engine(store: Store, *calls: Asked, limits: Limits | None = None) -> Engine:
    """An engine whose model asks for these calls, and then answers."""
    RAN.clear()
    model = ScriptedModel(asks_for(*calls), "Done.")
    return Engine(model=model, tools=TOOLS, store=store, limits=limits, cancel_grace=0.5, clock=anyio.current_time)


async def settled(store: Store, turn: str) -> list[tuple[CallStatus, str]]:
    """The results in the journal, which must replay."""
    facts = await store.facts(turn)
    assert replay(facts).check.verdict is Verdict.HOLDS
    return [(fact.status, fact.result) for _, fact in facts if isinstance(fact, CallSettled)]


async def test_results_of_the_same_loop_round_share_an_append() -> None:
    store = Recording(MemoryStore())
    turn = await build_engine(store, ("note", {"n": 1}), ("note", {"n": 2}), ("again", {})).run(AGENT, "hi")
    assert store.appended_kinds == [["model_replied"], ["call_settled"] * 3, ["model_replied"]]
    assert [text for _, text in await settled(store, turn.id)] == ["noted 1", "noted 2", "again 0"]


async def test_result_waits_for_no_running_call() -> None:
    store = Recording(MemoryStore())
    await build_engine(store, ("note", {}), ("slow", {"seconds": 5}), ("note", {"n": 2}), ("slow", {"seconds": 5})).run(
        AGENT, "hi"
    )
    assert store.appended_kinds[1:-1] == [["call_settled"] * 2, ["call_settled"] * 2]


async def test_question_is_appended_with_the_result_beside() -> None:
    store = Recording(MemoryStore())
    engine = build_engine(store, ("note", {}), ("asking", {}))
    turn = await engine.run(AGENT, "hi")
    assert turn.paused
    assert store.appended_kinds[1:] == [["call_settled", "call_waiting"]]
    await engine.resume(turn.id, {turn.interrupts[0].id: "yes"})
    assert [text for _, text in await settled(store, turn.id)] == ["noted 0", "yes"]


class Listening(Recording):
    """Notes which events of results its follower has when results are written."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.heard: list[str] = []
        self.before: list[list[str]] = []

    async def during(self, facts: Sequence[Fact]) -> None:
        """Let the follower receive what was published."""
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        if any(isinstance(fact, CallSettled) for fact in facts):
            self.before.append(list(self.heard))


async def test_event_of_a_result_follows_the_append() -> None:
    store = Listening(MemoryStore())
    async with build_engine(store, ("note", {}), ("slow", {"seconds": 5}), ("note", {})).stream(AGENT, "hi") as events:
        async for event in events:
            if isinstance(event, FactEvent) and isinstance(event.fact, CallSettled):
                store.heard.append(event.fact.call)
    assert store.before == [[], ["call00001", "call00003"]]
    assert store.heard == ["call00001", "call00003", "call00002"]


async def test_failed_append_counts_no_result_and_recovery_sees_started_calls() -> None:
    store = MemoryStore()
    dying = FaultyStore(store, at=CallSettled)
    with pytest.raises(StoreError):
        await build_engine(dying, ("note", {"n": 1}), ("again", {"n": 2}), ("note", {"n": 3})).run(AGENT, "hi")
    assert RAN == ["note 1", "again 2", "note 3"]
    await store.aclose()
    (row,) = await store.turns()
    assert await settled(store, row.id) == []
    assert [fact.call for _, fact in await store.facts(row.id) if isinstance(fact, CallStarted)] == [
        f"call0000{n}" for n in (1, 2, 3)
    ]
    turn = await Engine(model=ScriptedModel("Done."), tools=TOOLS, store=store).resume(row.id)
    assert (turn.outcome, RAN) == (Outcome.FINISHED, ["note 1", "again 2", "note 3", "again 2"])
    assert [status for status, _ in await settled(store, row.id)] == [
        CallStatus.UNKNOWN,
        CallStatus.OK,
        CallStatus.UNKNOWN,
    ]


async def test_failed_append_of_some_results_cancels_the_running_calls() -> None:
    store = MemoryStore()
    with anyio.fail_after(60), pytest.raises(StoreError):
        await build_engine(FaultyStore(store, at=CallSettled), ("note", {}), ("stuck", {})).run(AGENT, "hi")


@tool
async def stop(n: int = 0) -> str:
    """Abort the turn that runs."""
    (row,) = await STOPPED[0].store.turns()
    await STOPPED[0].abort(row.id)
    return f"stopped {n}"


STOPPED: list[Engine] = []


@pytest.mark.parametrize("wrapped", [False, True], ids=["at once", "suspending"])
async def test_results_in_the_round_of_an_abort_are_kept(wrapped: bool) -> None:
    memory = MemoryStore()
    calls = asks_for(("note", {}), ("stop", {}), ("stuck", {}), ("note", {}))
    STOPPED[:] = [
        Engine(
            model=ScriptedModel(calls),
            tools=[*TOOLS, stop],
            store=Recording(memory) if wrapped else memory,
            cancel_grace=0.5,
        )
    ]
    turn = await STOPPED[0].run(AGENT, "hi")
    assert turn.outcome is Outcome.ABORTED
    results = await settled(memory, turn.id)
    assert [status for status, _ in results] == [CallStatus.OK] * 3 + [CallStatus.ABORTED]


@pytest.mark.parametrize("wrapped", [False, True], ids=["at once", "suspending"])
async def test_result_at_the_deadline_is_kept(wrapped: bool) -> None:
    memory = MemoryStore()
    store = Recording(memory) if wrapped else memory
    engine = build_engine(
        store, ("slow", {"seconds": 9}), ("slow", {"seconds": 10}), ("stuck", {}), limits=Limits(seconds=10)
    )
    turn = await engine.run(AGENT, "hi")
    assert turn.reason is EndReason.DEADLINE
    results = await settled(memory, turn.id)
    assert results[0] == (CallStatus.OK, "slept 9.0")
    assert [status for status, _ in results[1:]] in (
        [CallStatus.OK, CallStatus.ABORTED],
        [CallStatus.ABORTED, CallStatus.ABORTED],
    )


class Lingering(Recording):
    """Its appends of results take a second; `writing` is set when the first begins."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.writing = anyio.Event()

    async def during(self, facts: Sequence[Fact]) -> None:
        """Take a second."""
        if any(isinstance(fact, CallSettled) for fact in facts):
            self.writing.set()
            await anyio.sleep(1)


@pytest.mark.parametrize("last", [("note", {"n": 2}), ("stuck", {})], ids=["all", "some"])
async def test_driver_canceled_twice_still_appends_the_results(last: Asked) -> None:
    store = Lingering(MemoryStore())
    running = asyncio.ensure_future(build_engine(store, ("note", {}), ("note", {"n": 1}), last).run(AGENT, "hi"))
    await store.writing.wait()
    running.cancel()
    await anyio.sleep(0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (row,) = await store.turns()
    assert [text for _, text in await settled(store, row.id)][:2] == ["noted 0", "noted 1"]


async def test_results_during_an_append_share_the_next_append() -> None:
    store = Lingering(MemoryStore())
    calls = [("slow", {"seconds": seconds}) for seconds in (1, 1.2, 1.4, 9)]
    await build_engine(store, *calls).run(AGENT, "hi")
    assert store.appended_kinds[1:-1] == [["call_settled"], ["call_settled"] * 2, ["call_settled"]]


class Steered(Recording):
    """Posts a message with the reply that has calls."""

    async def during(self, facts: Sequence[Fact]) -> None:
        """Post it as another process would."""
        if any(isinstance(fact, CallStarted) for fact in facts):
            (row,) = await self.inner.turns()
            await Engine(store=self.inner).steer(row.id, "mind the cat")


@pytest.mark.parametrize("steps", [1, 9], ids=["may stop", "continues"])
async def test_message_precedes_possibly_final_results(steps: int) -> None:
    store = Steered(MemoryStore())
    await build_engine(store, ("note", {"n": 1}), ("note", {"n": 2}), limits=Limits(steps=steps)).run(AGENT, "hi")
    expected = [["message_added"], ["call_settled", "call_settled"]]
    assert store.appended_kinds[1:-1] == (expected if steps == 1 else expected[::-1])


@pytest.mark.parametrize("calls", [("answer", "note"), ("note", "answer")])
async def test_a_message_beside_the_answer_of_a_call_is_undelivered(calls: tuple[str, str]) -> None:
    store = Steered(MemoryStore())
    turn: TurnResult = await build_engine(store, *[(name, {}) for name in calls]).run(AGENT, "hi")
    assert (turn.text, turn.undelivered) == ("the answer", ("mind the cat",))
    assert store.appended_kinds[1:] == [["call_settled", "call_settled"]]
    assert len(await settled(store, turn.id)) == 2


async def test_sub_agents_ending_together_return_their_usage() -> None:
    store = Recording(MemoryStore())
    helper = agent_tool(Agent(name="Helper", description="Helps."))
    model = ScriptedModel(
        asks_for((helper.name, {"prompt": "a"}), (helper.name, {"prompt": "b"})), "One.", "Two.", "Done."
    )
    turn = await Engine(model=model, tools=[helper], store=store).run(AGENT, "hi")
    facts = [fact for _, fact in await store.facts(turn.id) if isinstance(fact, CallSettled)]
    assert [fact.spent is not None for fact in facts] == [True, True]
    assert len(await settled(store, turn.id)) == 2
