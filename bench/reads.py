"""The CPU of reads of a store with 100,000 turns, as the inspector's pages make them: lists, totals, searches, agents.

    python -m bench.program reads

A thousand turns are driven and summarized. Their rows are then copied with other agents, models, times and amounts,
because 100,000 turns would take an hour. The least of the repeats, in milliseconds.
"""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from bench.turnwright_turns import TurnwrightSqlite
from bench.yardstick import Script, run

from turnwright.journal.summarize import summarize_turns
from turnwright.privacy.redaction import redactor
from turnwright.store import SqliteStore
from turnwright.store.summaries import Order, TurnFilter

TURNS: Final = 100_000
DRIVEN: Final = 1_000
#: Turns of a page, and its repeats.
PAGE: Final = 50
REPEATS: Final = 5
DAY: Final = 86_400.0

#: Copies the turns up to :last behind the turn :top. A row has one of 12 agents and 3 models; amounts vary.
COPIES: Final = (
    """INSERT INTO turns (number, turn_id, session, agent, model, created_at, epoch, owner, live)
    SELECT number + :top, printf('%016x', number + :top), session, 'Agent ' || (abs(random()) % 12),
        'model-' || (abs(random()) % 3), created_at - 60 * :top, epoch, owner, live FROM turns WHERE number <= :last""",
    """INSERT INTO facts SELECT turn + :top, seq, kind, payload, at, state, reason, steps, tool_calls, epoch, owner
    FROM facts WHERE turn <= :last""",
    """INSERT INTO summaries SELECT one.number + :top, new.turn_id, root, new.agent, new.model, new.session,
        new.created_at, seq, complete, iif(abs(random()) % 5, outcome, 'CAP_HIT'),
        iif(abs(random()) % 5, reason, 'step_cap'), abs(random()) % 40, tool_calls, abs(random()) % 50000,
        abs(random()) % 4000, cached_tokens, reasoning_tokens, (abs(random()) % 100000) / 1e5,
        (abs(random()) % 100000) / 1e3, retries, pauses, sub_turns, fault
    FROM summaries AS one JOIN turns AS new ON new.number = one.number + :top WHERE one.number <= :last""",
    """INSERT INTO search (rowid, prompt, answer, text) SELECT rowid + :top, prompt, answer, text
    FROM search WHERE rowid <= :last""",
)


def reads() -> dict[str, float]:
    """Milliseconds of CPU of each read, and of the summary of one turn."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measured(Path(folder) / "turns.db", DRIVEN, TURNS))


async def measured(path: Path, driven: int, turns: int) -> dict[str, float]:
    """The figures of a store with so many turns, of which some are driven."""
    subject = TurnwrightSqlite(path)
    async with subject.opened():
        for _ in range(driven):
            await run(subject, Script(1))
    store = SqliteStore(path, durability="normal")
    began = time.process_time()
    while await summarize_turns(store, store, redactor().hide, limit=PAGE):
        pass
    summary = (time.process_time() - began) / driven
    multiply(path, driven, turns)
    every, word = TurnFilter(), TurnFilter(text="look")
    figures = {
        "read-list-ms": await least(lambda: store.find(every, limit=PAGE)),
        "read-sorted-ms": await least(lambda: store.find(every, order=Order.COST, limit=PAGE)),
        "read-totals-ms": await least(lambda: store.totals(every)),
        "read-search-ms": await least(lambda: store.find(word, order=Order.COST, limit=PAGE)),
        "read-search-totals-ms": await least(lambda: store.totals(word)),
        "read-agents-ms": await least(lambda: store.agents(every)),
        "read-spending-ms": await least(lambda: store.spending(every, width=DAY)),
    }
    await store.aclose()
    return {**figures, "summary-ms": summary * 1e3}


def multiply(path: Path, there: int, turns: int) -> None:
    """Copy the turns of a store until it has so many."""
    with closing(sqlite3.connect(path)) as db:
        while there < turns:
            last = min(there, turns - there)
            for statement in COPIES:
                db.execute(statement, {"top": there, "last": last})
            db.commit()
            there += last


async def least(read: Callable[[], Awaitable[object]]) -> float:
    """The least milliseconds of CPU of a read."""
    taken: list[float] = []
    for _ in range(REPEATS):
        began = time.process_time()
        await read()
        taken.append(time.process_time() - began)
    return min(taken) * 1e3
