"""Replies that were refused or withdrawn leave nothing in a client's conversation."""

import pytest

from turnwright import Agent, Engine, Retry, Trip, TurnContext, after_model, output_guardrail
from turnwright.model.protocol import ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.transcript.events import OutputDeltaEvent, TurnEvent
from turnwright_protocols.ag_ui import AgUiEncoder, messages_of

from .client import Client, asked, heard
from .test_encoder import AGENT, PROMPT, live

pytestmark = pytest.mark.anyio


@output_guardrail(hold_stream=False)
async def late(ctx: TurnContext, text: str) -> Trip | None:  # noqa: ARG001 (given)
    return Trip("Not that.", {"secret": "s3"}) if "hunter2" in text else None


@output_guardrail
async def held(ctx: TurnContext, text: str) -> Trip | None:  # noqa: ARG001 (given)
    return Trip("Not that.", {"secret": "s3"}) if "hunter2" in text else None


@after_model
async def strict(ctx: TurnContext, response: ModelResponse) -> None:  # noqa: ARG001 (given)
    if response.text == "Bad words.":
        raise Retry("be polite")


def encode(events: list[TurnEvent]) -> Client:
    encoder = AgUiEncoder(asked(PROMPT))
    return heard([*(encoded for event in events for encoded in encoder.encode(event)), *encoder.close()])


async def test_refused_reply_is_dropped() -> None:
    engine = Engine(model=ScriptedModel("Bad words.", "Good words."), hooks=[strict])
    events = await live(engine)
    assert encode(events).text() == ["Good words."]
    assert encode([event async for event in engine.events(events[0].turn)]).text() == ["Good words."]


@pytest.mark.parametrize("guardrail", [late, held])
async def test_withdrawn_reply_is_dropped(guardrail: object) -> None:
    engine = Engine(model=ScriptedModel("It is hunter2."), guardrails=[guardrail])  # type: ignore[list-item]
    events = await live(engine, AGENT)
    client = encode(events)
    assert client.text() == []
    assert client.events[-1]["type"] == "RUN_ERROR"
    assert "Not that." in str(client.events[-1]["message"])
    assert "s3" not in repr(client.events), "metadata are for programs"
    if guardrail is held:
        assert "hunter2" not in repr(client.events)


async def test_typed_answer_streams_as_text() -> None:
    agent = Agent(name="Tidier", output_type=dict[str, str], output_mode="prompt")
    events = await live(Engine(model=ScriptedModel('{"a": "b c d"}')), agent)
    assert any(isinstance(event, OutputDeltaEvent) for event in events)
    client = encode(events)
    assert client.types().count("TEXT_MESSAGE_CONTENT") > 1, "piece by piece"
    assert client.text() == ['{"a": "b c d"}']


async def test_refused_reply_and_feedback_are_not_sent() -> None:
    @after_model
    async def polite(ctx: TurnContext, response: ModelResponse) -> None:  # noqa: ARG001 (given)
        if "hunter2" in response.text:
            raise Retry("say it politely")

    model = ScriptedModel("It is hunter2.", asks_for(("look", {}), text="hunter2"), "Fine.")
    turn = await Engine(model=model, hooks=[polite]).run(Agent(name="Clerk"), "hi")
    messages = messages_of(turn.id, turn.messages)
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"], (
        "a refused call has its result"
    )
    assert "hunter2" not in repr(messages)
    assert messages[-1].content == "Fine."
