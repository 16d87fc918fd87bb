"""The address of a store, as a flag or a configuration spells it."""

from pathlib import Path
from typing import Final, get_args
from urllib.parse import parse_qsl

from turnwright.errors import ConfigError

from .memory import MemoryStore
from .protocol import Store

_POSTGRES: Final = ("postgresql://", "postgres://")


def open_store(address: str, *, create: bool = True) -> Store:
    """Open the store at `address`.

    - `memory:`
    - `sqlite:///relative.db` or `sqlite:////absolute.db`, with `?durability=normal` if an acknowledged append need not
      survive a loss of power (`full`, the default: it does)
    - `postgresql://user:password@host:port/database`, which goes to libpq as it is, options too. Nothing is connected
      before the first use.

    Raises `ConfigError` for another address or option, for a file that cannot be used, without `create` for one that is
    not there, and where psycopg is needed and not installed. No message repeats a password.
    """
    if address in ("memory:", "memory://"):
        return MemoryStore()
    if address.startswith(_POSTGRES):
        return _postgres(address)
    scheme, separator, rest = address.partition(":///")
    path, _, options = rest.partition("?")
    if scheme == "sqlite" and separator and path and path != "/":
        return _sqlite(path, options, create=create)
    raise ConfigError(
        f"store {_without_password(address)!r} is no address that can be opened: use memory:, sqlite:///relative.db,"
        " sqlite:////absolute.db or postgresql://user:password@host/database"
    )


def _postgres(address: str) -> Store:
    try:
        from .postgres.store import PostgresStore  # noqa: PLC0415 (an extra: who does not use it need not have psycopg)
    except ImportError as error:
        raise ConfigError(
            f"store postgresql://...: psycopg cannot be imported ({error}): pip install 'turnwright[postgres]'"
        ) from error
    return PostgresStore(address)


def _sqlite(path: str, options: str, *, create: bool) -> Store:
    from .sqlite.store import Durability, SqliteStore  # noqa: PLC0415 (who keeps turns elsewhere needs no SQLite)

    durability: Durability = "full"
    for name, value in parse_qsl(options, keep_blank_values=True):
        known = next((known for known in get_args(Durability) if (name, value) == ("durability", known)), None)
        if known is None:
            raise ConfigError(
                f"store sqlite:///{path}: {name}={value} is no option: use durability=full or durability=normal"
            )
        durability = known
    if not create and not Path(path).exists():
        raise ConfigError(f"there is no store {path}: name the file that the turns were written to (--store)")
    return SqliteStore(Path(path), durability=durability)


def _without_password(address: str) -> str:
    """The address without what may be user and password: all between the first colon and the last @."""
    before, at, after = address.rpartition("@")
    scheme, colon, _ = before.partition(":")
    return f"{scheme}:...@{after}" if at and colon else address
