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
from tests.engine.model.conversations import conversations

from turnwright.message import FilePart, Message, OutputToolSpec, StepStartPart, ToolSpec
from turnwright.message import ToolCallPart as OurCall
from turnwright.model.protocol import ModelRequest, ToolChoice
from turnwright.model.pydantic_ai.request import instructions_of, messages_of, parameters_of
from turnwright_states import CallStatus

PNG = FilePart.of(b"\x89PNG", "image/png", "a.png")


def only(message: Message) -> object:
    """The one part that a message becomes."""
    (request,) = messages_of([message])
    (part,) = request.parts
    return part


def test_messages_between_two_replies_are_a_single_request() -> None:
    calls = [OurCall(id="c1", name="look", arguments={"n": 1}), OurCall(id="c2", name="look")]
    first, calling, results, answer = messages_of(
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
    assert ([type(part) for part in first.parts], first.instructions) == ([UserPromptPart], "Be short.")
    assert isinstance(results, PydanticRequest)
    assert results.instructions == "Be short."
    assert isinstance(calling, PydanticResponse)
    assert calling.parts == [TextPart("I look."), ToolCallPart("look", {"n": 1}, "c1"), ToolCallPart("look", {}, "c2")]
    assert [type(part) for part in results.parts] == [ToolReturnPart, ToolReturnPart, UserPromptPart]
    assert [getattr(part, "tool_call_id", None) for part in results.parts] == ["c1", "c2", None]
    assert answer.parts == [TextPart("Done.")]


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
def test_outcome_of_a_call_is_sent(status: CallStatus, outcome: str) -> None:
    part = only(Message.result("c", "look", "words", status))
    assert isinstance(part, ToolReturnPart)
    assert (part.tool_name, part.tool_call_id, part.content, part.outcome) == ("look", "c", "words", outcome)


def test_every_call_status_has_an_outcome() -> None:
    for status in CallStatus:
        assert isinstance(only(Message.result("c", "look", "words", status)), ToolReturnPart)


@pytest.mark.parametrize(
    ("url", "media_type", "kind", "expected_type"),
    [
        ("https://x/a", "image/png", ImageUrl, "image/png"),
        ("https://x/a.gif", "image/*", ImageUrl, "image/gif"),
        ("https://x/a", "application/pdf", DocumentUrl, "application/pdf"),
        ("https://x/a", "text/csv", DocumentUrl, "text/csv"),
        ("https://x/a", "audio/mpeg", AudioUrl, "audio/mpeg"),
        ("https://x/a", "video/mp4", VideoUrl, "video/mp4"),
    ],
)
def test_file_with_an_address_is_sent_by_address(
    url: str, media_type: str, kind: type[ImageUrl | DocumentUrl | AudioUrl | VideoUrl], expected_type: str
) -> None:
    part = only(Message.user("See.", [FilePart(media_type=media_type, url=url)]))
    assert isinstance(part, UserPromptPart)
    text, file = list(part.content)
    assert text == "See."
    assert isinstance(file, kind)
    assert (file.url, file.media_type) == (url, expected_type)


def test_embedded_file_is_sent_with_the_content() -> None:
    """Without an empty text beside it, which some providers refuse."""
    part = only(Message.user("", [PNG]))
    assert isinstance(part, UserPromptPart)
    (file,) = list(part.content)
    assert isinstance(file, BinaryContent)
    assert (file.data, file.media_type, file.identifier) == (base64.b64decode(PNG.data), "image/png", "a.png")


def test_result_shows_the_files() -> None:
    part = only(Message.result("c", "look", "a picture", files=[PNG]))
    assert isinstance(part, ToolReturnPart)
    assert isinstance(part.content, list)
    text, file = part.content
    assert text == "a picture"
    assert isinstance(file, BinaryContent)


def test_later_system_message_is_a_part_of_the_conversation() -> None:
    (request,) = messages_of([Message.user("Look."), Message.system("A summary.")])
    assert isinstance(request, PydanticRequest)
    assert ([type(part) for part in request.parts], request.instructions) == ([UserPromptPart, SystemPromptPart], None)


SEARCH = ToolSpec("search", "Search.", {"type": "object", "properties": {}})
ANSWER = OutputToolSpec("final_result", "Answer.", {"type": "object", "properties": {}})


@pytest.mark.parametrize(
    ("choice", "functions", "outputs", "text"),
    [
        ("required", ["search"], ["final_result"], False),
        ("auto", ["search"], ["final_result"], True),
        ("none", ["search", "final_result"], [], True),
    ],
)
def test_tool_of_the_answer_is_an_output_tool(
    choice: ToolChoice, functions: list[str], outputs: list[str], text: bool
) -> None:
    """A conclusion may call no tool, and pydantic-ai would allow it an output tool."""
    parameters = parameters_of(ModelRequest((Message.user("Hi"),), tools=(SEARCH, ANSWER), tool_choice=choice))
    assert [tool.name for tool in parameters.function_tools] == functions
    assert [(tool.name, tool.kind) for tool in parameters.output_tools] == [(name, "output") for name in outputs]
    assert parameters.allow_text_output is text
    assert parameters.output_mode == ("tool" if outputs else "text")


def test_request_without_tools_offers_no_tools() -> None:
    parameters = parameters_of(ModelRequest(messages=()))
    assert parameters.function_tools == parameters.output_tools == []
    assert (parameters.allow_text_output, parameters.output_mode, parameters.instruction_parts) == (True, "text", None)


@given(conversations())
def test_continued_conversation_is_translated_by_message(model_requests: list[ModelRequest]) -> None:
    for request in model_requests:
        parts: list[ModelRequestPart] = []
        plain: list[ModelMessage] = []
        instructions = instructions_of(request.messages)
        rest = request.messages if instructions is None else request.messages[1:]
        for (message,) in filter(None, (messages_of([later]) for later in rest)):
            if isinstance(message, PydanticRequest):
                parts += message.parts
                continue
            plain += [PydanticRequest(parts=parts, instructions=instructions), message] if parts else [message]
            parts = []
        assert messages_of(request.messages) == [
            *plain,
            *([PydanticRequest(parts=parts, instructions=instructions)] if parts else []),
        ]
