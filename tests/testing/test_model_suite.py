"""The suite of models, over our own models; and models with a planted fault, which it must not let pass."""

import json
import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import ClassVar

import anyio
import httpx
import pytest
from pydantic import JsonValue, TypeAdapter

from turnwright.message import Message, ToolResultPart
from turnwright.model import AnthropicMessages, Model, ModelResponse, OpenAIChat, ResponseToolCall, ScriptedModel
from turnwright_states import Finish
from turnwright_testing.exchange import (
    Exchange,
    Fails,
    ModelBench,
    Nonsense,
    SaidCall,
    Says,
    SentCall,
    SentMessage,
    SentRequest,
    Unreachable,
)
from turnwright_testing.model_suite import ModelSuite

ROOT = Path(__file__).parents[2]
FAULTY = Path(__file__).with_name("faulty_models.py")

JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


# Models over HTTP, the network replaced by a transport.


class _Body(httpx.AsyncByteStream):
    """A reply on its way: `said`, then the end that was asked for, with `last` at a good one."""

    def __init__(self, chunks: Iterator[bytes], then: str, last: bytes) -> None:
        self._chunks = chunks
        self._then = then
        self._last = last
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._chunks:
            yield piece
        if self._then == "breaks":
            raise httpx.ReadError("the peer has gone")
        if self._then == "hangs":
            await anyio.sleep_forever()
        yield self._last

    async def aclose(self) -> None:
        self.closed = True


class HttpBench(ABC):
    """A server behind a transport. What it says, and how it understands what it is asked, is its API's affair."""

    last = b""

    def __init__(self) -> None:
        self.requests: list[SentRequest] = []
        self.models: list[OpenAIChat | AnthropicMessages] = []
        self._bodies: list[_Body] = []

    @property
    def closed(self) -> bool:
        return all(body.closed for body in self._bodies)

    def model(self, exchange: Exchange) -> Model:
        def answer(request: httpx.Request) -> httpx.Response:
            self.requests.append(self.sent(json.loads(request.content)))
            return self._answer(exchange)

        self.models.append(self.client(httpx.MockTransport(answer)))
        return self.models[-1]

    def _answer(self, exchange: Exchange) -> httpx.Response:
        match exchange:
            case Says():
                self._bodies.append(_Body(self.events(exchange), exchange.then, self.last))
                return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=self._bodies[-1])
            case Fails():
                headers = {} if exchange.retry_after is None else {"retry-after": f"{exchange.retry_after:g}"}
                return httpx.Response(exchange.status, headers=headers, json=self.error(exchange))
            case Unreachable():
                raise httpx.ConnectError("nobody listens there")
            case Nonsense():
                return httpx.Response(200, headers={"content-type": "text/html"}, text="<html><p>Log in</p></html>")

    @abstractmethod
    def client(self, transport: httpx.MockTransport) -> OpenAIChat | AnthropicMessages:
        """The model under test, with this network."""

    @abstractmethod
    def events(self, says: Says) -> Iterator[bytes]:
        """The text piece by piece, the arguments in halves, and why it stopped, if it comes to that."""

    @abstractmethod
    def error(self, fails: Fails) -> JsonValue:
        """The body of a failure."""

    @abstractmethod
    def sent(self, body: dict[str, JsonValue]) -> SentRequest:
        """Return the parsed request."""


def _list(value: JsonValue) -> list[dict[str, JsonValue]]:
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []


def _number(value: JsonValue) -> int | None:
    return value if isinstance(value, int) else None


# Chat completions.


class OpenAIBench(HttpBench):
    """A server of chat completions."""

    last = b"data: [DONE]\n\n"

    _FINISHES: ClassVar = {"stop": "stop", "calls": "tool_calls", "length": "length", "filter": "content_filter"}
    _ABOUT: ClassVar = {"": "server_said_no", "context": "context_length_exceeded", "filter": "content_filter"}

    def client(self, transport: httpx.MockTransport) -> OpenAIChat:
        return OpenAIChat("m", base_url="http://host/v1", api_key="sk-test", transport=transport)

    def events(self, says: Says) -> Iterator[bytes]:
        for chunk in self._chunks(says):
            yield f"data: {json.dumps(chunk)}\n\n".encode()

    def _chunks(self, says: Says) -> Iterator[JsonValue]:
        for piece in says.pieces:
            yield _chunk({"content": piece})
        for index, call in enumerate(says.calls):
            half = len(call.arguments) // 2
            yield _chunk({"tool_calls": [_delta(index, call.arguments[:half], call)]})
            yield _chunk({"tool_calls": [_delta(index, call.arguments[half:])]})
        if says.then == "ends":
            yield _chunk({}, self._FINISHES[says.finish])
        if says.usage is not None:
            usage: JsonValue = {
                "prompt_tokens": says.usage.input_tokens,
                "completion_tokens": says.usage.output_tokens,
            }
            yield {"choices": [], "usage": usage}

    def error(self, fails: Fails) -> JsonValue:
        return {"error": {"message": "it cannot be done", "code": self._ABOUT[fails.about]}}

    def sent(self, body: dict[str, JsonValue]) -> SentRequest:
        choice = body.get("tool_choice")
        return SentRequest(
            messages=tuple(_message(Message.from_chat(message)) for message in _list(body.get("messages"))),
            tools=tuple(_name(tool) for tool in _list(body.get("tools"))),
            tool_choice=choice if isinstance(choice, str) else None,
            max_tokens=_number(body.get("max_tokens")),
        )


def _chunk(delta: JsonValue, finish: str | None = None) -> JsonValue:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _delta(index: int, arguments: str, call: SaidCall | None = None) -> JsonValue:
    if call is None:
        return {"index": index, "function": {"arguments": arguments}}
    return {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _name(tool: dict[str, JsonValue]) -> str:
    function = tool["function"]
    assert isinstance(function, dict)
    return str(function["name"])


def _message(message: Message) -> SentMessage:
    calls = tuple(SentCall(call.id, call.name, call.arguments) for call in message.calls)
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            return SentMessage(message.role, part.text, answers=part.call)
    return SentMessage(message.role, message.text, calls)


# Messages.


class AnthropicBench(HttpBench):
    """A server of the Messages API."""

    last = b'event: message_stop\ndata: {"type": "message_stop"}\n\n'

    _STOPS: ClassVar = {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens", "filter": "refusal"}
    _ABOUT: ClassVar = {
        "": "it cannot be done",
        "context": "prompt is too long: 210000 tokens > 200000 maximum",
        "filter": "Output blocked by content filtering policy",
    }

    def client(self, transport: httpx.MockTransport) -> AnthropicMessages:
        return AnthropicMessages("m", base_url="http://host", api_key="sk-test", transport=transport)

    def events(self, says: Says) -> Iterator[bytes]:
        for event in self._events(says):
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()

    def _events(self, says: Says) -> Iterator[dict[str, JsonValue]]:
        message: dict[str, JsonValue] = {"type": "message", "role": "assistant", "content": []}
        if says.usage is not None:
            message["usage"] = {"input_tokens": says.usage.input_tokens, "output_tokens": 1}
        yield {"type": "message_start", "message": message}
        index = 0
        if says.pieces:
            yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            for piece in says.pieces:
                yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
            yield {"type": "content_block_stop", "index": 0}
            index = 1
        for number, call in enumerate(says.calls, index):
            block: JsonValue = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            yield {"type": "content_block_start", "index": number, "content_block": block}
            half = len(call.arguments) // 2
            for part in (call.arguments[:half], call.arguments[half:]):
                delta: JsonValue = {"type": "input_json_delta", "partial_json": part}
                yield {"type": "content_block_delta", "index": number, "delta": delta}
            yield {"type": "content_block_stop", "index": number}
        if says.then == "ends":
            end: dict[str, JsonValue] = {"type": "message_delta", "delta": {"stop_reason": self._STOPS[says.finish]}}
            if says.usage is not None:
                end["usage"] = {"output_tokens": says.usage.output_tokens}
            yield end

    def error(self, fails: Fails) -> JsonValue:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": self._ABOUT[fails.about]}}

    def sent(self, body: dict[str, JsonValue]) -> SentRequest:
        choice = body.get("tool_choice")
        system = tuple(SentMessage("system", str(block["text"])) for block in _list(body.get("system")))
        messages = _list(body.get("messages"))
        return SentRequest(
            messages=(*system, *(wire_message for message in messages for wire_message in self._messages(message))),
            tools=tuple(str(tool["name"]) for tool in _list(body.get("tools"))),
            tool_choice=str(choice["type"]) if isinstance(choice, dict) else None,
            max_tokens=_number(body.get("max_tokens")),
        )

    def _messages(self, message: dict[str, JsonValue]) -> Iterator[SentMessage]:
        """A message on the wire, as the messages that it was made of."""
        blocks = _list(message["content"])
        texts = [str(block["text"]) for block in blocks if block["type"] == "text"]
        if message["role"] == "assistant":
            calls = tuple(_call(block) for block in blocks if block["type"] == "tool_use")
            yield SentMessage("assistant", "".join(texts), calls)
            return
        for block in blocks:
            if block["type"] == "tool_result":
                yield SentMessage("tool", str(block["content"]), answers=str(block["tool_use_id"]))
        for text in texts:
            yield SentMessage("user", text)


def _call(block: dict[str, JsonValue]) -> SentCall:
    arguments = block["input"]
    assert isinstance(arguments, dict)
    return SentCall(str(block["id"]), str(block["name"]), arguments)


class TestOpenAIChat(ModelSuite):
    @pytest.fixture
    async def bench(self) -> AsyncIterator[ModelBench]:
        bench = OpenAIBench()
        yield bench
        for model in bench.models:
            await model.aclose()


class TestAnthropicMessages(ModelSuite):
    @pytest.fixture
    async def bench(self) -> AsyncIterator[ModelBench]:
        bench = AnthropicBench()
        yield bench
        for model in bench.models:
            await model.aclose()


# A model that replies as scripted: there is no provider that could do it wrong.


class ScriptedBench:
    """A script instead of a provider."""

    closed = True

    def __init__(self) -> None:
        self._models: list[ScriptedModel] = []

    @property
    def requests(self) -> list[SentRequest]:
        return [
            SentRequest(
                messages=tuple(map(_message, request.messages)),
                tools=tuple(tool.name for tool in request.tools),
                tool_choice=request.tool_choice,
                max_tokens=request.max_tokens,
            )
            for model in self._models
            for request in model.requests
        ]

    def model(self, exchange: Exchange) -> Model:
        if not isinstance(exchange, Says) or exchange.then != "ends":
            pytest.skip("a script has no provider that could fail")
        finish = {"length": Finish.LENGTH, "filter": Finish.CONTENT_FILTER}.get(exchange.finish, Finish.STOP)
        calls = tuple(map(_scripted, exchange.calls))
        reply = ModelResponse(text="".join(exchange.pieces), calls=calls, finish=finish, usage=exchange.usage)
        self._models.append(ScriptedModel(reply, repeat=True))
        return self._models[-1]


def _scripted(call: SaidCall) -> ResponseToolCall:
    try:
        arguments = JSON.validate_json(call.arguments)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        pytest.skip("a script gives the arguments themselves, not a text that is to be read")
    return ResponseToolCall(call.name, arguments, call.arguments, call.id)


class TestScriptedModel(ModelSuite):
    @pytest.fixture
    def bench(self) -> ModelBench:
        return ScriptedBench()


# Models with a fault (`faulty_models.py`).


@pytest.fixture(scope="module")
def failed() -> dict[str, set[str]]:
    """The tests of the suite that failed over each model with a fault; of each class, by its name."""
    command = [sys.executable, "-m", "pytest", str(FAULTY), "-q", "-rf", "--tb=no", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout
    failures: dict[str, set[str]] = defaultdict(set)
    for faulty, test in re.findall(r"^FAILED \S+?::(\w+)::(\w+)", ran.stdout, re.MULTILINE):
        failures[faulty].add(test)
    return failures


@pytest.mark.slow
def test_honest_model_passes(failed: dict[str, set[str]]) -> None:
    assert failed["TestHonest"] == set()


@pytest.mark.parametrize(
    ("faulty", "test"),
    [
        ("TestSwallowsErrors", "test_a_failure_has_its_cause"),
        ("TestRetries", "test_a_failure_has_its_cause"),
        ("TestLosesACall", "test_parallel_calls_come_in_their_order_with_all_that_was_said"),
        ("TestYieldsTwoReplies", "test_deltas_come_first_and_then_one_complete_reply"),
        ("TestTakesHalfForWhole", "test_broken_stream_is_a_failure_with_the_text_so_far"),
        ("TestLetsForeignErrorsOut", "test_a_provider_that_cannot_be_reached_may_be_there_later"),
        ("TestBuffers", "test_a_delta_comes_while_the_provider_still_talks"),
        ("TestLeavesConnectionsOpen", "test_cancellation_closes_the_connection"),
        ("TestMakesIdsUnique", "test_repeated_ids_of_calls_are_kept"),
        ("TestEmptiesBadArguments", "test_arguments_that_are_no_json_object_are_kept_as_text"),
        ("TestGuessesUsage", "test_usage_is_the_providers_or_unknown"),
        ("TestForgetsTheFinish", "test_the_finish_reason_is_returned"),
        ("TestDropsDisabledTools", "test_tools_that_are_disabled_are_still_sent"),
        ("TestReordersMessages", "test_messages_are_sent_in_order_with_their_results_paired"),
        ("TestForgetsHowLongToWait", "test_the_wait_that_the_provider_asks_for_is_returned"),
    ],
)
def test_fault_does_not_pass(failed: dict[str, set[str]], faulty: str, test: str) -> None:
    assert test in failed[faulty]


def test_every_test_of_the_suite_can_fail(failed: dict[str, set[str]]) -> None:
    """Each fails over one of the models with a fault."""
    tests = {name for name in vars(ModelSuite) if name.startswith("test_")}
    assert tests - set().union(*failed.values()) == set()
