"""The longer statements of a SQLite store. `store/rows.py` reads the rows that they return."""

from typing import Final

from turnwright.store.protocol import RESUMING_KINDS
from turnwright.store.rows import LAST_SEQ

#: The columns of `rows.turn_row`, and where they are. A turn has the status that was written with its last facts.
#: A turn without facts is damaged, but is included.
TURN_COLUMNS: Final = (
    "turn_id, session, agent, model, created_at, at, turns.epoch, turns.owner, state, steps, tool_calls, reason, live,"
    " number, due_at"
)
LAST_FACT: Final = (
    "facts ON facts.turn = number AND facts.seq = (SELECT MAX(last.seq) FROM facts AS last WHERE last.turn = number)"
)
TURNS: Final = f"SELECT {TURN_COLUMNS} FROM turns LEFT JOIN {LAST_FACT}"  # noqa: S608 (constant)
#: The columns of `rows.session_info`, from the newest `:limit` sessions below `:before`. The last turn was written to
#: last, because a session's earlier turns have ended; its last fact has a time.
SESSIONS: Final = """
    SELECT session, title, (SELECT count(*) FROM turns WHERE turns.session = page.session),
        (SELECT created_at FROM turns WHERE turns.session = page.session ORDER BY number LIMIT 1),
        (SELECT at FROM facts WHERE turn = (SELECT max(number) FROM turns WHERE turns.session = page.session)
            ORDER BY seq DESC LIMIT 1),
        (SELECT turn_id FROM turns WHERE turns.session = page.session AND live = 1), number
    FROM (SELECT * FROM sessions WHERE number < :before ORDER BY number DESC LIMIT :limit) AS page
    ORDER BY number DESC
"""
_KINDS: Final = ", ".join(f"'{kind}'" for kind in sorted(RESUMING_KINDS))
_REQUESTED: Final = f"SELECT turn_id FROM inbox WHERE kind IN ({_KINDS})"  # noqa: S608 (constants)
#: Turns that may be due at the time :now, in three queries that an index gives in the order of their numbers: not
#: paused, with an expired interrupt, and with a request in the inbox.
DUE: Final = tuple(
    f"{TURNS} WHERE {condition} AND instr(turn_id, ':') = 0 ORDER BY number"
    for condition in (
        "due_at = 0",
        "due_at > 0 AND due_at <= :now",
        f"live = 1 AND (due_at IS NULL OR due_at > :now) AND turn_id IN ({_REQUESTED})",
    )
)
#: The items of a turn's inbox.
WAITING: Final = "SELECT id, kind, payload FROM inbox WHERE turn_id = ? ORDER BY n"
#: The columns of `rows.read_claim`, and the due time.
CLAIMED: Final = f"""
    SELECT epoch, owner, (SELECT {LAST_SEQ} FROM facts WHERE turn = number ORDER BY seq DESC LIMIT 1), due_at
    FROM turns WHERE turn_id = ?
"""  # noqa: S608 (constant)
#: The facts after fact :after of the turn with the number :turn. The first row may begin before them.
FACTS: Final = """
    SELECT seq, kind, payload FROM facts WHERE turn = :turn
    AND seq >= ifnull((SELECT MAX(seq) FROM facts WHERE turn = :turn AND seq <= :after + 1), 0) ORDER BY seq
"""
#: The fields of each `ClaimSpan` of the turn with the number :turn. A span begins with a row that records its driver.
#: It ends with the last row before the next such row, or with the turn's last row.
CLAIM_SPANS: Final = """
    SELECT seq, epoch, owner, at, (
        SELECT at FROM facts WHERE turn = :turn AND (next IS NULL OR seq < next) ORDER BY seq DESC LIMIT 1
    ) FROM (
        SELECT seq, epoch, owner, at, LEAD(seq) OVER (ORDER BY seq) AS next
        FROM facts WHERE turn = :turn AND epoch IS NOT NULL
    ) ORDER BY seq
"""
#: The columns of `copies.append_columns`.
COPIES: Final = "SELECT seq, kind, at, epoch, state, reason, steps, tool_calls FROM facts"
#: Above the number of every session.
LAST: Final = 2**63 - 1
#: The turn :id, and the turns whose ids begin with it and a colon. The semicolon is the character after the colon.
FAMILY: Final = "(turn_id = :id OR (turn_id > :id || ':' AND turn_id < :id || ';'))"
#: Deletes the sessions whose turns are all in a family that is about to be deleted.
EMPTY_SESSIONS: Final = f"""
    DELETE FROM sessions WHERE session IN (SELECT session FROM turns WHERE {FAMILY})
    AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.session AND NOT {FAMILY})
"""  # noqa: S608 (constant)
