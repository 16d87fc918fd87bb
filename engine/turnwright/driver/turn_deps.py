"""The dependencies of a turn: made once for each driver of the turn, and closed when it has released the turn.

They are never written to the journal (docs/rules.md#dependencies).
"""

import inspect
import logging
import math
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial

import anyio

from turnwright._base.background_task import background_task
from turnwright.context import DepsFactory, TurnInfo
from turnwright.errors import CannotRunError
from turnwright.tools.errors import describe
from turnwright.tools.job_tasks import in_tasks
from turnwright.tools.loop_handle import in_thread
from turnwright.tools.timing import CLOCK
from turnwright.tools.tool_work import is_its_own
from turnwright.tools.work_item import WorkItem

from .segment import Segment

_LOG = logging.getLogger(__name__)


async def give_deps(
    segment: Segment,
    factory: DepsFactory[object],
    turn: TurnInfo,
    after_release: AsyncExitStack,
    watch: Callable[[], AbstractAsyncContextManager[None]],
) -> None:
    """Make the dependencies of a segment with the engine's factory. `after_release` closes them.

    An abort, which is looked for in `watch`, and the deadline of the turn end the wait. Then the segment has no
    dependencies. Raises `CannotRunError`, which names the factory, if it raises, makes nothing, or takes longer than
    the turn's `tool_timeout`.
    """
    making = _Making(factory, turn, segment.machine.turn.limits.tool_timeout)
    await after_release.enter_async_context(making.host(segment.setup.cancel_grace))
    async with watch():
        await segment.interruption.until_interrupted(making.ready.wait)
    if making.ready.is_set():
        segment.deps = making.deps
    else:
        making.stop()
        segment.lacks_deps = f"deps: {_name(factory)} had not made them when the turn was stopped"


class _Making(WorkItem):
    """The work of a factory, in a task of its own, which makes the dependencies and closes them.

    An async generator continues after its `yield` in the task in which it began. So it may hold task groups and cancel
    scopes open. A function and a generator that are not async run in threads. It is closed whatever ends the turn, also
    a cancellation. An error in its second half is logged. Each half has `seconds`.
    """

    __slots__ = ("_abandoned", "_closing", "_factory", "_scope", "_turn", "deps", "ready")

    def __init__(self, factory: DepsFactory[object], turn: TurnInfo, seconds: float | None) -> None:
        super().__init__(factory, seconds)
        self.ready = anyio.Event()
        self.deps: object = None
        self._closing = anyio.Event()
        self._scope = anyio.CancelScope()
        self._abandoned = False
        self._factory = factory
        self._turn = turn

    @asynccontextmanager
    async def host(self, grace: float) -> AsyncIterator[None]:
        """Work during the block, and close the dependencies at its end.

        A factory that has not made them by then is canceled, and abandoned after `grace` seconds.
        """
        async with background_task(self._host, grace):
            try:
                yield
            finally:
                self._closing.set()

    def stop(self) -> None:
        """Cancel the factory, which has not made anything."""
        self._scope.cancel()

    async def _host(self, grace: float) -> None:
        with self._scope:
            await in_tasks([self], grace)

    async def __call__(self) -> None:
        """Run the function, or the generator up to its `yield`, wait for the end, and run the rest."""
        CLOCK.set(self)
        self.at_work = True
        try:
            product = await self._call_factory()
            self.deps = await self._first(product)
        except (StopAsyncIteration, _EndedError):
            why = f"turn {self._turn.turn_id}: deps: {_name(self._factory)} ended without a `yield`"
            raise CannotRunError(why) from None
        except CannotRunError:
            raise
        except BaseException as error:
            if not await is_its_own(error):
                raise
            raise _make_error(self._factory, self._turn, error) from error
        finally:
            self.at_work = False
        if not self._abandoned:
            self._scope.shield = True  # from here on, only its own time limit cancels it
            self.deadline = math.inf
            self.ready.set()
            await self._closing.wait()
            if self.seconds is not None:
                self.deadline = anyio.current_time() + self.seconds
        if isinstance(product, AsyncIterator | Generator):
            await self._close(product)

    async def _call_factory(self) -> object:
        """Call the factory: in a thread, unless that makes a coroutine or an iterator whose code has not begun."""
        function = self._factory
        while isinstance(function, partial):
            function = function.func
        target = function if inspect.isroutine(function) else type(function).__call__
        begins_later = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
        if any(is_one(target) for is_one in begins_later):
            return self._factory(self._turn)
        return await in_thread(partial(self._factory, self._turn))

    async def _first(self, product: object) -> object:
        if inspect.isawaitable(product):
            return await product
        return await _next(product) if isinstance(product, AsyncIterator | Generator) else product

    async def _close(self, product: AsyncIterator[object] | Generator[object]) -> None:
        about = {"turn": self._turn.turn_id}
        try:
            await _next(product)
        except (StopAsyncIteration, _EndedError):
            return
        except Exception:  # noqa: BLE001 (the turn is as it is in the journal)
            message = "turn %s: deps: %s raised while it closed them"
            _LOG.warning(message, self._turn.turn_id, _name(self._factory), exc_info=True, extra=about)
            return
        message = "turn %s: deps: %s has a second `yield`, and what follows it does not run"
        _LOG.warning(message, self._turn.turn_id, _name(self._factory), extra=about)

    def abandon(self) -> None:
        """See `WorkItem.abandon`."""
        self._abandoned = True
        message = "turn %s: deps: %s ignored its cancellation and is abandoned: it still runs"
        _LOG.warning(message, self._turn.turn_id, _name(self._factory), extra={"turn": self._turn.turn_id})

    async def finish_closed(self, error: GeneratorExit) -> None:
        """See `WorkItem.finish_closed`."""
        raise _make_error(self._factory, self._turn, error)

    async def time_out(self, *, has_ended: bool) -> None:  # noqa: ARG002 (either way, the turn does not wait for it)
        """See `WorkItem.time_out`: raises `CannotRunError` for a late beginning, and logs a late end."""
        late = f"turn {self._turn.turn_id}: deps: {_name(self._factory)} did not finish within {self.seconds:g} s"
        if not self.ready.is_set():
            raise CannotRunError(f"{late}: the turn stays as it is", may_pass=True)
        _LOG.warning("%s while it closed them", late, extra={"turn": self._turn.turn_id})


class _EndedError(Exception):
    """A generator has ended. A `StopIteration` cannot leave a coroutine."""


async def _next(product: AsyncIterator[object] | Generator[object]) -> object:
    """Return the next value of a generator, which runs in a thread unless it is async. Raises what it raises."""
    if isinstance(product, AsyncIterator):
        return await anext(product)
    end = object()
    value = await in_thread(partial(next, product, end))
    if value is end:
        raise _EndedError
    return value


def _make_error(factory: Callable[..., object], turn: TurnInfo, error: BaseException) -> CannotRunError:
    why = f"turn {turn.turn_id}: deps: {_name(factory)} raised {describe(error)}: the turn stays as it is"
    return CannotRunError(why, may_pass=True)


def _name(factory: Callable[..., object]) -> str:
    name = getattr(factory, "__qualname__", None)
    return name if isinstance(name, str) else type(factory).__qualname__
