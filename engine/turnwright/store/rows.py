"""The rows of SQL stores, checked column by column when they are read.

The facts of an append are one row: the seq of the first fact, the kinds separated by commas, and the payloads separated
by line breaks. A kind has no comma, and JSON on one line has no line break.

Another program, a failing disk or a person may have changed a column. A damaged row affects only its own turn.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import floor
from typing import Any, Final, TypeGuard

import msgspec

from turnwright._base.words import cut_after
from turnwright.errors import UnreadableTurnError
from turnwright_states import EndReason, InvalidJournalError, Outcome, State
from turnwright_states.fact_parser import parse_fact
from turnwright_states.facts import Fact, TurnStarted
from turnwright_states.payload import lines_of

from .protocol import ClaimSpan, InboxItem, InboxKind, Status, TurnRow
from .sessions import SessionInfo
from .summaries import MOST

#: A row as a database's client returns it. The types of its columns are unknown.
Columns = tuple[Any, ...]
#: SQL: the seq of the last fact of a row.
LAST_SEQ: Final = "seq + length(kind) - length(replace(kind, ',', ''))"

_integers: Final = msgspec.json.Decoder(list[int]).decode
_OUTCOMES: Final = frozenset(Outcome)
_STATES: Final[dict[object, State]] = {str(state): state for state in State}
_REASONS: Final[dict[object, EndReason]] = {str(reason): reason for reason in EndReason}
#: Larger counts are damaged. Each count, and the one after it, must be exact as a float.
_MOST: Final = 2**53
#: The largest number of a row.
_LARGEST: Final = 2**63 - 1
#: Times in seconds since the Unix epoch that `datetime` can show: about the years 5 to 9892.
_FIRST, _LAST = -6.2e10, 2.5e11
#: The characters of a damaged value that an error quotes.
_QUOTED: Final = 60


def turn_row(row: Columns) -> TurnRow:
    """Return the turn of a row. Its `fault` describes the first damaged column.

    The columns: id, session, agent, model, times of creation and last write, epoch, owner, state, steps, tool calls,
    reason, whether it is live, number, due time.
    """
    (
        turn,
        session,
        agent,
        model,
        created_at,
        updated_at,
        epoch,
        owner,
        state,
        steps,
        calls,
        reason,
        live,
        number,
        due_at,
    ) = row
    try:
        status = Status(
            _state(state),
            _count("steps", steps),
            _count("tool_calls", calls),
            None if reason is None else _why(reason),
            _expiry(due_at) if state == State.PAUSED else None,
        )
        if live not in (0, 1) or bool(live) is not (status.outcome is None):
            raise _make_damage_error("live", live)
        epoch = _count("epoch", epoch)
        return TurnRow(
            _text("id", turn),
            None if session is None else _text("session", session),
            _text("agent", agent),
            _text("model", model),
            _time("created_at", created_at),
            _time("updated_at", updated_at),
            epoch,
            None if owner is None else _text("owner", owner),
            status.of_epoch(epoch),
            _count("number", number),
        )
    except ValueError as error:
        readable_columns = {
            **{
                name: text
                for name, text in {"session": session, "agent": agent, "model": model}.items()
                if _is_text(text)
            },
            **{name: at for name, at in {"created_at": created_at, "updated_at": updated_at}.items() if is_time(at)},
            "number": _order(number),
        }
        return replace(TurnRow.damaged(turn if _is_text(turn) else f"?{number}", str(error)), **readable_columns)


def session_info(row: Columns) -> SessionInfo:
    """Return the session of a row: id, title, turns, times of the first and the last write, open turn, number.

    A damaged column gets an empty value.
    """
    session, title, turns, created_at, updated_at, open_turn, number = row
    return SessionInfo(
        id=session if _is_text(session) else "",
        title=title if _is_text(title) else "",
        turns=turns if _is_count(turns) else 0,
        created_at=float(created_at) if is_time(created_at) else 0.0,
        updated_at=float(updated_at) if is_time(updated_at) else 0.0,
        open_turn=open_turn if _is_text(open_turn) else None,
        number=_order(number),
    )


def readable(row: TurnRow, where: str) -> TurnRow:
    """Return the row. Raises `UnreadableTurnError` for a damaged one; `where` names the store."""
    if row.fault:
        raise UnreadableTurnError(row.id, row.fault, where=where)
    return row


def join_facts(facts: Sequence[Fact]) -> tuple[str, str]:
    """Return the columns kind and payload of an append. Raises the error of a fact whose payload cannot be written."""
    kinds = facts[0].kind
    for fact in facts[1:]:
        kinds += "," + fact.kind
    if facts[0].kind != TurnStarted.kind:
        return kinds, lines_of(facts)
    return kinds, "\n".join([fact.payload() for fact in facts])  # its payload omits some fields


def split_facts(rows: Iterable[Columns]) -> Iterator[Columns]:
    """Split rows (first seq, kinds, payloads) into one (seq, kind, payload) a fact. Damaged columns are left."""
    for seq, kinds, payloads in rows:
        if not isinstance(kinds, str) or "," not in kinds or type(seq) is not int:
            yield seq, kinds, payloads
            continue
        texts = payloads.split("\n") if isinstance(payloads, str) else [payloads]
        for n, (kind, payload) in enumerate(zip_longest(kinds.split(","), texts)):
            yield seq + n, kind, payload


def facts_of(turn: str, rows: Iterable[Columns], where: str, after: int = 0) -> list[tuple[int, Fact]]:
    """Return the facts with a seq above `after` of rows (first seq, kinds, payloads).

    Raises `UnreadableTurnError`, caused by an `InvalidJournalError`.
    """
    facts: list[tuple[int, Fact]] = []
    try:
        for seq, kind, payload in split_facts(rows):
            place = _place(seq, facts, after)
            if place > after:
                facts.append((place, parse_fact(kind, payload, seq)))
    except InvalidJournalError as error:
        raise UnreadableTurnError(turn, str(error), where=where) from error
    return facts


def _place(seq: object, before: Sequence[tuple[int, Fact]], after: int) -> int:
    try:
        return _count("seq", seq)
    except ValueError as error:
        raise InvalidJournalError(before[-1][0] + 1 if before else after + 1, f"its {error}") from None


def claim_spans_of(turn: str, rows: Iterable[Columns], where: str) -> list[ClaimSpan]:
    """Return the spans of rows with their fields. Raises `UnreadableTurnError`."""
    try:
        return [
            ClaimSpan(
                _count("seq", first),
                _count("epoch", epoch),
                _text("owner", owner),
                _time("at", at),
                _time("at", ended_at),
            )
            for first, epoch, owner, at, ended_at in rows
        ]
    except ValueError as error:
        raise UnreadableTurnError(turn, f"the record of its drivers: {error}", where=where) from error


def waiting(turn: str, rows: Iterable[Columns], where: str) -> list[InboxItem]:
    """Return the inbox of a turn from rows (id, kind, payload). Raises `UnreadableTurnError`."""
    try:
        return [_item(turn, *row) for row in rows]
    except ValueError as error:
        raise UnreadableTurnError(turn, f"its inbox: {error}", where=where) from error


def readable_items(turn: str, rows: Iterable[Columns]) -> list[InboxItem]:
    """Return the inbox of a turn from rows (id, kind, payload), without damaged items."""
    return requests_of((turn, *row) for row in rows)


def requests_of(rows: Iterable[Sequence[Any]]) -> list[InboxItem]:
    """Return the requests from rows (turn, id, kind, payload), without damaged ones, which `Store.inbox` reports."""
    items: list[InboxItem] = []
    for row in rows:
        try:
            items.append(_item(*row))
        except ValueError:
            continue
    return items


def read_claim(turn: str, row: Sequence[Any], where: str) -> tuple[int, str | None, int]:
    """Return epoch, owner and last seq of a turn that a driver is claiming. Raises `UnreadableTurnError`."""
    epoch, owner, seq = row
    try:
        return _count("epoch", epoch), None if owner is None else _text("owner", owner), _count("seq", seq or 0)
    except ValueError as error:
        raise UnreadableTurnError(turn, str(error), where=where) from error


def _item(turn: object, name: object, kind: object, payload: object) -> InboxItem:
    if kind not in set(InboxKind):
        raise _make_damage_error("kind", kind)
    return InboxItem(_text("turn", turn), _text("id", name), InboxKind(str(kind)), _text("payload", payload))


def _state(value: object) -> State:
    if (state := _STATES.get(value)) is None:
        raise _make_damage_error("state", value)
    return state


def _why(value: object) -> EndReason:
    if (reason := _REASONS.get(value)) is None:
        raise _make_damage_error("reason", value)
    return reason


def _text(name: str, value: object) -> str:
    if isinstance(value, str) and (value.isascii() or _is_text(value)):
        return value
    raise _make_damage_error(name, value)


def _expiry(value: object) -> float | None:
    if value is None or type(value) is float:
        return value
    raise _make_damage_error("due_at", value)


def _count(name: str, value: object) -> int:
    if type(value) is int and 0 <= value < _MOST:
        return value
    raise _make_damage_error(name, value)


def _time(name: str, value: object) -> float:
    if type(value) is float and _FIRST < value < _LAST:
        return value
    if isinstance(value, int) and is_time(value):
        return float(value)
    raise _make_damage_error(name, value)


def _is_text(value: object) -> bool:
    """Whether it is a string without lone surrogates, which SQLite's bytes become where they are not UTF-8."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST


def is_time(value: object) -> TypeGuard[float]:
    """Whether it is a time, in seconds since the Unix epoch, that pages can show."""
    return isinstance(value, float | int) and not isinstance(value, bool) and _FIRST < value < _LAST


def _order(value: object) -> int:
    """Return a number for a damaged row, in the order in which SQLite sorts the value, so that paging continues."""
    if isinstance(value, int):
        return value
    if isinstance(value, float) and abs(value) < _MOST:
        return floor(value)
    return -_LARGEST if value is None else _LARGEST


def _make_damage_error(name: str, value: object) -> ValueError:
    if value is None:
        return ValueError(f"{name} is missing")
    return ValueError(f"{name} is damaged ({cut_after(ascii(value), _QUOTED, '...')})")


def outcome_of(value: object) -> Outcome | None:
    """Return the outcome of a row; None for a damaged one."""
    return Outcome(str(value)) if value in _OUTCOMES else None


def integers(text: object) -> list[int]:
    """Return integers that a query has joined; none if one is damaged, because each place has its meaning."""
    try:
        return _integers(f"[{text}]")
    except (msgspec.DecodeError, UnicodeEncodeError):
        return []


def count_of(value: Any) -> int:  # noqa: ANN401 (a sum of a database, of any numeric type)
    """Return a whole number of a row; 0 for a damaged one."""
    if type(value) is int and 0 <= value <= MOST:
        return value
    return int(number_of(value))


def number_of(value: Any) -> float:  # noqa: ANN401 (likewise)
    """Return a number of a row; 0 for a damaged one. PostgreSQL's sums are decimals."""
    try:
        number = float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if 0 <= number <= MOST else 0.0
