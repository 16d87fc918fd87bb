"""The longer questions of a SQLite store. `rows.py` reads what comes of them."""

from typing import Final

#: The columns of `rows.turn_row`. A turn has the status that was written with its last fact, and one without such a
#: fact is damaged, but it is there.
TURNS: Final = """
    SELECT turn_id, session, agent, model, created_at, at, turns.epoch, turns.owner, state, steps, tool_calls, reason,
        live, number
    FROM turns LEFT JOIN facts ON turn = number AND seq = (
        SELECT MAX(seq) FROM facts WHERE turn = number AND state IS NOT NULL
    )
"""
#: What waits in a turn's inbox.
WAITING: Final = "SELECT id, kind, payload FROM inbox WHERE turn_id = ? ORDER BY n"
#: The columns of `rows.claimed`.
CLAIMED: Final = "SELECT epoch, owner, (SELECT MAX(seq) FROM facts WHERE turn = number) FROM turns WHERE turn_id = ?"
#: The fields of a `ClaimSpan`, of the turn numbered :turn. A span begins with a fact that keeps its driver, and ends
#: before the next such fact, or with the last one of all. That is the last fact of an append, so it has the time.
CLAIM_SPANS: Final = """
    SELECT seq, epoch, owner, at, (
        SELECT at FROM facts WHERE turn = :turn
        AND seq = COALESCE(next - 1, (SELECT MAX(seq) FROM facts WHERE turn = :turn))
    ) FROM (
        SELECT seq, epoch, owner, at, LEAD(seq) OVER (ORDER BY seq) AS next
        FROM facts WHERE turn = :turn AND epoch IS NOT NULL
    ) ORDER BY seq
"""
#: The turn :id, and those whose ids begin with it and a colon: the semicolon is the next character.
FAMILY: Final = "(turn_id = :id OR (turn_id > :id || ':' AND turn_id < :id || ';'))"
