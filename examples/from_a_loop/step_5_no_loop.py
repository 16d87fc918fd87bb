"""Step 5: the loop is gone, and so is the client. What is left is yours: an agent, and tools."""

import httpx
import shop
from provider import transport_to
from shop import Client, Message, play

from turnwright import Agent, Engine, State, ToolContext, TurnResult, tool
from turnwright.model import OpenAIChat

AGENT = Agent(name="Clerk", steps=5, max_retries=1)


@tool(read_only=True)
def search(page: int) -> str:
    """Read a page of the manual."""
    return shop.search(page)


@tool(needs_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return shop.refund(order)


@tool(idempotent=True)
def charge(order: int, context: ToolContext) -> str:
    """Charge an order."""
    return shop.charge(order, key=context.idempotency_key)


def make_engine(transport: httpx.AsyncBaseTransport) -> Engine:
    """The engine. Leave the transport and the key away, and it asks OpenAI."""
    model = OpenAIChat("gpt-5-mini", transport=transport, api_key="none")
    return Engine(model=model, tools=[search, refund, charge], store="sqlite:///turns.db")


class App:
    """Answers messages: what is left of it is what the problems of this example want to see."""

    def __init__(self, client: Client) -> None:
        self.session = client.problem
        self.engine = make_engine(transport_to(client))

    async def respond(self, messages: list[Message]) -> str | None:
        """Take up what a process left that died; else run a turn."""
        left = await self.engine.recover()
        turn = left[0] if left else await self.engine.run(AGENT, messages[-1]["content"], session=self.session)
        return told(turn)

    async def answer(self) -> str | None:
        """A person says yes to what the turn asks, in whatever process it was asked."""
        for row in await self.engine.turns(live=True):
            if row.status.state is State.PAUSED:
                pending = (await self.engine.get(row.id)).interrupts
                return told(await self.engine.resume(row.id, {asked.id: True for asked in pending}))
        return "nothing waits"

    async def aclose(self) -> None:
        """Close the engine, and with it the store."""
        await self.engine.aclose()


def told(turn: TurnResult) -> str:
    """What the user is shown of a turn."""
    if turn.paused:
        return f"may I {', '.join(asked.tool for asked in turn.interrupts)}?"
    why = turn.sentinel.text if turn.sentinel is not None else ""
    return f"{turn.text or why} ({turn.outcome}: {turn.reason})"


if __name__ == "__main__":
    play(App)
