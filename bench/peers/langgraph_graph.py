"""LangGraph, the graph alone: a node for the model, a node for the tools, an edge between, and messages as dicts.

    python -m bench.peers.langgraph_graph

The graph's documentation leaves the model to its user, so the fake is the bare loop's. LangGraph's own agent, with the
models of LangChain, is in `langgraph_react`.
"""

import asyncio
import itertools
import json
import operator
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NotRequired, Protocol, TypedDict

from bench.measure import main
from bench.peers.history import check
from bench.servers import Server, running
from bench.yardstick import PROMPT, Call, Script, Subject, current, look, sqlite_bytes

# Peers are installed in environments of their own: who checks types need not have them.
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver  # pyright: ignore[reportMissingImports]
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # pyright: ignore[reportMissingImports]
from langgraph.config import get_stream_writer  # pyright: ignore[reportMissingImports]
from langgraph.graph import END, START, StateGraph  # pyright: ignore[reportMissingImports]

SUPERSTEPS: Final = 1_000  # above the two of each of 200 steps


class Message(TypedDict):
    """A message, as a provider takes it."""

    role: str
    content: str
    tool_calls: NotRequired[list[dict[str, str]]]
    tool_call_id: NotRequired[str]


class State(TypedDict):
    """The graph's state: the messages, to which nodes add."""

    messages: Annotated[list[Message], operator.add]


class Graph(Protocol):
    """The used part of a compiled graph."""

    async def ainvoke(self, state: State, config: dict[str, object], *, durability: str | None = None) -> State:
        """Run it to its end."""
        ...

    def astream(
        self, state: State, config: dict[str, object], *, stream_mode: list[str]
    ) -> AsyncIterator[tuple[str, Any]]:
        """Run it to its end, and yield what it does."""
        ...


async def stream(messages: list[Message]) -> AsyncIterator[str | Call]:
    """The fake model."""
    script = current()
    move = await script.reply()
    yield move.text
    for call in move.calls:
        yield call
    if not move.calls:
        check(script, sum(message["role"] == "tool" for message in messages))


async def ask_model(state: State) -> State:
    """The node of the model."""
    text = ""
    calls: list[dict[str, str]] = []
    write = get_stream_writer()
    async for chunk in stream(state["messages"]):
        write(chunk)
        if isinstance(chunk, str):
            text += chunk
        else:
            calls.append({"id": chunk.id, "name": chunk.name, "arguments": chunk.arguments})
    return {"messages": [{"role": "assistant", "content": text, "tool_calls": calls}]}


async def run_tools(state: State) -> State:
    """The node of the tools: the calls of a step at once."""
    calls = state["messages"][-1].get("tool_calls", [])
    results = await asyncio.gather(*(look(**json.loads(call["arguments"])) for call in calls))
    pairs = zip(calls, results, strict=True)
    return {"messages": [{"role": "tool", "tool_call_id": call["id"], "content": result} for call, result in pairs]}


def route(state: State) -> str:
    """The edge after the model."""
    return "tools" if state["messages"][-1].get("tool_calls") else END


def compiled(saver: AsyncSqliteSaver | AsyncPostgresSaver | None = None) -> Graph:
    """The graph."""
    graph = StateGraph(State)
    graph.add_node("model", ask_model)
    graph.add_node("tools", run_tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", END])
    graph.add_edge("tools", "model")
    compiled: Graph = graph.compile(checkpointer=saver)
    return compiled


class StateGraphInMemory(Subject):
    """The graph without a checkpointer."""

    name = "langgraph StateGraph"
    modules = ("langgraph.graph",)
    packages = ("langgraph", "langchain-core")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Compile it."""
        self._graph = compiled()
        yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        config: dict[str, object] = {"recursion_limit": SUPERSTEPS}
        state = await self._graph.ainvoke({"messages": [{"role": "user", "content": PROMPT}]}, config)
        return state["messages"][-1]["content"]


class StateGraphSqlite(Subject):
    """The graph with its SQLite checkpointer, each turn or session a thread, and each step stored before the next."""

    name = "langgraph StateGraph, AsyncSqliteSaver sync"
    modules = ("langgraph.graph", "langgraph.checkpoint.sqlite.aio")
    packages = ("langgraph", "langgraph-checkpoint-sqlite", "aiosqlite")
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
                self._graph = compiled(saver)
                yield

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        thread = {"thread_id": self.session or str(next(self._threads))}
        config: dict[str, object] = {"recursion_limit": SUPERSTEPS, "configurable": thread}
        state: State = {"messages": [{"role": "user", "content": PROMPT}]}
        state = await self._graph.ainvoke(state, config, durability=self.durability)
        return state["messages"][-1]["content"]

    def stored(self) -> int | None:
        """The bytes of the rows."""
        return sqlite_bytes(self._path)


class StateGraphSqliteBehind(StateGraphSqlite):
    """The same with the default durability, which stores while the graph continues."""

    name = "langgraph StateGraph, AsyncSqliteSaver async"
    durability = "async"
    durable = False
    has_sessions = False
    notes: ClassVar[tuple[str, ...]] = (
        "Durability async, the default: the graph continues while a thread stores.",
        "A model that answers at once leaves the store far behind, so bytes are those of sync; both end the same.",
    )

    def stored(self) -> None:
        """Unknown, see the notes."""


class StateGraphStreamed(StateGraphInMemory):
    """The graph without a checkpointer, with each piece of a reply and each node's update read."""

    name = "langgraph StateGraph, streamed"
    streamed = True

    async def turn(self, script: Script) -> str:
        """One turn."""
        del script
        config: dict[str, object] = {"recursion_limit": SUPERSTEPS}
        state: State = {"messages": [{"role": "user", "content": PROMPT}]}
        text = ""
        async for mode, chunk in self._graph.astream(state, config, stream_mode=["custom", "updates"]):
            if mode == "updates" and "model" in chunk:
                text = chunk["model"]["messages"][-1]["content"]
        return text


class StateGraphPostgres(StateGraphSqlite):
    """The graph with its PostgreSQL checkpointer, each step stored before the next."""

    name = "langgraph StateGraph, AsyncPostgresSaver sync"
    modules = ("langgraph.graph", "langgraph.checkpoint.postgres.aio")
    packages = ("langgraph", "langgraph-checkpoint-postgres", "psycopg")
    store_kind = "PostgreSQL"
    is_slow = True
    has_sessions = False
    _server: Server

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Compile it with a checkpointer on a database."""
        self._threads = itertools.count()
        with running("postgres") as self._server:
            async with AsyncPostgresSaver.from_conn_string(self._server.address) as saver:
                await saver.setup()
                self._graph = compiled(saver)
                yield

    def server_cpu(self) -> float:
        """The CPU of the database."""
        return self._server.cpu()

    def stored(self) -> int | None:
        """Not counted."""
        return None


if __name__ == "__main__":
    main(StateGraphInMemory(), StateGraphStreamed(), StateGraphSqlite(), StateGraphSqliteBehind(), StateGraphPostgres())
