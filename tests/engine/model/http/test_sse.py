from itertools import pairwise

import httpx
import pytest
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from turnwright.model.http.sse import MAX_LINES, EventReader, EventTooLongError

LINE = st.sampled_from(
    [
        "data: a",
        "data:b",
        "data",
        "data:  c",
        ": note",
        "event: error",
        "event: x",
        "id: 1",
        "retry: 5",
        "other: d",
        "é\u2028",
    ]
)
END = st.sampled_from(["\n", "\r", "\r\n"])


def read(*pieces: bytes, max_event: int = 1000) -> list[tuple[str, str]]:
    """Feed the pieces and close: the kind and the data of each event."""
    reader = EventReader(max_event=max_event)
    events = [event for piece in pieces for event in reader.feed(piece)]
    events += reader.close()
    return [(event.name, event.data) for event in events]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_of_the_format_ends_a_line(end: bytes) -> None:
    assert read(end.join([b"data: 1", b"", b"event: e", b"data:2", b"data: 3", b"", b""])) == [
        ("message", "1"),
        ("e", "2\n3"),
    ]


def test_event_is_given_at_the_empty_line() -> None:
    reader = EventReader()
    assert list(reader.feed(b"data: 1\r\n\r")) != []
    assert list(reader.feed(b"\ndata: 2\r\n")) == []
    assert [event.data for event in reader.feed(b"\r\n")] == ["2"]


def test_a_line_separator_inside_data_ends_no_line() -> None:
    assert read("data: a\u2028b\u2029c\x0b\x0c\x85d\n\n".encode()) == [("message", "a\u2028b\u2029c\x0b\x0c\x85d")]


def test_a_byte_order_mark_at_the_start_is_dropped() -> None:
    assert read(b"\xef", b"\xbb\xbfdata: 1\n\n") == [("message", "1")]


def test_comments_are_skipped() -> None:
    assert read(b": PROCESSING\n\n:\n\ndata: 1\n\n") == [("message", "1")]


def test_the_last_event_needs_no_empty_line() -> None:
    assert read(b"data: 1\n\ndata: 2") == [("message", "1"), ("message", "2")]


def test_character_cut_in_two_is_whole() -> None:
    assert read(b"data: \xc3", b"\xa9\n\n") == [("message", "é")]


def test_broken_utf8_is_replaced() -> None:
    assert read(b"data: \xff!\n\n") == [("message", "\ufffd!")]


def test_bare_json_is_taken_for_data() -> None:
    """The format ignores such a line; some servers report with it that they broke down."""
    assert read(b'data: 1\n\n{"error": "down"}\n\n{\n  "error": 1\n}\n') == [
        ("message", "1"),
        ("message", '{"error": "down"}'),
        ("message", '{\n  "error": 1\n}'),
    ]


def test_an_error_field_is_taken_for_an_error_event() -> None:
    assert read(b'error: {"code": 500}\n\n') == [("error", '{"code": 500}')]


def test_oversized_event_ends_the_read_and_keeps_earlier_events() -> None:
    for pieces in ([b"data: 1\n\ndata: " + b"x" * 50 + b"\n\n"], [b"data: 1\n\n", b"data: ", b"x" * 50]):
        reader = EventReader(max_event=40)
        read_data: list[str] = []
        events = (event for piece in pieces for event in reader.feed(piece))
        with pytest.raises(EventTooLongError, match="longer than 40 bytes"):
            read_data.extend(event.data for event in events)
        assert read_data == ["1"]


def test_an_event_of_exactly_the_bound_is_taken() -> None:
    assert read(b"data: 12\n\n", max_event=10) == [("message", "12")]


@pytest.mark.slow
def test_lines_are_bounded_per_event() -> None:
    assert len(read(b"data: 1\n\n" * (MAX_LINES + 1), max_event=100)) == MAX_LINES + 1
    assert read(b":\n" * (MAX_LINES - 1) + b"data: 1\n", max_event=4 * MAX_LINES) == [("message", "1")]
    with pytest.raises(EventTooLongError, match="more than 50,000 lines"):
        read(b":\n" * MAX_LINES + b"data: 1\n", max_event=4 * MAX_LINES)


@given(lines=st.lists(st.tuples(LINE | st.just(""), END)), cuts=st.lists(st.integers(0, 200)))
def test_events_do_not_depend_on_the_cuts(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    whole = "".join(line + end for line, end in lines).encode()
    edges = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    pieces = [whole[start:end] for start, end in pairwise(edges)]
    assert read(*pieces) == read(whole) == read(*(bytes([byte]) for byte in whole))


@given(lines=st.lists(st.tuples(LINE, st.booleans())), end=END)
def test_events_are_read_as_by_httpx_sse(lines: list[tuple[str, bool]], end: str) -> None:
    whole = "".join(line + end + (end if gap else "") for line, gap in lines) + end
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=whole.encode())
    events = [(event.event, event.data) for event in EventSource(response).iter_sse()]
    assert read(whole.encode()) == [event for event in events if event != ("message", "")]
