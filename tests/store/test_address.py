"""The address of a store, as a flag or a configuration spells it."""

from pathlib import Path

import anyio
import pytest

from turnwright.errors import ConfigError
from turnwright.store import MemoryStore, SqliteStore, open_store


def test_memory_is_the_store_in_memory() -> None:
    assert isinstance(open_store("memory:"), MemoryStore)


def test_four_slashes_are_an_absolute_path(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'turns.db'}")
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "turns.db"
    anyio.run(store.aclose)


@pytest.mark.parametrize(
    "address", ["", "turns.db", "sqlite:", "sqlite:///", "sqlite:////", "mysql:///x", "sqlite://x"]
)
def test_another_address_is_refused_with_those_that_are_taken(address: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///relative\.db"):
        open_store(address)
