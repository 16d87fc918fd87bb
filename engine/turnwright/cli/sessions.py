"""`turnwright sessions` and `title`: the conversations of a store."""

from functools import partial
from typing import Annotated, Final

import typer
from pydantic import JsonValue

from turnwright._base.words import cut_line
from turnwright.engine import Engine
from turnwright.errors import ConfigError
from turnwright.store import SessionInfo, Store

from .options import DEFAULT_STORE, StoreOption
from .process import echo, echo_json, say
from .screen import print_columns
from .stores import listed, missing_file, store_flag, use_store
from .view import local_time

_COLUMNS: Final = ("SESSION", "WHEN", "TURNS", "OPEN", "TITLE")
#: The columns that a narrow terminal leaves out, in this order.
_DROPS: Final = ("TURNS", "WHEN", "OPEN", "TITLE")
_LIMIT: Final = 50

SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="The session's id, or a unique beginning of it.")
]


def sessions(
    *,
    store: StoreOption = DEFAULT_STORE,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="The most sessions.")] = _LIMIT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """List sessions, those with the newest turns first.

    OPEN is the turn that has not ended. `turnwright show --session ID` prints a conversation.
    """
    nothing_run_here = store_flag(store) == "" and missing_file(store) is not None
    found = [] if nothing_run_here else use_store(store, lambda opened: opened.sessions(limit=limit + 1))
    shown = found[:limit]
    if as_json:
        for one in shown:
            echo_json(_record(one))
    elif not shown:
        echo("no sessions yet", err=True)
    else:
        print_columns(_COLUMNS, [_cells(one) for one in shown], drops=_DROPS)
    if len(found) > limit:
        say(f"these are the newest {limit}: --limit {10 * limit} lists more")


def title(
    session: SessionArgument,
    text: Annotated[str, typer.Argument(metavar="TITLE", help="The new title, of at most 200 characters.")],
    *,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Set the title of a session. Its first title is the beginning of its first prompt."""
    name = use_store(store, partial(find_session, named=session))
    use_store(store, lambda opened: Engine(store=opened).set_title(name, text))
    echo(f"session {cut_line(name)}: its title is set")


async def find_session(store: Store, *, named: str) -> str:
    """Return the id of the session whose id begins so. Return a text that matches none unchanged.

    Raises `ConfigError` with the matching ids if there are several.
    """
    known = [one.id for one in await store.sessions()]
    found = [named] if named in known else [one for one in known if named and one.startswith(named)]
    if len(found) > 1:
        some = listed([cut_line(one) for one in found])
        raise ConfigError(f"{named} is ambiguous: {len(found)} sessions begin so: {some}: write more of the id")
    return found[0] if found else named


def _record(one: SessionInfo) -> dict[str, JsonValue]:
    return {
        "session": one.id,
        "title": one.title,
        "turns": one.turns,
        "created_at": one.created_at,
        "updated_at": one.updated_at,
        "open_turn": one.open_turn,
    }


def _cells(one: SessionInfo) -> tuple[str, ...]:
    when = local_time(one.updated_at, "%Y-%m-%d %H:%M:%S")
    return (cut_line(one.id), when, str(one.turns), cut_line(one.open_turn or ""), cut_line(one.title))
