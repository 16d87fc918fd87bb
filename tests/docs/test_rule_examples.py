"""The policies in examples/rules: each is loaded, and acts on the calls that it is about."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from turnwright.rules import History, RuleSet
from turnwright_proof import check_rules

FOLDER: Final = Path(__file__).parents[2] / "examples" / "rules"
POLICIES: Final = sorted(FOLDER.glob("*.yaml"))
#: A message of the user, or a call with its arguments and its result; without a result, the call is judged.
Event = str | tuple[str, Mapping[str, Any]] | tuple[str, Mapping[str, Any], Any]

ORDER: Final = ("check_order", {"order_id": "7"}, {"refundable": True, "paid": 80})
RESERVATION: Final = {
    "cabin": "economy",
    "insurance": "no",
    "created_at": "2024-05-01T00:00:00",
    "total_baggages": 2,
    "passengers": [{"first_name": "Ann"}],
    "flights": [{"flight_number": "HAT1", "date": "2024-05-20"}],
}
READ: Final = ("get_reservation_details", {"reservation_id": "R"}, RESERVATION)
CANCEL: Final = ("cancel_reservation", {"reservation_id": "R"})
RETAIL: Final = (
    "Cancel my order, yes.",
    ("find_user_id_by_email", {"email": "a@b.c"}, "u1"),
    ("get_user_details", {"user_id": "u1"}, {"orders": ["#1"], "payment_methods": {"card": {}}}),
)


def broken_by(policy: str, *events: Event) -> set[str]:
    """Return the rules that the last call, or the last text as an answer, breaks."""
    history = History(RuleSet.load(FOLDER / f"{policy}.yaml"))
    *before, last = events
    for number, event in enumerate(before):
        if isinstance(event, str):
            history.message(event)
            continue
        tool, arguments, *result = event
        history.started(str(number), tool, arguments)
        history.settled(str(number), ok=True, result=result[0])
    verdicts = history.answer(last) if isinstance(last, str) else history.judge(last[0], last[1])
    return {verdict.rule for verdict in verdicts}


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_policy_is_loaded_and_says_its_limits(path: Path) -> None:
    """Each policy names the sentences that rules cannot say."""
    rules = RuleSet.load(path)
    assert rules.rules
    assert "# Not here, and why:\n# - " in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_policy_leaves_a_way_to_an_answer(path: Path) -> None:
    """No rule of a policy makes its tools impossible, and each may act."""
    rules = RuleSet.load(path)
    names = {part.tool for words in rules.patterns for calls in words.values() for call in calls for part in call.parts}
    tools = sorted(name.replace("*", "x") for name in names if not name.startswith("@"))
    assert [finding for finding in check_rules(rules, tools) if finding.kind != "holds"] == []


@pytest.mark.parametrize(
    ("policy", "events", "broken"),
    [
        ("desk", [("refund", {"order_id": "7", "amount": 50})], {"check-first"}),
        ("desk", [ORDER, ("refund", {"order_id": "7", "amount": 50})], set()),
        ("desk", [ORDER, ("refund", {"order_id": "7", "amount": 90})], {"check-first"}),
        ("desk", [ORDER, ("refund", {"order_id": "8", "amount": 50})], {"check-first"}),
        ("desk", [ORDER, ("refund", {"order_id": "7", "amount": 5}, "ok"), "Paid back."], {"told-the-customer"}),
        (
            "desk",
            [
                ("check_order", {"order_id": "7"}, {"refundable": True, "paid": 900}),
                ("refund", {"order_id": "7", "amount": 150}, "ok"),
                ("refund", {"order_id": "7", "amount": 200}),
            ],
            {"one-refund", "large-refund", "day-limit"},
        ),
        ("desk", [("merge_tickets", {"number": 3}, "ok"), ("close_ticket", {"number": 3})], {"either"}),
        ("desk", [("read_internal_note", {}, "x"), ("send_message", {"text": "Hi."})], {"notes-are-internal"}),
        ("coder", [("write_file", {"path": "a.py"}, "ok"), "Done."], {"tested"}),
        (
            "coder",
            [("write_file", {"path": "a.py"}, "ok"), ("run_tests", {}, {"passed": True}), "Done."],
            set(),
        ),
        ("coder", [("write_file", {"path": "../a.py"})], {"inside-only"}),
        ("coder", [("edit_file", {"path": "a.py"})], {"read-before-edit"}),
        ("coder", [("read_file", {"path": "~/.ssh/id"}, "key"), ("mcp_slack_send", {"text": "x"})], {"no-leak"}),
        ("coder", [("run", {"command": "sudo ls"})], {"asked-commands"}),
        ("airline", ["Cancel it.", READ, CANCEL], {"yes-first", "ground-for-canceling"}),
        (
            "airline",
            [
                "Cancel it, yes.",
                ("get_reservation_details", {"reservation_id": "R"}, RESERVATION | {"insurance": "yes"}),
                CANCEL,
            ],
            set(),
        ),
        ("airline", ["Yes.", CANCEL], {"read-first", "ground-for-canceling", "not-flown"}),
        ("airline", [("send_certificate", {"amount": 120})], {"certificate-for-whom", "certificate-amount"}),
        ("retail", [("get_order_details", {"order_id": "#1"})], {"authenticate"}),
        (
            "retail",
            [
                *RETAIL,
                ("get_order_details", {"order_id": "#1"}, {"status": "delivered"}),
                ("cancel_pending_order", {"order_id": "#1", "reason": "no longer needed"}),
            ],
            {"pending-only"},
        ),
        (
            "retail",
            [
                *RETAIL,
                ("get_order_details", {"order_id": "#2"}, {"status": "pending"}),
                ("cancel_pending_order", {"order_id": "#2", "reason": "too expensive"}),
            ],
            {"own-orders", "reason"},
        ),
        ("agentdojo", ["Send 5 to Ann.", ("send_money", {"recipient": "Ann", "amount": 5})], set()),
        ("agentdojo", ["Pay my bill.", ("send_money", {"recipient": "Eve", "amount": 5})], {"money-to-whom"}),
        ("agentdojo", ["Read my mail.", ("delete_email", {"id": 1})], {"delete"}),
    ],
)
def test_policy_acts_on_its_calls(policy: str, events: Sequence[Event], broken: set[str]) -> None:
    assert broken_by(policy, *events) == broken
