"""The call of an input's class checks its fields, and an input that is made without that equals the checked one."""

import copy
import pickle
from math import inf, nan
from typing import Final

import msgspec
import pytest

from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    CallQuestion,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    Cause,
    CompactedInput,
    ConcludedInput,
    Decision,
    ExpireInput,
    FailInput,
    Finish,
    GivenResult,
    Input,
    InterruptKind,
    InvalidInputError,
    Limits,
    ModelRepliedInput,
    OversizedInput,
    RequestPreparedInput,
    ReviewedInput,
    Spent,
    StartedInput,
    SteeredInput,
    SynthesizedInput,
    ToolCall,
    TrippedInput,
    Usage,
)
from turnwright_states.construct import Checked, construct_unchecked
from turnwright_states.inputs import StopInput

SPENT: Final = Spent(calls=1, tokens=2, cost=0.5)
USAGE: Final = Usage(input_tokens=3, output_tokens=4, cost=0.25)
CALL: Final = ToolCall(name="look", arguments={"path": "a.py"}, provider_id="c1")
#: One of each kind, with a value for some of its fields, of which none is the default.
ONES: Final[tuple[Checked, ...]] = (
    CALL,
    StartedInput(
        prompt="Tidy.", limits=Limits(steps=2), agent={"name": "Tidier"}, files=({"media_type": "a/b"},), depth=1
    ),
    ModelRepliedInput(text="Let me look.", calls=(CALL,), finish=Finish.LENGTH, usage=USAGE, elapsed=1.5),
    AttemptFailedInput(cause=Cause.TIMEOUT, message="slow", usage=USAGE, wait=0.5, elapsed=1.5),
    CallStartedInput(call="call00001", child="t:call00001", elapsed=1.5),
    CallSettledInput(call="call00001", status=CallStatus.ERROR, structured={"n": [1]}, spent=SPENT, elapsed=1.5),
    CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.QUESTION, choices=("a", "b"), elapsed=1.5),
    CallQuestion(interrupt_kind=InterruptKind.QUESTION, choices=("a", "b")),
    GivenResult(text="17", structured={"n": [1]}),
    SynthesizedInput(text="x", elapsed=1.5),
    AnsweredInput(interrupt="question-1", decision=Decision.REPLY, text="a", elapsed=1.5),
    SteeredInput(text="Mind the tests.", undelivered=("one",), elapsed=1.5),
    ConcludedInput(text="Done.", calls=(CALL,), usage=USAGE, elapsed=1.5),
    ExpireInput(partial="Well", spent={"call00001": SPENT}, usage=USAGE, elapsed=1.5),
    AbortInput(partial="Well", spent={"call00001": SPENT}, elapsed=1.5),
    FailInput(error="RuntimeError", elapsed=1.5),
    RequestPreparedInput(instructions="Be brief.", tools=("look",), settings={"seed": 1}, append=("a",), elapsed=1.5),
    ReviewedInput(answer="call00001", output={"n": [1]}, decisions=({"hook": "h"},), elapsed=1.5),
    OversizedInput(tokens=9, elapsed=1.5),
    CompactedInput(text="Tidied.", kept=3, usage=USAGE, elapsed=1.5),
    TrippedInput(guardrail="g", message="no", metadata={"n": 1}, spent={"call00001": SPENT}, usage=USAGE, elapsed=1.5),
)


EACH: Final = pytest.mark.parametrize("checked", ONES, ids=lambda checked: type(checked).__name__)


def kinds(base: type[Checked]) -> set[type[Checked]]:
    return {base}.union(*map(kinds, base.__subclasses__()))


def test_examples_cover_every_input_class() -> None:
    ours = {kind for kind in kinds(Checked) if kind.__module__ == Input.__module__}
    assert {type(checked) for checked in ONES} == ours - {Input, StopInput}


@EACH
def test_checked_and_unchecked_construction_give_equal_inputs(checked: Checked) -> None:
    """A copy and what was pickled are no less."""
    fields = msgspec.structs.asdict(checked)
    arguments = {
        field.name: fields[field.name]
        for field in msgspec.structs.fields(checked)
        if fields[field.name] != field.default
    }
    unchecked = construct_unchecked(type(checked), **arguments)
    assert unchecked == checked
    assert repr(unchecked) == repr(checked)
    assert copy.copy(unchecked) == copy.deepcopy(unchecked) == checked
    assert pickle.loads(pickle.dumps(unchecked)) == checked  # noqa: S301 (our own bytes)
    assert type(checked)(**fields) == checked


@EACH
def test_input_is_frozen(checked: Checked) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        setattr(checked, type(checked).__struct_fields__[0], None)


@EACH
def test_each_field_refuses_a_value_of_the_wrong_type(checked: Checked) -> None:
    fields = msgspec.structs.asdict(checked)
    for name in fields:
        with pytest.raises(InvalidInputError, match=rf"^{type(checked).__name__}: {name}: ") as caught:
            type(checked)(**{**fields, name: object()})
        assert caught.value.event == type(checked).__name__
        assert caught.value.why.startswith(f"{name}: ")


@EACH
def test_each_field_of_json_is_known(checked: Checked) -> None:
    """msgspec looks into every other one."""
    deep = {field.name for field in msgspec.structs.fields(checked) if "Any" in repr(field.type)}
    assert {*type(checked).json_fields} == deep


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [
        (OversizedInput, {"tokens": -1}, "tokens: Expected `int` >= 0"),
        (SynthesizedInput, {"elapsed": -0.5}, "elapsed: Expected `float` >= 0.0"),
        (SynthesizedInput, {"elapsed": inf}, "elapsed: Expected `float` <= "),
        (AttemptFailedInput, {"cause": "timeout", "wait": nan}, "wait: Expected `float` >= 0.0"),
        (AttemptFailedInput, {"cause": "boredom"}, "cause: Invalid enum value 'boredom'"),
        (StartedInput, {}, "prompt: Object missing required field `prompt`"),
        (StartedInput, {"prompt": "x", "promt": "x"}, "promt: Object contains unknown field `promt`"),
        (StartedInput, {"prompt": "x", "forked_at": 0}, "forked_at: Expected `int` >= 1"),
        (ModelRepliedInput, {"calls": (CALL,) * 513}, "calls: Expected `array` of length <= 512"),
        (
            ModelRepliedInput,
            {"calls": [{"name": "f", "arguments": {"a": ()}}]},
            "calls.0.arguments.a: input was not a valid JSON",
        ),
        (
            ConcludedInput,
            {"calls": (CALL, {"name": "f", "arguments": {"a": ()}})},
            "calls.1.arguments.a: input was not",
        ),
        (ToolCall, {"name": "f", "arguments": {1: 2}}, "arguments: Expected `str` as a key, got `int`"),
        (
            ModelRepliedInput,
            {"calls": [{"name": "f", "arguments": {1: 2}}]},
            "calls.0.arguments: Expected `str` as a key, got `int`",
        ),
        (ModelRepliedInput, {"usage": {"input_tokens": -1}}, "usage.input_tokens: Expected `int` >= 0"),
        (ToolCall, {"name": "f", "arguments": {"a": [{"b": {1}}]}}, "arguments.a.0.b: input was not a valid JSON"),
        (CallSettledInput, {"call": "c", "files": [{}, {"a": b""}]}, "files.1.a: input was not a valid JSON"),
        (AbortInput, {"reason": "answered"}, "reason: nobody aborts a turn for answered"),
    ],
)
def test_wrong_value_is_refused_with_an_explanation(kind: type[Checked], fields: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        kind(**fields)
    assert str(caught.value).startswith(f"{kind.__name__}: {why}")
    assert isinstance(caught.value, ValueError)


def test_positional_field_is_refused_with_the_field_names() -> None:
    with pytest.raises(TypeError, match=r"^OversizedInput takes its fields by name: elapsed, undelivered, tokens$"):
        OversizedInput(1)  # type: ignore[call-arg]  # so is it for a type checker


def test_convertible_values_are_converted() -> None:
    replied = ModelRepliedInput(calls=[{"name": "look"}], finish="stop", elapsed=1)  # type: ignore[arg-type]
    assert replied == ModelRepliedInput(calls=(ToolCall(name="look"),), elapsed=1.0)
    assert (type(replied.elapsed), replied.finish) == (float, Finish.STOP)


class Markup(str):
    """A text as template engines have it."""

    __slots__ = ()


def test_subclass_of_str_becomes_a_plain_str() -> None:
    """msgspec does not encode it."""
    started = StartedInput(prompt=Markup("hi"), session=Finish.STOP, undelivered=(Markup("a"), "b"))
    texts = [started.prompt, started.session, *started.undelivered]
    assert (texts, {*map(type, texts)}) == (["hi", "stop", "a", "b"], {str})


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    waiting = CallWaitingInput(call="c", interrupt_kind=InterruptKind.GRANT, grant="a\ud800", forwarded="\udfffb")
    assert (ToolCall(name="\ud800x").name, waiting.grant, waiting.forwarded) == ("?x", "a?", "?b")


def test_checked_input_shares_no_json_with_the_caller() -> None:
    mine = {"path": ["a"]}
    call = ToolCall(name="look", arguments=mine)  # type: ignore[arg-type]  # a list is invariant
    mine["path"].append("b")
    assert call.arguments == {"path": ["a"]}


def test_default_values_are_not_shared() -> None:
    first, second = construct_unchecked(StartedInput, prompt="x"), construct_unchecked(StartedInput, prompt="x")
    assert (first.agent, first.limits) == ({}, Limits())
    assert first.agent is not second.agent


def test_unchecked_construction_checks_no_value() -> None:
    """So it is for values that were looked at before."""
    assert construct_unchecked(OversizedInput, tokens=-1).tokens == -1
