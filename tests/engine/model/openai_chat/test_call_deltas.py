import json
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.model.http.json_text import whole_object
from turnwright.model.http.text_buffer import MAX_CALLS, Meter, TooLargeError
from turnwright.model.openai_chat.call_deltas import CallAssembler
from turnwright.model.protocol import ResponseToolCall

Entry = dict[str, JsonValue]


def entry(
    index: JsonValue = None,
    call_id: JsonValue = None,
    name: JsonValue = None,
    arguments: JsonValue = None,
    **more: JsonValue,
) -> Entry:
    function: Entry = {"name": name, "arguments": arguments}
    return {"index": index, "id": call_id, "function": function, **more}


def assemble(*deltas: Entry | list[JsonValue]) -> tuple[ResponseToolCall, ...]:
    """Put the calls together; each delta is an entry or a list of them."""
    assembler = CallAssembler(Meter())
    for delta in deltas:
        assembler.add(delta if isinstance(delta, list) else [delta])
    return assembler.calls()


def call(name: str, arguments: dict[str, JsonValue] | None, raw: str, call_id: str = "") -> ResponseToolCall:
    return ResponseToolCall(name=name, arguments=arguments, raw=raw, id=call_id)


def test_arguments_come_in_pieces() -> None:
    assert assemble(entry(0, "x", "f", ""), entry(0, None, None, '{"a"'), entry(0, "", "", ": 1}")) == (
        call("f", {"a": 1}, '{"a": 1}', "x"),
    )


def test_first_non_empty_id_and_name_count() -> None:
    assert assemble(
        entry(0, "", None, ""), entry(0, "x", "f", "{"), entry(0, "x", "f", "}"), entry(0, None, "", None)
    ) == (call("f", {}, "{}", "x"),)


def test_a_new_id_on_the_same_index_is_a_new_call() -> None:
    assert assemble(
        entry(0, "x", "f", '{"a":'), entry(0, None, None, "1}"), entry(0, "y", "f", "{"), entry(0, "y", None, "}")
    ) == (call("f", {"a": 1}, '{"a":1}', "x"), call("f", {}, "{}", "y"))


def test_id_changing_inside_the_arguments_begins_no_call() -> None:
    """Some servers make up an id for every delta. A call cannot begin without a name, inside another's arguments."""
    assert assemble(
        entry(0, "x", "f", ""), entry(0, "y", None, '{"a"'), entry(0, "z", None, ": 1}"), entry(0, "w", None, "")
    ) == (call("f", {"a": 1}, '{"a": 1}', "x"),)


def test_a_name_behind_whole_arguments_on_the_same_index_is_a_new_call() -> None:
    assert assemble(
        entry(0, None, "f", '{"a": 1}'),
        entry(0, None, "f", " "),
        entry(0, None, "f", '{"a": 2}'),
        entry(0, "", "g", {}),
    ) == (call("f", {"a": 1}, '{"a": 1} '), call("f", {"a": 2}, '{"a": 2}'), call("g", {}, ""))


def test_new_name_behind_whole_arguments_is_a_new_call_with_any_id() -> None:
    assert assemble(entry(0, "x", "f", '{"a": 1}'), entry(0, "x", "g", '{"a"'), entry(0, "x", "g", ": 2}")) == (
        call("f", {"a": 1}, '{"a": 1}', "x"),
        call("g", {"a": 2}, '{"a": 2}', "x"),
    )


@pytest.mark.parametrize("call_id", ["x", None])
@pytest.mark.parametrize(
    "pieces",
    [
        [("get_", ""), ("time", ""), (None, "{}")],
        [("get_", "{"), ("time", "}")],
        [("get_", ""), ("get_time", ""), ("get_time", "{}")],
        [("get_time", "{"), ("get_time", "}")],
    ],
)
def test_name_may_come_in_pieces_or_cumulatively(call_id: str | None, pieces: list[tuple[str | None, str]]) -> None:
    """Gemini sends pieces, MiniMax repeats the name."""
    assert assemble(*(entry(0, call_id, *piece) for piece in pieces)) == (call("get_time", {}, "{}", call_id or ""),)


def test_pieces_behind_an_overlong_name_are_dropped() -> None:
    (whole_call,) = assemble(*(entry(0, "x", f"{number:04}", "") for number in range(1000)), entry(0, None, None, "{}"))
    assert (len(whole_call.name), whole_call.arguments) == (260, {})
    assert assemble(entry(0, "x", "f" * 300, "{}"))[0].name == "f" * 300


def test_name_repeated_with_new_ids_continues_the_arguments() -> None:
    pieces = ['{"a": ', '"{', '"}']
    whole_calls = assemble(*(entry(0, f"id{number}", "f", piece) for number, piece in enumerate(pieces)))
    assert whole_calls == (call("f", {"a": "{"}, '{"a": "{"}', "id0"),)


@pytest.mark.parametrize("name", ["f", None])
@pytest.mark.parametrize("index", [0, 1])
def test_arguments_repeated_whole_count_once(name: str | None, index: int) -> None:
    """Some servers repeat them in their last chunk."""
    whole = '{"a": 1}'
    first = [entry(index, "x", "f", ""), entry(index, None, None, '{"a"'), entry(index, None, None, ": 1}")]
    assert assemble(*first, entry(index, "x", name, whole)) == (call("f", {"a": 1}, whole, "x"),)
    (changed_call,) = assemble(*first, entry(index, "x", name, '{"a": 2}'))
    assert changed_call.arguments is None


@pytest.mark.parametrize("arguments", ['{"a": {"a": 1}}', '{"a": "x}{", "b": [1, 2]}'])
@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("is_named", [True, False])
def test_growing_arguments_in_each_piece_count_once(arguments: str, size: int, *, is_named: bool) -> None:
    """DeepSeek and Qianfan repeat them with each piece; some servers repeat the last one too."""
    pieces = [arguments[:end] for end in (*range(size, len(arguments), size), len(arguments), len(arguments))]
    rest = [entry(0, None, "f" if is_named else None, piece) for piece in pieces]
    (read,) = assemble(entry(0, "x", "f", ""), *rest)
    assert (read.arguments, read.raw) == (json.loads(arguments), arguments)


def test_piece_that_repeats_the_beginning_is_no_repetition() -> None:
    """It is the inner object of the same name."""
    (read,) = assemble(entry(0, "x", "f", '{"a":'), entry(0, None, None, '{"a":1}'), entry(0, None, None, "}"))
    assert read.arguments == {"a": {"a": 1}}
    (cut,) = assemble(entry(0, "x", "f", '{"a":'), entry(0, None, None, '{"b":1}'))
    assert cut.arguments is None


@pytest.mark.parametrize("times", [2, 3])
def test_arguments_repeated_in_a_text_count_once(times: int) -> None:
    assert assemble(entry(0, "x", "f", '{"a": 1}' * times)) == (call("f", {"a": 1}, '{"a": 1}', "x"),)
    (read,) = assemble(entry(0, "x", "f", '{"a": 1}' * times + '{"a": 2}'))
    assert read.arguments is None


def test_empty_input_before_the_arguments_is_ignored() -> None:
    assert assemble(entry(0, "x", "f", "{}"), entry(0, None, None, '{"a"'), entry(0, None, None, ": 1}")) == (
        call("f", {"a": 1}, '{"a": 1}', "x"),
    )
    assert assemble(entry(0, "x", "f", "{}")) == (call("f", {}, "{}", "x"),)


def test_name_repeated_with_every_piece_begins_no_call() -> None:
    for index in (0, None):
        assert assemble(
            entry(index, None, "f", '{"a": '), entry(index, None, "f", '"}"'), entry(index, None, "f", "}")
        ) == (call("f", {"a": "}"}, '{"a": "}"}'),)


def test_all_calls_may_come_in_a_single_delta() -> None:
    assert assemble([entry(0, "x", "f", "{}"), entry(1, "y", "g", '{"b": 2}')]) == (
        call("f", {}, "{}", "x"),
        call("g", {"b": 2}, '{"b": 2}', "y"),
    )


@pytest.mark.parametrize("indices", [(1, 2), (-1, 0), (0, 7), (5, 3), ("0", "1")])
def test_index_is_an_identifier_and_no_position(indices: tuple[JsonValue, JsonValue]) -> None:
    first, second = indices
    assert assemble(
        entry(first, "x", "f", "{"),
        entry(second, "y", "g", "{"),
        entry(first, None, None, "}"),
        entry(second, None, None, "}"),
    ) == (call("f", {}, "{}", "x"), call("g", {}, "{}", "y"))


def test_named_entry_without_an_index_is_a_call() -> None:
    """Also with the same id or none: ids are not unique."""
    assert assemble(
        [entry(None, "x", "f", "{}"), entry(None, "x", "f", "{}")],
        entry(None, None, "g", "{}"),
        entry(None, None, "g", "{}"),
    ) == (call("f", {}, "{}", "x"), call("f", {}, "{}", "x"), call("g", {}, "{}"), call("g", {}, "{}"))


def test_entry_without_index_name_and_new_id_continues_the_last_call() -> None:
    assert assemble(
        entry(None, "x", "f", '{"a"'),
        entry(None, "x", None, ": "),
        entry(None, None, None, "1}"),
        entry(None, "y", "g", "{}"),
    ) == (call("f", {"a": 1}, '{"a": 1}', "x"), call("g", {}, "{}", "y"))


def test_id_selects_the_call_without_an_index_and_a_name() -> None:
    assert assemble(
        [entry(None, "x", "f", "{"), entry(None, "y", "g", "{")],
        [entry(None, "x", None, "}"), entry(None, "y", None, "}")],
    ) == (call("f", {}, "{}", "x"), call("g", {}, "{}", "y"))


def test_repeated_name_without_an_index_continues_open_arguments() -> None:
    assert assemble(entry(None, "x", "f", '{"a"'), entry(None, "x", "f", ": 1}"), entry(None, "x", "f", "{}")) == (
        call("f", {"a": 1}, '{"a": 1}', "x"),
        call("f", {}, "{}", "x"),
    )


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ([""], ["", '{"a": 1}']),
        ([None, ""], ['{"a"', ": 1}"]),
        (['{"a": 1}'], [None, "", " "]),
        (['{"a"', ": 1}"], [None]),
    ],
)
@pytest.mark.parametrize("index", [0, None])
def test_repeated_id_and_name_begin_no_call(first: list[JsonValue], then: list[JsonValue], index: JsonValue) -> None:
    """Also before the arguments and behind them; only arguments behind whole ones are another call's."""
    (whole_call,) = assemble(*(entry(index, "x", "f", arguments) for arguments in [*first, *then]))
    assert (whole_call.id, whole_call.name, whole_call.arguments) == ("x", "f", {"a": 1})


@pytest.mark.parametrize("pieces", [["", "", '{"a": 1}'], ["", '{"a"', ": 1}", ""], ['{"a": 1}', None, " "]])
def test_repeated_name_continues_a_call_with_an_id(pieces: list[JsonValue]) -> None:
    """Servers give an id to each call, or to none, so one without an index and an id is no other call's."""
    first, *rest = (entry(None, None, "f", piece) for piece in pieces)
    assert assemble({**first, "id": "x"}, *rest, entry(None, None, "f", "{}"), entry(None, "y", "f", "")) == (
        call("f", {"a": 1}, "".join(map(str, filter(None, pieces))), "x"),
        call("f", {}, "{}"),
        call("f", {}, "", "y"),
    )


@pytest.mark.parametrize("index", [0, None])
@pytest.mark.parametrize("has_name", [True, False])
def test_id_selects_the_continued_call_of_two(index: JsonValue, *, has_name: bool) -> None:
    """Whether or not the name comes with every piece, and though both calls have the same index."""
    ids = [("x", "f"), ("y", "g")]
    begun = [entry(index, call_id, name, "") for call_id, name in ids]
    rest = [
        entry(index, call_id, name if has_name else None, piece) for piece in ('{"a":', "1}") for call_id, name in ids
    ]
    assert assemble(*begun, *rest) == (call("f", {"a": 1}, '{"a":1}', "x"), call("g", {"a": 1}, '{"a":1}', "y"))


def test_the_name_may_come_behind_the_id() -> None:
    assert assemble(entry(None, "x", None, '{"a"'), entry(None, "x", "f", ": 1}")) == (
        call("f", {"a": 1}, '{"a": 1}', "x"),
    )


def test_an_index_may_come_behind_the_call_or_change() -> None:
    late = assemble(entry(None, "x", "f", ""), entry(0, None, None, "{"), entry(0, None, None, "}"))
    changed = assemble(entry(0, "x", "f", ""), entry(1, "x", None, "{"), entry(2, "x", None, "}"))
    assert late == changed == (call("f", {}, "{}", "x"),)


def test_the_indices_of_a_call_are_counted() -> None:
    with pytest.raises(TooLargeError):
        CallAssembler(Meter(10_000)).add([entry(index, "x", "f" if index == 0 else None) for index in range(1000)])


@given(
    value=st.dictionaries(st.text('{}"\\a'), st.text('{}"\\a') | st.lists(st.booleans()), min_size=1),
    cuts=st.lists(st.integers(0, 40)),
    extra_pieces=st.lists(st.sampled_from(["", " ", "}", "{", '"', "\\"]), max_size=2),
)
def test_a_name_begins_a_call_only_behind_whole_arguments(
    value: dict[str, JsonValue], cuts: list[int], extra_pieces: list[str]
) -> None:
    raw = json.dumps(value) + "".join(extra_pieces)
    edges = sorted({min(place, len(raw)) for place in cuts} | {0, len(raw)})
    pieces = [raw[start:end] for start, end in pairwise(edges)]
    calls = assemble(*(entry(0, None, "f", piece) for piece in pieces), entry(0, None, "f", "{}"))
    parts: list[list[str]] = [[]]
    whole = False
    for piece in [*pieces, "{}"]:
        if piece.strip() and whole:
            parts.append([])
        parts[-1].append(piece)
        whole = whole_object("".join(parts[-1])) is not None
    assert [call.raw for call in calls] == list(map(_join, parts))


def _join(pieces: list[str]) -> str:
    """Return arguments that came in pieces, or the last piece if each repeats those before it, as some servers do."""
    text = "".join(pieces)
    grow = all(after.startswith(before) for before, after in pairwise(filter(None, pieces)))
    return pieces[-1] if grow and whole_object(text) is None and whole_object(pieces[-1]) is not None else text


def test_a_call_needs_no_id() -> None:
    assert assemble(entry(0, None, "f", "{}")) == (call("f", {}, "{}"),)


@pytest.mark.parametrize("arguments", ["", None, {}, []])
def test_no_arguments_are_an_empty_object(arguments: JsonValue) -> None:
    assert assemble(entry(0, "x", "f", arguments)) == (call("f", {}, "", "x"),)


def test_arguments_may_be_an_object() -> None:
    assert assemble(entry(0, "x", "f", {"a": ["é"]})) == (call("f", {"a": ["é"]}, '{"a": ["é"]}', "x"),)


def test_cut_off_arguments_are_kept_as_text_only() -> None:
    assert assemble(entry(0, "x", "f", '{"a": "b')) == (call("f", None, '{"a": "b', "x"),)


def test_malformed_entry_is_skipped() -> None:
    odd: list[JsonValue] = [None, 1, "x", [], {}, {"function": "f"}, {"index": 3, "id": "", "function": None}]
    assert (
        assemble([*odd, {"index": [], "id": {}, "function": {"name": []}}, {"id": "x", "extra_content": {"a": 1}}])
        == ()
    )


class TestExtraContent:
    SIGNED: Final[Entry] = {"google": {"thought_signature": "c2ln"}}

    def extras(self, *entries: Entry) -> list[tuple[JsonValue, JsonValue]]:
        """The number of the call and what belongs to it."""
        assembler = CallAssembler(Meter())
        assembler.add([*entries])
        assert all(extra["type"] == "extra_content" for extra in assembler.extras())
        return [(extra["call"], extra["extra_content"]) for extra in assembler.extras()]

    def test_extra_content_is_kept_with_the_call_number(self) -> None:
        empty = entry(3, "gone", "", "")
        second = entry(None, "y", "g", "{}", extra_content=self.SIGNED)
        assert self.extras(empty, entry(None, "x", "f", "{}"), second) == [(1, self.SIGNED)]

    def test_first_non_empty_extra_content_stays(self) -> None:
        odd: list[JsonValue] = [None, {}, "x", self.SIGNED, {"google": {"thought_signature": "other"}}]
        assert self.extras(*(entry(0, "x", "f", extra_content=extra) for extra in odd)) == [(0, self.SIGNED)]

    def test_extra_content_may_come_alone_behind_the_call(self) -> None:
        assert self.extras(entry(None, "x", "f", "{}"), {"extra_content": self.SIGNED}) == [(0, self.SIGNED)]

    def test_extra_content_is_counted(self) -> None:
        with pytest.raises(TooLargeError):
            CallAssembler(Meter(1000)).add([entry(0, "x", "f", extra_content={"a": "x" * 1000})])


def test_the_deprecated_function_call_is_understood() -> None:
    assembler = CallAssembler(Meter())
    assembler.add_function_call({"name": "f", "arguments": ""})
    assembler.add_function_call({"arguments": "{}"})
    assert assembler.calls() == (call("f", {}, "{}"),)


def test_function_call_repeated_in_tool_calls_counts_once() -> None:
    assembler = CallAssembler(Meter())
    assembler.add_function_call({"name": "f", "arguments": "{}"})
    assembler.add([entry(0, "x", "f", "{}")])
    assert assembler.calls() == (call("f", {}, "{}", "x"),)


def test_arguments_are_bounded() -> None:
    assembler = CallAssembler(Meter(), max_arguments=8)
    assembler.add([entry(0, "x", "f", "12345678")])
    with pytest.raises(TooLargeError, match="arguments of a call are longer than 8 characters"):
        assembler.add([entry(0, "x", "f", "9")])


@pytest.mark.parametrize("index", [None, "own"])
def test_a_reply_asks_for_a_bounded_number_of_calls(index: str | None) -> None:
    entries = [entry(number if index else None, str(number), "f", "{}") for number in range(MAX_CALLS + 1)]
    assembler = CallAssembler(Meter())
    assembler.add(entries[:MAX_CALLS])
    with pytest.raises(TooLargeError, match="asks for more than 512 calls"):
        assembler.add(entries[MAX_CALLS:])
    assert len(assembler.calls()) == MAX_CALLS


def test_memory_of_calls_is_bounded() -> None:
    assembler = CallAssembler(Meter(10_000))
    with pytest.raises(TooLargeError, match="longer than 10,000 characters"):
        assembler.add([entry(None, None, "f", None)] * 1000)


def test_dropped_ids_are_not_remembered() -> None:
    assembler = CallAssembler(Meter(10_000))
    assembler.add([entry(0, "x", "f", "{")])
    assembler.add([entry(0, f"{number}" * 1000, None, " ") for number in range(1000)])
    assert [call.id for call in assembler.calls()] == ["x"]
