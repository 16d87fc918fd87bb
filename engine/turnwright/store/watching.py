"""Watching a store that sends no notifications."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from .protocol import Changed


@asynccontextmanager
async def poll_for_changes(turn_id: str) -> AsyncIterator[Changed]:  # noqa: ARG001 (others need it)
    """See `Store.watching`. Each wait takes its full time, and the caller then reads the turn again."""
    yield anyio.sleep
