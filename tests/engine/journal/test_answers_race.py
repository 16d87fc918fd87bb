"""Several processes answer one turn at once, while it is driven, released and resumed."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from turnwright import (
    Agent,
    Engine,
    InvalidAnswerError,
    SessionBusyError,
    TurnAlreadyEndedError,
    TurnBusyError,
    TurnResult,
    approve,
    reject,
    tool,
)
from turnwright.journal.answers import Answer
from turnwright.message import ToolResultPart
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import InboxItem, MemoryStore, SqliteStore, Store
from turnwright.tools import Tool, ToolContext, ToolInputError
from turnwright.tools.builtin import builtin_tools
from turnwright.transcript.events import TurnEvent
from turnwright.transcript.pairing import check_pairing
from turnwright_states import CallStatus, EndReason, Limits, Outcome
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing.faults import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")
ANSWER = "approval-1"


class Desk:
    """A store that several engines share, each with a model and tools of its own, and what the tools did."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self.done: list[str] = []
        self._open = store
        self.stores: list[Store] = []
        #: A sibling of the waiting calls. It holds the batch open until it is released.
        self.go = anyio.Event()
        self.dawdles = anyio.Event()

        @tool
        async def note(text: str) -> str:
            self.done.append(f"note {text}")
            return f"noted {text}"

        @tool
        async def dawdle() -> str:
            self.dawdles.set()
            await self.go.wait()
            return "at last"

        @tool(needs_approval=True)
        async def erase(path: str) -> str:
            self.done.append(f"erase {path}")
            return f"erased {path}"

        self.tools: list[Tool] = [note, dawdle, erase]

    def store(self) -> Store:
        """A handle of another process."""
        self.stores.append(self._open())
        return self.stores[-1]

    def engine(self, *lines: Line, limits: Limits | None = None, around: bool = False) -> Engine:
        """An engine of another process. `around`: its store waits a little in every call."""
        store = self.store()
        self.model = ScriptedModel(*lines)
        engine_store = Yielding(store) if around else store
        return Engine(model=self.model, tools=self.tools, store=engine_store, limits=limits)


class Yielding(StoreWrapper):
    """Lets everybody else go first, before each call."""

    @property
    def inline(self) -> bool:
        """Every method may let others run."""
        return False

    def __getattribute__(self, name: str) -> object:
        """The methods of a store, each a little late."""
        attribute = super().__getattribute__(name)
        if name not in ("claim", "release", "append", "facts", "get", "inbox", "is_driven", "post", "turns"):
            return attribute
        return self._late(attribute)

    def _late(self, method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def late(*args: object, **options: object) -> object:
            await anyio.lowlevel.checkpoint()
            return await method(*args, **options)

        return late


@pytest.fixture(params=["memory", "sqlite"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Handles of one store: one in memory, or several of a file, as several processes have them."""
    memory = MemoryStore()
    in_file = request.param == "sqlite"
    desk = Desk(lambda: SqliteStore(tmp_path / "turns.db", durability="normal") if in_file else memory)
    yield desk
    for store in desk.stores:
        await store.aclose()


def asking(*paths: str, dawdling: bool = False) -> Line:
    """Erasures, each of which needs leave."""
    return asks_for(*[("erase", {"path": path}) for path in paths], *([("dawdle", {})] if dawdling else []))


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


async def sound(engine: Engine, turn_id: str) -> list[f.Fact]:
    """The facts of a turn, each of which follows, and each of whose interrupts was answered once."""
    facts = await engine.store.facts(turn_id)
    assert replay(facts).check.verdict is Verdict.HOLDS, replay(facts).check
    answered = [fact.interrupt for _, fact in facts if isinstance(fact, f.Answered)]
    assert len(set(answered)) == len(answered)
    assert not await engine.store.is_driven(turn_id)
    return [fact for _, fact in facts]


async def gather(*jobs: Callable[[], Awaitable[TurnResult]]) -> list[TurnResult | InvalidAnswerError]:
    """Return each result or `InvalidAnswerError`."""
    outcomes: list[TurnResult | InvalidAnswerError | None] = [None] * len(jobs)

    async def run(place: int, job: Callable[[], Awaitable[TurnResult]]) -> None:
        try:
            outcomes[place] = await job()
        except InvalidAnswerError as error:
            outcomes[place] = error

    with anyio.fail_after(600):
        async with anyio.create_task_group() as group:
            for place, job in enumerate(jobs):
                group.start_soon(run, place, job)
    return [outcome for outcome in outcomes if outcome is not None]


# From another process.


async def test_undriven_turn_is_answered_and_driven_by_another_process(desk: Desk) -> None:
    paused = await desk.engine(asking("x")).run(AGENT, "hi")
    other_engine = desk.engine("Done.")
    turn = await other_engine.resume(paused.id, {ANSWER: True})
    assert (turn.outcome, desk.done) == (Outcome.FINISHED, ["erase x"])
    await sound(other_engine, turn.id)


async def test_answer_during_sibling_calls_is_left_to_the_driver(desk: Desk) -> None:
    """The other process claims nothing, and receives the turn's end."""
    heard: list[TurnEvent] = []
    first = desk.engine(asking("x", dawdling=True), "Done.")
    store = desk.stores[0]
    other_engine = desk.engine("never said")
    turns: list[TurnResult] = []

    async def answer() -> None:
        (row,) = await store.turns()
        turns.append(await other_engine.resume(row.id, {ANSWER: True}))

    async with anyio.create_task_group() as group:
        group.start_soon(first.run, AGENT, "hi")
        await desk.dawdles.wait()
        group.start_soon(answer)
        await anyio.sleep(5)
        assert not heard
        assert desk.done == [], "nothing runs before the batch has settled"
        desk.go.set()
    (turn,) = turns
    assert (turn.outcome, turn.text, desk.done) == (Outcome.FINISHED, "Done.", ["erase x"])
    await sound(other_engine, turn.id)


async def test_answering_alone_needs_neither_tools_nor_model(desk: Desk) -> None:
    """The driver lives, feeds the answer and ends the turn; the one who answered receives the end."""
    first = desk.engine(asking("x", dawdling=True), "Done.")
    bare = Engine(store=desk.store())
    turns: list[TurnResult] = []

    async def answer() -> None:
        (row,) = await bare.store.turns()
        turns.append(await bare.resume(row.id, {ANSWER: True}))

    async with anyio.create_task_group() as group:
        group.start_soon(first.run, AGENT, "hi")
        await desk.dawdles.wait()
        group.start_soon(answer)
        await anyio.sleep(1)
        desk.go.set()
    assert [turn.outcome for turn in turns] == [Outcome.FINISHED]


# Two at once.


ANSWERS: list[tuple[Answer, Answer]] = [
    (approve(), reject()),
    (reject("no"), reject("not today")),
    (reject(), approve()),
]


@pytest.mark.parametrize("late", range(0, 40, 10))
@pytest.mark.parametrize("replies", ANSWERS)
async def test_first_of_two_different_answers_stands(desk: Desk, replies: tuple[Answer, Answer], late: int) -> None:
    """The other one raises, with the open interrupts; `late` is the first one's progress when it comes."""
    paused = await desk.engine(asking("x"), around=True).run(AGENT, "hi")
    engines = [desk.engine("Done.", around=True) for _ in replies]

    async def first() -> TurnResult:
        return await engines[0].resume(paused.id, {ANSWER: replies[0]})

    async def second() -> TurnResult:
        for _ in range(late):
            await anyio.lowlevel.checkpoint()
        try:
            return await engines[1].resume(paused.id, {ANSWER: replies[1]})
        except TurnAlreadyEndedError as error:
            raise InvalidAnswerError(ANSWER, "the turn has ended", []) from error

    outcomes = await gather(first, second)
    facts = await sound(engines[0], paused.id)
    (answered,) = [fact for fact in facts if isinstance(fact, f.Answered)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, InvalidAnswerError)]
    assert len(refused) == 1
    stands = replies[outcomes.index(refused[0]) == 0]
    assert (answered.decision, answered.text) == (stands.decision, stands.text)
    assert "approval-1" in str(refused[0])
    assert "open" in str(refused[0])
    assert desk.done == (["erase x"] if stands.decision == "approve" else [])
    assert (await engines[0].get(paused.id)).outcome is Outcome.FINISHED


@pytest.mark.parametrize("late", range(0, 40, 8))
async def test_same_answer_twice_counts_once(desk: Desk, late: int) -> None:
    """Neither raises, and the call runs once."""
    paused = await desk.engine(asking("x"), around=True).run(AGENT, "hi")
    engines = [desk.engine("Done.", around=True) for _ in range(2)]

    async def first() -> TurnResult:
        return await engines[0].resume(paused.id, {ANSWER: True})

    async def second() -> TurnResult:
        for _ in range(late):
            await anyio.lowlevel.checkpoint()
        with suppress(TurnAlreadyEndedError):
            return await engines[1].resume(paused.id, {ANSWER: True})
        raise InvalidAnswerError(ANSWER, "it is late", [])

    outcomes = await gather(first, second)
    for outcome in outcomes:  # refused is only what came so late that nothing was open any more
        assert isinstance(outcome, InvalidAnswerError) or outcome.outcome is Outcome.FINISHED
    assert isinstance(outcomes[0], TurnResult)
    assert desk.done == ["erase x"]
    await sound(engines[0], paused.id)


@pytest.mark.parametrize("late", range(0, 30, 5))
async def test_two_processes_may_answer_two_interrupts_at_once(desk: Desk, late: int) -> None:
    """The last one drives it on, and both receive its end or its pause."""
    paused = await desk.engine(asking("x", "y"), around=True).run(AGENT, "hi")
    engines = [desk.engine("Done.", around=True) for _ in range(2)]

    async def first() -> TurnResult:
        return await engines[0].resume(paused.id, {"approval-1": True})

    async def second() -> TurnResult:
        for _ in range(late):
            await anyio.lowlevel.checkpoint()
        return await engines[1].resume(paused.id, {"approval-2": False})

    outcomes = await gather(first, second)
    assert not [outcome for outcome in outcomes if isinstance(outcome, InvalidAnswerError)]
    turn = await engines[0].get(paused.id)
    assert (turn.outcome, [status for status, _ in results(turn)]) == (
        Outcome.FINISHED,
        [CallStatus.OK, CallStatus.REJECTED],
    )
    await sound(engines[0], paused.id)


class Interrupted(StoreWrapper):
    """Does `action` at its `at`-th call of a driver, before it or after it."""

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
        if name not in ("create", "claim", "release", "append", "facts", "get", "inbox", "is_driven", "post"):
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


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_an_answer_at_any_call_of_the_store_is_taken(after: bool) -> None:
    """An answer is posted without a driver: the process that releases the turn reads the inbox once more.

    So the turn ends, or is paused before the answer can have come, whenever the answer comes.
    """
    at, calls = 0, 0  # the first one is not answered, and says how many calls there are
    while at <= calls:
        memory = MemoryStore()
        desk = Desk(lambda memory=memory: memory)  # type: ignore[misc]
        endings: list[str] = []
        group_of: list[anyio.abc.TaskGroup] = []

        async def answer(
            desk: Desk = desk,
            memory: MemoryStore = memory,
            endings: list[str] = endings,
            group_of: list[anyio.abc.TaskGroup] = group_of,
        ) -> None:
            """Answer as another process, which may have to wait for the driver that it interrupts."""
            engine = Engine(model=ScriptedModel("Done."), tools=desk.tools, store=memory)

            async def resume() -> None:
                try:
                    rows = await memory.turns()
                    endings.append(str((await engine.resume(rows[0].id, {ANSWER: True})).outcome))
                except (InvalidAnswerError, IndexError) as error:
                    endings.append(type(error).__name__)

            group_of[0].start_soon(resume)
            for _ in range(30):
                await anyio.lowlevel.checkpoint()

        store = Interrupted(memory, answer, at=at, after=after)
        engine = Engine(
            model=ScriptedModel(asks_for(("erase", {"path": "x"}), ("note", {"text": "a"})), "Done."),
            tools=desk.tools,
            store=store,
        )
        async with anyio.create_task_group() as group:
            group_of.append(group)
            await engine.run(AGENT, "hi")
        (row,) = await memory.turns()
        turn = await Engine(store=memory).get(row.id)
        if not at or endings in (["IndexError"], ["InvalidAnswerError"]):  # too early: nothing was open yet
            assert (turn.paused, desk.done) == (True, ["note a"])
        else:
            assert endings == ["finished"], f"call {at}"
            assert (turn.outcome, desk.done) == (Outcome.FINISHED, ["note a", "erase x"])
        await sound(Engine(store=memory), turn.id)
        at, calls = at + 1, calls or store.calls
    assert calls > 6


# Refused: unknown, late, not fitting.


async def test_every_refusal_names_the_open_interrupts(desk: Desk) -> None:
    engine = desk.engine(asking("x", "y", "z"), "Done.")
    paused = await engine.run(AGENT, "hi")
    await engine.resume(paused.id, {"approval-2": True})
    refused: list[Mapping[str, str | bool | Answer]] = [{"approval-2": False}, {"approval-9": True}, {"": True}]
    for answers in refused:
        with pytest.raises(InvalidAnswerError) as error:
            await engine.resume(paused.id, {**answers, "approval-1": True})
        assert error.value.interrupts == ("approval-1", "approval-3")
        assert "open: approval-1, approval-3" in str(error.value)
    assert desk.done == []
    assert await engine.store.inbox(paused.id) == []
    turn = await engine.resume(paused.id, {"approval-1": True, "approval-3": True})
    assert (turn.outcome, sorted(desk.done)) == (Outcome.FINISHED, ["erase x", "erase y", "erase z"])


async def test_answer_to_a_superseded_or_aborted_turn_is_late(desk: Desk) -> None:
    engine = desk.engine(asking("x"), "Never mind.", asking("y"))
    paused = await engine.run(AGENT, "hi", session="s1")
    await engine.run(AGENT, "no, wait", session="s1")
    with pytest.raises(TurnAlreadyEndedError, match="superseded"):
        await engine.resume(paused.id, {ANSWER: True})
    again = await engine.run(AGENT, "now", session="s1")
    await engine.abort(again.id)
    with pytest.raises(TurnAlreadyEndedError, match="aborted"):
        await engine.resume(again.id, {ANSWER: True})
    assert desk.done == []


@pytest.mark.parametrize("late", range(2, 24, 4))
async def test_first_of_a_new_message_and_an_answer_counts(desk: Desk, late: int) -> None:
    """The first of them counts. A rejected early message does not end a turn that continues."""
    paused = await desk.engine(asking("x"), around=True).run(AGENT, "hi", session="s1")
    engines = [desk.engine("Done.", around=True), desk.engine("Something new.", around=True)]
    busy: list[SessionBusyError] = []

    async def answer() -> TurnResult:
        with suppress(TurnAlreadyEndedError):
            return await engines[0].resume(paused.id, {ANSWER: True})
        return await engines[0].get(paused.id)

    async def write() -> TurnResult:
        for _ in range(late):
            await anyio.lowlevel.checkpoint()
        try:
            return await engines[1].run(AGENT, "no, wait", session="s1")
        except SessionBusyError as error:
            busy.append(error)
            return await engines[1].get(paused.id)

    await gather(answer, write)
    old = await engines[0].get(paused.id)
    await sound(engines[0], old.id)
    if busy or old.outcome is Outcome.FINISHED:
        assert (old.outcome, desk.done) == (Outcome.FINISHED, ["erase x"])
    else:
        assert (old.outcome, old.reason) == (Outcome.ABORTED, EndReason.SUPERSEDED)


async def test_rejected_message_ends_nothing() -> None:
    """The turn is answered between the look at it and the abort: it is either ended, or the session is busy."""
    memory = MemoryStore()
    desk = Desk(lambda: memory)
    paused = await desk.engine(asking("x")).run(AGENT, "hi", session="s1")
    answering = desk.engine(asks_for(("dawdle", {})), "Done.")

    class Overtaken(StoreWrapper):
        async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
            group.start_soon(answering.resume, paused.id, {ANSWER: True})
            await desk.dawdles.wait()
            return await super().post(*items)

    busy = False
    async with anyio.create_task_group() as group:
        try:
            await Engine(model=ScriptedModel("New."), store=Overtaken(memory)).run(AGENT, "no, wait", session="s1")
        except SessionBusyError:
            busy = True
        desk.go.set()
    old = await answering.get(paused.id)
    assert busy is (old.outcome is Outcome.FINISHED)


# What an answer does.


async def test_the_words_of_a_denial_reach_the_model(desk: Desk) -> None:
    engine = desk.engine(asking("x"), "I see.")
    paused = await engine.run(AGENT, "hi")
    await engine.resume(paused.id, {ANSWER: reject("it is the only copy \U0001f63f")})
    parts = [part for message in desk.model.requests[1].messages for part in message.parts]
    (result_part,) = [part for part in parts if isinstance(part, ToolResultPart)]
    assert (result_part.status, result_part.text) == (
        CallStatus.REJECTED,
        "rejected by the person: it is the only copy \U0001f63f",
    )


async def test_unstorable_denial_text_is_refused(tmp_path: Path) -> None:
    """As a message is: what is stored must be what was said. Now they are taken, and then called somebody else's."""
    store = SqliteStore(tmp_path / "turns.db")
    question: dict[str, JsonValue] = {"question": "Which one?"}
    model = ScriptedModel(asks_for(("ask_user_input", question)), "Done.")
    engine = Engine(model=model, tools=builtin_tools(tmp_path), store=store)
    paused = await engine.run(AGENT, "hi")
    try:
        with pytest.raises(Exception, match="half a surrogate pair"):
            await engine.resume(paused.id, {"question-1": "half a pair: \ud800"})
        assert (await engine.get(paused.id)).paused
    finally:
        await store.aclose()


async def test_approved_call_with_unfit_arguments_does_not_run() -> None:
    """Its place in the budget is freed, its sibling runs, and the model receives the rejection."""

    class Erase(Tool):
        gone = False

        def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
            if self.gone and arguments.get("path") == "x":
                raise ToolInputError("path: there is no such file any more")
            return dict(arguments)

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            return f"erased {values['path']} in {bool(context.turn_id)}"

    tool_ = Erase(name="erase", description="", parameters={"type": "object"}, needs_approval=True)
    engine = Engine(model=ScriptedModel(asking("x", "y"), "I see."), tools=[tool_])
    paused = await engine.run(AGENT, "hi")
    tool_.gone = True
    turn = await engine.resume(paused.id, {"approval-1": True, "approval-2": True})
    assert results(turn) == [
        (CallStatus.ERROR, "path: there is no such file any more"),
        (CallStatus.OK, "erased y in True"),
    ]
    assert turn.tool_calls == 1
    facts = await sound(engine, turn.id)
    assert [fact.call for fact in facts if isinstance(fact, f.CallStarted)] == ["call00002"]


# What survives.


async def test_counters_and_doom_rounds_survive_a_pause_elsewhere(desk: Desk) -> None:
    """Two rounds before the pause and one after it are three of the same."""
    limits = Limits(tool_calls=3, tokens=1000)
    first = desk.engine(asking("x"), asking("x"), limits=limits)
    paused: TurnResult = await first.run(AGENT, "hi")
    paused = await first.resume(paused.id, {"approval-1": True})
    assert [interrupt.id for interrupt in paused.interrupts] == ["approval-2"], "no interrupt has the name of another"
    second = desk.engine(asking("x"))
    paused = await second.resume(paused.id, {"approval-2": True})
    assert (paused.steps, paused.tool_calls, paused.usage.tokens) == (3, 2, 6)
    third = desk.engine("In circles.")
    turn = await third.resume(paused.id, {"approval-3": True})
    assert (turn.outcome, turn.reason, turn.also_reached) == (
        Outcome.DOOM_LOOP,
        EndReason.DOOM_LOOP,
        (EndReason.BUDGET,),
    )
    assert (turn.steps, turn.tool_calls, turn.usage.tokens) == (3, 3, 8)
    for request in desk.model.requests:
        check_pairing(request.messages)


async def test_turn_resumed_twice_at_once_is_driven_by_a_single_engine(desk: Desk) -> None:
    """Without answers, the second raises that the turn is busy, or that nothing was left to do."""
    paused = await desk.engine(asking("x")).run(AGENT, "hi")
    refused: list[Exception] = []
    engines: Sequence[Engine] = [desk.engine("Done.", around=True) for _ in range(3)]

    async def answer() -> TurnResult:
        return await engines[0].resume(paused.id, {ANSWER: True})

    async def take_up(engine: Engine) -> TurnResult:
        try:
            return await engine.resume(paused.id)
        except (TurnBusyError, TurnAlreadyEndedError) as error:
            refused.append(error)
            return await engine.get(paused.id)

    await gather(answer, lambda: take_up(engines[1]), lambda: take_up(engines[2]))
    turn = await engines[0].get(paused.id)
    assert (turn.outcome, desk.done) == (Outcome.FINISHED, ["erase x"])
    await sound(engines[0], turn.id)
