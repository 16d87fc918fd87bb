"""The writes of many turns in one transaction.

A commit costs more than what it commits: the locks, the pages written to the log, and with `full` the wait for the
disk. Where many turns run, several are about to write in the same round of the event loop. The first of them lets the
others come, for that one round, and writes for all; each goes on when its own is committed. Nobody waits for a clock:
the more there is to do, the more come together.

With 1,000 turns in flight an append costs 20 us of CPU instead of 40, and 20 us instead of 117 with `full`.
"""

import sqlite3
from collections.abc import Callable, Sequence

from anyio.lowlevel import checkpoint

from turnwright.errors import StoreError, StoreReplacedError

from .writes import Write


class CommitGroup:
    """Collects writes, of which `write` writes any number in one transaction or raises.

    `explain` makes the store's error of an error of `sqlite3`, and leaves any other as it is.
    """

    def __init__(self, write: Callable[[Sequence[Write]], None], explain: Callable[[Exception], Exception]) -> None:
        self._write = write
        self._explain = explain
        self._waiting: list[Write] = []
        #: How many writes have begun and not come back to whoever made them.
        self.under_way = 0

    async def add(self, one: Write) -> None:
        """Make it with whatever else comes in this round of the event loop, and return when that is committed.

        Raises what this one alone has deserved, or `StoreError` where the transaction failed as a whole. One that is
        cancelled before it is made is not; one that is cancelled later is.
        """
        self.under_way += 1
        self._waiting.append(one)
        try:
            await checkpoint()
            if one.waits:
                self._write_all()
        finally:
            self.under_way -= 1
            if one.waits:
                self._waiting.remove(one)
        if one.error is not None:
            raise one.error

    def _write_all(self) -> None:
        together, self._waiting = self._waiting, []
        try:
            self._write(together)
        except (sqlite3.OperationalError, StoreReplacedError) as error:
            # The file, or its disk: there is no hope for one of them alone, and each would wait for it in vain.
            for one in _not_made(together):
                one.give_up(self._explain(error))
        except Exception:  # noqa: BLE001 (one of them is the cause: it is told, and the others are made)
            for one in _not_made(together):
                self._write_alone(one)
        finally:
            for one in _not_made(together):
                one.give_up(StoreError("the process was interrupted; nothing was written"))

    def _write_alone(self, one: Write) -> None:
        try:
            self._write((one,))
        except Exception as error:  # noqa: BLE001 (it goes to whoever waits for this one)
            one.give_up(self._explain(error))


def _not_made(together: Sequence[Write]) -> list[Write]:
    return [one for one in together if one.waits]
