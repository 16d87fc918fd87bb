"""Step 3: the engine does the I/O. You keep your client and your messages."""

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
    """Your client as a model: a name, and `stream`, which yields one complete reply."""

    name = "yours"

    def __init__(self, client: Client) -> None:
        self.client = client

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
        """Call the client in a thread, because it blocks."""
        messages = [as_chat(message) for message in request.messages]
        tools = request.tool_choice != "none"
        reply = await asyncio.to_thread(self.client.chat, messages, tools=tools)
        calls = tuple(as_call(call) for call in reply.get("tool_calls") or ())
        yield ModelResponse(text=reply["content"] or "", calls=calls)


class App:
    """An app that answers messages. The paused turn is in memory."""

    def __init__(self, client: Client) -> None:
        self.engine = Engine(model=YourModel(client), tools=TOOLS)
        self.messages: list[Message] = []
        self.waiting: TurnResult | None = None

    async def respond(self, messages: list[Message]) -> str | None:
        """Run a turn until it ends or pauses."""
        self.messages = messages
        prompt = messages[-1]["content"]
        turn = await self.engine.run(AGENT, prompt, message_history=messages[:-1])
        return self.show(turn)

    async def answer(self) -> str | None:
        """Approve the questions of the paused turn."""
        if self.waiting is None:
            return "nothing waits"
        answers = {interrupt.id: True for interrupt in self.waiting.interrupts}
        return self.show(await self.engine.resume(self.waiting.id, answers))

    def show(self, turn: TurnResult) -> str:
        """Append the messages of an ended turn."""
        self.waiting = turn if turn.paused else None
        if not turn.paused:
            messages = [
                message for message in turn.messages[1:] if message.says_something
            ]
            self.messages += [as_chat(message) for message in messages]
        return shown(turn)

    async def aclose(self) -> None:
        """Close the engine."""
        await self.engine.aclose()


def shown(turn: TurnResult) -> str:
    """Return the text for the user."""
    if turn.paused:
        return f"may I {', '.join(interrupt.tool for interrupt in turn.interrupts)}?"
    why = turn.sentinel.text if turn.sentinel is not None else ""
    return f"{turn.text or why} ({turn.outcome}: {turn.reason})"


def as_call(call: Message) -> ResponseToolCall:
    """Convert a call for the engine."""
    function = call["function"]
    return ResponseToolCall(
        function["name"], json.loads(function["arguments"]), id=call["id"]
    )


def as_chat(message: Said) -> Message:
    """Convert a message for your client."""
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            return {"role": "tool", "tool_call_id": part.call, "content": part.text}
    chat: Message = {"role": message.role, "content": message.text or None}
    if message.calls:
        chat["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments),
                },
            }
            for call in message.calls
        ]
    return chat


if __name__ == "__main__":
    play(App)
