"""Arguments that rules read and that tools do not have are errors, or warnings where only some tools lack them."""

from typing import Any

import pytest

from turnwright_states.rules import RuleList, parse_rule
from turnwright_states.rules.arguments import Arguments, check_arguments

TOOLS: Arguments = {"pay": ["order", "amount"], "check": ["order"], "stop": [], "mail_send": ["to"], "open": None}


def faults(**words: Any) -> list[tuple[str, bool]]:  # noqa: ANN401 (the words of a rule)
    rules = RuleList([parse_rule({"name": "r", **words})], {"all": ["pay", "check"]})
    return [(fault.why, fault.is_error) for fault in check_arguments(rules, TOOLS)]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"never": "pay if args.amout > 1"}, "pay has no argument 'amout': did you mean 'amount'?"),
        ({"never": "pay if args['sum'] > 1"}, "pay has no argument 'sum': the arguments are order, amount"),
        ({"never": "stop if args.x"}, "stop has no argument 'x'"),
        (
            {"never": "$all if default(args.ordre, 1) == 2"},
            "pay and check have no argument 'ordre': did you mean 'order'?",
        ),
        ({"never": "mail_* if args.subject == ''"}, "mail_send has no argument 'subject': the arguments are to"),
        (
            {"before": "pay", "need": "check if this.args.sum < 5"},
            "pay has no argument 'sum': the arguments are order, amount",
        ),
        (
            {"before": "pay", "need": "check", "same": {"order": "args.amount"}},
            "check has no argument 'amount': the arguments are order",
        ),
        (
            {"at_most": 3, "of": "pay", "sum": "args.price"},
            "pay has no argument 'price': the arguments are order, amount",
        ),
        ({"at_most": 3, "of": "pay", "per": ["user"]}, "pay has no argument 'user': the arguments are order, amount"),
        (
            {"not_both": ["stop", "check"], "same": ["number"]},
            "check and stop have no argument 'number': the arguments are order",
        ),
        ({"after": "stop", "then": "check", "same": ["order"]}, "stop has no argument 'order'"),
        ({"after": "stop", "never": "pay", "same": ["order"]}, "stop has no argument 'order'"),
    ],
)
def test_argument_that_no_named_tool_has_is_an_error(words: dict[str, object], why: str) -> None:
    assert faults(**words) == [(why, True)]


@pytest.mark.parametrize(
    "words",
    [
        {"never": "open if args.anything"},
        {"at_most": 1, "of": "pay if args or result.x"},
        {"never": ["pay if args.amount", "check if args.order"]},
        {"never": "unknown if args.x"},
        {"before": "pay", "need": "check if this.args.amount < result.paid", "same": {"order": "result.order"}},
        {"before": "@answer", "need": "check if this.text == result.text"},
        {"after": ["stop", "check"], "never": "pay", "same": ["order"]},
    ],
)
def test_argument_that_a_tool_may_have_is_no_fault(words: dict[str, object]) -> None:
    """An earlier call without a compared field equals every call, so only some may have it."""
    assert faults(**words) == []


def test_argument_that_one_of_several_tools_lacks_is_a_warning() -> None:
    assert faults(never="$all if args.amount > 1") == [
        ("check has no argument 'amount': the arguments are order", False)
    ]
