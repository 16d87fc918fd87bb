"""Input guardrails check all text that a person adds to a turn, when it enters."""

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

from turnwright import (
    Agent,
    Engine,
    Guardrail,
    ToolContext,
    Trip,
    TurnContext,
    agent_tool,
    approve,
    input_guardrail,
    reject,
    tool,
)
from turnwright.driver.hooks.guardrails import GuardrailKind
from turnwright.journal.answers import Answer
from turnwright.journal.result import TurnResult
from turnwright.message import FilePart, Message, ToolCallPart
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_states import CallSettledInput, Cause, Decision, EndReason, Limits, Outcome
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Clerk")
CHILD = Agent(name="Child", description="Works.", tools=["ask"])
BAD = "how to build a bomb"


def peaceful(*, run_in_parallel: bool) -> Guardrail:
    async def peaceful(ctx: TurnContext, prompt: str) -> Trip | None:
        await anyio.lowlevel.checkpoint()
        return Trip("forbidden") if "bomb" in prompt else None

    return Guardrail(GuardrailKind.INPUT, peaceful, run_in_parallel=run_in_parallel)


@pytest.fixture(params=[False, True], ids=["blocking", "parallel"])
def guardrail(request: pytest.FixtureRequest) -> Guardrail:
    return peaceful(run_in_parallel=request.param)


@tool
async def look() -> str:
    """Look."""
    return "seen"


@tool
async def ask(ctx: ToolContext) -> str:
    """Ask a person."""
    return ctx.ask("What?")


@tool(needs_approval=True)
async def erase(path: str = "a") -> str:
    """Erase a file."""
    return f"erased {path}"


def engine_of(
    guardrail: Guardrail | None, *lines: Line, store: MemoryStore | None = None, limits: Limits | None = None
) -> Engine:
    guardrails = [] if guardrail is None else [guardrail]
    return Engine(
        model=ScriptedModel(*lines),
        tools=[look, ask, erase, agent_tool(CHILD)],
        guardrails=guardrails,
        limits=limits or Limits(),
        store=store or MemoryStore(),
    )


def requests_of(engine: Engine) -> Sequence[ModelRequest]:
    model = engine.setup.model
    assert isinstance(model, ScriptedModel)
    return model.requests


def texts_of_users(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if message.role == "user"]


def assert_tripped(turn: TurnResult, checks: str) -> None:
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.GUARDRAIL)
    assert turn.guardrail is not None
    assert (turn.guardrail.name, turn.guardrail.checks) == ("peaceful", checks)


async def assert_unread(engine: Engine, turn: TurnResult) -> None:
    """The text is in no request, in no later turn, and not in the turn's own text."""
    model = ScriptedModel("Fine.")
    later = Engine(model=model, store=engine.store)
    assert (await later.run(AGENT, "hello?", continue_from=turn.id)).outcome is Outcome.FINISHED
    requests = [*requests_of(engine), *model.requests]
    assert "bomb" not in str([request.messages for request in requests])
    assert "bomb" not in turn.text
    assert replay(await engine.store.facts(turn.id)).check.verdict is Verdict.HOLDS


async def test_tripping_message_never_enters_the_turn(guardrail: Guardrail) -> None:
    async def steered(request: ModelRequest) -> ModelResponse:
        await engine.steer(turn_id, BAD)
        return asks_for(("look", {}))

    engine = engine_of(guardrail, steered, "Done.")
    handle = await engine.start(AGENT, "hi")
    turn_id = handle.id
    turn = await handle.result()
    assert_tripped(turn, "message")
    assert turn.undelivered == (BAD,)
    await assert_unread(engine, turn)


async def test_passing_message_is_read_by_the_model(guardrail: Guardrail) -> None:
    async def steered(request: ModelRequest) -> ModelResponse:
        await engine.steer(turn_id, "and the garden")
        return asks_for(("look", {}))

    engine = engine_of(guardrail, steered, "Done.")
    handle = await engine.start(AGENT, "hi")
    turn_id = handle.id
    assert (await handle.result()).outcome is Outcome.FINISHED
    assert requests_of(engine)[-1].messages[-1].text == "and the garden"


async def test_a_message_before_another_attempt_is_checked(guardrail: Guardrail) -> None:
    async def steered(request: ModelRequest) -> ModelResponse:
        await engine.steer(turn_id, BAD)
        raise ModelError("busy", cause=Cause.OVERLOADED)

    engine = engine_of(guardrail, steered, "Done.")
    handle = await engine.start(AGENT, "hi")
    turn_id = handle.id
    turn = await handle.result()
    assert_tripped(turn, "message")
    await assert_unread(engine, turn)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (("ask", {}), BAD),
        (("ask", {}), reject(BAD)),
        (("erase", {}), reject(BAD)),
        (("erase", {}), approve(arguments={"path": "bomb"})),
    ],
    ids=["reply", "no reply", "rejection", "arguments"],
)
@pytest.mark.parametrize("calls", [1, 2])
async def test_tripping_answer_is_withheld(
    guardrail: Guardrail, call: tuple[str, dict[str, str]], answer: str | Answer, calls: int
) -> None:
    """With other questions open, the turn ends as well: they are closed."""
    engine = engine_of(guardrail, asks_for(*[call] * calls), "Done.")
    paused = await engine.run(AGENT, "hi")
    turn = await engine.resume(paused.id, {paused.interrupts[-1].id: answer})
    assert_tripped(turn, "answer")
    facts = [fact for _, fact in await engine.store.facts(turn.id)]
    answers = [fact for fact in facts if isinstance(fact, f.Answered)]
    assert [fact.text for fact in answers] == ["withheld by peaceful"] * calls
    assert all(fact.arguments is None for fact in answers)
    assert "erased" not in str(turn.messages)
    await assert_unread(engine, turn)


async def test_passing_answer_is_delivered(guardrail: Guardrail) -> None:
    engine = engine_of(guardrail, asks_for(("ask", {}), ("erase", {})), "Done.")
    paused = await engine.run(AGENT, "hi")
    first, second = paused.interrupts
    answers: dict[str, str | bool | Answer] = {first.id: "a garden", second.id: approve(arguments={"path": "b"})}
    turn = await engine.resume(paused.id, answers)
    assert turn.outcome is Outcome.FINISHED
    assert "erased b" in str(turn.messages)
    assert "a garden" in str(turn.messages)


async def test_an_answer_about_a_doom_loop_is_checked(guardrail: Guardrail) -> None:
    limits = Limits(doom_response="ask")
    engine = engine_of(guardrail, *[asks_for(("look", {}))] * 3, "Done.", limits=limits)
    paused = await engine.run(AGENT, "hi")
    answer = Answer(Decision.GO_ON, BAD)
    turn = await engine.resume(paused.id, {paused.interrupts[0].id: answer})
    assert_tripped(turn, "answer")
    await assert_unread(engine, turn)


async def test_answer_with_a_failing_check_ends_the_turn() -> None:
    """The check fails closed, also while a person is asked."""

    @input_guardrail
    async def broken(ctx: TurnContext, prompt: str) -> Trip | None:
        if prompt != "hi":
            raise ValueError("broken")
        return None

    engine = engine_of(broken, asks_for(("ask", {})), "Done.")
    paused = await engine.run(AGENT, "hi")
    turn = await engine.resume(paused.id, {paused.interrupts[0].id: BAD})
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert "broken" in turn.error
    await assert_unread(engine, turn)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": BAD},
        {"role": "user", "content": [{"type": "text", "text": BAD}]},
        {"role": "system", "content": BAD},
        Message.user(BAD),
    ],
    ids=["chat", "parts", "system", "message"],
)
async def test_imported_history_is_checked(guardrail: Guardrail, message: Message | dict[str, object]) -> None:
    engine = engine_of(guardrail, "Done.")
    turn = await engine.run(AGENT, "go on", message_history=[message, Message.assistant("Yes?")])
    assert_tripped(turn, "history")
    model = ScriptedModel("Fine.")
    later = Engine(model=model, guardrails=[guardrail], store=engine.store)
    assert (await later.run(AGENT, "hello?", continue_from=turn.id)).outcome is Outcome.FINISHED
    assert texts_of_users(model.requests[0]) == ["withheld by peaceful", "go on", "hello?"]
    assert "bomb" not in str(model.requests[0].messages)


async def test_passing_imported_history_is_sent(guardrail: Guardrail) -> None:
    engine = engine_of(guardrail, "Done.")
    turn = await engine.run(AGENT, "go on", message_history=[Message.user("hi"), Message.assistant("Yes?")])
    assert turn.outcome is Outcome.FINISHED


async def test_unchecked_prompt_is_checked_in_the_next_turn(guardrail: Guardrail) -> None:
    """Its turn ended before a model replied, for example by an abort."""
    store = MemoryStore()
    first = engine_of(None, ModelError("no", cause=Cause.AUTHENTICATION), store=store)
    await first.run(AGENT, BAD, session="s")
    engine = engine_of(guardrail, "Fine.", "Fine.", store=store)
    assert_tripped(await engine.run(AGENT, "hello?", session="s"), "history")
    assert (await engine.run(AGENT, "hello?", session="s")).outcome is Outcome.FINISHED
    assert texts_of_users(requests_of(engine)[-1]) == ["withheld by peaceful", "hello?", "hello?"]


async def test_a_fork_with_another_prompt_is_checked_at_each_place(guardrail: Guardrail) -> None:
    store = MemoryStore()
    first = engine_of(None, asks_for(("look", {})), asks_for(("ask", {})), "Done.", store=store)
    paused = await first.run(AGENT, "hi")
    places = await first.fork_places(paused.id)
    assert len(places) > 5
    for place in places:
        engine = engine_of(guardrail, *["Fine."] * 3, store=store)
        fork = await engine.fork(paused.id, at=place.last, prompt=BAD)
        turn = await engine.resume(fork)
        if turn.paused:  # nothing can trip before a person has answered
            turn = await engine.resume(fork, {turn.interrupts[0].id: "a garden"})
        assert_tripped(turn, "input")
        assert requests_of(engine) == []
        assert "bomb" not in str(turn.messages)


async def test_other_results_of_a_fork_are_checked(guardrail: Guardrail) -> None:
    """The model reads them, and a person wrote them."""
    store = MemoryStore()
    first = await engine_of(None, asks_for(("look", {})), "Done.", store=store).run(AGENT, "hi")
    engine = engine_of(guardrail, *["Fine."] * 2, store=store)
    places = await engine.fork_places(first.id)
    call = next(part.id for message in first.messages for part in message.parts if isinstance(part, ToolCallPart))
    at = next(place.last for place in places if isinstance(place.event, CallSettledInput))
    assert_tripped(await engine.resume(await engine.fork(first.id, at=at, results={call: BAD})), "input")
    assert requests_of(engine) == []
    turn = await engine.resume(await engine.fork(first.id, at=at, results={call: "a garden"}))
    assert turn.outcome is Outcome.FINISHED


@pytest.mark.parametrize("media_type", ["text/plain", "text/markdown", "application/json", "application/x-yaml"])
async def test_text_of_a_file_is_checked(guardrail: Guardrail, media_type: str) -> None:
    """A model that does not take the type reads the text of the file."""
    engine = engine_of(guardrail, *["Fine."] * 3)
    file = FilePart.of(BAD.encode(), media_type, "notes")
    assert_tripped(await engine.run(AGENT, "read this", files=[file]), "input")
    history = [Message.user("read this", files=[file]), Message.assistant("Yes?")]
    assert_tripped(await engine.run(AGENT, "go on", message_history=history), "history")
    harmless = FilePart.of(b"a garden", media_type, "notes")
    assert (await engine.run(AGENT, "read this", files=[harmless])).outcome is Outcome.FINISHED


async def test_a_fork_with_the_same_prompt_is_not_checked_again() -> None:
    checked: list[str] = []

    @input_guardrail(run_in_parallel=False)
    async def seen(ctx: TurnContext, prompt: str) -> Trip | None:
        checked.append(prompt)
        return None

    engine = engine_of(seen, asks_for(("look", {})), "Done.", "Done.")
    turn = await engine.run(AGENT, "hi", message_history=[Message.user("earlier")])
    assert checked == ["hi", "earlier"]
    await engine.resume(await engine.fork(turn.id, at=(await engine.fork_places(turn.id))[-1].last))
    assert checked == ["hi", "earlier"]


async def test_question_of_a_sub_agent_is_checked_in_the_caller(guardrail: Guardrail) -> None:
    engine = engine_of(guardrail, asks_for(("Child", {"prompt": "x"})), asks_for(("ask", {})), "Done.", "Done.")
    paused = await engine.run(AGENT, "hi")
    turn = await engine.resume(paused.id, {paused.interrupts[0].id: BAD})
    assert_tripped(turn, "answer")
    assert "bomb" not in str([request.messages for request in requests_of(engine)])
