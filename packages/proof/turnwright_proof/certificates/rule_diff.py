"""The effect of a change of rules: which of them was added, removed, loosened or tightened.

Two versions of a rule are compared by the sequences of calls that they allow, up to `_DEPTH` calls, with conditions as
free atoms. Conditions with different texts are different atoms, so a rule whose condition only reads otherwise counts
as changed. Numbers and effects are compared as such.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from msgspec import UnsetType
from msgspec.structs import replace

from turnwright_proof.verify.rule_walk import VALUES, SmallSlice, alphabet_of, slice_rules
from turnwright_states.inputs import ToolCall
from turnwright_states.rules import ANSWER, USER, History, Rule, RuleList, read_rules

RuleChange = Literal["added", "removed", "loosened", "tightened", "changed"]
#: The direction of a change: what the new version allows.
_Direction = Literal["equal", "more", "less", "other"]
#: The longest sequences of calls that are compared, and the most calls that two rules may distinguish.
_DEPTH: Final = 3
_MOST_CALLS: Final = 10
_SEVERITY: Final = ("report", "ask", "refuse", "end")
#: The values of fields: with a missing one if few calls are distinguished.
_CHOICES: Final = (VALUES[0], VALUES[-2])


def diff_rules(old: RuleList, new: RuleList) -> Iterator[tuple[str, RuleChange]]:
    """Yield the rules that changed, by their names, the removed ones last. Other words of a refusal change nothing."""
    old_rules, new_rules = ({rule.name: rule for rule in rules.rules} for rules in (old, new))
    for name, rule in new_rules.items():
        if name not in old_rules:
            yield name, "added"
        elif replace(rule, say="") != replace(old_rules[name], say=""):
            yield name, _compare(old_rules[name], rule)
    for name in old_rules:
        if name not in new_rules:
            yield name, "removed"


def _compare(old: Rule, new: Rule) -> RuleChange:
    directions = {*_compare_settings(old, new), _compare_calls(old, new)} - {"equal"}
    if directions == {"more"}:
        return "loosened"
    return "tightened" if directions == {"less"} else "changed"


def _compare_settings(old: Rule, new: Rule) -> Iterator[_Direction]:
    """Yield the directions of the changes that no sequence of calls shows."""
    severities = _SEVERITY.index(old.effect), _SEVERITY.index(new.effect)
    yield _direction(severities[1] < severities[0], severities[1] > severities[0])
    if not isinstance(old.at_most, UnsetType) and not isinstance(new.at_most, UnsetType):
        yield _direction(new.at_most > old.at_most, new.at_most < old.at_most)
    if (old.scope, old.sub_agents, old.sum) != (new.scope, new.sub_agents, new.sum):
        yield "other"


def _direction(is_more: bool, is_less: bool) -> _Direction:
    if is_more and is_less:
        return "other"
    return "more" if is_more else "less" if is_less else "equal"


def _compare_calls(old: Rule, new: Rule) -> _Direction:
    """Compare the sequences of calls, and of answers after them, that two versions allow."""
    rules = RuleList([replace(old, name="old", effect="refuse"), replace(new, name="new", effect="refuse")])
    pairs = tuple(zip(rules.rules, rules.patterns, strict=True))
    parts = (part for words in rules.patterns for calls in words.values() for call in calls for part in call.parts)
    tools = dict.fromkeys(part.tool.replace("*", "x") for part in parts if part.tool not in (USER, ANSWER))
    small = SmallSlice(slice_rules(pairs, ANSWER, tuple(tools)))
    choices = [alphabet_of(small, *values) for values in _CHOICES]
    alphabet = next((calls for calls in choices if len(calls) <= _MOST_CALLS), None)
    if alphabet is None:
        return "other"
    histories = [History([read_rules([words])[0]]) for words in small.journaled]
    allows_more = allows_less = False
    texts = ["x", "x " + " ".join(small.texts)]
    for text in texts:
        copies = [history.copy() for history in histories]
        for history in copies:
            history.message(text)
        for verdicts in _verdicts(copies, alphabet, texts, _DEPTH):
            allows_more |= verdicts == (False, True)
            allows_less |= verdicts == (True, False)
    return _direction(allows_more, allows_less)


def _verdicts(
    histories: Sequence[History], alphabet: Sequence[ToolCall], texts: Sequence[str], depth: int
) -> Iterator[tuple[bool, ...]]:
    """Yield, for each next answer and call, whether each version allows it. Calls that both allow go on."""
    yield from (tuple(not history.answer(text) for history in histories) for text in texts)
    for call in alphabet:
        arguments = call.arguments or {}
        verdicts = tuple(not history.judge(call.name, arguments) for history in histories)
        yield verdicts
        if depth == 0 or not all(verdicts):
            continue
        for status in ("ok", "error"):
            after = [history.copy() for history in histories]
            for history in after:
                event = f"call{depth}"
                history.started(event, call.name, arguments)
                history.settle(event, status, dict(arguments))
            yield from _verdicts(after, alphabet, texts, depth - 1)
