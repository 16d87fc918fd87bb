"""An event loop that runs only while a caller without one waits: for `Engine.run_sync` and `Engine.stream_sync`."""

import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from turnwright.errors import ConfigError
from turnwright.tools.loop_handle import in_event_loop

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class SyncLoop:
    """An event loop of asyncio, made at its first use.

    Connections belong to an event loop. So all calls use the same one, until the last. Ctrl-C cancels the work, waits
    for its end, and raises `KeyboardInterrupt`; a second Ctrl-C does not wait.
    """

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        #: Held during a call. Two threads may begin one at the same time.
        self._in_use = threading.Lock()
        self._is_closed = False

    def run(self, work: Callable[[], Coroutine[object, object, T]], *, instead: str, is_last: bool = False) -> T:
        """Return the result of `work()`. Its tasks rest until the next call; after the last one, the loop is closed.

        Raises `ConfigError` in an event loop, with the expression to write `instead`, and in a second thread.
        """
        if in_event_loop():
            raise ConfigError(f"an event loop runs here, and a call that blocks it would never return: write {instead}")
        if not self._in_use.acquire(blocking=False):
            raise ConfigError("the engine is used by another thread: give each thread its own engine")
        self._is_closed = self._is_closed or is_last
        try:
            return self._run(work)
        finally:
            if self._is_closed:
                self._close()
            self._in_use.release()

    def _run(self, work: Callable[[], Coroutine[object, object, T]]) -> T:
        import asyncio  # noqa: PLC0415 (an import of turnwright needs no event loop)

        if self._runner is None:
            # With a factory, the loop does not become the thread's own one.
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        interrupt = _Interrupt()
        task: asyncio.Task[T] | None = None

        async def cancelable() -> T:
            nonlocal task
            task = asyncio.current_task()
            if task is not None:
                loop, cancel = task.get_loop(), task.cancel
                interrupt.cancels(lambda: loop.call_soon_threadsafe(cancel))
            return await work()

        try:
            with interrupt.received():
                result = self._runner.run(cancelable(), context=copy_context())
        except asyncio.CancelledError:
            if interrupt.has_come:
                raise KeyboardInterrupt from None
            raise
        finally:
            self._end(task)
        if interrupt.has_come:
            raise KeyboardInterrupt  # too late to cancel anything
        return result

    @contextmanager
    def stream(
        self, open_stream: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]], *, instead: str
    ) -> Iterator[Iterator[T]]:
        """Iterate over the values of an asynchronous stream, which stays open during the block.

        A task reads the stream, ahead of the caller, while the caller waits for a value. The end of the block cancels
        the task and waits until the stream is closed. Raises what `run` and the stream raise.
        """
        import asyncio  # noqa: PLC0415 (as above)

        values: asyncio.Queue[tuple[T, ...]] = asyncio.Queue()
        is_open = asyncio.Event()
        has_entered, task = False, None

        async def read() -> None:
            nonlocal has_entered
            try:
                async with open_stream() as stream:
                    has_entered = True
                    is_open.set()
                    async for value in stream:
                        values.put_nowait((value,))
            finally:
                is_open.set()
                values.put_nowait(())

        async def begin() -> None:
            nonlocal task
            task = asyncio.create_task(read())
            await is_open.wait()

        async def end(task: "asyncio.Task[None]") -> None:
            task.cancel()
            await asyncio.wait((task,))

        def iterate() -> Iterator[T]:
            while value := self.run(values.get, instead=instead):
                yield value[0]

        try:
            self.run(begin, instead=instead)
            if has_entered:
                yield iterate()
        finally:
            if task is not None:
                self.run(partial(end, task), instead=instead)
        if task is not None and (not has_entered or not task.cancelled()):
            task.result()

    def _end(self, task: "asyncio.Task[T] | None") -> None:
        """Cancel the work of a call, and wait for its end, if an exception left the loop before it.

        A handler of a signal has raised (Celery's `SoftTimeLimitExceeded`, `SystemExit`): the loop stops, and its tasks
        stay. The turn must be released now, since the store is closed next.
        """
        import asyncio  # noqa: PLC0415 (as above)

        if self._runner is None or task is None or task.done():
            return
        task.cancel()
        try:
            self._runner.get_loop().run_until_complete(asyncio.wait((task,)))
        except BaseException:
            if not task.done():
                raise  # another exception was thrown into the loop: this one does not wait

    def _close(self) -> None:
        """Cancel the tasks that are left, and close the loop. A later call has a loop for itself."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()


class _Interrupt:
    """The first Ctrl-C during a call, which cancels its work.

    `asyncio.Runner` has a handler of its own. If Ctrl-C comes when the work is done and its loop still runs, that one
    raises `KeyboardInterrupt` in a task of the loop, which leaves the loop unusable.
    """

    def __init__(self) -> None:
        self.has_come = False
        self._cancel: Callable[[], object] = bool

    def cancels(self, cancel: Callable[[], object]) -> None:
        """Call `cancel` when Ctrl-C comes, or at once if it came before."""
        self._cancel = cancel
        if self.has_come:
            cancel()

    @contextmanager
    def received(self) -> Iterator[None]:
        """Receive Ctrl-C during the block, unless the program has a handler of its own, or in another thread."""
        is_main_thread = threading.current_thread() is threading.main_thread()
        if not is_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, self._receive)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _receive(self, *_: object) -> None:
        if self.has_come:
            raise KeyboardInterrupt
        self.has_come = True
        self._cancel()
