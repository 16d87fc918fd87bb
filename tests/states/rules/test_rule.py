"""A rule is the words of one form; other words are refused with the rule's name and what to write instead."""

import copy
import json
import pickle
from typing import Any

import pytest

from turnwright_states.loop_guard import LoopGuard
from turnwright_states.rules import History, InvalidRuleError, Rule, RuleList, parse_rule, resolve_rules


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "it has no form: the forms are before+need, after+never, never"),
        ({"before": "a"}, "before is not a form of a rule"),
        ({"before": "a", "at_most": 1}, "before and at_most are not a form of a rule"),
        ({"before": "a", "need": "b", "never": "c"}, "are not a form"),
        ({"before": "a", "need": "b", "effect": "deny"}, "effect 'deny' is unknown: use one of refuse, ask, end"),
        ({"before": "a", "need": "b", "effect": "refused"}, "did you mean `refuse`?"),
        ({"before": "a", "need": "b", "scope": "run"}, "scope 'run' is unknown"),
        ({"before": "a", "need": "b", "per": "x"}, "per has no meaning beside before and need"),
        ({"never": "a", "same": ["x"]}, "same has no meaning beside never"),
        ({"never": "a", "once": True}, "once has no meaning beside never"),
        ({"after": "a", "then": "b", "effect": "ask"}, "effect ask: an answer cannot be asked about"),
        ({"before": "@answer", "need": "b", "effect": "ask"}, "effect ask: an answer cannot be asked about"),
        ({"before": "@answer", "need": "b", "once": True, "scope": "session"}, "once: an answer uses nothing up"),
        ({"never": "@answer"}, "@answer is allowed only in before"),
        ({"before": "@user", "need": "a"}, "a message of the user is not judged"),
        ({"before": "@agent", "need": "a"}, "'@agent' is not a call"),
        ({"never": "a b"}, "'a b' is not a call"),
        ({"never": ""}, "'' is not a call"),
        ({"never": []}, "never names no call"),
        ({"never": 3}, "never is a text or a list of texts, not 3"),
        ({"never": "a", "when": "b"}, "when is unknown: did you mean `then`?"),
        ({"never": "a", "scop": "turn"}, "scop is unknown: did you mean `scope`?"),
        ({"never": "a if this.args.x"}, "which only need compares"),
        ({"never": "$writes"}, "no group is named '$writes': there are no groups: write groups: {writes: [TOOL, ...]}"),
        ({"before": "a", "need": "b", "once": 1}, "once is true or false, not 1"),
        ({"never": "a", "say": 3}, "say is a text, not 3"),
        ({"at_most": -1, "of": "a"}, "at_most is a number from 0 on, not -1"),
        ({"at_most": True, "of": "a"}, "at_most is a number"),
        ({"at_most": 10**400, "of": "a"}, "at_most is a number from 0 on, not 1000"),
        ({"at_most": float("nan"), "of": "a"}, "at_most is a number from 0 on, not nan"),
        ({"at_most": 1.5, "of": "a"}, "write sum"),
        ({"at_most": 1, "of": "a", "sum": "result.x"}, "the judged call has only args"),
        ({"at_most": 1, "of": "a", "per": "result.x"}, "the judged call has no result yet"),
        ({"before": "a", "need": "b", "same": "x"}, "same is a list: [x]"),
        ({"before": "a", "need": "b", "same": ["result.x"]}, "the judged call has no result yet"),
        ({"before": "a", "need": "b", "same": {"x": "this.args.x"}}, "this is the judged call"),
        ({"before": "a", "need": "b", "same": {"x": 3}}, "same has a path for each field"),
        ({"before": "a", "need": "b", "same": ["len(x)"]}, "is not a path"),
        ({"before": "a", "need": "@user", "same": ["x"]}, "@user has only a text"),
        ({"before": "@answer", "need": "a", "same": ["x"]}, "@answer has only a text"),
        ({"before": "a", "need": "b", "same": ["text"]}, "write args.text for its argument"),
        ({"not_both": ["a"]}, "not_both is a list of two or more calls"),
        ({"not_both": "ab"}, "not_both is a list of two or more calls"),
        ({"before": "a", "need": "b if args.x ** 2"}, "'**' is not in the language"),
        ({"before": "a", "need": "a"}, "a is itself a call of before, so the first one can never start"),
        ({"before": "*", "need": "login if result.ok"}, "login if result.ok is itself a call of before"),
        ({"before": ["a", "b*"], "need": ["a", "b*c"], "effect": "end"}, "a or b*c is itself a call of before"),
        ({"before": "a if args.x", "need": "a if args.x"}, "a if args.x is itself a call of before"),
        ({"before": "$w", "need": "$w"}, "$w is itself a call of before"),
        (
            {"after": "a", "then": "a if result.ok"},
            "is itself a call of after, so each one owes another",
        ),
        ({"after": "@user", "then": "@user if text"}, "message of the user if text is itself a call of after"),
        ({"after": "*", "then": "a", "scope": "session", "effect": "report"}, "a is itself a call of after"),
        ({"not_both": ["a", "a"]}, "not_both has a twice: for no second one, write at_most: 1 with of"),
        ({"not_both": ["a", ["b", "c"], ["c", "b"]]}, "not_both has c or b twice"),
        ({"not_both": ["a if args.x", "a if args.x"]}, "not_both has a if args.x twice"),
        ({"not_both": ["a", "a"], "same": ["x"]}, "write at_most: 1 with of and per"),
        ({"never": "a if result.ok"}, "never: the judged call has no result yet: 'result.ok' can read only its args"),
        ({"before": "a if status == 'ok'", "need": "b"}, "before: the judged call has no result yet"),
        ({"after": "b", "never": "a if default(text, '')"}, "never: the judged call has no result yet"),
        ({"before": "a", "need": "@user if args.x"}, "need: @user has only a text: 'args.x' reads more"),
        ({"before": "@answer if result.x", "need": "a"}, "before: @answer has only a text: 'result.x' reads more"),
        ({"before": "a", "need": "b if status == 'error'"}, "is never true of an ok call, which need and then read"),
        ({"after": "a", "then": "b if result.x and status != 'ok'"}, "is never true of an ok call"),
        ({"never": "a if args.x and 1 > 2"}, "never: 'args.x and 1 > 2' is never true"),
    ],
)
def test_rule_outside_the_forms_is_refused(words: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRuleError) as error:
        RuleList([parse_rule({"name": "mine", **words})])
    assert str(error.value).startswith("mine: ")
    assert message in str(error.value)
    assert error.value.rule == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"need": "b if result.ok and"}, "condition 'result.ok and': invalid syntax"),
        ({"need": ["b", "c if reslt.ok"]}, "the name 'reslt' is unknown: did you mean `result`?"),
        ({"need": "$reads if args.x ** 2"}, "'**' is not in the language"),
        ({"before": ["a", "@user"]}, "a message of the user is not judged"),
        ({"before": "a if this.args.x"}, "this is the judged call, which only need compares"),
        ({"before": "@answer", "same": ["x"]}, "@answer has only a text"),
        ({"need": "b c"}, "'b c' is not a call"),
    ],
)
def test_broken_call_is_refused_when_the_rule_is_made(words: dict[str, Any], message: str) -> None:
    """Its groups may be unknown until then."""
    with pytest.raises(InvalidRuleError) as error:
        Rule("mine", **{"before": "$writes", "need": "b", **words})
    assert str(error.value).startswith("mine: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    "words",
    [
        {"before": "a", "need": "a", "effect": "ask"},
        {"before": "a", "need": "a", "effect": "report"},
        {"before": "a", "need": "a", "scope": "session"},
        {"before": ["a", "b"], "need": ["b", "c"]},
        {"before": "a if args.large", "need": "a"},
        {"before": "a if args.large", "need": "a if args.small"},
        {"before": "*", "need": "@user", "once": True},
        {"before": "a if status == 'ok'", "need": "b", "once": True},
        {"before": ["@answer if 'done' in text", "a"], "need": "b"},
        {"after": "a if status == 'error'", "then": "a"},
        {"after": ["a", "b"], "then": ["b", "c"]},
        {"after": "a", "never": "a"},
        {"after": "@user", "never": "a"},
        {"not_both": ["*", "a"]},
        {"not_both": ["a", "a if args.large"]},
        {"not_both": [["a", "b"], ["b", "c"]]},
        {"not_both": ["transfer", "transfer"], "same": {"sender": "receiver"}},
        {"at_most": 0, "of": "a"},
        {"at_most": 0, "of": "a", "sum": "amount"},
        {"never": "*", "effect": "ask"},
        {"before": "a", "need": "b if default(status, 'error') == 'error' or result.x"},
    ],
)
def test_rule_that_can_be_met_and_broken_is_allowed(words: dict[str, Any]) -> None:
    """Also one that names its own calls, where a person, a condition or an earlier turn allows the first."""
    assert RuleList([Rule("mine", **words)]).patterns


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"w": []}, "mine: never names no call: its groups have no tools"),
        ({"w": ["$v"], "v": ["a"]}, "group w: '$v' is not a tool: a group has names of tools, and globs"),
        ({"w": ["a if args.x"]}, "group w: 'a if args.x' is not a tool"),
        ({"w": ["@agent"]}, "group w: '@agent' is not a tool"),
        ({"w": [" a"]}, "group w: ' a' is not a tool"),
        ({"w": [""]}, "group w: '' is not a tool"),
        ({1: ["a"]}, "groups have a list of tools for each name, not {1: ['a']}"),
        (["w"], "groups have a list of tools for each name, not ['w']"),
    ],
)
def test_group_of_other_things_than_tools_is_refused(groups: Any, message: str) -> None:  # noqa: ANN401 (a wrong value)
    with pytest.raises(InvalidRuleError) as error:
        RuleList([Rule("mine", never="$w")], groups)
    assert str(error.value).startswith(message)


def test_group_with_a_similar_name_is_suggested() -> None:
    with pytest.raises(InvalidRuleError, match=r"mine: no group is named '\$write': did you mean '\$writes'\?"):
        RuleList([Rule("mine", never="$write")], {"writes": ["a"]})


@pytest.mark.parametrize("rules", ["rules.yaml", [{"name": "a", "never": "b"}], [Rule("a", never="b"), None]])
def test_history_of_other_things_than_rules_is_refused(rules: Any) -> None:  # noqa: ANN401 (a wrong value)
    """A history without its rules would allow every call."""
    for read_rules in (History, RuleList, lambda items: LoopGuard(rules=items)):
        with pytest.raises(InvalidRuleError, match="is not a rule: write Rule"):
            read_rules(rules)


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidRuleError, match="mine: two rules have this name"):
        RuleList([Rule("mine", never="a"), Rule("mine", never="b")])


@pytest.mark.parametrize("name", ["", " ", 3, None, "a\nb", "a\x1b[31m", "\u202ea", "\ud800", "a" * 201])
def test_rule_has_a_name(name: object) -> None:
    with pytest.raises(InvalidRuleError, match=r"^a rule has a name") as error:
        parse_rule({"name": name, "never": "a"})
    assert str(error.value).isprintable()


def test_repr_of_a_rule_has_only_the_words_that_are_set() -> None:
    rule = Rule("mine", before="a", need="b", same=["x"])
    assert repr(rule) == "Rule(name='mine', before='a', need='b', same=('x',))"


def test_rules_are_equal_and_can_be_copied() -> None:
    rule = Rule("mine", before=["a", "b"], need="c", same={"x": "result.y"})
    assert copy.deepcopy(rule) == pickle.loads(pickle.dumps(rule)) == rule  # noqa: S301 (our own)
    rules = RuleList([rule, Rule("other", never="$writes")], {"writes": ["d", "e"]})
    twin = pickle.loads(pickle.dumps(rules))  # noqa: S301 (our own)
    assert {rules, twin} == {rules}
    assert repr(twin) == repr(rules)
    assert "'writes': ('d', 'e')" in repr(rules)
    assert RuleList(rules.rules, {"writes": ["d"]}) != rules
    assert RuleList([rule]) == RuleList([Rule("mine", before=("a", "b"), need="c", same={"x": "result.y"})])


def test_rules_of_several_files_stand_alone() -> None:
    """Each file has groups of its own, which its rules no longer need; an equal rule of two files is one."""
    calls = ["$writes if args.x", ["merge", "close"]]
    first = RuleList(
        [Rule("pair", not_both=calls), Rule("read-first", before="$writes", need="read")], {"writes": ["put", "delete"]}
    )
    second = RuleList([Rule("no", never="$writes"), Rule("pair", not_both=calls)], {"writes": ["post"]})
    with pytest.raises(InvalidRuleError, match=r"^pair: two rules have this name"):
        RuleList.of_sets([first, second])
    same_group = RuleList(second.rules, first.groups)
    assert RuleList.of_sets([first, same_group]) == RuleList(
        [
            Rule("pair", not_both=[["put if args.x", "delete if args.x"], ["merge", "close"]]),
            Rule("read-first", before=["put", "delete"], need="read"),
            Rule("no", never=["put", "delete"]),
        ]
    )


def test_written_defaults_do_not_make_another_rule() -> None:
    """Two files may have one rule, of which one writes what is the default."""
    words = json.loads('{"name": "no", "never": "put", "scope": "turn", "effect": "refuse", "say": "", "once": false}')
    short, long = RuleList([Rule("no", never="put")]), RuleList([parse_rule(words)])
    assert resolve_rules([long]) == resolve_rules([short])
    assert RuleList.of_sets([short, long]) == short


def test_error_says_file_line_and_rule() -> None:
    error = InvalidRuleError("no tool is named 'verfy'", rule="verify-first").at(file="rules.yaml", line=7)
    assert str(error) == "rules.yaml:7: verify-first: no tool is named 'verfy'"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 (our own)


def test_misspelled_word_in_code_has_a_suggestion() -> None:
    words: dict[str, Any] = {"befor": "a", "need": "b"}
    with pytest.raises(InvalidRuleError, match=r"^mine: befor is unknown: did you mean `before`"):
        Rule("mine", **words)
    with pytest.raises(InvalidRuleError, match=r"^befor is unknown"):
        Rule(**words)
