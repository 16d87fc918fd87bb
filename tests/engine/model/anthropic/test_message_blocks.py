"""History with the blocks of the Messages API: it is read, and sent back as it was."""

from typing import cast

import pytest
from pydantic import BaseModel, JsonValue

from turnwright import Agent, ConfigError, Engine, FilePart
from turnwright.message import Message, ReasoningPart, ToolResultPart
from turnwright.model import ModelRequest, ScriptedModel
from turnwright.model.anthropic.blocks import in_order
from turnwright.model.anthropic.message_blocks import messages_of
from turnwright_states import CallStatus

pytestmark = pytest.mark.anyio

PNG = "iVBORw0KGgo="
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
THOUGHT = {"type": "thinking", "thinking": "I look.", "signature": "sealed"}
HISTORY = [
    {"role": "user", "content": "What is in a.txt?"},
    {
        "role": "assistant",
        "content": [
            THOUGHT,
            {"type": "text", "text": "I look it up."},
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.txt"}},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such file", "is_error": True},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "seen"}, PICTURE]},
            {"type": "text", "text": "And this?"},
            PICTURE,
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "It is a picture."}]},
]


async def sent(history: list[object]) -> tuple[Message, ...]:
    """Return the messages that a model receives before the prompt."""
    requests: list[ModelRequest] = []

    def reply(request: ModelRequest) -> str:
        requests.append(request)
        return "Done."

    messages = cast("list[Message]", history)
    turn = await Engine(model=ScriptedModel(reply)).run(Agent(name="A"), "hi", message_history=messages)
    assert turn.text == "Done."
    return requests[0].messages[:-1]


async def test_blocks_are_read_as_messages() -> None:
    user, reply, read, looked, more, last = await sent([*HISTORY])
    assert (user.role, user.text) == ("user", "What is in a.txt?")
    assert isinstance(reply.parts[0], ReasoningPart)
    assert reply.text == "I look it up."
    assert [(call.name, call.arguments) for call in reply.calls] == [("read", {"path": "a.txt"}), ("look", {})]
    (failed,), (looked_part,) = read.parts, looked.parts
    assert isinstance(failed, ToolResultPart)
    assert isinstance(looked_part, ToolResultPart)
    assert [failed.call, looked_part.call] == [call.id for call in reply.calls]
    assert (failed.name, failed.status, failed.text) == ("read", CallStatus.ERROR, "no such file")
    assert (looked_part.name, looked_part.status, looked_part.text) == ("look", CallStatus.OK, "seen")
    assert [file.data for file in looked_part.files] == [PNG]
    assert (more.role, more.text, [file.media_type for file in more.files]) == ("user", "And this?", ["image/png"])
    assert last.text == "It is a picture."


def test_blocks_come_back_unchanged() -> None:
    """With signed thinking, also between texts and calls, and with blocks of the provider's own tools."""
    content: list[JsonValue] = [
        {"type": "text", "text": "First."},
        {**THOUGHT},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}},
    ]
    searched: list[JsonValue] = [
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
        {"type": "text", "text": "Found."},
    ]
    for blocks in (content, searched):
        (reply,) = messages_of({"role": "assistant", "content": blocks}, {})
        assert in_order(reply) == blocks


class TextBlock(BaseModel):
    """A block as an SDK has it."""

    type: str = "text"
    text: str
    citations: None = None


class ToolUseBlock(BaseModel):
    """A call as an SDK has it."""

    type: str = "tool_use"
    id: str
    name: str
    input: dict[str, object]


async def test_blocks_may_be_objects_of_the_sdk() -> None:
    """A program keeps `response.content` as the content of the next request's message."""
    content = [TextBlock(text="I read."), ToolUseBlock(id="toolu_1", name="read", input={"path": "a"})]
    (text,) = await sent([{"role": "assistant", "content": content[:1]}])
    assert text.text == "I read."
    reply, _ = await sent([{"role": "assistant", "content": content}])
    assert (reply.text, [call.arguments for call in reply.calls]) == ("I read.", [{"path": "a"}])


@pytest.mark.parametrize(
    ("source", "kind", "read"),
    [
        (
            {"type": "url", "url": "https://x.org/a.png"},
            "image",
            FilePart(media_type="image/*", url="https://x.org/a.png"),
        ),
        ({"type": "text", "media_type": "text/plain", "data": "Hi"}, "document", FilePart.of(b"Hi", "text/plain")),
    ],
)
async def test_files_are_read_from_each_source(source: object, kind: str, read: FilePart) -> None:
    (message,) = await sent([{"role": "user", "content": [{"type": kind, "source": source}]}])
    (file,) = message.files
    assert (file.media_type, file.data, file.url) == (read.media_type, read.data, read.url)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (
            {"role": "system", "content": [PICTURE]},
            "message 0: a message with blocks must have the role user or assistant",
        ),
        ({"role": "user", "content": [PICTURE, {"type": "sound"}]}, "message 0: content has a block of type 'sound'"),
        ({"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}, "is of type 'file'"),
        ({"role": "user", "content": [PICTURE, 3]}, "message 0: a block must be a mapping, not int"),
    ],
)
async def test_other_blocks_are_refused(message: object, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        await sent([message])
