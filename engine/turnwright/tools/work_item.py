"""The jobs of a batch: plain functions, and work items, which have a time limit and can be abandoned."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from turnwright_states import CallSettledInput, CallStartedInput, CallWaitingInput

#: The fate of a call.
Outcome = CallSettledInput | CallWaitingInput
#: The outcome of a job: of a call, or the start of a call that passed its checks.
JobOutcome = CallStartedInput | Outcome
Job = Callable[[], Awaitable[JobOutcome | None]]


class Deliver(Protocol):
    """Receives the outcomes of jobs."""

    async def __call__(self, first: JobOutcome, /, *more_outcomes: JobOutcome) -> Sequence[Job] | None:
        """Receive outcomes that came together, oldest first. Return the jobs that run now because of them."""
        ...


class WorkItem:
    """A job that calls `subject`, code of the app, for at most `seconds`; None means no limit.

    The runner cancels it at its `deadline`, and abandons it if the code ignores that. The job may move its deadline. It
    is not an abstract base class and no protocol, because `isinstance` runs for each job.
    """

    __slots__ = ("at_work", "deadline", "moved", "seconds", "subject")

    def __init__(self, subject: object, seconds: float | None) -> None:
        self.subject = subject
        self.seconds = seconds
        #: Whether that code runs now. Otherwise the job ends by itself, and is not abandoned.
        self.at_work = False
        #: The time of the event loop at which the work is canceled.
        self.deadline = math.inf
        #: Receives each deadline that is moved, for the runner.
        self.moved: Callable[[float], None] | None = None

    def move(self, deadline: float) -> None:
        """Cancel the work at this time of the event loop instead."""
        self.deadline = deadline
        if self.moved is not None:
            self.moved(deadline)

    def restart(self, now: float) -> None:
        """Start the time of the work anew, at this time of the event loop."""
        if self.seconds is not None:
            self.move(now + self.seconds)

    async def __call__(self) -> JobOutcome | None:
        """Do the job."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Note that the job is abandoned and its outcome will be dropped."""
        raise NotImplementedError

    async def finish_closed(self, error: GeneratorExit) -> JobOutcome | None:
        """Finish a job whose frames were closed by a `GeneratorExit` of a future."""
        raise NotImplementedError

    async def time_out(self, *, has_ended: bool) -> JobOutcome | None:
        """Finish a job whose time was up. It `has_ended` when it was canceled, or was abandoned."""
        raise NotImplementedError


async def finish_closed(job: Job, error: BaseException) -> JobOutcome | None:
    """Return the outcome of a job that raised `error`, or raise the error.

    A future that raises `GeneratorExit` closes every frame of its task except the outermost. Only that frame, which
    calls this, can still await. `WorkItem.finish_closed` finishes the job.
    """
    if not isinstance(error, GeneratorExit) or not isinstance(job, WorkItem):
        raise error
    return await job.finish_closed(error)
