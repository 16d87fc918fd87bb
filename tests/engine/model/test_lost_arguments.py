"""Arguments under another index than the name of their call: they are joined only if that is certain."""

from collections.abc import AsyncIterator

import pytest
from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from tests.engine.model import chunks
from tests.engine.model.anthropic import test_stream as messages
from tests.engine.model.openai_responses import events

from turnwright import Agent, Engine, tool
from turnwright.message import Message
from turnwright.model import ModelRequest, ModelResponse, ResponseToolCall, ScriptedModel, pydantic_ai_model

Calls = list[tuple[str, dict[str, JsonValue] | None]]


def calls_in(reply: ModelResponse) -> Calls:
    return [(call.name, None if call.arguments is None else dict(call.arguments)) for call in reply.calls]


def named(index: int, name: str = "cleanup", raw: str = "", call_id: str = "c") -> chunks.Chunk:
    function: JsonValue = {"name": name, "arguments": raw}
    return chunks.chunk({"tool_calls": [{"index": index, "id": f"{call_id}{index}", "function": function}]})


def arguments(index: int, raw: str, call_id: str | None = None) -> chunks.Chunk:
    entry: JsonValue = {"index": index, "id": call_id, "function": {"arguments": raw}}
    return chunks.chunk({"tool_calls": [entry]})


def chat(*deltas: JsonValue) -> Calls:
    return calls_in(chunks.reply(*deltas, chunks.chunk({}, "tool_calls")))


def anthropic(*content_events: messages.Event) -> Calls:
    return calls_in(
        messages.decode(
            messages.sse(messages.start(), *content_events, messages.end("tool_use"), messages.STOP)
        ).reply()
    )


def begun(index: int) -> messages.Event:
    return messages.begin(index, "tool_use", id=f"c{index}", name=f"f{index}", input={})


def test_chat_arguments_right_after_the_only_call_without_any_are_joined() -> None:
    for first in (named(0), named(0, raw="{}")):
        assert chat(first, arguments(1, '{"scope"'), arguments(1, ': "tmp"}')) == [("cleanup", {"scope": "tmp"})]
    assert chat(named(0), arguments(1, '{"a": 1}', "c0")) == [("cleanup", {"a": 1})]


def test_chat_arguments_of_each_call_are_joined() -> None:
    assert chat(
        named(0), arguments(1, '{"a": 1}'), named(2, "g"), arguments(3, '{"a": 2}'), named(4, "h", '{"a": 3}')
    ) == [("cleanup", {"a": 1}), ("g", {"a": 2}), ("h", {"a": 3})]


def test_chat_arguments_do_not_go_to_the_next_name_at_the_index() -> None:
    """A gateway that counts from another number has the arguments of a call at the index of the next one."""
    assert chat(named(0), arguments(1, '{"a": 1}'), named(1, "g"), arguments(2, '{"a": 2}')) == [
        ("cleanup", {"a": 1}),
        ("g", {"a": 2}),
    ]


def test_chat_arguments_do_not_go_to_the_earlier_name_at_the_index() -> None:
    """LibreChat counts texts too in the index of a name, and only calls in that of its arguments."""
    assert chat(
        *(named(1), arguments(0, '{"a": '), arguments(0, "1}")),
        *(named(2, "g"), arguments(1, '{"a": '), arguments(1, "2}")),
        *(named(3, "h"), arguments(2, '{"a": 3}')),
    ) == [("cleanup", {"a": 1}), ("g", {"a": 2}), ("h", {"a": 3})]


@pytest.mark.parametrize(
    "deltas",
    [
        [named(1), arguments(0, '{"a": 1}'), arguments(1, '{"a": 2}')],
        [named(1), arguments(0, '{"a": 1}'), named(2, "g"), arguments(1, '{"a": 2}'), arguments(2, '{"a": 3}')],
        [named(0), named(1, "g"), arguments(2, '{"a": 1}')],
        [named(0), named(1, "g"), arguments(2, '{"a": 1}'), arguments(3, '{"a": 2}')],
        [named(0), arguments(1, '{"a": 1}'), arguments(2, '{"a": 2}')],
        [arguments(1, '{"a": 1}'), named(2)],
        [named(0), arguments(1, '{"a": 1}', "another")],
        [named(0, raw="{}"), arguments(1, '{"a": 1}', "another")],
        [named(0), arguments(1, '{"a": 1}'), named(2, "g")],
    ],
)
def test_ambiguous_chat_arguments_run_no_call(deltas: list[JsonValue]) -> None:
    calls = chat(*deltas)
    assert calls
    assert all(arguments is None or not name for name, arguments in calls)


def test_calls_of_another_choice_without_an_index_are_not_of_the_reply() -> None:
    """Two choices are alternatives, of which a turn runs one."""
    choices: list[JsonValue] = [
        {"delta": {"tool_calls": [{"function": {"name": "pay", "arguments": f'{{"amount": {amount}}}'}}]}}
        for amount in (1, 2)
    ]
    assert calls_in(chunks.reply({"choices": choices}, chunks.chunk({}, "tool_calls"))) == [("pay", {"amount": 1})]


def test_chat_call_with_arguments_runs_beside_lost_arguments() -> None:
    calls = chat(named(0, raw='{"a": 1}'), named(1, "g"), named(2, "h"), arguments(3, '{"a": 2}'))
    assert calls == [("cleanup", {"a": 1}), ("g", None), ("h", None), ("", {"a": 2})]


def test_details_of_a_call_behind_joined_calls_name_the_place() -> None:
    function: JsonValue = {"name": "g", "arguments": '{"a": 2}'}
    signed: JsonValue = {"index": 2, "id": "c2", "function": function, "extra_content": {"x": 1}}
    reply = chunks.reply(named(0), arguments(1, '{"a": 1}'), chunks.chunk({"tool_calls": [signed]}), chunks.STOP)
    assert calls_in(reply) == [("cleanup", {"a": 1}), ("g", {"a": 2})]
    assert [detail["call"] for detail in reply.reasoning_details] == [1]


def test_anthropic_arguments_at_an_unknown_index_join_the_open_call() -> None:
    assert anthropic(begun(0), messages.arguments(7, '{"a": 1}'), messages.stop(0)) == [("f0", {"a": 1})]
    assert anthropic(begun(0), messages.stop(0), begun(1), messages.arguments(7, '{"a": 1}')) == [
        ("f0", {}),
        ("f1", {"a": 1}),
    ]


@pytest.mark.parametrize(
    "content_events",
    [
        [begun(0), messages.stop(0), messages.arguments(7, '{"a": 1}')],
        [begun(0), begun(1), messages.arguments(7, '{"a": 1}')],
        [begun(0), messages.begin(1, "text"), messages.arguments(1, '{"a": 1}')],
        [begun(0), begun(1), messages.arguments(7, '{"a": 1}'), messages.stop(0), messages.stop(1)],
        [begun(0), begun(1), *(messages.arguments(index, '{"a": 1}') for index in (1, 7)), messages.stop(0)],
    ],
)
def test_ambiguous_anthropic_arguments_run_no_call(content_events: list[messages.Event]) -> None:
    assert all(arguments is None for _, arguments in anthropic(*content_events))


def test_ambiguous_responses_arguments_run_no_call() -> None:
    reply = events.reply(
        events.added(0, events.call("f", "")), events.arguments(7, '{"a": 1}'), events.done(0, events.call("f", ""))
    )
    assert calls_in(reply) == [("f", None), ("", {"a": 1})]


@pytest.mark.anyio
async def test_pydantic_ai_call_with_lost_arguments_does_not_run() -> None:
    async def reply(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[DeltaToolCalls]:
        yield {0: DeltaToolCall("g", '{"a": 1}', tool_call_id="g")}
        yield {1: DeltaToolCall("cleanup", tool_call_id="c")}
        yield {2: DeltaToolCall(json_args='{"scope": "tmp"}', tool_call_id="d")}

    model = pydantic_ai_model(FunctionModel(stream_function=reply))
    items = [item async for item in model.stream(ModelRequest((Message.user("Clean up."),)))]
    assert isinstance(items[-1], ModelResponse)
    assert calls_in(items[-1]) == [("g", {"a": 1}), ("cleanup", None)]


@pytest.mark.anyio
async def test_no_model_runs_a_call_with_lost_arguments() -> None:
    ran: list[str] = []

    @tool
    def cleanup(scope: str = "everything") -> str:
        """Remove files."""
        ran.append(scope)
        return "removed"

    calls = (ResponseToolCall("cleanup", {}), ResponseToolCall("", {"scope": "tmp"}))
    async with Engine(model=ScriptedModel(ModelResponse(calls=calls), "done"), tools=[cleanup]) as engine:
        turn = await engine.run(Agent(name="A"), "Clean up.")
    assert (turn.text, ran) == ("done", [])
