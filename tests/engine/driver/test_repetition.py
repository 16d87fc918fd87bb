"""A reply that repeats its own end again and again is a failed attempt (docs/rules.md#replies)."""

import json
import random
from collections.abc import AsyncIterator, Callable

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from hypothesis import given
from hypothesis import strategies as st

from turnwright import Agent, Compact, Engine, tool
from turnwright.driver.repetition import LONGEST_PERIOD, REPEATED, RepetitionGuard, repeats
from turnwright.model import Backoff, OpenAIChat
from turnwright.model.protocol import (
    Delta,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright_states import Cause, EndReason, Limits, Outcome, Usage
from turnwright_states import facts as f

AGENT = Agent(name="Looper")
NOW = Backoff(initial=0)
#: More than the guard needs: the end that it looks at, and the characters between two looks.
ENOUGH = REPEATED + 2 * LONGEST_PERIOD


@tool
async def look(n: int) -> str:
    """Look."""
    return f"page {n}"


def stopped(text: str, cut: Callable[[], int] = lambda: 1000) -> bool:
    """Stream a text in pieces of these sizes; whether the guard stopped it."""
    guard, at = RepetitionGuard(), 0
    while at < len(text):
        size = cut()
        if guard.add(TextDelta(text[at : at + size])):
            return True
        at += size
    return False


def pieces(seed: int) -> Callable[[], int]:
    """Sizes of pieces: single characters, words, and more than the guard looks at."""
    chance = random.Random(seed)  # noqa: S311 (no secret)
    return lambda: chance.choice((0, 1, 3, 50, 700, 5_000, 40_000))


def period_of(text: str) -> int:
    """The shortest period of a text, by its definition."""
    return next(period for period in range(1, len(text) + 1) if text.startswith(text[period:]))


@given(st.text(min_size=1, max_size=40), st.integers(0, LONGEST_PERIOD // 40), st.text(max_size=200), st.integers())
def test_a_periodic_end_is_always_noticed(unit: str, times: int, before: str, seed: int) -> None:
    """It does not matter what came before it, nor how it was cut."""
    unit *= max(times, 1)
    text = before + unit * (ENOUGH // len(unit) + 1)
    assert stopped(text, pieces(seed))


@given(st.text(alphabet="ab", min_size=1, max_size=9), st.integers(0, ENOUGH - 1), st.integers())
def test_short_repetition_is_never_noticed(unit: str, place: int, seed: int) -> None:
    """A long row with another character at any place, so that no part of it is long enough."""
    text = (unit * REPEATED)[: REPEATED - 1]
    assert not stopped(f"{text}\n{text}"[place : place + len(text)], pieces(seed))


@given(st.text(alphabet="ab ", min_size=1, max_size=30), st.integers(1, 3 * LONGEST_PERIOD), st.data())
def test_detection_agrees_with_the_definition_of_a_period(unit: str, length: int, data: st.DataObject) -> None:
    """Also for a text with one other character, which has a long period or none."""
    unit = (unit * length)[:length]
    text = (unit * (REPEATED // length + 1))[:REPEATED]
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, REPEATED - 1))
        text = f"{text[:place]}!{text[place + 1 :]}"
    assert repeats(text) is (period_of(text) <= LONGEST_PERIOD)


@given(st.integers(), st.integers(), st.integers(1, 60), st.integers(0, REPEATED))
def test_verdict_is_independent_of_the_pieces(first_size: int, second_size: int, period: int, before: int) -> None:
    text = "x" * (before % 77) + "".join(map(chr, range(60, 60 + period))) * ((REPEATED + before) // period)
    assert stopped(text, pieces(first_size)) is stopped(text, pieces(second_size))


@pytest.mark.parametrize(
    "text",
    [
        "-" * 10_000,
        f"{' ' * 12_000}\n" * 2,
        "| - | - | - |\n" * 1_000,
        json.dumps([[0.0] * 50] * 50),
        "\n".join(f"| {n} | {'x' * (n % 7)} | yes |" for n in range(3_000)),
        "\n".join(f"    case {n}: return 0;" for n in range(3_000)),
        "".join(f"<tr><td>{n}</td><td></td></tr>\n" for n in range(2_000)),
        "\n".join(" " * (n % 40) + "*" * (80 - 2 * (n % 40)) + str(n // 40) for n in range(1_000)),
        "".join(format(n, "b") for n in range(5_000)),
    ],
    ids=["dashes", "blanks", "an empty table", "zeros", "a table", "code", "html", "ascii art", "bits"],
)
def test_legitimate_repetition_is_not_stopped(text: str) -> None:
    assert not stopped(text)


def test_parts_of_a_reply_are_checked_separately() -> None:
    guard, half = RepetitionGuard(), "na" * (REPEATED // 4)
    for piece in (half, half[:-2]):
        assert not guard.add(TextDelta(piece))
        assert not guard.add(ReasoningDelta(piece))
        assert not guard.add(ToolCallDelta(0, "sing", piece))
        assert not guard.add(ToolCallDelta(1, "sing", piece))
    assert not guard.add(ToolCallDelta(1, "sing", half))
    assert guard.add(ToolCallDelta(1, "sing", "nana"))


class Raving:
    """Repeats itself for ever in the first replies, then answers. `closed_streams` are the streams that were closed."""

    name = "raving"

    def __init__(self, make: Callable[[str], Delta], times: int = 1) -> None:
        self.make = make
        self.times = times
        self.closed_streams = 0
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        self.requests.append(request)
        if len(self.requests) <= self.times:
            try:
                for _ in range(1_000_000):
                    yield self.make("I will look once more. ")
            finally:
                self.closed_streams += 1
        yield TextDelta("Done.")
        yield ModelResponse(text="Done.")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "make", [TextDelta, ReasoningDelta, lambda text: ToolCallDelta(0, "look", text)], ids=["text", "reasoning", "call"]
)
async def test_repetitive_stream_is_closed_and_retried(make: Callable[[str], Delta]) -> None:
    model = Raving(make)
    async with Engine(model=model, backoff=NOW) as engine:
        turn = await engine.run(AGENT, "hi")
        failed = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.AttemptFailed)]
    assert (turn.outcome, turn.text, model.closed_streams) == (Outcome.FINISHED, "Done.", 1)
    assert [(attempt.cause, attempt.retry) for attempt in failed] == [(Cause.REPETITION, True)]
    assert failed[0].message == (
        "model raving: the reply repeated one text for 16,384 characters, so it was stopped; "
        "to allow such a reply, set `stop_repetition` to false"
    )
    assert failed[0].partial.startswith("I will look once more. ") is (make is TextDelta)
    assert len(failed[0].partial) <= ENOUGH


@pytest.mark.anyio
async def test_repetitive_stream_without_a_retry_ends_the_turn() -> None:
    model = Raving(TextDelta, times=9)
    turn = await Engine(model=model, limits=Limits(max_retries=0)).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.MODEL_ERROR)
    assert "repeated one text" in turn.error


@pytest.mark.anyio
async def test_repetitive_conclusion_is_retried() -> None:
    model = Raving(TextDelta)
    turn = await Engine(model=model, backoff=NOW, limits=Limits(steps=0)).run(AGENT, "hi")
    assert (turn.text, len(model.requests)) == ("Done.", 2)


@pytest.mark.anyio
async def test_repetition_guard_can_be_switched_off() -> None:
    text = "I will look once more. " * 2_000
    turn = await Engine(model=ScriptedModel(text), stop_repetition=False).run(AGENT, "hi")
    assert turn.text == text


@pytest.mark.anyio
async def test_repetitive_summary_is_retried() -> None:
    first, second = asks_for(("look", {"n": 1})), asks_for(("look", {"n": 2}), usage=Usage(input_tokens=900))
    model = ScriptedModel(first, second, "again and " * 2_000, "A summary.", "Done.")
    agent = Agent(name="Looper", compaction=Compact(at_tokens=100, keep_steps=1))
    turn = await Engine(model=model, tools=[look], backoff=NOW).run(agent, "hi")
    assert (turn.text, len(model.requests)) == ("Done.", 5)


@pytest.mark.anyio
async def test_repetitive_server_is_disconnected() -> None:
    hung_up, turn = anyio.Event(), None

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            try:
                while True:
                    await stream.send(b'data: {"choices": [{"delta": {"content": "ha ha "}}]}\n\n' * 100)
            except (anyio.BrokenResourceError, OSError):
                hung_up.set()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 (no Django)
        model = OpenAIChat("m", base_url=f"http://127.0.0.1:{port}/v1", api_key="k")
        turn = await Engine(model=model, limits=Limits(max_retries=0)).run(AGENT, "hi")
        await hung_up.wait()
        tasks.cancel_scope.cancel()
    assert turn is not None
    assert "repeated one text" in turn.error
