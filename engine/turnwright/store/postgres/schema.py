"""The schema of a PostgreSQL store: the steps that lead to it, each one version.

A database is not ours: nothing here happens unless somebody asks for it. A step is never edited once it was released:
databases that took it exist. The names are found by the session's search path; a store of its own in a database that
has others is a schema of its own (`?options=-csearch_path%3Dturns`).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, LiteralString

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from turnwright.errors import ConfigError
from turnwright.store.old_words import KINDS, renamed, with_hash

Connection = AsyncConnection[TupleRow]
#: Statements, each of which ends in a semicolon and has none in it, or a function.
Step = LiteralString | Callable[[Connection], Awaitable[None]]


async def _rename_words(connection: Connection) -> None:
    """Write journals and inboxes in the words of today."""

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


#: From version n to n + 1, at place n. Ids compare as bytes, whatever the database's locale is: sub-turns are found by
#: how their ids begin.
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
    # The first fact under a claim keeps who wrote it, and with it all up to the next such fact.
    """
    ALTER TABLE turnwright_facts ADD COLUMN epoch bigint, ADD COLUMN owner text COLLATE "C";
    """,
    _rename_words,
)

SCHEMA_VERSION: Final = len(STEPS)

#: Read before anything else. Who has read it keeps a migration waiting until the end of the transaction.
VERSION: Final = "SELECT version FROM turnwright_schema"


def check(row: tuple[int, ...] | None, place: str) -> None:
    """Raise `ConfigError` unless `row`, which `VERSION` gave for the store at `place`, has this release's version."""
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
    """Take those of `steps` that the store has not taken yet, and return the versions before and after.

    To be called in a transaction, of which all happens or nothing. Of two that do it at once, one waits and finds it
    done. `refuse_if_driven` raises while somebody drives a turn. Raises `ConfigError` for a store of a newer release.
    """
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('turnwright migrate', 0))")
    await connection.execute("CREATE TABLE IF NOT EXISTS turnwright_schema (version integer NOT NULL)")
    # Who reads the version waits from here on, and whoever has read it is waited for: nobody begins to drive.
    await connection.execute("LOCK TABLE turnwright_schema IN ACCESS EXCLUSIVE MODE")
    row = await (await connection.execute(VERSION)).fetchone()
    version: int = row[0] if row else 0
    if version > len(steps):
        raise _newer(version, place, len(steps))
    if version == len(steps):
        return version, version
    if row is not None:
        await refuse_if_driven()
        # A driver that has lost its lock still writes as the older release does: it is fenced. No driver had a turn of
        # epoch 0, by which a turn is known that waits for its first one.
        await connection.execute("UPDATE turnwright_turns SET epoch = epoch + 1 WHERE epoch > 0")
    for step in steps[version:]:
        if callable(step):
            await step(connection)
        else:
            for statement in step.split(";"):
                await connection.execute(statement)
    await connection.execute("DELETE FROM turnwright_schema")
    await connection.execute("INSERT INTO turnwright_schema VALUES (%s)", (len(steps),))
    return version, len(steps)


def older(version: int, place: str) -> ConfigError:
    """The error for a store of an older release, or for a database that holds none."""
    what = f"schema {version}, this release needs {SCHEMA_VERSION}" if version else "it has no tables of Turnwright yet"
    # The user, and options, are not shown: the address as it stands here may not be enough.
    return ConfigError(f"store {place}: {what}: run `turnwright migrate --store ...` with the same address")


def _newer(version: int, place: str, known: int) -> ConfigError:
    return ConfigError(
        f"store {place}: written by a newer release (schema {version}, this one knows {known}): upgrade turnwright"
    )
