"""Reads Turnwright's own journals: the lines of `turnwright show --journal --json`, and SQLite stores."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Final

import msgspec
from pydantic import JsonValue

from turnwright.errors import UnreadableTurnError
from turnwright.store.rows import split_facts
from turnwright.store.sqlite.schema import SCHEMA
from turnwright.transcript.transcript import reading
from turnwright_audit.traces import TraceEvent
from turnwright_audit.trajectories.atif import Trajectory
from turnwright_audit.trajectories.journal_run import NAME as NAME  # noqa: PLC0414 (the name of the format)
from turnwright_audit.trajectories.journal_run import Journals, run_of
from turnwright_audit.trajectories.journal_trace import trace_of
from turnwright_audit.trajectories.shapes import read_object
from turnwright_audit.trajectories.source import SQLITE, Recording, UnreadableRecordingError
from turnwright_audit.trajectories.traced_run import DAMAGE, TracedRun
from turnwright_states.errors import InvalidJournalError
from turnwright_states.fact_parser import parse_fact
from turnwright_states.facts import KINDS, CallStarted, Fact, TurnStarted

_SCORES: Final = "SELECT turn_id, value FROM annotations WHERE kind = 'score' AND name = 'success' AND value NOTNULL"


def recognizes(recording: Recording) -> bool:
    """Whether it is a SQLite store, or one of the first lines is a fact."""
    if recording.head.startswith(SQLITE):
        return _Database(recording).holds_turns()
    return any(map(_is_fact, recording.records))


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the run of each turn that no other turn began. The runs of sub-agents are in those of their callers."""
    if recording.head.startswith(SQLITE):
        yield from _Database(recording).read()
    else:
        yield from _lines(recording)


def _is_fact(value: Mapping[str, JsonValue]) -> bool:
    return str(value.get("kind")) in KINDS and all(key in value for key in ("seq", "v", "elapsed", "state"))


class _Journal:
    """The facts of one turn, as far as they can be read. `name` is the turn's id in an exported turn."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.facts: list[Fact] = []
        self.damaged = 0

    def add(self, kind: object, payload: object, seq: object) -> None:
        try:
            self.facts.append(parse_fact(kind, payload, seq if isinstance(seq, int) else 0))
        except (InvalidJournalError, RecursionError):
            self.damaged += 1

    @property
    def turn(self) -> str | None:
        """The id of the turn, which facts about sub-agents name too; None if nothing does."""
        if self.name:
            return self.name
        first = self.facts[0] if self.facts else None
        if isinstance(first, TurnStarted) and first.parent_turn and first.parent_call:
            return f"{first.parent_turn}:{first.parent_call}"
        for fact in self.facts:
            if isinstance(fact, CallStarted) and fact.child:
                return fact.child.removesuffix(f":{fact.call}")
        return None

    def run(self, turn: str | None, journals: "_Journals") -> Trajectory:
        """Return the run of the turn, with its events."""
        below: dict[str, _Journal] = {}

        def facts(child: str) -> list[Fact] | None:
            journal = below.get(child) or journals(child)
            if journal is None:
                return None
            below[child] = journal
            return journal.facts

        run = run_of(self.facts, turn=turn, journals=facts, damaged=self.damaged > 0)
        run.run_notes.unreadable_lines = self.damaged
        is_damaged = any(journal.damaged for journal in (self, *below.values()))
        return TracedRun.of(
            run, partial(_events, run, facts, self.facts), place="event", damage=DAMAGE if is_damaged else ""
        )


#: Returns the journal of a sub-agent's turn; None if there is none.
_Journals = Callable[[str], _Journal | None]


def _events(run: Trajectory, journals: Journals, facts: list[Fact]) -> Iterator[tuple[int, TraceEvent]]:
    """Yield the events of a turn and of its sub-agents' turns, each with its number in its turn.

    Raises `UnreadableRecordingError` for facts that do not follow from each other.
    """
    for trajectory in run.every():
        turn = trajectory.trajectory_id or ""
        own_facts = facts if trajectory is run else journals(turn) or ()
        try:
            with reading(turn or "?"):
                events = trace_of(turn, own_facts)
        except UnreadableTurnError as error:
            raise UnreadableRecordingError(f"{error}: `turnwright replay` names the first wrong fact") from error
        yield from enumerate(events, start=1)


def _lines(recording: Recording) -> Iterator[Trajectory]:
    journals_read: list[_Journal] = []
    latest = 0
    is_cut = False
    for line in recording.lines():
        fields = read_object(line)
        value, is_cut = fields or {}, fields is None
        seq, kind = value.pop("seq", None), value.pop("kind", None)
        name = value.pop("turn", None)  # these two are in an exported turn (`turnwright_audit.transfer`)
        value.pop("created_at", None)
        if not journals_read or (kind == TurnStarted.kind) or (isinstance(seq, int) and seq < latest):
            journals_read.append(_Journal())
        journals_read[-1].name = journals_read[-1].name or (name if isinstance(name, str) else None)
        latest = seq if isinstance(seq, int) else latest
        journals_read[-1].add(kind, msgspec.json.encode(value).decode(), seq)
    if not any(journal.facts for journal in journals_read):
        raise UnreadableRecordingError("it has no line that is a fact known to this release")
    journals_by_turn = {turn: journal for journal in journals_read if (turn := journal.turn) is not None}
    inner = {turn for turn in journals_by_turn if turn.rpartition(":")[0] in journals_by_turn}
    for journal in journals_read:
        turn = journal.turn
        if journal.facts and turn not in inner:
            run = journal.run(turn, journals_by_turn.get)
            run.run_notes.cut = run.run_notes.cut or (is_cut and journal is journals_read[-1])
            yield run


class _Database:
    """A store file, read without a change."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def holds_turns(self) -> bool:
        """Whether it is a store, and not the database of another program."""
        try:
            with closing(self._connect()) as db:
                names = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        except (sqlite3.Error, UnreadableRecordingError):
            return False
        return {"turns", "facts", "inbox"} <= names

    def read(self) -> Iterator[Trajectory]:
        """Yield the runs."""
        try:
            with closing(self._connect()) as db:
                db.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
                yield from self._runs(db)
        except sqlite3.Error as error:
            raise UnreadableRecordingError(f"the store cannot be read: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        path = self._recording.path
        if path is not None:
            address = path.absolute().as_uri()
            for mode in ("mode=ro", "immutable=1"):
                db = sqlite3.connect(f"{address}?{mode}", uri=True, isolation_level=None)
                try:
                    db.execute("PRAGMA user_version")
                    db.execute("SELECT 1 FROM sqlite_schema").fetchone()
                except sqlite3.OperationalError:
                    db.close()  # a folder that cannot be written has no place for the files beside the database
                else:
                    return db
        data = self._recording.data()
        if data is None:
            raise UnreadableRecordingError("the store is too large to be read from an archive: unpack it")
        db = sqlite3.connect(":memory:", isolation_level=None)
        # A database in memory has no write-ahead log: bytes 18 and 19 say that it needs none.
        db.deserialize(data[:18] + b"\x01\x01" + data[20:])
        return db

    def _runs(self, db: sqlite3.Connection) -> Iterator[Trajectory]:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != SCHEMA.version:
            advice = "run `turnwright migrate`" if version < SCHEMA.version else "upgrade turnwright"
            raise UnreadableRecordingError(
                f"the store has schema {version}, this release reads {SCHEMA.version}: {advice}"
            )
        numbers: dict[str, int] = dict(db.execute("SELECT turn_id, number FROM turns ORDER BY number"))

        def below(child: str) -> _Journal | None:
            return _journal_of(db, numbers[child]) if child in numbers else None

        # A person's score is better than what the ending says.
        scores: dict[str, float] = dict(db.execute(_SCORES))
        for turn, number in numbers.items():
            above = turn.rpartition(":")[0]
            if not above or above not in numbers:
                run = _journal_of(db, number).run(turn, below)
                if turn in scores:
                    run.run_notes.success = scores[turn] > 0
                yield run


def _journal_of(db: sqlite3.Connection, number: int) -> _Journal:
    journal = _Journal()
    rows = db.execute("SELECT seq, kind, payload FROM facts WHERE turn = ? ORDER BY seq", (number,))
    for seq, kind, payload in split_facts(rows):
        journal.add(kind, payload, seq)
    return journal
