"""Each rule of meaning that the language alone decides, by its number in docs/rules.md."""

import json
from collections.abc import Mapping

import pytest

from turnwright_states.rules import Broken, Effect, Held, History, Rule, RuleList, parse_rule


def run(history: History, call: str, tool: str, result: object = None, *, ok: bool = True, **args: object) -> None:
    """Start a call and settle it."""
    history.started(call, tool, args)
    history.settled(call, ok=ok, result=result)


def names(broken: tuple[Broken, ...]) -> list[str]:
    return [row.rule for row in broken]


def breaks(rule: Rule, tool: str, args: Mapping[str, object], *earlier: tuple[str, object]) -> bool:
    """Return whether a call breaks a rule after ok calls with these results."""
    history = History([rule])
    for place, (name, result) in enumerate(earlier):
        history.started(f"call{place}", name, args)
        history.settled(f"call{place}", ok=True, result=result)
    return bool(history.judge(tool, args))


@pytest.mark.parametrize(
    ("rule", "result", "expected"),
    [
        (Rule("need", before="pay", need="check if result.ok"), {"ok": True}, False),
        (Rule("need", before="pay", need="check if result.ok"), {}, True),
        (Rule("before", before="pay if args.missing > 1", need="sign"), {}, True),
        (Rule("never", never="pay if args.missing > 1"), {}, True),
        (Rule("after", after="check if result.missing", never="pay"), {}, True),
        (Rule("of", at_most=0, of="pay if args.missing"), {}, True),
        (Rule("both", not_both=["check if result.missing", "pay"]), {}, True),
        (Rule("opt-out", never="pay if default(args.missing, 0) > 1"), {}, False),
    ],
    ids=lambda value: value.name if isinstance(value, Rule) else None,
)
def test_unknown_condition_refuses(rule: Rule, result: object, expected: bool) -> None:
    """Meaning 1: UNKNOWN matches where a match refuses, and does not match where a match allows."""
    assert breaks(rule, "pay", {"order": 1}, ("check", result)) is expected


def test_unknown_then_does_not_meet_an_obligation() -> None:
    """Meaning 1: UNKNOWN opens in `after`, and does not match in `then`."""
    history = History([Rule("tested", after="write if args.missing", then="test if result.missing")])
    run(history, "1", "write")
    run(history, "2", "test", {})
    assert history.unmet() == ("tested",)


@pytest.mark.parametrize("status", ["error", "rejected", "refused", "aborted", "unknown"])
def test_only_ok_calls_that_ran_are_evidence(status: str) -> None:
    """Meaning 2: `need` and `then` read ok calls that ran; all others count every start."""
    history = History(
        [
            Rule("need", before="pay", need="check"),
            Rule("once", at_most=1, of="check"),
            Rule("then", after="open", then="check if status == 'ok'"),
            Rule("after", after="check", never="close"),
        ]
    )
    history.settle("0", "ok")  # never started
    run(history, "00", "open")
    assert names(history.judge("pay", {})) == ["need"]
    history.started("1", "check", {})
    history.settle("1", status)
    assert names(history.judge("pay", {})) == ["need"]
    assert names(history.judge("check", {})) == ["once"]
    assert names(history.judge("close", {})) == ["after"]
    assert history.unmet() == ("then",)


def test_start_counts_until_its_result_is_false() -> None:
    """Meaning 3: a start whose condition reads the outcome counts until the outcome makes it false."""
    history = History([Rule("once", at_most=1, of="pay if status != 'error'")])
    history.started("1", "pay", {})
    assert history.judge("pay", {})[0].by == ("1",)
    history.settled("1", ok=False, result="no")
    assert not history.judge("pay", {})
    run(history, "2", "pay")
    assert history.judge("pay", {})[0].by == ("2",)


def test_need_is_used_up_only_by_a_start_that_matches_in_the_end() -> None:
    """Meaning 3 and 4: a `before` with `once` that turns out not to match gives its need back."""
    history = History([Rule("once", before="pay if status != 'error'", need="sign", once=True)])
    run(history, "1", "sign")
    history.started("2", "pay", {})
    assert history.judge("pay", {})
    history.settled("2", ok=False)
    assert not history.judge("pay", {})
    run(history, "3", "pay")
    assert history.judge("pay", {})


def test_start_may_match_only_by_its_outcome() -> None:
    """Meaning 3: a start that only its outcome makes match counts from its start on, also where it uses up a need."""
    done = "pay if default(status, 'none') == 'ok'"
    history = History([Rule("one", at_most=1, of=done), Rule("once", before=done, need="sign", once=True)])
    run(history, "1", "sign")
    history.started("2", "pay", {})
    run(history, "3", "pay", ok=False)
    assert [state.remembered for state in history.states()] == [(), ("1",)]
    run(history, "4", "sign")
    history.settled("2", ok=True)
    assert [state.remembered for state in history.states()] == [("2",), ("4",)]
    run(history, "5", "pay")
    assert [state.remembered for state in history.states()] == [("2", "5"), ()]


def test_open_starts_each_use_up_a_need() -> None:
    """Meaning 3 and 4: of two open starts, each uses up the need until its outcome gives it back, or is certain."""
    history = History([Rule("once", before="pay if status != 'error'", need="sign", once=True)])
    run(history, "1", "sign")
    for call in ("2", "3"):
        history.started(call, "pay", {})
    history.settled("2", ok=False)
    assert history.judge("pay", {}), "the other may still have paid"
    history.settled("3", ok=False)
    assert history.verdicts("pay", {}).holding == (Held("once", ("1",)),)
    for call in ("4", "5"):
        history.started(call, "pay", {})
    history.settled("5", ok=True)
    history.settled("4", ok=False)
    assert history.judge("pay", {})


def test_latest_ok_call_of_each_tool_decides() -> None:
    """Meaning 4: `need` reads the latest ok call of each listed tool with an equal key."""
    history = History([Rule("open", before="pay", need=["check if result == 'open'", "ask"], same=["order"])])
    run(history, "1", "check", "open", order=1)
    assert not history.judge("pay", {"order": 1})
    run(history, "2", "check", "closed", order=1)
    assert history.judge("pay", {"order": 1})
    run(history, "3", "check", "open", order=2)
    assert history.judge("pay", {"order": 1})
    run(history, "4", "ask", order=1)
    assert not history.judge("pay", {"order": 1})
    run(history, "5", "check", "open", order=1)
    run(history, "6", "check", "closed", order=1)
    assert history.verdicts("pay", {"order": 1}).holding == (Held("open", ("4",)),)


def test_this_is_the_judged_call() -> None:
    """Meaning 4: `this` is the call that is judged."""
    history = History([Rule("paid", before="refund", need="check if this.args.amount <= result.paid")])
    run(history, "1", "check", '{"paid": 80}')
    assert not history.judge("refund", {"amount": 80})
    assert history.judge("refund", {"amount": 81})[0].by == ("1",)
    assert history.judge("refund", {})


def test_need_is_used_up_once() -> None:
    """Meaning 4: with `once`, one `before` uses up what was there before it, by its key."""
    history = History([Rule("signed", before="pay", need=["sign", "stamp"], same=["order"], once=True)])
    for call, tool, order in (("1", "sign", 1), ("2", "stamp", 1), ("3", "sign", 2), ("4", "pay", 1)):
        run(history, call, tool, order=order)
    assert history.judge("pay", {"order": 1})
    assert not history.judge("pay", {"order": 2})
    run(history, "5", "stamp", order=1)
    assert not history.judge("pay", {"order": 1})


@pytest.mark.parametrize(
    ("first", "second", "is_equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (1, "1", False),
        (None, False, False),
        ([1, {"a": 2, "b": 3}], [1.0, {"b": 3, "a": 2}], True),
        ([1, 2], [2, 1], False),
        (["a", "b"], ["a,b"], False),
        ("x" * 300, "x" * 300, True),
        ("x" * 300, "x" * 299 + "y", False),
        (0.0, -0.0, True),
        ("\ud800" * 300, "\ud800" * 300, True),
        ("e\u0301", "\u00e9", False),
    ],
)
def test_compared_fields_are_json_values(first: object, second: object, is_equal: bool) -> None:
    """Meaning 5: compared fields are equal as JSON values, without coercion."""
    history = History([Rule("seen", before="pay", need="check", same=["order"])])
    run(history, "1", "check", order=first)
    assert bool(history.judge("pay", {"order": second})) is not is_equal


def test_missing_field_refuses_and_is_no_evidence() -> None:
    """Meaning 5: a missing field refuses the judged call, is not evidence, and equals everything in `after`."""
    history = History(
        [
            Rule("need", before="pay", need="check", same=["order"]),
            Rule("after", after="close", never="ship", same=["order"]),
            Rule("pair", after="pick", never="drop", same={"order": "result.order"}),
        ]
    )
    run(history, "1", "check")
    assert names(history.judge("pay", {})) == names(history.judge("pay", {"order": 1})) == ["need"]
    assert names(history.judge("ship", {})) == ["after"]
    assert not history.judge("ship", {"order": 1})
    run(history, "2", "close")
    assert history.judge("ship", {"order": 1})[0].by == ("2",)
    history.started("3", "pick", {})
    assert history.judge("drop", {"order": 1})
    history.settled("3", ok=True, result={"order": 2})
    assert not history.judge("drop", {"order": 1})
    assert history.judge("drop", {"order": 2})


def test_number_that_json_does_not_have_equals_nothing() -> None:
    """Meaning 5: NaN is a missing field."""
    history = History([Rule("need", before="pay", need="check", same=["order"])])
    run(history, "1", "check", order=float("nan"))
    assert history.judge("pay", {"order": float("nan")})


def test_severest_effect_comes_first() -> None:
    """Meaning 8: all broken rules are returned, in the order end, refuse, ask, report."""
    effects: tuple[Effect, ...] = ("report", "ask", "end", "refuse")
    history = History([Rule(effect, never="pay", effect=effect) for effect in effects])
    assert names(history.judge("pay", {})) == ["end", "refuse", "ask", "report"]


def test_verdict_names_the_rule_its_words_and_its_evidence() -> None:
    """Meaning 9 and 14: a verdict names its rule, its words, and at most three earlier calls."""
    history = History(
        [
            Rule("few", at_most=4, of="search", say="Search less."),
            Rule("read-first", before="write", need="read"),
        ]
    )
    for place in range(4):
        run(history, f"call{place}", "search")
    assert history.judge("search", {}, "call4") == (
        Broken("few", "refuse", "call4", ("call1", "call2", "call3"), "Search less."),
    )
    run(history, "call5", "read")
    assert [(row.rule, row.by) for row in history.verdicts("write", {}).holding] == [("read-first", ("call5",))]


def test_verdict_names_the_calls_that_started_last() -> None:
    """Meaning 14: the last calls are those that started last, in whichever order they ended."""
    history = History([Rule("four", at_most=4, of="pay if status != 'error'")])
    for place in range(1, 5):
        history.started(f"call{place}", "pay", {})
    for place in (4, 2, 3, 1):
        history.settled(f"call{place}", ok=True)
    assert history.judge("pay", {})[0].by == ("call2", "call3", "call4")


def test_answer_is_refused_while_a_call_is_owed() -> None:
    """Meaning 12: an answer is refused while a `then` is owed, or the need of `@answer` is missing."""
    history = History(
        [
            Rule("tested", after="write", then="test if result.passed"),
            Rule("policy", before="@answer if 'refund' in text", need="check_policy"),
        ]
    )
    assert names(history.answer("A refund")) == ["policy"]
    assert not history.answer("Hello")
    history.started("1", "test", {})
    run(history, "2", "write")
    history.settled("1", ok=True, result={"passed": True})
    assert names(history.answer("Hello")) == ["tested"], "the tests began before the write"
    run(history, "3", "test", {"passed": False})
    assert history.unmet() == ("tested",)
    run(history, "4", "test", {"passed": True})
    run(history, "5", "check_policy")
    assert not history.answer("A refund")


def test_call_does_not_meet_its_own_obligation() -> None:
    """Meaning 12: a `then` starts after the call that it follows."""
    history = History([Rule("again", after="write", then=["write", "test"])])
    run(history, "1", "write")
    assert history.unmet() == ("again",)
    run(history, "2", "write")
    assert history.answer("Done")[0].by == ("2",)
    run(history, "3", "test")
    assert not history.unmet()


@pytest.mark.parametrize("is_open", [True, False])
def test_call_meets_an_obligation_before_the_outcome_that_opens_one(is_open: bool) -> None:
    """Meaning 3 and 12: a call may open an obligation until its outcome is known; what came meanwhile has met it."""
    history = History([Rule("tested", after="write if result.open", then="test")])
    history.started("1", "write", {})
    assert history.unmet() == ("tested",)
    run(history, "2", "test")
    assert history.unmet() == ()
    history.settled("1", ok=True, result={"open": is_open})
    assert history.unmet() == ()
    run(history, "3", "write", {"open": is_open})
    assert history.unmet() == (("tested",) if is_open else ())


def test_answer_is_refused_after_a_sub_agent_without_a_report() -> None:
    """Meaning 16: what a sub-agent left owed is not known, so an answer is refused."""
    history = History([Rule("tested", after="write", then="test")])
    history.rejoin("1", "clerk", ["write"], None)
    run(history, "2", "test")
    assert history.answer("Done")[0].words == "its history is not whole: a sub-agent did not report its calls"
    assert history.unmet() == ("tested",)


def test_obligation_without_its_field_is_met_by_any_call() -> None:
    """Meaning 5: a missing field in `after` equals everything, and in `then` it is not evidence."""
    history = History([Rule("tested", after="write", then="test", same=["path"])])
    run(history, "1", "write")
    run(history, "2", "write", path="a")
    run(history, "3", "test")
    assert history.answer("Done")[0].by == ("1", "2")
    run(history, "4", "test", path="b")
    assert history.answer("Done")[0].by == ("2",)
    run(history, "5", "test", path="a")
    assert not history.answer("Done")


def test_message_of_the_user_is_evidence() -> None:
    """Meaning 2 and 4: the latest message of the user is evidence, and may bar calls."""
    history = History(
        [
            Rule("yes", before="pay", need="@user if 'yes' in words(text)", scope="session"),
            Rule("stop", after="@user if 'stop' in words(text)", never="pay"),
        ]
    )
    history.message("Yes, please.")
    assert not history.judge("pay", {})
    history.steer("Stop!")
    assert names(history.judge("pay", {})) == ["yes", "stop"]
    history.message("Yes.")
    assert not history.judge("pay", {})


def test_message_of_the_user_is_compared_by_its_text() -> None:
    """Meaning 5: a message has a text to compare, and nothing else."""
    history = History([Rule("said", before="pay", need="@user", same={"word": "text"})])
    history.message("gold", "prompt")
    assert history.verdicts("pay", {"word": "gold"}).holding == (Held("said", ("prompt",)),)
    assert history.judge("pay", {"word": "silver"})[0].words == (
        "pay needs an earlier message of the user with the same word"
    )


def test_turn_forgets_and_session_remembers() -> None:
    """Meaning 15: rules of a turn forget at its end, also the calls that settle later."""
    history = History(
        [
            Rule("turn", before="pay", need="check"),
            Rule("session", before="pay", need="check", scope="session"),
        ]
    )
    history.message("Hello")
    history.started("1", "check", {})
    history.message("Go on")
    history.settled("1", ok=True)
    assert names(history.judge("pay", {})) == ["turn"]


def test_sums_of_amounts_are_exact() -> None:
    """Meaning 1 and 17: the amounts of `sum` are added as their decimal digits say."""
    history = History([Rule("limit", at_most=0.3, of="pay if status != 'error'", sum="amount")])
    run(history, "1", "pay", amount=0.1)
    assert not history.judge("pay", {"amount": 0.2})
    run(history, "2", "pay", amount=0.2, ok=False)
    assert not history.judge("pay", {"amount": 0.2})
    assert history.judge("pay", {"amount": 0.21})
    for amount in (None, "0.1", True, -1, float("nan"), float("inf")):
        assert history.judge("pay", {"amount": amount})


def test_refusal_names_a_large_amount_in_full() -> None:
    history = History([Rule("limit", at_most=1_234_567.25, of="pay", sum="amount")])
    (broken,) = history.judge("pay", {"amount": 2_000_000})
    assert broken.words == "amount of pay adds up to at most 1234567.25"


@pytest.mark.parametrize(("scope", "most"), [("turn", 10_000), ("session", 1_000)])
@pytest.mark.parametrize(
    "words",
    [
        {"before": "pay", "need": "check"},
        {"after": "check", "never": "pay"},
        {"at_most": 5, "of": ["check", "pay"], "per": "order"},
        {"not_both": ["check", "pay"]},
        {"before": ["check", "pay"], "need": "sign", "once": True},
    ],
)
def test_full_history_refuses(words: dict[str, object], scope: str, most: int) -> None:
    """Meaning 17: beyond its most keys, a rule refuses the calls that it judges."""
    same = {} if "per" in words else {"same": ["order"]}
    history = History([parse_rule({"name": "rule", **words, **same, "scope": scope})])
    for order in range(most):
        run(history, str(order), "check", order=order)
    assert "full" not in "".join(row.words for row in history.judge("pay", {"order": 0}))
    run(history, "more", "check", order=most)
    assert history.judge("pay", {"order": 0})[0].words == f"its history is full ({most} keys)"
    history.begin_turn()
    assert ("full" in "".join(row.words for row in history.judge("pay", {"order": 0}))) is (scope == "session")


def test_values_for_this_are_few_bytes() -> None:
    """Meaning 17: a `need` with `this` keeps only what it reads, at most 4 KiB; more is UNKNOWN."""
    rule = Rule("named", before="pay", need="check if this.args.to in result.names")
    for names_bytes, is_refused in ((4_000, False), (5_000, True)):
        history = History([rule])
        run(history, "1", "check", {"names": ["x" * names_bytes, "ann"], "other": "y" * 100_000})
        assert bool(history.judge("pay", {"to": "ann"})) is is_refused


@pytest.mark.parametrize("result", ["[" * 1_000 + "]" * 1_000, "{", "1e999", '"\ud800"', "x" * 2_000_000, "NaN"])
def test_hostile_result_refuses_and_raises_nothing(result: str) -> None:
    """Meaning 1: the result of a call is parsed as JSON if it is JSON, and a hostile one is UNKNOWN."""
    history = History(
        [
            Rule("need", before="pay", need="check if result.ok"),
            Rule("same", before="pay", need="check", same={"order": "result.order"}),
        ]
    )
    run(history, "1", "check", result)
    assert names(history.judge("pay", {"order": 1})) == ["need", "same"]


def test_equal_events_give_equal_judgments() -> None:
    """Meaning 17: the state is a fold of its events."""
    rules = RuleList([Rule("once", at_most=1, of="pay", per="order"), Rule("need", before="pay", need="check")])
    first, second = History(rules), History(rules)
    for history in (first, second):
        run(history, "1", "check")
        run(history, "2", "pay", order=json.loads("1"))
    assert first.verdicts("pay", {"order": 1.0}) == second.verdicts("pay", {"order": 1.0})
    assert first.verdicts("pay", {"order": 1}).broken


def test_state_names_the_calls_of_later_verdicts() -> None:
    """Meaning 14 and 17: each rule has the earlier calls that it may still name; a `never` alone names none."""
    history = History(
        [
            Rule("never", never="drop"),
            Rule("once", before="pay if status != 'error'", need=["sign", "stamp"], same=["order"], once=True),
            Rule("few", at_most=2, of="pay if status != 'error'"),
        ]
    )
    for call, tool, order in (("1", "stamp", 2), ("2", "sign", 2), ("3", "sign", 1), ("4", "pay", 1)):
        run(history, call, tool, order=order)
    assert [state.remembered for state in history.states()] == [(), ("1", "2"), ("4",)]
    history.started("5", "pay", {})
    assert [state.remembered for state in history.states()] == [(), (), ("4", "5")]
    history.settled("5", ok=False)
    assert [state.remembered for state in history.states()] == [(), ("1", "2"), ("4",)]


def test_saved_state_keeps_the_starts_that_are_not_certain() -> None:
    """Meaning 3 and 16: a start of the caller that its outcome takes back is one too after a sub-agent's report."""
    paid = "pay if status != 'error'"
    rules = [
        Rule("once", before=paid, need="sign", once=True),
        Rule("sum", at_most=3, of=paid, sum="amount"),
    ]
    history = History(rules)
    assert history.save_tree() == {"order": 0, "rules": {}}
    run(history, "1", "sign")
    history.started("2", "pay", {"amount": 2**60})
    history.started("3", "clerk", {})
    inner = History(rules)
    inner.restore(history.save_tree("3"))
    assert inner.save_tree() == history.save_tree()
    assert names(inner.judge("pay", {"amount": 1})) == ["once", "sum"]
    history.rejoin("3", "clerk", ["pay"], inner.save_tree())
    assert names(history.judge("pay", {"amount": 1})) == ["once", "sum"]
    history.settled("2", ok=False)
    assert not history.judge("pay", {"amount": 1})


def test_changed_rule_ignores_the_state_of_other_tools() -> None:
    """Meaning 15: a session's next turn may have other words for a rule."""
    before = History([Rule("need", before="pay", need=["sign", "check"], scope="session")])
    run(before, "1", "check")
    after = History([Rule("need", before="pay", need="sign", scope="session")])
    after.restore(before.save_session("t1"))
    assert names(after.judge("pay", {})) == ["need"]
    run(before, "2", "sign")
    after.restore(before.save_session("t1"))
    assert after.verdicts("pay", {}).holding == (Held("need", ("t1/2",)),)


def test_rules_couple_their_tools() -> None:
    """Meaning 7: calls that one rule names are coupled; others are not."""
    history = History([Rule("a", before="pay", need="check"), Rule("b", not_both=["merge", "close_*"])])
    assert history.coupled_rules("pay") == history.coupled_rules("check") == {"a"}
    assert history.coupled_rules("merge") == history.coupled_rules("close_issue") == {"b"}
    assert not history.coupled_rules("read")
    assert not history.is_named("read")


@pytest.mark.parametrize(
    ("pattern", "tool", "is_named"),
    [
        ("refund", "refund", True),
        ("refund", "ref\u200bund", False),
        ("refine", "re\ufb01ne", False),
        ("mail_*", "mail_", True),
        ("mail_*", "email_send", False),
        ("*_send_*", "mail_send_now", True),
        ("*_send_*", "mail_sent_now", False),
        ("a*a", "a", False),
        ("*", "anything", True),
        ("a?", "ab", False),
        ("[ab]", "a", False),
    ],
)
def test_names_are_compared_code_point_by_code_point(pattern: str, tool: str, is_named: bool) -> None:
    assert bool(History([Rule("r", never=pattern)]).judge(tool, {})) is is_named


def test_glob_matches_no_message_and_no_answer() -> None:
    history = History([Rule("r", before="*", need="@user"), Rule("s", after="*", then="@user")])
    history.message("Hello")
    assert not history.answer("Hello")
