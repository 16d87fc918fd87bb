"""A conversation in pydantic-ai's terms."""

import base64

import pytest
from hypothesis import given
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequestPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.messages import (
    ModelRequest as PydanticRequest,
)
from pydantic_ai.messages import (
    ModelResponse as PydanticResponse,
)
from tests.model.conversations import conversations

from turnwright.message import FilePart, Message, StepStartPart
from turnwright.message import ToolCallPart as OurCall
from turnwright.model.protocol import ModelRequest
from turnwright.model.pydantic_ai.request import messages_of, parameters_of
from turnwright_states import CallStatus

PNG = FilePart.of(b"\x89PNG", "image/png", "a.png")


def only(message: Message) -> object:
    """The one part that a message becomes."""
    (request,) = messages_of([message])
    (part,) = request.parts
    return part


def test_what_stands_between_two_replies_is_one_request() -> None:
    calls = [OurCall(id="c1", name="look", arguments={"n": 1}), OurCall(id="c2", name="look")]
    first, asked, results, said = messages_of(
        [
            Message.system("Be short."),
            Message.user("Look."),
            Message.assistant("I look.", calls),
            Message.result("c1", "look", "one"),
            Message.result("c2", "look", "two"),
            Message.user("And?"),
            Message.assistant("Done."),
        ]
    )
    assert isinstance(first, PydanticRequest)
    assert [type(part) for part in first.parts] == [SystemPromptPart, UserPromptPart]
    assert isinstance(asked, PydanticResponse)
    assert asked.parts == [TextPart("I look."), ToolCallPart("look", {"n": 1}, "c1"), ToolCallPart("look", {}, "c2")]
    assert [type(part) for part in results.parts] == [ToolReturnPart, ToolReturnPart, UserPromptPart]
    assert [getattr(part, "tool_call_id", None) for part in results.parts] == ["c1", "c2", None]
    assert said.parts == [TextPart("Done.")]


def test_bookkeeping_is_not_sent() -> None:
    step = Message(role="assistant", parts=(StepStartPart(step_number=1),))
    assert [message.kind for message in messages_of([Message.user("a"), step, Message.user("b")])] == ["request"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (CallStatus.OK, "success"),
        (CallStatus.ERROR, "failed"),
        (CallStatus.REJECTED, "denied"),
        (CallStatus.REFUSED, "denied"),
        (CallStatus.ABORTED, "interrupted"),
        (CallStatus.UNKNOWN, "interrupted"),
    ],
)
def test_how_a_call_was_settled_is_told(status: CallStatus, outcome: str) -> None:
    part = only(Message.result("c", "look", "words", status))
    assert isinstance(part, ToolReturnPart)
    assert (part.tool_name, part.tool_call_id, part.content, part.outcome) == ("look", "c", "words", outcome)


def test_every_status_is_told() -> None:
    for status in CallStatus:
        assert isinstance(only(Message.result("c", "look", "words", status)), ToolReturnPart)


@pytest.mark.parametrize(
    ("url", "media_type", "kind", "told"),
    [
        ("https://x/a", "image/png", ImageUrl, "image/png"),
        ("https://x/a.gif", "image/*", ImageUrl, "image/gif"),
        ("https://x/a", "application/pdf", DocumentUrl, "application/pdf"),
        ("https://x/a", "text/csv", DocumentUrl, "text/csv"),
        ("https://x/a", "audio/mpeg", AudioUrl, "audio/mpeg"),
        ("https://x/a", "video/mp4", VideoUrl, "video/mp4"),
    ],
)
def test_a_file_with_an_address_is_sent_by_it(
    url: str, media_type: str, kind: type[ImageUrl | DocumentUrl | AudioUrl | VideoUrl], told: str
) -> None:
    part = only(Message.user("See.", [FilePart(media_type=media_type, url=url)]))
    assert isinstance(part, UserPromptPart)
    text, file = list(part.content)
    assert text == "See."
    assert isinstance(file, kind)
    assert (file.url, file.media_type) == (url, told)


def test_a_file_is_sent_with_its_content() -> None:
    """Without an empty text beside it, which some providers refuse."""
    part = only(Message.user("", [PNG]))
    assert isinstance(part, UserPromptPart)
    (file,) = list(part.content)
    assert isinstance(file, BinaryContent)
    assert (file.data, file.media_type, file.identifier) == (base64.b64decode(PNG.data), "image/png", "a.png")


def test_a_result_shows_its_files() -> None:
    part = only(Message.result("c", "look", "a picture", files=[PNG]))
    assert isinstance(part, ToolReturnPart)
    assert isinstance(part.content, list)
    text, file = part.content
    assert text == "a picture"
    assert isinstance(file, BinaryContent)


def test_no_tools_are_none() -> None:
    assert parameters_of(()).function_tools == []
    assert parameters_of(()).allow_text_output


@given(conversations())
def test_what_goes_on_is_translated_as_its_messages_are_one_by_one(made: list[ModelRequest]) -> None:
    for request in made:
        parts: list[ModelRequestPart] = []
        plain: list[ModelMessage] = []
        for (message,) in filter(None, (messages_of([each]) for each in request.messages)):
            if isinstance(message, PydanticRequest):
                parts += message.parts
                continue
            plain += [PydanticRequest(parts=parts), message] if parts else [message]
            parts = []
        assert messages_of(request.messages) == [*plain, *([PydanticRequest(parts=parts)] if parts else [])]
