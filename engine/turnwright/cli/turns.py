"""`turnwright turns`: lists the turns of a store, and those that need a person."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnwright._base.ids import root_of
from turnwright._base.words import count, cut_line, local_time
from turnwright.errors import TurnNotFoundError, UnreadableTurnError
from turnwright.journal.driving_status import DriverStatus, driving_status
from turnwright.store import InboxKind, Store, TurnRow

from .options import DEFAULT_STORE, JsonLinesOption, StoreOption
from .process import echo, echo_json, say
from .screen import print_columns
from .stores import is_elsewhere, is_unused, password_hint, store_flag, use_store, without_password

if TYPE_CHECKING:
    from pydantic import JsonValue

_COLUMNS: Final = ("TURN", "WHEN", "AGENT", "MODEL", "STEPS", "CALLS", "STATE", "DRIVER", "REASON", "SESSION")
#: The columns that a narrow terminal leaves out, in this order. The id and the state are always shown.
_DROPS: Final = ("MODEL", "SESSION", "AGENT", "WHEN", "CALLS", "STEPS", "REASON", "DRIVER")
_NO_DRIVER: Final = frozenset({DriverStatus.CRASHED, DriverStatus.LEFT})
_THEIRS: Final = "turns of another program are resumed by its own `recover()` or worker"
_INDENT: Final = "  "
_LIMIT: Final = 50
#: The state of a turn whose row is damaged.
_UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True)
class _TurnList:
    """Turns with the status of each driver.

    `elsewhere`: unfinished turns without a driver that another program began. `stopping`: turns that were asked to stop
    and have not ended. `answered`: paused turns that are answered and have no driver yet.
    """

    rows: Sequence[tuple[TurnRow, DriverStatus | None]]
    elsewhere: frozenset[str]
    stopping: frozenset[str]
    answered: frozenset[str]
    more: bool


def turns(
    *,
    store: StoreOption = DEFAULT_STORE,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Only turns of this session.")] = None,
    sub_turns: Annotated[bool, typer.Option("--all", help="Also turns of sub-agents, below their callers.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="The most turns, without those of sub-agents.")
    ] = _LIMIT,
    as_json: JsonLinesOption = False,
) -> None:
    """List turns, newest first, and those to resume.

    DRIVER shows which turns have lost their driver (crashed, left) and which are answered and not resumed yet.
    """
    query = partial(_list_turns, session=session, sub_turns=sub_turns, limit=limit)
    turn_list = (
        _TurnList((), frozenset(), frozenset(), frozenset(), more=False)
        if is_unused(store)
        else use_store(store, query)
    )
    if as_json:
        for row, driver in turn_list.rows:
            echo_json(_record(row, driver, turn_list))
    elif not turn_list.rows:
        place = without_password(store)
        echo(f"no turns yet in {place}" if session is None else f"no turns in session {session!r}", err=True)
    else:
        print_columns(
            _COLUMNS,
            [_cells(row, driver, answered=row.id in turn_list.answered) for row, driver in turn_list.rows],
            drops=_DROPS,
        )
        _say_what_to_do(turn_list, store)
    if turn_list.more:
        say(f"these are the newest {limit}: --limit {10 * limit} lists more")


async def _list_turns(store: Store, *, session: str | None, sub_turns: bool, limit: int) -> _TurnList:
    roots, has_more = await _roots(store, session, limit)
    below = [row for row in (await store.turns() if sub_turns else ()) if not _is_root(row)]
    below.sort(key=lambda row: row.id)  # in the order of their calls
    rows: list[tuple[TurnRow, DriverStatus | None]] = []
    elsewhere: set[str] = set()
    waits = await store.requests(InboxKind.ABORT, InboxKind.ANSWER)
    stopped_turns = {item.turn for item in waits if item.kind is InboxKind.ABORT}
    # Only the journals of turns with new answers are read: those are few.
    answered_ids = {item.turn for item in waits if item.kind is InboxKind.ANSWER}
    answered_turns: set[str] = set()
    for root in roots:
        for row in (root, *(child for child in below if root_of(child.id) == root.id)):
            with suppress(TurnNotFoundError):  # it has just been deleted
                current, driver = await driving_status(store, row)
                rows.append((current, driver))
                if row.id in answered_ids and driver is None and await _is_answered(store, row.id):
                    answered_turns.add(row.id)
                idle = driver in _NO_DRIVER or row.id in answered_turns
                if idle and _is_root(row) and await is_elsewhere(store, row.id):
                    elsewhere.add(row.id)
    stopping = frozenset(row.id for row, _ in rows if row.id in stopped_turns and row.status.outcome is None)
    return _TurnList(rows, frozenset(elsewhere), stopping, frozenset(answered_turns), has_more)


async def _is_answered(store: Store, turn: str) -> bool:
    """Return whether a turn is paused, and all of its interrupts have answers that no driver has read yet."""
    from turnwright.journal.answers import current_result  # noqa: PLC0415 (loads the engine, and few turns are answered)

    with suppress(TurnNotFoundError, UnreadableTurnError):
        result = await current_result(store, turn)
        return result.paused and len(result.answered) == len(result.interrupts)
    return False


async def _roots(store: Store, session: str | None, limit: int) -> tuple[list[TurnRow], bool]:
    """Return the newest root turns, and whether there are more."""
    roots: list[TurnRow] = []
    before: int | None = None
    while page := await store.turns(session=session, limit=limit + 1, before=before):
        roots += filter(_is_root, page)
        if len(roots) > limit:
            return roots[:limit], True
        before = page[-1].number
    return roots, False


def _is_root(row: TurnRow) -> bool:
    return root_of(row.id) == row.id


def _say_what_to_do(turn_list: _TurnList, store: str) -> None:
    for row, _ in turn_list.rows:
        if row.fault:
            say(f"turn {cut_line(row.id)} cannot be read: {row.fault}: restore a copy of the store, or delete the turn")
    hint = f" ({password_hint(store)})" if password_hint(store) else ""
    driverless = [row.id for row, driver in turn_list.rows if driver in _NO_DRIVER and _is_root(row)]
    stopping = [turn for turn in driverless if turn in turn_list.stopping]
    if stopping:
        shown_id, pronoun = _name(stopping)
        were, their = ("was", "its") if len(stopping) == 1 else ("were", "their")
        # `abort` ends the turns of any program, and `resume` only those that the command line began.
        from .summary import ended_by  # noqa: PLC0415 (likewise)

        ends = ended_by(shown_id, store_flag(store), elsewhere=not turn_list.elsewhere.isdisjoint(stopping))
        say(f"{count(len(stopping), 'turn')} {were} asked to stop and lost {their} driver: {ends} ends {pronoun}{hint}")
    answered_turns = [row.id for row, _ in turn_list.rows if row.id in turn_list.answered]
    if answered_turns:
        shown_id, pronoun = _name(answered_turns)
        turns_elsewhere = turn_list.elsewhere.intersection(answered_turns)
        from .summary import resumed_by  # noqa: PLC0415 (likewise)

        again = resumed_by(shown_id, store_flag(store), elsewhere=len(turns_elsewhere) == len(answered_turns))
        remark = f"; {_THEIRS}" if 0 < len(turns_elsewhere) < len(answered_turns) else ""
        number = count(len(answered_turns), "turn")
        say(f"{number} answered, and not resumed yet: {again} resumes {pronoun}{hint}{remark}")
    waiting = [turn for turn in driverless if turn not in turn_list.stopping]
    turns_here = [turn for turn in waiting if turn not in turn_list.elsewhere]
    if turns_here:
        shown_id, pronoun = _name(turns_here)
        command = f"`turnwright resume {shown_id}{store_flag(store)}`"
        say(f"{count(len(turns_here), 'turn')} crashed or left: {command} resumes {pronoun}{hint}; {_THEIRS}")
    elif waiting:
        pronoun = "it" if len(waiting) == 1 else "them"
        again = f"`Engine.recover()` or a worker of the program that began {pronoun}"
        say(f"{count(len(waiting), 'turn')} crashed or left: {again} resumes {pronoun}")


def _name(turns: Sequence[str]) -> tuple[str, str]:
    """Return the id for a command that is shown for some turns, and their pronoun."""
    return (turns[0], "it") if len(turns) == 1 else ("TURN", "one")


def _record(row: TurnRow, driver: DriverStatus | None, turn_list: _TurnList) -> "dict[str, JsonValue]":
    return {
        "turn": row.id,
        "parent": row.id.rpartition(":")[0] or None,
        "session": row.session,
        "agent": row.agent,
        "model": row.model,
        "created_at": row.created_at,
        "state": _UNREADABLE if row.fault else row.status.state,
        "driver": driver,
        "stopping": row.id in turn_list.stopping,
        "answered": row.id in turn_list.answered,
        "outcome": row.status.outcome,
        "reason": row.status.reason,
        "steps": row.status.steps,
        "tool_calls": row.status.tool_calls,
        **({"fault": row.fault} if row.fault else {}),
    }


def _cells(row: TurnRow, driver: DriverStatus | None, *, answered: bool) -> tuple[str, ...]:
    if row.fault:
        when, figures, state_columns = "", ("", ""), (_UNREADABLE, "", "")
    else:
        when = local_time(row.created_at, "%Y-%m-%d %H:%M:%S")
        status = row.status
        figures = (str(status.steps), str(status.tool_calls))
        state_columns = (status.state, driver or ("answered" if answered else ""), status.reason or "")
    cells = (when, row.agent, row.model, *figures, *state_columns, row.session or "")
    return (_INDENT * row.id.count(":") + row.id.replace("\n", r"\n"), *map(cut_line, cells))
