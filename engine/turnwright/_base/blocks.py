"""Blocks (`async with`) and iterators (`async for`) that say what to write where one is used as the other."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def _refuse(self: "AsyncBlock[T] | Block[T] | AsyncValues[T]", *_: object) -> NoReturn:
    """Raise a `TypeError` with the right form, where Python would only name a missing method."""
    raise TypeError(f"write `{self.form}`")


class AsyncBlock(AbstractAsyncContextManager[T_co]):
    """A block that is entered with `async with`."""

    def __init__(self, block: AbstractAsyncContextManager[T_co], form: str) -> None:
        self._block = block
        self.form = form

    async def __aenter__(self) -> T_co:
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # type checkers find the mistake themselves
        __aiter__ = __iter__ = __await__ = __enter__ = __exit__ = _refuse


class Block(AbstractContextManager[T]):
    """A block that is entered with `with`."""

    def __init__(self, block: AbstractContextManager[T], form: str) -> None:
        self._block = block
        self.form = form

    def __enter__(self) -> T:
        return self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)

    if not TYPE_CHECKING:
        __aiter__ = __iter__ = __await__ = __aenter__ = __aexit__ = _refuse


class AsyncValues(AsyncIterator[T]):
    """Values that are iterated over with `async for`."""

    def __init__(self, values: AsyncIterator[T], form: str) -> None:
        self._values = values
        self.form = form

    def __aiter__(self) -> AsyncIterator[T]:  # noqa: PYI034 (a loop over the generator itself is faster)
        return self._values

    def __anext__(self) -> Awaitable[T]:
        return self._values.__anext__()

    async def aclose(self) -> None:
        """Close the values, if they are a generator's."""
        if isinstance(self._values, AsyncGenerator):
            await self._values.aclose()

    if not TYPE_CHECKING:
        __iter__ = __await__ = __enter__ = __exit__ = __aenter__ = __aexit__ = _refuse


def async_block(form: str) -> Callable[[Callable[P, AsyncIterator[T]]], Callable[P, AsyncBlock[T]]]:
    """Do what `asynccontextmanager` does. `form` is how the block is written."""

    def decorate(function: Callable[P, AsyncIterator[T]]) -> Callable[P, AsyncBlock[T]]:
        open_block = asynccontextmanager(function)

        @wraps(function)
        def block(*args: P.args, **options: P.kwargs) -> AsyncBlock[T]:
            return AsyncBlock(open_block(*args, **options), form)

        return block

    return decorate
