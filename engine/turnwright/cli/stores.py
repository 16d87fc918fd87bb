"""Opens a store for one query, and names it in the commands that are printed."""

import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote

import anyio

from turnwright.errors import ConfigError, TurnNotFoundError, UnreadableTurnError
from turnwright.store import Store, open_store
from turnwright.store.address import split_file
from turnwright_states.facts import Fact

from .options import configuration

_Answer = TypeVar("_Answer")
Journal = list[tuple[int, Fact]]

#: The most ids in a message.
_MOST_LISTED: Final = 20
#: The secret parameters of a libpq address.
_SECRETS: Final = frozenset({"password", "sslpassword"})


def use_store(address: str, use: Callable[[Store], Awaitable[_Answer]]) -> _Answer:
    """Open the store at `address`, call `use`, and close the store. Returns the result of `use`.

    It runs an event loop of its own, to which the connections belong. So a turn is driven on another store object.
    Raises `ConfigError` if there is no such store.
    """

    async def run_with_store() -> _Answer:
        async with aclosing(open_store(address, create=False)) as store:
            return await use(store)

    return anyio.run(run_with_store)


def find_turn(address: str, beginning_of_id: str) -> str:
    """Return the id of the turn whose id begins so. Return a text that matches no turn unchanged.

    In the id of a sub-agent's turn each part may be shortened: `4f:call`. Raises `ConfigError` with the matching ids if
    there are several.
    """
    return use_store(address, partial(_find_turn, prefix=beginning_of_id))


async def _find_turn(store: Store, *, prefix: str) -> str:
    try:
        return (await store.get(prefix)).id
    except (UnreadableTurnError, ConfigError):
        return prefix  # damaged, or no store: the command reports that itself
    except TurnNotFoundError:
        pass
    parts = prefix.split(":")
    matches = [row.id for row in await store.turns() if all(parts) and _begins(row.id.split(":"), parts)]
    if len(matches) > 1:
        raise ConfigError(
            f"{prefix} is ambiguous: {len(matches)} turns begin so: {list_names(matches)}: write more of the id"
        )
    return matches[0] if matches else prefix


def _begins(parts: Sequence[str], with_these: Sequence[str]) -> bool:
    return len(parts) == len(with_these) and all(map(str.startswith, parts, with_these))


def list_names(names: Sequence[str]) -> str:
    more_words = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(names[:_MOST_LISTED]) + more_words


async def is_elsewhere(store: Store, turn: str) -> bool:
    """Return whether another program began the turn. Only that program has its model and tools."""
    from turnwright.journal.driving_status import by_command_line  # noqa: PLC0415 (loads the engine: few lists need it)
    from turnwright.journal.turn_journal import first_fact  # noqa: PLC0415 (likewise)

    with suppress(TurnNotFoundError, UnreadableTurnError):
        return not by_command_line(first_fact(turn, await store.facts(turn)).metadata)
    return False


def read_journal(address: str, turn: str) -> Journal:
    return use_store(address, lambda store: store.facts(turn))


def missing_file(address: str) -> Path | None:
    """Return the file of a store if it does not exist yet; None if it exists, or if the store is not a file."""
    path = split_file(address)[1].partition("?")[0]
    return Path(path) if path and not Path(path).exists() else None


def store_flag(address: str) -> str:
    """Return the flag with which another command finds the store; empty for the configured store.

    The flag begins with a space and has no password. `password_hint` explains how to add it.
    """
    return "" if address == configuration().settings.store else f" --store {shlex.quote(without_password(address))}"


def is_unused(address: str) -> bool:
    """Return whether no command has used the configured store yet: a list is empty then, and not an error."""
    return store_flag(address) == "" and missing_file(address) is not None


def without_password(address: str) -> str:
    scheme, separator, location = address.partition("://")
    place, slash, path = location.partition("/")
    user, at, host = place.rpartition("@")
    location = f"{user.partition(':')[0]}{at}{host}{slash}{path}"
    location, mark, query = location.partition("?")
    public = "&".join(option for option in query.split("&") if unquote(option.partition("=")[0]) not in _SECRETS)
    return f"{scheme}{separator}{location}{mark if public else ''}{public}"


def password_hint(address: str) -> str:
    """Return how to add the password that a printed command does not have; empty if there is none."""
    if without_password(address) == address:
        return ""
    return "the store's password is not shown: add it to the address, or to PGPASSWORD or ~/.pgpass"
