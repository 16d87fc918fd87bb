"""Stores as the command line meets them: used for a moment, and named in the commands that it prints."""

import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote

import anyio

from turnwright.errors import ConfigError, TurnNotFoundError, UnreadableTurnError
from turnwright.journal.driving_status import by_command_line
from turnwright.journal.turn_journal import first_fact
from turnwright.store import Store, open_store
from turnwright.store.address import split_file
from turnwright_states.facts import Fact

from .options import configuration

Found = TypeVar("Found")
Journal = list[tuple[int, Fact]]

#: How many ids a message lists.
_MOST_LISTED: Final = 20
#: What libpq takes in an address's query that nobody else may read.
_SECRETS: Final = frozenset({"password", "sslpassword"})


def use_store(address: str, use: Callable[[Store], Awaitable[Found]]) -> Found:
    """What `use` makes of the store at `address`. It is opened for that alone, and closed again.

    An event loop runs for that alone too, so a store that is driven on afterwards is opened anew: its connections
    belong to one loop. Raises `ConfigError` where there is no such store.
    """

    async def opened() -> Found:
        store = open_store(address, create=False)
        try:
            return await use(store)
        finally:
            await store.aclose()

    return anyio.run(opened)


def find_turn(address: str, beginning_of_id: str) -> str:
    """Return the id of the turn that this names: its id, or the beginning of it where no other turn's begins so.

    Of a sub-agent's turn each part may be a beginning: `4f:call`. What names no turn comes back as it is. Raises
    `ConfigError`, which lists them, where it is the beginning of several.
    """
    return use_store(address, partial(_find_turn, named=beginning_of_id))


async def _find_turn(store: Store, *, named: str) -> str:
    try:
        return (await store.get(named)).id
    except (UnreadableTurnError, ConfigError):
        return named  # it is damaged, or there is no store: the command says so in its own words
    except TurnNotFoundError:
        pass
    parts = named.split(":")
    found = [row.id for row in await store.turns() if all(parts) and _begins(row.id.split(":"), parts)]
    if len(found) > 1:
        raise ConfigError(f"{named} is the beginning of {len(found)} turns: {listed(found)}: write more of it")
    return found[0] if found else named


def _begins(parts: Sequence[str], with_these: Sequence[str]) -> bool:
    return len(parts) == len(with_these) and all(map(str.startswith, parts, with_these))


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(names[:_MOST_LISTED]) + more


async def is_elsewhere(store: Store, turn: str) -> bool:
    """Return whether another program began the turn, and alone has its model and its tools."""
    with suppress(TurnNotFoundError, UnreadableTurnError):
        return not by_command_line(first_fact(turn, await store.facts(turn)).metadata)
    return False


def read_journal(address: str, turn: str) -> Journal:
    return use_store(address, lambda store: store.facts(turn))


def missing_file(address: str) -> Path | None:
    """Return the file of a store that is not there yet; None for one that is, and for a store that is no file."""
    path = split_file(address)[1].partition("?")[0]
    return Path(path) if path and not Path(path).exists() else None


def store_flag(address: str) -> str:
    """What a command needs to find a turn of this store; empty for the one that it looks in anyway.

    It begins with a space, and holds no password: `password_hint` says where that goes.
    """
    return "" if address == configuration().settings.store else f" --store {shlex.quote(without_password(address))}"


def without_password(address: str) -> str:
    scheme, separator, rest = address.partition("://")
    place, slash, path = rest.partition("/")
    user, at, host = place.rpartition("@")
    rest = f"{user.partition(':')[0]}{at}{host}{slash}{path}"
    rest, mark, query = rest.partition("?")
    kept = "&".join(one for one in query.split("&") if unquote(one.partition("=")[0]) not in _SECRETS)
    return f"{scheme}{separator}{rest}{mark if kept else ''}{kept}"


def password_hint(address: str) -> str:
    """Where the password goes that a printed command does not have; empty if it lacks none."""
    if without_password(address) == address:
        return ""
    return "the store's password is left out: write it into the address again, or into PGPASSWORD or ~/.pgpass"
