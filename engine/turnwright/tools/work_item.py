"""A job of a batch, and a job that can be abandoned."""

from collections.abc import Awaitable, Callable

import anyio

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
