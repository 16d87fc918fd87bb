"""The machine walked with the rules of an agent: the rules hold, and each planted fault is found."""

from typing import Final

import pytest

from turnwright.rules import Rule, RuleSet
from turnwright_proof.verify import WalkedMachine
from turnwright_proof.verify.grid import RULE_SETS
from turnwright_proof.verify.rule_meaning import Event, SmallPart, SmallRule, Trace, breaks
from turnwright_proof.verify.rule_walk import RuleResult, walk_rules
from turnwright_states import Call, CallStartedInput, CallWaitingInput, facts
from turnwright_states.inputs import JsonObject
from turnwright_states.rules import Broken, RuleList, parse_rule

TOOLS: Final = ("a", "b", "c")


class DeafMachine(WalkedMachine):
    """A planted fault: no call is judged."""

    __slots__ = ()

    def _judge_call(
        self, event: CallStartedInput | CallWaitingInput, call: Call, new_arguments: object
    ) -> tuple[facts.RuleVerdict, ...] | None:
        del event, call, new_arguments
        return ()


class HastyMachine(WalkedMachine):
    """A planted fault: no answer is judged."""

    __slots__ = ()

    def _judge_reply(self, event: object, calls: object) -> tuple[Broken, ...]:
        del event, calls
        return ()


class TrustingMachine(WalkedMachine):
    """A planted fault: a question of a rule is not asked."""

    __slots__ = ()

    def _judge_start(
        self, event: CallStartedInput, call: Call, new_arguments: "JsonObject | None"
    ) -> tuple[facts.RuleVerdict, ...] | None:
        return super()._judge_call(event, call, new_arguments)


def walk(*rules: Rule, machine: type[WalkedMachine] = WalkedMachine, most: int = 2_000) -> list[RuleResult]:
    return walk_rules(RuleSet(rules), TOOLS, machine=machine, most=most)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(RULE_SETS)))
def test_machine_keeps_each_form_of_rules(number: int) -> None:
    """Meaning 2 to 13: no start and no answer breaks a rule that is more than reported."""
    rules = RuleList([parse_rule(words) for words in RULE_SETS[number]])
    for result in walk_rules(rules, TOOLS, most=2_000):
        assert result.is_whole
        assert (result.counterexample == ()) is (result.rule.effect != "report"), result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "machine", "path"),
    [
        (Rule("need", before="b", need="a if result.ok"), DeafMachine, ("b",)),
        (Rule("bar", after="a if args.x", never="b"), DeafMachine, ("a if args.x", "b")),
        (Rule("most", at_most=1, of="a"), DeafMachine, ("a", "a")),
        (Rule("per", at_most=1, of="a", per="k"), DeafMachine, ("a",)),  # the field is missing
        (Rule("both", not_both=["a", "b"]), DeafMachine, ("a", "b")),
        (Rule("never", never="a if args.x > 1"), DeafMachine, ("a if args.x > 1",)),
        (Rule("large", never="a", effect="ask"), TrustingMachine, ("a",)),
        (Rule("owe", after="a", then="b"), HastyMachine, ("a", "the answer")),
        (Rule("answer", before="@answer", need="b"), HastyMachine, ("the answer",)),
    ],
    ids=lambda value: value.name if isinstance(value, Rule) else "",
)
def test_rule_that_is_not_held_gives_the_shortest_path(
    rule: Rule, machine: type[WalkedMachine], path: tuple[str, ...]
) -> None:
    (result,) = walk(rule, machine=machine)
    assert result.counterexample == path
    assert walk(rule)[0].counterexample == ()


@pytest.mark.slow
def test_walk_names_its_extent_and_free_conditions() -> None:
    (result,) = walk(Rule("most", at_most=3, of="a if args.x and status != 'error'", per="k"))
    assert result.free == ("args.x and status != 'error'",)
    assert "of up to 2 calls, 2 in a reply, 2 values of k, with 1 in place of its number" in result.extent
    assert result.sentence == "at most 3 starts of a with the same k"


def test_walk_that_is_cut_is_not_whole() -> None:
    (result,) = walk(Rule("need", before="b", need="a"), most=50)
    assert not result.is_whole


def test_rules_of_tools_that_are_not_there_are_walked() -> None:
    (result,) = walk(Rule("need", before="b", need="missing"))
    assert (result.counterexample, result.is_whole) == ((), True)


def started(*tools: str, end: str = "ok") -> Trace:
    """Return a trace in which each call starts and ends."""
    trace: Trace = ()
    for tool in tools:
        place = len(trace)
        trace += (Event("start", place, tool), Event("outcome", place, status=end))
    return trace


@pytest.mark.parametrize(
    ("earlier", "is_broken"),
    [((), True), (started("a"), False), (started("a", end="error"), True), (started("c"), True)],
)
def test_definition_of_need_reads_ok_calls(earlier: Trace, is_broken: bool) -> None:
    """Meaning 2: `need` reads calls that ran and are ok."""
    rule = SmallRule("need", {"before": ((SmallPart("b"),),), "need": ((SmallPart("a"),),)})
    assert breaks(rule, (*earlier, Event("start", len(earlier), "b"))) is is_broken
