"""The way into an event loop from any thread, at which nobody waits."""

import sys
from collections.abc import Callable
from typing import TypeAlias

#: Takes a function from any thread, for the event loop to call it soon. `RuntimeError` once the loop is gone.
Door: TypeAlias = Callable[[Callable[[], None]], object]


def door_here() -> Door:
    """The way into the event loop that runs here, be it trio's or asyncio's. Raises `RuntimeError` outside of any."""
    # First trio: where it is the guest of an asyncio loop, that one runs here too. Who uses it has imported it.
    trio = sys.modules.get("trio")
    if trio is not None:
        try:
            token = trio.lowlevel.current_trio_token()
        except RuntimeError:
            pass
        else:
            return token.run_sync_soon  # type: ignore[no-any-return]  # of a module that may not be there
    import asyncio  # noqa: PLC0415 (who only imports turnwright needs no event loop)

    return asyncio.get_running_loop().call_soon_threadsafe


def in_event_loop() -> bool:
    """Whether an event loop runs here. A coroutine whose loop is gone is closed by a `GeneratorExit` outside of any."""
    try:
        door_here()
    except RuntimeError:
        return False
    return True
