"""The cost of one chunk of a stream: Turnwright's clients against others, in CPU of this process and in function calls.

    python bench/streams.py [--rounds 9] [--burst 2000] [--paced 500] [--gap 0.001] [--json]

A server in a process of its own sends so many small events of a reply, each as a chunk of its own, as servers do.
`burst` sends them as fast as it can, so that a read finds many; `paced` waits between them, so that each wakes the
client by itself, unless the machine is so busy that the client comes late. Every client asks for the same stream in
each round, one after the other, so that what else the machine does falls on all of them; the ratio is that to `httpx,
split by hand` in the same round. Measured is from the first text to the last: a connection, and a context for TLS that
nobody needs here, are made before. The function calls are those that cProfile counts in one more round, built-in ones
included: they hardly depend on the machine.

The same two clients are also run on uvloop, an event loop that an application may choose. A client whose library
is not installed is left out, and the output says so: `pip install 'turnwright[bench]'` brings them.
"""

import argparse
import asyncio
import cProfile
import gc
import importlib
import importlib.util
import json
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, TextIO, cast

import httpx

from turnwright.message import Message
from turnwright.model import AnthropicMessages, OpenAIChat
from turnwright.model.protocol import ModelRequest, TextDelta

Pace = Literal["burst", "paced"]
Api = Literal["chat completions", "messages"]
Client = Callable[[str], AsyncIterator[str]]

APIS: Final[tuple[Api, ...]] = ("chat completions", "messages")
#: What the others are compared with.
BY_HAND: Final = "httpx, split by hand"
ASKED: Final = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
HEADERS: Final = {"accept": "text/event-stream", "accept-encoding": "identity"}
KEY: Final = "sk-none"
TEXTS: Final = (" the turn ends, whatever comes,", " and each call has one result", " (so it is said in the chart).\n")
READ: Final = 65536
MICRO: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The cost of one chunk for a client: the median of CPU in microseconds, that of the ratios, and function calls.

    `missing` names the library that a client would need, and then there are no numbers.
    """

    api: Api
    pace: Pace
    client: str
    cpu: float | None = None
    ratio: float | None = None
    calls: float | None = None
    missing: str | None = None


async def turnwright_chat(address: str) -> AsyncIterator[str]:
    """Read a chat completion with `OpenAIChat`."""
    async with OpenAIChat("m", base_url=address, api_key=KEY) as model:
        async for item in model.stream(ModelRequest((Message.user("hello"),))):
            if isinstance(item, TextDelta):
                yield item.text


async def turnwright_messages(address: str) -> AsyncIterator[str]:
    """Read a reply of the Messages API with `AnthropicMessages`."""
    async with AnthropicMessages("m", base_url=address, api_key=KEY) as model:
        async for item in model.stream(ModelRequest((Message.user("hello"),))):
            if isinstance(item, TextDelta):
                yield item.text


async def httpx_chat(address: str) -> AsyncIterator[str]:
    """Read a chat completion with httpx, splitting the bytes at blank lines."""
    url, rest = f"{address}/chat/completions", b""
    async with httpx.AsyncClient() as client, client.stream("POST", url, json=ASKED, headers=HEADERS) as response:
        async for data in response.aiter_bytes():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if event == b"data: [DONE]":
                    return
                for choice in json.loads(event.removeprefix(b"data: "))["choices"]:
                    if text := choice["delta"].get("content"):
                        yield text


async def httpx_messages(address: str) -> AsyncIterator[str]:
    """Read a reply of the Messages API with httpx, splitting the bytes at blank lines."""
    url, rest = f"{address}/v1/messages", b""
    async with httpx.AsyncClient() as client, client.stream("POST", url, json=ASKED, headers=HEADERS) as response:
        async for data in response.aiter_bytes():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                delta = json.loads(event.partition(b"\ndata: ")[2])
                if delta["type"] == "content_block_delta":
                    yield delta["delta"]["text"]


async def httpx_sse_chat(address: str) -> AsyncIterator[str]:
    """Read a chat completion with httpx and httpx-sse."""
    connect = importlib.import_module("httpx_sse").aconnect_sse
    url = f"{address}/chat/completions"
    async with httpx.AsyncClient() as client, connect(client, "POST", url, json=ASKED, headers=HEADERS) as source:
        async for event in source.aiter_sse():
            if event.data == "[DONE]":
                return
            for choice in json.loads(event.data)["choices"]:
                if text := choice["delta"].get("content"):
                    yield text


async def openai_chat(address: str) -> AsyncIterator[str]:
    """Read a chat completion with OpenAI's own client."""
    async with importlib.import_module("openai").AsyncOpenAI(base_url=address, api_key=KEY, max_retries=0) as client:
        async for chunk in await client.chat.completions.create(**ASKED):
            for choice in chunk.choices:
                if choice.delta.content:
                    yield choice.delta.content


async def raw_chat(address: str) -> AsyncIterator[str]:
    """Read a chat completion from an asyncio stream, without any HTTP library."""
    host, _, path = address.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    body = json.dumps(ASKED).encode()
    writer.write(
        f"POST /{path}/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    )
    await reader.readuntil(b"\r\n\r\n")
    packed = rest = b""
    while data := await reader.read(READ):
        packed += data
        while (end := packed.find(b"\r\n")) >= 0:
            size = int(packed[:end], 16)
            if len(packed) < end + 2 + size + 2:
                break
            *events, rest = (rest + packed[end + 2 : end + 2 + size]).split(b"\n\n")
            packed = packed[end + 2 + size + 2 :]
            for event in events:
                if event == b"data: [DONE]":
                    writer.close()
                    return
                for choice in json.loads(event.removeprefix(b"data: "))["choices"]:
                    if text := choice["delta"].get("content"):
                        yield text


@dataclass(frozen=True, slots=True)
class Subject:
    """A client, the API that it speaks, and the library that it needs beside httpx.

    That library may be `uvloop`: then the client runs on its event loop instead of asyncio's own.
    """

    name: str
    api: Api
    client: Client
    library: str | None = None

    def run(self, main: Coroutine[object, object, float]) -> float:
        """Run `main` on the event loop."""
        make_loop = importlib.import_module("uvloop").new_event_loop if self.library == "uvloop" else None
        with asyncio.Runner(loop_factory=make_loop) as runner:
            return runner.run(main)


SUBJECTS: Final = (
    Subject("Turnwright", "chat completions", turnwright_chat),
    Subject(BY_HAND, "chat completions", httpx_chat),
    Subject("httpx-sse", "chat completions", httpx_sse_chat, "httpx_sse"),
    Subject("openai", "chat completions", openai_chat, "openai"),
    Subject("asyncio, by hand", "chat completions", raw_chat),
    Subject("on uvloop: Turnwright", "chat completions", turnwright_chat, "uvloop"),
    Subject(f"on uvloop: {BY_HAND}", "chat completions", httpx_chat, "uvloop"),
    Subject("Turnwright", "messages", turnwright_messages),
    Subject(BY_HAND, "messages", httpx_messages),
    Subject("on uvloop: Turnwright", "messages", turnwright_messages, "uvloop"),
)


def measure(*, rounds: int = 9, burst: int = 2000, paced: int = 500, gap: float = 0.001) -> list[Row]:
    """Measure every client on bursts of so many chunks, and on so many that come `gap` seconds apart.

    Raises `RuntimeError` where a client did not get the whole text.
    """
    rows: list[Row] = []
    with serving(gap) as address:
        for api in APIS:
            rows += _measure(f"{address}/burst/{burst}", api, "burst", burst, rounds)
        for api in APIS:
            rows += _measure(f"{address}/paced/{paced}", api, "paced", paced, rounds)
    return rows


def _measure(address: str, api: Api, pace: Pace, chunks: int, rounds: int) -> list[Row]:
    subjects = [subject for subject in SUBJECTS if subject.api == api]
    present = [subject for subject in subjects if not subject.library or importlib.util.find_spec(subject.library)]
    seconds: dict[str, list[float]] = {subject.name: [] for subject in present}
    for warm in (True, *[False] * rounds):
        for subject in present:
            cpu_seconds = subject.run(_timed(subject.client, address, chunks))
            if not warm:
                seconds[subject.name].append(cpu_seconds)
    rows = [
        Row(
            api=api,
            pace=pace,
            client=subject.name,
            cpu=statistics.median(seconds[subject.name]) * MICRO,
            ratio=statistics.median(map(float.__truediv__, seconds[subject.name], seconds[BY_HAND])),
            calls=subject.run(_counted(subject.client, address, chunks)),
        )
        for subject in present
    ]
    absent = [subject for subject in subjects if subject not in present]
    return rows + [Row(api=api, pace=pace, client=subject.name, missing=subject.library) for subject in absent]


async def _timed(client: Client, address: str, chunks: int) -> float:
    """Read a stream: the seconds of CPU from the first text to the last, for each."""
    texts_read: list[str] = []
    start = ended = 0.0
    gc.collect()
    async for text in client(address):
        ended = time.process_time()
        if not texts_read:
            start = ended
        texts_read.append(text)
    if texts_read != list(texts(chunks)):
        raise RuntimeError(f"{client} got other texts")
    return (ended - start) / (chunks - 1)


async def _counted(client: Client, address: str, chunks: int) -> float:
    """Read a stream: the function calls from the first text to the last, for each."""
    profile = cProfile.Profile()
    count = 0
    async for _ in client(address):
        count += 1
        if count == 1:
            profile.enable()
        elif count == chunks:
            profile.disable()
    total: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return total / (chunks - 1)


def texts(count: int) -> Iterator[str]:
    """The texts of a stream of so many chunks."""
    return (TEXTS[number % len(TEXTS)] for number in range(count))


def chat_events(count: int) -> Iterator[bytes]:
    """A chat completion in so many chunks, as OpenAI's own server writes one."""
    head = {"id": "chatcmpl-9lmVDLd2FhMTE4WXoGFzzGhKrF4sH", "object": "chat.completion.chunk", "created": 1721100000}
    head |= {"model": "gpt-5-mini", "service_tier": "default", "system_fingerprint": "fp_661538dc1f"}

    def event(choices: list[object], usage: object = None) -> bytes:
        chunk = json.dumps({**head, "choices": choices, "usage": usage}, separators=(",", ":"))
        return f"data: {chunk}\n\n".encode()

    def choice(delta: object, finish: str | None = None) -> object:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}

    yield event([choice({"role": "assistant", "content": "", "refusal": None})])
    for text in texts(count):
        yield event([choice({"content": text})])
    yield event([choice({}, "stop")])
    yield event([], {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": count + 9})
    yield b"data: [DONE]\n\n"


def message_events(count: int) -> Iterator[bytes]:
    """A reply of the Messages API in so many deltas, as Anthropic's own server writes one."""

    def event(kind: str, **fields: object) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, separators=(',', ':'))}\n\n".encode()

    usage = {"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message = {"id": "msg_014p7gG3wDgGV9EUtLvnow3U", "type": "message", "role": "assistant", "content": []}
    yield event("message_start", message={**message, "model": "claude-opus-4-6", "stop_reason": None, "usage": usage})
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for text in texts(count):
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
    yield event("content_block_stop", index=0)
    yield event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": count})
    yield event("message_stop")


@contextmanager
def serving(gap: float) -> Iterator[str]:
    """Run the server in a process of its own; give its address."""
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", "--gap", str(gap)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 (our own file)
        try:
            yield f"http://127.0.0.1:{int(cast('TextIO', server.stdout).readline())}"
        finally:
            server.kill()


async def serve(gap: float) -> None:
    """Answer `/burst/N/...` and `/paced/N/...` with N chunks, and print the port on which that is done."""
    server = await asyncio.start_server(lambda reader, writer: _answer(reader, writer, gap), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gap: float) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    path = head.split(b" ", 2)[1].decode()
    _, pace, chunks, *_ = path.split("/")
    make_events = message_events if path.endswith("/messages") else chat_events
    # Made before the clock runs: what it costs to make them is not a gap between them.
    packed = [b"%x\r\n%b\r\n" % (len(event), event) for event in make_events(int(chunks))]
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    if pace == "burst":
        writer.write(b"".join(packed))
    else:
        for event in packed:
            writer.write(event)
            await asyncio.sleep(gap)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    writer.close()


def table(rows: list[Row]) -> str:
    """The rows as a table of Markdown."""
    lines = ["| API | stream | client | CPU a chunk, us | of httpx by hand | calls a chunk |"]
    lines.append("| --- | --- | --- | ---: | ---: | ---: |")
    for row in rows:
        if row.cpu is None or row.ratio is None or row.calls is None:
            lines.append(f"| {row.api} | {row.pace} | {row.client} | ({row.missing} is not installed) | | |")
        else:
            numbers = f"{row.cpu:.1f} | {row.ratio:.2f} | {row.calls:.0f}"
            lines.append(f"| {row.api} | {row.pace} | {row.client} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table, or the rows as JSON."""
    parser = argparse.ArgumentParser(description="What one chunk of a stream costs.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--burst", type=int, default=2000, help="chunks of a burst")
    parser.add_argument("--paced", type=int, default=500, help="chunks of a paced stream")
    parser.add_argument("--gap", type=float, default=0.001, help="seconds between paced chunks")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--serve", action="store_true", help="be the server")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.gap))
        return
    rows = measure(rounds=options.rounds, burst=options.burst, paced=options.paced, gap=options.gap)
    print(json.dumps([asdict(row) for row in rows]) if options.json else table(rows))


if __name__ == "__main__":
    main()
