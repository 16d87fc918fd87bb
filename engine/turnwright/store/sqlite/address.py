"""Opening a SQLite store by its address: `sqlite:///relative.db` or `sqlite:////absolute.db`, with options."""

from pathlib import Path
from typing import get_args
from urllib.parse import parse_qsl

from turnwright.errors import ConfigError

from .opening import Durability
from .store import SqliteStore


def open_sqlite(address: str, *, create: bool) -> SqliteStore:
    """Open the store at `address`. Raises `ConfigError` (see `open_store`)."""
    _, separator, rest = address.partition(":///")
    path, _, options = rest.partition("?")
    if not separator or path in ("", "/"):
        raise ConfigError(
            "store sqlite:...: the address names no file: write sqlite:///relative.db or sqlite:////absolute.db"
        )
    durability: Durability = "full"
    for name, value in parse_qsl(options, keep_blank_values=True):
        known = next((known for known in get_args(Durability) if (name, value) == ("durability", known)), None)
        if known is None:
            raise ConfigError(
                f"store sqlite:///{path}: unknown option {name}={value}: use durability=full or durability=normal"
            )
        durability = known
    if not create and not Path(path).exists():
        raise ConfigError(f"there is no store {path}: name the file that the turns were written to (--store)")
    return SqliteStore(Path(path), durability=durability)
