"""The address of a store, as a flag or a configuration spells it."""

from pathlib import Path

from turnwright.errors import ConfigError

from .memory import MemoryStore
from .protocol import Store
from .sqlite import SqliteStore


def open_store(address: str, *, create: bool = True) -> Store:
    """Open the store at `address`: `memory:`, `sqlite:///relative.db` or `sqlite:////absolute.db`.

    Raises `ConfigError` for another address, for a file that cannot be used, and without `create` for one that is
    not there.
    """
    if address in ("memory:", "memory://"):
        return MemoryStore()
    scheme, separator, path = address.partition(":///")
    if scheme == "sqlite" and separator and path and path != "/":
        if not create and not Path(path).exists():
            raise ConfigError(f"there is no store {path}: name the file that the turns were written to")
        return SqliteStore(Path(path))
    raise ConfigError(
        f"store {address!r} is no address that can be opened: use memory:, sqlite:///relative.db or"
        " sqlite:////absolute.db"
    )
