"""The jobs of a batch: plain functions, and work items that can be abandoned."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio

from turnwright_states import CallSettledInput, CallWaitingInput

#: The fate of a call.
Outcome = CallSettledInput | CallWaitingInput
#: A job of a call returns its outcome.
Job = Callable[[], Awaitable[Outcome | None]]


class Deliver(Protocol):
    """Receives the outcomes of jobs."""

    async def __call__(self, first: Outcome, /, *more: Outcome) -> None:
        """Receive outcomes that came together, oldest first."""
        ...


class WorkItem:
    """A job that can be abandoned, because it runs code that may ignore its cancellation.

    It is not an abstract base class and no protocol, because `isinstance` runs for each job.
    """

    __slots__ = ("at_work", "limit", "limited", "timed")

    #: Whether that code runs now. Otherwise the job ends by itself, and is not abandoned.
    at_work: bool
    #: Whether the work has a timeout, and the scope that applies it while the code runs.
    timed: bool
    limit: anyio.CancelScope | None
    #: Called when the timeout starts, if the work can be abandoned.
    limited: Callable[[], None] | None

    async def __call__(self) -> Outcome | None:
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

    async def closed(self, error: GeneratorExit) -> Outcome | None:
        """Finish a job whose frames were closed by a `GeneratorExit` of a future."""
        raise NotImplementedError

    async def time_out(self) -> Outcome | None:
        """Finish a job that was abandoned after its timeout."""
        raise NotImplementedError


async def closed(job: Job, error: BaseException) -> Outcome | None:
    """Return the outcome of a job that raised `error`, or raise the error.

    A future that raises `GeneratorExit` closes every frame of its task except the outermost. Only that frame, which
    calls this, can still await. `WorkItem.closed` finishes the job.
    """
    if not isinstance(error, GeneratorExit) or not isinstance(job, WorkItem):
        raise error
    return await job.closed(error)
