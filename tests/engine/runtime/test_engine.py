"""One turn from the prompt to the outcome: the model, the tools, and their inputs."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue
from trio.testing import MockClock

from turnwright import (
    QUEUED,
    Agent,
    Compact,
    ConfigError,
    Engine,
    EngineClosedError,
    Message,
    Price,
    TurnNotFoundError,
    TurnResult,
    TurnRow,
    tool,
)
from turnwright.message import ToolResultPart
from turnwright.model.protocol import Model, ModelRequest, ModelResponse, ResponseToolCall
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.runtime import Local
from turnwright.store import Claim, InboxItem, MemoryStore, Status
from turnwright.tools import Ask, Tool, ToolContext
from turnwright_states import CallStatus, EndReason, Finish, Limits, Outcome, State, Usage
from turnwright_states import facts as f
from turnwright_states.facts import Fact
from turnwright_testing.faults import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier", instructions="You tidy up.")
ONE = Usage(input_tokens=1, output_tokens=1)


@tool
async def note(text: str = "") -> str:
    """Write something down."""
    return f"noted {text}"


@tool(needs_approval=True)
async def erase() -> str:
    """Erase it."""
    return "erased"


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    """The results that the model was given, in the order of the transcript."""
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


def notes(*texts: str) -> list[tuple[str, Mapping[str, JsonValue]]]:
    return [("note", {"text": text}) for text in texts]


async def test_immediate_answer_takes_a_single_step() -> None:
    turn = await Engine(model=ScriptedModel("Tidy already.")).run(AGENT, "Tidy utils.py")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.FINISHED, EndReason.ANSWERED, "Tidy already.")
    assert (turn.steps, turn.tool_calls, turn.usage, turn.interrupts, turn.error) == (1, 0, ONE, (), "")
    assert turn.path == (State.CHECK, State.STREAM, State.FINISHED)
    assert not turn.paused


@pytest.mark.parametrize("concluding", [False, True])
async def test_reply_with_more_calls_than_a_journal_holds_is_a_failed_attempt(concluding: bool) -> None:
    """For any model. Its usage is counted; 512 calls are accepted, and as many run as the limits allow."""
    many, too_many = asks_for(*notes("a") * 512), asks_for(*notes("a") * 513)
    model = ScriptedModel(many, too_many)
    turn = await Engine(model=model, tools=[note], limits=Limits(steps=1 if concluding else 2)).run(AGENT, "hi")
    ends = (Outcome.CAP_HIT, EndReason.STEP_CAP) if concluding else (Outcome.FAILED, EndReason.MODEL_ERROR)
    assert (turn.outcome, turn.reason) == ends
    assert concluding or "model scripted: the reply asks for more than 512 calls" in turn.error
    assert (len(results(turn)), turn.tool_calls, turn.usage) == (512, 32, ONE + ONE)


async def test_first_request_holds_instructions_prompt_and_tools() -> None:
    model = ScriptedModel("Hello.")
    await Engine(model=model, tools=[note]).run(AGENT, "Tidy utils.py")
    (request,) = model.requests
    assert [(m.role, m.text) for m in request.messages[:2]] == [("system", "You tidy up."), ("user", "Tidy utils.py")]
    assert (request.tools, request.tool_choice, request.max_tokens, request.first) == ((note.spec,), "auto", None, True)


async def test_no_request_ends_with_an_assistant_message() -> None:
    """Providers answer 400 to a trailing assistant message, be it an empty one."""
    model = ScriptedModel(asks_for(*notes("a"), text="Let me see."), asks_for(*notes("b")), "Done.")
    await Engine(model=model, tools=[note]).run(AGENT, "hi")
    assert [request.messages[-1].role for request in model.requests] == ["user", "tool", "tool"]


async def test_only_the_first_model_call_of_a_turn_is_marked_as_first() -> None:
    model = ScriptedModel(asks_for(*notes("a")), asks_for(*notes("b")), "Done.")
    await Engine(model=model, tools=[note], limits=Limits(steps=2)).run(AGENT, "hi")
    assert [request.first for request in model.requests] == [True, False, False]


async def test_agent_sees_only_the_named_tools() -> None:
    @tool
    async def other() -> None:
        """Do something else."""

    model = ScriptedModel(asks_for(("other", {})), "Done.")
    turn = await Engine(model=model, tools=[note, other]).run(Agent(name="Tidier", tools=("note",)), "hi")
    assert [spec.name for spec in model.requests[0].tools] == ["note"]
    assert results(turn) == [(CallStatus.ERROR, "there is no tool 'other'; the tools are: note")]


async def test_path_passes_through_check_and_continue() -> None:
    turn = await Engine(model=ScriptedModel(asks_for(*notes("a")), "Done."), tools=[note]).run(AGENT, "hi")
    assert turn.path == (
        State.CHECK,
        State.STREAM,
        State.TOOL_EXEC,
        State.CONTINUE,
        State.CHECK,
        State.STREAM,
        State.FINISHED,
    )


async def test_calls_continue_the_turn_for_any_finish_reason() -> None:
    """Continuing depends on the calls that are there (docs/rules.md#replies)."""
    asking = asks_for(*notes("a"))
    assert asking.finish is Finish.STOP
    turn = await Engine(model=ScriptedModel(asking, "Done."), tools=[note]).run(AGENT, "hi")
    assert (turn.steps, turn.tool_calls, turn.text) == (2, 1, "Done.")


# Tools.


async def test_results_are_in_call_order_for_any_order_of_completion() -> None:
    finished: list[str] = []
    third_is_done = anyio.Event()

    @tool
    async def wait(name: str) -> str:
        if name == "third":
            third_is_done.set()
        else:
            await third_is_done.wait()
        finished.append(name)
        return name

    asking = asks_for(*[("wait", {"name": name}) for name in ("first", "second", "third")])
    model = ScriptedModel(asking, "Done.")
    turn = await Engine(model=model, tools=[wait]).run(AGENT, "hi")
    assert finished == ["third", "first", "second"]
    assert [text for _, text in results(turn)] == ["first", "second", "third"]
    assert [m.parts[0].text for m in model.requests[1].messages if isinstance(m.parts[0], ToolResultPart)] == [
        "first",
        "second",
        "third",
    ]


@pytest.mark.parametrize(("parallel", "most"), [(1, 1), (2, 2), (8, 5)])
async def test_no_more_calls_run_at_once_than_allowed(parallel: int, most: int) -> None:
    running = peak = 0

    @tool
    async def work(n: int) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await anyio.sleep(0.01)
        running -= 1
        return n

    model = ScriptedModel(asks_for(*[("work", {"n": n}) for n in range(5)]), "Done.")
    turn = await Engine(model=model, tools=[work], max_parallel_tools=parallel).run(AGENT, "hi")
    assert peak == most
    assert [text for _, text in results(turn)] == ["0", "1", "2", "3", "4"]


async def test_failed_calls_are_reported_to_the_model() -> None:
    """A tool that raises, one that takes too long, one that is not there, arguments that do not fit or are not JSON."""

    @tool
    async def explode() -> None:
        raise OSError("disk on fire")

    @tool(timeout=0.01)
    async def dawdle() -> None:
        await anyio.sleep_forever()

    asking = asks_for(
        ("explode", {}),
        ("dawdle", {}),
        ("nowhere", {}),
        ("note", {"text": ["no", "text"]}),
        ResponseToolCall("note", None, raw='{"text": "cut o'),
        ("note", {"text": "fine"}),
    )
    model = ScriptedModel(asking, "Done.")
    turn = await Engine(model=model, tools=[explode, dawdle, note]).run(AGENT, "hi")
    assert (turn.outcome, turn.steps) == (Outcome.FINISHED, 2)
    call_results = results(turn)
    assert [status for status, _ in call_results] == [CallStatus.ERROR] * 5 + [CallStatus.OK]
    for (_, text), word in zip(
        call_results, ("OSError: disk on fire", "0.01 s", "'nowhere'", "text", "JSON", "noted"), strict=True
    ):
        assert word in text
    assert turn.tool_calls == 3, "calls that could not run take no place in the budget"


async def test_invalid_json_arguments_become_an_empty_object() -> None:
    model = ScriptedModel(asks_for(ResponseToolCall("note", None, raw='{"te', id="x")), "Done.")
    await Engine(model=model, tools=[note]).run(AGENT, "hi")
    (call,) = next(message.calls for message in model.requests[1].messages if message.calls)
    assert call.arguments == {}


async def test_calls_with_equal_provider_ids_are_distinct() -> None:
    """Provider ids are not unique: ours are, and they are what is sent (docs/rules.md#pairing)."""
    twice = [ResponseToolCall("note", {"text": text}, id="call_0") for text in ("a", "b")]
    model = ScriptedModel(asks_for(*twice), asks_for(*twice), "Done.")
    turn = await Engine(model=model, tools=[note]).run(AGENT, "hi")
    assert [text for _, text in results(turn)] == ["noted a", "noted b"] * 2
    ids = [call.id for message in turn.messages for call in message.calls]
    assert len(set(ids)) == len(ids) == 4
    assert "call_0" not in ids


async def test_result_is_cut_at_64_kib_with_a_notice() -> None:
    @tool
    async def read() -> str:
        return "é" * 40_000

    turn = await Engine(model=ScriptedModel(asks_for(("read", {})), "Done."), tools=[read]).run(AGENT, "hi")
    ((status, text),) = results(turn)
    kept_text, notice = text.rsplit("\n", 1)
    assert status is CallStatus.OK
    assert len(kept_text.encode()) <= 64 * 1024 < len(kept_text.encode()) + 2
    assert "80000 bytes" in notice


async def test_tool_error_is_cut_at_the_result_limit() -> None:
    @tool
    async def explode() -> None:
        raise ValueError("x" * 100_000)

    turn = await Engine(model=ScriptedModel(asks_for(("explode", {})), "Done."), tools=[explode]).run(AGENT, "hi")
    ((_, text),) = results(turn)
    assert len(text.encode()) <= 64 * 1024 + 200


async def test_bug_in_a_tool_class_fails_the_turn_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An embedder's code outside a call's own errors ends the turn as engine_error; its traceback is in the log."""

    class Broken(Tool):
        def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
            assert not arguments, context
            raise LookupError("a bug of mine")

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            return values, context

    broken = Broken(name="broken", description="", parameters={"type": "object"})
    with caplog.at_level(logging.ERROR, "turnwright"):
        turn = await Engine(model=ScriptedModel(asks_for(("broken", {}))), tools=[broken]).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert turn.error == "LookupError: a bug of mine"
    assert any(record.exc_info for record in caplog.records)


# Budgets of calls.


async def test_tool_budget_is_exact_and_used_in_call_order() -> None:
    """With 49 of 50 used and ten asked for, the first runs and nine are refused (docs/rules.md#budgets)."""
    batch = [asks_for(*notes(*[f"{step}.{n}" for n in range(7)])) for step in range(7)]
    ten = asks_for(*notes(*[f"last.{n}" for n in range(10)]))
    turn = await Engine(model=ScriptedModel(*batch, ten, "All noted."), tools=[note]).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.tool_calls, turn.steps) == (Outcome.CAP_HIT, EndReason.BUDGET, 50, 8)
    last = results(turn)[-10:]
    assert last[0] == (CallStatus.OK, "noted last.0")
    assert last[1:] == [(CallStatus.REFUSED, "not executed: the tool budget is spent")] * 9


async def test_at_most_32_calls_run_in_a_step() -> None:
    model = ScriptedModel(asks_for(*notes(*map(str, range(40)))), "Done.")
    turn = await Engine(model=model, tools=[note]).run(AGENT, "hi")
    assert (turn.reason, turn.tool_calls) == (EndReason.ANSWERED, 32)
    assert {status for status, _ in results(turn)[32:]} == {CallStatus.REFUSED}


# What is wrong before a turn begins.


async def test_engine_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="agent 'Tidier': no model"):
        await Engine().run(AGENT, "hi")


async def test_invented_tool_name_is_quoted_in_part() -> None:
    """A name can be as long as a reply, and the model reads the result again with every step."""
    engine = Engine(model=ScriptedModel(asks_for(("x" * 2**20, {})), "Sorry."), tools=[note])
    turn = await engine.run(AGENT, "hi")
    assert results(turn) == [(CallStatus.ERROR, f"there is no tool '{'x' * 99}…'; the tools are: note")]


async def test_agent_with_an_unknown_tool_does_not_start() -> None:
    engine = Engine(model=ScriptedModel("hi"), tools=[note])
    more = r"--tools or Engine\(tools=...\) offers more$"
    for name, hint in (("nota", rf"did you mean 'note'\? {more}"), ("pay", more)):
        with pytest.raises(ConfigError, match=rf"agent 'Tidier'.*'{name}'.*offered: note\); {hint}"):
            await engine.run(Agent(name="Tidier", tools=(name,)), "hi")
    assert await engine.store.turns() == []


def test_duplicate_tool_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools are called 'note'"):
        Engine(model=ScriptedModel(), tools=[note, note])


async def test_cost_budget_needs_a_price() -> None:
    engine = Engine(model=ScriptedModel("hi", name="dear"), limits=Limits(cost=1.0))
    with pytest.raises(ConfigError, match="the price of model 'dear'"):
        await engine.run(AGENT, "hi")


@pytest.mark.parametrize("limits", [Limits(), Limits(cost=1.0)])
async def test_summary_model_and_price_are_checked_before_the_turn(limits: Limits) -> None:
    """A turn that cannot run would keep its session busy."""
    cheap = {"cheap": ScriptedModel(name="cheap")} if limits.cost is not None else {}
    engine = Engine(
        model=ScriptedModel("hi", name="dear"),
        models=cheap.__getitem__,
        limits=limits,
        prices={"dear": Price(input=1, output=1)},
    )
    agent = Agent(name="Tidier", compaction=Compact(at_tokens=10, model="cheap"))
    with pytest.raises(ConfigError, match="the price of model 'cheap'" if cheap else "model 'cheap' was not found"):
        await engine.run(agent, "hi", session="s")
    assert await engine.turns() == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"metadata": ["Ann"]}, "metadata: Expected `object`, got `array`"),
        ({"metadata": {"user": object()}}, "metadata.user: input was not a valid JSON value"),
        ({"session": 5}, "session: Expected `str | null`, got `int`"),
    ],
)
async def test_option_of_another_type_is_a_mistake_of_the_caller(options: dict[str, object], why: str) -> None:
    engine = Engine(model=ScriptedModel("hi"))
    with pytest.raises(ConfigError, match="^" + re.escape(why)):
        await engine.run(AGENT, "hi", **options)  # type: ignore[arg-type]
    assert await engine.turns() == []


async def test_agent_may_name_a_model() -> None:
    small, large = ScriptedModel("small", name="small"), ScriptedModel("large", name="large")
    engine = Engine(model=small, models={"large": large}.__getitem__)
    assert (await engine.run(Agent(name="Tidier", model="large"), "hi")).text == "large"
    assert (await engine.run(AGENT, "hi")).text == "small"
    assert [row.model for row in await engine.store.turns()] == ["small", "large"]


async def test_ceiling_of_the_engine_applies_to_every_agent() -> None:
    engine = Engine(model=ScriptedModel(asks_for(*notes("a")), repeat=True), tools=[note], limits=Limits(ceiling=2))
    turn = await engine.run(Agent(name="Tidier", steps=100), "hi")
    assert (turn.reason, turn.steps) == (EndReason.STEP_CAP, 2)


async def test_turn_can_be_looked_up() -> None:
    engine = Engine(model=ScriptedModel("Done."))
    turn = await engine.run(AGENT, "hi", metadata={"ticket": 7})
    assert await engine.get(turn.id) == turn
    first = (await engine.store.facts(turn.id))[0][1]
    assert isinstance(first, f.TurnStarted)
    assert first.metadata == {"ticket": 7}
    with pytest.raises(TurnNotFoundError, match="nobody"):
        await engine.get("nobody")


@pytest.mark.parametrize("store", ["memory:", "sqlite:///{folder}/turns.db"])
async def test_anything_but_the_text_of_an_id_is_refused(store: str, tmp_path: Path) -> None:
    """A turn's result is not its id, and no session is not every session."""
    async with Engine(model=ScriptedModel("Done."), store=store.format(folder=tmp_path)) as engine:
        turn = await engine.run(AGENT, "hi")
        wrong: Any
        for wrong in (turn, None, 5):
            of_turns: tuple[Awaitable[object], ...] = (
                engine.resume(wrong),
                engine.answer(wrong, {}),
                engine.steer(wrong, "Stop."),
                engine.abort(wrong),
                engine.snapshot(wrong),
                engine.get(wrong),
                engine.fork(wrong, at=1),
                engine.fork_places(wrong),
                engine.delete(wrong),
            )
            for call in of_turns:
                with pytest.raises(ConfigError, match=r"turn_id must be the id of a turn, such as `turn.id`, not "):
                    await call
            for begin in (engine.events, partial(engine.attach, agent=AGENT)):
                with pytest.raises(ConfigError, match=r"turn_id must be the id of a turn, such as `turn.id`, not "):
                    begin(wrong)
            of_sessions: tuple[Awaitable[object], ...] = (
                engine.messages(wrong),
                engine.approvals(wrong),
                engine.revoke_approvals(wrong),
                engine.set_title(wrong, "A title"),
                engine.delete_session(wrong),
            )
            for call in of_sessions:
                with pytest.raises(ConfigError, match="session must be the id of a session, not "):
                    await call
        months: Any = "30d"
        with pytest.raises(ConfigError, match="older_than must be a number of seconds, not '30d'"):
            await engine.prune(older_than=months)
        for call in (engine.turns(limit=-1), engine.sessions(limit=-1)):
            with pytest.raises(ConfigError, match="limit must be a whole number, at least 0, not -1"):
                await call
        assert len(await engine.turns()) == 1


async def test_unclaimed_turn_is_queued() -> None:
    """In the row, in the result, and nowhere in the journal: the machine knows nothing of it."""
    async with Engine(model=ScriptedModel("Hello.")) as engine:
        turn = await engine.submit(AGENT, "hi")
        assert (await engine.get(turn)).state is QUEUED
        assert [row.status.state for row in await engine.turns(live=True)] == [QUEUED]
        assert "QUEUED" not in " ".join(fact.payload() for _, fact in await engine.store.facts(turn))
        assert (await engine.resume(turn)).state is State.FINISHED
        assert [row.status.state for row in await engine.turns()] == [State.FINISHED]


async def test_aborted_queued_turn_has_ended() -> None:
    async with Engine(model=ScriptedModel()) as engine:
        turn = await engine.submit(AGENT, "hi")
        await engine.abort(turn)
        assert (await engine.get(turn)).state is State.ABORTED


@pytest.mark.parametrize("store", ["memory:", "sqlite:///{folder}/turns.db"])
async def test_unknown_turn_has_no_events(store: str, tmp_path: Path) -> None:
    """The call raises that, even with `wait`."""
    async with Engine(model=ScriptedModel(), store=store.format(folder=tmp_path)) as engine:
        for wait in (False, True):
            with pytest.raises(TurnNotFoundError, match="nobody"):
                engine.events("nobody", wait=wait)


@pytest.mark.parametrize("how", ["aclose", "async with"])
async def test_closed_engine_raises(how: str) -> None:
    """It says so itself, whatever its store would do."""
    engine = Engine(model=ScriptedModel("Hello.", repeat=True))
    turn = (await engine.run(AGENT, "hi")).id
    if how == "aclose":
        await engine.aclose()
        await engine.aclose()
    else:
        async with engine:
            pass
    requests: list[Callable[[], Awaitable[object]]] = [
        lambda: engine.run(AGENT, "hi"),
        lambda: engine.submit(AGENT, "hi"),
        lambda: engine.stream(AGENT, "hi").__aenter__(),
        lambda: engine.stream_resume(turn).__aenter__(),
        lambda: engine.resume(turn),
        lambda: engine.answer(turn, {}),
        lambda: engine.steer(turn, "hi"),
        lambda: engine.abort(turn),
        lambda: engine.fork(turn, at=1),
        lambda: engine.fork_places(turn),
        lambda: engine.get(turn),
        lambda: engine.delete(turn),
        lambda: engine.prune(older_than=0),
        engine.run_worker,
        engine.recover,
        engine.turns,
    ]
    for call in requests:
        with pytest.raises(EngineClosedError, match="this engine is closed: make a new Engine"):
            await call()
    with pytest.raises(EngineClosedError):
        engine.events(turn)


async def test_turns_are_listed_as_rows_newest_first_by_page() -> None:
    async with Engine(model=ScriptedModel("Hello.", repeat=True)) as engine:
        first, second, third = [await engine.run(AGENT, "hi", session=name) for name in ("a", "b", "a")]
        waiting = await engine.submit(AGENT, "hi", session="b")
        rows = await engine.turns()
        assert [row.id for row in rows] == [waiting, third.id, second.id, first.id]
        assert all(isinstance(row, TurnRow) for row in rows)
        assert [row.id for row in await engine.turns(session="a")] == [third.id, first.id]
        assert [row.id for row in await engine.turns(session="b", live=True)] == [waiting]
        page = await engine.turns(live=False, limit=2)
        assert [row.id for row in page] == [third.id, second.id]
        assert [row.id for row in await engine.turns(live=False, limit=2, before=page[-1].number)] == [first.id]


async def test_unencodable_text_ends_the_turn_and_not_the_program(tmp_path: Path) -> None:
    """Half a surrogate pair in a call's arguments, as a stream that was cut may leave it."""
    model = ScriptedModel(asks_for(ResponseToolCall("note", {"text": "\ud800"})), "Done.")
    async with Engine(model=model, tools=[note], store=f"sqlite:///{tmp_path / 'turns.db'}") as engine:
        turn = await engine.run(AGENT, "hi")
    assert turn.outcome is not None


async def test_history_is_sent_before_the_prompt() -> None:
    model = ScriptedModel("Done.")
    history = [Message.user("before"), Message.assistant("I see")]
    await Engine(model=model).run(AGENT, "now", message_history=history)
    assert [m.text for m in model.requests[0].messages if m.text] == ["You tidy up.", "before", "I see", "now"]


# On trio: asyncio cannot skip time during a shielded cancellation, because anyio cancels again in every round.
@pytest.mark.parametrize("anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio"])
async def test_deadline_during_the_last_append_of_a_batch_is_too_late() -> None:
    """The batch is over, and the turn rests: nothing is left that a deadline could stop."""

    class Slow(StoreWrapper):
        async def append(
            self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
        ) -> list[InboxItem]:
            if any(fact.kind == "paused" for fact in facts):
                await anyio.sleep(50)
            return await super().append(claim, facts, status, consumed)

    @tool(needs_approval=True)
    async def erase(n: int) -> str:
        return f"erased {n}"

    model = ScriptedModel(asks_for(("erase", {"n": 1})), "Done.")
    store, limits, clock = Slow(MemoryStore()), Limits(seconds=30), anyio.current_time
    turn = await Engine(model=model, tools=[erase], store=store, limits=limits, clock=clock).run(AGENT, "hi")
    assert turn.state is State.PAUSED
    assert anyio.current_time() >= 50


@pytest.mark.parametrize("model", ["gpt-5-mini", object()])
async def test_invalid_model_is_refused_with_the_ways_to_get_a_model(model: Model) -> None:
    with pytest.raises(ConfigError, match=r"is not a model: give an object of turnwright\.model, such as OpenAIChat"):
        Engine(model=model)
    engine = Engine(models=lambda _: model)
    with pytest.raises(ConfigError, match="is not a model"):
        await engine.run(Agent(name="A", model="m"), "hi")


def test_model_returning_a_reply_is_refused() -> None:
    class Returns:
        name = "returns"

        async def stream(self, _: object) -> ModelResponse:
            return ModelResponse(text="hi")

    with pytest.raises(ConfigError, match="model returns: `stream` returns its reply: it must yield it"):
        Engine(model=cast("Model", Returns()))


def test_model_of_another_form_is_refused() -> None:
    class Plain:
        name = "plain"

        def stream(self, _: object) -> Iterator[ModelResponse]:
            yield ModelResponse(text="hi")

    with pytest.raises(ConfigError, match="model plain: `stream` is a plain generator: write `async def stream`"):
        Engine(model=cast("Model", Plain()))
    timed = ScriptedModel("hi")
    timed.silence_timeout = cast("Any", "30")
    with pytest.raises(ConfigError, match="model scripted: silence_timeout must be a number of seconds, not '30'"):
        Engine(model=timed)


async def test_non_text_prompt_is_refused() -> None:
    with pytest.raises(ConfigError, match="the prompt must be text, not NoneType"):
        await Engine(model=ScriptedModel("Hello.")).run(AGENT, None)  # type: ignore[arg-type]


async def test_answers_without_an_interrupt_id_are_refused() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("erase", {}))), tools=[erase])
    paused = await engine.run(AGENT, "hi")
    with pytest.raises(ConfigError, match="answers must map each interrupt's id to its answer, not 'yes'"):
        await engine.resume(paused.id, "yes")  # type: ignore[call-overload]


async def test_scripted_line_may_be_an_async_function() -> None:
    async def think(request: ModelRequest) -> str:
        await anyio.lowlevel.checkpoint()
        return f"{len(request.messages)} messages"

    assert (await Engine(model=ScriptedModel(think)).run(AGENT, "hi")).text == "2 messages"


@tool
def noted(text: str) -> str:
    """Note a text."""
    return text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"tools": noted}, r"tools must be a list: write tools=\[noted\]"),
        ({"agents": AGENT}, r"agents must be a list: write agents=\[Tidier\]"),
        ({"agents": {"Tidier": AGENT}}, r"agents must be a list: write agents=\[\.\.\.\]"),
        ({"rules": "rules.yaml"}, r"rules must be a list: write rules=\[\.\.\.\]"),
        ({"deps": {"user": "ann"}}, "deps must be an async function of the turn that makes them, not {'user': 'ann'}"),
        ({"deps": lambda: 3}, r"deps: <lambda> is called with \(turn\), and takes \(\)"),
        ({"limits": {"steps": 5}}, r"limits must be Limits\(steps=\.\.\.\), not {'steps': 5}"),
        ({"backoff": 4}, r"backoff must be Backoff\(initial=\.\.\.\), not 4"),
        ({"prices": 5}, r"prices must be prices by model name: .*, not 5"),
        ({"prices": {"m": 5}}, r"prices: m must be Price\(input=\.\.\., output=\.\.\.\), not 5"),
        ({"store": 5}, "store must be an address such as sqlite:///turns.db, or a store, not int"),
        ({"runtime": "temporal"}, r"runtime must be a runtime, such as Local\(\), not str"),
        ({"runtime": Local}, r"runtime must be a runtime, such as Local\(\), not the class Local"),
        (
            {"telemetry": True},
            r"telemetry must be an object with the methods of Telemetry, or OpenTelemetry\(\), not bool",
        ),
        ({"models": {"m": 5}}, "models must be a function, not {'m': 5}"),
        ({"history_processor": 5}, "history_processor must be a function, not 5"),
        ({"synthesize": 5}, "synthesize must be a function, not 5"),
        ({"history_processor": lambda: ()}, r"history_processor is called with \(messages\), and takes \(\)"),
        ({"synthesize": lambda: ""}, r"synthesize is called with \(batch\), and takes \(\)"),
        ({"authorize": lambda: ""}, r"authorize is called with \(answering\), and takes \(\)"),
        ({"models": lambda: None}, r"models is called with \(name\), and takes \(\)"),
        ({"subscribers": {"a": lambda: None}}, r"subscribers: a is called with \(notice\), and takes \(\)"),
        ({"on_event": [lambda: None]}, r"on_event: each is called with \(event\), and takes \(\)"),
        ({"on_event": print}, r"on_event must be a list: write on_event=\[print\]"),
        ({"on_event": [5]}, "on_event: each must be a function, not 5"),
        ({"cancel_grace": "1"}, "cancel_grace must be a time in seconds, not '1'"),
    ],
)
def test_invalid_argument_is_refused_by_the_engine(arguments: Mapping[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Engine(**arguments)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
