"""Concurrent jobs as plain asyncio tasks.

Unlike a task group of anyio, this can abandon a job that ignores its cancellation. It is also faster: two empty tasks
cost 20 us here and 60 us in a group, and a complete step may cost 100 us. Each job runs in a cancel scope of anyio, so
that its cancellation respects shields. A test runs the same jobs in a group and here.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import cache, partial
from typing import Final, final

import anyio

from turnwright._base.deadlines import deadlines_of

from .loop_handle import in_event_loop
from .work_item import Deliver, Job, JobOutcome, WorkItem, finish_closed

#: Abandoned tasks that still run. The garbage collector would close a task without a reference.
_ABANDONED: Final[set["_Task"]] = set()


@final
class _Task(asyncio.Task[None]):
    """A task that can be abandoned. It then keeps running, but reports that it was canceled.

    So a loop that shuts down, cancels all tasks and waits for them does not wait for an abandoned one.
    """

    _abandoned = False
    _callbacks_given: tuple[tuple[Callable[["_Task"], object], Context | None], ...] = ()

    def done(self) -> bool:
        return self._abandoned or super().done()

    def cancelled(self) -> bool:
        return self._abandoned or super().cancelled()

    def cancel(self, msg: object = None) -> bool:
        return not self._abandoned and super().cancel(msg)

    def add_done_callback(self, fn: Callable[["_Task"], object], /, *, context: Context | None = None) -> None:
        self._callbacks_given = (*self._callbacks_given, (fn, context))
        super().add_done_callback(fn, context=context)

    def abandon(self) -> None:
        self._abandoned = True
        asyncio._unregister_task(self)  # noqa: SLF001 (documented, for those who manage tasks themselves)
        self._log_destroy_pending = False  # asyncio itself sets it for tasks that need not end
        for callback, context in self._callbacks_given:
            if super().remove_done_callback(callback):
                self.get_loop().call_soon(callback, self, context=context)
        _ABANDONED.add(self)
        super().add_done_callback(_ABANDONED.discard)


async def in_asyncio_tasks(
    jobs: Sequence[Job],
    cancel_grace: float = math.inf,
    deliver: Deliver | None = None,
    stop: Callable[[], None] | None = None,
) -> None:
    """Run jobs as `in_tasks` does, in an asyncio event loop."""
    loop = asyncio.get_running_loop()
    group = _JobGroup(jobs, cancel_grace, deliver, loop, stop)
    # A loop does not keep its tasks alive.
    group.tasks = [_Task(group.run(number, job), loop=loop) for number, job in enumerate(jobs)]
    try:
        group.start_clock(jobs)
        while group.jobs_left or group.undelivered or group.next_jobs:
            if group.next_jobs:
                group.start_next()
            if group.undelivered:
                group.start_delivery()
            await group.woken()
    except asyncio.CancelledError:
        group.cancel()
        while group.undelivered or not group.has_ended:
            if group.undelivered:
                group.start_delivery()
            # A further cancellation must not cut this wait short.
            with suppress(asyncio.CancelledError), anyio.CancelScope(shield=True):
                running_tasks = [task for task in group.tasks if not task.done()]
                await asyncio.wait(running_tasks, return_when=asyncio.FIRST_COMPLETED)
        raise
    finally:
        group.close()
    if group.failures:
        raise group.failures[0]


@cache
def _scope_class() -> type[anyio.CancelScope]:
    """Return the class of scopes in a loop of asyncio. `anyio.CancelScope()` asks for the loop's kind each time."""
    return type(anyio.CancelScope())


class _JobGroup:
    """Concurrent jobs, identified by their numbers, and the future that wakes the task that waits for them."""

    __slots__ = (
        "_abandoned",
        "_cancel_grace",
        "_deadlines",
        "_deliver",
        "_delivering",
        "_is_stopped",
        "_jobs",
        "_late",
        "_loop",
        "_scopes",
        "_stop",
        "_woken",
        "deadline",
        "failures",
        "jobs_left",
        "next_jobs",
        "tasks",
        "undelivered",
    )

    def __init__(
        self,
        jobs: Sequence[Job],
        cancel_grace: float,
        deliver: Deliver | None,
        loop: asyncio.AbstractEventLoop,
        stop: Callable[[], None] | None,
    ) -> None:
        self.jobs_left = len(jobs)
        self.tasks: list[_Task] = []
        self.failures: list[BaseException] = []
        #: The outcomes that are not delivered yet.
        self.undelivered: list[JobOutcome] = []
        #: The jobs that a delivery returned. The waiting task starts them: the context of a job may be changed.
        self.next_jobs: Sequence[Job] = ()
        self._deliver = deliver
        self._stop = stop
        self._loop = loop
        self._delivering = False
        self._jobs = jobs
        self._cancel_grace = cancel_grace
        self._woken: asyncio.Future[None] | None = None
        self._scopes: list[anyio.CancelScope | None] = [None] * self.jobs_left
        self._is_stopped = False
        self._abandoned: frozenset[int] = frozenset()
        #: The jobs that were canceled because their time was up.
        self._late: frozenset[int] = frozenset()
        #: When to look at the time of all jobs.
        self.deadline = math.inf
        self._deadlines = deadlines_of(loop)

    @property
    def has_ended(self) -> bool:
        """Whether every task has ended, also one that a closing loop has canceled before it began."""
        return all(task.done() for task in self.tasks)

    def woken(self) -> "asyncio.Future[None]":
        """Return what is done once an outcome has come, or the last job has ended."""
        self._woken = self._loop.create_future()
        return self._woken

    def start_delivery(self) -> None:
        """Deliver what has come, in a task of its own: a cancellation of the waiting task must not cut that short."""
        if not self._delivering:
            self._start(self.deliver)

    async def deliver(self) -> None:
        """Deliver what has come, and what comes meanwhile."""
        if self._delivering or self._deliver is None:
            return  # the running delivery takes what has come
        self._delivering = True
        try:
            while self.undelivered:
                outcomes, self.undelivered = self.undelivered, []
                jobs = await self._deliver(*outcomes)
                if jobs:
                    self.next_jobs = (*self.next_jobs, *jobs)
                    self._wake()
        finally:
            self._delivering = False

    def cancel(self) -> None:
        """Cancel every job, also one whose task has not started. Work that outlasts the grace is abandoned."""
        if not self._is_stopped and self._cancel_grace < math.inf:
            self._loop.call_later(self._cancel_grace, self._abandon_all)
        self._is_stopped = True
        if self._stop is not None:
            self._stop()
        for scope in self._scopes:
            if scope is not None:
                scope.cancel()

    async def run(self, number: int, job: Job) -> None:  # noqa: C901, PLR0912 (in parts it would take more calls per step)
        outcome = None
        try:
            try:
                with _scope_class()() as scope:
                    self._scopes[number] = scope
                    if self._is_stopped:
                        scope.cancel()
                    outcome = await job()
                if (
                    number in self._late
                    and scope.cancelled_caught
                    and isinstance(job, WorkItem)
                    and not self._is_stopped
                ):
                    outcome = await job.time_out(has_ended=True)
            except BaseException as error:
                if number in self._abandoned or (isinstance(error, GeneratorExit) and not in_event_loop()):
                    raise
                outcome = await finish_closed(job, error)
            if outcome is not None and self._deliver is not None and number not in self._abandoned:
                self.undelivered.append(outcome)
                if self.jobs_left == 1 and not self.tasks[number].cancelling():
                    await self.deliver()  # nothing else can come, and the job has not canceled its own task
                else:
                    self._wake()  # the others of this round have come until the waiting task runs
        except BaseException as error:
            if isinstance(error, GeneratorExit) and not in_event_loop():
                raise  # the loop is gone; otherwise the waiting task raises the error
            if number not in self._abandoned:
                self.failures.append(error)
                self.cancel()
        finally:
            self._scopes[number] = None
            if number not in self._abandoned:
                self.jobs_left -= 1
                if not self.jobs_left and self._woken is not None:
                    self._wake()

    def start_next(self) -> None:
        """Start the jobs that a delivery returned."""
        jobs, self.next_jobs = self.next_jobs, ()
        for job in jobs:
            self._start(job)
        self.start_clock(jobs)

    def _start(self, job: Job) -> None:
        """Start one more job."""
        self.jobs_left += 1
        self._jobs = (*self._jobs, job)
        self._scopes.append(None)
        self.tasks.append(_Task(self.run(len(self.tasks), job), loop=self._loop))

    def _wake(self) -> None:
        waiter, self._woken = self._woken, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def start_clock(self, jobs: Sequence[Job]) -> None:
        """Start the time of those jobs that have a limit."""
        start, earliest = 0.0, math.inf
        for job in jobs:
            if isinstance(job, WorkItem) and job.seconds is not None:
                start = start or self._loop.time()
                job.moved = self._set_deadline
                job.deadline = deadline = start + job.seconds
                earliest = deadline if deadline < earliest else earliest  # noqa: FURB136 (`min` is a call)
        self._set_deadline(earliest)

    def _set_deadline(self, deadline: float) -> None:
        """Look at the time of all jobs at this deadline, or before."""
        if deadline < self.deadline and self.jobs_left:
            self.deadline = deadline
            self._deadlines.watch(self)

    def close(self) -> None:
        """Look at the time of the jobs no more, and release the tasks, all of which have ended or are abandoned.

        The context of a task has its job as its clock, which knows this group: only a collection would free them.
        """
        if self.deadline < math.inf:
            self._deadlines.forget(self)
        self.tasks, self._jobs = [], ()

    def expire(self) -> None:
        """Cancel the jobs whose time is up."""
        self.deadline = math.inf
        for number, job in enumerate(self._jobs):
            scope = self._scopes[number]
            if scope is None or not isinstance(job, WorkItem) or number in self._late:
                continue
            if self._loop.time() < job.deadline:
                self._set_deadline(job.deadline)
                continue
            self._late |= {number}
            scope.cancel()
            if self._cancel_grace < math.inf:
                self._loop.call_later(self._cancel_grace, self._abandon_late, number, job)

    def _abandon_late(self, number: int, work: WorkItem) -> None:
        """Abandon work that ignored the end of its time."""
        if work.at_work and number not in self._abandoned:
            self._abandon(number, work)
            self.jobs_left -= 1
            self._start(partial(work.time_out, has_ended=False))

    def _abandon_all(self) -> None:
        for number, job in enumerate(self._jobs):
            if isinstance(job, WorkItem) and job.at_work and number not in self._abandoned:
                self._abandon(number, job)
                self.jobs_left -= 1
        if not self.jobs_left:
            self._wake()

    def _abandon(self, number: int, work: WorkItem) -> None:
        self._abandoned |= {number}
        work.abandon()
        task = self.tasks[number]
        _detach_scope(self._scopes[number], task)
        task.abandon()


def _detach_scope(scope: object, task: _Task) -> None:
    """Stop the cancellation of a scope and of the scopes within it, and release the tasks of their groups.

    anyio repeats a cancellation in each round of the loop until all tasks of the scope end. It has no public way to
    stop that.
    """
    handle = getattr(scope, "_cancel_handle", None)
    if handle is not None:
        handle.cancel()
    for scope_task in getattr(scope, "_tasks", ()):
        if scope_task is not task:
            asyncio._unregister_task(scope_task)  # noqa: SLF001 (documented, for those who manage tasks themselves)
            scope_task._log_destroy_pending = False  # noqa: SLF001 (as asyncio itself does)
    for inner in getattr(scope, "_child_scopes", ()):
        # A group whose task was canceled just now would otherwise cancel its own tasks in the next round.
        inner._cancel_called = True  # noqa: SLF001 (it counts as canceled already)
        _detach_scope(inner, task)
