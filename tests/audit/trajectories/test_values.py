"""The values of a recording are found in documents and lines, whole and cut."""

from typing import Any

import pytest

from turnwright_audit.trajectories.formats import format_of
from turnwright_audit.trajectories.shapes import Shape
from turnwright_audit.trajectories.source import Recording, may_hold_runs, partial_documents
from turnwright_audit.trajectories.values import Values

ANY: Shape[Any] = Shape(object)


def read(data: bytes) -> tuple[list[Any], bool, int]:
    values = Values(Recording.of(data), ANY, {"messages"})
    return list(values), values.cut, values.unreadable_lines


def test_document_over_several_lines_is_a_single_value() -> None:
    assert read(b'[\n{"a": 1},\n{"b": 2}\n]') == ([[{"a": 1}, {"b": 2}]], False, 0)


def test_each_line_is_a_value_and_corrupt_lines_are_counted() -> None:
    assert read(b'{"a": 1}\n{"b\n\n[2]\n') == ([{"a": 1}, [2]], False, 1)


def test_corrupt_first_line_does_not_make_the_lines_a_document() -> None:
    assert read(b'{"a": tru\n{"b": 2}\n{"c": 3}\n') == ([{"b": 2}, {"c": 3}], False, 1)


def test_unreadable_last_line_is_cut() -> None:
    assert read(b'{"a": 1}\n{"b": ') == ([{"a": 1}], True, 0)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"messages": [{"a": 1}, {"b": [2', {"messages": [{"a": 1}]}),
        (
            b'[{"messages": [{"a": 1}]}, {"messages": [{"b": 1}, {"c"',
            [{"messages": [{"a": 1}]}, {"messages": [{"b": 1}]}],
        ),
        (b'[{"messages": [{"a": 1}], "x": [[1], [2', [{"messages": [{"a": 1}], "x": [[1]]}]),
        (b'[{"a": 1}, {"b": 2', [{"a": 1}]),
        (b'{"total": 12', {}),
        (b'{"a": [1, 2], "b": "x', {"a": [1, 2]}),
    ],
)
def test_complete_items_of_a_cut_document_are_kept(data: bytes, expected: object) -> None:
    assert partial_documents(data, {"messages"}) == ([expected], True)
    assert read(data) == ([expected], True, 0)


@pytest.mark.parametrize("between", [b"", b"\n", b" \n\n"])
def test_consecutive_documents_are_separate_values(between: bytes) -> None:
    first, second = b'{\n"messages": [{"a": 1}]}', b'{"messages": [\n{"b": 1}]}'
    values: list[Any] = [{"messages": [{"a": 1}]}, {"messages": [{"b": 1}]}]
    assert read(first + between + second) == (values, False, 0)
    assert read(first + between + second + between + b'{"messages": [{"c": 1}, {"d') == (
        [*values, {"messages": [{"c": 1}]}],
        True,
        0,
    )
    assert read(first + between + second + b"}") == (values, True, 0)
    assert read(first + between + second + between + b"{") == (values, True, 0)


def test_deeply_nested_json_has_no_format() -> None:
    assert format_of(Recording.of(b"[" * 200_000)) is None
    assert format_of(Recording.of(b"[" * 950 + b"]" * 950)) is None
    assert format_of(Recording.of(b'{"messages":' * 50_000)) is None


@pytest.mark.parametrize("number", ["1e", "1e99999999999999999999", "-"])
def test_invalid_number_ends_the_readable_part(number: str) -> None:
    data = b'{"messages": [{"a": 1}], "b": ' + number.encode() + b', "c": 2}'
    (begun,) = partial_documents(data).values
    assert isinstance(begun, dict)
    assert begun["messages"] == [{"a": 1}]
    assert list(Recording.of(data).items("messages.item")) == [{"a": 1}]


@pytest.mark.parametrize("before", [0, 65_500, 65_536, 70_000])
def test_number_with_too_many_digits_ends_the_readable_part(before: int) -> None:
    """The parser would crash the process. Its digits may be in two pieces of what is read."""
    text = b'"' + b"1" * before + b'"'
    begin = b'{"messages": [' + text + b'], "b": '
    data = begin + b"1" * 5000 + b', "c": 2}'
    (begun,) = partial_documents(data).values
    assert isinstance(begun, dict)
    assert begun["messages"] == ["1" * before]
    items = Recording.of(data).items("messages.item")
    assert list(items) == ["1" * before]
    assert items.cut
    whole = {**begun, "b": int("1" * 30), "c": 2}
    for prefix in (b"", b"{}", b"[] -", b'"a"', b"true", b"{} null"):  # the number may be a value behind others
        assert "1" * 5000 not in str(partial_documents(prefix + b"1" * 5000 + b'"a"').values)
    assert partial_documents(begin + b"1" * 30 + b', "c": 2}') == ([whole], False)


@pytest.mark.parametrize(
    "data",
    [
        b'data: {"a": 1}\n\ndata: {"b": 2}\n\ndata: [DONE]\n\n',
        b'data:{"a": 1}\r\rdata:{"b": 2}\r\r',
        b'id: 1\r\nevent: x\r\ndata: {"a": 1}\r\n\r\n: PING\r\n\r\ndata: {"b": 2}',
        b'data: {"a": 1}\ndata: {"b": 2}\n',
        b'data: {\ndata:   "a": 1\ndata: }\n\ndata: {"b": 2}\n\n',
        b': PING\n\n{"a": 1}\n{"b": 2}\n',
        b'{"a": 1}\ndata: {"b": 2}\n\n',
    ],
    ids=["usual", "carriage returns", "other fields", "no empty lines", "indented", "bare lines", "mixed"],
)
def test_data_of_events_are_values(data: bytes) -> None:
    assert read(data) == ([{"a": 1}, {"b": 2}], False, 0)


def test_corrupt_lines_of_a_stream_are_counted() -> None:
    assert read(b'data: {"a": 1}\n\ndata: {\n\nx\n\ndata: {"b": 2}\n\n') == ([{"a": 1}, {"b": 2}], False, 2)


def test_data_without_a_type_have_the_name_of_the_event() -> None:
    assert read(b"event: message_stop\ndata: {}\n\nevent: x\ndata: {}\n\n") == (
        [{"type": "message_stop"}, {}],
        False,
        0,
    )


@pytest.mark.parametrize(("head", "may"), [(b": PING\n\ndata: {}", True), (b"id: 7\nname: x\n", False)])
def test_stream_in_a_folder_is_known_by_the_first_line(head: bytes, may: bool) -> None:
    """Other files begin with an id too; a stream that does is read if the file is named."""
    assert may_hold_runs(head) is may
