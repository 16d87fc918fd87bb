"""Prepared statements that share one round trip, sent with libpq's own functions (`psycopg.pq`).

Appends, claims and reads of turns are frequent. psycopg's pipeline writes to the socket after each statement, and takes
three times the CPU time.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, LiteralString
from weakref import WeakKeyDictionary

from psycopg import Error, OperationalError, pq
from psycopg.errors import error_from_result
from psycopg.pq.abc import PGconn, PGresult

from turnwright.store.rows import Columns

from .schema import Connection

_PARAMETER: Final = re.compile(r"%\((\w+)\)s")
#: Status codes, which are looked up for each result.
_DONE, _ROWS, _SYNC = pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.PIPELINE_SYNC

#: Seconds for a server to cancel a statement.
_CANCEL: Final = 5.0


class Statement:
    """A statement that returns rows of texts, numbers and flags. Its parameters have psycopg's form, `%(name)s`."""

    def __init__(self, name: str, text: LiteralString) -> None:
        self.name: Final = name.encode()
        self.parameters: Final = tuple(dict.fromkeys(_PARAMETER.findall(text)))
        self.text: Final = _PARAMETER.sub(lambda match: f"${self.parameters.index(match[1]) + 1}", text).encode()

    def send(self, pgconn: PGconn, values: Mapping[str, object]) -> None:
        """Queue the statement with its values: texts, numbers, flags, lists of texts, and None."""
        parameters: list[bytes | None] = []
        formats: list[int] = []
        for name in self.parameters:
            value = values[name]
            # In the binary format a text is its bytes, and their number is known: NUL is refused, and not the end.
            formats.append(1 if type(value) is str else 0)
            if value is None:
                parameters.append(None)
            else:
                parameters.append((_array(value) if isinstance(value, list) else str(value)).encode())
        pgconn.send_query_prepared(self.name, parameters, formats)


#: The statements that each connection has prepared. psycopg prepares none of its own, nor deallocates these.
_PREPARED: Final[WeakKeyDictionary[Connection, set[Statement]]] = WeakKeyDictionary()


async def run_together(
    connection: Connection, *statements: tuple[Statement, Mapping[str, object]]
) -> list[list[Columns]]:
    """Run statements in one transaction and one round trip, and return the rows of each.

    In `read committed` each statement sees what others committed before it began. If the task is canceled, so are the
    statements. After that, or after an error, which is one of psycopg's, the connection is in pipeline mode: close it.
    """
    pgconn, prepared_statements = connection.pgconn, _PREPARED.setdefault(connection, set())
    pgconn.enter_pipeline_mode()
    for statement, values in statements:
        if statement not in prepared_statements:
            pgconn.send_prepare(statement.name, statement.text)
            prepared_statements.add(statement)
        statement.send(pgconn, values)
    pgconn.pipeline_sync()
    try:
        while pgconn.flush():  # more than the socket takes at once
            await _ready(pgconn.socket, writing=True)
            pgconn.consume_input()  # a server that waits until its answers are read reads nothing
        rows = await _receive_rows(pgconn)
    except asyncio.CancelledError:
        await connection.cancel_safe(timeout=_CANCEL)
        with suppress(Error, TimeoutError):
            await asyncio.wait_for(_receive_rows(pgconn), _CANCEL)
        raise
    pgconn.exit_pipeline_mode()
    return rows


async def _receive_rows(pgconn: PGconn) -> list[list[Columns]]:
    """Return the rows of each statement, when the server has committed."""
    rows: list[list[Columns]] = []
    while True:
        while pgconn.is_busy():
            await _ready(pgconn.socket)
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:  # between two statements
            if pgconn.status != pq.ConnStatus.OK:
                raise OperationalError("the connection is lost")
        elif result.status == _SYNC:
            return rows
        elif result.status == _ROWS:
            rows.append([_columns(result, row) for row in range(result.ntuples)])
        elif result.status != _DONE:  # of a preparation
            raise error_from_result(result)


#: Reads a value by the id of its type: flags, whole numbers, floats and texts. A value of another type stays as it is:
#: no column has one, unless somebody changed the table.
_READERS: Final[dict[int, Callable[[bytes], object]]] = {
    16: b"t".__eq__,
    20: int,
    21: int,
    23: int,
    25: bytes.decode,
    701: float,
    1043: bytes.decode,
}


def _columns(result: PGresult, row: int) -> Columns:
    values: list[object] = []
    for column in range(result.nfields):
        value = result.get_value(row, column)
        values.append(None if value is None else _READERS.get(result.ftype(column), bytes)(value))
    return tuple(values)


def _array(texts: list[str]) -> str:
    """Return an array of texts as PostgreSQL reads it."""
    escaped_texts = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in escaped_texts) + "}"


async def _ready(socket: int, *, writing: bool = False) -> None:
    """Wait until the socket can be read, or with `writing`, written to."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(socket, wake)
    try:
        if writing:
            loop.add_writer(socket, wake)
        await ready
    finally:
        loop.remove_reader(socket)
        if writing:
            loop.remove_writer(socket)
