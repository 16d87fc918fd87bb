"""Jobs side by side: the tasks of asyncio that are made by hand do what a task group does."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from turnwright.tools.asyncio_tasks import in_asyncio_tasks
from turnwright.tools.job_tasks import in_a_group, in_tasks
from turnwright.tools.work_item import Job, JobOutcome
from turnwright_states import CallSettledInput, CallStatus

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

WORD: ContextVar[str] = ContextVar("word")
InTasks = Callable[[Sequence[Job]], Awaitable[None]]


@pytest.fixture(params=[in_asyncio_tasks, in_a_group, in_tasks], ids=["by hand", "group", "either"])
def run_jobs(request: pytest.FixtureRequest) -> InTasks:
    chosen: InTasks = request.param
    return chosen


class Diary:
    """The notes of the jobs, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def job(self, name: str, *, waits: float = 0.0, error: BaseException | None = None) -> Job:
        async def work() -> None:
            self.lines.append(f"{name} begins")
            try:
                await anyio.sleep(waits)
            except anyio.get_cancelled_exc_class():
                self.lines.append(f"{name} is canceled")
                raise
            if error is not None:
                raise error
            self.lines.append(f"{name} ends")

        return work


async def test_all_jobs_begin_before_the_first_ends(run_jobs: InTasks) -> None:
    diary = Diary()
    await run_jobs([diary.job("a"), diary.job("b")])
    assert diary.lines == ["a begins", "b begins", "a ends", "b ends"]


async def test_empty_list_of_jobs_finishes_at_once(run_jobs: InTasks) -> None:
    await run_jobs([])


async def test_each_job_has_a_separate_task(run_jobs: InTasks) -> None:
    tasks: list[int] = []

    async def work() -> None:
        tasks.append(anyio.get_current_task().id)

    await run_jobs([work, work])
    assert len({*tasks, anyio.get_current_task().id}) == 3


async def test_first_raising_job_cancels_other_jobs_and_is_raised(run_jobs: InTasks) -> None:
    diary = Diary()
    wrong = ValueError("wrong")
    with pytest.raises(ValueError, match="wrong") as raised:
        await run_jobs([diary.job("a", waits=60), diary.job("b", error=wrong)])
    assert raised.value is wrong
    assert diary.lines == ["a begins", "b begins", "a is canceled"]


async def test_immediate_error_cancels_an_unstarted_job(run_jobs: InTasks) -> None:
    diary = Diary()

    async def work() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        await run_jobs([work, diary.job("late", waits=60)])
    assert diary.lines in (["late begins", "late is canceled"], [])


async def test_a_cancellation_from_outside_cancels_all_and_is_not_swallowed(run_jobs: InTasks) -> None:
    diary = Diary()
    with anyio.move_on_after(0.01) as scope:
        await run_jobs([diary.job("a", waits=60), diary.job("b", waits=60)])
        diary.lines.append("never")
    assert scope.cancelled_caught
    assert sorted(diary.lines) == ["a begins", "a is canceled", "b begins", "b is canceled"]


@pytest.mark.no_waiting(False)
async def test_a_shield_in_a_job_holds_and_the_job_is_waited_for(run_jobs: InTasks) -> None:
    lines: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.02)
                lines.append("tidied up")

    with anyio.move_on_after(0.01):
        await run_jobs([work])
    assert lines == ["tidied up"]


@pytest.mark.no_waiting(False)
async def test_thread_of_a_job_learns_of_the_cancellation(run_jobs: InTasks) -> None:
    """A scope around the job that is made only when it is canceled comes too late for the thread."""
    heard: list[bool] = []
    start = anyio.Event()

    def work() -> None:
        anyio.from_thread.run_sync(start.set)
        try:
            while True:
                anyio.from_thread.check_cancelled()
                time.sleep(0.001)
        except BaseException:
            heard.append(True)
            raise

    async def job() -> None:
        await anyio.to_thread.run_sync(work)

    async def running() -> None:
        await run_jobs([job])

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(running)
            await start.wait()
            group.cancel_scope.cancel()
    assert heard == [True]


async def test_job_swallowing_the_cancellation_is_cancelled_again(run_jobs: InTasks) -> None:
    swallowed = 0

    async def work() -> None:
        nonlocal swallowed
        while swallowed < 3:
            try:
                await anyio.sleep(60)
            except anyio.get_cancelled_exc_class():
                swallowed += 1

    with anyio.fail_after(60), anyio.move_on_after(0.01) as scope:
        await run_jobs([work])
    assert (swallowed, scope.cancel_called) == (3, True)


async def test_job_cancelling_the_own_task_leaves_no_cancellation_mark(run_jobs: InTasks) -> None:
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.sleep(60)

    with pytest.raises(asyncio.CancelledError):
        await run_jobs([work])
    await anyio.lowlevel.checkpoint()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_second_cancellation_still_waits_for_the_jobs(run_jobs: InTasks) -> None:
    lines: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)
            lines.append("ended")

    task = asyncio.ensure_future(run_jobs([work, work]))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lines == ["ended", "ended"]


async def test_context_change_of_a_job_stays_in_the_job(run_jobs: InTasks) -> None:
    words: list[str] = []

    async def work() -> None:
        words.append(WORD.get())
        WORD.set("changed")

    WORD.set("ours")
    await run_jobs([work, work])
    assert (words, WORD.get()) == (["ours", "ours"], "ours")


class Delivered:
    """The outcomes of jobs by call, as they are delivered."""

    def __init__(self, error: Exception | None = None) -> None:
        self.together: list[list[str]] = []
        self._error = error

    async def __call__(self, *outcomes: JobOutcome) -> None:
        self.together.append([outcome.call for outcome in outcomes])
        if self._error is not None:
            raise self._error


def settles(call: str, waits: float = 0.0) -> Job:
    async def work() -> JobOutcome | None:
        if waits:
            await anyio.sleep(waits)
        return CallSettledInput(call=call, status=CallStatus.OK, result="")

    return work


async def test_outcomes_of_the_same_round_are_delivered_together() -> None:
    delivered = Delivered()
    jobs = [settles("a"), settles("b", 1), settles("c"), settles("d", 1)]
    await in_tasks(jobs, deliver=delivered)
    assert delivered.together == [["a", "c"], ["b", "d"]]


async def test_received_outcomes_are_delivered_if_another_job_fails() -> None:
    delivered = Delivered()

    async def fails() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        await in_tasks([settles("a"), fails, settles("b"), settles("c", 60)], deliver=delivered)
    assert delivered.together[0][0] == "a"
    assert not any("c" in together for together in delivered.together)


async def test_failing_delivery_cancels_the_jobs_and_is_raised() -> None:
    delivered = Delivered(ValueError("full"))
    with anyio.fail_after(60), pytest.raises(ValueError, match="full"):
        await in_tasks([settles("a"), settles("b", 1e9)], deliver=delivered)
    assert delivered.together == [["a"]]


async def test_outcomes_before_a_cancellation_are_delivered() -> None:
    delivered = Delivered()
    with anyio.CancelScope() as scope:

        async def cancels() -> JobOutcome | None:
            scope.cancel()
            return await settles("b")()

        await in_tasks([settles("a"), cancels, settles("c", 60)], deliver=delivered)
    assert delivered.together == [["a", "b"]]


async def test_last_outcome_is_delivered_despite_a_self_cancelled_task() -> None:
    delivered = Delivered()

    async def deliver(*outcomes: JobOutcome) -> None:
        await anyio.lowlevel.checkpoint()
        await delivered(*outcomes)

    async def cancels() -> JobOutcome | None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await settles("a")()

    await in_tasks([cancels], deliver=deliver)
    assert delivered.together == [["a"]]


def test_closing_loop_does_not_wait_for_unstarted_jobs() -> None:
    """It cancels their tasks before they have begun."""
    running: list[asyncio.Task[None]] = []

    async def main() -> None:
        running.append(asyncio.create_task(in_asyncio_tasks([settles("a"), settles("b", 60)], deliver=Delivered())))

    asyncio.run(asyncio.wait_for(main(), 60))
    assert running[0].cancelled()


def test_jobs_under_trio_run_in_trio_tasks() -> None:
    diary = Diary()
    anyio.run(lambda: in_tasks([diary.job("a"), diary.job("b")]), backend="trio")
    assert sorted(diary.lines) == ["a begins", "a ends", "b begins", "b ends"]


def test_outcomes_under_trio_are_delivered_separately() -> None:
    delivered = Delivered()
    anyio.run(lambda: in_tasks([settles("a"), settles("b", 0.01)], deliver=delivered), backend="trio")
    assert delivered.together == [["a"], ["b"]]


class Chain:
    """Delivers the outcomes of jobs, each of which is followed by the next of `jobs` until they are stopped."""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = list(jobs)
        self.calls: list[str] = []
        self.is_stopped = False

    async def deliver(self, *events: JobOutcome) -> Sequence[Job]:
        self.calls += [event.call for event in events]
        return [self.jobs.pop(0) for _ in events if self.jobs and not self.is_stopped]

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_jobs_that_a_delivery_returns_run_too(backend: str) -> None:
    chain = Chain(settles("b", 0.01), settles("c"))
    anyio.run(lambda: in_tasks([settles("a")], 1, chain.deliver, chain.stop), backend=backend)
    assert (chain.calls, chain.is_stopped) == (["a", "b", "c"], False)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_job_that_a_delivery_returns_inherits_no_context_of_another(backend: str) -> None:
    mark: ContextVar[str] = ContextVar("mark", default="none")
    marks: list[str] = []

    def marked(call: str) -> Job:
        async def work() -> JobOutcome | None:
            marks.append(mark.get())
            mark.set(call)
            return await settles(call)()

        return work

    chain = Chain(marked("b"), marked("c"))
    anyio.run(lambda: in_tasks([marked("a")], 1, chain.deliver, chain.stop), backend=backend)
    assert marks == ["none"] * 3


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_failing_job_stops_the_deliveries_before_further_outcomes(backend: str) -> None:
    chain = Chain(settles("never"))

    async def fails() -> None:
        raise ValueError("at once")

    async def outlives() -> JobOutcome | None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.01)
        return await settles("late")()

    with pytest.raises(ValueError, match="at once"):
        anyio.run(lambda: in_tasks([outlives, fails], 1, chain.deliver, chain.stop), backend=backend)
    assert (chain.calls, len(chain.jobs), chain.is_stopped) == (["late"], 1, True)


async def test_canceled_jobs_are_followed_by_none() -> None:
    chain = Chain(settles("never"))

    async def outlives() -> JobOutcome | None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.01)
        return await settles("late")()

    with anyio.CancelScope() as scope:
        asyncio.get_running_loop().call_soon(scope.cancel)
        await in_tasks([outlives], 1, chain.deliver, chain.stop)
    assert (chain.calls, len(chain.jobs), scope.cancelled_caught) == (["late"], 1, True)
