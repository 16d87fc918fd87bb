"""Hooks around model calls: changed requests, refused replies, instructions, the start and the end of a turn."""

from collections.abc import Sequence

import anyio
import pytest

from turnwright import (
    Agent,
    ChangeRequest,
    Engine,
    Hooks,
    ModelSettings,
    Retry,
    StoreError,
    TurnContext,
    TurnResult,
    after_model,
    before_model,
    on_end,
    on_start,
    tool,
)
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.transcript.events import FactEvent, ResponseRestartedEvent, TurnEvent
from turnwright_states import EndReason, Limits, Outcome
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Clerk", instructions="Be kind.")


@tool(idempotent=True)
async def look(n: int = 0) -> str:
    return f"seen {n}"


@tool(idempotent=True)
async def note(n: int = 0) -> str:
    return f"noted {n}"


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


async def prepared(engine: Engine, turn: TurnResult) -> list[f.RequestPrepared]:
    return [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.RequestPrepared)]


async def test_request_is_changed_for_a_single_step_and_journaled_as_sent() -> None:
    requests: list[ModelRequest] = []

    @before_model
    async def remind(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
        requests.append(request)
        if ctx.step > 1:
            return None
        settings = ModelSettings(temperature=0.5)
        return ChangeRequest(instructions="Be brief.", append=("Really.",), tools=("look",), settings=settings)

    model = ScriptedModel(asks_for(("look", {})), "Done.")
    engine = Engine(model=model, tools=[look, note], hooks=[remind])
    turn = await engine.run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED
    first, second = model.requests
    assert texts(first) == ["Be brief.", "hi", "Really."]
    assert [tool.name for tool in first.tools] == ["look"]
    assert first.settings == ModelSettings(temperature=0.5)
    assert texts(second)[0] == "Be kind.", "the agent's own instructions are sent again"
    assert "Really." not in texts(second)
    assert len(second.tools) == 2
    facts = await prepared(engine, turn)
    assert [(fact.instructions, fact.tools, fact.append) for fact in facts] == [
        ("Be brief.", ("look",), ("Really.",)),
        ("Be kind.", None, ()),
    ]
    assert facts[0].decisions[0]["changed"] == ["instructions", "append", "tools", "settings"]
    assert texts(requests[0]) == ["Be kind.", "hi"]


async def test_each_hook_gets_the_request_as_changed_by_earlier_hooks() -> None:
    @before_model
    async def one(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
        return ChangeRequest(append=("one",), tools=("look",))

    @before_model
    async def two(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
        assert texts(request)[-1] == "one"
        return ChangeRequest(append=("two",), tools=[tool.name for tool in request.tools])  # type: ignore[arg-type]

    model = ScriptedModel("Done.")
    agent = Agent(name="Clerk", hooks=[two])
    await Engine(model=model, tools=[look, note], hooks=[one]).run(agent, "hi")
    assert texts(model.requests[0]) == ["hi", "one", "two"]


@pytest.mark.parametrize(
    "wrong",
    [3, ChangeRequest(tools=("x",)), ChangeRequest(append="text"), ChangeRequest(instructions=3)],  # type: ignore[arg-type]
)
async def test_a_wrong_change_ends_the_turn_before_the_model_is_called(wrong: object) -> None:
    @before_model
    async def spoil(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
        return wrong  # type: ignore[return-value]

    model = ScriptedModel("Done.")
    turn = await Engine(model=model, tools=[look], hooks=[spoil]).run(AGENT, "hi")
    assert (turn.reason, model.requests) == (EndReason.ENGINE_ERROR, [])
    assert turn.error.startswith("before_model hook 'spoil' returned ")


async def test_request_hook_is_asked_once_a_step_despite_failing_calls() -> None:
    steps: list[int] = []

    @before_model
    async def count(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
        steps.append(ctx.step)
        return ChangeRequest(append=("x",))

    model = ScriptedModel("", "", "Done.")
    engine = Engine(model=model, tools=[look], hooks=[count])
    turn = await engine.run(AGENT, "hi")
    assert (turn.text, steps) == ("Done.", [1])
    assert [texts(request)[-1] for request in model.requests] == ["x"] * 3


# Instructions.


async def test_instructions_function_is_journaled_when_the_text_changes() -> None:
    async def rules(ctx: TurnContext) -> str:
        return f"You serve {ctx.metadata['user']}{', soon done' if ctx.step > 2 else ''}."

    agent = Agent(name="Clerk", instructions=rules)
    model = ScriptedModel(asks_for(("look", {"n": 1})), asks_for(("look", {"n": 2})), "Done.")
    engine = Engine(model=model, tools=[look])
    turn = await engine.run(agent, "hi", metadata={"user": "Ann"})
    assert turn.outcome is Outcome.FINISHED
    instructions = [texts(request)[0] for request in model.requests]
    assert instructions == ["You serve Ann.", "You serve Ann.", "You serve Ann, soon done."]
    assert [fact.instructions for fact in await prepared(engine, turn)] == [instructions[0], None, instructions[2]]


async def test_text_only_turn_and_conclusion_have_function_instructions() -> None:
    async def rules(ctx: TurnContext) -> str:
        return "Be short."

    agent = Agent(name="Clerk", instructions=rules, steps=1)
    model = ScriptedModel(asks_for(("look", {})), "So far.")
    turn = await Engine(model=model, tools=[look]).run(agent, "hi")
    assert turn.outcome is Outcome.CAP_HIT
    assert [texts(request)[0] for request in model.requests] == ["Be short."] * 2
    model = ScriptedModel("Hello.")
    turn = await Engine(model=model, tools=[look]).run(agent.model_copy(update={"steps": 0}), "hi")
    assert (turn.reason, texts(model.requests[0])[0]) == (EndReason.TEXT_ONLY, "Be short.")


async def test_non_text_instructions_end_the_turn() -> None:
    async def rules(ctx: TurnContext) -> str:
        return None  # type: ignore[return-value]

    turn = await Engine(model=ScriptedModel("Done.")).run(Agent(name="Clerk", instructions=rules), "hi")
    assert turn.error == "agent 'Clerk': the instructions function returned None: return the text"


# Replies.


async def test_refused_reply_goes_back_with_the_reason_and_runs_nothing() -> None:
    @after_model
    async def no_links(ctx: TurnContext, response: ModelResponse) -> None:
        if "http" in response.text:
            raise Retry("no links")

    model = ScriptedModel(asks_for(("look", {}), text="See http://x"), "Plain.")
    engine = Engine(model=model, tools=[look], hooks=[no_links])
    turn = await engine.run(AGENT, "hi")
    assert (turn.text, turn.tool_calls, turn.steps) == ("Plain.", 0, 2)
    facts = [fact for _, fact in await engine.store.facts(turn.id)]
    refused, accepted = [fact for fact in facts if isinstance(fact, f.Reviewed)]
    assert (refused.refused, refused.feedback, accepted.refused) == (True, "no links", False)
    assert refused.decisions == (
        {"hook": "no_links", "on": "after_model", "decision": "retry", "feedback": "no links"},
    )
    assert model.requests[1].messages[-1].parts[0].text == "refused: no links"  # type: ignore[union-attr]


async def test_endlessly_refused_reply_ends_the_turn() -> None:
    @after_model
    async def never(ctx: TurnContext, response: ModelResponse) -> None:
        raise Retry("no")

    turn = await Engine(model=ScriptedModel("x", repeat=True), hooks=[never]).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.steps) == (Outcome.FAILED, EndReason.INVALID_OUTPUT, 3)
    assert turn.text == ""


async def test_followers_are_not_shown_a_refused_reply() -> None:
    @after_model
    async def strict(ctx: TurnContext, response: ModelResponse) -> None:
        if response.text == "Bad words.":
            raise Retry("be polite")

    engine = Engine(model=ScriptedModel("Bad words.", "Good words."), hooks=[strict])
    events: list[TurnEvent] = []
    async with engine.stream(AGENT, "hi") as stream:
        events += [event async for event in stream]
    (restarted,) = [event for event in events if isinstance(event, ResponseRestartedEvent)]
    replies = {
        event.seq: event.fact
        for event in events
        if isinstance(event, FactEvent) and isinstance(event.fact, f.ModelReplied)
    }
    assert [reply.text for reply in replies.values()] == ["", "Good words."]
    assert (restarted.turn, restarted.seq) == (events[0].turn, min(replies))
    later = [event async for event in engine.events(events[0].turn)]
    assert [event for event in later if isinstance(event, FactEvent)] == [
        event for event in events if isinstance(event, FactEvent)
    ]


async def test_end_of_a_taken_over_turn_is_the_journaled_end() -> None:
    """Also where its conclusion is made of the turn's counters."""
    ends: list[TurnResult] = []

    @on_end
    async def end(ctx: TurnContext, result: TurnResult) -> None:
        ends.append(result)

    @tool(needs_approval=True)
    async def erase() -> str:
        return "erased"

    store = MemoryStore()
    first = ScriptedModel(asks_for(("erase", {})), name="first")
    paused = await Engine(model=first, tools=[erase], store=store, hooks=[end], limits=Limits(steps=1)).run(AGENT, "hi")
    assert ends == []
    other_model = ScriptedModel("", "", name="other")
    engine = Engine(model=other_model, tools=[erase], store=store, hooks=[end])
    turn: TurnResult = await engine.resume(paused.id, {"approval-1": True})
    assert (turn.reason, ends) == (EndReason.STEP_CAP, [turn])


async def test_the_hooks_of_replies_are_asked_in_reverse_order() -> None:
    log: list[str] = []

    class Named(Hooks):
        def __init__(self, name: str) -> None:
            self.label = name

        async def after_model(self, ctx: TurnContext, response: ModelResponse) -> None:
            log.append(self.label)

    agent = Agent(name="Clerk", hooks=[Named("c"), Named("d")])
    await Engine(model=ScriptedModel("Done."), hooks=[Named("a"), Named("b")]).run(agent, "hi")
    assert log == ["d", "c", "b", "a"]


async def test_conclusions_and_text_only_turns_are_not_reviewed() -> None:
    @after_model
    async def never(ctx: TurnContext, response: ModelResponse) -> None:
        if not response.calls:
            raise Retry("no")

    model = ScriptedModel(asks_for(("look", {})), "So far.")
    turn = await Engine(model=model, tools=[look], hooks=[never]).run(Agent(name="Clerk", steps=1), "hi")
    assert (turn.outcome, turn.text) == (Outcome.CAP_HIT, "So far.")


# The start and the end.


async def test_a_turn_starts_and_ends_with_hooks() -> None:
    log: list[str] = []

    @on_start
    async def begin(ctx: TurnContext) -> None:
        log.append(f"start {ctx.step}")

    @on_end
    async def finish(ctx: TurnContext, result: TurnResult) -> None:
        log.append(f"end {result.outcome} {result.text}")

    engine = Engine(model=ScriptedModel(asks_for(("look", {})), "Done."), tools=[look], hooks=[begin, finish])
    await engine.run(AGENT, "hi")
    assert log == ["start 1", "end finished Done."]


async def test_an_error_at_the_end_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    @on_end
    async def broken(ctx: TurnContext, result: TurnResult) -> None:
        raise ValueError("boom")

    turn = await Engine(model=ScriptedModel("Done."), hooks=[broken]).run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED
    assert "has ended: on_end hook 'broken' failed" in caplog.text


async def test_an_error_at_the_start_ends_the_turn() -> None:
    @on_start
    async def broken(ctx: TurnContext) -> None:
        raise ValueError("boom")

    model = ScriptedModel("Done.")
    turn = await Engine(model=model, hooks=[broken]).run(AGENT, "hi")
    assert (turn.error, model.requests) == ("on_start hook 'broken' raised ValueError: boom", [])


@pytest.mark.no_waiting(False)
async def test_synchronous_hook_runs_in_a_thread() -> None:
    import threading  # noqa: PLC0415 (for this test alone)

    threads: list[int] = []

    @before_model
    def where(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
        threads.append(threading.get_ident())
        return None

    await Engine(model=ScriptedModel("Done."), hooks=[where]).run(AGENT, "hi")
    assert threads != [threading.get_ident()]


async def test_slow_hook_ends_the_turn() -> None:
    class Slow(Hooks):
        async def before_model(self, ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
            await anyio.sleep(31)
            return None

    turn = await Engine(model=ScriptedModel("Done."), hooks=[Slow()]).run(AGENT, "hi")
    assert turn.error == "before_model hook 'Slow' did not finish within 30 s"


async def test_an_abort_stops_a_hook() -> None:
    at_work = anyio.Event()

    @before_model
    async def slow(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
        at_work.set()
        await anyio.sleep(20)
        return None

    engine = Engine(model=ScriptedModel("Done."), hooks=[slow])
    turns: list[TurnResult] = []
    async with anyio.create_task_group() as group:

        async def run() -> None:
            turns.append(await engine.run(AGENT, "hi"))

        group.start_soon(run)
        await at_work.wait()
        (row,) = await engine.turns()
        await engine.abort(row.id)
    assert turns[0].outcome is Outcome.ABORTED


# Crashes.


class Tutor(Hooks):
    """Adds a text to each request, refuses the second reply, and notes what it was asked."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def before_model(self, ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
        self.log.append(f"before {ctx.step}")
        return ChangeRequest(append=(f"step {ctx.step}",))

    async def after_model(self, ctx: TurnContext, response: ModelResponse) -> None:
        self.log.append(f"after {ctx.step}")
        if response.text == "Wrong.":
            raise Retry("try again")


def engine_on(store: MemoryStore | FaultyStore, log: list[str]) -> tuple[Engine, ScriptedModel]:
    lines: Sequence[ModelResponse | str] = (asks_for(("look", {"n": 1})), "Wrong.", "Right.")

    def reply(request: ModelRequest) -> ModelResponse | str:
        return lines[sum(message.role == "assistant" for message in request.messages)]

    model = ScriptedModel(reply, repeat=True)
    engine = Engine(model=model, tools=[look], hooks=[Tutor(log)], store=store, limits=Limits(max_retries=9))
    return engine, model


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_crash_at_any_append_sends_the_same_requests(*, after: bool) -> None:
    engine, model = engine_on(MemoryStore(), [])
    whole = await engine.run(AGENT, "hi")
    histories = {tuple(texts(request)) for request in model.requests}
    crashes, died = 0, True
    while died:
        memory, log = MemoryStore(), list[str]()
        dying = FaultyStore(memory, at=crashes + 1, after=after)
        first, _ = engine_on(dying, log)
        try:
            await first.run(AGENT, "hi")
        except StoreError:
            await dying.aclose()
        died = dying.dead
        (row,) = await memory.turns()
        second, model = engine_on(memory, log)
        turn = await second.get(row.id)
        turn = turn if turn.outcome is not None else await second.resume(row.id)
        assert [message.text for message in turn.messages] == [message.text for message in whole.messages]
        assert {tuple(texts(request)) for request in model.requests} <= histories
        assert replay(await memory.facts(row.id)).check.verdict is Verdict.HOLDS
        if after:
            assert all(log.count(f"before {step}") == 1 for step in (1, 2, 3)), "asked once"
        crashes += died
    assert crashes > 9
