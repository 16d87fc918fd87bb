"""A model that fails: what is tried again, what is not, and what is kept."""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from turnwright import Agent, Engine, TurnResult, tool
from turnwright.message import TextPart
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, TextDelta
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.transcript.events import TurnEvent
from turnwright_states import Cause, EndReason, Finish, Limits, Outcome, Usage
from turnwright_states import facts as f

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
AT_ONCE = Backoff(initial=0)


@tool
async def note() -> str:
    return "noted"


@dataclass(frozen=True)
class Noting(Backoff):
    """Waits for nothing, and keeps what it was asked."""

    waits: list[tuple[int, float | None]] = field(default_factory=list)

    def wait(self, attempt: int, retry_after: float | None = None) -> float:
        self.waits.append((attempt, retry_after))
        return 0.0


class Stuttering:
    """Says a few words and breaks off, as often as `breaks`; then says them whole."""

    name = "stuttering"

    def __init__(self, breaks: int, *, cause: Cause = Cause.INTERRUPTED) -> None:
        self.breaks = breaks
        self.cause = cause
        self.calls = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        assert request.messages
        self.calls += 1
        yield TextDelta("All")
        yield TextDelta(" is")
        if self.calls <= self.breaks:
            raise ModelError(
                "the line broke", cause=self.cause, partial=ModelResponse(text="All is", usage=Usage(output_tokens=2))
            )
        yield ModelResponse(text="All is tidy.", usage=Usage())


def busy(retry_after: float | None = None) -> ModelError:
    return ModelError("too many requests", cause=Cause.RATE_LIMITED, status=429, retry_after=retry_after)


async def failed_attempts(engine: Engine, turn: TurnResult) -> list[f.AttemptFailed]:
    return [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.AttemptFailed)]


async def test_temporary_failure_is_retried() -> None:
    """Each attempt is a fact, written before the next one is made."""
    engine = Engine(model=ScriptedModel(busy(), busy(), "Tidy."), backoff=AT_ONCE)
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.text, turn.steps) == (Outcome.FINISHED, "Tidy.", 1)
    attempts = await failed_attempts(engine, turn)
    assert [(a.attempt, a.cause, a.retry, a.message) for a in attempts] == [
        (1, Cause.RATE_LIMITED, True, "too many requests"),
        (2, Cause.RATE_LIMITED, True, "too many requests"),
    ]


async def test_retries_are_limited_to_three() -> None:
    model = ScriptedModel(busy(), repeat=True)
    engine = Engine(model=model, backoff=AT_ONCE)
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.error) == (Outcome.FAILED, EndReason.MODEL_ERROR, "too many requests")
    assert len(model.requests) == 4
    assert [attempt.retry for attempt in await failed_attempts(engine, turn)] == [True, True, True, False]


async def test_each_step_has_separate_retries() -> None:
    lines = (busy(), busy(), busy(), asks_for(("note", {})), busy(), busy(), busy(), "Done.")
    turn = await Engine(model=ScriptedModel(*lines), tools=[note], backoff=AT_ONCE).run(AGENT, "hi")
    assert (turn.outcome, turn.steps) == (Outcome.FINISHED, 2)


async def test_max_retries_may_be_0() -> None:
    model = ScriptedModel(busy(), "never said")
    turn = await Engine(model=model, backoff=AT_ONCE, limits=Limits(max_retries=0)).run(AGENT, "hi")
    assert (turn.outcome, len(model.requests)) == (Outcome.FAILED, 1)


@pytest.mark.parametrize(
    "cause", [cause for cause in Cause if not cause.may_pass and cause is not Cause.CONTENT_FILTER]
)
async def test_permanent_failure_ends_the_turn(cause: Cause) -> None:
    model = ScriptedModel(ModelError("no", cause=cause, status=400), "never said")
    turn = await Engine(model=model, backoff=AT_ONCE).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.error) == (Outcome.FAILED, cause.reason, "no")
    assert len(model.requests) == 1


async def test_content_filter_ends_the_turn_and_keeps_the_text() -> None:
    """Whether the provider says it in the reply or with an error."""
    reply = ModelResponse(text="I can", finish=Finish.CONTENT_FILTER)
    for line in (reply, ModelError("filtered", cause=Cause.CONTENT_FILTER)):
        turn = await Engine(model=ScriptedModel(line), backoff=AT_ONCE).run(AGENT, "hi")
        assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.CONTENT_FILTER)
        assert turn.text == (reply.text if line is reply else "")


async def test_reply_with_neither_text_nor_calls_is_a_failed_attempt() -> None:
    turn = await Engine(model=ScriptedModel(ModelResponse(), ModelResponse(), "Hello."), backoff=AT_ONCE).run(
        AGENT, "hi"
    )
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Hello.")
    turn = await Engine(model=ScriptedModel(ModelResponse(), repeat=True), backoff=AT_ONCE).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.EMPTY_REPLY)


async def test_stream_without_a_reply_is_interrupted() -> None:
    class Mute:
        name = "mute"

        async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
            assert request.messages
            yield TextDelta("well")

    engine = Engine(model=Mute(), limits=Limits(max_retries=0))
    turn = await engine.run(AGENT, "hi")
    (attempt,) = await failed_attempts(engine, turn)
    assert (attempt.cause, attempt.partial, turn.reason) == (Cause.INTERRUPTED, "well", EndReason.MODEL_ERROR)


async def test_retry_after_of_the_provider_reaches_the_backoff() -> None:
    """With the number of the attempt that failed; one loop retries, and it is the chart's (docs/rules.md#retries)."""
    backoff = Noting()
    await Engine(model=ScriptedModel(busy(7.5), busy(), "Hello."), backoff=backoff).run(AGENT, "hi")
    assert backoff.waits == [(1, 7.5), (2, None)]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"retry_after": "7"}, "ModelError: retry_after must be a number of seconds, not str"),
        ({"partial": "All"}, "ModelError: partial must be a ModelResponse, not str"),
        ({"cause": "busy"}, "'busy' is not a valid Cause"),
    ],
)
async def test_wrong_field_of_a_models_error_is_named(fields: dict[str, Any], words: str) -> None:
    """A header is text, and a model of your own may pass it on unchanged."""

    def fails(_: ModelRequest) -> ModelResponse:
        raise ModelError("too many requests", **{"cause": Cause.RATE_LIMITED, **fields})

    turn = await Engine(model=ScriptedModel(fails, "Hello."), backoff=AT_ONCE).run(AGENT, "hi")
    assert (turn.reason, words in turn.error) == (EndReason.ENGINE_ERROR, True)


async def test_attempt_is_made_only_after_the_wait() -> None:
    engine = Engine(model=ScriptedModel(busy(0.05), "Hello."), backoff=AT_ONCE)
    turn = await engine.run(AGENT, "hi")
    assert turn.seconds >= 0.05


async def test_text_before_a_failure_is_kept() -> None:
    """In the attempt's fact each time, and as the turn's text when no attempt is left."""
    engine = Engine(model=Stuttering(9), backoff=AT_ONCE, limits=Limits(max_retries=1))
    turn = await engine.run(AGENT, "hi")
    assert [attempt.partial for attempt in await failed_attempts(engine, turn)] == ["All is", "All is"]
    assert (turn.outcome, turn.text) == (Outcome.FAILED, "All is")
    assert turn.usage == Usage(output_tokens=4)


async def test_listeners_receive_a_restart_after_a_failed_attempt() -> None:
    heard: list[TurnEvent] = []
    engine = Engine(model=Stuttering(1), backoff=AT_ONCE, on_event=[heard.append])
    turn = await engine.run(AGENT, "hi")
    kinds = [event.type for event in heard]
    deltas = ["text_delta", "text_delta"]
    assert kinds[2:] == [
        *deltas,
        "attempt_failed",
        "response_restarted",
        *deltas,
        "model_replied",
        "step_finished",
        "turn_ended",
    ]
    assert turn.text == "All is tidy."
    assert [p.text for m in turn.messages for p in m.parts if isinstance(p, TextPart)] == ["hi", "All is tidy."]


async def test_reasoning_of_an_empty_reply_is_dropped() -> None:
    """Listeners received them, and the attempt failed (docs/rules.md#replies, #retries)."""
    heard: list[str] = []
    model = ScriptedModel(ModelResponse(reasoning="hm", usage=Usage()), ModelResponse(text="Hello.", usage=Usage()))
    turn = await Engine(model=model, on_event=[lambda event: heard.append(event.type)]).run(AGENT, "hi")
    assert turn.text == "Hello."
    assert heard[2:7] == ["reasoning_delta", "attempt_failed", "response_restarted", "text_delta", "model_replied"]


async def test_complete_reply_sends_no_restart() -> None:
    """Every reply of a turn without failures stands."""
    heard: list[str] = []
    model = ScriptedModel(asks_for(("note", {}), text="Let me see."), "Done now.")
    await Engine(model=model, tools=[note], on_event=[lambda event: heard.append(event.type)]).run(AGENT, "hi")
    assert "text_delta" in heard
    assert "response_restarted" not in heard


async def test_error_outside_the_protocol_is_an_engine_error(caplog: pytest.LogCaptureFixture) -> None:
    """The turn ends as engine_error, what was said is kept, and the traceback is in the log."""

    class Buggy:
        name = "buggy"

        async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
            yield TextDelta("Well,")
            raise ZeroDivisionError(f"{len(request.messages)} / 0")

    with caplog.at_level(logging.ERROR, "turnwright"):
        turn = await Engine(model=Buggy(), backoff=AT_ONCE).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert turn.error.startswith("ZeroDivisionError: ")
    assert turn.text == "Well,"
    (logged,) = [record for record in caplog.records if record.exc_info]
    assert logged.exc_info is not None
    assert logged.exc_info[0] is ZeroDivisionError
    assert turn.id in logged.getMessage()


async def test_stream_is_closed_at_every_end() -> None:
    """Also when the reply came and there was more to stream."""
    closed: list[str] = []

    class Tidy:
        name = "tidy"

        async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
            try:
                assert request.messages
                yield ModelResponse(text="Hello.")
                await anyio.sleep_forever()
            finally:
                closed.append("yes")

    await Engine(model=Tidy()).run(AGENT, "hi")
    assert closed == ["yes"]
