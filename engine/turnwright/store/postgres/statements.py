"""The statements of a PostgreSQL store that write, or that are used more than once, and their parameters.

A store that notifies has write statements of its own: a commit with `NOTIFY` locks the database, and a store without
notifications must not pay for that.
"""

# ruff: noqa: S608 (every query is made of constants)

from collections.abc import Sequence
from typing import Final, LiteralString, NamedTuple

from turnwright.store.outbox import NoticedFact
from turnwright.store.protocol import Status
from turnwright.store.rows import LAST_SEQ, join_facts
from turnwright_states.facts import Fact

from .owner_lock import KEY
from .pipeline import Statement
from .schema import VERSION

#: The columns of `rows.turn_row`.
COLUMNS: Final = (
    "turn_id, session, agent, model, created_at, updated_at, epoch, owner, state, steps, tool_calls, reason, live,"
    " number, due_at"
)
#: The channel of notifications. The payload is the id of the turn that was written to. A channel covers the database:
#: a turn with the same id in another schema only causes one more read.
CHANNEL: Final = "turnwright"

ONE: Final = f"SELECT {COLUMNS} FROM turnwright_turns WHERE turn_id = %s"
#: The turn, and whether its owner lives, if that is another process. The lock is shared, and ends with the statement.
ONE_WITH_LIFE: Final = Statement(
    "turnwright_row",
    f"""
    SELECT {COLUMNS}, CASE WHEN owner IS NULL OR owner = '' OR owner = %(owner)s THEN false
        ELSE NOT pg_try_advisory_xact_lock_shared({KEY.replace("%s", "owner")}) END
    FROM turnwright_turns WHERE turn_id = %(turn)s
    """,
)
#: The columns of `rows.read_claim`, with 0 as the last seq: a query that waits for the row lock would see an older seq.
LOCKED: Final = "SELECT epoch, owner, 0 FROM turnwright_turns WHERE turn_id = %s FOR UPDATE"
#: The turn :id, and the turns whose ids begin with it and a colon. The semicolon is the character after the colon.
_FAMILY: Final = "(turn_id = %(id)s OR (turn_id > %(id)s || ':' AND turn_id < %(id)s || ';'))"
_NUMBERS: Final = f"SELECT number FROM turnwright_turns WHERE {_FAMILY}"
LOCK_FAMILY: Final = f"SELECT turn_id, owner, session FROM turnwright_turns WHERE {_FAMILY} ORDER BY turn_id FOR UPDATE"
#: Delete a family of turns. The last statement counts them.
DELETE_FAMILY: Final = (
    f"DELETE FROM turnwright_search WHERE turn_number IN ({_NUMBERS})",
    f"DELETE FROM turnwright_failures WHERE number IN ({_NUMBERS})",
    f"DELETE FROM turnwright_tools WHERE number IN ({_NUMBERS})",
    f"DELETE FROM turnwright_summaries WHERE number IN ({_NUMBERS})",
    f"DELETE FROM turnwright_facts WHERE {_FAMILY}",
    f"DELETE FROM turnwright_annotations WHERE {_FAMILY}",
    f"DELETE FROM turnwright_inbox WHERE {_FAMILY}",
    f"DELETE FROM turnwright_outbox WHERE {_FAMILY}",
    f"DELETE FROM turnwright_turns WHERE {_FAMILY}",
)
#: The facts after fact `after`. The first row may begin before them. A turn without such a row is one row of nulls, and
#: a missing turn is not a row.
FACTS: Final = Statement(
    "turnwright_facts",
    """
    SELECT seq, kind, payload FROM turnwright_turns turn LEFT JOIN turnwright_facts fact
    ON fact.turn_id = turn.turn_id AND seq >= coalesce(
        (SELECT max(seq) FROM turnwright_facts WHERE turn_id = %(turn)s AND seq <= %(after)s::bigint + 1), 0
    ) WHERE turn.turn_id = %(turn)s ORDER BY seq
    """,
)
#: The facts of several turns.
FACTS_OF: Final = Statement(
    "turnwright_facts_of",
    "SELECT turn_id, seq, kind, payload FROM turnwright_facts WHERE turn_id = ANY(%(turns)s) ORDER BY seq",
)
#: Of `RESUMING_KINDS`.
_RESUMING: Final = "kind IN ('abort', 'answer')"
#: A root turn that no living driver owns: its lock would be held. The locks that this takes are shared, and end with
#: the transaction. The turns of this process have its name.
_FREE: Final = f"""
    strpos(turn_id, ':') = 0 AND NOT turn_id = ANY(%(skipped)s::text[]) AND updated_at <= %(written)s::double precision
    AND (owner IS NULL OR owner = '' OR CASE WHEN owner = %(owner)s THEN NOT turn_id = ANY(%(driven)s::text[])
        ELSE pg_try_advisory_xact_lock_shared({KEY.replace("%s", "owner")}) END)
"""


def _make_due_query(lock: LiteralString) -> LiteralString:
    """Return the query for turns that are due at the time `now`. Each part reads an index in its order.

    `lock` locks the rows, and gives them as they are then.
    """
    return f"""
        WITH queued AS (
            SELECT {COLUMNS} FROM turnwright_turns WHERE due_at = 0 AND {_FREE}
            ORDER BY number LIMIT %(limit)s {lock}
        ), expired AS (
            SELECT {COLUMNS} FROM turnwright_turns WHERE due_at > 0 AND due_at <= %(now)s::double precision AND {_FREE}
            ORDER BY due_at, number LIMIT %(limit)s {lock}
        ), requested AS (
            SELECT {COLUMNS} FROM turnwright_turns WHERE live AND (due_at IS NULL OR due_at > %(now)s::double precision)
            AND turn_id IN (SELECT turn_id FROM turnwright_inbox WHERE {_RESUMING}) AND {_FREE}
            ORDER BY number LIMIT %(limit)s {lock}
        ) SELECT {COLUMNS} FROM (TABLE queued UNION ALL TABLE expired UNION ALL TABLE requested) due
        ORDER BY number LIMIT %(limit)s
    """


DUE: Final = _make_due_query("")
#: Without turns that another driver is claiming.
DUE_LOCKED: Final = Statement("turnwright_due", _make_due_query("FOR UPDATE SKIP LOCKED"))
#: Claims turns whose rows are locked. The columns of `rows.read_claim` follow the id.
CLAIM_LOCKED: Final = Statement(
    "turnwright_claim",
    f"""
    UPDATE turnwright_turns SET epoch = epoch + 1, owner = %(owner)s WHERE turn_id = ANY(%(turns)s)
    RETURNING turn_id, epoch, owner, (
        SELECT {LAST_SEQ} FROM turnwright_facts f WHERE f.turn_id = turnwright_turns.turn_id
        ORDER BY seq DESC LIMIT 1
    )
    """,
)
#: The items in the inboxes of several turns.
WAITING_FOR: Final = Statement(
    "turnwright_waiting",
    "SELECT turn_id, id, kind, payload FROM turnwright_inbox WHERE turn_id = ANY(%(turns)s) ORDER BY n",
)
#: Those of one turn.
WAITING: Final = "SELECT id, kind, payload FROM turnwright_inbox WHERE turn_id = %(turn)s ORDER BY n"
INBOX: Final = Statement("turnwright_inbox", WAITING)
#: Seq, epoch, owner and time of each row that records its driver, and the time of the span's last row. A span ends
#: before the next one, or with the last fact. A turn without spans is one row of nulls.
CLAIM_SPANS: Final = """
    SELECT first.seq, first.epoch, first.owner, first.at, (
        SELECT last.at FROM turnwright_facts last WHERE last.turn_id = turn.turn_id
        AND (first.next IS NULL OR last.seq < first.next) ORDER BY last.seq DESC LIMIT 1
    ) FROM turnwright_turns turn LEFT JOIN LATERAL (
        SELECT seq, epoch, owner, at, LEAD(seq) OVER (ORDER BY seq) AS next
        FROM turnwright_facts WHERE turn_id = turn.turn_id AND epoch IS NOT NULL
    ) first ON true WHERE turn.turn_id = %s ORDER BY first.seq
"""
#: The columns of a turn that copy its facts, and after them, in `COPIES`, those of `copies.append_columns`.
COPIES_OF_TURN: Final = (
    "created_at",
    "updated_at",
    "epoch",
    "live",
    "state",
    "reason",
    "steps",
    "tool_calls",
    "due_at",
)
COPIES: Final = f"""
    SELECT {", ".join(f"turn.{name}" for name in COPIES_OF_TURN)}, fact.seq, fact.kind, fact.at, fact.epoch
    FROM turnwright_turns turn JOIN turnwright_facts fact USING (turn_id) WHERE turn_id = %s ORDER BY fact.seq
"""
#: The columns of `rows.session_info`, of the newest sessions below `before`.
SESSIONS: Final = """
    SELECT page.session, title, count(*), min(created_at), max(updated_at), max(turn_id) FILTER (WHERE live),
        page.number
    FROM (
        SELECT * FROM turnwright_sessions WHERE %(before)s::bigint IS NULL OR number < %(before)s
        ORDER BY number DESC LIMIT %(limit)s
    ) page JOIN turnwright_turns turn ON turn.session = page.session
    GROUP BY page.session, title, page.number ORDER BY page.number DESC
"""
#: Locks a session. A turn that was just created in it is visible to the next statement.
LOCK_SESSIONS: Final = (
    "SELECT session FROM turnwright_sessions WHERE session = ANY(%(sessions)s) ORDER BY session FOR UPDATE"
)
#: Deletes those of some sessions that have no turns.
EMPTY_SESSIONS: Final = """
    DELETE FROM turnwright_sessions WHERE session = ANY(%(sessions)s)
    AND NOT EXISTS (SELECT FROM turnwright_turns turn WHERE turn.session = turnwright_sessions.session)
"""
#: Inserts the facts of an append, if it has any, for the one turn in the table `claimed`, or for none. The row records
#: the driver if `unrecorded_owner` is given.
_WRITE: Final = """
    INSERT INTO turnwright_facts (turn_id, seq, kind, payload, at, epoch, owner)
    SELECT turn_id, %(seq)s, %(kinds)s::text, %(payloads)s::text, %(at)s,
        CASE WHEN %(unrecorded_owner)s::text IS NOT NULL THEN %(epoch)s::bigint END, %(unrecorded_owner)s::text
    FROM claimed WHERE %(kinds)s::text IS NOT NULL
"""


#: A row if the turn has this epoch.
HOLDS: Final = "SELECT turn_id FROM turnwright_turns WHERE turn_id = %(turn)s AND epoch = %(epoch)s"
#: Whether the facts of an append follow the last one. A turn that was deleted and created again may have the epoch of
#: an outdated claim.
_FOLLOWS: Final = f"""
    %(seq)s = 1 + coalesce((
        SELECT {LAST_SEQ} FROM turnwright_facts WHERE turn_id = %(turn)s ORDER BY seq DESC LIMIT 1
    ), 0)
"""
#: The clauses of an append: what follows in the statement selects from `claimed`.
_APPEND: Final = f"""
    WITH claimed AS (
        UPDATE turnwright_turns SET updated_at = %(at)s, state = %(state)s, reason = %(reason)s,
            steps = %(steps)s, tool_calls = %(calls)s, live = %(live)s, due_at = %(due_at)s
        WHERE turn_id = %(turn)s AND epoch = %(epoch)s AND (%(kinds)s::text IS NULL OR {_FOLLOWS})
        RETURNING turn_id
    ), written AS ({_WRITE}), consumed AS (
        DELETE FROM turnwright_inbox USING claimed
        WHERE turnwright_inbox.turn_id = claimed.turn_id AND id = ANY(%(consumed)s)
    )
"""


#: The clauses of a creation, likewise.
_CREATE: Final = f"""
    WITH claimed AS (
        INSERT INTO turnwright_turns (turn_id, session, agent, model, created_at, updated_at, epoch, owner,
            state, reason, steps, tool_calls, live, due_at)
        SELECT %(turn)s::text, %(session)s::text, %(agent)s::text, %(model)s::text, %(at)s::double precision,
            %(at)s::double precision, %(epoch)s::bigint, %(owner)s::text, %(state)s::text, %(reason)s::text,
            %(steps)s::integer, %(calls)s::integer, %(live)s::boolean, %(due_at)s::double precision
        WHERE ({VERSION}) = %(version)s::integer
            AND NOT EXISTS (SELECT FROM turnwright_turns WHERE session = %(session)s::text AND live)
        ON CONFLICT DO NOTHING RETURNING turn_id, number, session, created_at
    ), written AS ({_WRITE}), joined AS (
        INSERT INTO turnwright_sessions (session, title, number)
        SELECT session, %(title)s::text, number FROM claimed WHERE session IS NOT NULL
        ON CONFLICT (session) DO UPDATE SET number = excluded.number
    ), summarized AS (
        INSERT INTO turnwright_summaries (number, names, root, agent, model, created_at)
        SELECT number, '', (strpos(turn_id, ':') = 0)::integer, '', '', created_at FROM claimed
    )
"""
#: A notice of each of these facts for each subscription.
_NOTICED: Final = """
    noticed AS (
        INSERT INTO turnwright_outbox (name, turn_id, seq, kind, at)
        SELECT subscription.name, claimed.turn_id, fact.seq, fact.kind, %(at)s
        FROM claimed, turnwright_subscriptions subscription,
            unnest(%(noticed_seqs)s::bigint[], %(noticed_kinds)s::text[]) AS fact (seq, kind)
        ORDER BY fact.seq, subscription.name ON CONFLICT DO NOTHING
    )
"""


class Writes(NamedTuple):
    """The statements that may notify. Each returns a row for each turn written to, or for each item posted."""

    #: Writes a new turn with its first facts, and its summary without names and totals, which readers write: drivers do
    #: not look for secrets. Writes nothing for an id that exists, a session with an open turn, or another schema.
    create: LiteralString
    #: The same for facts that subscribers are notified of.
    create_noticed: LiteralString
    append: LiteralString
    append_noticed: LiteralString
    release: LiteralString
    post: LiteralString


def _writes(result: LiteralString) -> Writes:
    """Return the statements. Each selects the expression `result` for the turns that it has written to."""
    return Writes(
        create=f"{_CREATE} SELECT {result} FROM claimed",
        create_noticed=f"{_CREATE}, {_NOTICED} SELECT {result} FROM claimed",
        append=f"{_APPEND} SELECT {result} FROM claimed",
        append_noticed=f"{_APPEND}, {_NOTICED} SELECT {result} FROM claimed",
        release=f"""
            WITH released AS (
                UPDATE turnwright_turns SET owner = %(owner)s WHERE turn_id = %(turn)s AND epoch = %(epoch)s
                RETURNING turn_id
            ) SELECT {result} FROM released
        """,
        post=f"""
            WITH posted AS (
                INSERT INTO turnwright_inbox (turn_id, id, kind, payload, at)
                SELECT %(turn)s, item.id, item.kind, item.payload, %(at)s
                FROM unnest(%(ids)s::text[], %(kinds)s::text[], %(payloads)s::text[]) WITH ORDINALITY
                    AS item (id, kind, payload, place)
                ORDER BY item.place ON CONFLICT (turn_id, id)
                    DO UPDATE SET payload = excluded.payload, at = excluded.at WHERE turnwright_inbox.kind = 'progress'
                RETURNING turn_id
            ) SELECT {result} FROM posted
        """,
    )


#: The statements of a store that does not notify.
QUIET: Final = _writes("turn_id")
#: The statements of a store that notifies, once for each turn in a transaction, when it is committed.
TELLING: Final = _writes(f"pg_notify('{CHANNEL}', turn_id)")


def parameters_of_notices(notices: Sequence[NoticedFact]) -> dict[str, object]:
    """Return the parameters of facts that subscribers are notified of."""
    return {"noticed_seqs": [str(fact.seq) for fact in notices], "noticed_kinds": [fact.kind for fact in notices]}


def parameters_of(facts: Sequence[Fact], seq: int, at: float) -> dict[str, object]:
    """Return the parameters of facts that follow fact `seq` and are written at the time `at`."""
    kinds, payloads = join_facts(facts) if facts else (None, None)
    return {"seq": seq + 1, "at": at, "kinds": kinds, "payloads": payloads}


def status_of(status: Status) -> dict[str, object]:
    """Return the parameters of a status."""
    return {
        "state": status.state.value,
        "reason": None if status.reason is None else status.reason.value,
        "steps": status.steps,
        "calls": status.tool_calls,
        "live": status.outcome is None,
        "due_at": status.due_at,
    }
