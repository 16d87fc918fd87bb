"""Conversations that go on: what models are sent, request after request."""

from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec import structs
from pydantic import JsonValue

from turnwright.message import (
    AnyPart,
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from turnwright.model.anthropic.blocks import ORDER
from turnwright.model.protocol import ModelRequest
from turnwright_states import CallStatus

TOOLS = (
    ToolSpec("note", "Note something.", {"type": "object", "properties": {"id": {"type": "string"}}}),
    ToolSpec("erase", " ", {"type": "object"}),
)
PICTURE = FilePart.of(b"png", "image/png")
SIGNED: tuple[dict[str, JsonValue], ...] = ({"type": "thinking", "thinking": "hm", "signature": "s"},)
BETWEEN: tuple[dict[str, JsonValue], ...] = (*SIGNED, {"type": ORDER, "blocks": [1, "thinking", 1, "call"]})
ITEM: dict[str, JsonValue] = {"type": "openai_response", "item": {"type": "reasoning", "encrypted_content": "x"}}
KEPT: tuple[dict[str, JsonValue], ...] = (ITEM, {"type": "openai_response", "order": [1, "item", "call"]})
DETAILS: tuple[dict[str, JsonValue], ...] = (
    {"type": "reasoning.encrypted", "data": "x"},
    {"type": "extra_content", "call": 0, "extra_content": {"google": {}}},
)

TEXTS = st.sampled_from(["", " ", "a", "ab", "é\n", "\ud83d", "\u2028"])
VALUES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
ARGUMENTS = st.dictionaries(TEXTS, VALUES | st.lists(VALUES, max_size=2) | TEXTS, max_size=2)
CALLS = st.builds(
    ToolCallPart,
    id=st.sampled_from(["a", "b", "call 1"]),
    name=st.sampled_from(["note", "erase", "no\nte"]),
    arguments=ARGUMENTS,
)
THOUGHTS = st.builds(ReasoningPart, text=TEXTS, details=st.sampled_from([(), SIGNED, BETWEEN, DETAILS, (ITEM,), KEPT]))


def text(draw: st.DrawFn) -> TextPart:
    return TextPart(text=draw(TEXTS))


@st.composite
def said(draw: st.DrawFn) -> tuple[Message, ...]:
    """One message, or a reply with its results."""
    kind = draw(st.sampled_from(["asked", "asked", "asked", "said", "thought", "user", "user", "shown", "system"]))
    thoughts: list[AnyPart] = [draw(THOUGHTS)] if draw(st.booleans()) else []
    match kind:
        case "asked":
            calls = draw(st.lists(CALLS, min_size=1, max_size=3, unique_by=lambda call: call.id))
            results = [
                Message.result(
                    call.id,
                    call.name,
                    draw(TEXTS),
                    draw(st.sampled_from([CallStatus.OK, CallStatus.ERROR])),
                    [PICTURE] if draw(st.booleans()) else [],
                )
                for call in draw(st.permutations(calls))
            ]
            return (Message(role="assistant", parts=(*thoughts, text(draw), *calls)), *results)
        case "said":
            return (Message(role="assistant", parts=(*thoughts, text(draw))),)
        case "thought":
            return (Message(role="assistant", parts=(*thoughts,)),)
        case "shown":
            return (Message(role="user", parts=(text(draw), PICTURE)),)
        case _:
            return (Message(role="system" if kind == "system" else "user", parts=(text(draw), text(draw))),)


def requests(messages: tuple[Message, ...]) -> st.SearchStrategy[ModelRequest]:
    """Generate requests that continue a conversation, some with a message for one call alone."""
    return st.builds(
        ModelRequest,
        messages=st.sampled_from([(), (Message.user("A hint."),)]).map(lambda hint: (*messages, *hint)),
        tools=st.sampled_from([(), TOOLS[:1], TOOLS]),
        tool_choice=st.sampled_from(["auto", "none", "required"]),
        max_tokens=st.sampled_from([None, 100, 3000]),
    )


@st.composite
def conversations(draw: st.DrawFn) -> list[ModelRequest]:
    """The requests of turns that go on side by side, some with the same beginning.

    Each continues as turns do, step by step. Or a hook has left out what is old, taken back what was said last, or put
    something between the messages, or another one in the place of one.
    """
    instructions = draw(st.sampled_from([(), (Message.system("Be brief."),)]))
    begun: list[tuple[Message, ...]] = [sum(draw(st.lists(said(), max_size=4)), instructions)]
    model_requests: list[ModelRequest] = []
    for _ in range(draw(st.integers(2, 8))):
        turn = draw(st.integers(0, len(begun) - 1))
        messages = begun[turn] + sum(draw(st.lists(said(), max_size=2)), ())
        number = draw(st.integers(0, max(len(messages) - 1, 0)))
        match draw(st.sampled_from(["on", "on", "on", "on", "fork", "cut", "back", "put", "change"])):
            case "fork":
                begun.append(messages)
            case "cut":
                messages = whole(messages[number:])
            case "back":
                messages = whole(messages[:number])
            case "put" if messages and messages[number].role != "tool":
                messages = (*messages[:number], Message.user("put"), *messages[number:])
            case "change" if messages:
                parts = tuple(changed(part) for part in messages[number].parts)
                messages = (*messages[:number], structs.replace(messages[number], parts=parts), *messages[number + 1 :])
            case _:
                begun[turn] = messages
        model_requests.append(draw(requests(messages)))
    return model_requests


def changed(part: AnyPart) -> AnyPart:
    return structs.replace(part, text="changed") if isinstance(part, TextPart | ToolResultPart) else part


def whole(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages that are still paired after some were removed."""
    out: list[Message] = []
    remaining = list(messages)
    while remaining:
        message = remaining.pop(0)
        results = remaining[: len(message.calls)]
        if (
            message.role == "tool"
            or any(result.role != "tool" for result in results)
            or len(results) < len(message.calls)
        ):
            continue
        out += [message, *results]
        del remaining[: len(results)]
    return tuple(out)


def turn(steps: int, *, hinted: bool = False) -> list[ModelRequest]:
    """The requests of one turn, of two calls per step; with a word for the one call in each, if it is `hinted`."""
    messages = [Message.system("Be brief."), Message.user("Look everywhere.")]
    model_requests: list[ModelRequest] = []
    for number in range(steps):
        hint = [Message.user(f"{number} steps are left.")] if hinted else []
        model_requests.append(ModelRequest((*messages, *hint), tools=TOOLS))
        calls = [ToolCallPart(id=f"{number}-{index}", name="note", arguments={"at": number}) for index in range(2)]
        messages.append(Message.assistant("Looking", calls))
        messages += [Message.result(call.id, "note", "nothing") for call in calls]
    return model_requests
