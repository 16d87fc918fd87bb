"""A scripted scene for each seeded agent: the turns in which its bug shows."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from turnwright import approve, settled
from turnwright.model import ModelResponse, asks_for
from turnwright_states.facts import CallSettled

from .stage import Scene, SceneTurn


def _ask(name: str, **arguments: JsonValue) -> ModelResponse:
    """Return a reply with one call."""
    return asks_for((name, arguments))


def _ask_each(name: str, parameter: str, *values: JsonValue) -> ModelResponse:
    """Return a reply with a call for each value of a parameter."""
    return asks_for(*((name, {parameter: value}) for value in values))


SCENES: Final[Mapping[str, Scene]] = {
    "blind_guardrail": Scene(
        "invariant_model_reads_no_injected_order",
        (SceneTurn((_ask("read_mail", mail="m2"), "Done.")),),
    ),
    "blocked_loop": Scene(
        "read_page blocks the event loop", (SceneTurn((_ask("read_page", page=1), "Done.")),), real_time=True
    ),
    "broad_always": Scene(
        "invariant_people_approve_transfers",
        (
            SceneTurn(
                (_ask("transfer", to="ann", euros=5), _ask("transfer", to="bob", euros=9000), "Done."),
                answers=({"approval-1": "always"},),
            ),
        ),
    ),
    "busy_scanner": Scene(
        "scan fails: the scanner is busy",
        (SceneTurn((_ask("scan", document="d9"), _ask("scan", document="d1"), "Done.")),),
        last_call_succeeds=True,
    ),
    "crowded_printer": Scene(
        "invariant_printers_are_not_crowded", (SceneTurn((_ask_each("print_page", "page", 1, 2, 3), "Done.")),)
    ),
    "cut_cents": Scene(
        "invariant_cents_are_the_price",
        (SceneTurn((_ask("book_receipt", items=[{"title": "a pen", "price": 0.29}]), "Done.")),),
    ),
    "early_hold": Scene(
        "HOLDS has an item twice",
        (SceneTurn((_ask("book_table", guests=2), "Done."), answers=({"question-1": "inside"},)),),
        without_duplicates="HOLDS",
    ),
    "empty_day": Scene(
        "next_appointment raises ValueError", (SceneTurn((_ask("next_appointment", day="Tuesday"), "Done.")),)
    ),
    "endless_wait": Scene("the turn never ends", (SceneTurn((_ask("wait_for_report", report="stock"), "Done.")),)),
    "expired_coupon": Scene(
        "invariant_coupons_are_redeemed_in_time", (SceneTurn((_ask("redeem", coupon="SUMMER"), "Done.")),)
    ),
    "foreign_tenant": Scene(
        "invariant_companies_see_their_own_tickets",
        (SceneTurn((_ask("list_tickets"), "Done."), metadata={"company": "zeta"}),),
    ),
    "kept_lock": Scene(
        "the turn never ends", (SceneTurn((_ask("print_label", order="C1"), _ask("print_label", order="A1"), "Done.")),)
    ),
    "late_question": Scene(
        "invariant_refunds_wait_for_their_answers",
        (SceneTurn((_ask("refund", order="A1", to="gift card"), "Done."), answers=({"question-1": "no"},)),),
    ),
    "leaked_card": Scene("invariant_model_reads_no_card", (SceneTurn((_ask("read_order", order="A1"), "Done.")),)),
    "lost_deposit": Scene(
        "invariant_balance_has_every_deposit", (SceneTurn((_ask_each("deposit", "cents", 5, 7), "Done.")),)
    ),
    "lowered_refund": Scene(
        "invariant_reported_refunds_are_paid",
        (
            SceneTurn(
                (_ask("refund", order="A1", euros=70), "Done."),
                answers=({"approval-1": approve(arguments={"order": "A1", "euros": 20})},),
            ),
        ),
    ),
    "mailed_secret": Scene(
        "invariant_mails_have_no_key",
        (SceneTurn((_ask("read_config"), _ask("mail_customer", text="host=db1 key-4711"), "Done.")),),
    ),
    "missing_branch": Scene(
        "invariant_every_complaint_is_in_a_queue",
        (SceneTurn((_ask("file_complaint", kind="exchange", text="too small"), "Done.")),),
    ),
    "no_total": Scene(
        "invariant_quotes_have_their_total",
        (SceneTurn(('{"items": [1, 2]}', '{"items": [1, 2], "total": 3}')),),
    ),
    "optional_note": Scene("the turn fails: ", (SceneTurn((_ask("book", room="red"), "Done.")),)),
    "parallel_letter": Scene(
        "invariant_paragraphs_keep_their_order",
        (SceneTurn((_ask_each("translate_paragraph", "text", "a long paragraph", "short"), "Done.")),),
    ),
    "raised_refund": Scene(
        "invariant_refunds_are_within_the_limit",
        (
            SceneTurn(
                (_ask("refund", order="A1", euros=70), "Done."),
                answers=({"approval-1": approve(arguments={"order": "A1", "euros": 900})},),
            ),
        ),
    ),
    "repeated_charge": Scene(
        "invariant_customers_pay_their_bills_once",
        (SceneTurn((_ask("charge", cents=100), _ask("charge", cents=200), "Done.")),),
    ),
    "rootless_helper": Scene(
        "invariant_documents_are_read_by_their_readers",
        (
            SceneTurn(
                (_ask("ask_archivist", question="Read d2."), _ask("read_document", document="d2"), "Done."),
                metadata={"reader": "ann"},
            ),
        ),
    ),
    "seat_limit": Scene(
        "invariant_customers_have_few_seats",
        (SceneTurn((_ask("book_seats", seats=5), "Done."), metadata={"customer": "ann"}),),
    ),
    "shared_approval": Scene(
        "invariant_persons_approve_large_transfers",
        (
            SceneTurn(
                (_ask("transfer", to="ann", euros=11), _ask("transfer", to="bob", euros=9000), "Done."),
                answers=({"approval-1": True},),
            ),
        ),
    ),
    "shared_extras": Scene(
        "invariant_guests_get_what_they_ordered",
        (
            SceneTurn((_ask("book_room", extras=["parking"]), "Done.")),
            SceneTurn((_ask("book_room", extras=[]), "Done.")),
        ),
    ),
    "short_memory": Scene(
        "invariant_model_reads_the_wishes",
        (
            SceneTurn(
                (*(_ask("find_hotels", page=page) for page in (1, 2, 3)), "Done."),
                prompt="Find a hotel in Rome for at most 80 EUR.",
            ),
        ),
    ),
    "silent_outbox": Scene(
        "invariant_sent_mails_are_in_mailboxes",
        (SceneTurn((_ask("send_mail", recipient="carl@example.org", text="Hello"), "Done.")),),
    ),
    "stale_address": Scene(
        "invariant_parcels_go_to_the_customer",
        tuple(
            SceneTurn((_ask("send_parcel"), "Done."), metadata={"customer": name}, session=name)
            for name in ("ann", "bob")
        ),
    ),
    "stale_price": Scene(
        "invariant_quotes_are_the_prices",
        (
            SceneTurn(
                (
                    _ask("quote", article="lamp"),
                    _ask("change_price", article="lamp", euros=50),
                    _ask("quote", article="lamp"),
                    "Done.",
                )
            ),
        ),
    ),
    "twice_after_crash": Scene(
        "invariant_calls_issue_a_voucher_once",
        (SceneTurn((_ask("issue_voucher", euros=20), "Done."), dies_before=CallSettled),),
    ),
    "unchecked_boxes": Scene("invariant_shipments_are_small", (SceneTurn((_ask("ship", pieces=49), "Done.")),)),
    "unguarded_loop": Scene("the turn has ", (SceneTurn((_ask("search", query="holidays"),)),)),
    "unlisted_answer": Scene(
        "order_tea raises KeyError",
        (SceneTurn((_ask("order_tea", cups=2), "Done."), answers=({"question-1": "medium"},)),),
    ),
    "unowned_order": Scene(
        "invariant_orders_are_canceled_by_their_customers",
        (SceneTurn((_ask("cancel_order", order="B1"), "Done."), metadata={"customer": "ann"}),),
    ),
    "unread_verdict": Scene(
        "invariant_only_confirmed_users_move",
        (
            SceneTurn(
                (_ask("confirm_identity"), _ask("change_address", street="Elm Street 1"), "Done."),
                answers=({"result-call00001": settled({"verified": False})},),
            ),
        ),
    ),
    "wrong_id": Scene(
        "invariant_accounts_belong_to_customers", (SceneTurn((_ask("give_points", order="A1", points=5), "Done.")),)
    ),
}
