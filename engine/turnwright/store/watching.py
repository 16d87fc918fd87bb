"""How a store is watched that nobody tells of what others write."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from .protocol import Changed


@asynccontextmanager
async def untold(turn_id: str) -> AsyncIterator[Changed]:  # noqa: ARG001 (others need it)
    """See `Store.watching`: whoever waits for a change of the turn looks again when the time is over."""
    yield anyio.sleep
