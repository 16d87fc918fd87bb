"""The engine, and the runtimes, which decide which process drives a turn, and when."""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

from .local import Local
from .protocol import Job, JobListener, Runtime, TurnStatus, WorkerApi

# Programs that drive turns in one process need no client of a service.
if TYPE_CHECKING:
    from .temporal.runtime import Temporal
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".temporal.runtime": "Temporal",
        },
        extra="turnwright[temporal]",
    )

__all__ = ["Job", "JobListener", "Local", "Runtime", "Temporal", "TurnStatus", "WorkerApi"]
