"""smolagents' ToolCallingAgent, with a fake Model of its own kind.

    python -m bench.peers.smolagents_agent

Models, tools and runs are synchronous.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import ClassVar, Final

from bench.measure import main
from bench.peers.history import check
from bench.yardstick import PROMPT, Move, Script, Subject, current, look_now

# Peers are installed in environments of their own: who checks types need not have them.
from rich.console import Console  # pyright: ignore[reportMissingImports]
from smolagents import (  # pyright: ignore[reportMissingImports]
    AgentLogger,
    ChatMessage,
    LogLevel,
    Model,
    TokenUsage,
    Tool,
    ToolCallingAgent,
)
from smolagents.models import (  # pyright: ignore[reportMissingImports]
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
    MessageRole,
)

STEPS: Final = 200
THREADS: Final = 1_000


class Look(Tool):  # type: ignore[misc]
    """The tool, as a class: the decorator wants the source of a function."""

    name = "look"
    description = "Look at a place."
    inputs: ClassVar[dict[str, dict[str, str]]] = {"place": {"type": "integer", "description": "The place."}}
    output_type = "string"

    def forward(self, place: int) -> str:
        """Look at a place."""
        return look_now(place)


class Fake(Model):  # type: ignore[misc]
    """The fake model. A text alone is an error to the agent: it ends with a call of `final_answer`."""

    def generate(self, messages: list[ChatMessage], **_: object) -> ChatMessage:
        """One reply, whole."""
        move = moved(messages)
        calls = [
            ChatMessageToolCall(
                id=id_, type="function", function=ChatMessageToolCallFunction(name=name, arguments=arguments)
            )
            for id_, name, arguments in calls_of(move)
        ]
        usage = TokenUsage(input_tokens=100, output_tokens=10)
        return ChatMessage(role=MessageRole.ASSISTANT, content=move.text, tool_calls=calls, token_usage=usage)


class StreamingFake(Fake):
    """The fake model that can stream, too."""

    def generate_stream(self, messages: list[ChatMessage], **_: object) -> Iterator[ChatMessageStreamDelta]:
        """One reply, in pieces."""
        move = moved(messages)
        yield ChatMessageStreamDelta(content=move.text)
        for index, (id_, name, arguments) in enumerate(calls_of(move)):
            function = ChatMessageToolCallFunction(name=name, arguments=arguments)
            delta = ChatMessageToolCallStreamDelta(index=index, id=id_, type="function", function=function)
            yield ChatMessageStreamDelta(tool_calls=[delta])
        yield ChatMessageStreamDelta(content="", token_usage=TokenUsage(input_tokens=100, output_tokens=10))


def moved(messages: list[ChatMessage]) -> Move:
    """The model's next move."""
    script = current()
    move = script.reply_now()
    if not move.calls:
        texts = (message.content[0]["text"] for message in messages if message.role is MessageRole.TOOL_RESPONSE)
        check(script, sum(text.count("nothing at") for text in texts))
    return move


def calls_of(move: Move) -> list[tuple[str, str, str]]:
    """The id, name and arguments of each call."""
    if not move.calls:
        return [("final", "final_answer", json.dumps({"answer": move.text}))]
    return [(call.id, call.name, call.arguments) for call in move.calls]


class Smolagents(Subject):
    """The agent, its replies whole: its default, and the leaner way."""

    name = "smolagents"
    modules = ("smolagents",)
    packages = ("smolagents",)
    most_in_flight = THREADS
    has_sessions = True
    notes: ClassVar[tuple[str, ...]] = (
        "It is synchronous, models and tools too: a turn in flight holds a thread, and starts two more in each step.",
        "An agent runs one turn at a time: each turn in flight has one, which is used again for later turns.",
        "An agent keeps its history, in memory, and is a session.",
        "Its last step is a call of its tool final_answer: a text alone is an error to it.",
        "Its log is off.",
    )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """As many threads as turns can be in flight, and the agents that are free."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        self._free: list[ToolCallingAgent] = []
        self._look = Look()
        yield

    async def turn(self, script: Script) -> str:
        """One turn, in a thread."""
        del script
        agent = self._free.pop() if self._free else self._made()
        text = await asyncio.to_thread(agent.run, PROMPT, reset=not self.session)
        self._free.append(agent)
        return str(text)

    def _made(self) -> ToolCallingAgent:
        quiet = AgentLogger(level=LogLevel.OFF, console=Console(quiet=True))
        model = StreamingFake() if self.streamed else Fake()
        return ToolCallingAgent([self._look], model, stream_outputs=self.streamed, max_steps=STEPS, logger=quiet)


class SmolagentsStreamed(Smolagents):
    """The agent, its replies streamed."""

    name = "smolagents, streamed"
    streamed = True
    has_sessions = False
    notes: ClassVar[tuple[str, ...]] = (
        *Smolagents.notes,
        "Streamed, each piece of a reply is made Markdown for the screen, which is off; a thread a step refreshes it.",
    )


if __name__ == "__main__":
    main(Smolagents(), SmolagentsStreamed())
