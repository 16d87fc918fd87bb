"""Static checks of rules, over every state that they can reach."""

import pytest

from turnwright.rules import Rule, RuleSet
from turnwright_proof import RuleFinding, check_rules
from turnwright_states.rules import InvalidRuleError

TOOLS = ("refund", "verify", "look", "write_file", "run_tests")


def found_kinds(*rules: Rule, tools: tuple[str, ...] = TOOLS) -> list[tuple[str, str]]:
    return [(finding.kind, finding.rule) for finding in check_rules(rules, tools)]


def test_need_is_a_theorem_with_its_shortest_path() -> None:
    rules = RuleSet([Rule("verify-first", before="refund", need="verify if result.ok", same=["id"])])
    assert check_rules(rules, TOOLS) == [
        RuleFinding("holds", "verify-first", "refund never starts before verify", ("verify if result.ok", "refund"))
    ]


def test_unknown_tool_is_found() -> None:
    assert ("unknown", "a") in found_kinds(Rule("a", before="refund", need="verfy"))


@pytest.mark.parametrize(
    "rule", [Rule("no", never="look"), Rule("no", at_most=0, of="look"), Rule("no", before="look", need="nobody")]
)
def test_tool_that_never_runs_is_found(rule: Rule) -> None:
    assert ("never runs", "no") in found_kinds(rule)


def test_condition_may_let_a_tool_run() -> None:
    assert ("never runs", "no") not in found_kinds(Rule("no", never="look if args.x"))
    assert ("never runs", "ask") not in found_kinds(Rule("ask", never="look", effect="ask"))


def test_obligation_that_no_call_can_meet_has_its_path() -> None:
    rules = [Rule("tested", after="write_file", then="run_tests if result.passed"), Rule("no-tests", never="run_tests")]
    (dead_end,) = [finding for finding in check_rules(rules, TOOLS) if finding.kind == "no way to an answer"]
    assert (dead_end.rule, dead_end.path) == ("tested", ("write_file",))
    assert not [finding for finding in check_rules(rules[:1], TOOLS) if finding.kind == "no way to an answer"]


def test_answer_without_its_need_has_no_way() -> None:
    rules = [Rule("p", before="@answer", need="look"), Rule("no", after="write_file", never="look")]
    (dead_end,) = [finding for finding in check_rules(rules, TOOLS) if finding.kind == "no way to an answer"]
    assert (dead_end.rule, dead_end.path) == ("p", ("write_file",))


def test_rule_that_no_call_can_break_never_acts() -> None:
    assert found_kinds(Rule("idle", after="look", never="verify"), Rule("no", never="look"))[-1] == (
        "never acts",
        "idle",
    )
    assert ("never acts", "both") not in found_kinds(Rule("both", not_both=["look", "verify"]))


def test_rules_with_too_many_conditions_are_inconclusive() -> None:
    calls = [f"look if args.x == {number}" for number in range(9)]
    with pytest.raises(InvalidRuleError, match="inconclusive"):
        check_rules([Rule("many", never=calls)], TOOLS)
