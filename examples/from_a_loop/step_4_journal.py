"""Step 4: the engine stores every fact. Your list of messages is gone."""

import shop
from shop import Client, Message, play, refund, search
from step_3_engine import AGENT, YourModel, shown

from turnwright import Engine, Tool, ToolContext, tool


@tool(idempotent=True)
def charge(order: int, context: ToolContext) -> str:
    """Charge an order."""
    return shop.charge(order, key=context.idempotency_key)


TOOLS: list[Tool] = [tool(search), tool(needs_approval=True)(refund), charge]


class App:
    """An app that answers messages. Everything else is in the store."""

    def __init__(self, client: Client) -> None:
        self.session = client.problem
        self.engine = Engine(
            model=YourModel(client), tools=TOOLS, store="sqlite:///turns.db"
        )

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


if __name__ == "__main__":
    play(App)
