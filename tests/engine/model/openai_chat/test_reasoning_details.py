from typing import cast

import pytest
from pydantic import JsonValue
from tests.engine.model.chunks import STOP, Chunk, chunk, reply

from turnwright.model.http.text_buffer import Meter, TooLargeError
from turnwright.model.openai_chat.reasoning_details import Details


def text(piece: str | None = None, index: JsonValue = 0, **more: JsonValue) -> Chunk:
    return {"type": "reasoning.text", **({} if piece is None else {"text": piece}), "index": index, **more}


def merged(*deltas: list[JsonValue]) -> list[JsonValue]:
    details = Details(Meter())
    for delta in deltas:
        details.add(delta)
    return [dict(entry) for entry in details.entries()]


def test_pieces_of_an_entry_are_joined_with_the_last_signature() -> None:
    assert merged(
        [text("Let", format="anthropic-claude-v1", signature=None)],
        [text(" me", format="anthropic-claude-v1", signature="")],
        [text(format="anthropic-claude-v1", signature="sig")],
    ) == [text("Let me", format="anthropic-claude-v1", signature="sig")]


def test_entries_are_ordered_by_their_first_piece() -> None:
    assert merged([text("a", 0), text("b", 1)], [text("c", 1, signature="2")], [text("d", 0, signature="1")]) == [
        text("ad", 0, signature="1"),
        text("bc", 1, signature="2"),
    ]


def test_entries_of_different_types_at_an_index_stay_separate() -> None:
    summary: Chunk = {"type": "reasoning.summary", "summary": "**S", "index": 0, "format": "openai-responses-v1"}
    hidden: Chunk = {"type": "reasoning.encrypted", "data": "blob", "id": "rs_1", "index": 0}
    assert merged([summary], [{**summary, "summary": "um**"}], [hidden]) == [{**summary, "summary": "**Sum**"}, hidden]


def test_piece_without_an_index_continues_the_previous_entry() -> None:
    assert merged(
        [{"type": "reasoning.text", "text": "Let"}],
        [{"type": "reasoning.text", "text": " me"}],
        [{"type": "reasoning.text", "signature": "sig"}],
        [{"type": "reasoning.text", "text": "Then", "signature": "sig2"}],
    ) == [
        {"type": "reasoning.text", "text": "Let me", "signature": "sig"},
        {"type": "reasoning.text", "text": "Then", "signature": "sig2"},
    ]


def test_sealed_entry_is_complete() -> None:
    """Some count from 0 again, and encrypted entries may share an index, as Gemini's do behind OpenRouter."""
    first: Chunk = {"type": "reasoning.encrypted", "data": "b1", "id": "call_1", "index": 0}
    second: Chunk = {"type": "reasoning.encrypted", "data": "b2", "id": "call_2", "index": 0}
    assert merged([first, second]) == [first, second]
    assert merged([text("a", signature="1")], [text("b")], [text(signature="2")]) == [
        text("a", signature="1"),
        text("b", signature="2"),
    ]


def test_repeated_signature_seals_nothing_else() -> None:
    assert merged([text("a", signature="1")], [text(signature="1", id="r")]) == [text("a", signature="1", id="r")]


def test_unsigned_text_is_dropped_and_a_summary_needs_a_sealed_entry() -> None:
    summary: Chunk = {"type": "reasoning.summary", "summary": "S"}
    hidden: Chunk = {"type": "reasoning.encrypted", "encrypted_content": "blob"}
    assert merged([text("a"), summary]) == []
    assert merged([text("a"), summary, hidden]) == [summary, hidden]


@pytest.mark.parametrize("odd", [None, "x", {}, [None, 1, "x", [], {}], [{"type": {}, "index": [], "text": 5}]])
def test_malformed_detail_is_skipped(odd: JsonValue) -> None:
    details = Details(Meter())
    details.add(odd)
    assert details.entries() == ()


def test_half_a_surrogate_pair_is_replaced_in_details() -> None:
    assert merged([text("\ud83d", signature="s\ud83d")], [{"type": "\udc00", "data": {"a": "\ud83d\ude00"}}]) == [
        text("\ufffd", signature="s\ufffd"),
        {"type": "\ufffd", "data": {"a": "😀"}},
    ]


@pytest.mark.parametrize(
    "piece", [{"index": 0, "text": "x"}, {"text": "x", "signature": "s"}, {"data": "x"}, {"index": None, "type": "x"}]
)
def test_details_are_counted(piece: Chunk) -> None:
    """Each of a thousand, but for what repeats itself."""
    texts = {name: value for name, value in piece.items() if isinstance(value, str)}
    pieces = [{**piece, **{name: f"{text}{number}" * 10 for name, text in texts.items()}} for number in range(1000)]
    with pytest.raises(TooLargeError):
        Details(Meter(10_000)).add(cast("JsonValue", pieces))


def test_repeated_empty_detail_costs_nothing() -> None:
    details = Details(Meter(10_000))
    for _ in range(10_000):
        details.add([{"type": "reasoning.text", "index": 0, "signature": None, "id": None, "text": ""}])
    assert details.entries() == ()


def test_details_of_reply_and_calls_are_combined() -> None:
    call: Chunk = {"id": "x", "function": {"name": "f"}, "extra_content": {"google": {"thought_signature": "s"}}}
    response = reply(
        chunk({"reasoning_details": [text("a")]}),
        chunk({"reasoning_details": [text(signature="1")], "tool_calls": [call]}),
        STOP,
    )
    assert response.reasoning_details == (
        text("a", signature="1"),
        {"type": "extra_content", "call": 0, "extra_content": {"google": {"thought_signature": "s"}}},
    )
    assert response.reasoning == "a"
