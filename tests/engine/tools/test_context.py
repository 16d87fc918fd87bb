"""The context of a running tool without a turn: questions, progress, and the signal to stop."""

import math
import threading
from collections.abc import Callable

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from turnwright.tools import AbortSignal, Ask, GivenAnswer, NeedsPersonError, ToolContext, ToolTimeoutError, tool
from turnwright.tools.context import ProgressLine
from turnwright_states import Decision, InterruptKind

pytestmark = pytest.mark.anyio

#: What a thread looks up from now and then, as a tool would from its work.
PATIENCE = threading.Event()
on_both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


def fresh(*answers: GivenAnswer) -> ToolContext:
    return ToolContext(turn_id="t", call_id="c", answers=answers)


def said(*texts: str) -> ToolContext:
    return fresh(*(GivenAnswer(Decision.REPLY, text) for text in texts))


def asked(context: ToolContext, question: str = "Why?") -> Ask:
    with pytest.raises(NeedsPersonError) as needs:
        context.ask(question)
    return needs.value.ask


# A context alone, as in a test of a tool.


async def test_turn_and_call_are_enough_for_a_context() -> None:
    context = ToolContext(turn_id="t", call_id="c")
    assert (context.idempotency_key, context.attempt, context.answers, context.abort_signal.aborted) == (
        "t:c",
        1,
        (),
        False,
    )
    context.progress(1, 2, "half")
    assert asked(context) == Ask(InterruptKind.QUESTION, "Why?")


def test_contexts_of_the_same_call_are_equal() -> None:
    assert ToolContext(turn_id="t", call_id="c") == ToolContext(turn_id="t", call_id="c")
    assert "abort" not in repr(ToolContext(turn_id="t", call_id="c"))


# Questions.


def test_the_nth_question_is_answered_by_the_nth_reply() -> None:
    context = said("one", "two")
    assert [context.ask("a"), context.ask("b")] == ["one", "two"]
    assert asked(context, "c").question == "c"


def test_only_reply_decisions_answer_a_question() -> None:
    """Leave to run, and leave to run again, are answers to somebody else."""
    context = fresh(GivenAnswer(Decision.APPROVE), GivenAnswer(Decision.REPLY, "so"), GivenAnswer(Decision.RERUN))
    assert context.ask("a") == "so"
    assert asked(context, "b").question == "b"


def test_empty_reply_counts_as_a_reply() -> None:
    assert said("").ask("Why?") == ""


def test_question_is_shown_to_the_person_unchanged() -> None:
    with pytest.raises(NeedsPersonError) as needs:
        fresh().ask("Which?", ["red", "blue"], expires_in=60)
    assert needs.value.ask == Ask(InterruptKind.QUESTION, "Which?", ("red", "blue"), expires_in=60)


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda context: context.ask(" "), ValueError, "question must be a str that is not blank"),
        (lambda context: context.ask(7), ValueError, "question must be a str that is not blank"),
        (lambda context: context.ask("Why?", "red"), TypeError, "choices must be a list"),
        (lambda context: context.ask("Why?", [1]), TypeError, "choices must be a list"),
        (
            lambda context: context.ask("Why?", expires_in=0),
            ValueError,
            "expires_in must be a number of seconds above 0",
        ),
        (lambda context: context.ask("Why?", expires_in=math.nan), ValueError, "expires_in must be a finite number"),
    ],
)
def test_blank_question_is_a_mistake_of_the_tool(
    ask: Callable[[ToolContext], str], error: type[Exception], words: str
) -> None:
    """Also where its answer is there already: else the mistake would show in the first attempt alone."""
    for context in (fresh(), said("so")):
        with pytest.raises(error, match=words):
            ask(context)


async def test_question_passes_a_tool_catching_every_exception() -> None:
    @tool
    async def careful(context: ToolContext) -> str:
        try:
            return context.ask("Why?")
        except Exception:  # noqa: BLE001 (what such tools do)
            return "swallowed"

    with pytest.raises(NeedsPersonError):
        await careful.run({}, fresh())
    assert (await careful.run({}, said("so"))).text == "so"


async def test_question_from_a_thread_or_a_task_group_passes() -> None:
    @tool
    def in_a_thread(context: ToolContext) -> str:
        return context.ask("Why?")

    @tool
    async def in_a_group(context: ToolContext) -> None:
        async def ask() -> None:
            context.ask("Why?")

        async with anyio.create_task_group() as outer, anyio.create_task_group() as inner:
            outer.start_soon(anyio.sleep_forever)
            inner.start_soon(ask)

    for asking_tool in (in_a_thread, in_a_group):
        with pytest.raises(NeedsPersonError) as needs:
            await asking_tool.run({}, fresh())
        assert needs.value.ask.question == "Why?"


# Progress.


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, True, "1", None, 10**400], ids=repr)
def test_progress_is_a_finite_number(bad: float) -> None:
    context = fresh()
    with pytest.raises(ValueError, match="progress must be a finite number"):
        context.progress(bad)
    if bad is not None:
        with pytest.raises(ValueError, match="total must be a finite number"):
            context.progress(0, bad)


class Listener:
    """Receives the progress of one call, with the thread."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, float | None, str]] = []
        self.threads: set[int] = set()

    def __call__(self, progress: float, total: float | None, message: str) -> None:
        self.heard.append((progress, total, message))
        self.threads.add(threading.get_ident())


async def test_progress_is_heard_at_once_in_the_event_loop() -> None:
    listener = Listener()
    context = ToolContext(turn_id="t", call_id="c", _line=ProgressLine(listener))
    context.progress(1)
    context.progress(2.5, 10, "half\ud83d" + "x" * 2000)
    (first_event, (progress, total, message)) = listener.heard
    assert (first_event, progress, total) == ((1, None, ""), 2.5, 10)
    assert (message[:5], len(message)) == ("half?", 1000)


@on_both_loops
async def test_progress_of_a_thread_is_heard_in_order_before_the_end() -> None:
    listener = Listener()
    context = ToolContext(turn_id="t", call_id="c", _line=ProgressLine(listener))

    def work() -> None:
        for number in range(100):
            context.progress(number)

    await anyio.to_thread.run_sync(work)
    assert [progress for progress, _, _ in listener.heard] == list(range(100))
    assert listener.threads == {threading.get_ident()}


@on_both_loops
async def test_thread_reporting_progress_does_not_wait() -> None:
    """The event loop has something else to do until the thread is done."""
    listener = Listener()
    context = ToolContext(turn_id="t", call_id="c", _line=ProgressLine(listener))
    thread = threading.Thread(target=context.progress, args=(1,), daemon=True)
    thread.start()
    thread.join(60)
    assert (thread.is_alive(), listener.heard) == (False, [])
    with anyio.fail_after(60):
        while not listener.heard:
            await anyio.lowlevel.checkpoint()
    assert listener.threads == {threading.get_ident()}


@on_both_loops
async def test_closed_progress_line_is_not_heard() -> None:
    """Also what a thread had said before, and had not come through yet."""
    listener = Listener()
    line = ProgressLine(listener)
    context = ToolContext(turn_id="t", call_id="c", _line=line)
    thread = threading.Thread(target=context.progress, args=(1,))
    thread.start()
    thread.join()
    line.close()
    context.progress(2)
    await anyio.wait_all_tasks_blocked()
    assert listener.heard == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_thread_outliving_the_event_loop_may_still_report_progress(backend: str) -> None:
    listener = Listener()

    async def make() -> ToolContext:
        return ToolContext(turn_id="t", call_id="c", _line=ProgressLine(listener))

    context = anyio.run(make, backend=backend)
    thread = threading.Thread(target=context.progress, args=(1,))
    thread.start()
    thread.join()
    assert listener.heard == []


# The signal.


async def test_waiter_for_the_signal_goes_on_when_set() -> None:
    signal, order = AbortSignal(), list[str]()

    async def wait(name: str) -> None:
        await signal.wait()
        order.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(wait, "one")
        group.start_soon(wait, "two")
        await anyio.wait_all_tasks_blocked()
        assert (order, signal.aborted) == ([], False)
        signal.set()
    assert (sorted(order), signal.aborted) == (["one", "two"], True)
    await signal.wait()
    signal.set()


async def test_scope_of_the_signal_is_left_when_set() -> None:
    signal, aborts = AbortSignal(), list[bool]()

    async def work() -> None:
        with signal.scope() as scope:
            await anyio.sleep_forever()
        aborts.append(scope.cancelled_caught)

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        group.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        assert aborts == []
        signal.set()
    await work()
    assert aborts == [True, True, True]


async def test_signal_ends_no_finished_scope() -> None:
    signal = AbortSignal()
    with signal.scope() as scope:
        await anyio.lowlevel.checkpoint()
    signal.set()
    await anyio.lowlevel.checkpoint()
    assert not scope.cancel_called


async def test_signal_reaches_signals_below_and_none_above() -> None:
    signal = AbortSignal()
    first, second = signal.below(), signal.below()
    first.set()
    assert (first.aborted, second.aborted, signal.aborted) == (True, False, False)
    signal.set()
    assert second.aborted
    assert signal.below().aborted


async def test_finished_call_hears_no_signal() -> None:
    signal = AbortSignal()
    over = signal.below()
    signal.forget(over)
    signal.set()
    assert not over.aborted


async def test_thread_past_the_timeout_hears_the_abort_signal() -> None:
    stopped = threading.Event()

    @tool(timeout=0.25)
    def work(context: ToolContext) -> None:
        while not context.abort_signal.aborted:
            PATIENCE.wait(0.001)
        stopped.set()

    with pytest.raises(ToolTimeoutError):
        await work.run({}, fresh())
    assert await anyio.to_thread.run_sync(stopped.wait, 5)


async def test_thread_of_a_cancelled_call_hears_the_abort_signal() -> None:
    begun, stopped = threading.Event(), threading.Event()

    @tool
    def work(context: ToolContext) -> None:
        begun.set()
        while not context.abort_signal.aborted:
            PATIENCE.wait(0.001)
        stopped.set()

    async with anyio.create_task_group() as group:
        group.start_soon(work.run, {}, fresh())
        assert await anyio.to_thread.run_sync(begun.wait, 5)
        group.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(stopped.wait, 5)


async def test_finished_call_is_not_told_to_stop() -> None:
    contexts: list[ToolContext] = []

    @tool(timeout=60)
    async def work(context: ToolContext) -> None:
        contexts.append(context)

    await work.run({}, fresh())
    assert not contexts[0].abort_signal.aborted
