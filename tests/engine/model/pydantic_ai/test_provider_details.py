"""Provider details survive the journal, and go back unchanged to their place."""

import dataclasses
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, TypeAdapter
from pydantic_ai.messages import (
    CompactionPart,
    ModelResponsePart,
    NativeToolCallPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.messages import (
    ModelResponse as PydanticResponse,
)

from turnwright.message import AnyPart, Message, ReasoningPart
from turnwright.message import TextPart as OurText
from turnwright.message import ToolCallPart as OurCall
from turnwright.model.protocol import ModelResponse
from turnwright.model.pydantic_ai.provider_details import details_of, response_of
from turnwright.model.pydantic_ai.reply import reply_of

MESSAGE = TypeAdapter(Message)

GEMINI = {"provider_name": "google", "provider_details": {"thought_signature": "c2ln"}}


def journalled(reply: ModelResponse) -> Message:
    """The reply as the transcript has it: calls under our ids, through JSON."""
    parts: list[AnyPart] = []
    if reply.reasoning or reply.reasoning_details:
        parts.append(ReasoningPart(text=reply.reasoning, details=reply.reasoning_details))
    if reply.text:
        parts.append(OurText(text=reply.text))
    for number, call in enumerate(reply.calls):
        parts.append(OurCall(id=f"ours-{number}", name=call.name, arguments=call.arguments or {}))
    return MESSAGE.validate_json(MESSAGE.dump_json(Message(role="assistant", parts=tuple(parts))))


def back(*parts: ModelResponsePart, provider: str | None = None) -> Sequence[ModelResponsePart]:
    """Return the parts that go back for a response of these parts."""
    response = response_of(journalled(reply_of(PydanticResponse(parts=parts, provider_name=provider))))
    assert response is not None
    assert response.provider_name == (provider if details_of(PydanticResponse(parts=parts)) else None)
    return response.parts


def ours(*parts: ModelResponsePart) -> list[ModelResponsePart]:
    """The parts as they should go back: calls under our ids, without the item ids of texts and calls."""
    out: list[ModelResponsePart] = []
    calls = 0
    for part in parts:
        if isinstance(part, ToolCallPart):
            call = ToolCallPart(part.tool_name, part.args_as_dict(), f"ours-{calls}")
            out.append(
                dataclasses.replace(call, provider_name=part.provider_name, provider_details=part.provider_details)
            )
            calls += 1
        elif isinstance(part, TextPart):
            out.append(dataclasses.replace(part, id=None, citations=None))
        else:
            out.append(part)
    return out


def test_a_text_and_calls_need_no_details() -> None:
    parts = (TextPart("I look."), ToolCallPart("look", {"path": "a"}), ToolCallPart("look", {"path": "b"}))
    assert details_of(PydanticResponse(parts=parts, provider_name="p")) == ()
    assert back(*parts) == ours(*parts)


def test_thinking_goes_back_with_the_signature() -> None:
    thinking = ThinkingPart("hm", id="rs_1", signature="s", provider_name="openai", provider_details={"a": [1, None]})
    assert back(thinking, TextPart("hi"), provider="openai") == [thinking, TextPart("hi")]


def test_signature_without_text_goes_back() -> None:
    redacted = ThinkingPart("", id="redacted_thinking", signature="s", provider_name="anthropic")
    assert back(redacted, ToolCallPart("look", {})) == [redacted, *ours(ToolCallPart("look", {}))]


def test_thinking_between_calls_stays_in_place() -> None:
    """And the signatures that Gemini gives to calls and texts stay with these."""
    parts = (
        ThinkingPart("one", signature="1", provider_name="google"),
        ToolCallPart("look", {"n": 1}, **GEMINI),  # type: ignore[arg-type]  # keywords of two types
        ThinkingPart("two", signature="2", provider_name="google"),
        TextPart("and", **GEMINI),  # type: ignore[arg-type]  # likewise
        ToolCallPart("look", {"n": 2}),
        TextPart(" done"),
    )
    assert back(*parts, provider="google") == ours(*parts)


def test_item_ids_of_texts_and_calls_do_not_go_back() -> None:
    """By them the provider would find what it keeps, with a call's id that is not ours."""
    details = {"phase": "final"}
    text = TextPart("hi", id="msg_1", provider_name="openai", provider_details=details)
    call = ToolCallPart("look", {}, "call_1", id="fc_1", provider_name="openai", provider_details=details)
    assert back(text, call) == ours(text, call)


def test_compaction_goes_back_unchanged() -> None:
    part = CompactionPart("so far", id="c", provider_name="anthropic", provider_details={"encrypted_content": "x"})
    assert back(part, TextPart("hi")) == [part, TextPart("hi")]


def test_calls_of_tools_at_the_providers_side_do_not_go_back() -> None:
    assert back(NativeToolCallPart("web_search", {}), ThinkingPart("hm"), TextPart("hi")) == [
        ThinkingPart("hm"),
        TextPart("hi"),
    ]


def test_non_json_details_are_left_out() -> None:
    part = TextPart("hi", provider_name="p", provider_details={"x": object()})
    assert back(part) == [TextPart("hi")]


def message(details: Sequence[dict[str, JsonValue]], *parts: OurText | OurCall, reasoning: str = "hm") -> Message:
    return Message(role="assistant", parts=(ReasoningPart(text=reasoning, details=tuple(details)), *parts))


def entry() -> dict[str, JsonValue]:
    parts = (
        ThinkingPart("hm", signature="s", provider_name="google"),
        TextPart("hi", **GEMINI),  # type: ignore[arg-type]  # keywords of two types
        ToolCallPart("look", {}, **GEMINI),  # type: ignore[arg-type]  # likewise
    )
    (detail,) = details_of(PydanticResponse(parts=parts))
    return dict(detail)


def test_changed_text_goes_back_without_the_old_details() -> None:
    response = response_of(message([entry()], OurText(text="hello!"), OurCall(id="c", name="look")))
    assert response is not None
    assert response.parts == [
        ThinkingPart("hm", signature="s", provider_name="google"),
        TextPart("hello!"),
        ToolCallPart("look", {}, "c", **GEMINI),  # type: ignore[arg-type]  # keywords of two types
    ]


def test_changed_reasoning_does_not_go_back() -> None:
    """Its signature would be wrong, and the provider refuse it."""
    response = response_of(message([entry()], OurText(text="hi"), reasoning="hm, well"))
    assert response is not None
    assert [part.part_kind for part in response.parts] == ["text"]


def test_call_of_another_tool_loses_the_old_details() -> None:
    response = response_of(message([entry()], OurCall(id="c", name="other")))
    assert response is not None
    assert response.parts[-1] == ToolCallPart("other", {}, "c")


def test_reasoning_of_another_origin_is_left_out() -> None:
    response = response_of(message([{"type": "thinking", "thinking": "hm", "signature": "s"}], OurText(text="hi")))
    assert response is not None
    assert response.parts == [TextPart("hi")]
    assert response_of(message([])) is None


def test_unreadable_entry_is_left_out() -> None:
    """Somebody else's, or a later release's."""
    broken: list[dict[str, JsonValue]] = [
        {"type": "pydantic_ai"},
        {"type": "pydantic_ai", "parts": 3},
        {"type": "pydantic_ai", "parts": [{"part_kind": "unheard of"}]},
        {"type": "pydantic_ai", "parts": [{"part_kind": "text", "length": "2"}], "provider_name": 5},
    ]
    for part in broken:
        response = response_of(message([part], OurText(text="hi"), OurCall(id="c", name="look")))
        assert response is not None
        assert response.parts == [TextPart("hi"), ToolCallPart("look", {}, "c")]


def test_merged_replies_keep_their_details() -> None:
    first = ReasoningPart(text="hm", details=(entry(),))
    second = ReasoningPart(text="hm", details=(entry(),))
    merged = Message(role="assistant", parts=(first, OurText(text="hi"), second, OurText(text="hi")))
    response = response_of(merged)
    assert response is not None
    assert [part.part_kind for part in response.parts] == ["thinking", "text", "thinking", "text"]


DETAILS = st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers(), min_size=1, max_size=2)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PARTS: st.SearchStrategy[list[ModelResponsePart]] = st.lists(
    st.builds(TextPart, WORDS.filter(bool), provider_name=st.just("p"), provider_details=DETAILS)
    | st.builds(ThinkingPart, WORDS, signature=st.none() | WORDS, provider_name=st.just("p"), provider_details=DETAILS)
    | st.builds(
        ToolCallPart,
        st.sampled_from(["look", "find"]),
        st.dictionaries(WORDS, st.integers(), max_size=2),
        provider_name=st.just("p"),
        provider_details=DETAILS,
    ),
    min_size=1,
    max_size=6,
)


@given(PARTS)
def test_any_sequence_of_parts_comes_back(parts: list[ModelResponsePart]) -> None:
    """Through the journal, in its order; one that needs no details as its text and its calls."""
    response = PydanticResponse(parts=parts, provider_name="p")
    if details_of(response):
        assert back(*parts, provider="p") == ours(*parts)
    else:
        returned = back(*parts, provider="p")
        assert "".join(part.content for part in returned if isinstance(part, TextPart)) == reply_of(response).text
        assert len([part for part in returned if isinstance(part, ToolCallPart)]) == len(reply_of(response).calls)
