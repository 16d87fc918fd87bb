"""The statements of a PostgreSQL store that stand in more than one place, or write.

A store that tells others of what it writes has statements of its own for that. `NOTIFY` takes a lock of the whole
database when it is committed, so a store that does not tell must not pay for it.
"""

# ruff: noqa: S608 (every query is made of constants)

from typing import Final, LiteralString, NamedTuple

from .rows import COLUMNS

#: Where stores tell that something was written to a turn, whose id is the payload. A channel is known in its whole
#: database: another schema with a turn of the same id only makes a reader look once more.
CHANNEL: Final = "turnwright"

ONE: Final = f"SELECT {COLUMNS} FROM turnwright_turns WHERE turn_id = %s"
#: The columns of `rows.claimed`, before the last seq can be asked for: whoever waits for the row sees an older one.
LOCKED: Final = "SELECT epoch, owner, 0 FROM turnwright_turns WHERE turn_id = %s FOR UPDATE"
#: The turn :id, and those whose ids begin with it and a colon: the semicolon is the next character.
FAMILY: Final = "(turn_id = %(id)s OR (turn_id > %(id)s || ':' AND turn_id < %(id)s || ';'))"
WAITING: Final = "SELECT id, kind, payload FROM turnwright_inbox WHERE turn_id = %s ORDER BY n"
CREATE: Final = """
    INSERT INTO turnwright_turns (turn_id, session, agent, model, created_at, updated_at, epoch, owner,
        state, reason, steps, tool_calls, live)
    VALUES (%(turn)s, %(session)s, %(agent)s, %(model)s, %(at)s, %(at)s, %(epoch)s, %(owner)s,
        %(state)s, %(reason)s, %(steps)s, %(calls)s, %(live)s)
    ON CONFLICT DO NOTHING RETURNING turn_id
"""
#: The place, epoch, owner and time of the facts that keep their driver. Each span ends before the next one begins,
#: or with the last fact. A turn without any is one row of nulls.
CLAIM_SPANS: Final = """
    SELECT first.seq, first.epoch, first.owner, first.at, (
        SELECT last.at FROM turnwright_facts last WHERE last.turn_id = turn.turn_id
        AND last.seq = coalesce(first.next - 1, (SELECT max(seq) FROM turnwright_facts WHERE turn_id = turn.turn_id))
    ) FROM turnwright_turns turn LEFT JOIN LATERAL (
        SELECT seq, epoch, owner, at, LEAD(seq) OVER (ORDER BY seq) AS next
        FROM turnwright_facts WHERE turn_id = turn.turn_id AND epoch IS NOT NULL
    ) first ON true WHERE turn.turn_id = %s ORDER BY first.seq
"""
#: Facts that come as two arrays, after place `seq`, for the one turn of the table `claimed` or for none. The first of
#: them keeps its driver if the claim says so.
_WRITE: Final = """
    INSERT INTO turnwright_facts (turn_id, seq, kind, payload, at, epoch, owner)
    SELECT claimed.turn_id, %(seq)s + fact.n, fact.kind, fact.payload, %(at)s,
        CASE WHEN fact.n = 1 AND %(signs)s::text IS NOT NULL THEN %(epoch)s::bigint END,
        CASE WHEN fact.n = 1 THEN %(signs)s::text END
    FROM claimed, unnest(%(kinds)s::text[], %(payloads)s::text[]) WITH ORDINALITY AS fact (kind, payload, n)
"""


class Writes(NamedTuple):
    """What others may want to be told of. Each gives a row for each turn that it has written to, or item posted."""

    #: The first facts of a turn that was just made.
    begin: LiteralString
    append: LiteralString
    release: LiteralString
    post: LiteralString


def _writes(said: LiteralString) -> Writes:
    """The statements, each of which says `said` of what it has written."""
    return Writes(
        begin=f"WITH claimed AS (SELECT %(turn)s::text AS turn_id), written AS ({_WRITE}) SELECT {said} FROM claimed",
        append=f"""
            WITH claimed AS (
                UPDATE turnwright_turns SET updated_at = %(at)s, state = %(state)s, reason = %(reason)s,
                    steps = %(steps)s, tool_calls = %(calls)s, live = %(live)s
                WHERE turn_id = %(turn)s AND epoch = %(epoch)s RETURNING turn_id
            ), written AS ({_WRITE}), consumed AS (
                DELETE FROM turnwright_inbox USING claimed
                WHERE turnwright_inbox.turn_id = claimed.turn_id AND id = ANY(%(consumed)s)
            ) SELECT {said} FROM claimed
        """,
        release=f"""
            WITH released AS (
                UPDATE turnwright_turns SET owner = %(owner)s WHERE turn_id = %(turn)s AND epoch = %(epoch)s
                RETURNING turn_id
            ) SELECT {said} FROM released
        """,
        post=f"""
            WITH posted AS (
                INSERT INTO turnwright_inbox (turn_id, id, kind, payload, at)
                SELECT %(turn)s, item.id, item.kind, item.payload, %(at)s
                FROM unnest(%(ids)s::text[], %(kinds)s::text[], %(payloads)s::text[]) WITH ORDINALITY
                    AS item (id, kind, payload, place)
                ORDER BY item.place ON CONFLICT DO NOTHING RETURNING turn_id
            ) SELECT {said} FROM posted
        """,
    )


#: Those of a store that tells nobody.
QUIET: Final = _writes("turn_id")
#: Those of one that tells all who listen, when the transaction is committed, and says a turn's id once in each.
TELLING: Final = _writes(f"pg_notify('{CHANNEL}', turn_id)")
