"""Approvals that cover equal calls of a session: read from its turns, and revoked (docs/rules.md#always)."""

from typing import Final

from turnwright.errors import UnreadableTurnError
from turnwright.store import Store
from turnwright.store.annotations import Annotation, AnnotationKind, AnnotationStore, annotation_store
from turnwright_states.facts import Answered
from turnwright_states.turn import fold

#: The tag of a turn whose approvals cover no further calls.
REVOKED: Final = "approvals-revoked"


async def read_approvals(store: Store, session: str) -> dict[str, str]:
    """Return the approvals of a session that cover equal calls, `TURN/INTERRUPT` by the key of their calls."""
    by_turn = await _read_by_turn(store, session)
    return {key: f"{turn}/{interrupt}" for turn, calls in by_turn.items() for key, interrupt in calls.items()}


async def revoke_approvals(store: Store, session: str, at: float) -> int:
    """Let the approvals of a session cover no further calls of later turns. Returns their number.

    Raises `ConfigError` for a store that keeps no annotations.
    """
    annotations = annotation_store(store)
    by_turn = await _read_by_turn(store, session)
    tags = [Annotation(turn, AnnotationKind.TAG, REVOKED, at=at) for turn in by_turn]
    if tags:
        await annotations.annotate(*tags)
    return sum(map(len, by_turn.values()))


async def _read_by_turn(store: Store, session: str) -> dict[str, dict[str, str]]:
    """Return the approvals of a session that cover equal calls, by turn. Unreadable turns have none."""
    rows = await store.turns(session=session)
    turns = [row.id for row in reversed(rows) if not row.fault]
    revoked_turns = set[str]()
    if isinstance(store, AnnotationStore):
        revoked_turns = {
            tag.turn for tag in await store.annotations(turns) if (tag.kind, tag.name) == (AnnotationKind.TAG, REVOKED)
        }
    by_turn: dict[str, dict[str, str]] = {}
    for turn in turns:
        if turn in revoked_turns:
            continue
        try:
            facts = [fact for _, fact in await store.facts(turn)]
        except UnreadableTurnError:
            continue
        if any(isinstance(fact, Answered) and fact.always for fact in facts):
            by_turn[turn] = {**fold(facts).approved_calls}
    return by_turn
