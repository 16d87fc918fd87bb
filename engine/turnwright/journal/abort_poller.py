"""Polls a store that other processes write to, for aborts of turns that this process drives.

One task polls for all turns of a driver. With a poll for each, ten thousand turns would keep a processor busy.
"""

from collections.abc import Callable

import anyio

from turnwright.store import InboxItem, InboxKind, Store


class AbortPoller:
    """Polls from the task of one turn; when that turn ends, the task of another one takes over.

    `store` is asked for aborts every `poll_interval` seconds. `abort` is called with each.
    """

    def __init__(self, store: Store, poll_interval: float, abort: Callable[[InboxItem], None]) -> None:
        self._store = store
        self._poll_interval = poll_interval
        self._abort = abort
        self._polling = False
        #: The tasks that wait to take over, in order of arrival.
        self._next: dict[anyio.Event, None] = {}

    async def keep(self) -> None:
        """Poll, as soon as no other task does, until canceled. Raises `StoreError`."""
        if self._polling:
            await self._wait()
        self._polling = True
        try:
            while True:
                await anyio.sleep(self._poll_interval)
                # A canceled query would cost its connection.
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
                self._hand_over()  # canceled just when it was to take over
            raise

    def _hand_over(self) -> None:
        following = next(iter(self._next), None)
        if following is None:
            self._polling = False
        else:
            del self._next[following]
            following.set()
