"""The disk is full in the middle of a turn: nothing is written by half, and the turn continues when there is space."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from turnwright import Agent, Engine, StoreError, tool
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import SqliteStore
from turnwright.tools import Tool
from turnwright_states import CallStatus, Outcome
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing.faults import full_disk

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
LINES: tuple[ModelResponse | str, ...] = (asks_for(("note", {"n": 1})), asks_for(("fill", {})), "Done.")


def next_line(request: ModelRequest) -> ModelResponse | str:
    """Choose the reply by the conversation, not by the number of calls."""
    return LINES[sum(bool(message.calls) for message in request.messages)]


class FillingDisk:
    """A disk that one of the tools fills, while it runs."""

    def __init__(self, path: Path, free: int) -> None:
        self.path = path
        self.ran: list[str] = []
        self.full = ExitStack()
        #: Bytes that the log of the database can still take.
        self.free = free

    def tools(self) -> list[Tool]:
        @tool
        async def note(n: int) -> str:
            self.ran.append(f"note {n}")
            return "noted"

        @tool
        async def fill() -> str:
            self.ran.append("fill")
            log = self.path.with_name(f"{self.path.name}-wal")
            self.full.enter_context(full_disk(log.stat().st_size + self.free))
            return "full"

        return [note, fill]

    def engine(self, store: SqliteStore) -> Engine:
        return Engine(model=ScriptedModel(next_line, repeat=True), tools=self.tools(), store=store)


@pytest.mark.parametrize("free", [0, 1, 100, 4096, 5000])
async def test_full_disk_is_reported_and_the_turn_continues_later(tmp_path: Path, free: int) -> None:
    """Wherever the write is cut off. What the tool did is lost with its append, as in a crash, and it is unknown."""
    path = tmp_path / "turns.db"
    filling_disk = FillingDisk(path, free)
    async with filling_disk.engine(SqliteStore(path)) as engine:
        with filling_disk.full:
            with pytest.raises(StoreError, match="nothing was written, and the turn can be resumed"):
                await engine.run(AGENT, "hi")
            (row,) = await engine.store.turns()
            facts = await engine.store.facts(row.id)
            assert replay(facts).check.verdict is Verdict.HOLDS
            assert facts[-1][1].kind == "call_started"
        turn = await engine.resume(row.id)
        after = await engine.store.facts(row.id)
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    assert after[: len(facts)] == facts
    assert replay(after).check.verdict is Verdict.HOLDS
    assert filling_disk.ran == ["note 1", "fill"]
    statuses = [fact.status for _, fact in after if isinstance(fact, f.CallSettled)]
    assert statuses == [CallStatus.OK, CallStatus.UNKNOWN]


async def test_another_process_resumes_the_turn_after_the_first_has_ended(tmp_path: Path) -> None:
    """The first process could not even release the turn."""
    path = tmp_path / "turns.db"
    filling_disk = FillingDisk(path, 0)
    with filling_disk.full:
        engine = filling_disk.engine(SqliteStore(path))
        with pytest.raises(StoreError):
            await engine.run(AGENT, "hi")
        await engine.aclose()
    async with filling_disk.engine(SqliteStore(path)) as other_engine:
        (turn,) = await other_engine.recover()
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
