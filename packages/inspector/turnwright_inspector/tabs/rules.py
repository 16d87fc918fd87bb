"""The tab of rules: the state of each rule, what is owed, and its decisions with the calls that decided them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnwright.status import RuleStatus, read_rules
from turnwright_inspector.views.rule_decisions import CallPlace, DecisionRow, call_places, decision_rows
from turnwright_inspector.views.turn_record import TabContext

#: Words of a rule in a journal that its head or its state has, and those that have their default.
_OF_THE_HEAD: Final = ("name", "language", "inherited", "effect")
_DEFAULTS: Final[Mapping[str, object]] = {"scope": "turn", "sub_agents": True}
#: The most decisions of a rule that are shown: the last ones.
_MOST: Final = 100


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule: its words as a file has them, the calls of its state, and its last decisions.

    The decisions are those of the chosen step, or of the whole turn; `earlier` counts those that are left out.
    """

    status: RuleStatus
    words: str
    by: tuple[CallPlace, ...]
    decisions: tuple[DecisionRow, ...]
    earlier: int


@dataclass(frozen=True, slots=True)
class RulesView:
    """The rules of a turn, and how many of them are owed something or were broken."""

    rules: tuple[RuleRow, ...]
    owed: int
    broken: int


def view(tab_context: TabContext) -> RulesView:
    """Return the rules at the shown place in the journal."""
    turn, step = tab_context.turn, tab_context.step
    name = turn.row.id
    statuses = read_rules(fact for _, fact in turn.facts)
    words = {str(rule.get("name")): _words(rule) for rule in turn.started.rules}
    decisions: dict[str, list[DecisionRow]] = {}
    for row in decision_rows(name, turn.facts if step is None else turn.facts[step.first - 1 : step.last]):
        decisions.setdefault(row.decision.rule, []).append(row)
    rows = tuple(
        RuleRow(
            status,
            words.get(status.rule.name, ""),
            call_places(name, status.by),
            tuple(decisions.get(status.rule.name, ())[-_MOST:]),
            max(len(decisions.get(status.rule.name, ())) - _MOST, 0),
        )
        for status in statuses
    )
    owed_count = sum(status.is_owed for status in statuses)
    return RulesView(rows, owed_count, sum(bool(status.broken) for status in statuses))


def _words(rule: Mapping[str, object]) -> str:
    """Return the words of a rule, a line each: `before: refund`."""
    lines = []
    for word, value in rule.items():
        if word in _OF_THE_HEAD or not value or value == _DEFAULTS.get(word):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=dict)
        lines.append(f"{word}: {text}")
    return "\n".join(lines)
