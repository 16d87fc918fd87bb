"""A turn whose rules allow, refuse, ask and report, for tests of what people are shown."""

from turnwright import Agent, Engine, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright.rules import Rule
from turnwright.store import Store
from turnwright.telemetry import Telemetry


@tool(read_only=True)
def verify(order_id: str) -> dict[str, object]:  # noqa: ARG001 (a rule compares it)
    """Check an order."""
    return {"paid": 80}


@tool
def refund(order_id: str, amount: float) -> str:
    """Pay money back."""
    return f"{amount:g} of {order_id} are paid back"


@tool
def write_file(path: str) -> str:
    """Write a file."""
    return f"{path} is written"


@tool
def run_tests() -> dict[str, object]:
    """Run the tests."""
    return {"passed": True}


RULES = (
    Rule("verify-first", before="refund", need="verify if this.args.amount <= result.paid", same=["order_id"]),
    Rule("large", never="refund if args.amount > 60", effect="ask", say="Above 60 a person decides."),
    Rule("tested", after="write_file", then="run_tests if result.passed"),
    Rule("noted", never="write_file", effect="report"),
)
AGENT = Agent(name="Clerk", rules=RULES)


def engine_with_rules(store: "str | Store", telemetry: Telemetry | None = None) -> Engine:
    """Return an engine whose turn has a refused, a reported and a refused answer, and asks about its last call."""
    model = ScriptedModel(
        asks_for(("refund", {"order_id": "7", "amount": 50})),
        asks_for(("verify", {"order_id": "7"}), ("refund", {"order_id": "7", "amount": 50})),
        asks_for(("write_file", {"path": "a.txt"})),
        "Done.",
        asks_for(("run_tests", {})),
        asks_for(("refund", {"order_id": "7", "amount": 70})),
        "Paid.",
    )
    return Engine(model=model, tools=[verify, refund, write_file, run_tests], store=store, telemetry=telemetry)
