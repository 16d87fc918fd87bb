"""Approvals that cover equal calls of a session: read from its turns, and revoked (docs/rules.md#always)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from turnwright.errors import UnreadableTurnError
from turnwright.store import Store
from turnwright.store.annotations import Annotation, AnnotationKind, AnnotationStore, annotation_store
from turnwright.transcript.interrupt import Interrupt
from turnwright_states.facts import Answered, Fact
from turnwright_states.payload import thaw
from turnwright_states.turn import Turn, approval_key

#: The tag of a turn with revoked approvals. Its text is the number of the last fact that it covers: a person may
#: approve again in the same turn.
REVOKED: Final = "approvals-revoked"


@dataclass(frozen=True, slots=True)
class StandingApproval:
    """An approval that covers equal calls of its session: those of this tool with these arguments.

    `interrupt` is the answered interrupt of the `turn`. `by`, `via` and `at` are those of the answer: who approved,
    through which channel, and when, in seconds since the Unix epoch.
    """

    turn: str
    interrupt: str
    tool: str
    arguments: Mapping[str, JsonValue]
    by: str = ""
    via: str = ""
    at: float | None = None

    @property
    def id(self) -> str:
        """The approval as `call_started` names it: `TURN/INTERRUPT`."""
        return f"{self.turn}/{self.interrupt}"

    def to_json(self) -> dict[str, JsonValue]:
        """Return the approval as an object."""
        call: dict[str, JsonValue] = {"tool": self.tool, "arguments": dict(self.arguments)}
        return {"turn": self.turn, "interrupt": self.interrupt, **call, "by": self.by, "via": self.via, "at": self.at}


async def read_approvals(store: Store, session: str) -> dict[str, str]:
    """Return the approvals of a session that cover equal calls, `TURN/INTERRUPT` by the key of their calls."""
    approvals = await list_approvals(store, session)
    return {approval_key(approval.tool, approval.arguments): approval.id for approval in approvals}


async def list_approvals(store: Store, session: str) -> list[StandingApproval]:
    """Return the approvals of a session that cover equal calls, the oldest first. Unreadable turns have none."""
    return [approval for _, approvals in (await _read_by_turn(store, session)).values() for approval in approvals]


async def revoke_approvals(store: Store, session: str, at: float) -> int:
    """Let the approvals of a session cover no further calls of later turns. Returns their number.

    Raises `ConfigError` for a store that keeps no annotations.
    """
    annotations = annotation_store(store)
    by_turn = await _read_by_turn(store, session)
    tags = [Annotation(turn, AnnotationKind.TAG, REVOKED, text=str(last), at=at) for turn, (last, _) in by_turn.items()]
    if tags:
        await annotations.annotate(*tags)
    return sum(len(approvals) for _, approvals in by_turn.values())


async def approvals_in(store: Store, turn_id: str, facts: Sequence[tuple[int, Fact]]) -> list[StandingApproval]:
    """Return the approvals of this turn that cover equal calls. `facts` are those of the turn."""
    revocations = await _read_revocations(store, [turn_id])
    return list(_approvals(turn_id, facts, revocations.get(turn_id, 0)))


async def _read_by_turn(store: Store, session: str) -> dict[str, tuple[int, list[StandingApproval]]]:
    """Return the last fact and the approvals of each turn that has some, the oldest turn first."""
    turns = [row.id for row in reversed(await store.turns(session=session)) if not row.fault]
    revocations = await _read_revocations(store, turns)
    by_turn: dict[str, tuple[int, list[StandingApproval]]] = {}
    for turn in turns:
        try:
            facts = await store.facts(turn)
        except UnreadableTurnError:
            continue
        approvals = list(_approvals(turn, facts, revocations.get(turn, 0)))
        if approvals:
            by_turn[turn] = (facts[-1][0], approvals)
    return by_turn


async def _read_revocations(store: Store, turns: list[str]) -> dict[str, float]:
    """Return the number of the last fact whose approvals are revoked, by turn."""
    if not isinstance(store, AnnotationStore):
        return {}
    tags = [tag for tag in await store.annotations(turns) if (tag.kind, tag.name) == (AnnotationKind.TAG, REVOKED)]
    return {tag.turn: int(tag.text) if tag.text.isdecimal() else float("inf") for tag in tags}


def _approvals(turn_id: str, facts: Sequence[tuple[int, Fact]], revoked_until: float) -> Iterator[StandingApproval]:
    """Yield the approvals of a turn that cover equal calls, without those up to the fact `revoked_until`."""
    if not any(isinstance(fact, Answered) and fact.always and seq > revoked_until for seq, fact in facts):
        return
    turn = Turn()
    for seq, fact in facts:
        if isinstance(fact, Answered) and fact.always and seq > revoked_until:
            interrupt = Interrupt.of(turn_id, turn, turn.interrupts[fact.interrupt])
            arguments = thaw(interrupt.arguments or {})
            yield StandingApproval(turn_id, interrupt.id, interrupt.tool, arguments, fact.by, fact.via, fact.at)
        turn.apply(fact)
