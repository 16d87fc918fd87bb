"""Values as Python source: what is evaluated is what was written, and people can read it."""

import datetime as dt
import math
import re
import time
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright import Agent, Answer, FinishedCall, Limits, Message, Outcome, Price, ToolCallLimits, approve, reject
from turnwright.message import AnyPart, StepStartPart, TextPart, ToolCallPart
from turnwright.model import ModelError, ModelResponse, ResponseToolCall, asks_for
from turnwright_states import CallStatus, Cause, Decision, EndReason, Finish, InterruptKind, State, Usage
from turnwright_testing import At, Recorded, Stalls
from turnwright_testing.python_source import Imports, PythonSource, code

texts = st.text(st.characters(codec=None), max_size=60) | st.sampled_from(
    [
        "",
        "'",
        '"',
        "'\"",
        '"""',
        "\\",
        "\\'",
        "a\nb\r\n\tc\x00\x7f",
        "{x} %s",
        "\ud800 half",
        "\u202e\u2028",
        "naïve 漢 🙂",
    ]
)
numbers = st.integers() | st.floats(allow_nan=False)
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)
usages = st.builds(Usage, input_tokens=st.integers(0, 9), output_tokens=st.integers(0, 9), cost=st.floats(0, 1))
calls = st.builds(ResponseToolCall, texts, objects | st.none(), texts, texts)
replies = st.builds(
    ModelResponse, texts, texts, st.lists(objects, max_size=2).map(tuple), st.lists(calls, max_size=3).map(tuple),
    st.sampled_from(Finish), usages | st.none(),
)  # fmt: skip
limits = st.builds(
    Limits,
    steps=st.none() | st.integers(0, 9),
    seconds=st.none() | st.floats(0.1, 9),
    doom_compare=st.sampled_from(("results", "calls")),
    doom_response=st.sampled_from(["ask", "stop"]),
    tool_calls=st.none() | st.just(50),
)
agents = st.builds(
    lambda fields: Agent.model_validate({"name": "Anybody", **fields}),
    st.fixed_dictionaries(
        {},
        optional={
            "steps": st.none() | st.integers(0, 9),
            "budget": st.none() | st.just(5) | st.builds(Limits, tokens=st.none() | st.just(9)),
            "instructions": st.just("Do\n\n`this`."),
            "tools": st.just(("a", "b")),
        },
    ),
)
enums = st.sampled_from([*Outcome, *State, *EndReason, *Cause, *CallStatus, *Decision, *InterruptKind])
values: st.SearchStrategy[object] = st.one_of(
    json_values,
    st.lists(json_values).map(tuple),
    enums,
    usages,
    replies,
    limits,
    agents,
    st.builds(Price, st.floats(0, 9), st.floats(0, 9)),
    st.builds(FinishedCall, texts, objects, st.sampled_from(CallStatus), texts),
    st.builds(Answer, st.sampled_from(Decision), texts),
    st.builds(Message.assistant, texts, st.lists(
        st.builds(ToolCallPart, id=texts, name=texts, arguments=objects), max_size=2)),
    st.builds(At, st.integers(0, 9), st.just("crash"), st.integers(1, 3)),
)  # fmt: skip


def evaluated(value: object) -> object:
    """Evaluate the source of a value with nothing but its own imports."""
    imports = Imports()
    source = code(value, imports)
    names: dict[str, object] = {}
    exec("\n".join(imports.lines()), names)  # noqa: S102 (that it runs is the point)
    return eval(source, names)  # noqa: S307 (likewise)


def written(value: object, **place: int) -> str:
    return code(value, Imports(), **place)


@given(value=st.lists(values, max_size=3))
def test_evaluated_source_equals_the_value(value: list[object]) -> None:
    copy = evaluated(value)
    assert copy == value
    assert isinstance(copy, list)
    assert [type(item) for item in copy] == [type(item) for item in value]


@given(value=values, indent=st.sampled_from([0, 4, 8]))
def test_no_line_is_too_long_for_a_linter(value: object, indent: int) -> None:
    """Texts of any kind are split; only a very long number exceeds the limit."""
    lines = written(value, indent=indent).splitlines()
    assert [line for line in lines if len(line) > 120 and not re.search(r"0x[0-9a-f]{60}|\d{60}", line)] == []


@given(cause=st.sampled_from(Cause), text=texts, status=st.none() | st.just(503), partial=st.none() | replies)
def test_error_survives_with_all_fields(
    cause: Cause, text: str, status: int | None, partial: ModelResponse | None
) -> None:
    error = ModelError(text, cause=cause, status=status, retry_after=1.5, partial=partial)
    copy = evaluated(error)
    assert isinstance(copy, ModelError)
    assert (str(copy), copy.cause, copy.status, copy.retry_after, copy.partial) == (text, cause, status, 1.5, partial)


def test_nesting_beyond_the_parser_limit_survives() -> None:
    value: JsonValue = "deep"
    for _ in range(400):
        value = [value]
    assert evaluated(value) == value


def test_infinite_and_nan_numbers_survive() -> None:
    assert evaluated([math.inf, -math.inf]) == [math.inf, -math.inf]
    nan = evaluated(math.nan)
    assert isinstance(nan, float)
    assert math.isnan(nan)


def test_defaults_are_left_out() -> None:
    assert written(Limits(steps=2, tool_calls=ToolCallLimits())) == "Limits(steps=2)"
    assert written(Usage(input_tokens=3)) == "Usage(input_tokens=3)"
    assert written(Recorded("a", attempt=1)) == 'Recorded("a")'
    assert written(Stalls(seconds=0.5)) == "Stalls(seconds=0.5)"


def test_explicit_default_of_an_agent_is_kept() -> None:
    """There `None` is a limit that is off, and no limit is the engine's."""
    assert written(Agent(name="a", steps=None)) == 'Agent(name="a", steps=None)'
    assert written(Agent(name="a", budget=Limits(tokens=None))) == 'Agent(name="a", budget=Limits(tokens=None))'


def test_replies_are_written_as_asks_for() -> None:
    assert written(asks_for(("f", {"a": 1}), ("g", {}))) == 'asks_for(("f", {"a": 1}), ("g", {}))'
    assert written(asks_for(ResponseToolCall("f", None, '{"a'), text="So")) == (
        """asks_for(ResponseToolCall("f", None, raw='{"a'), text="So")"""
    )
    assert written(ModelResponse(text="Done.")) == 'ModelResponse(text="Done.")'
    assert written(ModelError("slow", cause=Cause.TIMEOUT)) == 'ModelError("slow", cause=Cause.TIMEOUT)'
    assert written([reject("no"), reject(), approve()]) == '[reject("no"), reject(), approve()]'


def test_overlong_expression_is_split_by_item() -> None:
    reply = asks_for(("write", {"path": "x" * 20, "more": [1, 2], "text": "y" * 20}), ("read", {}))
    assert (
        written(reply, indent=4, before=7)
        == f"""asks_for(
        ("write", {{"path": "{"x" * 20}", "more": [1, 2], "text": "{"y" * 20}"}}),
        ("read", {{}}),
    )"""
    )


def test_long_text_is_split_at_lines_and_words() -> None:
    """The brackets of a call or a list serve its literals too; those of a tuple would make one text of it."""
    text = "first\n" + "a word " * 15 + "\nlast"
    cut = """(
    "first\\n"
    "a word a word a word a word a word a word a word a word a word a word a word a word a word a "
    "word a word \\n"
    "last"
)"""
    assert written(text) == cut
    assert written(reject(text)) == f"reject{cut}"
    assert written((text,)).startswith('(\n    (\n        "first\\n"\n')
    assert [evaluated(answer) for answer in (text, reject(text), (text,))] == [text, reject(text), (text,)]


def test_number_too_long_for_python_survives() -> None:
    """Python refuses to read and to write decimals of more than 4,300 digits."""
    assert evaluated(-(10**5_000)) == -(10**5_000)


def test_source_value_is_inserted_unchanged() -> None:
    assert written({"a": [PythonSource("NAME")]}) == '{"a": [NAME]}'


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", len, Limits])
def test_unwritable_value_is_refused_by_type(value: object) -> None:
    with pytest.raises(TypeError, match=f"cannot write {type(value).__name__} as source"):
        written([value])


def test_imports_use_public_modules_in_linter_order() -> None:
    imports = Imports()
    nested: JsonValue = []
    for _ in range(20):
        nested = [nested]
    code([Outcome.FAILED, asks_for(("f", {})), Cause.CRASH, ModelResponse(), At(1, "crash"), Limits(), nested], imports)
    code(Message(role="user", parts=(StepStartPart(step_number=1), TextPart(text="a"))), imports)
    assert imports.lines() == [
        "import json",
        "",
        "from turnwright import Limits, Message, Outcome",
        "from turnwright.message import StepStartPart, TextPart",
        "from turnwright.model import ModelResponse, asks_for",
        "from turnwright_states import Cause",
        "from turnwright_testing import At",
    ]


def test_long_import_takes_several_lines() -> None:
    imports = Imports()
    for part in get_args(get_args(AnyPart)[0]):
        imports.name(part)
    assert imports.lines() == [
        "from turnwright import FilePart",
        "from turnwright.message import (",
        "    ReasoningPart,",
        "    SentinelPart,",
        "    StepFinishPart,",
        "    StepStartPart,",
        "    TextPart,",
        "    ToolCallPart,",
        "    ToolResultPart,",
        ")",
    ]


def test_names_of_two_objects_do_not_collide() -> None:
    """The second is called by its module."""
    imports = Imports()
    assert (imports.name(dt.time), imports.name(time.time)) == ("time", "time.time")
    assert imports.lines() == ["import time", "from datetime import time"]
