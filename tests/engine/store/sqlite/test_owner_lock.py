"""The lock file of a driver: who asks does not disturb, and it is held as long as its own process lives."""

import fcntl
from pathlib import Path
from typing import Final

import pytest
from tests.servers.forked_python import Python

from turnwright.errors import StoreError
from turnwright.store.sqlite.owner_lock import OwnerLock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turns.db"


def files(path: Path) -> list[str]:
    return [file.name for file in path.parent.iterdir()]


def test_driver_holds_the_lock_until_released(path: Path) -> None:
    """Also while, and after, others ask."""
    driver, other_lock = OwnerLock(path), OwnerLock(path)
    name = driver.take()
    assert [other_lock.is_held(name), other_lock.is_held(name)] == [True, True]
    driver.release()
    assert not other_lock.is_held(name)
    assert files(path) == []


def test_missing_lock_is_not_held(path: Path) -> None:
    assert not OwnerLock(path).is_held("1-0")


def test_simultaneous_checks_of_a_dead_driver_agree(path: Path) -> None:
    """Neither takes the other's question for the driver; its file is removed."""
    dead = path.with_name("turns.db-owner-1-0")
    dead.touch()
    with dead.open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert not OwnerLock(path).is_held("1-0")
    assert files(path) == []


def test_uncreatable_lock_raises_store_error(path: Path) -> None:
    """Every time: it is not held after the first try."""
    driver = OwnerLock(path.parent / "missing" / "turns.db")
    for _ in range(2):
        with pytest.raises(
            StoreError,
            match=r"turns\.db: the driver's lock: No such file .*: the store's folder must exist and be writable",
        ):
            driver.take()


#: A driver that forks a worker, which gives up what it has, and lives until its input ends.
_DRIVER: Final = """
import os, sys
from pathlib import Path
from turnwright.store.sqlite.owner_lock import OwnerLock

lock = OwnerLock(Path(sys.argv[1]))
name = lock.take()
if os.fork() == 0:
    lock.release()
    print(name, lock.name, flush=True)
sys.stdin.read()
"""


def test_forked_worker_neither_holds_nor_releases_the_lock(path: Path, python: Python) -> None:
    """It is held exactly while the driver lives, also if a worker outlives it. The worker is a driver of its own."""
    with python.start("-c", _DRIVER, path) as driver:
        name, workers = driver.stdout.readline().split()
        assert workers != name
        asking = OwnerLock(path)
        assert asking.is_held(name)
        driver.end()
        assert not asking.is_held(name)
