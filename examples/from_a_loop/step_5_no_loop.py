"""Step 5: the loop and the client are gone. An agent and its tools remain."""

import httpx
import shop
from provider import transport_to
from shop import Client, Message, play

from turnwright import Agent, Engine, ToolContext, TurnResult, tool
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
    """Create the engine. Without transport and key, it calls OpenAI."""
    model = OpenAIChat("gpt-5-mini", transport=transport, api_key="none")
    return Engine(
        model=model, tools=[search, refund, charge], store="sqlite:///turns.db"
    )


class App:
    """The interface that this example's problems need."""

    def __init__(self, client: Client) -> None:
        self.session = client.problem
        self.engine = make_engine(transport_to(client))

    async def respond(self, messages: list[Message]) -> str | None:
        """Resume the turn of a crashed process, or run a new one."""
        recovered = await self.engine.recover()
        if recovered:
            return shown(recovered[0])
        prompt = messages[-1]["content"]
        return shown(await self.engine.run(AGENT, prompt, session=self.session))

    async def answer(self) -> str | None:
        """Approve the questions of a paused turn, whichever process asked."""
        for row in await self.engine.turns(live=True):
            turn = await self.engine.get(row.id)
            if turn.paused:
                answers = {interrupt.id: True for interrupt in turn.interrupts}
                return shown(await self.engine.resume(turn.id, answers))
        return "nothing waits"

    async def aclose(self) -> None:
        """Close the engine and its store."""
        await self.engine.aclose()


def shown(turn: TurnResult) -> str:
    """Return the text for the user."""
    if turn.paused:
        return f"may I {', '.join(interrupt.tool for interrupt in turn.interrupts)}?"
    why = turn.sentinel.text if turn.sentinel is not None else ""
    return f"{turn.text or why} ({turn.outcome}: {turn.reason})"


if __name__ == "__main__":
    play(App)
