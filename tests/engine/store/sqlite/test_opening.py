"""Stores that can only be read: a folder that cannot be written, by a process that may not, or on a read-only disk."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

import anyio
import pytest

from turnwright.store import SqliteStore
from turnwright_testing.store_suite import Written

#: As root, a folder that cannot be written is mounted as one.
_ROOT = os.geteuid() == 0
_MOUNT = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
_READ = """
import anyio, sys
from pathlib import Path
from turnwright.errors import ConfigError, StoreError
from turnwright_inspector.views.summaries import Summaries
from turnwright.store import InboxItem, InboxKind, SqliteStore
from turnwright.store.summaries import TurnFilter

async def main():
    try:
        store = SqliteStore(Path(sys.argv[1]))
    except ConfigError as error:
        return print(error)
    async def read():
        rows = await store.turns()
        for row in rows:
            assert not await store.is_driven(row.id)
            assert await store.inbox(row.id) == []
        print(store.read_only, [(row.id, len(await store.facts(row.id))) for row in rows], flush=True)
    await read()
    while sys.stdin.readline():
        try:
            await read()
        except ConfigError as error:
            return print(error)
    try:
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
    except StoreError as error:
        print(error)
    summaries = Summaries(store)
    await summaries.catch_up()
    print([one.prompt for one in await summaries.read.find(TurnFilter(text="zebra"), limit=9)])
    await store.aclose()

anyio.run(main)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store with an ended turn."""
    path = tmp_path / "turns" / "turns.db"
    path.parent.mkdir()
    if _ROOT:
        with_mount = ["unshare", "-rm", "sh", "-c", _MOUNT, str(path.parent), "true"]
        if shutil.which("unshare") is None or subprocess.run(with_mount, check=False).returncode:
            pytest.skip("root may write everything, and nothing can be mounted here")
    anyio.run(ended_turn, SqliteStore(path), "t1", "A zebra")
    return path


async def ended_turn(store: SqliteStore, turn_id: str, prompt: str, *, closes: bool = True) -> None:
    draft = Written(turn_id, prompt=prompt)
    claim = await draft.create(store)
    await store.append(claim, draft.answer(), draft.status)
    await store.release(claim)
    if closes:
        await store.aclose()


def without_writing(path: Path, *arguments: str) -> list[str]:
    """Return the command of a Python process that cannot write this store."""
    if _ROOT:
        return ["unshare", "-rm", "sh", "-c", _MOUNT, str(path.parent), sys.executable, *arguments]
    path.parent.chmod(0o500)
    return [sys.executable, *arguments]


class Reader:
    """A process that reads a store that it cannot write, and says what it reads, when it is asked again too."""

    def __init__(self, path: Path) -> None:
        command = without_writing(path, "-c", _READ, str(path))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asks, self._answers = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def says(self) -> str:
        """Return the next line."""
        return self._answers.readline().strip()

    def again(self) -> str:
        """Have it read again."""
        self._asks.write("\n")
        self._asks.flush()
        return self.says()

    def rest(self) -> list[str]:
        """Let it end, and return its last lines."""
        output, _ = self._process.communicate()
        return output.splitlines()


def test_store_on_a_read_only_disk_is_readable_and_searchable(path: Path) -> None:
    with Reader(path) as reader:
        assert reader.says() == "True [('t1', 6)]"
        refused, answer = reader.rest()
    assert refused.startswith(f"store {path}: ")
    assert "give this user write access to the file and its folder; nothing was written" in refused
    assert answer == "['A zebra']"
    assert [file.name for file in path.parent.iterdir()] == ["turns.db"]


def test_worker_ends_if_its_store_can_only_be_read(path: Path) -> None:
    """It would look for turns for ever, and could drive none."""
    flags = ("--store", f"sqlite:///{path}", "--base-url", "http://127.0.0.1:1/v1", "--model", "m")
    command = without_writing(path, "-m", "turnwright", "worker", *flags)
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("turnwright: --store: it can only be read here, and a worker writes to it: give this")


@pytest.mark.skipif(not _ROOT, reason="the folder is read-only for the writer too")
def test_concurrent_writes_of_another_process_are_read(path: Path) -> None:
    """Also when it begins after the reader, and when it has ended."""
    with Reader(path) as reader:
        assert reader.says() == "True [('t1', 6)]"
        store = SqliteStore(path)
        anyio.run(lambda: ended_turn(store, "t2", "Another", closes=False))
        assert reader.again() == "True [('t2', 6), ('t1', 6)]"
        with Reader(path) as late:
            assert late.says() == "True [('t2', 6), ('t1', 6)]"
            anyio.run(store.aclose)
            assert reader.again() == late.again() == "True [('t2', 6), ('t1', 6)]"
            anyio.run(ended_turn, SqliteStore(path), "t3", "Third")
            assert reader.again().startswith("True [('t3', 6)")
            assert late.rest()[-1] == reader.rest()[-1] == "['A zebra']"


def test_log_without_an_index_is_refused_and_not_ignored(path: Path) -> None:
    """Also by a process that has read the file before the log was there."""
    copy = path.parent.parent / "copy" / "turns.db"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    with Reader(copy) as early:
        assert early.says() == "True [('t1', 6)]"
        store = SqliteStore(path)
        anyio.run(lambda: ended_turn(store, "t2", "Another", closes=False))
        copy.parent.chmod(0o700)
        shutil.copy(path.with_name("turns.db-wal"), copy.with_name("turns.db-wal"))
        copy.parent.chmod(0o500)
        anyio.run(store.aclose)
        message = early.again()
    with Reader(copy) as late:
        assert late.rest() == [message]
    assert message.startswith(f"store {copy}: turns.db-wal has turns that are not in the file yet")
    assert message.endswith("copy both files to a folder that can be written, and name the copy")
