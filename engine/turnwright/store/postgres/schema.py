"""The schema of a PostgreSQL store, as migration steps. Each step is one version.

Only `turnwright migrate` runs the steps. A released step is never edited, because databases that took it exist. Tables
are found by the session's search path. To keep several stores in one database, give each a schema
(`?options=-csearch_path%3Dturns`).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, LiteralString

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from turnwright.errors import ConfigError
from turnwright.store.old_words import KINDS, renamed, with_hash
from turnwright.store.sessions import title_of

from .summary_schema import ANNOTATIONS, MEASURES, SUMMARIES, TAGS, TOOLS, UNNAMED

Connection = AsyncConnection[TupleRow]
#: A function, or statements. Each statement ends with a semicolon and contains no other semicolon.
Step = LiteralString | Callable[[Connection], Awaitable[None]]


async def _rename_words(connection: Connection) -> None:
    """Translate journals and inboxes into today's words."""

    async def rows(query: LiteralString, *values: object) -> list[TupleRow]:
        return await (await connection.execute(query, values)).fetchall()

    some: LiteralString = (
        "SELECT turn_id, seq, payload FROM turnwright_facts WHERE kind = %s AND (turn_id, seq) > (%s, %s)"
        " ORDER BY turn_id, seq LIMIT 500"
    )
    for old, new in KINDS.items():
        after = ("", 0)
        while found := await rows(some, old, *after):
            for turn, seq, payload in found:
                change = "UPDATE turnwright_facts SET kind = %s, payload = %s WHERE turn_id = %s AND seq = %s"
                await connection.execute(change, (new, renamed(payload), turn, seq))
            after = found[-1][:2]
    for (turn,) in await rows("SELECT turn_id FROM turnwright_turns WHERE reason = 'synthesised'"):
        journal = await rows("SELECT kind, payload, seq FROM turnwright_facts WHERE turn_id = %s ORDER BY seq", turn)
        last = with_hash([(kind, payload) for kind, payload, _ in journal])
        change = "UPDATE turnwright_facts SET payload = %s WHERE turn_id = %s AND seq = %s"
        await connection.execute(change, (last, turn, journal[-1][2]))
    await connection.execute("UPDATE turnwright_turns SET reason = 'synthesized' WHERE reason = 'synthesised'")
    for number, payload in await rows("SELECT n, payload FROM turnwright_inbox WHERE kind = 'answer'"):
        await connection.execute("UPDATE turnwright_inbox SET payload = %s WHERE n = %s", (renamed(payload), number))


async def _title_sessions(connection: Connection) -> None:
    """Give each session a row, with the number of its last turn and a title from its first prompt."""
    await connection.execute(
        """
        CREATE TABLE turnwright_sessions (
            session text COLLATE "C" PRIMARY KEY,
            title text NOT NULL,
            number bigint NOT NULL UNIQUE
        )
        """
    )
    named: LiteralString = "FROM turnwright_turns WHERE session IS NOT NULL GROUP BY session"
    await connection.execute(f"INSERT INTO turnwright_sessions SELECT session, '', max(number) {named}")
    query: LiteralString = f"SELECT min(number), max(number) {named}"
    for first, last in await (await connection.execute(query)).fetchall():
        began = await connection.execute(
            "SELECT payload FROM turnwright_facts JOIN turnwright_turns USING (turn_id) WHERE number = %s AND seq = 1",
            (first,),
        )
        for (payload,) in await began.fetchall():
            await connection.execute(
                "UPDATE turnwright_sessions SET title = %s WHERE number = %s", (title_of(payload), last)
            )


#: The step at index n leads from version n to n + 1. Ids compare as bytes in every locale, because sub-turns are found
#: by the prefix of their ids.
STEPS: Final[tuple[Step, ...]] = (
    """
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
        live boolean NOT NULL
    );
    CREATE INDEX turnwright_turns_by_session ON turnwright_turns (session);
    CREATE UNIQUE INDEX turnwright_one_live_turn_a_session ON turnwright_turns (session) WHERE live;
    CREATE TABLE turnwright_facts (
        turn_id text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        kind text NOT NULL,
        payload text NOT NULL,
        at double precision NOT NULL,
        PRIMARY KEY (turn_id, seq)
    );
    CREATE TABLE turnwright_inbox (
        n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        turn_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        kind text NOT NULL,
        payload text NOT NULL,
        at double precision NOT NULL,
        UNIQUE (turn_id, id)
    );
    """,
    # The first fact under a claim records its driver, also for the facts that follow it.
    """
    ALTER TABLE turnwright_facts ADD COLUMN epoch bigint, ADD COLUMN owner text COLLATE "C";
    """,
    _rename_words,
    _title_sessions,
    # From here on the facts of an append are one row (`store/rows.py`). Earlier rows, of one fact each, stay valid.
    "",
    # Readers fill the summaries from the journals. Each turn has a row from its creation.
    SUMMARIES,
    ANNOTATIONS,
    TAGS,
    # From here on the names in summaries have no secrets: readers write them.
    UNNAMED,
    TOOLS,
    MEASURES,
)

SCHEMA_VERSION: Final = len(STEPS)

#: Read first in each transaction. A migration waits until that transaction ends.
VERSION: Final = "SELECT version FROM turnwright_schema"


def check(row: tuple[int, ...] | None, place: str) -> None:
    """Raise `ConfigError` unless `row`, the result of `VERSION` for the store `place`, has this release's version."""
    version = row[0] if row else 0
    if version > SCHEMA_VERSION:
        raise _newer(version, place, SCHEMA_VERSION)
    if version < SCHEMA_VERSION:
        raise older(version, place)


async def migrate(
    connection: Connection,
    place: str,
    refuse_if_driven: Callable[[], Awaitable[None]],
    steps: Sequence[Step] = STEPS,
) -> tuple[int, int]:
    """Run the `steps` that the store has not taken yet, and return the versions before and after.

    Call it in a transaction. Of two concurrent migrations, one waits and finds the work done. `refuse_if_driven` raises
    while a turn is driven. Raises `ConfigError` for a store of a newer release.
    """
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('turnwright migrate', 0))")
    await connection.execute("CREATE TABLE IF NOT EXISTS turnwright_schema (version integer NOT NULL)")
    # This lock waits for the transactions that have read the version, and stops new ones: no driver can start.
    await connection.execute("LOCK TABLE turnwright_schema IN ACCESS EXCLUSIVE MODE")
    row = await (await connection.execute(VERSION)).fetchone()
    version: int = row[0] if row else 0
    if version > len(steps):
        raise _newer(version, place, len(steps))
    if version == len(steps):
        return version, version
    if row is not None:
        await refuse_if_driven()
        # A driver that lost its lock would still write in the older format: a new epoch stops it. Epoch 0 stays,
        # because it marks a turn that waits for its first driver.
        await connection.execute("UPDATE turnwright_turns SET epoch = epoch + 1 WHERE epoch > 0")
    for step in steps[version:]:
        if callable(step):
            await step(connection)
        else:
            for statement in filter(str.strip, step.split(";")):
                await connection.execute(statement)
    await connection.execute("DELETE FROM turnwright_schema")
    await connection.execute("INSERT INTO turnwright_schema VALUES (%s)", (len(steps),))
    return version, len(steps)


def older(version: int, place: str) -> ConfigError:
    """Return the error for a store of an older release, or for a database without tables of Turnwright."""
    what = f"schema {version}, this release needs {SCHEMA_VERSION}" if version else "it has no tables of Turnwright yet"
    # The address is shown without user and options, so the message cannot give the complete command.
    return ConfigError(f"store {place}: {what}: run `turnwright migrate --store ...` with the same address")


def _newer(version: int, place: str, known: int) -> ConfigError:
    return ConfigError(
        f"store {place}: written by a newer release (schema {version}, this one knows {known}): upgrade turnwright"
    )
