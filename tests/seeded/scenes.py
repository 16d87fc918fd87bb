"""A scripted scene for each seeded agent: the turns in which its bug shows."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from turnwright.model import asks_for

from .stage import Scene, SceneTurn


def _call(name: str, **arguments: JsonValue) -> tuple[str, dict[str, JsonValue]]:
    """Return a call of a tool, for `asks_for`."""
    return name, arguments


SCENES: Final[Mapping[str, Scene]] = {
    "blind_guardrail": Scene(
        "check_model_reads_no_injected_order",
        (SceneTurn((asks_for(_call("read_mail", mail="m2")), "Done.")),),
    ),
    "late_question": Scene(
        "check_refunds_wait_for_their_answers",
        (SceneTurn((asks_for(_call("refund", order="A1", to="gift card")), "Done."), answers=({"question-1": "no"},)),),
    ),
    "lost_deposit": Scene(
        "check_balance_has_every_deposit",
        (SceneTurn((asks_for(_call("deposit", cents=5), _call("deposit", cents=7)), "Done.")),),
    ),
    "repeated_charge": Scene(
        "check_customers_pay_their_bills_once",
        (SceneTurn((asks_for(_call("charge", cents=100)), asks_for(_call("charge", cents=200)), "Done.")),),
    ),
    "unowned_order": Scene(
        "check_orders_are_canceled_by_their_customers",
        (SceneTurn((asks_for(_call("cancel_order", order="B1")), "Done."), metadata={"customer": "ann"}),),
    ),
}
