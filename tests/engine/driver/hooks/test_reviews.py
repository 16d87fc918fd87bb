"""Reviews that fail, are retried or never finish: who is asked again, and who reads the reply."""

import anyio
import pytest

from turnwright import (
    Agent,
    Engine,
    Retry,
    Trip,
    TurnContext,
    TurnResult,
    Usage,
    after_model,
    input_guardrail,
    on_start,
    output_guardrail,
)
from turnwright.model import ModelResponse, ScriptedModel, asks_for
from turnwright.model.protocol import ModelError
from turnwright.model.retry import Backoff
from turnwright.model.scripted import Line
from turnwright.transcript.events import TextDeltaEvent
from turnwright_states import Cause, EndReason, Limits, Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Clerk")
AT_ONCE = Backoff(initial=0)
UNCHECKED = "withheld: its check did not finish"


class Judge:
    """A guardrail whose model fails so many times, and asks for a wait of so many seconds."""

    def __init__(self, failures: int, wait: float | None = None) -> None:
        self.failures = failures
        self.wait = wait

    async def __call__(self, ctx: TurnContext, text: str) -> Trip | None:
        self.failures -= 1
        if self.failures >= 0:
            raise ModelError("overloaded", cause=Cause.OVERLOADED, retry_after=self.wait)
        return None


def texts(turn: TurnResult) -> list[str]:
    return [message.text for message in turn.messages if message.text]


# A reply without a verdict.


async def broken(ctx: TurnContext, text: str) -> Trip | None:
    raise KeyError("boom")


async def forever(ctx: TurnContext, text: str) -> Trip | None:
    await anyio.sleep(1000)
    return None


async def wrong(ctx: TurnContext, text: str) -> Trip | None:
    return Trip("no", {"x": object()})  # type: ignore[dict-item]


@pytest.mark.parametrize("check", [broken, wrong, Judge(99)])
async def test_reply_with_a_failed_check_is_withheld(check: object) -> None:
    guardrail = output_guardrail(check)  # type: ignore[call-overload]
    engine = Engine(model=ScriptedModel("It is hunter2."), guardrails=[guardrail], backoff=AT_ONCE)
    turn = await engine.run(AGENT, "hi", session="s")
    assert turn.outcome is Outcome.FAILED
    assert texts(turn) == ["hi", UNCHECKED]
    model = ScriptedModel("Well.")
    await Engine(model=model, store=engine.store).run(AGENT, "and now?", session="s")
    assert [message.text for message in model.requests[0].messages] == ["hi", UNCHECKED, "and now?"]
    assert "hunter2" not in repr(await engine.messages("s"))


@pytest.mark.parametrize("typed", [False, True])
async def test_abort_during_a_review_withholds_the_reply(*, typed: bool) -> None:
    reply: Line = asks_for(("final_result", {"response": "hunter2"})) if typed else "It is hunter2."
    agent: Agent[object, object] = Agent(name="Clerk", output_type=str | int) if typed else AGENT
    async with Engine(model=ScriptedModel(reply), guardrails=[output_guardrail(forever)]) as engine:
        handle = await engine.start(agent, "hi", session="s")
        await anyio.sleep(10)
        assert "hunter2" not in repr((await engine.get(handle.id)).messages)
        await handle.abort()
        turn = await handle.result()
        assert turn.outcome is Outcome.ABORTED
        assert "hunter2" not in repr(turn.messages) + repr([event.public() async for event in engine.events(turn.id)])


async def test_a_deadline_in_a_review_withholds_the_reply() -> None:
    model = ScriptedModel("It is hunter2.", "I ran out of time.")

    async def slow(ctx: TurnContext, text: str) -> Trip | None:
        return await forever(ctx, text) if "hunter2" in text else None

    engine = Engine(model=model, guardrails=[output_guardrail(slow)])
    turn = await engine.run(Agent(name="Clerk", budget=Limits(seconds=5)), "hi")
    assert (turn.reason, turn.text) == (EndReason.DEADLINE, "I ran out of time.")
    assert "hunter2" not in repr(turn.messages) + repr(model.requests[1].messages)


async def test_a_trip_after_a_refused_reply_is_in_the_transcript() -> None:
    """The refused reply is in an earlier step: a text of its own says what was withheld."""

    @after_model
    async def refuse(ctx: TurnContext, response: ModelResponse) -> None:
        raise Retry("again")

    @output_guardrail
    async def check(ctx: TurnContext, text: str) -> Trip | None:
        return Trip("no") if "hunter2" in text else None

    model = ScriptedModel("One.", "It is hunter2.")
    engine = Engine(model=model, hooks=[refuse], guardrails=[check])
    turn = await engine.run(Agent(name="Clerk", steps=1), "hi")
    assert (turn.reason, texts(turn)[-1]) == (EndReason.GUARDRAIL, "withheld by check")


# Who is asked again.


async def test_retried_review_asks_only_the_failed_check_and_waits() -> None:
    texts: list[str] = []

    @after_model
    async def hook(ctx: TurnContext, response: ModelResponse) -> None:
        texts.append(response.text)

    engine = Engine(
        model=ScriptedModel("Fine."),
        hooks=[hook],
        guardrails=[output_guardrail(Judge(2, wait=2))],
        backoff=AT_ONCE,
    )
    start = anyio.current_time()
    assert (await engine.run(AGENT, "hi")).text == "Fine."
    assert texts == ["Fine."]
    assert anyio.current_time() - start == pytest.approx(4)


async def test_retried_prompt_check_asks_only_the_failed_check_and_waits() -> None:
    hook_names: list[str] = []

    @on_start
    async def begin(ctx: TurnContext) -> None:
        hook_names.append("begin")

    @input_guardrail(run_in_parallel=False)
    async def passes(ctx: TurnContext, prompt: str) -> Trip | None:
        hook_names.append("passes")
        return None

    engine = Engine(
        model=ScriptedModel("Fine."),
        hooks=[begin],
        guardrails=[passes, input_guardrail(run_in_parallel=False)(Judge(2, wait=2))],
        backoff=AT_ONCE,
    )
    start = anyio.current_time()
    assert (await engine.run(AGENT, "hi")).text == "Fine."
    assert hook_names == ["begin", "passes"]
    assert anyio.current_time() - start == pytest.approx(4)


async def test_message_during_a_waiting_check_is_in_the_request() -> None:
    model = ScriptedModel("Fine.")
    guardrail = input_guardrail(run_in_parallel=False)(Judge(1, wait=9))
    async with Engine(model=model, guardrails=[guardrail], backoff=AT_ONCE) as engine:
        handle = await engine.start(AGENT, "hi")
        await anyio.sleep(3)
        await handle.steer("and more")
        assert (await handle.result()).undelivered == ()
    assert [message.text for message in model.requests[0].messages] == ["hi", "and more"]


async def test_a_conclusion_streams_once_a_parallel_guardrail_has_passed() -> None:
    """Its model had failed beside the attempt, and the conclusion asks it again."""
    usage = ModelResponse(text="", usage=Usage(input_tokens=90, output_tokens=9))
    lost = ModelError("overloaded", cause=Cause.OVERLOADED, partial=usage)
    engine = Engine(
        model=ScriptedModel(lost, "Nothing yet."),
        guardrails=[input_guardrail(Judge(2))],
        backoff=AT_ONCE,
    )
    async with engine.stream(Agent(name="Clerk", budget=Limits(tokens=50)), "hi") as stream:
        pieces = [event.text async for event in stream if isinstance(event, TextDeltaEvent)]
    assert "".join(pieces) == "Nothing yet."
