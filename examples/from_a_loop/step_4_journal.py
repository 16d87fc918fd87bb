"""Step 4: every fact is in a journal before anything follows from it. The list of messages is gone."""

import shop
from shop import Client, Message, play, refund, search
from step_3_engine import AGENT, YourModel, told

from turnwright import Engine, State, Tool, ToolContext, tool


@tool(idempotent=True)
def charge(order: int, context: ToolContext) -> str:
    """Charge an order."""
    return shop.charge(order, key=context.idempotency_key)


TOOLS: list[Tool] = [tool(search), tool(needs_approval=True)(refund), charge]


class App:
    """Answers messages. Everything else is in the journal."""

    def __init__(self, client: Client) -> None:
        self.session = client.problem
        self.engine = Engine(model=YourModel(client), tools=TOOLS, store="sqlite:///turns.db")

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


if __name__ == "__main__":
    play(App)
