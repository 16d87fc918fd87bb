"""LangGraph's ReAct agent (`create_agent`, which was `create_react_agent`), with a fake chat model of LangChain.

    python -m bench.peers.langgraph_react

The agent runs each call of a step as a task of its graph.
"""

import itertools
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final, Protocol

from bench.measure import main
from bench.peers.history import check
from bench.yardstick import PROMPT, Script, Subject, current, look, sqlite_bytes

# Peers are installed in environments of their own: who checks types need not have them.
from langchain.agents import create_agent  # pyright: ignore[reportMissingImports]
from langchain_core.language_models import BaseChatModel  # pyright: ignore[reportMissingImports]
from langchain_core.messages import (  # pyright: ignore[reportMissingImports]
    AIMessageChunk,
    BaseMessage,
    ToolCallChunk,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk, ChatResult  # pyright: ignore[reportMissingImports]
from langchain_core.runnables import Runnable  # pyright: ignore[reportMissingImports]
from langchain_core.tools import BaseTool, tool  # pyright: ignore[reportMissingImports]
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # pyright: ignore[reportMissingImports]

SUPERSTEPS: Final = 1_000  # above the two of each of 200 steps


class Agent(Protocol):
    """The used part of an agent."""

    async def ainvoke(
        self, state: dict[str, object], config: dict[str, object], *, durability: str | None = None
    ) -> dict[str, list[BaseMessage]]:
        """Run it to its end."""
        ...


class Fake(BaseChatModel):  # type: ignore[misc]
    """The fake model. `streaming` makes `ainvoke` stream, as it does of LangChain's own models."""

    streaming: bool = True

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Sequence[BaseTool], **kwargs: object) -> Runnable:
        """Offer tools, of which the fake needs nothing."""
        del tools, kwargs
        return self

    def _generate(self, *_: object, **__: object) -> ChatResult:
        raise NotImplementedError("it streams only")

    async def _astream(self, messages: list[BaseMessage], *_: object, **__: object) -> AsyncIterator[object]:
        script = current()
        move = await script.reply()
        yield ChatGenerationChunk(message=AIMessageChunk(content=move.text))
        for index, call in enumerate(move.calls):
            chunk = ToolCallChunk(id=call.id, name=call.name, args=call.arguments, index=index)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[chunk]))
        usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=usage, chunk_position="last"))
        if not move.calls:
            check(script, sum(isinstance(message, ToolMessage) for message in messages))


def made(saver: AsyncSqliteSaver | None = None) -> Agent:
    """The agent."""
    agent: Agent = create_agent(Fake(streaming=True), [tool(look)], checkpointer=saver)
    return agent


class React(Subject):
    """The agent without a checkpointer."""

    name = "langgraph react"
    modules = ("langchain.agents",)
    packages = ("langgraph", "langchain", "langchain-core")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Compile it."""
        self._agent = made()
        yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        config: dict[str, object] = {"recursion_limit": SUPERSTEPS}
        state = await self._agent.ainvoke({"messages": [{"role": "user", "content": PROMPT}]}, config)
        return str(state["messages"][-1].content)


class ReactSqlite(Subject):
    """The agent with its SQLite checkpointer, each turn or session a thread, and each step stored before the next."""

    name = "langgraph react, AsyncSqliteSaver sync"
    modules = ("langchain.agents", "langgraph.checkpoint.sqlite.aio")
    packages = ("langgraph", "langchain", "langchain-core", "langgraph-checkpoint-sqlite", "aiosqlite")
    durability: ClassVar[str] = "sync"
    durable = True
    store_kind = "SQLite"
    has_sessions = True
    notes: ClassVar[tuple[str, ...]] = (
        "Two checkpoints a step, each with the whole list of messages.",
        "With durability sync a step is stored before the next begins, as by the others that store.",
    )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Compile it with a checkpointer on a temporary file."""
        self._threads = itertools.count()
        with tempfile.TemporaryDirectory() as folder:
            self._path = Path(folder) / "checkpoints.db"
            async with AsyncSqliteSaver.from_conn_string(str(self._path)) as saver:
                await saver.setup()
                self._agent = made(saver)
                yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        thread = {"thread_id": self.session or str(next(self._threads))}
        config: dict[str, object] = {"recursion_limit": SUPERSTEPS, "configurable": thread}
        request: dict[str, object] = {"messages": [{"role": "user", "content": PROMPT}]}
        state = await self._agent.ainvoke(request, config, durability=self.durability)
        return str(state["messages"][-1].content)

    def stored(self) -> int | None:
        """The bytes of the rows."""
        return sqlite_bytes(self._path)


class ReactSqliteBehind(ReactSqlite):
    """The same with the default durability, which stores while the graph continues."""

    name = "langgraph react, AsyncSqliteSaver async"
    durability = "async"
    durable = False
    has_sessions = False
    notes: ClassVar[tuple[str, ...]] = (
        "Durability async, the default: the graph continues while a thread stores.",
        "A model that answers at once leaves the store far behind, so bytes are those of sync; both end the same.",
    )

    def stored(self) -> None:
        """Unknown, see the notes."""


if __name__ == "__main__":
    main(React(), ReactSqlite(), ReactSqliteBehind())
