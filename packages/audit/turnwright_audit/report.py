"""The report of an audit as JSON: an object for each run, and a last one for all."""

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
from pydantic import JsonValue

from turnwright_states.rules import RuleList

from .measure import RunMeasure
from .suggest import Suggestion
from .totals import MICRO, Group, OfRule, Tally, Totals
from .trials import TRIALS
from .verdicts import Invariants

#: Wholes of which the report has shares.
_PARTS: Final = frozenset({"failed_steps", "step_tokens", "step_cost"})

if TYPE_CHECKING:
    from .distribution import Distribution


def run_json(run: RunMeasure) -> dict[str, JsonValue]:
    """Return the measures of a run as one JSON object."""
    fields: dict[str, JsonValue] = msgspec.to_builtins(run)
    for name in ("measured", "first", "tokens_after"):
        fields.pop(name)
    fields["cost"] = round(run.cost, 6)
    if run.rules:
        fields["rules"] = [{"rule": name, **msgspec.to_builtins(rule)} for name, rule in run.rules.items()]
    else:
        fields.pop("rules")
    if run.invariants is None:
        fields.pop("invariants")
    else:
        fields["invariants"] = invariants_json(run.invariants)
    names = {name: fields.pop(name) for name in ("file", "run", "format", "agent", "model")}
    return {"kind": "run", **names, **fields, "tokens": run.tokens}


def summary_json(
    totals: Totals, suggestion: Suggestion | None, figures: dict[str, int], rules: RuleList | None = None
) -> dict[str, JsonValue]:
    """Return the totals as one JSON object. `figures` are added to it; `rules` are those of the audit."""
    sums = {
        name: getattr(totals, name)
        for name in totals.__struct_fields__
        if isinstance(getattr(totals, name), int | float) and name not in _PARTS
    }
    return {
        "kind": "summary",
        **figures,
        **sums,
        "tokens": totals.tokens,
        "endings": dict(Counter(totals.endings).most_common()),
        "findings": dict(totals.findings),
        **group_json(totals.all),
        "groups": {name: group_json(group) for name, group in sorted(totals.groups.items())},
        "formats": {name: msgspec.to_builtins(format_totals) for name, format_totals in sorted(totals.formats.items())},
        "loops": {name: msgspec.to_builtins(kind_totals) for name, kind_totals in totals.kinds.items()},
        "limits": [
            {"limit": limit, "value": _number(value), **tally_json(totals.tallies.get(name, Tally()), totals)}
            for name in TRIALS
            for limit, _, value in [name.partition(" ")]
        ],
        **({"invariants": invariants_json(totals.invariants)} if totals.invariants.turns else {}),
        **({} if rules is None else {"rules": rules_json(totals, rules)}),
        "suggestion": suggestion and suggestion_json(suggestion, totals),
    }


def _number(text: str) -> float | str:
    """Return the value of a limit as a number, if it is one."""
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text


def invariants_json(invariants: Invariants) -> dict[str, JsonValue]:
    """Return the verdicts by claim, with the numbers of turns, and the first faults."""
    return {
        "verdict": invariants.verdict,
        "turns": invariants.turns,
        "claims": [
            {"claim": claim, "verdict": count.verdict, **msgspec.to_builtins(count)}
            for claim, count in invariants.claims.items()
        ],
        "faults": msgspec.to_builtins(invariants.faults),
    }


def rules_json(totals: Totals, rules: RuleList) -> dict[str, JsonValue]:
    """Return the runs that break each rule, and those that break one whose effect is more than a report.

    A rule is an entry of a list: as a key, the name `password` would hide its value.
    """
    no_runs = OfRule()
    return {
        "broken": msgspec.to_builtins(totals.breaking),
        "by_rule": [
            {"rule": rule.name, "effect": rule.effect, **msgspec.to_builtins(totals.rules.get(rule.name, no_runs))}
            for rule in rules.rules
        ],
    }


def group_json(group: Group) -> dict[str, JsonValue]:
    """Return the distributions of some runs."""
    shares: dict[str, JsonValue] = {
        f"{name}_distribution": dict(getattr(group, name).shares()) for name in ("steps", "calls", "tokens")
    }
    cost: Distribution = group.cost
    return {
        "runs": group.runs,
        "labeled": group.labeled,
        "succeeded": group.succeeded,
        **shares,
        "cost_distribution": {name: value / MICRO for name, value in cost.shares().items()},
    }


def suggestion_json(suggestion: Suggestion, totals: Totals) -> dict[str, JsonValue]:
    """Return suggested limits with their effect, and that of the defaults."""
    return {
        "limits": dict(suggestion.limits),
        "python": suggestion.python,
        "front_matter": "\n".join(suggestion.front_matter),
        "from": "succeeded" if suggestion.labeled else "finished",
        "runs": suggestion.runs,
        "effect": tally_json(suggestion.effect, totals),
        "effect_of_defaults": tally_json(suggestion.defaults, totals),
    }


def tally_json(tally: Tally, totals: Totals) -> dict[str, JsonValue]:
    """Return the effect of limits: the runs that they change and stop, where, and what is saved."""
    return {
        "runs_changed": tally.runs,
        "runs_stopped": tally.stopped,
        "succeeded": tally.succeeded,
        "failed": tally.failed,
        "at_step": dict(tally.at.shares()) if tally.at.n else None,
        "saved_steps": tally.steps,
        "saved_calls": tally.calls,
        "saved_tokens": totals.saved_tokens(tally),
        "saved_cost": None if (cost := totals.saved_cost(tally)) is None else round(cost, 6),
        "refused_calls": tally.refused,
        "saved_share_of_failed_steps": round(tally.saved_failed / max(totals.failed_steps, 1), 4),
    }
