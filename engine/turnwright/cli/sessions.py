"""`turnwright sessions`, `title` and `approvals`: the conversations of a store."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

import typer
from pydantic import JsonValue

from turnwright._base.words import count, cut_line, local_time
from turnwright.errors import ConfigError, SessionNotFoundError
from turnwright.journal.questions import call_lines, describe_giver
from turnwright.journal.standing_approvals import StandingApproval
from turnwright.runtime.engine import Engine
from turnwright.store import SessionInfo, Store

from .options import DEFAULT_STORE, JsonLinesOption, StoreOption
from .process import echo, echo_json, say, spell
from .screen import print_columns, print_lines
from .stores import is_unused, list_names, use_store, without_password

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
    as_json: JsonLinesOption = False,
) -> None:
    """List sessions, those with the newest turns first.

    OPEN is the turn that has not ended. `turnwright show --session ID` prints a conversation.
    """
    listed_sessions = (
        [] if is_unused(store) else use_store(store, lambda turn_store: turn_store.sessions(limit=limit + 1))
    )
    sessions = listed_sessions[:limit]
    if as_json:
        for session in sessions:
            echo_json(_record(session))
    elif not sessions:
        echo(f"no sessions yet in {without_password(store)}", err=True)
    else:
        print_columns(_COLUMNS, [_cells(session) for session in sessions], drops=_DROPS)
    if len(listed_sessions) > limit:
        say(f"these are the newest {limit}: --limit {10 * limit} lists more")


def title(
    session: SessionArgument,
    text: Annotated[str, typer.Argument(metavar="TITLE", help="The new title, of at most 200 characters.")],
    *,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Set the title of a session. Its first title is the beginning of its first prompt."""
    name = use_store(store, partial(find_session, prefix=session))
    use_store(store, lambda turn_store: Engine(store=turn_store).set_title(name, text))
    echo(f"session {cut_line(name)}: its title is set")


def approvals(
    session: SessionArgument,
    *,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke all of them: later turns ask again.")] = False,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonLinesOption = False,
) -> None:
    """List the approvals of a session that cover equal calls, or revoke them.

    A person gave them with "always". A turn that has not ended keeps its own when they are revoked.
    """

    async def read(turn_store: Store) -> tuple[str, list[StandingApproval], int]:
        name = await find_session(turn_store, prefix=session)
        if not await turn_store.turns(session=name, limit=1):
            raise SessionNotFoundError(name)
        engine = Engine(store=turn_store)
        revoked_count = await engine.revoke_approvals(name) if revoke else 0
        return name, await engine.approvals(name), revoked_count

    name, standing, revoked_total = use_store(store, read)
    if revoke:
        echo(f"session {cut_line(name)}: {count(revoked_total, 'approval')} revoked")
    elif as_json:
        for approval in standing:
            echo_json(approval.to_json())
    else:
        print_lines(approval_lines(standing) or ["No approval covers equal calls in this session."])


def approval_lines(approvals: Sequence[StandingApproval]) -> list[str]:
    """Return each approval in two or more lines: who gave it in which turn, and the calls that it covers."""
    lines: list[str] = []
    for approval in approvals:
        lines.append(f"{approval.id}: approved always {describe_giver(approval)}".rstrip())
        lines += [f"  {spell(line)}" for line in call_lines(approval.tool, approval.arguments)]
    return lines


async def find_session(store: Store, *, prefix: str) -> str:
    """Return the id of the session whose id begins so. Return a text that matches none unchanged.

    Raises `ConfigError` with the matching ids if there are several.
    """
    ids = [session.id for session in await store.sessions()]
    matches = (
        [prefix] if prefix in ids else [session_id for session_id in ids if prefix and session_id.startswith(prefix)]
    )
    if len(matches) > 1:
        sessions = list_names([cut_line(session_id) for session_id in matches])
        raise ConfigError(f"{prefix} is ambiguous: {len(matches)} sessions begin so: {sessions}: write more of the id")
    return matches[0] if matches else prefix


def _record(session: SessionInfo) -> dict[str, JsonValue]:
    return {
        "session": session.id,
        "title": session.title,
        "turns": session.turns,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "open_turn": session.open_turn,
    }


def _cells(session: SessionInfo) -> tuple[str, ...]:
    when = local_time(session.updated_at, "%Y-%m-%d %H:%M:%S")
    return (cut_line(session.id), when, str(session.turns), cut_line(session.open_turn or ""), cut_line(session.title))
