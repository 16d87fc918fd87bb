"""The stream of a running turn: its id, its text, its result, and the events of its sub-agents."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import anyio
import pytest
from pydantic import BaseModel

from turnwright import Agent, ConfigError, Engine, Outcome, agent_tool, tool
from turnwright.model import ModelError, ModelRequest, ModelResponse, ScriptedModel, TextDelta, asks_for
from turnwright.runtime import Local
from turnwright.store import MemoryStore
from turnwright.transcript.events import (
    FactEvent,
    StreamEvent,
    TextDeltaEvent,
    TurnEndedEvent,
    TurnPausedEvent,
)
from turnwright_states import Cause
from turnwright_states.facts import CallSettled, CallStarted

pytestmark = pytest.mark.anyio

CLERK = Agent(name="Clerk")
READER = Agent(name="Reader", description="Reads.", mode="subagent", tools=("look",))
LEAD = Agent(name="Lead")
BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


class Invoice(BaseModel):
    total: float


BILLER = Agent(name="Biller", output_type=Invoice)


@tool
async def look() -> str:
    """Look."""
    return "nothing"


@tool(needs_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


def asks_and_says() -> ScriptedModel:
    call = asks_for(("look", {}))
    return ScriptedModel(ModelResponse(text="I look.", calls=call.calls), "Nothing there.")


def bills() -> ScriptedModel:
    return ScriptedModel(asks_for(("final_result", {"total": 5})), repeat=True)


@BOTH
async def test_stream_has_an_id_and_a_result_after_the_events() -> None:
    async with Engine(model=asks_and_says(), tools=[look]) as engine, engine.stream(CLERK, "hi") as events:
        with pytest.raises(ConfigError, match="no result yet: read its events to the end"):
            _ = events.result
        turns = {event.turn async for event in events}
        assert turns == {events.turn_id}
        assert events.result.text == "Nothing there."
        assert events.result == await engine.get(events.turn_id)


async def test_last_event_suffices_for_a_result() -> None:
    """A reader that stops at it has the result after the block."""
    async with Engine(model=asks_and_says(), tools=[look]) as engine:
        async with engine.stream(CLERK, "hi") as events:
            async for event in events:
                if event.type == "turn_ended":
                    break
        assert events.result.outcome is Outcome.FINISHED


async def test_stream_left_early_has_no_result() -> None:
    async with Engine(model=asks_and_says(), tools=[look]) as engine:
        async with engine.stream(CLERK, "hi") as events:
            await anext(events)
        with pytest.raises(ConfigError, match=events.turn_id):
            _ = events.result


@BOTH
async def test_text_has_the_deltas_of_all_replies() -> None:
    async with Engine(model=asks_and_says(), tools=[look]) as engine:
        async with engine.stream(CLERK, "hi") as stream:
            parts = [part async for part in stream.text()]
        assert parts == ["I", " look.", "Nothing", " there."]
        assert stream.result.text == "Nothing there."


async def test_text_may_be_abandoned_for_the_remaining_events() -> None:
    async with Engine(model=asks_and_says(), tools=[look]) as engine, engine.stream(CLERK, "hi") as stream:
        async for part in stream.text():
            assert part == "I"
            break
        assert [event async for event in stream][-1].type == "turn_ended"
        assert stream.result.text == "Nothing there."


async def test_text_equals_the_fixed_summary_of_an_empty_conclusion() -> None:
    """No reply had it: the concluding call returned nothing."""
    model = ScriptedModel(asks_for(("look", {})), "", "")
    async with Engine(model=model, tools=[look]) as engine, engine.stream(Agent(name="A", steps=1), "hi") as stream:
        text = "".join([part async for part in stream.text()])
        assert text == stream.result.text
        assert text


async def test_text_has_the_conclusion_once() -> None:
    model = ScriptedModel(asks_for(("look", {})), "I looked once.")
    async with Engine(model=model, tools=[look]) as engine, engine.stream(Agent(name="A", steps=1), "hi") as stream:
        assert "".join([part async for part in stream.text()]) == "I looked once." == stream.result.text


class Breaking:
    """A model whose first stream breaks off."""

    name = "breaking"

    def __init__(self) -> None:
        self.broken = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        """Break off once, then reply."""
        async for item in ScriptedModel("All is well.").stream(request):
            if isinstance(item, ModelResponse) and not self.broken:
                self.broken = True
                raise ModelError("cut off", cause=Cause.CONNECTION)
            if isinstance(item, TextDelta | ModelResponse):
                yield item


async def test_text_of_a_retried_reply_begins_again() -> None:
    async with Engine(model=Breaking()) as engine, engine.stream(CLERK, "hi") as stream:
        text = "".join([part async for part in stream.text()])
        assert text == "All is well." * 2
        assert stream.result.text == "All is well."


async def test_text_of_a_paused_turn_continues_after_the_answer() -> None:
    async with Engine(model=ScriptedModel(asks_for(("pay", {})), "Paid."), tools=[pay]) as engine:
        async with engine.stream(CLERK, "pay") as stream:
            assert [part async for part in stream.text()] == []
        interrupt = stream.result.interrupts[0]
        async with engine.stream_resume(stream.turn_id, {interrupt.id: True}) as resumed:
            assert [part async for part in resumed.text()] == ["Paid."]
            assert (resumed.turn_id, resumed.result.text) == (stream.turn_id, "Paid.")


async def test_text_of_a_runtime_consists_of_whole_replies() -> None:
    """The worker does not stream, and the result comes from the journal."""
    store = MemoryStore()
    client = Engine(store=store, runtime=Local(every=0.01, embedded=False), models=lambda _: asks_and_says())
    worker = Engine(model=asks_and_says(), tools=[look], store=store, runtime=Local(every=0.01))
    agent = Agent(name="Clerk", model="scripted", tools=())
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run_worker)
            async with client.stream(agent, "hi") as stream:
                parts = [part async for part in stream.text()]
                assert parts[-1] == stream.result.text
            group.cancel_scope.cancel()


async def test_driving_error_is_raised_by_the_block() -> None:
    with pytest.raises(ConfigError, match="no_such_tool"):
        async with Engine(model=ScriptedModel()).stream(Agent(name="A", tools=("no_such_tool",)), "hi"):
            pytest.fail("it began")


async def test_results_have_the_output_type_of_the_agent() -> None:
    async with Engine(model=bills(), agents=[BILLER]) as engine:
        async with engine.stream(BILLER, "x") as events:
            kinds = [event.type async for event in events]
        assert kinds[-1] == "turn_ended"
        turn = events.result
        assert turn.require_output() == Invoice(total=5)
        assert (await engine.get(turn.id)).output == Invoice(total=5)
        assert (await engine.get(turn.id)).require_output() == Invoice(total=5)
        assert (await engine.get(turn.id, agent=BILLER)).require_output().total == 5


async def test_recovered_turn_has_the_output_type_of_the_agent() -> None:
    store = MemoryStore()
    async with Engine(model=bills(), agents=[BILLER], store=store) as engine:
        await engine.submit(BILLER, "x")
        (turn,) = await engine.recover()
        assert turn.output == Invoice(total=5)


async def test_get_accepts_an_unregistered_agent() -> None:
    async with Engine(model=bills()) as engine:
        turn = await engine.run(BILLER, "x")
        assert (await engine.get(turn.id)).output == {"total": 5}
        assert (await engine.get(turn.id, agent=BILLER)).output == Invoice(total=5)
        with pytest.raises(ConfigError, match="belongs to agent 'Biller', not to 'Clerk'"):
            await engine.get(turn.id, agent=CLERK)


class Bill(BaseModel):
    due: str


async def test_outdated_answer_is_json_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A list of turns is shown after the agent's type has changed."""
    store, changed = MemoryStore(), Agent(name="Biller", output_type=Bill)
    turn = await Engine(model=bills(), store=store).run(BILLER, "x")
    engine = Engine(agents=[changed], store=store)
    assert (await engine.get(turn.id)).output == {"total": 5}
    assert "it is returned as JSON" in caplog.text
    with pytest.raises(ConfigError, match="does not fit"):
        await engine.get(turn.id, agent=changed)


def test_sync_streams_have_the_same_attributes() -> None:
    with Engine(model=asks_and_says(), tools=[look]) as engine, engine.stream_sync(CLERK, "hi") as stream:
        assert list(stream.text()) == ["I", " look.", "Nothing", " there."]
        assert stream.result.text == "Nothing there."
        assert engine.get_sync(stream.turn_id) == stream.result
    lines = ScriptedModel(asks_for(("pay", {})), "Paid.")
    with Engine(model=lines, tools=[pay]) as engine:
        with engine.stream_sync(CLERK, "pay") as events:
            for event in events:
                if event.type == "paused":
                    break
        interrupt = events.result.interrupts[0]
        with engine.stream_resume_sync(events.turn_id, {interrupt.id: True}) as resumed:
            assert "".join(resumed.text()) == "Paid."
        assert resumed.result.text == "Paid."


def test_sync_stream_has_no_result_before_the_end() -> None:
    with Engine(model=asks_and_says(), tools=[look]) as engine, engine.stream_sync(CLERK, "hi") as stream:
        next(stream)
        with pytest.raises(ConfigError, match="no result yet"):
            _ = stream.result


def by_agent(request: ModelRequest) -> ModelResponse | str:
    """Play the lead, which calls the reader twice at once, and the reader."""
    if "reader" not in {tool.name for tool in request.tools}:
        return "Read." if request.messages[-1].role == "tool" else asks_for(("look", {}))
    if request.messages[-1].role == "tool":
        return "All is read."
    return asks_for(("reader", {"prompt": "a"}), ("reader", {"prompt": "b"}))


def team(store: MemoryStore | None = None, *, embedded: bool = True) -> Engine:
    return Engine(
        model=ScriptedModel(by_agent, repeat=True),
        tools=[look, agent_tool(READER, name="reader")],
        store=store or MemoryStore(),
        runtime=Local(every=0.01, embedded=embedded),
        poll_interval=0.01,
    )


@dataclass
class Family:
    """The events of a turn and its sub-agents' turns."""

    turn: str
    events: Sequence[StreamEvent]

    def of(self, turn: str) -> list[StreamEvent]:
        return [event for event in self.events if event.turn == turn and not isinstance(event, TextDeltaEvent)]

    async def check(self, engine: Engine) -> None:
        """Each fact came once and in order; those of a sub-agent between the start and the result of its call."""
        below = [row.id for row in await engine.turns() if row.id != self.turn]
        assert len(below) == 2
        assert {event.turn for event in self.events} == {self.turn, *below}
        for turn in (self.turn, *below):
            facts = await engine.store.facts(turn)
            assert [(event.seq, event.type) for event in self.of(turn)] == [(seq, fact.kind) for seq, fact in facts]
        for turn in below:
            call = turn.partition(":")[2]
            places = [place for place, event in enumerate(self.events) if event.turn == turn]
            (started,) = [
                place for place, event in enumerate(self.events) if is_about(event, CallStarted, self.turn, call)
            ]
            (settled,) = [
                place for place, event in enumerate(self.events) if is_about(event, CallSettled, self.turn, call)
            ]
            assert started < min(places)
            assert max(places) < settled
        last = self.events[-1]
        assert isinstance(last, TurnEndedEvent)
        assert last.turn == self.turn


def is_about(event: StreamEvent, kind: type[CallStarted | CallSettled], turn: str, call: str) -> bool:
    if not isinstance(event, FactEvent) or not isinstance(event.fact, kind):
        return False
    return (event.turn, event.fact.call) == (turn, call)


@BOTH
async def test_sub_agents_are_in_the_stream_on_request() -> None:
    async with team() as engine:
        async with engine.stream(LEAD, "Read.", subagents=True) as events:
            family = Family(events.turn_id, [event async for event in events])
        await family.check(engine)
        assert {event.turn for event in family.events if isinstance(event, TextDeltaEvent)} > {events.turn_id}
        async with engine.stream(LEAD, "Read.") as events:
            assert {event.turn async for event in events} == {events.turn_id}


async def test_text_excludes_sub_agents() -> None:
    async with team() as engine, engine.stream(LEAD, "Read.", subagents=True) as stream:
        assert "".join([part async for part in stream.text()]) == "All is read."


@pytest.mark.parametrize("attached", [False, True])
async def test_remote_sub_agent_events_are_read_from_journals(attached: bool) -> None:
    """A worker drives the turn, and its follower reads three journals."""
    store = MemoryStore()
    client, worker = team(store, embedded=False), team(store)
    family = Family("", ())
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run_worker)
            if attached:
                turn = await client.submit(LEAD, "Read.")
                family = Family(turn, [event async for event in client.events(turn, wait=True, subagents=True)])
            else:
                async with client.stream(LEAD, "Read.", subagents=True) as events:
                    family = Family(events.turn_id, [event async for event in events])
            group.cancel_scope.cancel()
    await family.check(client)


async def test_sub_agents_of_an_ended_turn_are_read_in_order() -> None:
    async with team() as engine:
        turn = await engine.run(LEAD, "Read.")
        family = Family(turn.id, [event async for event in engine.events(turn.id, subagents=True)])
        await family.check(engine)
        handle = engine.attach(turn.id, LEAD)
        assert [event async for event in handle.events(subagents=True)] == family.events
        (settled,) = [
            event.seq for event in family.events if is_about(event, CallSettled, turn.id, turn_calls(family)[1])
        ]
        later = [event async for event in engine.events(turn.id, after=settled, subagents=True)]
        assert {event.turn for event in later} == {turn.id}


def turn_calls(family: Family) -> list[str]:
    """The calls of sub-agents, in the order of their results."""
    facts = [event.fact for event in family.events if isinstance(event, FactEvent) and event.turn == family.turn]
    return [fact.call for fact in facts if isinstance(fact, CallSettled)]


async def test_resumed_stream_contains_only_new_sub_agent_events() -> None:
    """Its sub-agent's question was answered: its first events are not repeated, and both turns end."""

    def play(request: ModelRequest) -> ModelResponse | str:
        if request.messages[-1].role == "tool":
            return "Done."
        is_lead = "payer" in {tool.name for tool in request.tools}
        return asks_for(("payer", {"prompt": "a"})) if is_lead else asks_for(("pay", {}))

    payer = agent_tool(Agent(name="Payer", description="Pays.", mode="subagent", tools=("pay",)), name="payer")
    async with Engine(model=ScriptedModel(play, repeat=True), tools=[pay, payer]) as engine:
        async with engine.stream(LEAD, "Pay.", subagents=True) as events:
            before = [event async for event in events]
        assert isinstance(before[-1], TurnPausedEvent)
        turns = {event.turn for event in before}
        assert {event.turn for event in before if isinstance(event, TurnPausedEvent)} == turns
        interrupt = events.result.interrupts[0]
        async with engine.stream_resume(events.turn_id, {interrupt.id: True}, subagents=True) as resumed:
            after = [event async for event in resumed]
        family = Family(events.turn_id, [*before, *after])
        for turn in turns:
            family_events = family.of(turn)
            facts = await engine.store.facts(turn)
            assert [(event.seq, event.type) for event in family_events] == [(seq, fact.kind) for seq, fact in facts]
        assert resumed.result.outcome is Outcome.FINISHED
