"""The rules in the front matter of an agent: its own, with `groups`, and names of files with rules."""

from collections.abc import Mapping
from pathlib import Path

from turnwright.rules import Rule, RuleError, RuleSet
from turnwright_states.rules import InvalidRuleError, parse_rule

from .front_matter import FrontMatter


def resolve_rules(matter: FrontMatter, values: dict[str, object], source: str) -> None:
    """Replace `rules` and `groups` in the values of a front matter by sets of rules, or note mistakes.

    `source` is the agent's file: names of files with rules begin at its folder.
    """
    items, groups = values.pop("rules", None), values.pop("groups", None)
    if not isinstance(items, list):
        key = "groups" if items is None else "rules"
        matter.wrong((key,), "must be a list of rules, and of names of files with rules" if items else "has no rules")
        return
    rules: list[Rule] = []
    places: dict[str, int] = {}
    sets: list[RuleSet] = []
    for place, item in enumerate(items):
        try:
            if isinstance(item, str):
                sets.append(RuleSet.load(Path(source).parent / item))
            elif isinstance(item, dict):
                rules.append(parse_rule(item, Rule))
                places.setdefault(rules[-1].name, place)
            else:
                raise RuleError("a rule has a name and the words of a form")
        except InvalidRuleError as error:
            matter.wrong(("rules", place), str(error))
    if matter.mistakes or not rules:
        values["rules"] = sets
        return
    try:
        lines = {name: matter.line_of(("rules", place)) for name, place in places.items()}
        values["rules"] = [RuleSet(rules, _groups(groups), file=source, lines=lines), *sets]
    except InvalidRuleError as error:
        why = f"{error.rule}: {error.why}" if error.rule else error.why
        matter.wrong(("rules", places[error.rule]) if error.rule in places else ("groups",), why)


def _groups(groups: object) -> dict[str, list[str]]:
    """Return groups of tools, which `RuleSet` checks further. Raises `RuleError`."""
    if groups is not None and not isinstance(groups, Mapping):
        raise RuleError("groups is a list of tools for each name")
    return dict(groups or {})
