"""The writes of drivers to a SQLite file: objects that are committed alone or with others in one transaction."""

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from turnwright.errors import LeaseLostError, SessionBusyError, StoreError, TurnExistsError, TurnwrightError
from turnwright.store.outbox import noticed_facts
from turnwright.store.protocol import NOBODY, Claim, InboxItem, NewTurn, Status
from turnwright.store.rows import LAST_SEQ, join_facts, readable_items
from turnwright_states.facts import Fact, ModelReplied
from turnwright_states.state import FINAL

from .opening import StoreFiles
from .schema import Schema
from .statements import WAITING
from .summaries import NEW_SUMMARIES

#: The statement also checks the epoch, and that the facts follow the last one: for an outdated claim it finds no turn
#: and writes nothing. A turn that was deleted and created again may have the epoch of such a claim.
_WRITE_FACTS: Final = (
    "INSERT INTO facts (seq, kind, payload, at, state, reason, steps, tool_calls, epoch, owner, turn)"  # noqa: S608 (constant)
    " SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, number FROM turns WHERE turn_id = ?11 AND epoch = ?12"
    f" AND ?1 = 1 + coalesce((SELECT {LAST_SEQ} FROM facts WHERE turn IS number ORDER BY seq DESC LIMIT 1), 0)"
)
#: The time is left unchanged: it is the time of the fact.
_WRITE_STATUS: Final = (
    "UPDATE facts SET state = ?, reason = ?, steps = ?, tool_calls = ?"
    " WHERE turn = (SELECT number FROM turns WHERE turn_id = ? AND epoch = ?)"
    " AND seq = (SELECT MAX(seq) FROM facts AS every WHERE every.turn = facts.turn)"
)
_WRITE_TURN: Final = (
    "INSERT INTO turns (turn_id, session, agent, model, created_at, epoch, owner, live, due_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

#: First seq, kinds, payloads; time, state, reason, steps and calls; epoch and owner, only in the first row under a
#: claim; turn and epoch, for the check.
_FactsRow = tuple[
    int,
    str,
    str,
    float,
    str,
    str | None,
    int,
    int,
    int | None,
    str | None,
    str,
    int,
]


#: A session is as new as its last turn. Its title stays.
_WRITE_SESSION: Final = (
    "INSERT INTO sessions (session, title, number) VALUES (?, ?, ?)"
    " ON CONFLICT (session) DO UPDATE SET number = excluded.number"
)


_WRITE_NOTICE: Final = (
    "INSERT OR IGNORE INTO outbox (name, turn_id, seq, kind, at) SELECT name, ?, ?, ?, ? FROM subscriptions"
)


class Write(ABC):
    """One write of a driver: facts and the changes that go with them.

    `row` has the facts, if there are any. `only_facts`: `write` has nothing to do. `checks_version`: check the schema
    first, because the write has no claim that a migration would have ended. `checks_place`: after the commit, check
    that the store's file is still in its place, which is too expensive for every write. `waits`: neither committed nor
    given up. `error`: why it was given up.
    """

    __slots__ = ("checks_place", "checks_version", "error", "inbox_of", "only_facts", "row", "waiting", "waits")

    def __init__(
        self,
        row: _FactsRow | None = None,
        *,
        only_facts: bool = False,
        checks_version: bool = True,
        checks_place: bool = True,
    ) -> None:
        self.row = row
        self.checks_version = checks_version
        self.checks_place = checks_place
        self.only_facts = only_facts
        self.waits = True
        self.error: Exception | None = None
        #: The turn whose inbox is read just before the commit, and the items found.
        self.inbox_of = ""
        self.waiting: list[InboxItem] = []

    @abstractmethod
    def write(self, cursor: sqlite3.Cursor, path: Path) -> None:
        """Write everything but the facts, which follow. Raises a `TurnwrightError` only before its first change."""

    def note_commit(self) -> None:
        """Note that the write is committed."""
        self.waits = False

    def give_up(self, error: Exception) -> None:
        """Note that the write is not made, because of `error`."""
        self.error, self.waits = error, False


class Append(Write):
    """See `Store.append`. The constructor raises the error of a fact whose payload cannot be written."""

    __slots__ = ("_at", "_claim", "_consumed", "_count", "_due_at", "_noticed", "_status")

    def __init__(self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str]) -> None:
        # Otherwise the turn pauses, resumes or ends, its inbox changes, or its status is written without a fact.
        count = len(facts)
        self._noticed = noticed_facts(claim.turn, facts, claim.seq)
        self._at = time.time()
        self._due_at = status.due_at
        only_facts = not consumed and status.state not in FINAL and self._due_at == claim.due_at and count > 0
        only_facts = only_facts and not self._noticed
        # Checked once a step, before the calls of the reply run: calls of a lost journal would run again.
        checks_place = not only_facts or facts[0].kind == ModelReplied.kind
        row = _row(claim, facts, status, self._at) if count else None
        super().__init__(row, only_facts=only_facts, checks_version=False, checks_place=checks_place)
        self._count = count
        self._claim = claim
        self._status = status
        self._consumed = consumed
        self.inbox_of = claim.turn

    def write(self, cursor: sqlite3.Cursor, path: Path) -> None:
        """See `Write.write`."""
        del path
        turn, epoch, status = self._claim.turn, self._claim.epoch, self._status
        if self.row is None:
            columns = (*_texts(status), status.steps, status.tool_calls, turn, epoch)
            if cursor.execute(_WRITE_STATUS, columns).rowcount == 0:
                raise LeaseLostError(turn, epoch)
        if status.state in FINAL or self._due_at != self._claim.due_at:
            change = "UPDATE turns SET live = ?, due_at = ? WHERE turn_id = ? AND epoch = ?"
            cursor.execute(change, (status.state not in FINAL, self._due_at, turn, epoch))
        if self._consumed:
            rows = [(turn, item) for item in self._consumed]
            cursor.executemany("DELETE FROM inbox WHERE turn_id = ? AND id = ?", rows)
        if self._noticed:
            cursor.executemany(_WRITE_NOTICE, [(turn, seq, kind, self._at) for seq, kind in self._noticed])

    def note_commit(self) -> None:
        """Move the claim."""
        self._claim.due_at = self._due_at
        if self._count:
            self._claim.seq += self._count
            self._claim.unrecorded_owner = None
        self.waits = False


class Create(Write):
    """See `Store.create`. `author` is the name of the creating process, `claim` the claim of the new turn.

    `driven_epochs` has the epochs of the turns that this process drives, or is None if it will not drive the new one.
    """

    __slots__ = ("_count", "_driven_epochs", "_live", "_new", "_noticed", "_owner", "claim")

    def __init__(
        self, new: NewTurn, facts: Sequence[Fact], status: Status, author: str, driven_epochs: dict[str, int] | None
    ) -> None:
        self.claim = Claim(new.id, epoch=0 if driven_epochs is None else 1, seq=0, unrecorded_owner=author)
        super().__init__(_row(self.claim, facts, status, new.created_at))
        self._count = len(facts)
        self._noticed = noticed_facts(new.id, facts, 0)
        self._new = new
        self._live = status.state not in FINAL
        self.claim.due_at = status.due_at
        self._owner = None if driven_epochs is None else author
        self._driven_epochs = driven_epochs

    def write(self, cursor: sqlite3.Cursor, path: Path) -> None:
        """See `Write.write`."""
        new = self._new
        if cursor.execute("SELECT 1 FROM turns WHERE turn_id = ?", (new.id,)).fetchone() is not None:
            raise TurnExistsError(new.id, where=f"store {path}")
        if new.session is not None:
            busy = cursor.execute("SELECT turn_id FROM turns WHERE session = ? AND live = 1", (new.session,)).fetchone()
            if busy is not None:
                raise SessionBusyError(new.session, busy[0])
        turn = (new.id, new.session, new.agent, new.model, new.created_at)
        row = (*turn, self.claim.epoch, self._owner, self._live, self.claim.due_at)
        number = cursor.execute(_WRITE_TURN, row).lastrowid
        cursor.execute(f"{NEW_SUMMARIES} WHERE number = ?", (number,))
        if new.session is not None:
            cursor.execute(_WRITE_SESSION, (new.session, new.title, number))
        cursor.executemany(_WRITE_NOTICE, [(new.id, seq, kind, new.created_at) for seq, kind in self._noticed])

    def note_commit(self) -> None:
        """Note that this process drives the turn, before any other task can see it."""
        self.claim.seq, self.claim.unrecorded_owner = self._count, None
        if self._driven_epochs is not None:
            self._driven_epochs[self.claim.turn] = self.claim.epoch
        self.waits = False


class ReleaseWrite(Write):
    """See `Store.release`."""

    __slots__ = ("_claim", "_owner")

    def __init__(self, claim: Claim, *, crashed: bool) -> None:
        super().__init__()
        self._claim = claim
        self._owner = NOBODY if crashed else None

    def write(self, cursor: sqlite3.Cursor, path: Path) -> None:
        """See `Write.write`."""
        del path
        claim = self._claim
        cursor.execute(
            "UPDATE turns SET owner = ? WHERE turn_id = ? AND epoch = ?", (self._owner, claim.turn, claim.epoch)
        )


def write(  # noqa: C901, PLR0912 (in parts it would take more calls per step)
    cursor: sqlite3.Cursor, path: Path, place: StoreFiles, schema: Schema, together: Sequence[Write]
) -> None:
    """Make writes in one transaction. A write that raises a `TurnwrightError` is given up, and the rest is made.

    Raises the errors of `sqlite3`, and `LeaseLostError` or `StoreError` if facts follow no claim or not the last fact;
    then nothing was written. Raises `StoreReplacedError` if the written file is no longer in its place.
    """
    checks_version = checks_place = False
    rows: list[_FactsRow] = []
    cursor.execute("BEGIN IMMEDIATE")
    try:
        for change in together:
            checks_place = checks_place or change.checks_place
            if change.checks_version and not checks_version:
                schema.check(cursor, path)
                checks_version = True
            if not change.only_facts:
                try:
                    change.write(cursor, path)
                except TurnwrightError as error:
                    change.give_up(error)
                    continue
            if change.row is not None:
                rows += [change.row]
        if rows:
            count = len(rows)
            result = cursor.execute(_WRITE_FACTS, rows[0]) if count == 1 else cursor.executemany(_WRITE_FACTS, rows)
            if result.rowcount != count:
                raise _refusal(cursor, rows[0])  # noqa: TRY301 (likewise)
        for change in together:
            if change.inbox_of:
                items = [*cursor.execute(WAITING, (change.inbox_of,))]
                if items:
                    change.waiting = readable_items(change.inbox_of, items)
        cursor.execute("COMMIT")
    except BaseException:
        cursor.connection.rollback()
        raise
    if checks_place:
        # After the commit, which proves that the committed data is in the file that other processes open.
        place.check()
    for change in together:
        if change.waits:
            change.note_commit()


def _refusal(cursor: sqlite3.Cursor, row: _FactsRow) -> TurnwrightError:
    """Return why facts were not written. Of several turns it may name another one: then each write is made alone."""
    first, (turn, epoch) = row[0], row[-2:]
    if cursor.execute("SELECT 1 FROM turns WHERE turn_id = ? AND epoch = ?", (turn, epoch)).fetchone() is None:
        return LeaseLostError(turn, epoch)
    return StoreError(f"turn {turn}: fact {first} does not follow the last one")


def _row(claim: Claim, facts: Sequence[Fact], status: Status, at: float) -> _FactsRow:
    turn, epoch, author = claim.turn, claim.epoch, claim.unrecorded_owner
    recorded_epoch = None if author is None else epoch
    state, reason = _texts(status)
    kinds, payloads = join_facts(facts)
    counts = status.steps, status.tool_calls
    return (claim.seq + 1, kinds, payloads, at, state, reason, *counts, recorded_epoch, author, turn, epoch)


def _texts(status: Status) -> tuple[str, str | None]:
    # Plain strings: for an enum member `sqlite3` looks for an adapter each time, which costs as much as the insert.
    return str(status.state), None if status.reason is None else str(status.reason)
