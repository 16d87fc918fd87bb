"""A store with very many turns, written by itself: a few are driven, and their journals are copied under other names.

Agents, models, sessions, times, texts and amounts of the copies differ, as do their endings. What a page reads from a
journal is that of the driven turn.
"""

# ruff: noqa: S608 (every query is made of constants)

import random
import re
import sqlite3
import time
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import psycopg

from turnwright import Agent, Engine, agent_tool, tool
from turnwright.journal.summarize import summary_of
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelError
from turnwright.model.scripted import Line
from turnwright.privacy.redaction import redactor
from turnwright.store import SqliteStore
from turnwright.store.postgres.store import PostgresStore
from turnwright.store.rows import LAST_SEQ
from turnwright.store.summaries import TurnNames, Unsummarized
from turnwright.store.summary_sql import summary_row, tool_rows
from turnwright_states import Cause, State

TURNS: Final = 100_000
#: The seconds before now in which the turns began.
SPAN: Final = 180 * 86_400.0
#: A word of most turns, one of a few turns, and one of none.
COMMON, RARE, NOTHING = "order", "zeppelin", "quetzalcoatl"
#: One turn of so many has the rare word, a tag, a score.
_RARELY, _TAGGED, _SCORED = 5_000, 50, 100
_AGENTS: Final = tuple(f"Agent {number}" for number in range(12))
_MODELS: Final = tuple(f"model-{number}" for number in range(4))
#: One turn in two is in a session, each of which has so many.
_IN_SESSION: Final = 5
#: The process of a driver that died.
_DEAD: Final = "1-dead"
_VOWELS, _CONSONANTS = "aeiou", "bdfgklmnprstv"


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: " + "nothing was found in this place, so look in the next one; " * 3


@tool
async def fail(word: str) -> str:
    """Fail."""
    raise ValueError(f"no {word}")


@tool(needs_approval=True)
async def send(word: str) -> str:
    """Send a word."""
    return f"sent {word}"


@dataclass(frozen=True, slots=True)
class _Script:
    """A turn to drive: its lines, its share of the copies, and the limits of its agent."""

    lines: Sequence[Line]
    share: int
    limits: Mapping[str, Any] = field(default_factory=dict)
    #: Leave the journal without its last rows, as a driver that died does.
    crashed: bool = False


def _looks(steps: int, name: str = "look_up") -> list[Line]:
    return [asks_for((name, {"word": f"w{step}"}), (name, {"word": f"v{step}"})) for step in range(steps)]


#: Shares are parts of 1,000; those with a share of 0 are a few turns that wait.
_SCRIPTS: Final = (
    _Script([*_looks(1), "It is done."], 300),
    _Script([*_looks(3), "It is done."], 250),
    _Script([*_looks(8), "It is done."], 100),
    _Script(["It is done at once."], 100),
    _Script([asks_for(("helper", {"prompt": "Help."})), "Helped.", "It is done."], 50),
    _Script(_looks(3), 60, {"steps": 2}),
    _Script(_looks(4), 40, {"budget": 3}),
    _Script([asks_for(("look_up", {"word": "again"}))] * 9, 40),
    _Script([*_looks(2, "fail"), "It failed."], 40),
    _Script([ModelError("no such model", cause=Cause.REJECTED)], 20),
    _Script([asks_for(("send", {"word": "money"}))], 0),
    _Script([*_looks(2), "It is done."], 0, crashed=True),
)
_PAUSED, _CRASHED = 10, 11
#: The turns that wait, by their places from the newest: scripts.
_WAITING: Final = {3: _PAUSED, 40: _CRASHED, 700: _PAUSED, 9_000: _PAUSED, 9_001: _CRASHED}


@dataclass(frozen=True, slots=True)
class _Driven:
    """A driven turn: the end of its id, the rows of its journal, its summary, and whether it has not ended."""

    end: str
    facts: Sequence[tuple[Any, ...]]
    summary: Mapping[str, Any]
    tools: Sequence[Mapping[str, Any]]
    live: bool


async def write_turns(path: Path, turns: int = TURNS) -> None:
    """Make the SQLite store `path` with so many turns."""
    driven = [await _driven(path.with_name(f"driven-{place}.db"), script) for place, script in enumerate(_SCRIPTS)]
    await SqliteStore(path).aclose()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")
        db.execute("BEGIN")
        numbers = _Numbers(turns)
        for first in range(1, turns + 1, 5_000):
            rows: dict[str, list[Sequence[Any] | Mapping[str, Any]]] = {name: [] for name in _INSERTS}
            for table, row in numbers.rows(range(first, min(first + 5_000, turns + 1)), driven):
                rows[table].append(row)
            for table, table_rows in rows.items():
                db.executemany(_INSERTS[table], table_rows)
        db.execute("COMMIT")


async def _driven(path: Path, script: _Script) -> list[_Driven]:
    """Drive a turn, and return it, and those of its sub-agents."""
    helper = agent_tool(Agent(name="Helper", mode="subagent", description="Helps."), name="helper")
    model = ScriptedModel(*script.lines)
    async with Engine(model=model, tools=[look_up, fail, send, helper], store=SqliteStore(path)) as engine:
        turn = (await engine.run(Agent(name="Driven", **script.limits), "Do it.")).id
        driven_turns: list[_Driven] = []
        for row in reversed(await engine.store.turns()):
            journal = await engine.store.facts(row.id)
            with closing(sqlite3.connect(path)) as db:
                facts = db.execute(_FACTS, (row.number,)).fetchall()
            if script.crashed:
                facts = facts[:-1]
            live = script.crashed or row.status.outcome is None
            summary = summary_of(row.id, journal, redactor().hide)
            state = Unsummarized(row.id, 0 if script.crashed else facts[-1][0], not live, TurnNames())
            driven_turns.append(
                _Driven(row.id.removeprefix(turn), facts, summary_row(state, summary), tool_rows(summary), live)
            )
        return driven_turns


_FACTS: Final = "SELECT seq, kind, payload, state, reason, steps, tool_calls FROM facts WHERE turn = ? ORDER BY seq"
_SUMMARY: Final = (
    "number, names, root, agent, model, session, created_at, seq, complete, outcome, reason, steps, tool_calls,"
    " input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost, seconds, retries, pauses, sub_turns, fault,"
    " measures"
)
_VALUES: Final = re.sub(r"(\w+)", r":\1", _SUMMARY)
_INSERTS: Final = {
    "turns": "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?)",
    "facts": "INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, '1-made')",
    "summaries": f"INSERT INTO summaries ({_SUMMARY}) VALUES ({_VALUES})",
    "search": "INSERT INTO search (rowid, prompt, answer, text) VALUES (:number, :prompt, :answer, :text)",
    "failures": "INSERT INTO failures VALUES (?, 'fail', 4)",
    "tools": "INSERT INTO tools VALUES (:number, :tool, :calls, :failed, :millis)",
    "sessions": "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)",
    "annotations": "INSERT INTO annotations VALUES (?, ?, ?, ?, '', ?)",
}


class _Numbers:
    """Makes the rows of turns from their numbers, the same ones each time but for the times."""

    def __init__(self, turns: int) -> None:
        self._random = random.Random(1)  # noqa: S311 (no secret)
        self._turns = turns
        self._now = time.time()
        self._next = 0
        self._texts = [self._text() for _ in range(2_000)]
        self._shares = list(accumulate(script.share for script in _SCRIPTS))

    def rows(self, numbers: Sequence[int], driven: Sequence[Sequence[_Driven]]) -> Iterator[tuple[str, Any]]:
        """Yield the rows of these turns: the table and the columns of each."""
        for number in numbers:
            rand = self._random
            script = _WAITING.get(self._turns - number, bisect(self._shares, rand.randrange(1_000)))
            created = self._now - SPAN * (self._turns - number + rand.random()) / self._turns
            in_session = script < _PAUSED and number % 2
            session = f"session-{number // 2 // _IN_SESSION}" if in_session else None
            agent_number = min(rand.randrange(12), rand.randrange(12))
            turn = f"{rand.getrandbits(64):016x}"
            for place, driven_turn in enumerate(driven[script]):
                self._next += 1
                name, agent = turn + driven_turn.end, "Helper" if place else _AGENTS[agent_number]
                yield from self._turn(driven_turn, self._next, name, (session, agent, rand.choice(_MODELS), created))
            if session:
                yield "sessions", (session, "Do it.", self._next)
            if not number % _TAGGED:
                yield "annotations", (turn, "tag", "looked at", None, created)
            if not number % _SCORED:
                yield "annotations", (turn, "score", "success", rand.random(), created)

    def _turn(
        self, driven_turn: _Driven, number: int, turn: str, columns: tuple[Any, ...]
    ) -> Iterator[tuple[str, Any]]:
        rand = self._random
        *_, created = columns
        yield (
            "turns",
            (
                number,
                turn,
                *columns,
                _due_at(driven_turn),
                _DEAD if driven_turn.live and driven_turn.summary["seq"] == 0 else None,
                driven_turn.live,
            ),
        )
        for seq, kind, payload, *status in driven_turn.facts:
            yield "facts", (number, seq, kind, payload, created + seq, *status)
        prompt, answer = rand.choice(self._texts), rand.choice(self._texts)
        text = "\n".join((prompt, rand.choice(self._texts), answer, *((RARE,) if not number % _RARELY else ())))
        session, agent, model, _ = columns
        summary = {
            **driven_turn.summary,
            "number": number,
            "names": "\x1f".join((turn, agent, model, session or "")).lower(),
            "root": int(":" not in turn),
            "agent": agent,
            "model": model,
            "session": session,
            "created_at": created,
        }
        if summary["seq"]:  # the driver of the other one died: nobody has summarized it
            summary |= {
                "input_tokens": int(rand.lognormvariate(8, 1)),
                "output_tokens": int(rand.lognormvariate(6, 1)),
                "cost": rand.lognormvariate(-4, 1),
                "seconds": rand.lognormvariate(2, 1),
                "prompt": prompt[:300],
                "answer": answer[:300],
                "text": text,
            }
            tokens = summary["input_tokens"] + summary["output_tokens"]
            measured = summary["steps"], tokens, round(summary["cost"] * 1e6), round(summary["seconds"] * 1e3)
            failing = number if "fail" in driven_turn.summary["text"] else 0
            summary["measures"] = ",".join(map(str, (*measured, int(created / 60), failing)))
            yield "search", summary
            yield from (("tools", {**row, "number": number}) for row in driven_turn.tools)
            if failing:
                yield "failures", (number,)
        yield "summaries", summary

    def _text(self) -> str:
        """A few sentences: words that are the rarer the longer they are; one text of three has the common one."""
        rand = self._random
        words = ["".join(map(rand.choice, (_CONSONANTS, _VOWELS) * rand.choice((1, 1, 2, 2, 3)))) for _ in range(60)]
        return " ".join((*words, COMMON) if not rand.randrange(3) else words)


def _due_at(turn: _Driven) -> float | None:
    """Return the due time of a turn's row. No interrupt of these turns expires."""
    *_, state, _, _, _ = turn.facts[-1]
    return 0.0 if turn.live and state != State.PAUSED else None


#: There `seq` is that of the last fact, here that of the last row.
_LAST: Final = f" (SELECT {LAST_SEQ} FROM facts WHERE turn = number ORDER BY seq DESC LIMIT 1) * (seq > 0),"
#: Tables and columns of PostgreSQL, and the query of SQLite that has the same.
_COPIES: Final = {
    "turnwright_turns (number, turn_id, session, agent, model, created_at, epoch, owner, live, updated_at, state,"
    " reason, steps, tool_calls, due_at)": "SELECT number, turn_id, session, agent, model, created_at, turns.epoch,"
    " turns.owner, iif(live, 't', 'f'), at, state, reason, steps, tool_calls, due_at FROM turns JOIN facts"
    " ON facts.turn = number AND seq = (SELECT max(seq) FROM facts AS every WHERE every.turn = number)",
    "turnwright_facts (turn_id, seq, kind, payload, at, epoch, owner)": "SELECT turn_id, seq, kind, payload, at,"
    " facts.epoch, facts.owner FROM facts JOIN turns ON number = turn",
    f"turnwright_summaries ({_SUMMARY})": f"SELECT {_SUMMARY.replace(' seq,', _LAST)} FROM summaries",
    "texts (number, prompt, answer, text)": "SELECT rowid, prompt, answer, text FROM search",
    "turnwright_failures (number, tool, failed)": "SELECT number, tool, failed FROM failures",
    "turnwright_tools (number, tool, calls, failed, millis)": "SELECT number, tool, calls, failed, millis FROM tools",
    "turnwright_sessions (session, title, number)": "SELECT session, title, number FROM sessions",
    "turnwright_annotations (turn_id, kind, name, value, text, at)": "SELECT turn_id, kind, name, value, text, at"
    " FROM annotations",
}


async def copy_turns(path: Path, address: str) -> None:
    """Copy the turns of a SQLite store to the database at `address`, which is empty."""
    store = PostgresStore(address)
    await store.migrate()
    await store.aclose()
    with closing(sqlite3.connect(path)) as db, psycopg.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE texts (number bigint, prompt text, answer text, text text)")
        for table, query in _COPIES.items():
            with cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
                for row in db.execute(query):
                    copy.write_row(row)
        cursor.execute(
            "INSERT INTO turnwright_search SELECT number, prompt, answer, to_tsvector('simple', text) FROM texts"
        )
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")  # as the server does by itself, within minutes
