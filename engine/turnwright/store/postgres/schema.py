"""The schema of a PostgreSQL store: the tables of a new store, and the steps from one version to the next.

Only `turnwright migrate` runs the steps. Tables are found by the session's search path. To keep several stores in one
database, give each a schema (`?options=-csearch_path%3Dturns`).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, LiteralString

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from turnwright.errors import ConfigError, StoreError
from turnwright.store.sql import SHARED_TABLES

Connection = AsyncConnection[TupleRow]
#: What leads to one version: a function, or statements. A semicolon ends each statement, and is nowhere else.
Step = LiteralString | Callable[[Connection], Awaitable[None]]

#: The tables of a new store.
#: Ids compare as bytes in every locale, because sub-turns are found by the prefix of their ids.
TABLES: Final = (
    SHARED_TABLES.format(
        prefix="turnwright_",
        number="bigint",
        serial="bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        id='text COLLATE "C"',
        end="",
    )
    + """
    -- `due_at`: from when on a driver may resume the turn. 0 unless it is paused, then the first expiry or NULL.
    CREATE TABLE turnwright_turns (
        turn_id text COLLATE "C" PRIMARY KEY,
        number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
        session text COLLATE "C",
        agent text NOT NULL,
        model text NOT NULL,
        created_at double precision NOT NULL,
        updated_at double precision NOT NULL,
        epoch bigint NOT NULL,
        owner text COLLATE "C",
        state text NOT NULL,
        reason text,
        steps integer NOT NULL,
        tool_calls integer NOT NULL,
        live boolean NOT NULL,
        due_at double precision
    );
    CREATE INDEX turnwright_turns_by_session ON turnwright_turns (session);
    CREATE UNIQUE INDEX turnwright_one_live_turn_a_session ON turnwright_turns (session) WHERE live;
    CREATE INDEX turnwright_live_turns ON turnwright_turns (number) WHERE live;
    -- Not on the state, which changes with each append: an update of no indexed column is cheaper.
    CREATE INDEX turnwright_due_turns ON turnwright_turns (due_at, number)
        WHERE due_at IS NOT NULL AND strpos(turn_id, ':') = 0;

    -- The facts of an append are one row.
    -- The first row under a claim records the driver, also for the rows that follow it.
    CREATE TABLE turnwright_facts (
        turn_id text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        kind text NOT NULL,
        payload text NOT NULL,
        at double precision NOT NULL,
        epoch bigint,
        owner text COLLATE "C",
        PRIMARY KEY (turn_id, seq)
    );

    -- This index has all that the page of agents reads.
    CREATE INDEX turnwright_summaries_by_agent ON turnwright_summaries (agent, model, outcome, reason)
        INCLUDE (number, created_at, cost, measures, names) WHERE root = 1 AND outcome IS NOT NULL;
    -- Long texts are beside the table: a search for a common word reads few pages.
    CREATE TABLE turnwright_search (
        turn_number bigint PRIMARY KEY,
        prompt text NOT NULL,
        answer text NOT NULL,
        words tsvector NOT NULL
    ) WITH (toast_tuple_target = 128);
    CREATE INDEX turnwright_search_words ON turnwright_search USING gin (words);
"""
)


#: Read first in each transaction. A migration waits until that transaction ends.
VERSION: Final = "SELECT version FROM turnwright_schema"


class Schema:
    """Versions of a schema: the step at index n leads from version n to n + 1. Version 0 is a database without tables.

    A released step is never edited, because databases that took it exist.
    """

    def __init__(self, *steps: Step) -> None:
        self._steps: Sequence[Step] = steps
        self.version: Final = len(steps)

    def check(self, row: tuple[object, ...] | None, place: str) -> None:
        """Raise `ConfigError` unless `row`, the result of `VERSION` for the store `place`, has the last version."""
        version = self._read_version(row, place)
        if version < self.version:
            raise self.older(version, place)

    async def migrate(
        self, connection: Connection, place: str, refuse_if_driven: Callable[[], Awaitable[None]]
    ) -> tuple[int, int]:
        """Run the steps that the store has not taken yet, and return the versions before and after.

        Call it in a transaction. Of two concurrent migrations, one waits and finds the work done. `refuse_if_driven`
        raises while a turn is driven. Raises `ConfigError` for a store of a newer release.
        """
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('turnwright migrate', 0))")
        await connection.execute("CREATE TABLE IF NOT EXISTS turnwright_schema (version integer NOT NULL)")
        # This lock waits for the transactions that have read the version, and stops new ones: no driver can start.
        await connection.execute("LOCK TABLE turnwright_schema IN ACCESS EXCLUSIVE MODE")
        row = await (await connection.execute(VERSION)).fetchone()
        before = self._read_version(row, place)
        if before == self.version:
            return before, before
        if row is not None:
            await refuse_if_driven()
            # A driver that lost its lock would still write in the older format: a new epoch stops it. Epoch 0 stays,
            # because it marks a turn that waits for its first driver.
            await connection.execute("UPDATE turnwright_turns SET epoch = epoch + 1 WHERE epoch > 0")
        for step in self._steps[before:]:
            if callable(step):
                await step(connection)
            else:
                for statement in filter(str.strip, step.split(";")):
                    await connection.execute(statement)
        await connection.execute("DELETE FROM turnwright_schema")
        await connection.execute("INSERT INTO turnwright_schema VALUES (%s)", (self.version,))
        return before, self.version

    def older(self, version: int, place: str) -> ConfigError:
        """Return the error for a store of an older release, or for a database without tables of Turnwright."""
        fault = (
            f"schema {version}, this release needs {self.version}" if version else "it has no tables of Turnwright yet"
        )
        # The address is shown without user and options, so the message cannot give the complete command.
        return ConfigError(f"store {place}: {fault}: run `turnwright migrate --store ...` with the same address")

    def _read_version(self, row: tuple[object, ...] | None, place: str) -> int:
        """Return the version in a row, 0 without one. Raises `ConfigError` for a store of a newer release."""
        version = row[0] if row else 0
        if not isinstance(version, int):
            raise damaged(f"its schema version is {version!r:.80}", place)
        if version > self.version:
            raise ConfigError(
                f"store {place}: written by a newer release (schema {version}, this one knows {self.version}):"
                " upgrade turnwright"
            )
        return version


def damaged(why: str | None, place: str) -> StoreError:
    """Return the error for tables that no migration mends."""
    return StoreError(f"store {place}: {why}: the tables are not as this release writes them: restore a copy")


#: The schema of this release.
SCHEMA: Final = Schema(TABLES)
