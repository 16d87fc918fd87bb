"""What driving writes to a SQLite file: each write is an object, made alone or with others in one transaction."""

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from turnwright.errors import LeaseLostError, SessionBusyError, StoreError, TurnwrightError
from turnwright.store.protocol import NOBODY, Claim, InboxItem, NewTurn, Status
from turnwright.store.rows import readable_items
from turnwright_states.facts import Fact, ModelReplied
from turnwright_states.state import FINAL

from .place import StoreFiles
from .rows import WAITING
from .schema import check

#: One statement is the fence too: under an epoch that is another's it finds no turn to write for.
_WRITE_FACT: Final = (
    "INSERT INTO facts (seq, kind, payload, at, state, reason, steps, tool_calls, epoch, owner, turn)"
    " SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, number FROM turns WHERE turn_id = ? AND epoch = ?"
)
#: The time stays: it says when the fact was written.
_WRITE_STATUS: Final = (
    "UPDATE facts SET state = ?, reason = ?, steps = ?, tool_calls = ?"
    " WHERE turn = (SELECT number FROM turns WHERE turn_id = ? AND epoch = ?)"
    " AND seq = (SELECT MAX(seq) FROM facts AS every WHERE every.turn = facts.turn)"
)
_WRITE_TURN: Final = (
    "INSERT INTO turns (turn_id, session, agent, model, created_at, epoch, owner, live) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)

#: Place, kind and payload, then time, state, reason, steps and calls: with the last fact of an append. Epoch and owner:
#: with the first fact under a claim, which has the time too. Turn and epoch.
_FactRow = tuple[
    int,
    str,
    str,
    float | None,
    str | None,
    str | None,
    int | None,
    int | None,
    int | None,
    str | None,
    str,
    int,
]


class Write(ABC):
    """One write of a driver: facts, and what goes with them.

    `only_facts`: `write` has nothing to do. `located`: it counts only while the store's file is in its place, which
    costs too much to ask with every one. `waits`: it was neither made nor given up; `error` is why it was given up.
    """

    __slots__ = ("asks", "error", "located", "only_facts", "rows", "waiting", "waits")

    def __init__(self, rows: Sequence[_FactRow] = (), *, only_facts: bool = False, located: bool = True) -> None:
        self.rows = rows
        self.located = located
        self.only_facts = only_facts
        self.waits = True
        self.error: Exception | None = None
        #: The turn whose inbox is read, when all is written and nothing is committed yet; and what waits there.
        self.asks = ""
        self.waiting: list[InboxItem] = []

    @abstractmethod
    def write(self, cursor: sqlite3.Cursor, path: Path) -> None:
        """Write all but the facts, which follow. Raises an error of Turnwright as long as it has written nothing."""

    def done(self) -> None:
        """It is committed."""
        self.waits = False

    def give_up(self, error: Exception) -> None:
        """It is not made, because of `error`."""
        self.error, self.waits = error, False


class Append(Write):
    """See `Store.append`. Making it raises what a fact raises that has no payload."""

    __slots__ = ("_claim", "_consumed", "_status")

    def __init__(self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str]) -> None:
        # Otherwise the turn ends, its inbox changes, or its status is written without a fact.
        only_facts = not consumed and status.state not in FINAL and len(facts) > 0
        # Once a step, before the calls of the reply run, for what is not kept may run again.
        located = not only_facts or facts[0].kind == ModelReplied.kind
        super().__init__(_rows(claim, facts, status, time.time()), only_facts=only_facts, located=located)
        self._claim = claim
        self._status = status
        self._consumed = consumed
        self.asks = claim.turn

    def write(self, cursor: sqlite3.Cursor, path: Path) -> None:
        """See `Write.write`."""
        del path
        turn, epoch, status = self._claim.turn, self._claim.epoch, self._status
        if not self.rows:
            columns = (*_texts(status), status.steps, status.tool_calls, turn, epoch)
            if cursor.execute(_WRITE_STATUS, columns).rowcount == 0:
                raise LeaseLostError(turn, epoch)
        if status.state in FINAL:
            cursor.execute("UPDATE turns SET live = 0 WHERE turn_id = ?", (turn,))
        if self._consumed:
            rows = [(turn, item) for item in self._consumed]
            cursor.executemany("DELETE FROM inbox WHERE turn_id = ? AND id = ?", rows)

    def done(self) -> None:
        """The claim moves."""
        if self.rows:
            self._claim.seq += len(self.rows)
            self._claim.signs = None
        self.waits = False


class Create(Write):
    """See `Store.create`. `claim` is that of the new turn, by the process that calls itself `author` if it drives it.

    `driving`: the epochs under which that process drives, by turn; None when it does not.
    """

    __slots__ = ("_driving", "_live", "_new", "_owner", "claim")

    def __init__(
        self, new: NewTurn, facts: Sequence[Fact], status: Status, author: str, driving: dict[str, int] | None
    ) -> None:
        self.claim = Claim(new.id, epoch=0 if driving is None else 1, seq=0, signs=author)
        super().__init__(_rows(self.claim, facts, status, new.created_at))
        self._new = new
        self._live = status.state not in FINAL
        self._owner = None if driving is None else author
        self._driving = driving

    def write(self, cursor: sqlite3.Cursor, path: Path) -> None:
        """See `Write.write`."""
        new = self._new
        if cursor.execute("SELECT 1 FROM turns WHERE turn_id = ?", (new.id,)).fetchone() is not None:
            raise StoreError(f"store {path}: turn {new.id} is there already")
        if new.session is not None:
            busy = cursor.execute("SELECT turn_id FROM turns WHERE session = ? AND live = 1", (new.session,)).fetchone()
            if busy is not None:
                raise SessionBusyError(new.session, busy[0])
        row = (new.id, new.session, new.agent, new.model, new.created_at, self.claim.epoch, self._owner, self._live)
        cursor.execute(_WRITE_TURN, row)

    def done(self) -> None:
        """The turn is driven here, before anybody can see it."""
        self.claim.seq, self.claim.signs = len(self.rows), None
        if self._driving is not None:
            self._driving[self.claim.turn] = self.claim.epoch
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


def write(cursor: sqlite3.Cursor, path: Path, place: StoreFiles, together: Sequence[Write]) -> None:
    """Make writes in one transaction. One that an error of Turnwright keeps out is given up, and the rest is made.

    Raises what `sqlite3` raises, and `LeaseLostError` where one of the appends is; then nothing was written. Raises
    `StoreReplacedError` where it was written to a file that is not in its place any more.
    """
    located = False
    cursor.execute("BEGIN IMMEDIATE")
    try:
        check(cursor, path)
        for one in together:
            located = located or one.located
            if not one.only_facts:
                try:
                    one.write(cursor, path)
                except TurnwrightError as error:
                    one.give_up(error)
        _write_facts(cursor, together)
        cursor.execute("COMMIT")
    except BaseException:
        cursor.connection.rollback()
        raise
    if located:
        # After the commit: only then is it known that what was written is where others look for it.
        place.check()
    for one in together:
        if one.waits:
            one.done()


def _write_facts(cursor: sqlite3.Cursor, together: Sequence[Write]) -> None:
    """Write the facts of all, and read the inboxes that are asked for."""
    rows = [row for one in together if one.waits for row in one.rows]
    if rows:
        # Most appends are of one fact.
        made = cursor.execute(_WRITE_FACT, rows[0]) if len(rows) == 1 else cursor.executemany(_WRITE_FACT, rows)
        if made.rowcount != len(rows):
            # Where there are several turns this may be another's; each is then told its own.
            turn, epoch = rows[0][-2:]
            raise LeaseLostError(turn, epoch)
    for one in together:
        if one.asks:  # nothing is called: every step makes four appends, and most find nothing
            items = [*cursor.execute(WAITING, (one.asks,))]
            if items:
                one.waiting = readable_items(one.asks, items)


def _rows(claim: Claim, facts: Sequence[Fact], status: Status, at: float) -> list[_FactRow]:
    turn, epoch, seq = claim.turn, claim.epoch, claim.seq + 1
    rows: list[_FactRow] = [
        (seq + n, fact.kind, fact.payload(), None, None, None, None, None, None, None, turn, epoch)
        for n, fact in enumerate(facts)
    ]
    if rows:
        state, reason = _texts(status)
        rows[-1] = (*rows[-1][:3], at, state, reason, status.steps, status.tool_calls, None, None, turn, epoch)
        if claim.signs is not None:
            rows[0] = (*rows[0][:3], at, *rows[0][4:8], epoch, claim.signs, turn, epoch)
    return rows


def _texts(status: Status) -> tuple[str, str | None]:
    # Plain text: for an enumeration `sqlite3` looks for an adapter, each time, which costs as much as the insert.
    return str(status.state), None if status.reason is None else str(status.reason)
