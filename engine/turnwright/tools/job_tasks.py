"""Running the calls of a batch concurrently, each in a task of its own.

A single job gets its own task too. A tool may swallow a cancellation or cancel its own task, and in the task that
drives the turn that would look like a request of the caller.
"""

import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from functools import cache, partial

import anyio

from .loop_handle import in_event_loop
from .work_item import Deliver, Job, JobOutcome, WorkItem, finish_closed


def in_tasks(
    jobs: Sequence[Job],
    cancel_grace: float = math.inf,
    deliver: Deliver | None = None,
    stop: Callable[[], None] | None = None,
) -> Awaitable[None]:
    """Run each job in a task of its own, and raise the first error of a job, not in an exception group.

    A `WorkItem` is canceled when its time is up, and then has the outcome of its `time_out`.

    An error, or a cancellation from outside, cancels the other jobs. When this returns or raises, all jobs have ended
    or were abandoned: a `WorkItem` that continues for `cancel_grace` seconds after its cancellation is abandoned. Under
    trio nothing is abandoned, because a task cannot outlive its nursery.

    The outcomes of jobs are passed to `deliver`: those that come in one round of the event loop together, and under
    trio each by itself. An outcome that has come is delivered whatever happens to the other jobs. The jobs that
    `deliver` returns run too. `stop` is called when the jobs are canceled: from then on it must return none.
    """
    if "trio" not in sys.modules or _library() == "asyncio":
        return _by_hand()(jobs, cancel_grace, deliver, stop)
    return in_a_group(jobs, deliver=deliver, stop=stop)


@cache
def _by_hand() -> Callable[
    [Sequence[Job], float, Deliver | None, Callable[[], None] | None],
    Awaitable[None],
]:
    from .asyncio_tasks import in_asyncio_tasks  # noqa: PLC0415 (not every loop is asyncio's)

    return in_asyncio_tasks


def _library() -> str:
    import sniffio  # noqa: PLC0415 (a dependency of trio, so it may be missing without trio)

    return sniffio.current_async_library()


async def in_a_group(
    jobs: Sequence[Job],
    cancel_grace: float = math.inf,  # noqa: ARG001 (nothing is abandoned)
    deliver: Deliver | None = None,
    stop: Callable[[], None] | None = None,
) -> None:
    """Run jobs as `in_tasks` does, in any event loop, without abandoning."""
    failures: list[BaseException] = []
    context = copy_context()

    async def run(job: Job, group: anyio.abc.TaskGroup) -> None:
        try:
            outcome = await _finish(job)
            if outcome is not None and deliver is not None:
                if stop is not None and anyio.current_effective_deadline() == -math.inf:
                    stop()
                for next_job in await deliver(outcome) or ():
                    # Not in the context of this job, whose tool may have changed it.
                    context.copy().run(group.start_soon, run, next_job, group)
        except BaseException as error:
            if isinstance(error, GeneratorExit) and not in_event_loop():
                raise  # the loop is gone; otherwise it is raised below
            failures.append(error)
            if stop is not None:
                stop()
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for job in jobs:
            group.start_soon(run, job, group)
    if failures:
        raise failures[0]


async def _finish(job: Job) -> JobOutcome | None:
    """Run a job, within its time limit if it has one."""
    try:
        if isinstance(job, WorkItem) and job.seconds is not None:
            return await _within_limit(job)
        return await job()
    except BaseException as error:
        if isinstance(error, GeneratorExit) and not in_event_loop():
            raise
        return await finish_closed(job, error)


async def _within_limit(work: WorkItem) -> JobOutcome | None:
    """Run work within its time limit."""
    with anyio.move_on_after(work.seconds) as scope:
        work.deadline = scope.deadline
        work.moved = partial(setattr, scope, "deadline")
        return await work()
    return await work.time_out(has_ended=True)
