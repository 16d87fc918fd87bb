"""A session of 500 turns on SQLite stays usable: what a turn sends and reads does not grow with the session."""

from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from turnwright import Agent, Compact, Engine, Outcome, TurnResult, tool
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.store import SqliteStore, TurnRow
from turnwright_states.facts import Fact
from turnwright_testing.faults.wrapper import StoreWrapper

TURNS = 500
#: Turns after which another process continues the session.
A_PROCESS = 100
AGENT = Agent(name="Clerk", instructions="Be brief.", compaction=Compact(at_tokens=1_500, keep_steps=4))


@dataclass
class Reads:
    """The reads of one turn: facts, rows of turns, and hundreds of instructions that SQLite executed."""

    facts: int = 0
    rows: int = 0
    work: int = 0


class Counting(StoreWrapper):
    """Counts what each turn reads."""

    def __init__(self, path: Path) -> None:
        store = SqliteStore(path, durability="normal")
        super().__init__(store)
        self.reads = Reads()
        store._db.set_progress_handler(self._count, 100)  # noqa: SLF001 (nothing else counts a scan)

    def _count(self) -> int:
        self.reads.work += 1
        return 0

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        facts = await super().facts(turn_id, after)
        self.reads.facts += len(facts)
        return facts

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        rows = await super().turns(session=session, live=live, limit=limit, before=before)
        self.reads.rows += len(rows)
        return rows


@tool
async def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}: " + "word " * 20


def reply(request: ModelRequest) -> ModelResponse | str:
    """Look at a page in every second turn, then answer; or summarize."""
    last = request.messages[-1]
    if "only your summary" in last.text:
        return "They talked about pages."
    if last.role == "user" and int(last.text) % 2:
        return asks_for(("look", {"page": int(last.text)}))
    return "Noted. " + "Here is a sentence of the answer. " * 3


@dataclass
class Session:
    """The results, the reads and the requests of all turns."""

    turns: list[TurnResult]
    reads: list[Reads]
    requests: list[ModelRequest]


async def talk(path: Path) -> Session:
    session = Session([], [], [])
    for first in range(0, TURNS, A_PROCESS):
        store, model = Counting(path), ScriptedModel(reply, repeat=True)
        async with Engine(model=model, tools=[look], store=store) as engine:
            for number in range(first, first + A_PROCESS):
                store.reads = Reads()
                session.turns.append(await engine.run(AGENT, str(number), session="s"))
                session.reads.append(store.reads)
        session.requests += model.requests
    return session


async def all_messages(path: Path) -> int:
    async with Engine(store=SqliteStore(path)) as engine:
        return len(await engine.messages("s"))


def asks_for_a_summary(request: ModelRequest) -> bool:
    return "only your summary" in request.messages[-1].text


@pytest.mark.slow
def test_last_of_500_turns_sends_and_reads_no_more_than_the_100th(tmp_path: Path) -> None:
    session = anyio.run(talk, tmp_path / "turns.db")
    assert {turn.outcome for turn in session.turns} == {Outcome.FINISHED}
    assert anyio.run(all_messages, tmp_path / "turns.db") == TURNS * 3  # nothing is lost: half of them called a tool
    # Both begin with a session that another process has driven.
    early, late = slice(A_PROCESS, 2 * A_PROCESS), slice(-A_PROCESS, None)

    def most(name: str, part: slice) -> int:
        return max(int(getattr(reads, name)) for reads in session.reads[part])

    assert max(most("facts", late), most("facts", early)) < 300, "it is read back to the last compaction"
    assert most("facts", slice(1 - A_PROCESS, None)) <= most("facts", slice(1, A_PROCESS)), "then only what is new"
    assert most("rows", late) == most("rows", early) == 50, "the turns of the session are listed by pages of 50"
    more = (TURNS - 2 * A_PROCESS) * 10 / 100
    assert most("work", late) < most("work", early) + more, "ten instructions count a turn of the session in an index"
    summaries = sum(map(asks_for_a_summary, session.requests))
    assert TURNS / 50 < summaries < TURNS / 5
    assert max(len(request.messages) for request in session.requests) < 120
    assert max(sum(len(message.text) for message in request.messages) for request in session.requests) < 4 * 2 * 1_500
