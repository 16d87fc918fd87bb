"""The text of a result: what returned values become, and where it is cut."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from pydantic import BaseModel

from turnwright import Message
from turnwright._base.words import clean, cut_clean
from turnwright.tools import RESULT_LIMIT, ToolContext, ToolFailedError, cap, tool
from turnwright.tools.text import NotJsonError, to_text


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
