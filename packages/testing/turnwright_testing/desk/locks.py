"""The locks and semaphores of a desk's modules: those that are held, and how they become free for the next case."""

import asyncio
import asyncio.mixins
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Final

import anyio

from .world import leaves_of

if TYPE_CHECKING:  # at run time, threading.Lock is a function
    _Semaphore = asyncio.Semaphore | threading.Semaphore | anyio.Semaphore
    _Lock = asyncio.Lock | asyncio.Condition | anyio.Lock | threading.Lock | _Semaphore

_LOCKS: Final = (asyncio.Lock, asyncio.Condition, anyio.Lock, type(threading.Lock()))
_SEMAPHORES: Final = (asyncio.Semaphore, threading.Semaphore, anyio.Semaphore)


def held_locks(modules: Sequence[ModuleType]) -> dict[str, int]:
    """Return how often each lock of the modules is held, by its place; the value below 0 of each semaphore."""
    return {name: _holds(lock) for name, lock in _locks_of(modules)}


def free_locks(modules: Sequence[ModuleType], earlier: Mapping[str, int]) -> None:
    """Free the locks of the modules that are held more often than `earlier`, and bind them to no event loop.

    A module lives longer than the loop of a case.
    """
    for name, lock in _locks_of(modules):
        times = _holds(lock) - earlier.get(name, 0)
        if isinstance(lock, anyio.Lock) and times > 0:  # only its task, which is gone, may release it
            lock.__init__()  # type: ignore[misc]
        else:
            with suppress(RuntimeError):  # it wakes up a task of another loop
                for _ in range(times):
                    lock.release()
    for _, leaf in leaves_of(modules):
        if isinstance(leaf, asyncio.mixins._LoopBoundMixin):  # noqa: SLF001 (nothing public unbinds it)
            vars(leaf).pop("_loop", None)


def _locks_of(modules: Sequence[ModuleType]) -> "Iterator[tuple[str, _Lock]]":
    for name, leaf in leaves_of(modules):
        if isinstance(leaf, (*_LOCKS, *_SEMAPHORES)):
            yield name, leaf


def _holds(lock: "_Lock") -> int:
    if isinstance(lock, _SEMAPHORES):
        return -(lock.value if isinstance(lock, anyio.Semaphore) else lock._value)  # noqa: SLF001 (nothing public has it)
    return int(lock.locked())
