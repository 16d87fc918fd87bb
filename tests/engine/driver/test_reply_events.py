"""The machine's input of a reply is the same by the quick way and by the slow way."""

import json
import math
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import JsonValue

from turnwright import Agent, Engine, Outcome, tool
from turnwright.driver.reply_events import TOO_DEEP, replied_input, settled_input
from turnwright.model import ScriptedModel
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright_states import Finish, InvalidInputError, ModelRepliedInput, ToolCall, Usage
from turnwright_testing.json_values import json_values

TEXTS = st.text() | st.sampled_from(["look", "\ud800", ""])
CALLS = st.builds(
    ResponseToolCall, name=TEXTS, arguments=st.none() | st.dictionaries(st.text(), json_values()), raw=TEXTS, id=TEXTS
)


def closely(call: ResponseToolCall) -> ToolCall:
    return ToolCall(name=call.name, arguments=call.arguments, raw=call.raw, provider_id=call.id)


@given(CALLS)
def test_call_is_the_same_by_fast_and_full_check(call: ResponseToolCall) -> None:
    try:
        expected = closely(call)
    except InvalidInputError:
        with pytest.raises(InvalidInputError):
            settled_input(call)
    else:
        heard = settled_input(call)
        assert (heard, type(heard.name)) == (expected, str)


def test_calls_share_the_names_of_their_arguments() -> None:
    """A parser makes each name anew, and a turn in flight keeps all of its calls."""
    calls = [settled_input(ResponseToolCall("look", json.loads('{"place": 1}'))) for _ in range(2)]
    first, second = [next(iter(call.arguments or {})) for call in calls]
    assert first is second
    assert settled_input(ResponseToolCall("look", {"x" * 65: 1})).arguments == {"x" * 65: 1}


@given(
    st.builds(ModelResponse, text=TEXTS, reasoning=TEXTS, finish=st.sampled_from(Finish)),
    st.none() | st.builds(Usage, input_tokens=st.integers(0, 9)),
)
def test_reply_is_the_same_by_fast_and_full_check(reply: ModelResponse, usage: Usage | None) -> None:
    calls = (ToolCall(name="look", arguments={}),)
    plain = ModelRepliedInput(text=reply.text, reasoning=reply.reasoning, calls=calls, finish=reply.finish, usage=usage)
    heard = replied_input(reply, calls, usage, 1.5)
    assert heard == replace(plain, elapsed=1.5)


def test_unjournalable_arguments_are_refused() -> None:
    for arguments in ({"a": object()}, {1: "a"}, {"a": {"b": object()}}):
        with pytest.raises(InvalidInputError):
            settled_input(ResponseToolCall("look", cast("dict[str, JsonValue]", arguments)))


@pytest.mark.anyio
@pytest.mark.parametrize("levels", [251, 300, 20_000])
@pytest.mark.parametrize("name", ["look", "dreamt"])
async def test_deeply_nested_call_arguments_are_refused(name: str, levels: int) -> None:
    """Its turn continues: somebody's own model may bound nothing."""

    @tool
    def look(place: object = None) -> str:  # noqa: ARG001 (never called)
        """Look."""
        pytest.fail("it ran")

    nested: dict[str, JsonValue] = {}
    for _ in range(levels - 1):
        nested = {"a": nested}
    model = ScriptedModel(ModelResponse(calls=(ResponseToolCall(name, nested),)), "Done.")
    async with Engine(model=model, tools=[look]) as engine:
        turn = await engine.run(Agent(name="A", steps=3), "hi")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    (result_part,) = (part for message in turn.messages for part in message.parts if part.type == "tool_result")
    assert result_part.text == TOO_DEEP


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_non_json_number_gets_the_full_check(value: float) -> None:
    call = ResponseToolCall("look", {"a": value})
    assert settled_input(call) == closely(call)


def test_a_reply_of_the_wrong_types_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        replied_input(ModelResponse(text=cast("str", 3)), (), None, 0.0)


def test_later_change_of_arguments_by_the_model_has_no_effect() -> None:
    arguments: dict[str, JsonValue] = {"place": 1}
    heard = settled_input(ResponseToolCall("look", arguments))
    arguments["place"] = 2
    assert heard.arguments == {"place": 1}
