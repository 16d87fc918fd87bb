"""Calls of replies that were cut off: one without complete arguments never runs, whatever model sent it."""

import json
from collections.abc import Callable

import httpx2
import pytest
from pydantic import JsonValue
from pydantic_ai.messages import ModelResponse as PydanticResponse
from pydantic_ai.messages import TextPart, ToolCallPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.engine.model import chunks
from tests.engine.model.anthropic import test_stream as messages
from tests.engine.model.openai_responses import events

from turnwright import Agent, Engine, Message, tool
from turnwright.model import (
    Model,
    ModelError,
    ModelRequest,
    ModelResponse,
    ResponseToolCall,
    ScriptedModel,
    pydantic_ai_model,
)
from turnwright.model.pydantic_ai.reply import whole_reply
from turnwright.tools.tool import Tool
from turnwright_states import Cause, Finish

Arguments = dict[str, JsonValue] | None


def named(arguments: JsonValue, index: int = 0) -> chunks.Chunk:
    """The delta of a chat completion that begins a call."""
    return begins({"arguments": arguments}, index)


def begins(function: dict[str, JsonValue], index: int = 0) -> chunks.Chunk:
    call: JsonValue = {"index": index, "id": f"c{index}", "function": {"name": "cleanup", **function}}
    return chunks.chunk({"tool_calls": [call]})


def went_on(arguments: str, index: int = 0) -> chunks.Chunk:
    return chunks.chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})


def chat(*deltas: JsonValue, reason: str = "length") -> list[Arguments]:
    reply = chunks.reply(*deltas, chunks.chunk({}, reason))
    assert reply.finish is Finish.LENGTH
    return arguments_in(reply)


def anthropic(*content: messages.Event, reason: str = "max_tokens") -> list[Arguments]:
    reply = messages.decode(messages.sse(messages.start(), *content, messages.end(reason), messages.STOP)).reply()
    assert reply.finish is Finish.LENGTH
    return arguments_in(reply)


def responses(*sent_events: events.Event, reason: str = "max_output_tokens") -> list[Arguments]:
    reply = events.decode(events.created(), *sent_events, events.incomplete(reason)).reply()
    assert reply.finish is Finish.LENGTH
    return arguments_in(reply)


def arguments_in(reply: ModelResponse) -> list[Arguments]:
    return [None if call.arguments is None else dict(call.arguments) for call in reply.calls]


def begun(index: int = 0, arguments: JsonValue = None) -> messages.Event:
    return messages.begin(index, "tool_use", id=f"c{index}", name="cleanup", input=arguments or {})


REASONS = ["length", "max_tokens", "MAX_TOKENS", "model_length", "model_context_window_exceeded", "incomplete"]


@pytest.mark.parametrize("reason", REASONS)
def test_a_chat_call_without_arguments_is_incomplete(reason: str) -> None:
    blanks: list[JsonValue] = ["", " ", None, {}]
    for blank in blanks:
        assert chat(named(blank), reason=reason) == [None]
    assert chat(begins({}), reason=reason) == [None]


def test_a_chat_call_without_arguments_is_incomplete_in_a_body() -> None:
    function: JsonValue = {"name": "cleanup", "arguments": ""}
    body: chunks.Chunk = {"message": {"tool_calls": [{"id": "c", "function": function}]}, "finish_reason": "length"}
    assert arguments_in(chunks.reply({"choices": [body]})) == [None]
    legacy: JsonValue = {"function_call": {"name": "cleanup", "arguments": ""}}
    assert chat(chunks.chunk(legacy)) == [None]


def test_complete_chat_call_runs_and_a_cut_off_chat_call_does_not() -> None:
    whole, empty = named('{"scope": "tmp"}'), named("", 1)
    assert chat(whole, empty) == [{"scope": "tmp"}, None]
    assert chat(whole, empty, went_on('{"sco', 1)) == [{"scope": "tmp"}, None]
    assert chat(named(""), went_on("{}")) == [{}]


def test_empty_input_beginning_a_gateways_call_is_incomplete() -> None:
    """Its arguments would have followed. Before another call, they are complete."""
    assert chat(named("{}")) == [None]
    assert chat(named("{}"), named('{"scope": "tmp"}', 1)) == [{}, {"scope": "tmp"}]
    assert chat(named("{}"), went_on('{"scope": "tmp"}')) == [{"scope": "tmp"}]
    assert arguments_in(chunks.reply(named("{}"), chunks.chunk({}, "tool_calls"))) == [{}]
    assert arguments_in(chunks.reply(named(""), chunks.chunk({}, "tool_calls"))) == [{}]


def test_the_last_call_of_a_reply_without_a_reason_needs_arguments() -> None:
    """A gateway may end the stream of a reply that broke off inside a call as usual, and the call before it."""
    assert arguments_in(chunks.reply(named('{"scope": "tmp"}'), named("", 1))) == [{"scope": "tmp"}, None]
    assert arguments_in(chunks.reply(named(""), named("{}", 1))) == [{}, {}]
    empty_input = messages.arguments(0, "{}")
    for blocks, arguments in (
        ([begun()], None),
        ([begun(), messages.stop(0)], None),
        ([begun(), empty_input, messages.stop(0)], {}),
    ):
        reply = messages.decode(messages.sse(messages.start(), *blocks, messages.STOP)).reply()
        assert arguments_in(reply) == [arguments]
    use: JsonValue = {"type": "tool_use", "id": "c0", "name": "cleanup", "input": {}}
    body = json.dumps({"type": "message", "content": [use]}).encode()
    assert arguments_in(messages.decode(body).reply()) == [{}]


def test_blank_calls_of_a_reply_broken_off_without_reason_never_run() -> None:
    """Calls may begin together, so the broken one need not be the last without arguments."""
    assert arguments_in(chunks.reply(named(""), named("", 1))) == [None, None]
    assert arguments_in(chunks.reply(named(""), named("", 1), went_on('{"sco', 1))) == [None, None]
    blocks = [begun(), begun(1), messages.arguments(1, '{"sco')]
    reply = messages.decode(messages.sse(messages.start(), *blocks, messages.STOP)).reply()
    assert arguments_in(reply) == [None, None]


def test_a_call_without_arguments_is_complete_only_for_a_known_reason() -> None:
    """An unknown reason may be a limit, a timeout or a cancellation."""
    for reason, arguments in (("EOS", {}), ("tool-calls", {}), ("token_limit", None), ("timeout", None)):
        assert arguments_in(chunks.reply(named(""), chunks.chunk({}, reason))) == [arguments]
    assert arguments_in(chunks.reply(named("", 0), went_on("{}"), chunks.chunk({}, "token_limit"))) == [{}]
    closed = [begun(), messages.stop(0), begun(1), messages.stop(1)]
    for reason, last in (("tool_use", {}), ("token_limit", None)):
        events_sent = messages.sse(messages.start(), *closed, messages.end(reason), messages.STOP)
        assert arguments_in(messages.decode(events_sent).reply()) == [{}, last]


def test_an_unknown_reason_that_names_a_limit_cuts_the_text_off() -> None:
    """An answer of which half is missing must not count as complete."""
    for reason in (
        "max_output_reached",
        "token_limit",
        "maxTokens",
        "CONTEXT_LENGTH",
        "error_limit",
        "response.truncated",
    ):
        ends: list[JsonValue] = [chunks.chunk({}, reason), chunks.chunk({}, "stop")]
        replies = [
            chunks.reply(chunks.chunk({"content": "Pay"}), *ends),
            messages.reply(messages.start(), messages.begin(0, "text"), messages.text(0, "Pay"), messages.end(reason)),
            whole_reply(PydanticResponse([TextPart("Pay")], provider_details={"finish_reason": reason})),
        ]
        assert [(reply.text, reply.finish) for reply in replies] == [("Pay", Finish.LENGTH)] * 3, reason
    ordinary: list[JsonValue] = ["stop", "EOS", "tool-calls", "", None, "all_done"]
    for end in ordinary:
        assert chunks.reply(chunks.chunk({"content": "Pay"}), chunks.chunk({}, end)).finish is Finish.STOP


@pytest.mark.parametrize(
    ("reason", "cause"),
    [("error", Cause.SERVER_ERROR), ("cancelled", Cause.INTERRUPTED), ("REQUEST_FAILED", Cause.SERVER_ERROR)],
)
def test_a_reason_that_names_a_failure_breaks_the_reply(reason: str, cause: Cause) -> None:
    """Half an answer must not count as complete, so another attempt follows."""
    replies: list[Callable[[], object]] = [
        lambda: chunks.reply(chunks.chunk({"content": "Pay"}), chunks.chunk({}, reason)),
        lambda: messages.reply(
            messages.start(), messages.begin(0, "text"), messages.text(0, "Pay"), messages.end(reason)
        ),
        lambda: whole_reply(PydanticResponse([TextPart("Pay")], provider_details={"finish_reason": reason})),
    ]
    for reply in replies:
        with pytest.raises(ModelError, match=reason) as caught:
            reply()
        assert caught.value.partial is not None
        assert (caught.value.cause, caught.value.partial.text) == (cause, "Pay")
    toxic = chunks.reply(chunks.chunk({"content": "Pay"}), chunks.chunk({}, "ERROR_TOXIC"))
    assert toxic.finish is Finish.CONTENT_FILTER


def test_a_reason_naming_a_fault_is_not_replaced() -> None:
    """Some gateways end every stream with a reason of their own."""
    assert chat(named(""), chunks.chunk({}, "length"), reason="tool_calls") == [None]
    assert anthropic(begun(), messages.stop(0), messages.end("max_tokens"), reason="tool_use") == [None]
    assert chunks.reply(chunks.chunk({}, "tool_calls"), chunks.chunk({}, "stop")).finish_reason == "stop"


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
def test_an_anthropic_call_without_arguments_is_incomplete(reason: str) -> None:
    """The API stops the block that the limit cut off, too."""
    assert anthropic(begun(), reason=reason) == [None]
    assert anthropic(begun(), messages.stop(0), reason=reason) == [None]
    assert anthropic(begun(), messages.arguments(0, ""), messages.stop(0), reason=reason) == [None]


def test_an_anthropic_call_before_another_block_is_complete() -> None:
    """Blocks come one after the other, so the limit cuts off the last one. No other is stopped early."""
    assert anthropic(begun(), messages.stop(0), begun(1), messages.stop(1)) == [{}, None]
    assert anthropic(begun(), messages.stop(0), messages.begin(1, "text"), messages.text(1, "I")) == [{}]
    assert anthropic(begun(), begun(1), messages.stop(1)) == [None, None]


def test_anthropic_arguments_are_complete_with_a_complete_text() -> None:
    """The input of a block is an object, which a gateway may have completed itself."""
    assert anthropic(begun(), messages.arguments(0, '{"scope": "tmp"}')) == [{"scope": "tmp"}]
    assert anthropic(begun(), messages.arguments(0, '{"scope": "t')) == [None]
    assert anthropic(begun(arguments={"scope": "t"}), messages.stop(0)) == [None]
    assert anthropic(begun(arguments={"scope": "tmp"}), messages.stop(0), begun(1)) == [{"scope": "tmp"}, None]


def test_pause_of_hosted_tools_cuts_off_no_call() -> None:
    assert anthropic(begun(), messages.stop(0), reason="pause_turn") == [{}]


@pytest.mark.parametrize("reason", ["max_output_tokens", "", "new_next_year"])
@pytest.mark.parametrize("status", ["incomplete", "in_progress", None])
def test_a_responses_call_without_arguments_is_incomplete(status: JsonValue, reason: str) -> None:
    item = events.call("cleanup", "", status=status)
    arguments: events.Event = {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": ""}
    assert responses(events.added(0, item), reason=reason) == [None]
    assert responses(events.added(0, item), arguments, events.done(0, item), reason=reason) == [None]
    last = events.decode(events.created(), events.incomplete(reason, item)).reply()
    assert arguments_in(last) == [None]


def test_responses_call_marked_complete_is_complete() -> None:
    first, last = events.call("cleanup", ""), events.call("cleanup", "", "call_2", "fc_2", status="incomplete")
    assert responses(events.done(0, first), events.done(1, last)) == [{}, None]
    cut = events.call("cleanup", '{"scope": "tmp"}', status="incomplete")
    assert responses(events.done(0, cut)) == [{"scope": "tmp"}]


def test_incomplete_call_of_a_complete_response_has_no_arguments() -> None:
    for raw in ("", "{}"):
        item = events.call("cleanup", raw, status="incomplete")
        assert arguments_in(events.reply(events.done(0, item))) == [None]


@pytest.mark.parametrize("arguments", ["", None, {}])
def test_a_pydantic_ai_call_without_arguments_is_incomplete(arguments: str | dict[str, JsonValue] | None) -> None:
    parts = [ToolCallPart("cleanup", {"scope": "tmp"}), ToolCallPart("cleanup", arguments)]
    cut = PydanticResponse([TextPart("a"), *parts], finish_reason="length")
    assert arguments_in(whole_reply(cut)) == [{"scope": "tmp"}, None]
    assert arguments_in(whole_reply(PydanticResponse(parts, finish_reason="tool_call"))) == [{"scope": "tmp"}, {}]
    unknown = PydanticResponse(parts, provider_details={"finish_reason": "token_limit"})
    assert arguments_in(whole_reply(unknown)) == [{"scope": "tmp"}, None]


@pytest.mark.anyio
async def test_blank_call_of_an_unfinished_pydantic_ai_stream_never_runs() -> None:
    """A server that loses its model may end the stream as usual. pydantic-ai invents the reason `stop` then."""
    for ends, arguments in (([], None), ([chunks.chunk({}, "tool_calls")], {})):
        stream = chunks.sse(*({"id": "c", "created": 1, "model": "m", **event} for event in (named(""), *ends)))
        transport = httpx2.MockTransport(lambda _, body=stream: httpx2.Response(200, content=body))
        async with httpx2.AsyncClient(transport=transport) as client:
            provider = OpenAIProvider(base_url="http://model/v1", api_key="none", http_client=client)
            model = pydantic_ai_model(OpenAIChatModel("m", provider=provider))
            items = [item async for item in model.stream(ModelRequest((Message.user("Clean up."),)))]
        assert isinstance(items[-1], ModelResponse)
        assert arguments_in(items[-1]) == [arguments]


def cleanup_tool(ran: list[str]) -> Tool:
    @tool
    def cleanup(scope: str = "everything") -> str:
        """Remove files."""
        ran.append(scope)
        return "removed"

    return cleanup


@pytest.mark.anyio
async def test_a_turn_runs_only_the_complete_calls_of_any_model() -> None:
    """The rule is that of `ModelResponse`, so a model of an app cannot break it."""
    ran: list[str] = []
    calls = (
        ResponseToolCall("cleanup", {"scope": "tmp"}, id="a"),
        ResponseToolCall("cleanup", {}, id="b"),
        ResponseToolCall("cleanup", {}, "{}", id="c"),
    )
    model: Model = ScriptedModel(ModelResponse(calls=calls, finish=Finish.LENGTH), "done")
    async with Engine(model=model, tools=[cleanup_tool(ran)]) as engine:
        turn = await engine.run(Agent(name="A"), "Clean up.")
    assert (turn.text, sorted(ran), turn.tool_calls) == ("done", ["everything", "tmp"], 2)


@pytest.mark.anyio
async def test_a_call_that_a_reply_repeats_runs_once() -> None:
    """A server that sends a call again repeats its id and arguments. Equal ids alone say nothing."""
    ran: list[str] = []
    same = ResponseToolCall("cleanup", {"scope": "tmp"}, id="a")
    changed = ResponseToolCall("cleanup", {"scope": "logs"}, id="a")
    nameless = ResponseToolCall("cleanup", {"scope": "home"})
    model = ScriptedModel(ModelResponse(calls=(same, changed, same, nameless, nameless)), "done")
    async with Engine(model=model, tools=[cleanup_tool(ran)]) as engine:
        turn = await engine.run(Agent(name="A"), "Clean up.")
    assert sorted(ran) == ["home", "home", "logs", "tmp"]
    refused = [message for message in model.requests[1].messages if "the reply has this call twice" in repr(message)]
    assert (turn.text, len(refused)) == ("done", 1)
