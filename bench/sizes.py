"""The cost of long texts: a turn with one result, prompt, reply, argument, reasoning or file of a given length.

    python -m bench.sizes [--most 4096] [--place NAME ...] [--kind NAME ...]

Each length is twice the one before, from 4 KiB. Printed are the CPU time of a turn above that of the same turn with a
text of 16 characters, in microseconds a KiB (the least of several turns), and the function calls of a turn. Streamed
texts come in pieces of 16 characters. Places are the store in memory, SQLite, spans with content, the events of
`Engine.stream`, the JSON of the turn's facts, and the inspector's page of the ended turn (from the second request on).

Calls must not grow with a text that comes whole, and microseconds a KiB with any text.
"""

import argparse
import asyncio
import base64
import cProfile
import gc
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import httpx
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from turnwright import Agent, Engine, Usage, tool
from turnwright.message import FilePart
from turnwright.model.protocol import (
    Delta,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    ResponseToolCall,
    TextDelta,
    ToolCallDelta,
)
from turnwright.otel import OpenTelemetry
from turnwright.store import SqliteStore
from turnwright_inspector import Open, inspector_app

AGENT: Final = Agent(name="Sized")
PIECE: Final = 16
SHORT: Final = 16
LEAST_KIB: Final = 4
REPEATS: Final = 3
SOURCE: Final = Path(__file__).read_text()
KINDS: Final = (
    "prompt",
    "result",
    "result, repeated",
    "reply",
    "reply, streamed",
    "arguments",
    "arguments, streamed",
    "reasoning, streamed",
    "file",
)
PLACES: Final = ("memory", "SQLite", "spans", "events", "page")

#: Runs one turn with a text of this length.
Turn = Callable[[int], Awaitable[None]]


def filler(length: int) -> str:
    """A text of this length, like a program's source."""
    return (SOURCE * (length // len(SOURCE) + 1))[:length]


def pieces(text: str) -> Sequence[str]:
    """The text in short pieces."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


class SizedModel:
    """A model whose turns have one text of a given length, at a given place."""

    name = "sized"
    silence_timeout: Final = None

    def __init__(self) -> None:
        self.kind, self.text = "", ""
        self.requests = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """One reply: a call of the tool, twice where the result repeats, and then the answer."""
        del request
        self.requests += 1
        kind, text, usage = self.kind, self.text, Usage(input_tokens=10, output_tokens=10)
        if self.requests <= (2 if kind == "result, repeated" else 1):
            word = text if kind.startswith("arguments") else "a"
            if kind == "arguments, streamed":
                for piece in pieces(text):
                    yield ToolCallDelta(call_index=0, tool="look", arguments_delta=piece)
            call = ResponseToolCall(id=f"call{self.requests}", name="look", arguments={"word": word})
            yield ModelResponse(calls=(call,), usage=usage)
            return
        answer = text if kind.startswith("reply") else "Done."
        reasoning = text if kind.startswith("reasoning") else ""
        for piece in pieces(reasoning):
            yield ReasoningDelta(text=piece)
        for piece in pieces(answer) if kind == "reply, streamed" else (answer,):
            yield TextDelta(text=piece)
        yield ModelResponse(text=answer, reasoning=reasoning, usage=usage)


async def sized_turns(stack: AsyncExitStack, kind: str, place: str) -> Turn:
    """Return a function that runs a turn with a text of a given length."""
    model = SizedModel()

    @tool
    async def look(word: str) -> str:
        """Look a word up."""
        return model.text if kind.startswith("result") else f"{len(word)} characters"

    exporter = InMemorySpanExporter()
    telemetry = None
    if place == "spans":
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        telemetry = OpenTelemetry(provider, capture_content=True)
    path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "turns.db"
    store = SqliteStore(path, durability="normal") if place == "SQLite" else "memory:"
    engine = await stack.enter_async_context(Engine(model=model, tools=[look], store=store, telemetry=telemetry))
    client = await stack.enter_async_context(
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app=inspector_app(engine, access=Open())), base_url="http://127.0.0.1"
        )
    )
    turn_ids: dict[int, str] = {}

    async def run(length: int) -> None:
        model.kind, model.text, model.requests = kind, filler(length), 0
        prompt = model.text if kind == "prompt" else "Look."
        content = base64.b64encode(model.text.encode()).decode() if kind == "file" else ""
        files = [FilePart(media_type="application/pdf", data=content, name="a.pdf")] if content else []
        if place == "events":
            async with engine.stream(AGENT, prompt, files=files) as events:
                async for _ in events:
                    pass
            return
        if place == "page" and length in turn_ids:
            (await client.get(f"/turns/{turn_ids[length]}")).raise_for_status()
            return
        result = await engine.run(AGENT, prompt, files=files)
        turn_ids[length] = result.id
        exporter.clear()
        if result.text not in {"Done.", model.text}:
            raise RuntimeError(f"{kind}: the turn ended with {result.text[:80]!r}")

    return run


async def measure(kind: str, place: str, lengths: Sequence[int], repeats: int = REPEATS) -> list[tuple[float, int]]:
    """CPU microseconds a KiB above a turn with a short text, and the function calls of a turn, for each length."""
    rows: list[tuple[float, int]] = []
    async with AsyncExitStack() as stack:
        run = await sized_turns(stack, kind, place)
        seconds: dict[int, float] = {}
        for length in (SHORT, *lengths):
            await run(length)
            durations: list[float] = []
            for _ in range(repeats):
                start = time.process_time()
                await run(length)
                durations.append(time.process_time() - start)
            seconds[length] = min(durations)
        gc.collect()
        for length in lengths:
            gc.disable()  # a collection calls what ends with the objects of earlier turns
            try:
                with cProfile.Profile() as profile:
                    await run(length)
            finally:
                gc.enable()
            calls = sum(entry.callcount for entry in profile.getstats())
            rows.append(((seconds[length] - seconds[SHORT]) * 1e6 / (length / 1024), calls))
    return rows


def main() -> None:
    """Measure, and print a line for each place and text."""
    parser = argparse.ArgumentParser(description="The cost of long texts.")
    parser.add_argument("--most", type=int, default=4096, help="KiB of the longest text")
    parser.add_argument("--kind", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--place", nargs="*", choices=PLACES, default=PLACES)
    options = parser.parse_args()
    lengths = [LEAST_KIB * 1024]
    while lengths[-1] < options.most * 1024:
        lengths.append(lengths[-1] * 2)
    print(f"{'microseconds a KiB, and calls':30}", *(f"{length // 1024:>9,}" for length in lengths))
    for place in options.place:
        for kind in options.kind:
            rows = asyncio.run(measure(kind, place, lengths))
            print(f"{place + ', ' + kind:30}", *(f"{micros:9.2f}" for micros, _ in rows), flush=True)
            print(f"{'':30}", *(f"{calls:9,}" for _, calls in rows), flush=True)


if __name__ == "__main__":
    main()
