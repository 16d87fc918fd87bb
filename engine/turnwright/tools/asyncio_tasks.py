"""Tasks of asyncio for jobs that run side by side, made by hand.

Two tasks that have nothing to do cost 60 us in a task group of anyio, and 20 here; a whole step may cost 100. What a
group does beyond this is not needed: the jobs are known beforehand, and none starts another. Each job has a cancel
scope of anyio around it, so that cancelling it respects the shields in it. A test runs the same jobs both ways.

Unlike a group, this can abandon a job that ignores its cancellation.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Final, final

import anyio

from .loop_handle import in_event_loop
from .work_item import Job, WorkItem, closed

#: Seconds between two looks at work whose time does not count down for the moment.
_LOOK: Final = 1.0
#: Abandoned tasks that still run. One that is collected would be closed, and may ignore that too.
_ABANDONED: Final[set["_Task"]] = set()


@final
class _Task(asyncio.Task[None]):
    """A task that can be abandoned: it goes on then, and to everybody else it has been cancelled.

    So who closes the loop, and cancels all tasks and waits for them, does not wait for this one.
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


async def in_asyncio_tasks(jobs: Sequence[Job], grace: float = math.inf) -> None:
    """Do what `in_tasks` does, in a task of asyncio."""
    crew, loop = _Crew(jobs, grace), asyncio.get_running_loop()
    # A loop keeps no task alive by itself.
    crew.tasks = [_Task(crew.run(number, job), loop=loop) for number, job in enumerate(jobs)]
    try:
        if crew.left:
            await crew.wait()
    except asyncio.CancelledError:
        crew.cancel()
        while crew.left:
            # Whoever cancels may do so again while the jobs end: they are waited for all the same.
            with suppress(asyncio.CancelledError), anyio.CancelScope(shield=True):
                await crew.wait()
        raise
    if crew.failures:
        raise crew.failures[0]


class _Crew:
    """Jobs that run side by side, and whoever waits for the last of them. A job goes by its number."""

    __slots__ = ("_abandoned", "_done", "_grace", "_jobs", "_scopes", "_stopped", "failures", "left", "tasks")

    def __init__(self, jobs: Sequence[Job], grace: float) -> None:
        self.left = len(jobs)
        self.tasks: list[_Task] = []
        self.failures: list[BaseException] = []
        self._jobs = jobs
        self._grace = grace
        self._done: asyncio.Future[None] | None = None
        self._scopes: list[anyio.CancelScope | None] = [None] * self.left
        self._stopped = False
        self._abandoned: frozenset[int] = frozenset()

    async def wait(self) -> None:
        self._done = asyncio.get_running_loop().create_future()
        await self._done

    def cancel(self) -> None:
        """Cancel every job, also one whose task has not begun. Work that goes on after the grace is abandoned."""
        if not self._stopped and self._grace < math.inf:
            asyncio.get_running_loop().call_later(self._grace, self._abandon_all)
        self._stopped = True
        for scope in self._scopes:
            if scope is not None:
                scope.cancel()

    async def run(self, number: int, job: Job) -> None:
        try:
            with anyio.CancelScope() as scope:
                self._scopes[number] = scope
                if self._stopped:
                    scope.cancel()
                if isinstance(job, WorkItem) and job.timed:
                    job.limited = partial(self._look, number, job)
                await job()
        except BaseException as error:
            if isinstance(error, GeneratorExit) and not in_event_loop():
                raise  # nothing can be done any more; else it is raised by whoever waits
            failure = None if number in self._abandoned else await closed(job, error)
            if failure is not None and number not in self._abandoned:
                self.failures.append(failure)
                self.cancel()
        finally:
            if number not in self._abandoned:
                self.left -= 1
                if not self.left:
                    self._wake()

    def _wake(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _look(self, number: int, work: WorkItem) -> None:
        """Abandon work whose own time was over `cancel_grace` seconds ago. Other work is looked at again."""
        if work.limit is None or not work.at_work or number in self._abandoned or self._grace == math.inf:
            return
        loop = asyncio.get_running_loop()
        ends = work.limit.deadline + self._grace
        if loop.time() < ends:  # its time may be extended, and stands still while it waits for others
            loop.call_at(min(ends, loop.time() + _LOOK), self._look, number, work)
            return
        self._abandon(number, work)
        self._scopes.append(None)
        self.tasks.append(_Task(self.run(len(self.tasks), work.time_out), loop=loop))

    def _abandon_all(self) -> None:
        for number, job in enumerate(self._jobs):
            if isinstance(job, WorkItem) and job.at_work and number not in self._abandoned:
                self._abandon(number, job)
                self.left -= 1
        if not self.left:
            self._wake()

    def _abandon(self, number: int, work: WorkItem) -> None:
        self._abandoned |= {number}
        work.abandon()
        task = self.tasks[number]
        _leave_alone(self._scopes[number], task)
        task.abandon()


def _leave_alone(scope: object, task: _Task) -> None:
    """Cancel no more in a scope and in those within it, nor wait for tasks of groups there when the loop closes.

    anyio cancels again in each round of the loop until all of its tasks end. There is no public way to stop that.
    """
    handle = getattr(scope, "_cancel_handle", None)
    if handle is not None:
        handle.cancel()
    for other in getattr(scope, "_tasks", ()):
        if other is not task:
            asyncio._unregister_task(other)  # noqa: SLF001 (documented, for those who manage tasks themselves)
            other._log_destroy_pending = False  # noqa: SLF001 (as asyncio itself does)
    for inner in getattr(scope, "_child_scopes", ()):
        # A group whose task was cancelled just now has yet to hear of it, and would cancel its own tasks then.
        inner._cancel_called = True  # noqa: SLF001 (it counts as cancelled already)
        _leave_alone(inner, task)
