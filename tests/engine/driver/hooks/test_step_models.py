"""A `before_model` hook chooses the model of a step, by what the conversation has."""

from collections.abc import AsyncIterator, Sequence

import pytest

from turnwright import Agent, ChangeRequest, Engine, Price, TurnContext, before_model, tool
from turnwright.message import Message, ReasoningPart
from turnwright.model.protocol import Model, ModelError, ModelRequest, ModelResponse
from turnwright.model.scripted import asks_for
from turnwright.store import MemoryStore
from turnwright_states import Cause, EndReason, Limits, Outcome, Usage
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]


class Signing:
    """A model that signs its replies."""

    def __init__(self, name: str, *lines: ModelResponse | ModelError) -> None:
        self.name = name
        self.lines = list(lines)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
        """Reply with the next line."""
        self.requests.append(request)
        line = self.lines.pop(0) if self.lines else ModelResponse(text="Done.")
        if isinstance(line, ModelError):
            raise line
        details = ({"type": "reasoning.text", "signature": self.name},)
        usage = Usage(input_tokens=10, output_tokens=10)
        yield ModelResponse(text=line.text, calls=line.calls, reasoning_details=details, usage=usage)


def signatures(request: ModelRequest) -> list[str]:
    parts = [part for message in request.messages for part in message.parts if isinstance(part, ReasoningPart)]
    return [str(detail["signature"]) for part in parts for detail in part.details]


@tool
async def look() -> str:
    """Look."""
    return "seen"


@tool(needs_approval=True)
async def erase() -> str:
    """Erase."""
    return "erased"


@before_model
async def second_step_is_large(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
    return ChangeRequest(model="large") if ctx.step > 1 else None


def engine_of(*models: Model, store: MemoryStore | None = None, **options: Price) -> Engine:
    models_by_name = {model.name: model for model in models}
    return Engine(models=models_by_name.__getitem__, tools=[look, erase], store=store or MemoryStore(), prices=options)


AGENT = Agent(name="Clerk", model="small", hooks=[second_step_is_large])
LOOKS = asks_for(("look", {}))


async def test_a_hook_chooses_the_model_of_a_step() -> None:
    small, large = Signing("small", LOOKS), Signing("large", LOOKS)
    engine = engine_of(small, large)
    turn = await engine.run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED
    assert (len(small.requests), len(large.requests)) == (1, 2)
    facts = await engine.store.facts(turn.id)
    prepared = [fact for _, fact in facts if isinstance(fact, f.RequestPrepared)]
    assert [fact.model for fact in prepared] == [None, "large", "large"]
    assert replay(facts).check.verdict is Verdict.HOLDS


async def test_model_is_sent_own_signatures_only() -> None:
    small, large = Signing("small", LOOKS), Signing("large", LOOKS)
    engine = engine_of(small, large)
    await engine.run(AGENT, "hi", session="s")
    assert [signatures(request) for request in large.requests] == [[], ["large"]]
    await engine.run(Agent(name="Clerk", model="small"), "again", session="s")
    assert signatures(small.requests[-1]) == ["small"]
    await engine.run(Agent(name="Clerk", model="large"), "again", session="s")
    assert signatures(large.requests[-1]) == ["large", "large"]


async def test_another_process_calls_the_same_model() -> None:
    store = MemoryStore()
    paused = await engine_of(Signing("small", LOOKS), Signing("large", asks_for(("erase", {}))), store=store).run(
        AGENT, "hi"
    )
    small, large = Signing("small"), Signing("large")
    turn = await engine_of(small, large, store=store).resume(paused.id, {paused.interrupts[0].id: True}, agent=AGENT)
    assert turn.outcome is Outcome.FINISHED
    assert (len(small.requests), len(large.requests)) == (0, 1)


async def test_another_attempt_calls_the_same_model() -> None:
    small, large = Signing("small", LOOKS), Signing("large", ModelError("busy", cause=Cause.OVERLOADED))
    turn = await engine_of(small, large).run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED
    assert len(large.requests) == 2


async def test_the_conclusion_is_of_the_last_steps_model() -> None:
    small, large = Signing("small", LOOKS), Signing("large", LOOKS, ModelResponse(text="So far."))
    turn = await engine_of(small, large).run(AGENT.model_copy(update={"steps": 2}), "hi")
    assert (turn.outcome, turn.text) == (Outcome.CAP_HIT, "So far.")
    assert (len(small.requests), len(large.requests)) == (1, 2)


async def test_each_reply_is_priced_by_the_model() -> None:
    small, large = Signing("small", LOOKS), Signing("large")
    engine = Engine(
        models={"small": small, "large": large}.__getitem__,
        tools=[look],
        prices={"small": Price(input=1, output=1), "large": Price(input=100, output=100)},
        limits=Limits(cost=1.0),
    )
    turn = await engine.run(AGENT, "hi")
    assert turn.usage.cost == pytest.approx(20 / 1e6 + 2000 / 1e6)


async def test_unknown_model_ends_the_turn_and_names_the_hook() -> None:
    turn = await engine_of(Signing("small", LOOKS)).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert "second_step_is_large" in turn.error
    assert "'large'" in turn.error


async def test_context_has_the_messages_before_and_of_the_turn() -> None:
    roles: list[list[str]] = []

    @before_model
    async def read(ctx: TurnContext, request: ModelRequest) -> None:
        roles.append([message.role for message in ctx.messages])

    engine = engine_of(Signing("small", ModelResponse(text="Hello."), LOOKS))
    agent = Agent(name="Clerk", model="small", hooks=[read], instructions="Be short.")
    await engine.run(agent, "hi", session="s")
    await engine.run(agent, "look", session="s")
    first: Sequence[str] = ["user"]
    second = ["user", "assistant", "user"]
    assert roles == [first, second, [*second, "assistant", "tool"]]
    assert TurnContext(turn_id="t").messages == ()
    assert "secret" not in repr(TurnContext(turn_id="t", messages=(Message.user("secret"),)))
