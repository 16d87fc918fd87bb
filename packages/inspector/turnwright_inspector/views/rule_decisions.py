"""The decisions of a turn's rules, with the places of the calls that each decision names."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from turnwright._base.ids import root_of
from turnwright_states.facts import rule_decisions
from turnwright_states.verdict import RuleDecision

from .turn_record import Journal

#: The tones of decisions, by their effects.
TONES: Final = {"allow": "good", "refuse": "warn", "ask": "paused", "end": "bad", "report": "info"}
#: The beginning of a call's id; other events of a history are messages of the user.
_CALL: Final = "call"


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A call that a decision names, with its turn: an earlier one of the session, or one of the tree.

    `words` are those of the decision, and `call` is empty for a message of the user.
    """

    words: str
    turn: str
    call: str


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision of a rule, at the fact `seq`. `call` is None for an answer."""

    seq: int
    decision: RuleDecision
    call: CallPlace | None
    by: tuple[CallPlace, ...]

    @property
    def tone(self) -> str:
        return TONES[self.decision.effect]


def call_place(turn: str, event: str) -> CallPlace:
    """Return the place of an event of a turn's history, such as `call00003`, `call00001:call00002` or `TURN/call00003`.

    A path of calls leads through sub-agents, and begins in the turn that a person began.
    """
    earlier, _, path = event.rpartition("/")
    *above, last = path.split(":")
    return CallPlace(event, ":".join([earlier or root_of(turn), *above]), last if last.startswith(_CALL) else "")


def decision_rows(turn: str, facts: Journal) -> tuple[DecisionRow, ...]:
    """Return the decisions of rules in these facts of a turn, oldest first."""
    return tuple(
        DecisionRow(
            seq,
            decision,
            None if decision.call is None else CallPlace(decision.call, turn, decision.call),
            call_places(turn, decision.by),
        )
        for seq, fact in facts
        for decision in rule_decisions(fact)
    )


def call_places(turn: str, events: Iterable[str]) -> tuple[CallPlace, ...]:
    """Return the places of several events."""
    return tuple(call_place(turn, event) for event in events)
