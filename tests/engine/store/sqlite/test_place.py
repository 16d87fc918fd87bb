"""A SQLite file that is deleted or replaced while it is open: nothing is reported that is not kept."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from turnwright import Agent, Engine, Message, Outcome, StoreReplacedError, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import InboxItem, InboxKind, SqliteStore
from turnwright.transcript.events import TurnEvent
from turnwright_testing.store_suite import Written

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tester")
Loss = Callable[[Path], object]


def replace_it(file: Path) -> None:
    other_file = file.with_name("other.db")
    with closing(sqlite3.connect(other_file)) as db:
        db.execute("CREATE TABLE of (another)")
    other_file.replace(file)


def copy_it(file: Path) -> None:
    """The same content under another number, as an editor or a restore leaves it."""
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)
    copy.replace(file)


def replace_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("gone"))
    file.parent.mkdir()


def beside(end: str) -> Loss:
    return lambda file: file.with_name(f"{file.name}{end}").unlink()


LOSSES: dict[str, Loss] = {
    "deleted": Path.unlink,
    "moved": lambda file: file.rename(file.with_name("moved.db")),
    "replaced": replace_it,
    "copied over": copy_it,
    "in a folder that is replaced": replace_folder,
    "without its log": beside("-wal"),
    "without the index of its log": beside("-shm"),
}


@pytest.fixture(params=LOSSES)
def lose(request: pytest.FixtureRequest) -> Loss:
    return LOSSES[str(request.param)]


@pytest.fixture(params=["new", "opened again"])
async def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "turns.db"
    path.parent.mkdir()
    if request.param == "opened again":
        await SqliteStore(path).aclose()
    return path


async def test_turn_with_a_lost_file_does_not_finish(lose: Loss, file: Path) -> None:
    """The error names the file, and says what to do; nothing runs after the model's next reply."""
    ran: list[str] = []

    @tool
    def cut() -> str:
        """Lose the file."""
        ran.append("cut")
        lose(file)
        return "lost"

    @tool
    def never() -> str:
        """Run what nobody would know of."""
        ran.append("never")
        return "ran"

    model = ScriptedModel(asks_for(("cut", {})), asks_for(("never", {})), "Done.")
    async with Engine(model=model, tools=[cut, never], store=f"sqlite:///{file}") as engine:
        with pytest.raises(StoreReplacedError, match=rf"{file}.*put it back and resume the turn"):
            await engine.run(AGENT, "go on")
    assert ran == ["cut"]


async def test_file_lost_in_a_model_call_is_noticed_before_the_tool_calls(lose: Loss, file: Path) -> None:
    ran: list[str] = []

    @tool
    def never() -> str:
        """Run what nobody would know of."""
        ran.append("never")
        return "ran"

    async def prepare(messages: tuple[Message, ...]) -> Sequence[Message]:
        lose(file)
        return messages

    model, store = ScriptedModel(asks_for(("never", {})), "Done."), f"sqlite:///{file}"
    async with Engine(model=model, tools=[never], store=store, history_processor=prepare) as engine:
        with pytest.raises(StoreReplacedError):
            await engine.run(AGENT, "go on")
    assert ran == []


async def test_file_lost_in_the_last_model_call_is_noticed_by_the_append(lose: Loss, file: Path) -> None:
    async def prepare(messages: tuple[Message, ...]) -> Sequence[Message]:
        lose(file)
        return messages

    async with Engine(model=ScriptedModel("Done."), store=f"sqlite:///{file}", history_processor=prepare) as engine:
        with pytest.raises(StoreReplacedError):
            await engine.run(AGENT, "go on")


async def test_file_lost_after_the_last_append_is_noticed_at_the_release(lose: Loss, file: Path) -> None:
    def observe(event: TurnEvent) -> None:
        if event.type == "turn_ended":
            lose(file)

    async with Engine(model=ScriptedModel("Done."), store=f"sqlite:///{file}", on_event=[observe]) as engine:
        with pytest.raises(StoreReplacedError):
            await engine.run(AGENT, "go on")


async def test_every_call_of_a_store_with_a_lost_file_raises(lose: Loss, file: Path) -> None:
    """Also where turns are only looked for: a worker would look at a file that nobody else sees."""
    store, draft = SqliteStore(file), Written()
    await store.release(await draft.create(store))
    lose(file)
    for call in (
        store.claim("t1"),
        store.post(InboxItem("t1", "abort", InboxKind.ABORT)),
        store.turns(),
        store.get("t1"),
        store.facts("t1"),
        store.requests(InboxKind.ABORT),
        store.delete("t1"),
        Written("t2").create(store),
    ):
        with pytest.raises(StoreReplacedError, match=r"turns\.db"):
            await call
    await store.aclose()


async def test_concurrent_turns_all_report_the_lost_file(tmp_path: Path) -> None:
    """Also where their appends share a transaction."""
    file = tmp_path / "turns.db"
    store = SqliteStore(file, crowd=1)
    claims = [(draft, await draft.create(store)) for draft in (Written("t1"), Written("t2"))]
    file.unlink()
    for draft, claim in claims:
        with pytest.raises(StoreReplacedError):
            await store.append(claim, draft.answer(), draft.status, consumed=["abort"])
    await store.aclose()


async def test_restored_file_is_used_again(tmp_path: Path) -> None:
    file = tmp_path / "turns.db"

    async with Engine(model=ScriptedModel("Done.", repeat=True), store=f"sqlite:///{file}") as engine:
        turn = await engine.submit(AGENT, "go on")
        file.rename(tmp_path / "moved.db")
        with pytest.raises(StoreReplacedError):
            await engine.resume(turn)
        (tmp_path / "moved.db").rename(file)
        assert (await engine.resume(turn)).outcome is Outcome.FINISHED


async def test_redirected_link_counts_as_another_file(tmp_path: Path) -> None:
    """A process that opens the store by the same name finds no such turn."""
    link = tmp_path / "turns.db"
    (tmp_path / "first.db").touch()
    (tmp_path / "second.db").touch()
    link.symlink_to("first.db")
    store = SqliteStore(link)
    await Written().create(store)
    link.unlink()
    link.symlink_to("second.db")
    with pytest.raises(StoreReplacedError, match="is another file now"):
        await store.get("t1")
    await store.aclose()


async def test_relative_path_stays_valid_after_a_change_of_folder(tmp_path: Path) -> None:
    """A relative path means the folder in which the store was opened."""
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        store = SqliteStore("turns.db")
        await Written().create(store)
    finally:
        os.chdir(before)
    assert (await store.get("t1")).id == "t1"
    await store.aclose()
