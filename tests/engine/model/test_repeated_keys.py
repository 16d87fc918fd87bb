"""Arguments that name a key twice: nobody knows which value the model means, so the call does not run."""

import pytest
from pydantic import JsonValue
from pydantic_ai.messages import ModelResponse as PydanticResponse
from pydantic_ai.messages import ToolCallPart
from tests.engine.model import chunks
from tests.engine.model.anthropic import test_stream as messages
from tests.engine.model.openai_responses import events

from turnwright import Agent, Engine, tool
from turnwright.message import ToolResultPart
from turnwright.model import ModelResponse, ResponseToolCall, ScriptedModel
from turnwright.model.http.json_text import damage_of
from turnwright.model.openai_responses.stream import ResponsesStream
from turnwright.model.pydantic_ai.reply import whole_reply

TWICE = [
    '{"path": "/tmp/x", "path": "/"}',
    r'{"path": "/tmp/x", "p\u0061th": "/"}',
    '{"options": [{"force": false, "force": true}]}',
    r'{"\ud800": 1, "\udbff": 2}',
]
NEXT = '{"path": "a"}'


def arguments_in(reply: ModelResponse) -> list[dict[str, JsonValue] | None]:
    return [None if call.arguments is None else dict(call.arguments) for call in reply.calls]


def entry(raw: str, index: int) -> JsonValue:
    return {"index": index, "id": f"c{index}", "function": {"name": "remove", "arguments": raw}}


@pytest.mark.parametrize("raw", TWICE)
def test_arguments_with_a_key_twice_are_refused_from_every_provider(raw: str) -> None:
    chat = [chunks.chunk({"tool_calls": [entry(raw, 0)]}), chunks.chunk({"tool_calls": [entry(NEXT, 1)]})]
    anthropic = [*messages.tool(0, "remove", "c0", raw[:9], raw[9:]), *messages.tool(1, "remove", "c1", NEXT)]
    responses = events.whole(events.call("remove", raw), events.call("remove", NEXT, "call_2", "fc_2"))
    parts = [ToolCallPart("remove", raw), ToolCallPart("remove", NEXT)]
    replies = [
        chunks.reply(*chat, chunks.STOP),
        messages.reply(messages.start(), *anthropic, messages.end("tool_use")),
        events.reply(*responses),
        whole_reply(PydanticResponse(parts)),
    ]
    assert [arguments_in(reply) for reply in replies] == [[None, {"path": "a"}]] * 4


@pytest.mark.parametrize("raw", TWICE)
def test_arguments_sent_as_an_object_with_a_key_twice_are_refused(raw: str) -> None:
    def stream(template: bytes) -> bytes:
        assert b'"ARGUMENTS"' in template
        return template.replace(b'"ARGUMENTS"', raw.encode())

    chat = chunks.decode(stream(chunks.sse(chunks.chunk({"tool_calls": [entry("ARGUMENTS", 0)]}), chunks.STOP)))
    begun = messages.begin(0, "tool_use", id="c0", name="remove", input="ARGUMENTS")
    ends = [messages.stop(0), messages.end("tool_use"), messages.STOP]
    anthropic = messages.decode(stream(messages.sse(messages.start(), begun, *ends)))
    responses = ResponsesStream()
    responses.feed(stream(events.sse(*events.whole(events.call("remove", "ARGUMENTS")))))
    responses.end()
    for decoded in (chat, anthropic, responses):
        assert arguments_in(decoded.reply()) == [None]


def test_calls_without_an_index_stay_apart_behind_a_key_twice() -> None:
    calls: list[JsonValue] = [{"function": {"name": "remove", "arguments": raw}} for raw in (TWICE[0], NEXT)]
    reply = chunks.reply(*(chunks.chunk({"tool_calls": [call]}) for call in calls), chunks.STOP)
    assert arguments_in(reply) == [None, {"path": "a"}]


def test_damage_names_a_short_key() -> None:
    assert damage_of(TWICE[0]) == "the key 'path' occurs twice"
    key = "correct-horse-battery" * 3
    assert damage_of(f'{{"{key}": 1, "{key}": 2}}') == "a long key occurs twice"


@pytest.mark.anyio
async def test_result_of_a_call_names_the_repeated_key() -> None:
    ran: list[str] = []

    @tool
    def remove(path: str) -> str:
        """Remove a file."""
        ran.append(path)
        return "removed"

    model = ScriptedModel(ModelResponse(calls=(ResponseToolCall("remove", None, TWICE[0], id="a"),)), "I see.")
    async with Engine(model=model, tools=[remove]) as engine:
        turn = await engine.run(Agent(name="A"), "Remove x.")
    parts = [part for message in model.requests[1].messages for part in message.parts]
    [result] = [part.text for part in parts if isinstance(part, ToolResultPart)]
    assert (ran, turn.text) == ([], "I see.")
    assert "the key 'path' occurs twice" in result
