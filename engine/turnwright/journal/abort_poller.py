"""Looks into a store that other processes write to, for those who want a turn stopped that is driven here.

One task looks for all turns of a driver: ten thousand that each ask four times a second would keep a processor busy.
"""

from collections.abc import Callable

import anyio

from turnwright.store import InboxItem, InboxKind, Store


class AbortPoller:
    """Who looks, and who does it next. The task of one turn does, and when it ends that of another one.

    `store` is asked every `every` seconds for the requests to stop; `abort` is told each.
    """

    def __init__(self, store: Store, every: float, abort: Callable[[InboxItem], None]) -> None:
        self._store = store
        self._every = every
        self._abort = abort
        self._looking = False
        #: Those who wait to look, in the order in which they came.
        self._next: dict[anyio.Event, None] = {}

    async def keep(self) -> None:
        """Look, as soon as nobody else does, until cancelled. Raises `StoreError` when the store cannot be read."""
        if self._looking:
            await self._wait()
        self._looking = True
        try:
            while True:
                await anyio.sleep(self._every)
                # A query that is cut off costs its connection.
                with anyio.CancelScope(shield=True):
                    for request in await self._store.requests(InboxKind.ABORT):
                        self._abort(request)
        finally:
            self._hand_over()

    async def _wait(self) -> None:
        mine = anyio.Event()
        self._next[mine] = None
        try:
            await mine.wait()
        except BaseException:
            if self._next.pop(mine, self) is self:
                self._hand_over()  # cancelled just when it was this one's to look
            raise

    def _hand_over(self) -> None:
        following = next(iter(self._next), None)
        if following is None:
            self._looking = False
        else:
            del self._next[following]
            following.set()
