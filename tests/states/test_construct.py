"""A value that is made without validation equals the validated one."""

import copy
import pickle
from typing import Final

import pytest

from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
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
    Input,
    InterruptKind,
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
from turnwright_states.construct import construct_unchecked
from turnwright_states.inputs import Frozen, StopInput

SPENT: Final = Spent(calls=1, tokens=2, cost=0.5)
USAGE: Final = Usage(input_tokens=3, output_tokens=4, cost=0.25)
CALL: Final = ToolCall(name="look", arguments={"path": "a.py"}, provider_id="c1")
#: One of each kind, with a value for some of its fields, of which none is the default.
ONES: Final[tuple[Frozen | Limits, ...]] = (
    CALL,
    Limits(steps=3, cost=1.5),
    StartedInput(
        prompt="Tidy.", limits=Limits(steps=2), agent={"name": "Tidier"}, files=({"media_type": "a/b"},), depth=1
    ),
    ModelRepliedInput(text="Let me look.", calls=(CALL,), finish=Finish.LENGTH, usage=USAGE, elapsed=1.5),
    AttemptFailedInput(cause=Cause.TIMEOUT, message="slow", usage=USAGE, wait=0.5, elapsed=1.5),
    CallStartedInput(call="call00001", child="t:call00001", elapsed=1.5),
    CallSettledInput(call="call00001", status=CallStatus.ERROR, structured={"n": [1]}, spent=SPENT, elapsed=1.5),
    CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.QUESTION, choices=("a", "b"), elapsed=1.5),
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


def kinds(base: type[Frozen]) -> set[type[Frozen]]:
    return {base}.union(*map(kinds, base.__subclasses__()))


def test_one_of_each_kind_is_looked_at() -> None:
    ours = {kind for kind in kinds(Frozen) if kind.__module__ == Frozen.__module__}
    assert {type(one) for one in ONES} == ours - {Frozen, Input, StopInput} | {Limits}


@pytest.mark.parametrize("checked", ONES, ids=lambda one: type(one).__name__)
def test_both_ways_make_the_same(checked: Frozen | Limits) -> None:
    """Equal, of the same fields in the same order, the same as text; a copy and what was pickled are no less."""
    given = {name: value for name, value in checked if name in checked.model_fields_set}
    unchecked = construct_unchecked(type(checked), **given)
    assert unchecked == checked
    assert repr(unchecked) == repr(checked)
    assert unchecked.model_dump() == checked.model_dump()
    assert unchecked.model_dump_json() == checked.model_dump_json()
    assert unchecked.model_dump_json(exclude_defaults=True) == checked.model_dump_json(exclude_defaults=True)
    assert unchecked.model_copy() == copy.copy(unchecked) == copy.deepcopy(unchecked) == checked
    assert pickle.loads(pickle.dumps(unchecked)) == checked  # noqa: S301 (our own bytes)
    assert type(checked).model_validate(dict(unchecked)) == checked


@pytest.mark.parametrize("checked", ONES, ids=lambda one: type(one).__name__)
def test_a_change_in_a_copy_leaves_the_others_alone(checked: Frozen | Limits) -> None:
    name = next(iter(type(checked).model_fields))
    unchecked = construct_unchecked(type(checked), **dict(checked))
    changed = unchecked.model_copy(update={name: None})
    assert getattr(changed, name) is None
    assert unchecked == checked == construct_unchecked(type(checked), **dict(checked))


def test_it_is_as_frozen_as_the_other() -> None:
    with pytest.raises(ValueError, match="frozen"):
        construct_unchecked(SteeredInput, text="x").text = "y"  # type: ignore[misc]


def test_a_default_that_is_made_anew_is_nobody_elses() -> None:
    one, other = construct_unchecked(StartedInput, prompt="x"), construct_unchecked(StartedInput, prompt="x")
    assert (one.agent, one.limits) == ({}, Limits())
    assert one.agent is not other.agent


def test_nothing_is_looked_at() -> None:
    """So it is for values that were looked at before."""
    assert construct_unchecked(OversizedInput, tokens=-1).tokens == -1
