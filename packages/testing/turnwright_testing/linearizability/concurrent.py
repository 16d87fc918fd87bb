"""Histories of one process: several tasks use several handles of a store at once."""

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from turnwright.store import Store

from .calls import Die, StoreCall, StoreResult
from .checker import Linearization, linearize
from .client import StoreClient
from .history import StoreHistory, StoreOperation
from .store_model import StoreModel

#: The clients, and the calls that each of them makes.
_CLIENTS: Final = 4
_CALLS: Final = 14


async def record_history(
    stores: Sequence[Store], seed: int, *, bury: Callable[[Store], Awaitable[None]] | None = None
) -> StoreHistory:
    """Let four clients make random calls at once, one after the other in each client; then read everything.

    The turns have new ids for each seed. Each client uses one of the `stores`, in turn. `bury` makes the process of the
    first store look dead halfway; it may affect the others too.
    """
    draw, history = Random(seed), StoreHistory()  # noqa: S311 (a history must be drawn again)
    turns = [f"h{seed}", f"h{seed}s/1", f"h{seed}s/2"][: draw.choice((1, 2, 3))]
    owners = sorted({store.owner for store in stores})

    async def act(client: StoreClient) -> None:
        for number in range(_CALLS):
            await client.act()
            if bury is not None and client is first and number == _CALLS // 2:
                dies = history.begin("the test", Die(tuple(owners)))
                await bury(stores[0])
                history.end(dies, StoreResult())
            for _ in range(client.draw.choice((0, 1, 3))):
                await checkpoint()

    first = StoreClient("client0", stores[0], history, draw, turns, owners)
    for turn in turns[: draw.choice((1, 2))]:
        await first.create(turn)
    other_clients = [
        StoreClient(f"client{number}", stores[number % len(stores)], history, Random(f"{seed}/{number}"), turns, owners)  # noqa: S311 (likewise)
        for number in range(1, _CLIENTS)
    ]
    async with anyio.create_task_group() as group:
        for client in [first, *other_clients]:
            group.start_soon(act, client)
    await first.read_all()
    return history


def explain_history(operations: Sequence[StoreOperation]) -> Linearization[StoreCall, StoreResult]:
    """Find an order of these calls that the contract of stores allows."""
    return linearize(StoreModel(), operations)
