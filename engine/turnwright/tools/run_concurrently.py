"""Runs jobs side by side, each in a task of its own: the calls of a batch.

Also a job that is alone: a tool may swallow a cancellation, cancel its own task, or leave marks of one on it, and none
of this may reach the task that drives the turn, for there it could not be told from what others ask for.
"""

import math
import sys
from collections.abc import Awaitable, Callable, Sequence

import anyio

from .loop_handle import in_event_loop

Job = Callable[[], Awaitable[None]]


class WorkItem:
    """A job that can be abandoned: one that runs code which may ignore its cancellation.

    A class of its own, and no abstract one: each job is asked whether it is one of these.
    """

    __slots__ = ("at_work", "limit", "limited", "timed")

    #: Whether that code runs. A job that is not at work always ends, and is waited for.
    at_work: bool
    #: Whether the time of the work is limited, and the scope that limits it while it is at work.
    timed: bool
    limit: anyio.CancelScope | None
    #: To be called when the limit begins: set by whoever can abandon the work.
    limited: Callable[[], None] | None

    async def __call__(self) -> None:
        """Do the job."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Note that nobody waits for the job any more: what comes of it is dropped."""
        raise NotImplementedError

    def watch(self, limit: anyio.CancelScope | None) -> None:
        """Note the scope that limits the work, or that it does so no more. See `timing.watch_limit`."""
        self.limit = limit
        if limit is not None and self.limited is not None:
            self.limited()

    async def closed(self, error: GeneratorExit) -> None:
        """Do what is left to do for a job whose frames were closed, as a future that raises `GeneratorExit` does."""
        raise NotImplementedError

    async def time_out(self) -> None:
        """Do what is left to do for a job that was abandoned because its own time was over."""
        raise NotImplementedError


async def in_tasks(jobs: Sequence[Job], grace: float = math.inf) -> None:
    """Run each job in a task of its own, and raise what one of them raises, without a group around it.

    The first that raises cancels the others, and so does a cancellation from outside. All of them have ended when this
    returns or raises, but for `Work` that went on for `cancel_grace` seconds after its cancellation: that is abandoned.
    Under trio nothing is abandoned, for a task of trio cannot outlive its nursery.
    """
    if "trio" not in sys.modules or _library() == "asyncio":
        from .asyncio_tasks import in_asyncio_tasks  # noqa: PLC0415 (not every loop is asyncio's)

        await in_asyncio_tasks(jobs, grace)
    else:
        await in_a_group(jobs)


async def closed(job: Job, error: BaseException) -> BaseException | None:
    """Give what a job has failed with: what it raised, unless that closed it and it could be dealt with.

    A future that raises `GeneratorExit` closes every frame of its task but the outermost. Only that one, which calls
    this, can still await anything.
    """
    if not isinstance(error, GeneratorExit) or not isinstance(job, WorkItem):
        return error
    try:
        await job.closed(error)
    except BaseException as failure:  # noqa: BLE001 (raised by whoever waits for the jobs)
        return failure
    return None


def _library() -> str:
    """The event loop that this runs in, where there may be several."""
    import sniffio  # noqa: PLC0415 (trio brings it along; where there is no trio it need not be there)

    return sniffio.current_async_library()


async def in_a_group(jobs: Sequence[Job]) -> None:
    """Do what `in_tasks` does, on any event loop."""
    failures: list[BaseException] = []

    async def run(job: Job, group: anyio.abc.TaskGroup) -> None:
        try:
            await job()
        except BaseException as error:
            if isinstance(error, GeneratorExit) and not in_event_loop():
                raise  # nothing can be done any more; else it is raised below
            failure = await closed(job, error)
            if failure is not None:
                failures.append(failure)
                group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for job in jobs:
            group.start_soon(run, job, group)
    if failures:
        raise failures[0]
