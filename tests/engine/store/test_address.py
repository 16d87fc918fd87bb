"""The address of a store, as a flag or a configuration spells it."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import anyio
import pytest

from turnwright.errors import ConfigError, StoreError
from turnwright.store import MemoryStore, SqliteStore, open_store
from turnwright.store.postgres.store import PostgresStore


def test_memory_address_is_the_store_in_memory() -> None:
    assert isinstance(open_store("memory:"), MemoryStore)


def test_address_with_four_slashes_is_an_absolute_path(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'turns.db'}")
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "turns.db"
    anyio.run(store.aclose)


@pytest.mark.parametrize(("options", "synchronous"), [("", 2), ("?durability=full", 2), ("?durability=normal", 1)])
def test_durability_option_sets_the_sqlite_level(tmp_path: Path, options: str, synchronous: int) -> None:
    """SQLite calls it `synchronous`, 2 for FULL; an acknowledged append survives a loss of power unless one says so."""
    store = open_store(f"sqlite:///{tmp_path / 'turns.db'}{options}")
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "turns.db"
    setting = store._db.execute("PRAGMA synchronous").fetchone()  # noqa: SLF001 (only the connection itself knows)
    assert setting == (synchronous,)
    anyio.run(store.aclose)


@pytest.mark.parametrize("options", ["durability=half", "durability=", "speed=high", "durability=normal&speed", "full"])
def test_unknown_option_is_refused_with_the_known_options(tmp_path: Path, options: str) -> None:
    """And no file is made."""
    with pytest.raises(ConfigError, match="durability=full or durability=normal"):
        open_store(f"sqlite:///{tmp_path / 'turns.db'}?{options}")
    assert not list(tmp_path.iterdir())


def test_missing_sqlite_file_is_created_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no store .*turns\.db: "):
        open_store(f"sqlite:///{tmp_path / 'turns.db'}?durability=normal", create=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_postgresql_address_reaches_psycopg_unchanged(scheme: str) -> None:
    """Nothing is connected before the first use: nobody answers there."""
    store = open_store(f"{scheme}://me@127.0.0.1:1/turns?application_name=x", create=False)
    assert isinstance(store, PostgresStore)
    assert store.place == "postgresql://127.0.0.1:1/turns"
    with pytest.raises(StoreError, match="refused"):
        anyio.run(store.turns)


_WITHOUT: Final = """
import sys
sys.modules["psycopg"] = sys.modules["psycopg_pool"] = None
import turnwright
from turnwright.store import open_store
try:
    open_store("postgresql://me:secret@host/db")
except turnwright.errors.ConfigError as error:
    print(error)
"""


@pytest.mark.slow
def test_psycopg_is_needed_only_for_postgresql() -> None:
    """Without it everything else works, and the error names the package to install."""
    output = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True).stdout
    assert "pip install 'turnwright[postgres]'" in output
    assert "secret" not in output


@pytest.mark.parametrize(
    "address", ["mysql://me:se@cret@host/x", "postgresql:/me:secret@host/x", "sqlite://me:secret@x"]
)
def test_possible_password_is_not_repeated(address: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_store(address)
    assert "cret" not in str(error.value)


@pytest.mark.parametrize(
    "address", ["", "turns.db", "sqlite:", "sqlite:///", "sqlite:////", "mysql:///x", "sqlite://x"]
)
def test_unknown_address_is_refused_with_the_known_forms(address: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///relative\.db"):
        open_store(address)


@pytest.mark.parametrize("path", ["turns.db", "/data/turns.db"])
def test_path_is_refused_with_the_matching_address(path: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_store(path)
    assert f"for a SQLite file, write sqlite:///{path}; else use memory:" in str(error.value)
    with pytest.raises(ConfigError) as error:
        open_store("mysql://x")
    assert "SQLite file" not in str(error.value)
