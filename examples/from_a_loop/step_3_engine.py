"""Step 3: the engine calls the model and runs the tools. The client and the list of messages are still yours."""

import asyncio
import json
from collections.abc import AsyncIterator

from shop import Client, Message, charge, play, refund, search

from turnwright import Agent, Engine, Tool, TurnResult, tool
from turnwright.message import Message as Said
from turnwright.message import ToolResultPart
from turnwright.model import ModelRequest, ModelResponse, ResponseToolCall

AGENT = Agent(name="Clerk", steps=5, max_retries=1)
TOOLS: list[Tool] = [tool(search), tool(needs_approval=True)(refund), tool(charge)]


class YourModel:
    """Your client as a model: a name, and `stream`, which ends with one whole reply."""

    name = "yours"

    def __init__(self, client: Client) -> None:
        self.client = client

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
        """Call the client in a thread, for it blocks."""
        messages = [as_chat(message) for message in request.messages]
        reply = await asyncio.to_thread(self.client.chat, messages, tools=request.tool_choice != "none")
        calls = [(call["id"], call["function"]) for call in reply.get("tool_calls") or ()]
        yield ModelResponse(
            text=reply["content"] or "",
            calls=tuple(ResponseToolCall(made["name"], json.loads(made["arguments"]), id=own) for own, made in calls),
        )


class App:
    """Answers messages. The turn that waits for a person is in memory."""

    def __init__(self, client: Client) -> None:
        self.engine = Engine(model=YourModel(client), tools=TOOLS)
        self.messages: list[Message] = []
        self.waiting: TurnResult | None = None

    async def respond(self, messages: list[Message]) -> str | None:
        """Run a turn until it has ended or waits for a person."""
        self.messages = messages
        return self.show(await self.engine.run(AGENT, messages[-1]["content"], message_history=messages[:-1]))

    async def answer(self) -> str | None:
        """A person says yes to what the turn in memory asks."""
        if self.waiting is None:
            return "nothing waits"
        answers = {asked.id: True for asked in self.waiting.interrupts}
        return self.show(await self.engine.resume(self.waiting.id, answers))

    def show(self, turn: TurnResult) -> str:
        """Add what was said in a turn to the messages, once it has ended."""
        self.waiting = turn if turn.paused else None
        if not turn.paused:
            self.messages += [as_chat(message) for message in turn.messages[1:] if message.says_something]
        return told(turn)

    async def aclose(self) -> None:
        """Close the engine."""
        await self.engine.aclose()


def told(turn: TurnResult) -> str:
    """What the user is shown of a turn."""
    if turn.paused:
        return f"may I {', '.join(asked.tool for asked in turn.interrupts)}?"
    why = turn.sentinel.text if turn.sentinel is not None else ""
    return f"{turn.text or why} ({turn.outcome}: {turn.reason})"


def as_chat(message: Said) -> Message:
    """A message as your client wants it."""
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            return {"role": "tool", "tool_call_id": part.call, "content": part.text}
    chat: Message = {"role": message.role, "content": message.text or None}
    if message.calls:
        chat["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in message.calls
        ]
    return chat


if __name__ == "__main__":
    play(App)
