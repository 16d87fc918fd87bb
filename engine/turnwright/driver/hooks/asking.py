"""Asking a function of the app: in a task of its own, with a timeout, and with errors that name it."""

import inspect
import logging
import math
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

import anyio

from turnwright._base.words import text_of
from turnwright.errors import ConfigError, HookFailedError, Retry
from turnwright.model.protocol import ModelError
from turnwright.tools.errors import describe, holds
from turnwright.tools.job_tasks import in_tasks
from turnwright.tools.loop_handle import in_thread
from turnwright.tools.timing import CLOCK, noting_wait
from turnwright.tools.tool_work import is_its_own
from turnwright.tools.work_item import WorkItem
from turnwright_states import Cause

#: Seconds that a hook or a guardrail may take if it sets no `timeout`.
TIMEOUT: Final = 30.0
#: The words of Python's `TypeError` about an object that is raised and is not an exception, such as a `Trip`.
_NO_EXCEPTION: Final = "exceptions must derive from BaseException"
_LOG: Final = logging.getLogger(__name__)


class Asked(WorkItem):
    """A job that asks one function. `answer` is what it returned.

    `what` names the function in errors. Errors of the types in `passed` are raised as they are.
    """

    __slots__ = ("_allowed_errors", "_args", "_function", "answer", "subject")

    def __init__(
        self,
        subject: str,
        function: Callable[..., object],
        args: tuple[object, ...],
        seconds: float | None,
        allowed_errors: tuple[type[Exception], ...],
    ) -> None:
        super().__init__(function, seconds)
        self.answer: object = None
        self.subject = subject
        self._function = function
        self._args = args
        self._allowed_errors = allowed_errors

    async def __call__(self) -> None:
        """Ask the function."""
        CLOCK.set(self)
        self.at_work = True
        try:
            self.answer = await self._call_function()
        finally:
            self.at_work = False
        # A late answer is possible: the function swallowed its cancellation, or kept the event loop busy.
        if anyio.current_time() >= self.deadline:
            await self.time_out(has_ended=True)

    async def _call_function(self) -> object:
        try:
            answer = await noting_wait(call_function(self._function, *self._args))
        except self._allowed_errors:
            raise
        except BaseException as error:
            if holds(error, KeyboardInterrupt) or holds(error, anyio.get_cancelled_exc_class()):
                raise
            if isinstance(error, GeneratorExit):
                raise  # `closed` finishes the job
            hint = ": return a decision, do not raise it" if text_of(error) == _NO_EXCEPTION else ""
            raise HookFailedError(f"{self.subject} raised {describe(error)}{hint}") from error
        return answer

    def abandon(self) -> None:
        """See `WorkItem.abandon`."""
        _LOG.warning("%s ignored its cancellation and is abandoned: it still runs", self.subject)

    async def finish_closed(self, error: GeneratorExit) -> None:
        """See `WorkItem.finish_closed`."""
        raise HookFailedError(f"{self.subject} raised {describe(error)}")

    async def time_out(self, *, has_ended: bool) -> None:  # noqa: ARG002 (either way, its decision is missing)
        """See `WorkItem.time_out`."""
        raise HookFailedError(f"{self.subject} did not finish within {self.seconds:g} s")


async def ask(
    subject: str,
    function: Callable[..., object],
    *args: object,
    seconds: float | None = TIMEOUT,
    grace: float = 1.0,
    allowed_errors: tuple[type[Exception], ...] = (),
) -> object:
    """Call a function of the app, async or not, within `seconds`, and return its answer.

    It runs in a task of its own, and in a thread if it is not async. A function that ignores its cancellation is
    abandoned after `grace` seconds. Raises `HookFailedError`, which names it by `subject`, for every error but those
    of the types in `allowed_errors`.
    """
    question = Asked(subject, function, args, seconds, allowed_errors)
    try:
        await in_tasks([question], grace)
    except Exception:
        raise
    except BaseException as error:
        if _is_canceled_by_task() or not await is_its_own(error):
            raise
        raise HookFailedError(f"{subject} raised {describe(error)}") from error
    return question.answer


async def own_error(model: str, error: BaseException) -> ModelError:
    """Return the error of a model whose own code raised a cancellation or an exit. Raises those of others."""
    if _is_canceled_by_task() or not await is_its_own(error):
        raise error
    return ModelError(f"model {model} raised {describe(error)}. Try again.", cause=Cause.INTERRUPTED)


def _is_canceled_by_task() -> bool:
    """Whether the task that drives the turn was itself canceled, which no scope notices."""
    import asyncio  # noqa: PLC0415 (not every loop is asyncio's)

    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


async def call_function(function: Callable[..., object], *args: object) -> object:
    """Call a function: an async one here, any other in a thread. Return its result."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 (an object with an async `__call__`)
        result = function(*args)
    else:
        result = await in_thread(partial(function, *args))
    return await result if isinstance(result, Coroutine) or inspect.isawaitable(result) else result


def checked_timeout(timeout: object, where: str) -> float | None:
    """Return the time limit of a hook or a guardrail. Raises `ConfigError` unless it is seconds above 0, or None."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ConfigError(f"{where}: timeout must be a number of seconds above 0, or None, not {timeout!r:.80}")
    return float(timeout)


#: The other errors that a hook of a reply, and a guardrail, may raise.
RETRY: Final = (Retry,)
MODEL_ERROR: Final = (ModelError,)
