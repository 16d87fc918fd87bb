"""The dependencies of a turn: made once for each driver of the turn, and closed when it has released the turn.

They are never written to the journal (docs/rules.md#dependencies).
"""

import inspect
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from turnwright._base.background_task import background_task
from turnwright.context import NOT_GIVEN, DepsFactory, TurnInfo
from turnwright.errors import CannotRunError
from turnwright.tools.errors import describe
from turnwright.tools.tool_work import is_its_own

_LOG = logging.getLogger(__name__)


@asynccontextmanager
async def open_deps(factory: DepsFactory[object], turn: TurnInfo) -> AsyncIterator[object]:
    """Make the dependencies of a turn with the engine's factory, and close them after the block.

    An async generator is closed whatever ends the block, also a cancellation: it goes on after its `yield`, in the task
    in which it began. So it may hold task groups and cancel scopes open. An error in its second half is logged.

    Raises `CannotRunError`, which names the factory, if it raises or makes nothing.
    """
    try:
        made: object = factory(turn)
        deps = await made if inspect.isawaitable(made) else NOT_GIVEN
    except BaseException as error:
        if not await is_its_own(error):
            raise
        raise _failed(factory, turn, error) from error
    if deps is not NOT_GIVEN:
        yield deps
    elif isinstance(made, AsyncIterator):
        hosted = _Hosted(factory, turn, made)
        async with background_task(hosted.run):
            await hosted.ready.wait()
            try:
                yield hosted.deps
            finally:
                hosted.closing.set()
    else:
        raise CannotRunError(
            f"turn {turn.turn_id}: deps: {_name(factory)} returned {made!r:.80}: it must be an async function, or an"
            " async generator that yields once"
        )


class _Hosted:
    """An async generator of dependencies, in a task of its own."""

    def __init__(self, factory: DepsFactory[object], turn: TurnInfo, made: AsyncIterator[object]) -> None:
        self.ready = anyio.Event()
        self.closing = anyio.Event()
        self.deps: object = None
        self._factory = factory
        self._turn = turn
        self._made = made

    async def run(self) -> None:
        """Run the generator up to its `yield`, wait for `closing`, and run the rest, which nothing cancels."""
        with anyio.CancelScope() as scope:
            try:
                self.deps = await anext(self._made)
            except StopAsyncIteration:
                why = f"turn {self._turn.turn_id}: deps: {_name(self._factory)} ended without a `yield`"
                raise CannotRunError(why) from None
            except BaseException as error:
                if not await is_its_own(error):
                    raise
                raise _failed(self._factory, self._turn, error) from error
            scope.shield = True
            self.ready.set()
            await self.closing.wait()
            await self._close()

    async def _close(self) -> None:
        about = {"turn": self._turn.turn_id}
        try:
            await anext(self._made)
        except StopAsyncIteration:
            return
        except Exception:  # noqa: BLE001 (the turn is as it is in the journal)
            message = "turn %s: deps: %s raised while it closed them"
            _LOG.warning(message, self._turn.turn_id, _name(self._factory), exc_info=True, extra=about)
            return
        message = "turn %s: deps: %s has a second `yield`, and what follows it does not run"
        _LOG.warning(message, self._turn.turn_id, _name(self._factory), extra=about)


def _failed(factory: Callable[..., object], turn: TurnInfo, error: BaseException) -> CannotRunError:
    why = f"turn {turn.turn_id}: deps: {_name(factory)} raised {describe(error)}: the turn stays as it is"
    return CannotRunError(why, may_pass=True)


def _name(factory: Callable[..., object]) -> str:
    name = getattr(factory, "__qualname__", None)
    return name if isinstance(name, str) else type(factory).__qualname__
