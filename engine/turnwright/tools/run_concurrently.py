"""Runs jobs side by side, each in a task of its own: the calls of a batch.

Also a job that is alone: a tool may swallow a cancellation, cancel its own task, or leave marks of one on it, and none
of this may reach the task that drives the turn, for there it could not be told from what others ask for.
"""

import math
import sys
from collections.abc import Sequence

import anyio

from .loop_handle import in_event_loop
from .work_item import Job, closed


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


def _library() -> str:
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
