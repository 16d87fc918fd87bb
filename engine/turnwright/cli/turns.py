"""`turnwright turns`: the turns of a store, and which of them somebody must see to."""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Annotated, Final

import typer
from pydantic import JsonValue

from turnwright.errors import UnknownTurn
from turnwright.ids import root_of
from turnwright.seen_to import Driver, seen_to
from turnwright.store import Store, TurnRow

from .closing import count
from .columns import print_columns
from .options import DEFAULT_STORE, StoreOption
from .process import say
from .stores import missing_file, password_hint, store_flag, use_store
from .view import one_line

_COLUMNS: Final = ("TURN", "WHEN", "AGENT", "MODEL", "STEPS", "CALLS", "STATE", "DRIVER", "REASON", "SESSION")
_INDENT: Final = "  "


_Listed = Sequence[tuple[TurnRow, Driver | None]]


def turns(
    *,
    store: StoreOption = DEFAULT_STORE,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Only of this conversation.")] = None,
    sub_turns: Annotated[bool, typer.Option("--all", help="Also those of sub-agents, below their callers'.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List turns, the newest first, and which of them nobody drives: they crashed or were left, and can be resumed."""
    nothing_run_here = store_flag(store) == "" and missing_file(store) is not None
    rows = [] if nothing_run_here else use_store(store, partial(_listed, session=session, sub_turns=sub_turns))
    if as_json:
        for row, driver in rows:
            typer.echo(json.dumps(_record(row, driver)))
    elif not rows:
        typer.echo("no turns yet", err=True)
    else:
        print_columns(_COLUMNS, [_cells(row, driver) for row, driver in rows])
        _say_what_waits(rows, store)


async def _listed(store: Store, *, session: str | None, sub_turns: bool) -> _Listed:
    rows = await store.turns(session=session)
    below = [row for row in (await store.turns() if sub_turns else ()) if not _is_root(row)]
    below.sort(key=lambda row: row.id)  # as their calls were made
    listed: list[tuple[TurnRow, Driver | None]] = []
    for root in filter(_is_root, rows):
        for row in (root, *(one for one in below if root_of(one.id) == root.id)):
            with suppress(UnknownTurn):  # somebody has just deleted it
                listed.append(await seen_to(store, row))
    return listed


def _is_root(row: TurnRow) -> bool:
    return root_of(row.id) == row.id


def _say_what_waits(rows: _Listed, store: str) -> None:
    waiting = [row.id for row, driver in rows if driver in (Driver.CRASHED, Driver.LEFT) and _is_root(row)]
    if waiting:
        which, what = (waiting[0], "it") if len(waiting) == 1 else ("TURN", "one")
        hint = f" ({password_hint(store)})" if password_hint(store) else ""
        say(
            f"{count(len(waiting), 'turn')} crashed or left:"
            f" `turnwright resume {which}{store_flag(store)}` takes {what} up again{hint};"
            " what another program began, its own `recover()` does"
        )


def _record(row: TurnRow, driver: Driver | None) -> dict[str, JsonValue]:
    return {
        "turn": row.id,
        "parent": row.id.rpartition(":")[0] or None,
        "session": row.session,
        "agent": row.agent,
        "model": row.model,
        "created_at": row.created_at,
        "state": row.status.state,
        "driver": driver,
        "outcome": row.status.outcome,
        "reason": row.status.reason,
        "steps": row.status.steps,
        "tool_calls": row.status.tool_calls,
    }


def _cells(row: TurnRow, driver: Driver | None) -> tuple[str, ...]:
    when = datetime.fromtimestamp(row.created_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    status = row.status
    figures = (str(status.steps), str(status.tool_calls))
    stands = (status.state, driver or "", status.reason or "")
    rest = (when, row.agent, row.model, *figures, *stands, row.session or "")
    return (_INDENT * row.id.count(":") + one_line(row.id), *map(one_line, rest))
