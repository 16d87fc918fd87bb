"""A message to a running turn is received once, in its place, or returned."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import anyio
import pytest

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    SessionBusyError,
    StoreError,
    TurnAlreadyEndedError,
    TurnNotFoundError,
    TurnResult,
    tool,
)
from turnwright.driver.dependencies import FinishedCall
from turnwright.journal.inbox import steer_item
from turnwright.message import TextPart, ToolResultPart
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, TextDelta
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore, SqliteStore, Store
from turnwright.tools import Tool, ToolContext
from turnwright.transcript.events import DeltaEvent, ResponseRestartedEvent, TurnEvent
from turnwright.transcript.pairing import check_pairing
from turnwright_states import CallStatus, Cause, EndReason, Limits, Outcome, Usage
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore
from turnwright_testing.faults import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")

#: Events that are not facts.
_PASSING = DeltaEvent | ResponseRestartedEvent
#: What a model says, or does before it says it.
Line = ModelResponse | str | ModelError | Callable[[], Awaitable[ModelResponse | str | ModelError]]


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return f"erased {path}"


class Stage:
    """An engine, and what is said to its turn in the middle of it."""

    def __init__(
        self,
        *lines: Line,
        tools: Sequence[Tool] = (note, erase),
        store: Store | None = None,
        limits: Limits | None = None,
        synthesize: Callable[[tuple[FinishedCall, ...]], Awaitable[str | None]] | None = None,
    ) -> None:
        #: What is left to be said.
        self.lines: Sequence[Line] = lines
        self.requests: list[ModelRequest] = []
        self.heard: list[TurnEvent] = []
        self.store = store or MemoryStore()
        self.engine = Engine(
            model=self,
            tools=tools,
            store=self.store,
            limits=limits,
            synthesize=synthesize,
            on_event=[self.heard.append],
            backoff=Backoff(initial=5.0),
            clock=anyio.current_time,
        )

    name = "staged"

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        """See `Model.stream`. Nothing unpaired may come here."""
        check_pairing(request.messages)
        self.requests.append(request)
        line, *self.lines = self.lines
        if not isinstance(line, ModelResponse | str | ModelError):
            yield TextDelta("Well")
            line = await line()
        if isinstance(line, ModelError):
            raise line
        yield ModelResponse(text=line, usage=Usage(input_tokens=1, output_tokens=1)) if isinstance(line, str) else line

    def steering(self, *texts: str, then: ModelResponse | str | ModelError) -> Line:
        """A line of the script that first notes the texts of the request."""

        async def line() -> ModelResponse | str | ModelError:
            await self.steer(*texts)
            return then

        return line

    async def steer(self, *texts: str) -> None:
        for text in texts:
            await self.engine.steer(self.heard[0].turn, text)

    async def run(self, agent: Agent = AGENT) -> TurnResult:
        return await self.sound(await self.engine.run(agent, "hi"))

    async def sound(self, turn: TurnResult) -> TurnResult:
        """Return the turn with a valid journal, and the messages that it received."""
        facts = await self.store.facts(turn.id)
        assert replay(facts).check.verdict is Verdict.HOLDS, replay(facts).check
        live = [
            event
            for event in self.heard
            if event.turn == turn.id and not isinstance(event, DeltaEvent | ResponseRestartedEvent)
        ]
        assert live == [event async for event in self.engine.events(turn.id)]
        return turn


def users(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if message.role == "user"]


def order(request: ModelRequest) -> str:
    """The roles, a letter each: u, a, t."""
    return "".join(message.role[0] for message in request.messages)


def texts(turn: TurnResult) -> list[str]:
    return [p.text for m in turn.messages if m.role == "user" for p in m.parts if isinstance(p, TextPart)]


def working(stage: "list[Stage]", *texts: str) -> Tool:
    """A tool during whose work something is said."""

    @tool
    async def work() -> str:
        await stage[0].steer(*texts)
        await anyio.sleep(1)
        return "worked"

    return work


# It is received.


async def test_message_during_a_stream_follows_the_tool_results() -> None:
    stage = Stage("never")
    stage.lines = [stage.steering("wait", then=asks_for(("note", {"n": 1}), ("note", {"n": 2}))), "Done."]
    turn = await stage.run()
    assert (order(stage.requests[1]), users(stage.requests[1])) == ("uattu", ["hi", "wait"])
    assert (turn.outcome, texts(turn), turn.undelivered) == (Outcome.FINISHED, ["hi", "wait"], ())
    assert [kind for kind in (event.type for event in stage.heard) if kind == "message_added"] == ["message_added"]


async def test_message_during_tools_follows_all_results_in_order() -> None:
    """Also those of calls that end after it was said (docs/rules.md#messages)."""
    stages: list[Stage] = []
    tools = [note, working(stages, "first", "second")]
    stage = Stage(asks_for(("note", {"n": 1}), ("work", {}), ("note", {"n": 2})), "Done.", tools=tools)
    stages.append(stage)
    turn = await stage.run()
    assert (order(stage.requests[1]), users(stage.requests[1])) == ("uatttuu", ["hi", "first", "second"])
    assert turn.undelivered == ()
    assert await stage.store.inbox(turn.id) == []


async def test_message_from_another_store_handle_is_delivered(tmp_path: Path) -> None:
    """As another process would: it claims nothing, and does not wait."""
    other_stores: list[SqliteStore] = []

    @tool
    async def work() -> str:
        other_engine = Engine(store=other_stores[0])
        await other_engine.steer((await other_engine.store.turns())[0].id, "over here")
        return "worked"

    stage = Stage(asks_for(("work", {})), "Done.", tools=[work], store=SqliteStore(tmp_path / "turns.db"))
    other_stores.append(SqliteStore(tmp_path / "turns.db"))
    turn = await stage.run()
    assert (users(stage.requests[1]), turn.undelivered) == (["hi", "over here"], ())
    await other_stores[0].aclose()
    await stage.store.aclose()


async def test_message_during_a_retry_wait_is_in_the_next_attempt() -> None:
    """The attempt is a model call that may use tools, and the message came before it."""
    stage = Stage(ModelError("busy", cause=Cause.OVERLOADED, retry_after=60), "Done.")
    async with anyio.create_task_group() as group:
        group.start_soon(stage.run)
        await anyio.sleep(30)
        await stage.steer("mind the gap")
    assert users(stage.requests[1]) == ["hi", "mind the gap"]


async def test_message_during_a_failing_attempt_is_in_the_next_attempt() -> None:
    stage = Stage("never")
    stage.lines = [stage.steering("wait", then=ModelError("busy", cause=Cause.OVERLOADED)), "Done."]
    turn = await stage.run()
    assert (users(stage.requests[1]), turn.undelivered) == (["hi", "wait"], ())


class SaidMeanwhile(StoreWrapper):
    """A store where something is said to a running turn while another one is read."""

    has_posted = False

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, f.Fact]]:
        """See `Store.facts`."""
        for row in await self.turns(live=True):
            if row.id != turn_id and not self.has_posted:
                self.has_posted = True
                await self.post(steer_item(row.id, "and be brief"))
        return await super().facts(turn_id, after)


async def test_message_during_the_read_of_the_history_is_in_the_first_request() -> None:
    memory, model = MemoryStore(), ScriptedModel("Done.")
    await Engine(model=ScriptedModel("First."), store=memory).run(AGENT, "hi", session="s")
    await Engine(model=model, store=SaidMeanwhile(memory)).run(AGENT, "again", session="s")
    assert users(model.requests[0]) == ["hi", "again", "and be brief"]


async def test_message_to_a_paused_turn_waits_for_the_answer() -> None:
    """And comes after the result of the call that waited."""
    stage = Stage(asks_for(("erase", {"path": "x"}), ("note", {})), "Done.")
    paused = await stage.run()
    await stage.steer("and hurry")
    assert texts(await stage.engine.get(paused.id)) == ["hi"]
    assert len(await stage.store.inbox(paused.id)) == 1
    turn = await stage.sound(await stage.engine.resume(paused.id, {"approval-1": True}))
    assert (order(stage.requests[1]), users(stage.requests[1])) == ("uattu", ["hi", "and hurry"])
    assert (turn.undelivered, await stage.store.inbox(turn.id)) == ((), [])


async def test_message_to_a_turn_with_a_denied_call_follows_the_result() -> None:
    stage = Stage(asks_for(("erase", {"path": "x"})), "Done.")
    paused = await stage.run()
    await stage.steer("write instead")
    await stage.sound(await stage.engine.resume(paused.id, {"approval-1": False}))
    assert (order(stage.requests[1]), users(stage.requests[1])) == ("uatu", ["hi", "write instead"])


async def test_message_before_a_pause_follows_the_result_of_the_waiting_call() -> None:
    stages: list[Stage] = []
    tools = [erase, working(stages, "meanwhile")]
    stages.append(stage := Stage(asks_for(("erase", {"path": "x"}), ("work", {})), "Done.", tools=tools))
    paused = await stage.run()
    assert paused.paused
    assert texts(paused) == ["hi", "meanwhile"]
    await stage.steer("later")
    await stage.sound(await stage.engine.resume(paused.id, {"approval-1": True}))
    assert (order(stage.requests[1]), users(stage.requests[1])) == ("uattuu", ["hi", "meanwhile", "later"])


async def test_steering_alone_does_not_wake_a_paused_turn() -> None:
    stage = Stage(asks_for(("erase", {"path": "x"})))
    paused = await stage.run()
    await stage.steer("hello?")
    assert await stage.engine.recover() == []
    assert (await stage.engine.get(paused.id)).paused
    assert len(stage.requests) == 1


async def test_repeated_message_is_delivered_twice() -> None:
    stages: list[Stage] = []
    stages.append(stage := Stage(asks_for(("work", {})), "Done.", tools=[working(stages, "now", "now")]))
    await stage.run()
    assert users(stage.requests[1]) == ["hi", "now", "now"]


async def test_later_turn_of_the_session_has_the_message_in_place() -> None:
    stages: list[Stage] = []
    tools = [working(stages, "be brief")]
    stages.append(stage := Stage(asks_for(("work", {})), "One.", "Two.", tools=tools))
    await stage.engine.run(AGENT, "hi", session="s1")
    await stage.engine.run(AGENT, "and?", session="s1")
    assert (order(stage.requests[2]), users(stage.requests[2])) == ("uatuau", ["hi", "be brief", "and?"])


# What it changes, and what it does not.


def circling(stages: list[Stage], limits: Limits, *more: Line) -> Stage:
    """A model that asks for the same thing, and during whose third round something is said."""
    rounds: list[Line] = [asks_for(("note", {}))] * 2
    stages.append(stage := Stage(limits=limits))
    stage.lines = [*rounds, stage.steering("you repeat yourself", then=asks_for(("note", {}))), *more]
    return stage


async def test_message_resets_the_doom_rounds() -> None:
    """Three more of the same, and the loop is found again."""
    more: list[Line] = [asks_for(("note", {}))] * 3
    stage = circling([], Limits(), *more, "In circles.")
    turn = await stage.run()
    assert (turn.outcome, turn.steps, texts(turn)) == (Outcome.DOOM_LOOP, 6, ["hi", "you repeat yourself"])


async def test_message_refills_no_step() -> None:
    stage = circling([], Limits(steps=3), "Cap.")
    turn = await stage.run()
    assert (turn.outcome, turn.reason, turn.steps) == (Outcome.CAP_HIT, EndReason.STEP_CAP, 3)
    assert texts(turn) == ["hi", "you repeat yourself"], "the concluding call includes it: it came before"


@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(tool_calls=3), EndReason.BUDGET), (Limits(tokens=6), EndReason.TOKENS)]
)
async def test_message_refills_no_call_and_no_token(limits: Limits, reason: EndReason) -> None:
    turn = await circling([], limits, "Cap.").run()
    assert (turn.outcome, turn.reason, turn.steps) == (Outcome.CAP_HIT, reason, 3)


@pytest.mark.parametrize(
    ("answer", "outcome", "undelivered"),
    [
        ("go_on", Outcome.FINISHED, ()),
        ("stop", Outcome.DOOM_LOOP, ("try b",)),
    ],
)
async def test_message_during_a_doom_loop_question_waits_for_the_answer(
    answer: str, outcome: Outcome, undelivered: tuple[str, ...]
) -> None:
    stage = Stage(*[asks_for(("note", {}))] * 3, "Done.", limits=Limits(doom_response="ask"))
    paused = await stage.run()
    assert [interrupt.id for interrupt in paused.interrupts] == ["doom-1"]
    await stage.steer("try b")
    turn = await stage.sound(await stage.engine.resume(paused.id, {"doom-1": answer}))
    assert (turn.outcome, turn.undelivered) == (outcome, undelivered)
    assert texts(turn) == (["hi"] if undelivered else ["hi", "try b"])


async def test_message_with_the_last_denial_resets_the_doom_rounds() -> None:
    """'No. Do something else.': approved, it does; rejected, the turn ends before it receives the message."""
    stage = Stage(*[asks_for(("erase", {"path": "x"}))] * 3, "I see.")
    turn = await stage.run()
    for number in (1, 2, 3):
        if number == 3:
            await stage.steer("write instead")
        turn = await stage.engine.resume(turn.id, {f"approval-{number}": False})
    assert (turn.outcome, turn.undelivered) == (Outcome.FINISHED, ())


# It comes too late: whatever the ending, it is handed back, once.


def _rejected(stage: Stage) -> None:
    stage.lines = [stage.steering("a", "b", then=ModelError("no", cause=Cause.REJECTED))]


def _answered(stage: Stage) -> None:
    stage.lines = [stage.steering("a", "b", then="Done.")]


def _filtered(stage: Stage) -> None:
    stage.lines = [stage.steering("a", "b", then=ModelError("no", cause=Cause.CONTENT_FILTER))]


def _before_another_attempt(stage: Stage) -> None:
    stage.lines = [stage.steering("a", "b", then=ModelError("busy", cause=Cause.OVERLOADED)), "Done."]


def _in_the_conclusion(stage: Stage) -> None:
    stage.lines = [asks_for(("note", {})), stage.steering("a", "b", then="Cap.")]


def _in_a_conclusion_that_fails(stage: Stage) -> None:
    stage.lines = [asks_for(("note", {})), stage.steering("a", "b", then=ModelError("no", cause=Cause.REJECTED))]


def _after_a_doom_loop(stage: Stage) -> None:
    stage.lines = [*[asks_for(("note", {}))] * 3, stage.steering("a", "b", then="In circles.")]


def _hook_fails(stage: Stage) -> None:
    async def line() -> ModelResponse:
        await stage.steer("a", "b")
        raise LookupError("a bug")

    stage.lines = [line]


def _aborted(stage: Stage) -> None:
    async def line() -> ModelResponse:
        await stage.steer("a", "b")
        await stage.engine.abort(stage.heard[0].turn)
        await anyio.sleep_forever()
        return ModelResponse()

    stage.lines = [line]


@pytest.mark.parametrize(
    ("limits", "arrange", "reason"),
    [
        (Limits(), _answered, EndReason.ANSWERED),
        (Limits(steps=0), _answered, EndReason.TEXT_ONLY),
        (Limits(steps=0), _before_another_attempt, EndReason.TEXT_ONLY),
        (Limits(max_retries=0), _rejected, EndReason.MODEL_ERROR),
        (Limits(), _filtered, EndReason.CONTENT_FILTER),
        (Limits(steps=1), _in_the_conclusion, EndReason.STEP_CAP),
        (Limits(steps=1), _in_a_conclusion_that_fails, EndReason.STEP_CAP),
        (Limits(), _after_a_doom_loop, EndReason.DOOM_LOOP),
        (Limits(), _hook_fails, EndReason.ENGINE_ERROR),
        (Limits(), _aborted, EndReason.ABORTED),
        (Limits(steps=0), _aborted, EndReason.ABORTED),
    ],
)
async def test_late_message_is_handed_back(
    limits: Limits, arrange: Callable[[Stage], None], reason: EndReason, caplog: pytest.LogCaptureFixture
) -> None:
    """By the result, by the event, and by a later query, in the order of posting."""
    stage = Stage(limits=limits)
    arrange(stage)
    with caplog.at_level("CRITICAL", "turnwright"):
        turn = await stage.run()
    assert (turn.reason, turn.undelivered, texts(turn)) == (reason, ("a", "b"), ["hi"])
    assert stage.heard[-1].type == "turn_ended"
    assert stage.heard[-1].to_json()["undelivered"] == ["a", "b"]
    assert (await stage.engine.get(turn.id)).undelivered == ("a", "b")
    assert await stage.store.inbox(turn.id) == []


async def test_synthesis_hands_a_late_message_back() -> None:
    stages: list[Stage] = []

    async def synthesize(batch: tuple[FinishedCall, ...]) -> str:
        await stages[0].steer("too late")
        return f"All {len(batch)}."

    stages.append(stage := Stage(asks_for(("note", {})), synthesize=synthesize))
    turn = await stage.run()
    assert (turn.outcome, turn.undelivered) == (Outcome.SYNTHESIS_DONE, ("too late",))


async def test_turn_expiring_in_text_hands_a_late_message_back() -> None:
    async def line() -> ModelResponse:
        await stage.steer("too late")
        await anyio.sleep_forever()
        return ModelResponse()

    stage = Stage(line, limits=Limits(steps=0, seconds=60))
    turn = await stage.run()
    assert (turn.outcome, turn.reason, turn.undelivered) == (Outcome.CAP_HIT, EndReason.DEADLINE, ("too late",))


async def test_aborted_or_superseded_paused_turn_hands_a_message_back() -> None:
    for reason in (EndReason.ABORTED, EndReason.SUPERSEDED):
        stage = Stage(asks_for(("erase", {"path": "x"})), "Never mind.")
        paused = await stage.engine.run(AGENT, "hi", session="s1")
        await stage.steer("and hurry")
        if reason is EndReason.ABORTED:
            await stage.engine.abort(paused.id)
        else:
            await stage.engine.run(AGENT, "no, wait", session="s1")
        turn = await stage.sound(await stage.engine.get(paused.id))
        assert (turn.reason, turn.undelivered) == (reason, ("and hurry",))


async def test_message_to_an_ended_or_missing_turn_is_refused() -> None:
    stage = Stage("Done.")
    turn = await stage.run()
    with pytest.raises(TurnAlreadyEndedError, match=f"turn {turn.id} has ended"):
        await stage.steer("hello?")
    with pytest.raises(TurnNotFoundError, match="nobody"):
        await stage.engine.steer("nobody", "hello?")
    assert (await stage.engine.get(turn.id)).undelivered == ()


@pytest.mark.parametrize("text", ["", "  \n\t", "half a pair: \ud800"])
async def test_blank_message_is_refused(text: str) -> None:
    stage = Stage(asks_for(("erase", {"path": "x"})))
    paused = await stage.run()
    with pytest.raises(ConfigError, match="the message"):
        await stage.engine.steer(paused.id, text)
    assert await stage.store.inbox(paused.id) == []


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\U0001f600", '"}\n{"', "x" * 100_000, "a\u2028b"])
async def test_storable_text_is_delivered_unchanged(tmp_path: Path, text: str) -> None:
    stage = Stage(asks_for(("erase", {"path": "x"})), "Done.", store=SqliteStore(tmp_path / "turns.db"))
    paused = await stage.run()
    await stage.steer(text)
    turn = await stage.sound(await stage.engine.resume(paused.id, {"approval-1": True}))
    assert texts(turn) == ["hi", text]
    await stage.store.aclose()


# At every moment: it is received once, or returned once, and never both.


class Interrupted(StoreWrapper):
    """Calls `action` in the middle of its `at`-th call: before it is done, or after."""

    @property
    def inline(self) -> bool:
        """Every method may let others run."""
        return False

    def __init__(self, inner: Store, action: Callable[[], Awaitable[object]], *, at: int, after: bool) -> None:
        super().__init__(inner)
        self._action, self._at, self._after = action, at, after
        self.calls = 0

    def __getattribute__(self, name: str) -> object:
        """The methods of a store, counted."""
        attribute = super().__getattribute__(name)
        if name.startswith("_") or name not in _COUNTED:
            return attribute
        return self._counted(attribute)

    def _counted(self, method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def counted(*args: object, **options: object) -> object:
            self.calls += 1
            due = self.calls == self._at
            if due and not self._after:
                await self._action()
            result = await method(*args, **options)
            if due and self._after:
                await self._action()
            return result

        return counted


_COUNTED = frozenset({"create", "claim", "release", "append", "facts", "get", "inbox", "is_driven", "post"})


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("cap", [10, 2], ids=["answered", "capped"])
async def test_message_at_any_call_of_the_store_is_not_lost(cap: int, after: bool) -> None:
    """A turn with two batches; the message comes at its first call of the store, then at its second, and so on."""
    at, calls = 0, 0  # to the first one nothing is said, and it says how many calls there are
    while at <= calls:
        memory, refused = MemoryStore(), list[str]()

        async def say(memory: MemoryStore = memory, refused: list[str] = refused) -> None:
            rows = await memory.turns()
            try:
                await Engine(store=memory).steer(rows[0].id if rows else "nobody", "now")
            except (TurnAlreadyEndedError, TurnNotFoundError) as error:
                refused.append(type(error).__name__)

        store = Interrupted(memory, say, at=at, after=after)
        lines: list[Line] = [asks_for(("note", {"n": 1}), ("note", {"n": 2})), asks_for(("note", {"n": 3})), "Done."]
        stage = Stage(*lines, store=store, limits=Limits(steps=cap))
        turn: TurnResult = await stage.engine.run(AGENT, "hi")
        turn = await Engine(store=memory).get(turn.id)
        assert replay(await memory.facts(turn.id)).check.verdict is Verdict.HOLDS
        heard, handed_back = texts(turn).count("now"), turn.undelivered.count("now")
        assert heard + handed_back == (0 if refused or not at else 1), f"call {at}: {refused}"
        for request in stage.requests:
            assert users(request) in (["hi"], ["hi", "now"]) or request.tool_choice == "none"
        at, calls = at + 1, calls or store.calls
    assert calls > 7


def _saying(store: Store, texts: list[str]) -> Tool:
    """A tool that says something to its own turn, as another process would."""

    @tool
    async def work(n: int, context: ToolContext) -> str:
        await Engine(store=store).steer(context.turn_id, f"said {n}")
        texts.append(f"said {n}")
        return f"worked {n}"

    return work


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_crash_neither_loses_nor_repeats_a_message(after: bool) -> None:
    """The process dies at each append of a turn to which two things are said, before it or after it."""
    crashes, died = 0, True
    while died:
        memory, steered_texts = MemoryStore(), list[str]()
        tools = [_saying(memory, steered_texts)]
        store = FaultyStore(memory, at=crashes + 1, after=after)
        lines: list[Line] = [asks_for(("work", {"n": 1})), asks_for(("work", {"n": 2})), "Done."]
        try:
            await Stage(*lines, tools=tools, store=store).engine.run(AGENT, "hi")
        except StoreError:
            await store.aclose()
        died = store.dead
        (row,) = await memory.turns()
        model = ScriptedModel("I see.", repeat=True)
        await Engine(model=model, tools=tools, store=memory).recover()
        turn = await Engine(store=memory).get(row.id)
        assert turn.outcome is Outcome.FINISHED
        assert [*texts(turn)[1:], *turn.undelivered] == steered_texts
        assert replay(await memory.facts(row.id)).check.verdict is Verdict.HOLDS
        assert await memory.inbox(row.id) == []
        for request in model.requests:
            check_pairing(request.messages)
        crashes += died
    assert crashes == 7


# Forks.


async def test_fork_has_messages_from_before_the_place() -> None:
    stages: list[Stage] = []
    tools = [note, working(stages, "be brief")]
    stages.append(stage := Stage(asks_for(("work", {}), ("note", {})), "Done.", tools=tools))
    turn = await stage.run()
    facts = await stage.store.facts(turn.id)
    place = next(seq for seq, fact in facts if isinstance(fact, f.MessageAdded))
    for at, heard in ((place - 1, False), (place, True), (len(facts) - 3, True)):
        fork = await stage.engine.fork(turn.id, at=at)
        stage.lines = ["Again."]
        again = await stage.engine.resume(fork)
        assert again.outcome is Outcome.FINISHED
        assert ("be brief" in texts(again)) is heard
        assert replay(await stage.store.facts(fork)).check.verdict is Verdict.HOLDS


async def test_session_of_a_steered_turn_is_still_busy() -> None:
    """A message to a running turn is not a new turn, and a new turn is not a message."""
    stage = Stage()

    async def line() -> ModelResponse | str | ModelError:
        await stage.steer("one")
        with pytest.raises(SessionBusyError):
            await stage.engine.run(AGENT, "two", session="s1")
        return "Done."

    stage.lines = [line]
    turn = await stage.engine.run(AGENT, "hi", session="s1")
    assert turn.undelivered == ("one",)


async def test_result_is_never_parted_from_the_call() -> None:
    """For all messages during the calls, however the calls ended."""

    @tool
    async def fails() -> str:
        await stage.steer("during a failure")
        raise ValueError("no")

    stage = Stage(
        asks_for(("fails", {}), ("nowhere", {}), ("note", {"n": "many"}), ("note", {})), "Done.", tools=[note, fails]
    )
    turn = await stage.run()
    assert order(stage.requests[1]) == "uattttu"
    results = [p.status for m in turn.messages for p in m.parts if isinstance(p, ToolResultPart)]
    assert results == [CallStatus.ERROR, CallStatus.ERROR, CallStatus.ERROR, CallStatus.OK]
