"""Progress of a reply: which events count as parts, and a timeout for a server that sends anything else for ever."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute, SocketStream
from pydantic import JsonValue

from turnwright import Agent, EndReason, Engine, Outcome
from turnwright.model.anthropic.client import AnthropicMessages
from turnwright.model.anthropic.stream import MessagesStream
from turnwright.model.http.reply_stream import ReplyStream
from turnwright.model.openai_chat.client import OpenAIChat
from turnwright.model.openai_chat.stream import ChatStream
from turnwright.model.openai_responses.stream import ResponsesStream
from turnwright.model.protocol import ModelResponse
from turnwright_states import Cause, Usage
from turnwright_states.facts import AttemptFailed

pytestmark = pytest.mark.anyio


def event(value: JsonValue) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def delta(**fields: JsonValue) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields}]})


def entry(**fields: JsonValue) -> bytes:
    return delta(tool_calls=[{"index": 0, **fields}])


def usage(**counts: int) -> bytes:
    return event({"choices": [], "usage": {**counts}})


def choice(index: int, **fields: JsonValue) -> bytes:
    return event({"choices": [{"index": index, "delta": fields}]})


def block(index: int = 0, **fields: JsonValue) -> bytes:
    return event({"type": "content_block_start", "index": index, "content_block": fields})


def spent(count: int) -> bytes:
    return event({"type": "message_delta", "usage": {"output_tokens": count}})


def item(item: JsonValue) -> bytes:
    return event({"type": "response.output_item.added", "output_index": 0, "item": item})


def piece(kind: str, text: str) -> bytes:
    return event({"type": f"response.{kind}.delta", "output_index": 0, "content_index": 0, "delta": text})


def more(**fields: JsonValue) -> bytes:
    return event({"type": "content_block_delta", "index": 0, "delta": fields})


CHAT_NOISE = [
    b": OPENROUTER PROCESSING\n\n",
    b"event: ping\ndata: {}\n\n",
    b"\n",
    b"data:\n\n",
    b"data: null\n\n",
    event({}),
    event({"id": "x", "model": "m"}),
    event({"choices": []}),
    event({"choices": [{"index": 0, "delta": None}]}),
    delta(),
    delta(role="assistant"),
    delta(role="assistant", content=""),
    delta(content=None, reasoning_content="", refusal="", tool_calls=[]),
    delta(content=[{"type": "text", "text": ""}]),
    delta(reasoning_details=[{"type": "reasoning.text", "text": ""}]),
    delta(tool_calls=[{}]),
    entry(function={"arguments": ""}),
    delta(unheard_of="text of another API"),
    event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}),
    event({"choices": [{"delta": {}}], "usage": {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}}}),
    # Counts that go up and down, as those of a server that counts each of its parts by itself.
    usage(completion_tokens=1) + usage(completion_tokens=0),
    usage(prompt_tokens=9) + usage(prompt_tokens=7) + usage(prompt_tokens=8),
    delta(reasoning_details=[{"type": "reasoning.encrypted", "data": ""}]),
    delta(reasoning_details=[{"type": kind, "signature": None, "data": "", "text": ""} for kind in ("a", "b")]),
    choice(0) + choice(1, content="a", reasoning="b", tool_calls=[{"index": 0, "function": {"arguments": "{"}}]),
]
MESSAGES_NOISE = [
    b": keep-alive\n\n",
    b"event: ping\ndata: {}\n\n",
    event({"type": "ping"}),
    event({"type": "message_start", "message": {"role": "assistant", "content": []}}),
    event({"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}}),
    spent(1),
    event({"type": "unheard_of"}),
    block(type="text", text=""),
    block(type="tool_use", id="a", name="f", input={}),
    more(type="text_delta", text=""),
    more(type="thinking_delta", thinking=""),
    more(type="input_json_delta", partial_json=""),
    more(type="text_delta"),
    more(),
    spent(1) + spent(0),
    block(type="server_tool_use"),
    block(type="server_tool_use", id="a", name="web_search"),
    block(type="server_tool_use", id="a") + event({"type": "content_block_stop", "index": 0}),
    block(type="server_tool_use", id="a") + block(type="web_search_tool_result", tool_use_id="a"),
    block(type="server_tool_use") + block(type="text", text=""),
    event({"type": "content_block_start", "content_block": {"type": "compaction"}}),
]
RESPONSES_NOISE = [
    b": keep-alive\n\n",
    event({"type": "response.created", "response": {"status": "in_progress", "output": []}}),
    event({"type": "response.in_progress", "response": {"usage": {"input_tokens": 7}}}),
    event({"type": "keepalive"}),
    event({"type": "response.unheard_of.delta", "delta": "a"}),
    item({"type": "message", "content": []}),
    item({"type": "reasoning", "summary": []}),
    item({"type": "function_call", "id": "a", "call_id": "c", "name": "f", "arguments": ""}),
    item({"type": "web_search_call", "id": "a", "status": "in_progress"}),
    piece("output_text", ""),
    piece("function_call_arguments", ""),
    event({"type": "response.web_search_call.searching", "output_index": 0}),
    event({"type": "response.content_part.added", "output_index": 0, "part": {"type": "output_text", "text": ""}}),
    event({"type": "response.output_item.done", "output_index": 0, "item": {"type": "reasoning", "summary": []}}),
]
NOISE = pytest.mark.parametrize(
    ("make", "noise"),
    [
        *((ChatStream, noise) for noise in CHAT_NOISE),
        *((MessagesStream, noise) for noise in MESSAGES_NOISE),
        *((ResponsesStream, noise) for noise in RESPONSES_NOISE),
    ],
)
PARTS = pytest.mark.parametrize(
    ("make", "part"),
    [
        (ChatStream, delta(content=" ")),
        (ChatStream, delta(reasoning="a")),
        (ChatStream, delta(refusal="no")),
        (ChatStream, delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}])),
        (ChatStream, entry(function={"name": "f"})),
        (ChatStream, entry(function={"arguments": "{"})),
        (ChatStream, event({"usage": {"prompt_tokens": 7}})),
        (ChatStream, choice(1, content="a")),
        (MessagesStream, more(type="text_delta", text="a")),
        (MessagesStream, more(type="thinking_delta", thinking="a")),
        (MessagesStream, more(type="signature_delta", signature="a")),
        (MessagesStream, block(type="tool_use", id="a", name="f")),
        (MessagesStream, block(type="server_tool_use", id="a", name="web_search")),
        (MessagesStream, spent(9)),
        (ResponsesStream, piece("output_text", "a")),
        (ResponsesStream, piece("refusal", "a")),
        (ResponsesStream, piece("reasoning_summary_text", "a")),
        (ResponsesStream, piece("function_call_arguments", "{")),
        (ResponsesStream, item({"type": "function_call", "name": "f"})),
        (ResponsesStream, item({"type": "web_search_call", "id": "a"})),
        (ResponsesStream, event({"type": "response.in_progress", "response": {"usage": {"input_tokens": 7}}})),
    ],
)


@NOISE
def test_noise_is_no_progress(make: Callable[[], ReplyStream], noise: bytes) -> None:
    stream = make()
    # The first one may hold a usage or begin a call.
    stream.feed(noise)
    before = stream.progress
    for _ in range(20):
        stream.feed(noise)
        for byte in noise:
            stream.feed(bytes([byte]))
    assert (stream.progress, stream.error) == (before, None)


@PARTS
def test_text_reasoning_calls_and_usage_are_progress(make: Callable[[], ReplyStream], part: bytes) -> None:
    stream = make()
    stream.feed(part)
    assert stream.progress > 0


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (ChatStream, [usage(completion_tokens=1), usage(completion_tokens=0), usage(completion_tokens=2)]),
        (MessagesStream, [block(0, type="server_tool_use"), block(0, type="text"), block(1, type="server_tool_use")]),
        (MessagesStream, [block(type="server_tool_use", id="a"), spent(0), block(type="server_tool_use", id="b")]),
    ],
)
def test_part_beyond_all_earlier_parts_is_progress(make: Callable[[], ReplyStream], parts: list[bytes]) -> None:
    stream = make()
    first, between, last = parts
    stream.feed(first + between)
    before = stream.progress
    stream.feed(last)
    assert stream.progress > before


def test_last_reported_usage_counts() -> None:
    stream = ChatStream()
    stream.feed(delta(content="a") + usage(completion_tokens=9) + usage(completion_tokens=4))
    assert stream.partial.usage == Usage(output_tokens=4)


def test_bytes_without_an_end_are_no_progress() -> None:
    for beginning in (b'data: {"choices": ', b'{"choices": [', b"<html>", b": "):
        stream = ChatStream()
        for _ in range(50):
            stream.feed(beginning)
        assert (stream.progress, stream.error) == (0, None)


def chunks(number: int) -> bytes:
    return delta(content="a") * number


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_response_is_bounded_in_bytes_and_chunks_at_any_cuts(cut: int) -> None:
    whole = chunks(9)
    for stream, message in (
        (ChatStream(max_chunks=3), "more than 3 chunks"),
        (ChatStream(max_bytes=3 * len(chunks(1)) + 5), f"longer than {3 * len(chunks(1)) + 5} bytes"),
    ):
        for start in range(0, len(whole), cut):
            stream.feed(whole[start : start + cut])
        assert stream.error is not None
        assert message in str(stream.error)
        assert (stream.error.cause, stream.partial) == (Cause.REJECTED, ModelResponse(text="aaa"))


@pytest.mark.parametrize("stream", [ChatStream(max_chunks=2), ChatStream(max_bytes=200)])
def test_complete_reply_stays_if_the_response_exceeds_a_bound(stream: ChatStream) -> None:
    stream.feed(delta(content="a") + event({"choices": [{"delta": {}, "finish_reason": "stop"}]}) + delta() * 20)
    assert stream.done
    assert stream.reply().text == "a"


Client = Callable[[str, httpx.AsyncBaseTransport | None], OpenAIChat | AnthropicMessages]


def chat(address: str, transport: httpx.AsyncBaseTransport | None = None) -> OpenAIChat:
    return OpenAIChat("m", base_url=f"{address}/v1", first_byte_timeout=3, idle_timeout=0.2, transport=transport)


def messages(address: str, transport: httpx.AsyncBaseTransport | None = None) -> AnthropicMessages:
    return AnthropicMessages("m", base_url=address, first_byte_timeout=3, idle_timeout=0.2, transport=transport)


class Repeating(httpx.AsyncByteStream):
    """A body with `first`, and then `noise` until the client closes it."""

    def __init__(self, first: bytes, noise: bytes) -> None:
        self._first, self._noise = first, noise

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._first
        for _ in count():
            await anyio.sleep(0.01)
            yield self._noise


@asynccontextmanager
async def repeating(first: bytes, noise: bytes) -> AsyncIterator[str]:
    """A server that sends `first`, and then `noise` until the client closes the connection."""

    async def answer(connection: SocketStream) -> None:
        async with connection:
            await connection.receive()
            await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + first)
            with suppress(anyio.BrokenResourceError):
                for _ in count():
                    await connection.send(noise)
                    await anyio.sleep(0.001)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 (no Django)
        yield f"http://127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


async def ends_with_a_timeout(model: OpenAIChat | AnthropicMessages) -> None:
    engine = Engine(model=model)
    result = await engine.run(Agent(name="a", max_retries=0), "hello")
    facts = [fact for _, fact in await engine.store.facts(result.id)]
    assert (result.outcome, result.reason) == (Outcome.FAILED, EndReason.MODEL_ERROR)
    failed = [fact for fact in facts if isinstance(fact, AttemptFailed)]
    assert [fact.cause for fact in failed] == [Cause.TIMEOUT]


@pytest.mark.no_waiting
@pytest.mark.parametrize(
    ("client", "first", "noise"),
    [
        (chat, b"", delta()),
        (chat, delta(content="a"), delta()),
        (chat, delta(content="a"), delta(role="assistant", content="")),
        (chat, delta(content="a"), b": OPENROUTER PROCESSING\n\n"),
        (chat, b"data: ", b"{"),
        (chat, b'{"choices": [', b" "),
        (messages, b"", event({"type": "ping"})),
        (messages, more(type="text_delta", text="a"), more(type="text_delta", text="")),
        (messages, more(type="text_delta", text="a"), spent(1)),
    ],
)
async def test_server_only_keeping_the_connection_open_times_out(client: Client, first: bytes, noise: bytes) -> None:
    head = {"content-type": "text/event-stream"}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=head, stream=Repeating(first, noise)))
    async with client("http://host", transport) as model:
        await ends_with_a_timeout(model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "first", "noise"),
    [
        (chat, b'{"choices": [', b" "),
        (chat, delta(content="a"), delta()),
        (messages, b"", event({"type": "ping"})),
    ],
)
async def test_real_connection_only_kept_open_times_out(client: Client, first: bytes, noise: bytes) -> None:
    async with repeating(first, noise) as address, client(address, None) as model:
        await ends_with_a_timeout(model)
