"""Results of tools, and the parts of them that the journal gets."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from uuid import UUID

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from pydantic import BaseModel, JsonValue

from turnwright import Message
from turnwright._base.words import clean, cut_clean
from turnwright.message import FilePart
from turnwright.tools import RESULT_LIMIT, ToolContext, ToolFailedError, ToolResult, cap, tool
from turnwright.tools.result import (
    FILES_LIMIT,
    MOST_FILES,
    STRUCTURED_LIMIT,
    NotJsonError,
    bound_result,
    to_result,
    to_text,
)
from turnwright_states import CallSettledInput, State
from turnwright_states import facts as f
from turnwright_states.fact_parser import parse_fact

PICTURE = FilePart.of(b"png", "image/png", "chart.png")
NAMELESS = FilePart.of(b"pdf", "application/pdf")


@pytest.mark.parametrize(
    ("returned", "result"),
    [
        ("text", ToolResult("text")),
        (None, ToolResult("(no output)")),
        ({"a": 1}, ToolResult('{"a":1}')),
        (["a", 1], ToolResult('["a",1]')),
        (PICTURE, ToolResult("[file: chart.png, image/png]", None, (PICTURE,))),
        (NAMELESS, ToolResult("[file: application/pdf]", None, (NAMELESS,))),
        (
            ["Before:", PICTURE, {"after": 1}, NAMELESS],
            ToolResult(
                'Before:\n[file: chart.png, image/png]\n{"after":1}\n[file: application/pdf]',
                None,
                (PICTURE, NAMELESS),
            ),
        ),
        ((PICTURE, "After."), ToolResult("[file: chart.png, image/png]\nAfter.", None, (PICTURE,))),
        (ToolResult("two", {"n": 2}, (PICTURE,)), ToolResult("two", {"n": 2}, (PICTURE,))),
        (ToolResult("", {"n": 2}), ToolResult("", {"n": 2})),
        (ToolResult("", None, (PICTURE,)), ToolResult("[file: chart.png, image/png]", None, (PICTURE,))),
        (ToolResult("a\ud83d"), ToolResult("a?")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_return_value_of_a_tool_becomes_a_result(returned: object, result: ToolResult) -> None:
    assert to_result(returned) == result


def test_file_name_with_a_fake_notice_stays_in_the_line() -> None:
    text = to_result(FilePart.of(b"x", "text/plain", "a\n[file: b" + "c" * 200)).text
    assert text.startswith(r"[file: a\n[file: bc")
    assert (text.count("\n"), len(text) < 120) == (0, True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ToolResult(7), "text must be a str, not int"),  # type: ignore[arg-type]
        (lambda: ToolResult("x", None, ("a.png",)), "files must be FilePart, not str"),  # type: ignore[arg-type]
    ],
)
def test_result_with_wrong_parts_is_refused_at_creation(make: Callable[[], ToolResult], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make()


def test_files_may_be_given_in_a_list_or_alone() -> None:
    assert ToolResult("x", files=[PICTURE]).files == (PICTURE,)  # type: ignore[arg-type]
    assert ToolResult("x", files=PICTURE).files == (PICTURE,)  # type: ignore[arg-type]


def nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


def circular() -> list[JsonValue]:
    value: list[JsonValue] = []
    value.append(value)
    return value


NOT_JSON = {
    "NaN": math.nan,
    "infinity": [math.inf],
    "half a surrogate": {"a": "\ud83d"},
    "half a surrogate as a key": {"\ud83d": 1},
    "an object": {"a": object()},
    "a set": {1, 2},
    "a key of another type": {(1, 2): 3},
    "a number of too many digits": 10**5000,
    "a circle": circular(),
    "101 lists": nested(101),
    "far too many lists": nested(5000),
}


@pytest.mark.parametrize("structured", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_non_json_data_fails_the_call_with_a_message(structured: JsonValue) -> None:
    @tool
    async def measure() -> ToolResult:
        return ToolResult("measured", structured)

    with pytest.raises(NotJsonError):
        to_result(ToolResult("measured", structured))
    with pytest.raises(ToolFailedError, match=r"^measure: the data of its result is"):
        anyio.run(measure.run, {}, ToolContext(turn_id="t", call_id="c"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(VALUES)
def test_accepted_data_is_read_back_from_the_journal_unchanged(value: JsonValue) -> None:
    try:
        result = bound_result(to_result(ToolResult("text", value)))
    except NotJsonError:
        return
    event = CallSettledInput(call="c", result=result.text, structured=result.structured)
    fact = f.CallSettled(elapsed=0, state=State.TOOL_EXEC, call="c", structured=event.structured)
    read = parse_fact(fact.kind, fact.payload())
    assert isinstance(read, f.CallSettled)
    assert read.structured == result.structured
    assert json.loads(json.dumps(value)) == result.structured


def test_later_change_of_the_data_by_the_tool_has_no_effect() -> None:
    data: dict[str, JsonValue] = {"n": [1]}
    result = to_result(ToolResult("", data))
    data["n"] = 2
    assert result.structured == {"n": [1]}


def test_result_within_bounds_stays_unchanged() -> None:
    result = ToolResult("x" * RESULT_LIMIT, ["y" * (STRUCTURED_LIMIT - 4)], (PICTURE,) * MOST_FILES)
    assert bound_result(result) == result


class Markup(str):
    """A text as template engines have it."""

    __slots__ = ()


@pytest.mark.parametrize("text", ["<b>", "é"])
def test_text_of_a_str_subclass_becomes_plain(text: str) -> None:
    """No journal can hold it."""
    marked = Markup(text)
    for result in (to_result(marked), to_result(ToolResult(marked)), bound_result(ToolResult(marked))):
        assert (type(result.text), result.text) == (str, text)


def test_oversized_data_is_left_out_with_a_notice() -> None:
    result = bound_result(ToolResult("text", ["y" * (STRUCTURED_LIMIT - 3)]))
    assert result == ToolResult("[left out: the data of this result: 262,145 bytes of JSON; the limit: 262,144]\ntext")


def test_excess_files_are_left_out_with_a_notice() -> None:
    """The others are kept, also those behind."""
    large = FilePart.of(bytes(FILES_LIMIT - 2), "image/png", "large.png")
    result = bound_result(ToolResult("text", None, (PICTURE, large, NAMELESS)))
    assert result.files == (PICTURE, NAMELESS)
    assert result.text == (
        "[left out: large.png, image/png: 8,388,606 bytes; the limit: 32 files, 8,388,608 bytes in total]\ntext"
    )
    exact = FilePart.of(bytes(FILES_LIMIT - 3), "image/png")
    assert bound_result(ToolResult("text", None, (PICTURE, exact))).files == (PICTURE, exact)


def test_excess_files_of_a_result_are_left_out() -> None:
    linked = FilePart(media_type="image/png", url="https://example.org/a.png")
    result = bound_result(ToolResult("text", None, (linked,) * 1000))
    assert len(result.files) == MOST_FILES
    assert len(result.text) < 5000
    assert result.text.endswith("[left out: 936 more files]\ntext")


def test_no_cut_takes_the_notices_away() -> None:
    result = bound_result(ToolResult("x" * 100_000, ["y" * STRUCTURED_LIMIT]))
    assert result.text.startswith("[left out: the data of this result")
    assert "[cut: the first 65536 of" in result.text


@pytest.mark.parametrize("file", [PICTURE, NAMELESS, FilePart(media_type="image/*", url="https://example.org/a.png")])
def test_a_file_is_kept_as_the_files_of_a_prompt_are(file: FilePart) -> None:
    assert FilePart.of_json(file.kept()) == file
    assert "seq" not in file.kept()


class Point(BaseModel):
    x: int
    name: str = "ä"


@dataclass
class Pair:
    first: int
    right: Point


class Place(Struct):
    x: int
    point: Point | None = None


class Odd:
    def __str__(self) -> str:
        return "odd"


class Color(StrEnum):
    RED = "red"


class Level(Enum):
    HIGH = 3


@attrs.define
class Crate:
    size: int
    points: list[Point]


class Cursor:
    """An object as most classes have them, without a text of its own."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "(no output)"),
        ("grüße".encode(), "grüße"),
        (b"\xff\xfe\x00", "<3 bytes of binary data>"),
        (bytearray(b"abc"), "abc"),
        (Point(x=1), '{"x":1,"name":"ä"}'),
        (Pair(1, Point(x=2)), '{"first":1,"right":{"x":2,"name":"ä"}}'),
        (Place(x=1, point=Point(x=2)), '{"x":1,"point":{"x":2,"name":"ä"}}'),
        ([Place(x=1)], '[{"x":1,"point":null}]'),
        ({"said": Message.user("Hi")}, '{"said":{"role":"user","parts":[{"seq":0,"type":"text","text":"Hi"}]}}'),
        ({"a": [1, None, True], "日": 1.5}, '{"a":[1,null,true],"日":1.5}'),
        ([], "[]"),
        ((1, "a"), '[1,"a"]'),
        (5, "5"),
        (2.5, "2.5"),
        (False, "false"),
        ([date(2026, 1, 2)], '["2026-01-02"]'),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00Z"),
        (time(3, 4), "03:04:00"),
        (timedelta(days=1), "P1D"),
        (Color.RED, "red"),
        (Level.HIGH, "3"),
        ({"level": Level.HIGH}, '{"level":3}'),
        (Crate(2, [Point(x=1)]), '{"size":2,"points":[{"x":1,"name":"ä"}]}'),
        ([Crate(2, [])], '[{"size":2,"points":[]}]'),
        ({1, 2}, "[1,2]"),
        ({"keys": {"a": 1}.keys(), "values": {"a": 1}.values()}, '{"keys":["a"],"values":[1]}'),
        (MappingProxyType({"inner": MappingProxyType({"a": 1})}), '{"inner":{"a":1}}'),
        ([b"abc", memoryview(b"d")], '["abc","d"]'),
        ([b"\xff"], '["_w=="]'),
        (Decimal("1.20"), "1.20"),
        ([Decimal("1.20")], '["1.20"]'),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([UUID(int=1), PurePosixPath("a/b")], '["00000000-0000-0000-0000-000000000001","a/b"]'),
        (PurePosixPath("a/b"), "a/b"),
        (Odd(), "odd"),
        (ValueError("bad"), "bad"),
        ([range(3)], '["range(0, 3)"]'),
        (Cursor, f"<class '{__name__}.Cursor'>"),
    ],
)
def test_a_returned_value_becomes_text(value: object, text: str) -> None:
    assert to_text(value) == text


def test_non_json_value_inside_a_list_is_shown_as_str() -> None:
    assert to_text([Odd()]) == '["odd"]'


def circle() -> list[object]:
    items: list[object] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    "value",
    [Cursor(), [Cursor()], {"rows": {"a": Cursor()}}, {Cursor(): 1}, Pair(1, Cursor()), Crate(1, [Cursor()])],  # type: ignore[arg-type, list-item]
    ids=lambda value: type(value).__name__,
)
def test_object_without_a_text_is_refused_with_advice(value: object) -> None:
    """The model would read an address in memory."""
    with pytest.raises(
        NotJsonError, match=r"^its result has a Cursor, which is not JSON: return .* a dataclass or a"
    ) as e:
        to_text(value)
    assert "0x" not in str(e.value)


@pytest.mark.parametrize("value", [circle, (letter for letter in "ab"), [to_text], Odd().__str__])
def test_functions_and_generators_are_refused_as_well(value: object) -> None:
    with pytest.raises(NotJsonError, match="which is not JSON"):
        to_text(value)


def test_circular_data_is_refused() -> None:
    with pytest.raises(NotJsonError, match=r"^its result cannot be written as JSON: .*Circular"):
        to_text(circle())


@pytest.mark.anyio
async def test_error_of_the_call_names_the_tool_and_the_returned_type() -> None:
    @tool
    def query() -> object:
        return [Cursor()]

    with pytest.raises(ToolFailedError, match=r"^query: its result has a Cursor, which is not JSON: return text"):
        await query.run({}, ToolContext(turn_id="t", call_id="c"))


def test_lone_surrogates_are_replaced() -> None:
    assert to_text("a\ud800b") == "a?b"
    assert clean("\udcff") == "?"
    assert cap("a\ud800b") == "a?b"


def test_the_limit_is_64_kib() -> None:
    assert RESULT_LIMIT == 65536
    assert cap("x" * 65536) == "x" * 65536


def test_longer_text_is_cut_with_the_original_length() -> None:
    assert cap("x" * 1048576) == "x" * 65536 + "\n[cut: the first 65536 of 1048576 bytes; ask for less]"


def test_a_character_is_never_cut_through() -> None:
    assert cap("aé", 2) == "a\n[cut: the first 1 of 3 bytes; ask for less]"
    assert cap("😀", 3) == "\n[cut: the first 0 of 4 bytes; ask for less]"


@given(st.text(), st.integers(min_value=0, max_value=64))
def test_capped_text_is_a_prefix_with_a_notice(text: str, limit: int) -> None:
    capped = cap(text, limit)
    if len(text.encode()) <= limit:
        assert capped == text
    else:
        kept_text, _, notice = capped.rpartition("\n")
        assert text.startswith(kept_text)
        assert limit - 4 < len(kept_text.encode()) <= limit
        assert notice == f"[cut: the first {len(kept_text.encode())} of {len(text.encode())} bytes; ask for less]"


@given(st.text(st.characters()))
def test_any_text_can_be_encoded_afterwards(text: str) -> None:
    for shortened in (to_text(text), cap(text), cut_clean(text, 5)):
        shortened.encode()


def test_cut_clean_ends_in_an_ellipsis() -> None:
    assert cut_clean("abcdef", 4) == "abc…"
    assert cut_clean("abcd", 4) == "abcd"
