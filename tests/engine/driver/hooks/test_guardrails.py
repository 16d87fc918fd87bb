"""Guardrails: what they check, when, and what happens when one trips."""

from collections.abc import AsyncIterator, Callable, Sequence

import anyio
import anyio.lowlevel
import pytest

from turnwright import (
    Agent,
    CallView,
    ConfigError,
    Engine,
    Guardrail,
    StoreError,
    ToolContext,
    ToolResult,
    Trip,
    TurnContext,
    TurnResult,
    before_model,
    input_guardrail,
    output_guardrail,
    tool,
    tool_input_guardrail,
    tool_output_guardrail,
)
from turnwright.agent import OutputMode
from turnwright.message import ToolResultPart
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.model.protocol import ModelError, TextDelta
from turnwright.model.retry import Backoff
from turnwright.store import MemoryStore
from turnwright.transcript.events import FactEvent, ResponseWithdrawnEvent, TextDeltaEvent, TurnEndedEvent, TurnEvent
from turnwright_states import CallStatus, Cause, EndReason, Finish, Limits, Outcome, Usage
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Clerk")
AT_ONCE = Backoff(initial=0)


@tool(idempotent=True)
async def look(n: int = 0) -> str:
    return f"seen {n}"


def says(text: str, word: str) -> Trip | None:
    return Trip("not allowed", {"length": len(word)}) if word in text else None


@input_guardrail(run_in_parallel=False)
async def on_topic(ctx: TurnContext, prompt: str) -> Trip | None:
    return says(prompt, "weather")


@input_guardrail
async def polite(ctx: TurnContext, prompt: str) -> Trip | None:
    await anyio.sleep(1)
    return says(prompt, "weather")


@output_guardrail
async def no_secrets(ctx: TurnContext, text: str) -> Trip | None:
    return says(text, "hunter2")


@output_guardrail(hold_stream=False)
async def late(ctx: TurnContext, text: str) -> Trip | None:
    return says(text, "hunter2")


@tool_input_guardrail
async def small(ctx: ToolContext, call: CallView) -> Trip | None:
    return Trip("too large") if call.arguments.get("n") == 9 else None


@tool_output_guardrail
async def clean(ctx: ToolContext, call: CallView, result: ToolResult) -> Trip | None:
    return says(result.text, "9")


def tripped(turn: TurnResult, name: str) -> bool:
    return (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.GUARDRAIL) and turn.error.startswith(f"{name}: ")


async def followed(engine: Engine, prompt: str = "hi", agent: Agent = AGENT) -> list[TurnEvent]:
    async with engine.stream(agent, prompt) as stream:
        return [event async for event in stream]


def shown(events: Sequence[TurnEvent]) -> str:
    """All that followers were sent, as it may go to a browser."""
    return repr([event.public() for event in events])


# Input.


@pytest.mark.parametrize("steps", [5, 0])
async def test_a_blocking_input_guardrail_trips_before_the_model_is_called(steps: int) -> None:
    model = ScriptedModel("Sunny.")
    engine = Engine(model=model, guardrails=[on_topic])
    turn = await engine.run(Agent(name="Clerk", steps=steps), "How is the weather?")
    assert tripped(turn, "on_topic")
    assert (turn.error, model.requests) == ("on_topic: not allowed", [])
    assert turn.guardrail is not None
    assert (turn.guardrail.name, turn.guardrail.metadata) == ("on_topic", {"length": 7})


async def test_passed_blocking_input_guardrail_is_journaled() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("look", {})), "Done."), tools=[look], guardrails=[on_topic])
    turn = await engine.run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED
    prepared = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.RequestPrepared)]
    assert [step.decisions for step in prepared] == [
        ({"guardrail": "on_topic", "on": "input", "decision": "passed"},)
    ], "asked on the first step only"


class Slowly:
    """A model that streams two words, one second apart, then asks for a tool."""

    name = "slowly"

    def __init__(self, seconds: float = 1, *lines: ModelResponse) -> None:
        self.seconds = seconds
        self.lines = list(lines)
        self.completed = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        line = self.lines.pop(0)
        for word in line.text.split():
            await anyio.sleep(self.seconds)
            yield TextDelta(word)
        self.completed += 1
        yield line


async def test_tripped_parallel_input_guardrail_cancels_the_call() -> None:
    model = Slowly(2, ModelResponse(text="It rains"))
    engine = Engine(model=model, guardrails=[polite])
    events = await followed(engine, "weather?")
    assert isinstance(events[-1], TurnEndedEvent)
    assert events[-1].reason is EndReason.GUARDRAIL
    assert (model.completed, events[-1].partial) == (0, "")
    assert not any(isinstance(event, TextDeltaEvent) for event in events)


async def test_the_reply_waits_for_a_parallel_input_guardrail_and_then_streams() -> None:
    model = Slowly(0.4, ModelResponse(text="one two three four"))
    engine = Engine(model=model, guardrails=[polite])
    times: list[tuple[float, str]] = []
    start = anyio.current_time()
    async with engine.stream(AGENT, "hi") as stream:
        times += [
            (round(anyio.current_time() - start, 1), event.text)
            async for event in stream
            if isinstance(event, TextDeltaEvent)
        ]
    assert times == [(1.0, "one"), (1.0, "two"), (1.2, "three"), (1.6, "four")]


async def test_calls_wait_for_a_parallel_input_guardrail() -> None:
    ran: list[str] = []

    @tool
    async def act() -> str:
        ran.append("act")
        return "done"

    engine = Engine(model=ScriptedModel(asks_for(("act", {}), text="Sure.")), tools=[act], guardrails=[polite])
    events = await followed(engine, "weather?")
    assert isinstance(events[-1], TurnEndedEvent)
    assert (events[-1].reason, ran) == (EndReason.GUARDRAIL, [])
    assert "Sure." not in shown(events)
    turn = await engine.get(events[-1].turn)
    assert [m.text for m in turn.messages][:2] == ["withheld by polite", "withheld by polite"]


@pytest.mark.parametrize("waits", [0, 1])
@pytest.mark.parametrize(
    "reply", [ModelResponse(text="no", finish=Finish.CONTENT_FILTER), ModelResponse()], ids=["filtered", "blank"]
)
async def test_late_input_guardrail_raises_nothing_after_a_final_reply(reply: ModelResponse, waits: int) -> None:
    """The first of the two ends the turn, and the other one comes too late."""

    @input_guardrail
    async def trips(ctx: TurnContext, prompt: str) -> Trip | None:
        for _ in range(waits):
            await anyio.lowlevel.checkpoint()
        return Trip(prompt)

    engine = Engine(model=ScriptedModel(reply), guardrails=[trips], limits=Limits(max_retries=0), backoff=AT_ONCE)
    turn = await engine.run(AGENT, "hi")
    assert turn.outcome is Outcome.FAILED
    assert turn.reason in (EndReason.GUARDRAIL, EndReason.CONTENT_FILTER, EndReason.EMPTY_REPLY)
    assert replay(await engine.store.facts(turn.id)).check.verdict is Verdict.HOLDS


async def test_final_reply_waits_for_no_input_guardrail() -> None:
    engine = Engine(
        model=ScriptedModel(ModelResponse(text="no", finish=Finish.CONTENT_FILTER)),
        guardrails=[polite],
        backoff=AT_ONCE,
    )
    assert (await engine.run(AGENT, "weather")).reason is EndReason.CONTENT_FILTER


async def test_a_failed_attempt_waits_for_no_input_guardrail() -> None:
    """A blank reply is one. The next attempt begins beside the guardrail again."""
    times: list[float] = []

    @input_guardrail
    async def slow(ctx: TurnContext, prompt: str) -> Trip | None:
        times.append(anyio.current_time())
        await anyio.sleep(5)
        return None

    engine = Engine(model=ScriptedModel(" ", "Done."), guardrails=[slow], backoff=AT_ONCE)
    assert (await engine.run(AGENT, "hi")).text == "Done."
    assert [at - times[0] for at in times] == [0, 0]


async def test_message_during_a_blocking_check_is_in_the_request() -> None:
    start = anyio.Event()

    @input_guardrail(run_in_parallel=False)
    async def slow(ctx: TurnContext, prompt: str) -> Trip | None:
        start.set()
        await anyio.sleep(1)
        return None

    model = ScriptedModel("Done.")
    async with Engine(model=model, guardrails=[slow]) as engine:
        handle = await engine.start(AGENT, "hi")
        await start.wait()
        await handle.steer("Be brief.")
        assert (await handle.result()).undelivered == ()
    assert model.requests[0].messages[-1].text == "Be brief."


async def test_message_before_a_repeated_check_is_in_the_request_for_hooks() -> None:
    texts: list[str] = []
    prompts: list[str] = []

    @before_model
    async def see(ctx: TurnContext, request: ModelRequest) -> None:
        texts.append(request.messages[-1].text)

    @input_guardrail(run_in_parallel=False)
    async def busy(ctx: TurnContext, prompt: str) -> Trip | None:
        if prompt not in prompts:
            prompts.append(prompt)
            await engine.steer(ctx.turn_id, "Be brief.")
            raise ModelError("overloaded", cause=Cause.OVERLOADED)
        return None

    async with Engine(model=ScriptedModel("Done."), guardrails=[busy], hooks=[see], backoff=AT_ONCE) as engine:
        await engine.run(AGENT, "hi")
    assert texts == ["Be brief."]


async def test_a_turn_without_steps_waits_for_a_parallel_input_guardrail() -> None:
    turn = await Engine(model=ScriptedModel("Sunny."), guardrails=[polite]).run(
        Agent(name="Clerk", steps=0), "weather?"
    )
    assert tripped(turn, "polite")
    assert "Sunny" not in repr(turn.messages)


async def test_an_input_guardrail_is_not_asked_on_later_steps() -> None:
    prompts: list[str] = []

    @input_guardrail
    async def count(ctx: TurnContext, prompt: str) -> Trip | None:
        prompts.append(prompt)
        return None

    engine = Engine(model=ScriptedModel(asks_for(("look", {})), "Done."), tools=[look], guardrails=[count])
    assert (await engine.run(AGENT, "hi")).outcome is Outcome.FINISHED
    assert prompts == ["hi"]


async def test_conclusion_waits_for_the_input_guardrails() -> None:
    """The deadline passes while the guardrail thinks: the model does not conclude on an unchecked prompt."""
    model = Slowly(0.1, ModelResponse(text="never"), ModelResponse(text="So far"))

    @input_guardrail(run_in_parallel=False)
    async def slow(ctx: TurnContext, prompt: str) -> Trip | None:
        await anyio.sleep(3)
        return Trip("no")

    engine = Engine(model=model, guardrails=[slow], limits=Limits(seconds=2), clock=anyio.current_time)
    turn = await engine.run(AGENT, "hi")
    assert tripped(turn, "slow")
    assert model.completed == 0


# Output.


async def test_tripped_output_guardrail_withholds_the_text_everywhere() -> None:
    store = MemoryStore()
    engine = Engine(model=ScriptedModel("It is hunter2.", "Fine."), guardrails=[no_secrets], store=store)
    async with engine.stream(AGENT, "hi", session="s") as stream:
        events = [event async for event in stream]
    turn = await engine.get(events[-1].turn)
    assert tripped(turn, "no_secrets")
    assert turn.text == "withheld by no_secrets"
    assert "hunter2" not in shown(events)
    assert "hunter2" not in shown([event async for event in engine.events(turn.id)])
    assert "hunter2" not in repr(turn.messages)
    model = ScriptedModel("Fine.")
    await Engine(model=model, store=store).run(AGENT, "and now?", session="s")
    assert [message.text for message in model.requests[0].messages] == ["hi", "withheld by no_secrets", "and now?"]


@pytest.mark.parametrize("mode", ["tool", "prompt"])
async def test_a_refused_reply_is_not_checked_and_not_shown(mode: OutputMode) -> None:
    """The feedback is for the model. It may quote the answer, so the line for the user does not have it."""
    reply = asks_for(("final_result", {"response": "hunter2"})) if mode == "tool" else "hunter2"
    agent = Agent(name="Counter", output_type=int, output_mode=mode)
    engine = Engine(model=ScriptedModel(reply, repeat=True), guardrails=[no_secrets])
    async with engine.stream(agent, "hi") as stream:
        events = [event async for event in stream]
    replied = [
        event.fact for event in events if isinstance(event, FactEvent) and isinstance(event.fact, f.ModelReplied)
    ]
    assert len(replied) == 3
    assert "hunter2" not in repr(replied)
    turn = await engine.get(events[-1].turn)
    assert (turn.reason, turn.text) == (EndReason.INVALID_OUTPUT, "")
    assert turn.sentinel is not None
    assert turn.sentinel.text == "The model's answer was refused, and no output retry was left. You can try again."


async def test_text_is_held_until_the_verdict() -> None:
    texts: list[str] = []

    @output_guardrail
    async def slow(ctx: TurnContext, text: str) -> Trip | None:
        await anyio.sleep(5)
        texts.append(text)
        return None

    start, times = anyio.current_time(), list[float]()
    engine = Engine(model=Slowly(0.1, ModelResponse(text="one two")), guardrails=[slow])
    async with engine.stream(AGENT, "hi") as stream:
        async for event in stream:
            if isinstance(event, TextDeltaEvent):
                times.append(round(anyio.current_time() - start))
    assert (texts, times) == (["one two"], [5, 5])


async def test_text_may_stream_at_once_and_is_withdrawn() -> None:
    engine = Engine(model=ScriptedModel("It is hunter2."), guardrails=[late])
    events = await followed(engine)
    kinds = [type(event) for event in events]
    assert kinds.index(TextDeltaEvent) < kinds.index(ResponseWithdrawnEvent) < kinds.index(TurnEndedEvent)
    (withdrawn,) = [event for event in events if isinstance(event, ResponseWithdrawnEvent)]
    assert withdrawn.public()["guardrail"] == "late"
    (reply,) = [
        event.fact for event in events if isinstance(event, FactEvent) and isinstance(event.fact, f.ModelReplied)
    ]
    assert reply.text == ""


async def test_filtered_reply_shows_no_unchecked_text() -> None:
    model = ScriptedModel(ModelResponse(text="It is hunter2.", finish=Finish.CONTENT_FILTER))
    async with Engine(model=model, guardrails=[no_secrets]) as engine:
        turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.CONTENT_FILTER)
    assert turn.text == ""
    assert "hunter2" not in str(turn.messages)


async def test_aborted_turn_shows_no_unchecked_text() -> None:
    model = Slowly(1, ModelResponse(text="It is hunter2 indeed yes"))
    engine = Engine(model=model, guardrails=[no_secrets])
    async with engine.stream(AGENT, "hi") as stream:
        events: list[TurnEvent] = []
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                await anyio.sleep(3.5)
                (row,) = await engine.turns()
                await engine.abort(row.id)

            group.start_soon(stop)
            events += [event async for event in stream]
    assert isinstance(events[-1], TurnEndedEvent)
    assert (events[-1].outcome, events[-1].partial) == (Outcome.ABORTED, "")
    assert "hunter2" not in shown(events)


@pytest.mark.parametrize("steps", [1, 0])
async def test_conclusions_and_text_only_turns_are_checked(steps: int) -> None:
    lines = [asks_for(("look", {}))] if steps else []
    engine = Engine(model=ScriptedModel(*lines, "It is hunter2."), tools=[look], guardrails=[no_secrets])
    events = await followed(engine, agent=Agent(name="Clerk", steps=steps))
    turn = await engine.get(events[-1].turn)
    assert tripped(turn, "no_secrets")
    assert turn.text == "withheld by no_secrets"
    assert "hunter2" not in repr(await engine.store.facts(turn.id))
    assert "hunter2" not in shown(events)


@pytest.mark.parametrize(("steps", "guardrail"), [(1, no_secrets), (0, no_secrets), (0, polite)])
async def test_the_usage_of_a_reply_counts_though_a_guardrail_trips(steps: int, guardrail: Guardrail[None]) -> None:
    reply = ModelResponse(text="The weather is hunter2.", usage=Usage(input_tokens=5, output_tokens=2))
    lines = [asks_for(("look", {}))] if steps else []
    engine = Engine(model=ScriptedModel(*lines, reply), tools=[look], guardrails=[guardrail])
    turn = await engine.run(Agent(name="Clerk", steps=steps), "weather?")
    assert tripped(turn, guardrail.name)
    assert turn.usage.tokens == 7 + 2 * steps


async def test_usage_counts_despite_an_abort_before_the_verdict() -> None:
    reply = ModelResponse(text="Sunny.", usage=Usage(input_tokens=5, output_tokens=2))
    async with Engine(model=ScriptedModel(reply), guardrails=[polite]) as engine:
        handle = await engine.start(Agent(name="Clerk", steps=0), "hi")
        await anyio.sleep(0.5)
        await handle.abort()
        turn = await handle.result()
    assert (turn.outcome, turn.usage.tokens) == (Outcome.ABORTED, 7)


async def test_usage_of_a_textless_reply_counts_once_despite_a_later_abort() -> None:
    async def hang(_: ModelRequest) -> str:
        await anyio.sleep_forever()
        raise AssertionError

    blank = ModelResponse(usage=Usage(input_tokens=5, output_tokens=2))
    async with Engine(model=ScriptedModel(blank, hang), guardrails=[no_secrets], backoff=AT_ONCE) as engine:
        handle = await engine.start(Agent(name="Clerk", steps=0), "hi")
        await anyio.sleep(1)
        await handle.abort()
        turn = await handle.result()
    assert (turn.outcome, turn.usage.tokens) == (Outcome.ABORTED, 7)


async def test_text_beside_calls_is_checked_before_the_calls_run() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("look", {}), text="hunter2")), tools=[look], guardrails=[no_secrets])
    turn = await engine.run(AGENT, "hi")
    assert (tripped(turn, "no_secrets"), turn.tool_calls) == (True, 0)


# Tools.


async def test_a_tool_input_guardrail_ends_the_turn_before_the_call() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("look", {"n": 9}))), tools=[look], guardrails=[small])
    turn = await engine.run(AGENT, "hi")
    assert (tripped(turn, "small"), turn.tool_calls) == (True, 0)


async def test_tripped_tool_output_guardrail_withholds_the_result() -> None:
    done: list[int] = []

    @tool
    async def slow() -> str:
        await anyio.sleep(60)
        return "late"

    @tool
    async def fast() -> str:
        done.append(1)
        return "fast"

    lines = asks_for(("fast", {}), ("slow", {}), ("look", {"n": 9}))
    engine = Engine(model=ScriptedModel(lines), tools=[look, slow, fast], guardrails=[clean])
    turn = await engine.run(AGENT, "hi")
    assert tripped(turn, "clean")
    assert "seen 9" not in repr(await engine.store.facts(turn.id))
    results = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert [(part.status, part.text.partition(";")[0]) for part in results] == [
        (CallStatus.OK, "fast"),
        (CallStatus.ABORTED, "not finished: the turn ended (guardrail)"),
        (CallStatus.ABORTED, "not finished: the turn ended (guardrail)"),
    ], "what ran is kept"


# Failures.


class Judge:
    """A check whose own model fails so many times."""

    def __init__(self, failures: int, cause: Cause = Cause.OVERLOADED) -> None:
        self.failures = failures
        self.cause = cause
        self.consultations = 0

    async def __call__(self, *_: object) -> Trip | None:
        self.consultations += 1
        if self.consultations <= self.failures:
            raise ModelError("overloaded", cause=self.cause)
        return None


KINDS = [
    input_guardrail(run_in_parallel=False),
    input_guardrail(run_in_parallel=True),
    output_guardrail(hold_stream=True),
    tool_input_guardrail,
    tool_output_guardrail,
]


@pytest.mark.parametrize("make", KINDS)
async def test_check_with_a_failing_model_is_repeated(make: Callable[[object], Guardrail]) -> None:
    judge = Judge(2)
    model = ScriptedModel(asks_for(("look", {})), "Done.")
    engine = Engine(model=model, tools=[look], guardrails=[make(judge)], backoff=AT_ONCE)
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, judge.consultations >= 3) == (Outcome.FINISHED, True), turn.error


@pytest.mark.parametrize("make", KINDS)
async def test_undecided_check_fails_closed(make: Callable[[object], Guardrail]) -> None:
    judge = Judge(99)
    model = ScriptedModel(asks_for(("look", {})), "Done.", repeat=True)
    engine = Engine(model=model, tools=[look], guardrails=[make(judge)], backoff=AT_ONCE)
    turn = await engine.run(AGENT, "hi")
    assert turn.outcome is Outcome.FAILED
    assert turn.reason in (EndReason.ENGINE_ERROR, EndReason.MODEL_ERROR), turn.error
    assert "overloaded" in turn.error


@pytest.mark.parametrize("make", KINDS)
async def test_exception_of_a_guardrail_ends_the_turn_and_names_the_guardrail(
    make: Callable[[object], Guardrail],
) -> None:
    async def broken(*_: object) -> Trip | None:
        raise KeyError("boom")

    model = ScriptedModel(asks_for(("look", {}), text="hm"), "Done.")
    turn = await Engine(model=model, tools=[look], guardrails=[make(broken)]).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert "guardrail 'broken' raised KeyError: 'boom'" in turn.error


async def test_guardrail_raising_a_trip_is_told_to_return() -> None:
    @output_guardrail
    async def broken(ctx: TurnContext, text: str) -> Trip | None:
        raise Trip("no")  # type: ignore[misc]

    turn = await Engine(model=ScriptedModel("Done."), guardrails=[broken]).run(AGENT, "hi")
    assert "raised TypeError: exceptions must derive from BaseException: return a decision, do not raise" in turn.error


@pytest.mark.parametrize("guardrails", [[3], [on_topic.check], [Guardrail]])
def test_wrong_guardrail_object_is_refused(guardrails: list[object]) -> None:
    with pytest.raises(ConfigError, match=r"^engine: guardrails: "):
        Engine(guardrails=guardrails)  # type: ignore[arg-type]


# Crashes.


def engine_on(store: MemoryStore | FaultyStore) -> Engine:
    def reply(request: ModelRequest) -> ModelResponse | str:
        return (asks_for(("look", {"n": 1}), text="Let me look."), "It is hunter2.")[
            sum(message.role == "assistant" for message in request.messages)
        ]

    guardrails = [on_topic, polite, no_secrets, small, clean]
    model = ScriptedModel(reply, repeat=True)
    return Engine(model=model, tools=[look], guardrails=guardrails, store=store, limits=Limits(max_retries=9))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_each_append_ends_the_turn_the_same(*, after: bool) -> None:
    whole = await engine_on(MemoryStore()).run(AGENT, "hi")
    assert tripped(whole, "no_secrets")
    crashes, died = 0, True
    while died:
        memory = MemoryStore()
        dying = FaultyStore(memory, at=crashes + 1, after=after)
        try:
            await engine_on(dying).run(AGENT, "hi")
        except StoreError:
            await dying.aclose()
        died = dying.dead
        (row,) = await memory.turns()
        engine = engine_on(memory)
        turn = await engine.get(row.id)
        turn = turn if turn.outcome is not None else await engine.resume(row.id)
        assert (turn.reason, turn.text, turn.error) == (whole.reason, whole.text, whole.error)
        assert [message.text for message in turn.messages] == [message.text for message in whole.messages]
        facts = await memory.facts(row.id)
        assert replay(facts).check.verdict is Verdict.HOLDS
        assert "hunter2" not in shown([event async for event in engine.events(row.id)])
        crashes += died
    assert crashes == 7


async def test_conclusion_after_a_crash_repeats_no_journaled_verdict() -> None:
    prompts: list[str] = []

    @input_guardrail
    async def once(ctx: TurnContext, prompt: str) -> None:
        prompts.append(prompt)

    def concluding(store: MemoryStore | FaultyStore) -> Engine:
        model = ScriptedModel(asks_for(("look", {})), "Stopped.", repeat=True)
        return Engine(model=model, tools=[look], guardrails=[once], store=store, limits=Limits(steps=1))

    memory = MemoryStore()
    dying = FaultyStore(memory, at=4, after=True)
    with pytest.raises(StoreError):
        await concluding(dying).run(AGENT, "hi")
    await dying.aclose()
    (row,) = await memory.turns()
    assert isinstance((await memory.facts(row.id))[-1][1], f.Stopping)
    turn = await concluding(memory).resume(row.id)
    assert (turn.outcome, prompts) == (Outcome.CAP_HIT, ["hi"])


# Typed answers.


@pytest.mark.parametrize("mode", ["tool", "prompt"])
async def test_a_typed_answer_is_checked_as_json_and_withheld(mode: OutputMode) -> None:
    texts: list[str] = []

    @output_guardrail
    async def check(ctx: TurnContext, text: str) -> Trip | None:
        texts.append(text)
        return says(text, "hunter2")

    agent = Agent(name="Clerk", output_type=dict[str, str], output_mode=mode)
    for value in ("fine", "hunter2"):
        reply = asks_for(("final_result", {"password": value})) if mode == "tool" else f'{{"password": "{value}"}}'
        engine = Engine(model=ScriptedModel(reply), guardrails=[check])
        async with engine.stream(agent, "hi") as stream:
            events = [event async for event in stream]
        turn = await engine.get(events[-1].turn)
        assert texts[-1] == f'{{"password": "{value}"}}'
        if value == "fine":
            assert turn.outcome is Outcome.FINISHED, turn.error
        else:
            assert tripped(turn, "check")
            later = [event async for event in engine.events(turn.id)]
            assert "hunter2" not in repr(turn.messages) + shown(events) + shown(later)
