import pytest
from pydantic import JsonValue

from turnwright.model.openai_calls import CallAssembler
from turnwright.model.pieces import Meter, TooLarge
from turnwright.model.protocol import ReplyCall

Entry = dict[str, JsonValue]


def entry(
    index: JsonValue = None, call_id: JsonValue = None, name: JsonValue = None, arguments: JsonValue = None
) -> Entry:
    function: Entry = {"name": name, "arguments": arguments}
    return {"index": index, "id": call_id, "function": function}


def assemble(*deltas: Entry | list[JsonValue]) -> tuple[ReplyCall, ...]:
    """Put the calls together; each delta is an entry or a list of them."""
    assembler = CallAssembler(Meter())
    for delta in deltas:
        assembler.add(delta if isinstance(delta, list) else [delta])
    return assembler.calls()


def call(name: str, arguments: dict[str, JsonValue] | None, raw: str, call_id: str = "") -> ReplyCall:
    return ReplyCall(name=name, arguments=arguments, raw=raw, id=call_id)


def test_arguments_come_in_pieces() -> None:
    assert assemble(entry(0, "x", "f", ""), entry(0, None, None, '{"a"'), entry(0, "", "", ": 1}")) == (
        call("f", {"a": 1}, '{"a": 1}', "x"),
    )


def test_id_and_name_are_set_once_by_the_first_that_is_not_empty() -> None:
    assert assemble(
        entry(0, "", None, ""), entry(0, "x", "f", "{"), entry(0, "x", "f", "}"), entry(0, None, "", None)
    ) == (call("f", {}, "{}", "x"),)


def test_a_new_id_on_the_same_index_is_a_new_call() -> None:
    assert assemble(
        entry(0, "x", "f", '{"a":'), entry(0, None, None, "1}"), entry(0, "y", "f", "{"), entry(0, "y", None, "}")
    ) == (call("f", {"a": 1}, '{"a":1}', "x"), call("f", {}, "{}", "y"))


def test_all_calls_may_come_in_one_delta() -> None:
    assert assemble([entry(0, "x", "f", "{}"), entry(1, "y", "g", '{"b": 2}')]) == (
        call("f", {}, "{}", "x"),
        call("g", {"b": 2}, '{"b": 2}', "y"),
    )


@pytest.mark.parametrize("indices", [(1, 2), (-1, 0), (0, 7), (5, 3), ("0", "1")])
def test_an_index_is_a_name_and_no_position(indices: tuple[JsonValue, JsonValue]) -> None:
    first, second = indices
    assert assemble(
        entry(first, "x", "f", "{"),
        entry(second, "y", "g", "{"),
        entry(first, None, None, "}"),
        entry(second, None, None, "}"),
    ) == (call("f", {}, "{}", "x"), call("g", {}, "{}", "y"))


def test_without_an_index_each_entry_with_a_name_is_a_call() -> None:
    """Also with the same id or none: ids are not unique."""
    assert assemble(
        [entry(None, "x", "f", "{}"), entry(None, "x", "f", "{}")],
        entry(None, None, "g", "{}"),
        entry(None, None, "g", "{}"),
    ) == (call("f", {}, "{}", "x"), call("f", {}, "{}", "x"), call("g", {}, "{}"), call("g", {}, "{}"))


def test_without_an_index_name_and_new_id_an_entry_goes_on_with_the_last_call() -> None:
    assert assemble(
        entry(None, "x", "f", '{"a"'),
        entry(None, "x", None, ": "),
        entry(None, None, None, "1}"),
        entry(None, "y", "g", "{}"),
    ) == (call("f", {"a": 1}, '{"a": 1}', "x"), call("g", {}, "{}", "y"))


def test_without_an_index_a_repeated_name_goes_on_while_the_arguments_are_open() -> None:
    assert assemble(entry(None, "x", "f", '{"a"'), entry(None, "x", "f", ": 1}"), entry(None, "x", "f", "{}")) == (
        call("f", {"a": 1}, '{"a": 1}', "x"),
        call("f", {}, "{}", "x"),
    )


def test_a_call_needs_no_id() -> None:
    assert assemble(entry(0, None, "f", "{}")) == (call("f", {}, "{}"),)


@pytest.mark.parametrize("arguments", ["", None, {}, []])
def test_no_arguments_are_an_empty_object(arguments: JsonValue) -> None:
    assert assemble(entry(0, "x", "f", arguments)) == (call("f", {}, "", "x"),)


def test_arguments_may_be_an_object() -> None:
    assert assemble(entry(0, "x", "f", {"a": ["é"]})) == (call("f", {"a": ["é"]}, '{"a": ["é"]}', "x"),)


def test_arguments_that_were_cut_off_are_kept_as_text_only() -> None:
    assert assemble(entry(0, "x", "f", '{"a": "b')) == (call("f", None, '{"a": "b', "x"),)


def test_what_is_no_call_is_skipped() -> None:
    assert assemble([None, 1, "x", [], {}, {"function": "f"}, {"index": 3, "id": "", "function": None}]) == ()


def test_the_deprecated_function_call_is_understood() -> None:
    assembler = CallAssembler(Meter())
    assembler.add_function_call({"name": "f", "arguments": ""})
    assembler.add_function_call({"arguments": "{}"})
    assert assembler.calls() == (call("f", {}, "{}"),)


def test_a_function_call_beside_tool_calls_repeats_them() -> None:
    assembler = CallAssembler(Meter())
    assembler.add_function_call({"name": "f", "arguments": "{}"})
    assembler.add([entry(0, "x", "f", "{}")])
    assert assembler.calls() == (call("f", {}, "{}", "x"),)


def test_arguments_are_bounded() -> None:
    assembler = CallAssembler(Meter(), max_arguments=8)
    assembler.add([entry(0, "x", "f", "12345678")])
    with pytest.raises(TooLarge, match="arguments of a call are longer than 8 characters"):
        assembler.add([entry(0, "x", "f", "9")])


def test_the_number_of_calls_is_bounded() -> None:
    assembler = CallAssembler(Meter(10_000))
    with pytest.raises(TooLarge, match="longer than 10,000 characters"):
        assembler.add([entry(None, None, "f", None)] * 1000)
