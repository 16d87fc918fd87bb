"""`turnwright delete`, `prune` and `migrate`: maintenance of a store."""

import re
from functools import partial
from typing import Annotated, Final

import typer

from turnwright._base.ids import root_of
from turnwright._base.words import count, cut_line
from turnwright.errors import ConfigError
from turnwright.runtime.engine import Engine
from turnwright.store import Store
from turnwright.store.address import find_scheme
from turnwright.store.outbox import NoticeRow, outbox_store

from .options import DEFAULT_STORE, JsonLinesOption, SessionOption, StoreOption, TurnOrNoneArgument, need_one
from .process import echo, echo_json
from .prompts import can_ask, read_line
from .sessions import find_session
from .stores import find_turn, missing_file, use_store, without_password

#: Seconds in each unit of a duration.
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
#: Turns that are summarized in one transaction.
_AT_ONCE: Final = 100
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhdw])")


def delete(
    turn: TurnOrNoneArgument = None, *, session: SessionOption = None, store: StoreOption = DEFAULT_STORE
) -> None:
    """Delete a turn and its sub-turns, or all of a session. Does not ask.

    A turn that is being driven is not deleted, nor is its session: abort it first.
    """
    if session is not None:
        need_one(turn, session)
        name = use_store(store, partial(find_session, prefix=session))
        deleted_count = use_store(store, lambda turn_store: Engine(store=turn_store).delete_session(name))
        echo(f"session {cut_line(name)}: deleted, with {count(deleted_count, 'turn')}")
        return
    turn = find_turn(store, need_one(turn, session))
    deleted_count = use_store(store, lambda turn_store: Engine(store=turn_store).delete(turn))
    sub_turns = f", with {count(deleted_count - 1, 'sub-turn')}" if deleted_count > 1 else ""
    echo(f"turn {turn}: deleted{sub_turns}")


def outbox(
    *,
    retry: Annotated[bool, typer.Option("--retry", help="Deliver the waiting and failed ones again, now.")] = False,
    remove: Annotated[
        str | None, typer.Option("--remove", metavar="NAME", help="End the subscription of this name.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonLinesOption = False,
) -> None:
    """List the notices that wait for their subscribers, and those that failed.

    Workers of the app deliver them. --remove deletes the notices of a subscriber that does not exist any more.
    """
    if retry and remove is not None:
        raise ConfigError("give --retry or --remove, not both")

    async def read(turn_store: Store) -> tuple[list[NoticeRow], int, bool]:
        notices = outbox_store(turn_store)
        is_removed = remove is not None and await notices.unsubscribe(remove)
        return await notices.notices(), await notices.retry_notices() if retry else 0, is_removed

    rows, retried_count, is_unsubscribed = use_store(store, read)
    if remove is not None:
        if not is_unsubscribed:
            raise ConfigError(f"--remove: there is no subscription {remove!r}")
        echo(f"subscription {cut_line(remove)}: removed")
    elif retry:
        echo(f"{count(retried_count, 'notice')}: delivered again by the next worker")
    elif as_json:
        for row in rows:
            echo_json({"id": row.id} | {name: getattr(row, name) for name in row.__struct_fields__})
    else:
        for row in rows:
            echo(f"{row.id}  {row.kind}  {row.status}" + (f": {cut_line(row.error)}" if row.error else ""))
        if not rows:
            echo("No notice waits.")


def prune(
    *,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            help="Time since the turn ended: a number of s, m, h, d or w, such as 30d.",
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Delete the turns that ended long ago, and their sub-turns. A terminal asks first."""
    seconds, shown_store = _seconds(older_than), without_password(store)
    if not yes and can_ask():
        reply = read_line(f"Delete the turns of {shown_store} that ended more than {older_than.strip()} ago? [y/N] ")
        if (reply or "").strip().lower() not in ("y", "yes"):
            echo("Nothing is deleted.")
            return

    async def delete_old(turn_store: Store) -> tuple[int, int]:
        deleted_count = await Engine(store=turn_store).prune(older_than=seconds)
        return deleted_count, sum(root_of(row.id) == row.id for row in await turn_store.turns(live=True))

    total, live = use_store(store, delete_old)
    stays = f"; {count(live, 'turn')} that {'has' if live == 1 else 'have'} not ended stay{'s' if live == 1 else ''}"
    echo(f"{shown_store}: {count(total, 'turn')} deleted" + (stays if live else ""))


def migrate(
    *,
    summarize: Annotated[
        bool,
        typer.Option("--summarize", help="Also summarize all turns now, which the inspector does otherwise."),
    ] = False,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Update a store to the schema of this release.

    It may be run more than once.
    """
    file = missing_file(store)
    if file is not None:
        echo(f"there is no store {file} yet: the first use creates it with the schema of this release")
        return
    shown_store, scheme = without_password(store), find_scheme(store)
    versions = use_store(store, lambda turn_store: turn_store.migrate())
    if scheme is not None and not scheme.migrates:
        echo(f"{shown_store}: {scheme.help} has nothing to migrate")
    elif versions[0] == versions[1]:
        echo(f"{shown_store}: schema {versions[1]}, as this release needs it; nothing to migrate")
    else:
        echo(f"{shown_store}: schema {versions[0]} before, {versions[1]} now")
        if versions[0] and not summarize:
            echo("the inspector may summarize the turns once more; `turnwright migrate --summarize` does it before")
    if summarize:
        echo(f"{shown_store}: {count(use_store(store, _summarize), 'turn')} summarized")


async def _summarize(store: Store) -> int:
    """Write the summaries that are missing, and return their number. A store that keeps none has none."""
    from turnwright.journal.summarize import summarize_turns  # noqa: PLC0415 (few commands need it)
    from turnwright.privacy.redaction import redactor  # noqa: PLC0415 (as above)
    from turnwright.store.summaries import SummaryStore  # noqa: PLC0415 (as above)

    summarized_count = 0
    if isinstance(store, SummaryStore):
        while batch_size := await summarize_turns(store, store, redactor().hide, limit=_AT_ONCE):
            summarized_count += batch_size
    return summarized_count


def _seconds(duration: str) -> float:
    match = _DURATION.fullmatch(duration.strip())
    if match is None:
        raise ConfigError(
            f"--older-than {duration!r}: is not a duration: write a whole number and s, m, h, d or w, such as 90s, 15m,"
            " 12h, 30d or 4w"
        )
    return float(int(match[1]) * _UNITS[match[2]])
