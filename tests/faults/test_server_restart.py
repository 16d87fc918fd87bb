"""The database server stops in the middle of a turn and starts again: the journal is complete, the turn continues."""

from collections.abc import Callable, Iterator

import pytest
from tests.servers.postgres_server import PostgresServer

from turnwright import Agent, Engine, StoreError, TurnResult, tool
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import open_store
from turnwright.store.postgres.store import PostgresStore
from turnwright.tools import Tool
from turnwright_states import CallStatus, Outcome
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
LINES: tuple[ModelResponse | str, ...] = (
    asks_for(("note", {"n": 1})),
    asks_for(("strike", {}), ("note", {"n": 2})),
    "Done.",
)


@pytest.fixture
def running(server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    yield server
    server.start()


@pytest.fixture
def address(running: PostgresServer, new_database: Callable[[], str]) -> str:
    """A new database on it."""
    running.start()
    return new_database()


def next_line(request: ModelRequest) -> ModelResponse | str:
    """Choose the reply by the conversation, not by the number of calls."""
    return LINES[sum(bool(message.calls) for message in request.messages)]


class RestartingServer:
    """A server that one of the tools strikes, while it runs."""

    def __init__(self, strike: Callable[[], None]) -> None:
        self.ran: list[str] = []

        @tool
        async def note(n: int) -> str:
            self.ran.append(f"note {n}")
            return "noted"

        @tool(name="strike")
        async def struck() -> str:
            self.ran.append("strike")
            strike()
            return "struck"

        self.tools: list[Tool] = [note, struck]

    def engine(self, address: str) -> Engine:
        store = PostgresStore(address, patience=2.0)
        return Engine(model=ScriptedModel(next_line, repeat=True), tools=self.tools, store=store, max_parallel_tools=1)


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_turn_of_a_stopped_server_continues_after_the_restart(
    running: PostgresServer, address: str, how: str
) -> None:
    """The tool's result is lost with its append, as in a crash; nothing acknowledged is lost."""
    restarting_server = RestartingServer(running.stop if how == "stop" else running.kill)
    async with restarting_server.engine(address) as engine:
        # Either the append of the result or a look into the inbox is the first to miss the server.
        with pytest.raises(StoreError, match=r"the turn can be resumed|no connection after 2 s"):
            await engine.run(AGENT, "hi")
        with pytest.raises(StoreError):
            await engine.store.turns()
        running.start()
        (row,) = await engine.store.turns()
        facts = await engine.store.facts(row.id)
        assert replay(facts).check.verdict is Verdict.HOLDS
        assert facts[-1][1].kind == "call_started"
        assert restarting_server.ran == ["note 1", "strike"]
        turn = await engine.resume(row.id)
        after = await engine.store.facts(row.id)
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    assert after[: len(facts)] == facts
    assert replay(after).check.verdict is Verdict.HOLDS
    assert restarting_server.ran == ["note 1", "strike", "note 2"]
    statuses = [fact.status for _, fact in after if isinstance(fact, f.CallSettled)]
    assert statuses == [CallStatus.OK, CallStatus.UNKNOWN, CallStatus.OK]


async def test_another_process_resumes_the_turn_after_the_server_restart(running: PostgresServer, address: str) -> None:
    """The first process still lives but could not release the turn; its session and its lock are gone."""
    restarting_server = RestartingServer(running.stop)
    async with restarting_server.engine(address) as engine:
        with pytest.raises(StoreError):
            await engine.run(AGENT, "hi")
        running.start()
        async with restarting_server.engine(address) as other_engine:
            (turn,) = await other_engine.recover()
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")


async def test_turn_survives_a_server_restart_during_a_tool(running: PostgresServer, address: str) -> None:
    """The journal is complete and the turn ends, whether the engine noticed the restart or not."""
    restarting_server = RestartingServer(running.restart)
    async with restarting_server.engine(address) as engine:
        try:
            turn: TurnResult = await engine.run(AGENT, "hi")
        except StoreError:
            (row,) = await engine.store.turns()
            turn = await engine.resume(row.id)
        assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
        assert replay(await engine.store.facts(turn.id)).check.verdict is Verdict.HOLDS
    store = open_store(address)
    assert not await store.is_driven(turn.id)
    await store.aclose()
