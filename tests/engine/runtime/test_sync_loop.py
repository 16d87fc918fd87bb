"""Turns of a program without an event loop."""

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

import anyio
import pytest

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    EngineClosedError,
    InvalidAnswerError,
    Outcome,
    SessionBusyError,
    StoreError,
    ToolContext,
    TurnAlreadyEndedError,
    TurnContext,
    tool,
)
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.transcript.events import TextDeltaEvent, TurnEndedEvent
from turnwright_testing.faults import FaultyStore

CLERK = Agent(name="Clerk")
SLOW = Agent(name="Slow", model="slow")
USER: ContextVar[str] = ContextVar("USER", default="nobody")


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The address of a store that outlives its engine."""
    return f"sqlite:///{tmp_path}/turns.db"


@pytest.fixture
def engine(store: str) -> Iterator[Engine]:
    """An engine with a model that answers, and a model that does not."""
    model = ScriptedModel("One by one.", repeat=True)
    with Engine(model=model, models=lambda name: ScriptedModel(never, name=name, repeat=True), store=store) as engine:
        yield engine


async def never(_: ModelRequest) -> str:
    await anyio.sleep_forever()
    return ""


def test_turn_runs_and_the_session_continues(engine: Engine) -> None:
    """All calls share an event loop, so a connection of the first serves the second."""
    first = engine.run_sync(CLERK, "hi", session="s")
    assert (first.outcome, first.text) == (Outcome.FINISHED, "One by one.")
    assert [message.text for message in engine.run_sync(CLERK, "again", session="s").messages] == [
        "again",
        "One by one.",
    ]


def test_single_background_loop_serves_all_calls() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def note(_: ModelRequest) -> str:
        loops.append(asyncio.get_running_loop())
        return USER.get()

    with Engine(model=ScriptedModel(note, repeat=True)) as engine:
        USER.set("ann")
        assert engine.run_sync(CLERK, "hi").text == "ann"
        USER.set("bob")
        assert engine.run_sync(CLERK, "hi").text == "bob"
        assert loops[0] is loops[1]
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
    assert loops[0].is_closed()


def test_events_are_read_in_sequence(engine: Engine) -> None:
    with engine.stream_sync(CLERK, "hi") as events:
        seen_events = list(events)
    assert "".join(event.text for event in seen_events if isinstance(event, TextDeltaEvent)) == "One by one."
    assert isinstance(seen_events[-1], TurnEndedEvent)


def test_stream_left_early_releases_the_turn(engine: Engine, store: str) -> None:
    """By a break or an error. Another process may resume it at once."""
    turn_ids: list[str] = []
    with engine.stream_sync(SLOW, "hi") as events:
        turn_ids.append(next(events).turn)

    def fail() -> None:
        with engine.stream_sync(SLOW, "hi") as events:
            turn_ids.append(next(events).turn)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    async def resume() -> list[tuple[str | None, str]]:
        async with Engine(
            models=lambda name: ScriptedModel("Done.", name=name, repeat=True), store=store
        ) as other_engine:
            return [
                ((await other_engine.store.get(name)).owner, (await other_engine.resume(name)).text)
                for name in turn_ids
            ]

    assert asyncio.run(resume()) == [(None, "Done."), (None, "Done.")]


@tool(needs_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def paying(store: str) -> Engine:
    """Return an engine whose turns pause before they pay."""

    def reply(request: ModelRequest) -> ModelResponse | str:
        return asks_for(("pay", {})) if request.first else "Paid."

    return Engine(model=ScriptedModel(reply, repeat=True), tools=[pay], store=store)


def test_paused_turn_is_resumed(store: str) -> None:
    with paying(store) as engine:
        first, second = (engine.run_sync(CLERK, "Pay.") for _ in range(2))
        assert engine.resume_sync(first.id, {"approval-1": True}, agent=CLERK).text == "Paid."
        with engine.stream_resume_sync(second.id, {"approval-1": False}) as events:
            assert isinstance(list(events)[-1], TurnEndedEvent)
        with pytest.raises(TurnAlreadyEndedError):
            engine.resume_sync(first.id)


def test_answered_turn_is_recovered(store: str) -> None:
    with paying(store) as engine:
        turn = engine.run_sync(CLERK, "Pay.")
        engine.answer_sync(turn.id, {"approval-1": True})
        with pytest.raises(InvalidAnswerError):
            engine.answer_sync(turn.id, {"approval-2": True})
    with paying(store) as engine:
        assert [(resumed.id, resumed.text) for resumed in engine.recover_sync()] == [(turn.id, "Paid.")]


def test_turn_may_run_during_the_stream_of_another(engine: Engine) -> None:
    with engine.stream_sync(CLERK, "hi") as events:
        assert engine.run_sync(CLERK, "hello").outcome is Outcome.FINISHED
        assert isinstance(list(events)[-1], TurnEndedEvent)


def test_error_of_a_turn_is_raised() -> None:
    """Before the block, if it cannot begin, and at its end, if it fails."""
    store = FaultyStore(MemoryStore(), at=1)
    with Engine(model=ScriptedModel("Hi."), store=store) as engine:
        with pytest.raises(ConfigError, match="'sesion' is not an option"):
            engine.run_sync(CLERK, "hi", sesion="s")  # type: ignore[call-arg]
        with pytest.raises(ConfigError, match="'sesion' is not an option"), engine.stream_sync(CLERK, "", sesion="s"):  # type: ignore[call-arg]
            pytest.fail("the block was entered")
        with pytest.raises(StoreError, match="as planned"), engine.stream_sync(CLERK, "hi", session="s") as events:
            assert not isinstance(list(events)[-1], TurnEndedEvent)


def test_error_of_the_block_takes_precedence() -> None:
    def fail(engine: Engine) -> None:
        with engine.stream_sync(CLERK, "hi") as events:
            list(events)
            raise ZeroDivisionError

    store = FaultyStore(MemoryStore(), at=1)
    with Engine(model=ScriptedModel("Hi."), store=store) as engine, pytest.raises(ZeroDivisionError):
        fail(engine)


def test_busy_session_refuses_the_second_stream(engine: Engine) -> None:
    with (
        engine.stream_sync(SLOW, "hi", session="s"),
        pytest.raises(SessionBusyError),
        engine.stream_sync(SLOW, "hi", session="s"),
    ):
        pytest.fail("the block was entered")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_sync_call_inside_an_event_loop_raises_advice(backend: str) -> None:
    """Instead of a call that never returns."""

    async def inside() -> None:
        async with Engine(model=ScriptedModel("Hi.")) as engine:
            with pytest.raises(ConfigError, match=r"write `await engine\.run\(\.\.\.\)`"):
                engine.run_sync(CLERK, "hi")
            with pytest.raises(ConfigError, match=r"write `async with engine\.stream\(\.\.\.\)`"):
                engine.stream_sync(CLERK, "hi").__enter__()
            with pytest.raises(ConfigError, match=r"write `await engine\.resume\(\.\.\.\)`"):
                engine.resume_sync("x")
            with pytest.raises(ConfigError, match=r"write `await engine\.answer\(\.\.\.\)`"):
                engine.answer_sync("x", {})
            with pytest.raises(ConfigError, match=r"write `await engine\.recover\(\)`"):
                engine.recover_sync()
            with pytest.raises(ConfigError, match=r"write `await engine\.aclose\(\)`"):
                engine.close()
            with (
                pytest.raises(ConfigError, match=r"write `async with Engine\(\.\.\.\) as engine:` and `await engine"),
                engine,
            ):
                pytest.fail("the block was entered")
            assert await engine.turns() == []

    anyio.run(inside, backend=backend)


def test_second_thread_is_refused() -> None:
    errors: list[str] = []
    engines: list[Engine] = []

    @tool
    def again(context: ToolContext) -> str:
        """Run another turn, from the thread of a tool."""
        try:
            engines[0].run_sync(CLERK, context.turn_id)
        except ConfigError as error:
            errors.append(str(error))
        return "done"

    with Engine(model=ScriptedModel(asks_for(("again", {})), "Done."), tools=[again]) as engine:
        engines.append(engine)
        assert engine.run_sync(CLERK, "hi").outcome is Outcome.FINISHED
    assert errors == ["the engine is used by another thread: give each thread its own engine"]


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Lets threads take turns after each microsecond."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_that_begin_together_are_refused_but_one() -> None:
    """All calls of an engine run in one event loop, whichever thread comes first."""
    errors: set[str] = set()
    for _ in range(50):
        start, loops = threading.Barrier(4), set[asyncio.AbstractEventLoop]()

        async def note_loop(_: TurnContext, loops: set[asyncio.AbstractEventLoop] = loops) -> str:
            loops.add(asyncio.get_running_loop())
            return "Be brief."

        def run(engine: Engine, agent: Agent, start: threading.Barrier = start) -> None:
            start.wait()
            try:
                engine.run_sync(agent, "Hi.")
            except Exception as error:  # noqa: BLE001 (asserted below)
                errors.add(str(error))

        with Engine(model=ScriptedModel("Hi.", repeat=True)) as engine:
            agent = Agent(name="Clerk", instructions=note_loop)
            threads = [threading.Thread(target=run, args=(engine, agent)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(loops) == 1
    assert errors == {"the engine is used by another thread: give each thread its own engine"}


def test_call_after_the_end_leaves_no_event_loop() -> None:
    engine = Engine(model=ScriptedModel("Hi."))
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.run_sync(CLERK, "hi")
    del engine
    gc.collect()  # a loop that nobody closed warns, which fails the test


class Stuck(ScriptedModel):
    """A model whose connections cannot be closed."""

    async def aclose(self) -> None:
        raise OSError("connection lost")


def test_failed_close_of_a_model_closes_the_rest(store: str) -> None:
    """The file is free for another engine, and no event loop is left."""
    models = {"a": Stuck("Hi.", name="a"), "b": Stuck("Hi.", name="b")}
    engine = Engine(model=Stuck("Hi."), models=models.__getitem__, store=store)
    for name in models:
        engine.run_sync(Agent(name="Clerk", model=name), "hi")
    with pytest.raises(OSError, match="connection lost"):
        engine.close()
    with pytest.raises(StoreError, match="closed"):
        asyncio.run(engine.store.turns())
    del engine
    gc.collect()


def test_engine_may_belong_to_any_thread() -> None:
    texts: list[str] = []

    def work() -> None:
        with Engine(model=ScriptedModel("Hi.")) as engine:
            texts.append(engine.run_sync(CLERK, "hi").text)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["Hi."] * 3


def interrupted() -> Callable[[ModelRequest], Awaitable[str]]:
    """Return a model's line during which Ctrl-C is pressed."""

    async def wait(_: ModelRequest) -> str:
        signal.raise_signal(signal.SIGINT)
        await anyio.sleep_forever()
        return ""

    return wait


@pytest.mark.parametrize("streamed", [False, True])
def test_ctrl_c_releases_the_turn(streamed: bool, store: str) -> None:
    """The engine can be used afterwards, and resumes the turn."""
    with Engine(model=ScriptedModel(interrupted(), "Done.", "Resumed."), store=store) as engine:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 (a block of a block)
            if streamed:
                with engine.stream_sync(CLERK, "hi", session="s") as events:
                    list(events)
            else:
                engine.run_sync(CLERK, "hi", session="s")
        assert engine.run_sync(CLERK, "hi", session="other").text == "Done."

    async def rest() -> tuple[str | None, str]:
        async with Engine(model=ScriptedModel("Resumed."), store=store) as other_engine:
            (row,) = await other_engine.turns(session="s")
            return row.owner, (await other_engine.resume(row.id)).text

    assert asyncio.run(rest()) == (None, "Resumed.")


class SoftTimeLimitExceeded(Exception):  # noqa: N818 (as Celery calls it)
    """Raised by Celery in a task that takes too long, from the handler of a signal."""


@pytest.mark.parametrize("kind", [SoftTimeLimitExceeded, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("threaded", [False, True])
def test_exception_from_a_signal_releases_the_turn(
    kind: type[BaseException], streamed: bool, threaded: bool, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is thrown into the loop while a tool waits: nothing is logged, and the next process resumes the turn."""
    hung = threading.Event()

    def handle(*_: object) -> None:
        raise kind

    @tool
    async def hang() -> str:
        """Hang."""
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        await anyio.sleep_forever()
        return ""

    @tool
    def block() -> str:
        """Hang in a thread."""
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        hung.wait(60)
        return ""

    earlier = signal.signal(signal.SIGALRM, handle)
    try:
        model, name = ScriptedModel(asks_for(("block" if threaded else "hang", {}))), ""
        engine = Engine(model=model, tools=[hang, block], store=store, cancel_grace=0.01)
        with pytest.raises(kind), engine:  # noqa: PT012
            if streamed:
                with engine.stream_sync(CLERK, "hi") as stream:
                    name = stream.turn_id
                    for _ in stream:
                        pass
            else:
                engine.run_sync(CLERK, "hi")
    finally:
        hung.set()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
    assert not [record for record in caplog.records if record.exc_info]
    with Engine(model=ScriptedModel("Done."), tools=[hang, block], store=store) as engine:
        (turn,) = engine.recover_sync()
        assert (turn.outcome, name in ("", turn.id)) == (Outcome.FINISHED, True)


def test_engine_continues_after_an_exception_from_a_signal() -> None:
    """The loop has no task of the interrupted call any more."""

    def handle(*_: object) -> None:
        raise SoftTimeLimitExceeded

    @tool
    async def hang() -> str:
        """Hang."""
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        await anyio.sleep_forever()
        return ""

    earlier = signal.signal(signal.SIGALRM, handle)
    try:
        with Engine(model=ScriptedModel(asks_for(("hang", {})), "Done."), tools=[hang]) as engine:
            with pytest.raises(SoftTimeLimitExceeded):
                engine.run_sync(CLERK, "hi")
            (turn,) = engine.recover_sync()
            assert turn.outcome is Outcome.FINISHED
    finally:
        signal.signal(signal.SIGALRM, earlier)


def test_closed_engine_raises() -> None:
    engine = Engine(model=ScriptedModel("Hi."))
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.run_sync(CLERK, "hi")
    engine.close()
