"""Tasks in the background: beside a block of code, beside another one, or beside all others until the loop ends."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Final, TypeVar, TypeVarTuple, Unpack

import anyio

Args = TypeVarTuple("Args")
A = TypeVar("A")
B = TypeVar("B")


@asynccontextmanager
async def background_task(task: Callable[[Unpack[Args]], Awaitable[object]], *args: *Args) -> AsyncIterator[None]:
    """Run `task(*args)` during the block, and cancel it at the end.

    An error of the block, or else of the task, is raised without an exception group. An error of the task cancels the
    block.
    """
    failures: list[BaseException] = []

    async def run_guarded(group: anyio.abc.TaskGroup) -> None:
        try:
            await task(*args)
        except Exception as error:  # noqa: BLE001 (raised below)
            failures.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(run_guarded, group)
        try:
            yield
        except (GeneratorExit, anyio.get_cancelled_exc_class()):
            raise
        except BaseException as error:  # noqa: BLE001 (raised below)
            failures.insert(0, error)
        group.cancel_scope.cancel()
    if failures:
        raise failures[0]


async def run_both(first: Awaitable[A], second: Callable[[], Awaitable[B]]) -> tuple[A, B]:
    """Return the results of `first` and `second()`, which run at the same time.

    The error of either cancels the other one, and is raised without an exception group.
    """
    results: list[B] = []
    end = anyio.Event()

    async def beside() -> None:
        results.append(await second())
        end.set()

    async with background_task(beside):
        result = await first
        await end.wait()
    return result, results[0]


def first_error(error: BaseException) -> BaseException:
    """Return the error, or the first one of a group that is not a group itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _NoContext:
    """A context that does nothing. It may be entered any number of times."""

    # Static, because a block keeps its bound method for as long as it runs: 64 bytes for each block of each turn.

    @staticmethod
    def __enter__() -> None:
        return None

    @staticmethod
    def __exit__(*_: object) -> None:
        return None

    @staticmethod
    async def __aenter__() -> None:
        return None

    @staticmethod
    async def __aexit__(*_: object) -> None:
        return None


NO_CONTEXT: Final = _NoContext()


def spawn(run: Callable[[], Coroutine[object, object, None]]) -> object:
    """Run `run()` in a new task of the running event loop, of asyncio or trio. It must not raise an `Exception`.

    Returns the task. Keep it until it ends: asyncio drops a task that nothing refers to. The task has a copy of the
    caller's context variables. The end of the event loop cancels it.
    """
    # Trio first: as a guest of an asyncio loop, both run here. An app that uses trio has imported it.
    trio = sys.modules.get("trio")
    if trio is not None:
        try:
            return trio.lowlevel.spawn_system_task(run, context=copy_context())
        except RuntimeError:
            pass  # trio does not run here
    import asyncio  # noqa: PLC0415 (an import of turnwright needs no event loop)

    return asyncio.get_running_loop().create_task(run())
