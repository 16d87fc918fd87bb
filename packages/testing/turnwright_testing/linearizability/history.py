"""Records the calls of clients: in memory, or in a file that outlives its process."""

import os
import time
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from .calls import StoreCall, StoreResult
from .checker import Operation

#: One call of a store, with its result.
StoreOperation = Operation[StoreCall, StoreResult]
#: The end, the result and the note of a call whose result nobody knows.
_UNKNOWN: Final[tuple[None, None, str]] = (None, None, "")


class StoreHistory:
    """A history in memory. Times count its events."""

    def __init__(self) -> None:
        self._clock = count()
        self._started: list[tuple[str, StoreCall, int]] = []
        self._ended: dict[int, tuple[int, StoreResult, str]] = {}

    def now(self) -> int:
        """Return the time of the next event."""
        return next(self._clock)

    def begin(self, client: str, call: StoreCall, *, at: int | None = None) -> int:
        """Note that a call begins, or began at an earlier time, and return its number."""
        self._started.append((client, call, self.now() if at is None else at))
        return len(self._started) - 1

    def end(self, number: int, result: StoreResult, note: str = "") -> None:
        """Note the result of a call, and the text of an error."""
        self._ended[number] = self.now(), result, note

    @property
    def operations(self) -> list[StoreOperation]:
        """The calls so far."""
        return [
            Operation(client, call, start, *self._ended.get(number, _UNKNOWN))
            for number, (client, call, start) in enumerate(self._started)
        ]


class _Line(Struct, array_like=True):
    """A call that begins, or the result of one."""

    number: int
    at: int
    call: StoreCall | None = None
    result: StoreResult | None = None
    note: str = ""


class HistoryFile(StoreHistory):
    """A history in a file of its own for each process. Times are nanoseconds of the machine's monotonic clock."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def now(self) -> int:
        return time.monotonic_ns()

    def begin(self, client: str, call: StoreCall, *, at: int | None = None) -> int:
        number = super().begin(client, call, at=at)
        self._write(_Line(number, self._started[number][2], call=call))
        return number

    def end(self, number: int, result: StoreResult, note: str = "") -> None:
        super().end(number, result, note)
        self._write(_Line(number, self._ended[number][0], result=result, note=note))

    def _write(self, line: _Line) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")  # complete before the process can be killed


def read_history(path: Path) -> list[StoreOperation]:
    """Return the calls in a file. The last line of a killed process may be missing, but is never half a line."""
    open_calls: dict[int, tuple[StoreCall, int]] = {}
    endings: dict[int, tuple[int, StoreResult, str]] = {}
    for raw in path.read_bytes().splitlines() if path.exists() else ():
        line = msgspec.json.decode(raw, type=_Line)
        if line.call is not None:
            open_calls[line.number] = line.call, line.at
        elif line.result is not None:
            endings[line.number] = line.at, line.result, line.note
    return [
        Operation(path.stem, call, start, *endings.get(number, _UNKNOWN))
        for number, (call, start) in open_calls.items()
    ]
