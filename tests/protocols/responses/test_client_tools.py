"""Functions of the client, with the OpenAI SDK: items of responses, and tool calls of chat completions."""

import json
from typing import Any

import httpx2
import openai
import openresponses_types
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from tests.protocols.subject import AGENT, journal

from turnwright import Engine
from turnwright_protocols.responses import Gate, responses_routes

# ruff: noqa: ANN401 (the SDK's own types)

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"location": {"type": "string"}}}
WEATHER: Any = {"type": "function", "name": "get_weather", "description": "Weather.", "parameters": SCHEMA}
CHAT_WEATHER: Any = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
WHAT = "What is the weather?"
WHAT_MESSAGE: Any = {"role": "user", "content": WHAT}


def sdk(engine: Engine, key: str = "ann") -> openai.AsyncOpenAI:
    def authorize(request: Request, _: str) -> str:
        return request.headers.get("authorization", "").removeprefix("Bearer ")

    app = Starlette(routes=responses_routes(engine, [AGENT], Gate(authorize)))
    transport = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key=key, max_retries=0, http_client=transport)


@pytest.fixture
def client(engine: Engine) -> openai.AsyncOpenAI:
    return sdk(engine)


async def say(client: openai.AsyncOpenAI, text: Any, **options: Any) -> Any:
    return await client.responses.create(model="subject", input=text, **options)


async def complete(client: openai.AsyncOpenAI, *messages: Any, **options: Any) -> Any:
    return await client.chat.completions.create(model="subject", messages=list(messages), **options)


def calls_of(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "function_call"]


def output(call: Any, text: Any = "sunny") -> dict[str, Any]:
    reference = call if isinstance(call, str) else call.call_id
    return {"type": "function_call_output", "call_id": reference, "output": text}


async def test_arguments_that_do_not_fit_go_back_to_the_model(client: openai.AsyncOpenAI) -> None:
    """No call of the client's function is sent, in a response and in a chat completion."""
    schema = {"type": "object", "properties": {"location": {"type": "integer"}}}
    first = await say(client, WHAT, tools=[{**WEATHER, "parameters": schema}])
    assert (calls_of(first), first.status) == ([], "completed")
    assert "'Graz' is not of type 'integer'" in first.output_text
    function = {"name": "get_weather", "parameters": schema}
    completion = await complete(client, WHAT_MESSAGE, tools=[{"type": "function", "function": function}])
    assert completion.choices[0].finish_reason == "stop"


async def test_function_of_the_client_gets_its_output(engine: Engine, client: openai.AsyncOpenAI) -> None:
    """The turn pauses for the call, and the next response continues it."""
    first = await say(client, WHAT, tools=[WEATHER])
    (call,) = calls_of(first)
    assert (first.status, call.name, json.loads(call.arguments)) == ("completed", "get_weather", {"location": "Graz"})
    assert (call.status, [tool.name for tool in first.tools]) == ("completed", ["get_weather"])
    openresponses_types.ResponseResource.model_validate(first.model_dump())
    second = await say(client, [output(call)], previous_response_id=first.id)
    assert (second.status, second.output_text) == ("completed", "Result: sunny")
    assert [item.type for item in second.output] == ["message"], "the client has its own output"
    assert len(await engine.turns()) == 1
    retrieved = await client.responses.retrieve(second.id)
    assert retrieved.output_text == "Result: sunny"


async def test_client_that_repeats_its_input_needs_no_previous_id(client: openai.AsyncOpenAI) -> None:
    """The pattern of the SDK's guide: the input grows by the output items and the outputs of the calls."""
    items: list[Any] = [{"role": "user", "content": WHAT}]
    first = await say(client, items, tools=[WEATHER])
    items += [item.model_dump() for item in first.output]
    items += [output(call) for call in calls_of(first)]
    second = await say(client, items, tools=[WEATHER])
    assert second.output_text == "Result: sunny"
    items += [item.model_dump() for item in second.output]
    third = await say(client, [*items, {"role": "user", "content": "recall"}], tools=[WEATHER])
    assert third.output_text == f"You said: {WHAT}"


async def test_stream_has_the_events_of_the_call(client: openai.AsyncOpenAI) -> None:
    events = [event async for event in await say(client, WHAT, tools=[WEATHER], stream=True)]
    kinds = [event.type for event in events]
    start = kinds.index("response.output_item.added")
    assert kinds[start:] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    call = events[-2].item
    again = await say(client, [output(call)], previous_response_id=events[-1].response.id, stream=True)
    texts = [event.delta async for event in again if event.type == "response.output_text.delta"]
    assert "".join(texts) == "Result: sunny"


async def test_call_and_approval_are_answered_together(client: openai.AsyncOpenAI) -> None:
    first = await say(client, "mix", tools=[WEATHER])
    approval = next(item for item in first.output if item.type == "mcp_approval_request")
    answer = {"type": "mcp_approval_response", "approval_request_id": approval.id, "approve": True}
    (call,) = calls_of(first)
    with pytest.raises(openai.BadRequestError, match="all open requests"):
        await say(client, [output(call)], previous_response_id=first.id)
    second = await say(client, [output(call), answer], previous_response_id=first.id)
    assert second.output_text == "Result: paid 5"


async def test_same_output_again_returns_the_same_response(engine: Engine, client: openai.AsyncOpenAI) -> None:
    first = await say(client, WHAT, tools=[WEATHER])
    (call,) = calls_of(first)
    second = await say(client, [output(call)], previous_response_id=first.id)
    before = await journal(engine)
    again = await say(client, [output(call)], previous_response_id=first.id)
    assert (again.id, again.output_text) == (second.id, second.output_text)
    with pytest.raises(openai.ConflictError):
        await say(client, [output(call, "rainy")], previous_response_id=first.id)
    assert await journal(engine) == before


async def test_tool_choice_none_offers_no_function(client: openai.AsyncOpenAI) -> None:
    assert (await say(client, WHAT, tools=[WEATHER], tool_choice="none")).output_text == f"You said: {WHAT}"


@pytest.mark.parametrize(
    "tools",
    [
        [{**WEATHER, "name": "look"}],
        [WEATHER, WEATHER],
        [{**WEATHER, "name": f"t{number}"} for number in range(129)],
        [{**WEATHER, "description": "x" * 300_000}],
        [{**WEATHER, "name": "a b"}],
        [{**WEATHER, "parameters": {"type": "array"}}],
        [{**WEATHER, "parameters": {"$ref": "#/nowhere"}}],
        [{**WEATHER, "parameters": "none"}],
        [{"type": "function"}],
        [{"type": "web_search"}],
        [7],
        {"get_weather": WEATHER},
    ],
    ids=["engine", "twice", "129", "large", "name", "array", "ref", "text", "nameless", "web", "int", "object"],
)
async def test_hostile_functions_are_refused(engine: Engine, client: openai.AsyncOpenAI, tools: Any) -> None:
    """In both interfaces, before the turn begins."""
    with pytest.raises(openai.BadRequestError, match="tool"):
        await say(client, WHAT, extra_body={"tools": tools})
    wrapped: Any = (
        [{**tool, "function": tool} for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else 7
    )
    with pytest.raises(openai.BadRequestError, match="tool"):
        await complete(client, {"role": "user", "content": WHAT}, extra_body={"tools": wrapped or [7]})
    assert await engine.turns() == []


async def test_forged_outputs_are_refused_and_change_nothing(engine: Engine, client: openai.AsyncOpenAI) -> None:
    mine, asking = await say(client, WHAT, tools=[WEATHER]), await say(client, "approve")
    (call,), turn = calls_of(mine), mine.id.split("_")[1]
    paying = f"call_{asking.id.split('_')[1]}_call00001"
    before = await journal(engine)
    previous = {"previous_response_id": mine.id}
    forged: list[tuple[str, list[Any], dict[str, Any], int]] = [
        ("foreign id", [output("call_abc")], previous, 404),
        ("foreign id alone", [output("call_abc")], {}, 404),
        ("no such call", [output(f"call_{turn}_call00009")], previous, 409),
        ("no such turn", [output("call_feedfeed_call00001")], {}, 404),
        ("another turn", [output(paying)], previous, 404),
        ("approval", [output(paying)], {}, 409),
        ("two turns", [output(call), output(paying)], {}, 400),
        ("two outputs", [output(call, "a"), output(call, "b")], previous, 400),
        ("too large", [output(call, "x" * 100_000)], previous, 409),
        ("no text", [output(call, 7)], previous, 400),
        ("a message too", [output(call), {"role": "user", "content": "hi"}], previous, 400),
    ]
    for name, items, options, status in forged:
        with pytest.raises(openai.APIStatusError) as refusal:
            await say(client, items, **options)
        assert (name, refusal.value.status_code) == (name, status)
        assert status != 404 or "there is no such call" in refusal.value.message
        assert await journal(engine) == before, name
    for options in ({}, previous):
        with pytest.raises(openai.NotFoundError):
            await say(sdk(engine, "eve"), [output(call)], **options)
    assert await journal(engine) == before


# Chat completions


async def test_chat_completion_calls_functions_of_the_client(engine: Engine, client: openai.AsyncOpenAI) -> None:
    asking = {"role": "user", "content": WHAT}
    first_completion = await complete(client, asking, tools=[CHAT_WEATHER])
    first = first_completion.choices[0]
    (call,) = first.message.tool_calls
    assert (first.finish_reason, first.message.content) == ("tool_calls", None)
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"location": "Graz"})
    messages = [asking, first.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    second_completion = await complete(client, *messages, tools=[CHAT_WEATHER])
    second = second_completion.choices[0]
    assert (first_completion.usage.total_tokens, second_completion.usage.total_tokens) == (12, 12)
    assert second_completion.created > 1_700_000_000
    assert (second.finish_reason, second.message.content) == ("stop", "Result: sunny")
    assert second.message.tool_calls is None
    assert len(await engine.turns()) == 1
    more = [*messages, {"role": "assistant", "content": "Result: sunny"}, {"role": "user", "content": "recall"}]
    assert (await complete(client, *more)).choices[0].message.content == f"You said: {WHAT}"


async def test_streamed_completion_has_the_calls(client: openai.AsyncOpenAI) -> None:
    stream = await complete(client, {"role": "user", "content": WHAT}, tools=[CHAT_WEATHER], stream=True)
    choices = [chunk.choices[0] async for chunk in stream if chunk.choices]
    (call,) = [call for choice in choices for call in choice.delta.tool_calls or ()]
    assert (call.index, call.function.name, choices[-1].finish_reason) == (0, "get_weather", "tool_calls")


async def test_completion_that_also_asks_a_person_is_aborted(engine: Engine, client: openai.AsyncOpenAI) -> None:
    choice = (await complete(client, {"role": "user", "content": "mix"}, tools=[CHAT_WEATHER])).choices[0]
    assert choice.finish_reason == "stop"
    assert "use /responses" in choice.message.content
    assert [str(row.status.outcome) for row in await engine.turns()] == ["aborted"]


async def test_forged_results_of_completions_are_refused(engine: Engine, client: openai.AsyncOpenAI) -> None:
    asking = {"role": "user", "content": WHAT}
    two = [CHAT_WEATHER, {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}]
    message = (await complete(client, asking, tools=two)).choices[0].message
    first, second = message.tool_calls
    response = await say(client, WHAT, tools=[WEATHER])
    before = await journal(engine)

    def result(reference: str, text: str = "x") -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": reference, "content": text}

    forged: list[tuple[str, list[Any], int]] = [
        ("one of two", [result(first.id)], 400),
        ("twice", [result(first.id), result(first.id), result(second.id)], 400),
        ("foreign id", [result("call_abc")], 404),
        ("no such turn", [result("call_feedfeed_call00001")], 404),
        ("another door's", [result(calls_of(response)[0].call_id)], 404),
        ("too large", [result(first.id, "x" * 100_000), result(second.id)], 409),
    ]
    for name, results, status in forged:
        with pytest.raises(openai.APIStatusError) as refusal:
            await complete(client, asking, message.model_dump(), *results)
        assert (name, refusal.value.status_code) == (name, status)
        assert status != 404 or "there is no such call" in refusal.value.message
        assert await journal(engine) == before, name
    with pytest.raises(openai.NotFoundError):
        await complete(sdk(engine, "eve"), asking, message.model_dump(), result(first.id), result(second.id))
    assert await journal(engine) == before
    settled = await complete(client, asking, message.model_dump(), result(first.id), result(second.id, "fine"))
    assert settled.choices[0].message.content == "Result: fine"
