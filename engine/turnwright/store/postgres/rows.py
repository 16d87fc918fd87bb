"""Parameters of a PostgreSQL store's statements. `store/rows.py` reads the resulting rows."""

from collections.abc import Sequence
from typing import Final

from turnwright.store.protocol import Status
from turnwright.store.rows import join_facts
from turnwright_states.facts import Fact

#: The columns of `rows.turn_row`.
COLUMNS: Final = (
    "turn_id, session, agent, model, created_at, updated_at, epoch, owner, state, steps, tool_calls, reason, live,"
    " number"
)


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
    }
