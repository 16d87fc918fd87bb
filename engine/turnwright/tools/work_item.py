"""The jobs of a batch: plain functions, and work items that can be abandoned."""

from collections.abc import Awaitable, Callable

import anyio

Job = Callable[[], Awaitable[None]]


class WorkItem:
    """A job that can be abandoned, because it runs code that may ignore its cancellation.

    It is no abstract base class and no protocol, because `isinstance` runs for each job.
    """

    __slots__ = ("at_work", "limit", "limited", "timed")

    #: Whether that code runs now. Otherwise the job ends by itself, and is not abandoned.
    at_work: bool
    #: Whether the work has a timeout, and the scope that applies it while the code runs.
    timed: bool
    limit: anyio.CancelScope | None
    #: Called when the timeout starts, if the work can be abandoned.
    limited: Callable[[], None] | None

    async def __call__(self) -> None:
        """Do the job."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Note that the job is abandoned and its outcome will be dropped."""
        raise NotImplementedError

    def watch(self, limit: anyio.CancelScope | None) -> None:
        """Note the scope that limits the work, or None at its end. See `timing.watch_limit`."""
        self.limit = limit
        if limit is not None and self.limited is not None:
            self.limited()

    async def closed(self, error: GeneratorExit) -> None:
        """Finish a job whose frames were closed by a `GeneratorExit` of a future."""
        raise NotImplementedError

    async def time_out(self) -> None:
        """Finish a job that was abandoned after its timeout."""
        raise NotImplementedError


async def closed(job: Job, error: BaseException) -> BaseException | None:
    """Return the error of a job, or None if a `GeneratorExit` closed it and `WorkItem.closed` finished it.

    A future that raises `GeneratorExit` closes every frame of its task except the outermost. Only that frame, which
    calls this, can still await.
    """
    if not isinstance(error, GeneratorExit) or not isinstance(job, WorkItem):
        return error
    try:
        await job.closed(error)
    except BaseException as failure:  # noqa: BLE001 (raised in the task that waits for the jobs)
        return failure
    return None
