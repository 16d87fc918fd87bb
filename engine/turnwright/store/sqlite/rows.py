"""The longer queries of a SQLite store. `store/rows.py` reads the resulting rows."""

from typing import Final

#: The columns of `rows.turn_row`. A turn has the status that was written with its last fact. A turn without such a fact
#: is damaged, but is included.
TURNS: Final = """
    SELECT turn_id, session, agent, model, created_at, at, turns.epoch, turns.owner, state, steps, tool_calls, reason,
        live, number
    FROM turns LEFT JOIN facts ON turn = number AND seq = (
        SELECT MAX(seq) FROM facts WHERE turn = number AND state IS NOT NULL
    )
"""
#: The columns of `rows.session_info`, from the newest `:limit` sessions below `:before`. The last turn was written to
#: last, because a session's earlier turns have ended; its last fact has a time.
SESSIONS: Final = """
    SELECT session, title, turns, created_at,
        (SELECT at FROM facts WHERE turn = last ORDER BY seq DESC LIMIT 1), open_turn, number
    FROM (
        SELECT page.session, title, count(*) AS turns, min(created_at) AS created_at, max(turns.number) AS last,
            max(CASE WHEN live = 1 THEN turn_id END) AS open_turn, page.number AS number
        FROM (SELECT * FROM sessions WHERE number < :before ORDER BY number DESC LIMIT :limit) AS page
        JOIN turns ON turns.session = page.session GROUP BY page.session
    ) ORDER BY number DESC
"""
#: The items of a turn's inbox.
WAITING: Final = "SELECT id, kind, payload FROM inbox WHERE turn_id = ? ORDER BY n"
#: The columns of `rows.claimed`.
CLAIMED: Final = "SELECT epoch, owner, (SELECT MAX(seq) FROM facts WHERE turn = number) FROM turns WHERE turn_id = ?"
#: The fields of each `ClaimSpan` of the turn with the number :turn. A span begins with a fact that records its driver.
#: It ends before the next such fact, or with the last fact. That is the last fact of an append, so it has a time.
CLAIM_SPANS: Final = """
    SELECT seq, epoch, owner, at, (
        SELECT at FROM facts WHERE turn = :turn
        AND seq = COALESCE(next - 1, (SELECT MAX(seq) FROM facts WHERE turn = :turn))
    ) FROM (
        SELECT seq, epoch, owner, at, LEAD(seq) OVER (ORDER BY seq) AS next
        FROM facts WHERE turn = :turn AND epoch IS NOT NULL
    ) ORDER BY seq
"""
#: Above the number of every session.
LAST: Final = 2**63 - 1
#: The turn :id, and the turns whose ids begin with it and a colon. The semicolon is the character after the colon.
FAMILY: Final = "(turn_id = :id OR (turn_id > :id || ':' AND turn_id < :id || ';'))"
#: Deletes the sessions whose turns are all in a family that is about to be deleted.
EMPTY_SESSIONS: Final = f"""
    DELETE FROM sessions WHERE session IN (SELECT session FROM turns WHERE {FAMILY})
    AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.session AND NOT {FAMILY})
"""  # noqa: S608 (constant)
