"""An audit counts the rules that recorded runs break, in any format."""

import os
from pathlib import Path
from typing import Final

import pytest
from tests.audit.recorded import add, call, run_of

from turnwright.rules import RuleSet
from turnwright_audit.broken_rules import BrokenRule, broken_rules
from turnwright_audit.trajectories.atif import StepMetrics, SubagentRef
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.work import Audit, Settings
from turnwright_states.rules import Rule

RUNS: Final = os.environ.get("TURNWRIGHT_RUNS")
#: The decidable sentences of tau-bench's airline policy, each as one rule.
AIRLINE: Final = Path(__file__).parents[2] / "examples" / "rules" / "airline.yaml"
READ_FIRST: Final = Rule("read-first", before="write", need="read", same=["args.text"])


def test_broken_rule_has_its_first_step_and_its_calls() -> None:
    run = run_of(call("read", "a"), call("write", "a"), call("write", "b"), call("write", "c"), "Done.")
    assert broken_rules(run, RuleSet([READ_FIRST])) == {
        "read-first": BrokenRule("refuse", 2, 3, "write", "write needs an earlier ok read with the same args.text")
    }


@pytest.mark.parametrize("status", ["error", "denied", "canceled"])
def test_call_that_had_no_effect_breaks_nothing(status: str) -> None:
    run = run_of(call("write", "a", "no"), "Done.", statuses={"no": status})  # type: ignore[dict-item]
    assert broken_rules(run, RuleSet([READ_FIRST])) == {}


def test_denied_call_never_started() -> None:
    """Meaning 2: a call that a person denied is not a start, and an error is one."""
    rules = RuleSet([Rule("few", at_most=1, of="write")])
    for status, is_broken in (("denied", False), ("error", True)):
        run = run_of(call("write", "a", "no"), call("write", "b"), "Done.", statuses={"no": status})  # type: ignore[dict-item]
        assert bool(broken_rules(run, rules)) is is_broken


def test_answer_that_is_owed_a_call_is_broken() -> None:
    """Meaning 12: an answer is a reply with a text and without calls."""
    rules = RuleSet([Rule("tested", after="write", then="test")])
    assert broken_rules(run_of(call("write"), call("test"), "Done."), rules) == {}
    assert broken_rules(run_of(call("write"), "Done."), rules)["tested"].tool == "the answer"


def test_message_of_the_user_begins_a_turn() -> None:
    """Meaning 15: a turn follows each message; a session is the whole run."""
    run = RunBuilder("atif", agent="clerk", model="m", run="r")
    run.user("Read it.")
    add(run, [call("read", "a"), "Read."], {}, StepMetrics())
    run.user("Write it.")
    add(run, [call("write", "a"), "Written."], {}, StepMetrics())
    turn = RuleSet([READ_FIRST])
    session = RuleSet([Rule("read-first", before="write", need="read", same=["args.text"], scope="session")])
    trajectory = run.finish()
    assert list(broken_rules(trajectory, turn)) == ["read-first"]
    assert broken_rules(trajectory, session) == {}


def test_subagent_acts_in_the_place_of_its_call() -> None:
    """Meaning 16: calls of sub-agents count, unless the rule is only about own calls."""
    run = run_of(call("delegate", "a"), call("write", "a"), "Done.")
    inner = run_of(call("read", "a"), "Read.", name="inner")
    run.subagent_trajectories = [inner]
    result = run.steps[1].observation.results[0]  # type: ignore[union-attr]
    inner.trajectory_id = "inner"
    result.subagent_trajectory_ref = [SubagentRef(trajectory_id="inner")]
    assert broken_rules(run, RuleSet([READ_FIRST])) == {}
    own = Rule("read-first", before="write", need="read", same=["args.text"], sub_agents=False)
    assert list(broken_rules(run, RuleSet([own]))) == ["read-first"]


@pytest.mark.skipif(RUNS is None, reason="TURNWRIGHT_RUNS names no folder of recorded runs")
def test_rules_of_an_airline_flag_the_runs_that_failed() -> None:
    """Of 200 runs of tau-bench, 49 break a rule, and 41 of these failed: 35 % of all failures."""
    file = Path(str(RUNS)) / "tau-bench" / "gpt-4o-airline.json"
    with Audit([file], Settings(rules=RuleSet.load(AIRLINE))) as audit:
        list(audit.batches())
        totals = audit.totals
    assert (totals.runs, totals.failed) == (200, 116)
    assert (totals.breaking.runs, totals.breaking.failed) == (49, 41)
    assert {name: (rule.runs, rule.failed) for name, rule in totals.rules.items()} == {
        "yes-first": (19, 18),
        "not-flown": (18, 14),
        "ground-for-canceling": (17, 14),
        "basic-economy-flights": (5, 5),
        "read-first": (4, 4),
        "certificate-for-whom": (2, 2),
        "payment-kinds": (2, 2),
        "only-add-bags": (2, 2),
        "free-bags": (1, 1),
    }
