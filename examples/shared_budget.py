"""One budget of a customer for turns that run at the same time: `python examples/shared_budget.py` (offline).

Each turn reserves a share before it starts, and the share is its limit. When it ends, a notice replaces the share by
what it has spent, and the rest is free again. One reply and the conclusion may exceed a limit: then less is left.
"""

import asyncio

from turnwright import Agent, Engine, Limits, Notice, Price, TurnResult, Usage
from turnwright.model import ModelResponse, ScriptedModel

AGENT = Agent(name="Helper")
MOST = 0.02
"""The most money of one turn."""


class Account:
    """The money of one customer, and what each turn has of it: a table of your database."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.shares: dict[str, float] = {}
        self.spent: dict[str, float] = {}

    @property
    def left(self) -> float:
        """The money that no turn has."""
        return self.budget - sum(self.spent.get(turn, share) for turn, share in self.shares.items())

    def reserve(self, turn: str) -> float | None:
        """Return the share of a turn, or None if no money is left. A repeated start gets the same share.

        In a database this is one transaction.
        """
        if turn not in self.shares and self.left > 0:
            self.shares[turn] = min(MOST, self.left)
        return self.shares.get(turn)

    def close(self, turn: str, spent: float) -> None:
        """Replace the share of an ended turn by what it has spent. The same notice again changes nothing."""
        self.spent[turn] = spent


class Desk:
    """Answers customers within their budgets."""

    def __init__(self, accounts: dict[str, Account]) -> None:
        self.accounts = accounts
        reply = ModelResponse(text="Done.", usage=Usage(input_tokens=1000, output_tokens=500))
        model = ScriptedModel(reply, repeat=True, name="scripted")
        prices = {"scripted": Price(input=2.0, output=10.0)}
        self.engine = Engine(model=model, prices=prices, subscribers={"accounts": self.close})

    async def close(self, notice: Notice) -> None:
        """Close the share of a turn that has ended, whichever process drove it. A paused turn keeps its share."""
        if notice.kind == "ended":
            turn = await self.engine.get(notice.turn)
            self.accounts[str(notice.metadata["customer"])].close(turn.id, turn.usage.cost or 0.0)

    async def run(self, customer: str, prompt: str, turn: str) -> TurnResult | None:
        """Run a turn within its share. Return None if the customer has no money left."""
        share = self.accounts[customer].reserve(turn)
        if share is None:
            return None
        agent = AGENT.model_copy(update={"budget": Limits(cost=share)})
        return await self.engine.run(agent, prompt, id=turn, metadata={"customer": customer})


async def main() -> None:
    """Answer three requests of one customer at once: the budget is enough for two shares, and then for another."""
    account = Account(budget=0.03)
    desk = Desk({"acme": account})
    async with desk.engine as engine:
        turns = await asyncio.gather(*(desk.run("acme", "Help me.", f"request-{number}") for number in (1, 2, 3)))
        print([turn.text if turn else "no money left" for turn in turns], f"left: {account.left:.3f}")
        await engine.deliver()  # a worker delivers too
        print("spent:", account.spent, f"left: {account.left:.3f}")
        again = await desk.run("acme", "Help me.", "request-3")
        print(again and again.text, f"left: {account.left:.3f}")


if __name__ == "__main__":
    asyncio.run(main())
