"""A segment of a turn: the waits of its retries, the prices of its models, and what functions of the app see of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest
from msgspec.structs import replace

from turnwright import Agent, Compact, Engine, Price, TurnContext, tool
from turnwright.driver.hooks.hooks import before_model
from turnwright.message import Message
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright.model.retry import Backoff
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import Claim, InboxItem, InboxKind, MemoryStore, Status, Store
from turnwright.transcript.events import ResponseRestartedEvent, TurnEvent
from turnwright_states import Cause, Limits, Outcome, Usage
from turnwright_states import facts as f
from turnwright_testing.faults.wrapper import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Helper")


@dataclass(frozen=True)
class Recorded(Backoff):
    """It waits for three seconds, and notes the attempts that failed."""

    attempts: list[int] = field(default_factory=list)

    def wait(self, attempt: int, retry_after: float | None = None) -> float:
        """Note the attempt."""
        self.attempts.append(attempt)
        return super().wait(attempt, retry_after)


@tool
def look() -> str:
    return "seen"


async def test_failed_attempt_records_number_time_wait_and_usage() -> None:
    """And the next step does not wait."""

    def clock() -> float:
        return 100 + anyio.current_time()

    async def fails(_: ModelRequest) -> ModelResponse:
        await anyio.sleep(2)
        cut = ModelResponse(usage=Usage(input_tokens=7))
        raise ModelError("busy", cause=Cause.OVERLOADED, retry_after=3, partial=cut)

    store, backoff = MemoryStore(), Recorded(initial=0)
    model = ScriptedModel(fails, fails, asks_for(("look", {})), "Done.")
    engine = Engine(model=model, tools=[look], store=store, backoff=backoff, clock=clock)
    turn = await engine.run(AGENT, "Go.")
    facts = [fact for _, fact in await store.facts(turn.id)]
    failed = [fact for fact in facts if isinstance(fact, f.AttemptFailed)]
    assert backoff.attempts == [1, 2]
    assert [(fact.message, fact.wait, fact.usage) for fact in failed] == [("busy", 3, Usage(input_tokens=7))] * 2
    assert [fact.elapsed for fact in failed] == [pytest.approx(2, abs=0.5), pytest.approx(7, abs=0.5)]
    assert facts[-1].elapsed == pytest.approx(10, abs=0.5)


async def test_summary_has_the_price_of_the_writing_model() -> None:
    spent = ModelResponse(text="Said.", usage=Usage(input_tokens=10))
    models = {"main": ScriptedModel(spent, spent, name="main"), "short": ScriptedModel(spent, name="short")}
    prices = {"main": Price(input=1_000_000, output=0), "short": Price(input=5_000_000, output=0)}
    compact = Compact(at_tokens=1, keep_steps=0, max_compactions=1, model="short")
    agent = Agent(name="Helper", model="main", compaction=compact)
    engine = Engine(models=models.__getitem__, prices=prices, store=MemoryStore())
    await engine.run(agent.model_copy(update={"compaction": None}), "First.", session="one")
    turn = await engine.run(agent, "Second.", session="one")
    assert turn.usage.cost == 60


async def test_a_hook_sees_the_turn_and_no_dependencies_where_there_are_none() -> None:
    contexts = []

    @before_model
    async def looks(ctx: TurnContext[None], _: ModelRequest) -> None:
        contexts.append(ctx)

    agent = AGENT.model_copy(update={"hooks": (looks,)})
    model = ScriptedModel(replace(asks_for(("look", {})), usage=Usage(input_tokens=7)), "Done.")
    turn = await Engine(model=model, tools=[look]).run(agent, "Go.", session="one", metadata={"for": "you"})
    assert {(ctx.turn_id, ctx.session, ctx.agent, ctx.deps) for ctx in contexts} == {(turn.id, "one", "Helper", None)}
    assert [(ctx.step, ctx.usage, dict(ctx.metadata)) for ctx in contexts] == [
        (1, Usage(), {"for": "you"}),
        (2, Usage(input_tokens=7), {"for": "you"}),
    ]


async def test_attempt_without_text_is_not_withdrawn() -> None:
    async def fails(_: ModelRequest) -> ModelResponse:
        raise ModelError("busy", cause=Cause.OVERLOADED)

    heard: list[TurnEvent] = []
    model = ScriptedModel(fails, asks_for(("look", {})), "Done.")
    await Engine(model=model, tools=[look], on_event=[heard.append]).run(AGENT, "Go.")
    assert heard
    assert not any(isinstance(event, ResponseRestartedEvent) for event in heard)


async def test_withdrawal_of_a_text_names_the_turn_and_the_last_fact() -> None:
    heard: list[TurnEvent] = []
    turn = await Engine(model=ScriptedModel(" ", "Done."), on_event=[heard.append]).run(AGENT, "Go.")
    (withdrawn,) = [event for event in heard if isinstance(event, ResponseRestartedEvent)]
    assert (withdrawn.turn, withdrawn.seq) == (turn.id, 3)


async def test_agent_without_compaction_keeps_the_request_after_an_overflow() -> None:
    """As where its limits allow a compaction, and its agent has none."""

    async def overflows(_: ModelRequest) -> ModelResponse:
        raise ModelError("too long", cause=Cause.CONTEXT_OVERFLOW)

    store, model = MemoryStore(), ScriptedModel(overflows, "Done.")
    turn = await Engine(model=model, store=store, limits=Limits(max_compactions=1)).run(AGENT, "Go.")
    failed = [fact for _, fact in await store.facts(turn.id) if isinstance(fact, f.AttemptFailed)]
    refused = (Cause.REJECTED, "the agent has no `compaction` here")
    assert [(fact.cause, fact.message) for fact in failed] == [(Cause.CONTEXT_OVERFLOW, "too long"), refused]
    assert turn.text == "Done."
    assert model.requests[0].messages == model.requests[1].messages


class Interrupted(StoreWrapper):
    """A message comes with the append of a fact of this kind."""

    def __init__(self, inner: Store, kind: type[f.Fact]) -> None:
        super().__init__(inner)
        self.kind = kind

    async def append(
        self, claim: Claim, facts: Sequence[f.Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        if any(isinstance(fact, self.kind) for fact in facts):
            await self.post(InboxItem(claim.turn, "steer:0", InboxKind.STEER, '{"text":"And quickly."}'))
        return await super().append(claim, facts, status, consumed)


@tool(needs_approval=True)
def erase() -> str:
    return "erased"


@pytest.mark.parametrize(
    ("kind", "line", "undelivered"),
    [
        (f.TurnEnded, "Done.", ("And quickly.",)),
        (f.Paused, asks_for(("erase", {})), ()),
        (f.CallSettled, asks_for(("look", {})), ()),
    ],
)
async def test_message_with_the_last_append_is_undelivered_only_at_the_end(
    kind: type[f.Fact], line: Line, undelivered: tuple[str, ...]
) -> None:
    engine = Engine(model=ScriptedModel(line, "Done."), tools=[look, erase], store=Interrupted(MemoryStore(), kind))
    turn = await engine.run(AGENT, "Go.")
    assert turn.undelivered == undelivered


async def forgets(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role != "tool"]


async def test_request_missing_a_result_is_repaired_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ScriptedModel(asks_for(("look", {})), "Done.")
    turn = await Engine(model=model, tools=[look], history_processor=forgets).run(AGENT, "Go.")
    assert turn.text == "Done."
    (repaired,) = [message for message in caplog.messages if "repaired" in message]
    assert turn.id in repaired


async def test_unrepairable_request_missing_a_result_ends_the_turn() -> None:
    model = ScriptedModel(asks_for(("look", {})), "Done.")
    turn = await Engine(model=model, tools=[look], history_processor=forgets, unpaired="reject").run(AGENT, "Go.")
    assert (turn.outcome, turn.error) == (
        Outcome.FAILED,
        "UnpairedError: message 1: call 'call00001' has no result",
    )


async def test_model_is_told_the_budget_if_the_engine_asks() -> None:
    requests = []
    for shows_budget in (True, False):
        model = ScriptedModel("Done.")
        await Engine(model=model, show_budget_to_model=shows_budget).run(AGENT, "Go.")
        requests.append(str(model.requests[0].messages))
    assert requests[0] != requests[1]
