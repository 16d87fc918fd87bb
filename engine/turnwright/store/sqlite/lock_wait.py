"""The wait for a SQLite file that another process has locked, during which the event loop runs on.

The connection never waits itself (`busy_timeout` is 0), because it would stop every turn of the process.
"""

import sqlite3
import time
from typing import Final

import anyio

#: Seconds between two attempts: SQLite's own. The last is repeated.
_DELAYS: Final = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.025, 0.025, 0.05, 0.05, 0.1)


class LockWait:
    """The wait of one call, for at most `patience` seconds."""

    def __init__(self, patience: float) -> None:
        self._ends = time.monotonic() + patience
        self._attempts = 0

    async def pause(self) -> bool:
        """Wait until the next attempt. Return False, without waiting, if there is none."""
        left = self._ends - time.monotonic()
        if left <= 0:
            return False
        delay = _DELAYS[min(self._attempts, len(_DELAYS) - 1)]
        self._attempts += 1
        await anyio.sleep(min(delay, left))
        return True


def is_locked(error: BaseException) -> bool:
    """Whether SQLite raised this error because another connection has locked the file."""
    return isinstance(error, sqlite3.OperationalError) and (
        getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    )
