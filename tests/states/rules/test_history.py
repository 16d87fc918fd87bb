"""The history of rules: what it takes from a journal and from sub-agents, and what it says of each rule."""

import pytest
from pydantic import JsonValue

from turnwright_states import InvalidInputError, StartedInput
from turnwright_states.rules import History, InvalidRuleError, Rule, RuleList
from turnwright_states.rules.history import CompiledRules

NEED = Rule("need", before="pay", need="check")


def run(history: History, call: str, tool: str, result: object = None) -> None:
    """Start a call and settle it as ok."""
    history.started(call, tool, {})
    history.settled(call, ok=True, result=result)


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidRuleError, match="two rules have this name"):
        History([RuleList([NEED]), Rule("need", never="mail")])


@pytest.mark.parametrize(
    "past",
    [
        {"order": 1},
        {"order": 0, "rules": []},
        {"order": "1", "rules": {}},
        {"order": 0, "rules": {"one": [{"starts": [["", "many", [], []]]}]}},
        {"order": 0, "rules": {"one": [{"starts": [["", "NaN", [], []]]}]}},
        {"order": 0, "rules": {"one": [{"starts": [["", 1]]}]}},
    ],
    ids=["without rules", "a list", "a text", "no amount", "no number", "too short"],
)
def test_past_that_is_no_state_of_rules_is_refused(past: dict[str, JsonValue]) -> None:
    with pytest.raises(InvalidInputError, match="past: it is not the state of rules"):
        StartedInput(prompt="x", rules=({"name": "one", "at_most": 1, "of": "pay"},), past=past)


def test_judgments_do_not_depend_on_the_number_of_tools() -> None:
    """The names are the model's: a model that makes them up takes no memory, and gets around no rule."""
    compiled = CompiledRules([RuleList([NEED])])
    history = History(compiled)
    for number in range(10_001):
        assert not history.judge(f"tool{number}", {})
    assert len(compiled.roles) < 10_000
    assert history.judge("pay", {})
    run(history, "1", "check")
    assert not history.judge("pay", {})


def test_only_rules_that_do_more_than_report_are_enforced() -> None:
    history = History(
        [NEED, Rule("seen", never="read", effect="report"), Rule("cap", at_most=1, of="mail"), Rule("no", never="rm")]
    )
    enforced = [tool for tool in ("pay", "check", "read", "mail", "rm", "other") if history.is_enforced_on(tool)]
    assert enforced == ["pay", "check", "mail", "rm"]


def test_state_of_each_rule_names_its_calls_and_its_debt() -> None:
    """A rule of several pairs has one state, and a caller's rule is owed nothing."""
    own = [Rule("both", not_both=["merge", "close", "drop"]), Rule("owe", after="write", then="test"), NEED]
    history = History(own)
    for call, tool in enumerate(("merge", "write", "check"), start=1):
        run(history, str(call), tool)
    assert [(state.rule, state.remembered, state.is_owed) for state in history.states()] == [
        (own[0], ("1",), False),
        (own[1], ("2",), True),
        (own[2], ("3",), False),
    ]
    inherited = History.of_journal([{"name": "owe", "after": "write", "then": "test", "inherited": True}])
    run(inherited, "1", "write")
    (state,) = inherited.states()
    assert (state.is_inherited, state.is_owed, state.gap) == (True, False, "")


def test_result_of_any_kind_has_a_text() -> None:
    """A value that JSON does not have, or that is too large, is UNKNOWN, so no evidence."""
    for result, is_refused in (
        ("fine", False),
        ({"state": "fine"}, False),
        (object(), True),
        (["fine", object()], True),
        (["fine"] * 1_000_000, True),
    ):
        history = History([Rule("fine", before="pay", need="check if 'fine' in text")])
        run(history, "1", "check", result)
        assert bool(history.judge("pay", {})) is is_refused


def test_results_during_sub_agents_are_not_lost() -> None:
    """A sub-agent returns the state of its beginning: what ended in the meantime is added to it, for each of them."""
    history = History([NEED, Rule("mail", before="mail", need="check")])
    history.started("1", "check", {})
    child_states = []
    for call in ("2", "3"):
        history.delegate(call)
        child_states.append(history.save_tree(call))
    history.settled("1", ok=True)
    history.rejoin("2", "clerk", ["pay"], child_states[0])
    assert not history.judge("pay", {})
    history.rejoin("3", "desk", ["mail"], child_states[1])
    assert not history.judge("mail", {})


def test_sub_agent_changes_only_shared_rules() -> None:
    """Without a beginning it changes none, and without a report their history is not whole."""
    rules = [NEED, Rule("mail", before="mail", need="check"), Rule("own", before="pay", need="sign", sub_agents=False)]
    history = History(rules)
    for call, tool in enumerate(("check", "sign"), start=1):
        run(history, str(call), tool)
    history.delegate("3")
    history.rejoin("3", "clerk", ["pay"], {})
    assert not history.judge("pay", {})
    history.delegate("4")
    history.rejoin("4", "clerk", ["pay"], None)
    assert [broken.rule for broken in history.judge("pay", {})] == ["need"]
    assert not history.judge("mail", {})
