"""One task polls a shared store for all turns of a driver, and when it ends the next one does."""

import anyio
import anyio.lowlevel
import pytest

from turnwright.journal.inbox import AbortPoller
from turnwright.store import InboxItem, InboxKind, MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

STOP = InboxItem("t1", "abort", InboxKind.ABORT)


class Asked(MemoryStore):
    """Somebody always wants `t1` to stop; it counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.polls = 0

    async def requests(self, *kinds: InboxKind) -> list[InboxItem]:
        self.polls += 1
        return [STOP] if STOP.kind in kinds else []


class Post:
    """A poller of that store, and the aborts that it found."""

    def __init__(self, every: float = 0.01) -> None:
        self.store = Asked()
        self.aborts: list[InboxItem] = []
        self._news = anyio.Event()
        self.watch = AbortPoller(self.store, every, self._tell)

    def _tell(self, request: InboxItem) -> None:
        self.aborts.append(request)
        self._news.set()

    async def three_keep(self, group: anyio.abc.TaskGroup) -> list[anyio.CancelScope]:
        """Three tasks that keep the watch, of which the first looks; and what ends each."""
        scopes: list[anyio.CancelScope] = []

        async def keep() -> None:
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                await self.watch.keep()

        for _ in range(3):
            group.start_soon(keep)
        await anyio.lowlevel.checkpoint()
        return scopes

    async def hears(self) -> None:
        """Wait until it has found another abort."""
        self._news = anyio.Event()
        with anyio.fail_after(60):
            await self._news.wait()


async def test_poller_stops_every_requested_turn() -> None:
    post = Post()
    async with anyio.create_task_group() as group:
        group.start_soon(post.watch.keep)
        await post.hears()
        group.cancel_scope.cancel()
    assert post.aborts[0] == STOP


async def test_single_task_polls_for_all_turns() -> None:
    post = Post(every=0.1)
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(post.watch.keep)
        await post.hears()
        group.cancel_scope.cancel()
    assert post.store.polls == 1


async def test_next_task_polls_when_the_polling_task_ends() -> None:
    post = Post()
    async with anyio.create_task_group() as group:
        scopes = await post.three_keep(group)
        for scope in scopes:
            await post.hears()
            scope.cancel()
    count = len(post.aborts)
    await anyio.sleep(0.05)
    assert len(post.aborts) == count, "and after the last nobody does"


async def test_task_cancelled_before_polling_passes_the_poll_on() -> None:
    post = Post()
    async with anyio.create_task_group() as group:
        scopes = await post.three_keep(group)
        scopes[0].cancel()
        scopes[1].cancel()
        await anyio.lowlevel.checkpoint()
        await post.hears()
        scopes[2].cancel()


async def test_cancelled_waiting_task_does_not_become_the_poller() -> None:
    post = Post()
    async with anyio.create_task_group() as group:
        scopes = await post.three_keep(group)
        scopes[1].cancel()
        await anyio.lowlevel.checkpoint()
        scopes[0].cancel()
        await anyio.lowlevel.checkpoint()
        await post.hears()
        scopes[2].cancel()
