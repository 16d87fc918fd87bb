"""Strands Agents, with a fake Model of its own kind.

    python -m bench.peers.strands_agent

No exporter is set, so its spans record nothing; that it encodes the messages for them cannot be switched off.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from bench.measure import main
from bench.peers.history import check
from bench.yardstick import PROMPT, Script, Subject, current, look

# Peers are installed in environments of their own: who checks types need not have them.
from strands import Agent, tool  # pyright: ignore[reportMissingImports]
from strands.agent import NullConversationManager  # pyright: ignore[reportMissingImports]
from strands.models import Model  # pyright: ignore[reportMissingImports]
from strands.types.content import Messages  # pyright: ignore[reportMissingImports]
from strands.types.streaming import StreamEvent  # pyright: ignore[reportMissingImports]


class Fake(Model):  # type: ignore[misc]
    """The fake model, with the events of a stream of Bedrock's."""

    def update_config(self, **_: object) -> None:
        """Nothing is configured."""

    def get_config(self) -> dict[str, object]:
        """Nothing is configured."""
        return {}

    def structured_output(self, *_: object, **__: object) -> AsyncIterator[object]:
        """Not needed."""
        raise NotImplementedError("it answers in text")

    async def stream(self, messages: Messages, *_: object, **__: object) -> AsyncIterator[StreamEvent]:
        """One reply, in pieces."""
        script = current()
        move = await script.reply()
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": move.text}}}
        yield {"contentBlockStop": {}}
        for call in move.calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": call.name, "toolUseId": call.id}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": call.arguments}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if move.calls else "end_turn"}}
        usage = {"inputTokens": 100, "outputTokens": 10, "totalTokens": 110}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}
        if not move.calls:
            check(script, sum("toolResult" in block for message in messages for block in message["content"]))


class Strands(Subject):
    """The agent, its tools run at once."""

    name = "strands"
    modules = ("strands",)
    packages = ("strands-agents", "opentelemetry-api")
    has_sessions = True
    notes: ClassVar[tuple[str, ...]] = (
        "An agent keeps its history, in memory: it is a session, and else each turn makes one of its own.",
        "Its conversation manager, which by default keeps the last 40 messages, is switched off: the others keep all.",
    )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The model and the tool, for all turns."""
        self._model = Fake()
        self._look = tool(look)
        self._shared = self._made()
        yield

    async def turn(self, script: Script) -> str:
        """One turn, without the handler that prints."""
        del script
        agent = self._shared if self.session else self._made()
        result = await agent.invoke_async(PROMPT)
        return str(result).strip()

    def _made(self) -> Agent:
        return Agent(
            self._model,
            tools=[self._look],
            callback_handler=None,
            conversation_manager=NullConversationManager(),
        )


if __name__ == "__main__":
    main(Strands())
