"""A driver in a process of its own, to be killed, stopped and thawed."""

import inspect
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final, ParamSpec, Self

import anyio

P = ParamSpec("P")

CONTEXT: Final = multiprocessing.get_context("forkserver")
#: The modules that are imported once, before the first fork.
PRELOADED: Final = ["__main__", "turnwright_testing.faults.preload"]


class DriverProcess:
    """A process that runs `work(*args)`, and begins at once. A coroutine function runs in an event loop there.

    `work` is a function of a module that the other process can import, and its arguments can be pickled. As a context
    manager it is killed at the end, if it still runs.
    """

    def __init__(self, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        CONTEXT.set_forkserver_preload(PRELOADED)
        self._process = CONTEXT.Process(target=_run, args=(work, args, kwargs), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """The process id, as in its lines in a `Witness`."""
        pid = self._process.pid
        assert pid is not None  # noqa: S101 (it was started)
        return pid

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.exitcode is not None

    def kill(self) -> None:
        """End it with SIGKILL, and return when it is gone. Nothing happens to one that has ended."""
        self._signal(signal.SIGKILL)
        self._process.join()

    def stop(self) -> None:
        """Stop it with SIGSTOP, as a machine that stalls: it keeps its locks and connections."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the stopped process (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def wait(self, seconds: float) -> int:
        """Return its exit code when it has ended; the negative number of the signal that ended it (-9: killed).

        Raises `TimeoutError` when it still runs after so many seconds.
        """
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            raise TimeoutError(f"process {self.pid} still runs after {seconds:g} s")
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if not self.ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _run(work: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    if inspect.iscoroutinefunction(work):

        async def whole() -> None:
            await work(*args, **kwargs)

        anyio.run(whole)
    else:
        work(*args, **kwargs)
