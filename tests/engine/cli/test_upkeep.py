"""`turnwright delete`, `prune` and `migrate`: what is forgotten, and what a store of another release needs."""

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.added_packages import install

from turnwright.cli.upkeep import migrate
from turnwright.store import NewTurn, SqliteStore
from turnwright.store.address import GROUP

from .tty import Tty

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint


def add_sub_turn(file: Path, turn: str) -> None:
    """Give a turn a sub-turn with the same facts."""

    async def add() -> None:
        store = SqliteStore(file)
        row, facts = await store.get(turn), await store.facts(turn)
        new = NewTurn(id=f"{turn}:call00001", session=None, agent=row.agent, model=row.model, created_at=row.created_at)
        await store.release(await store.create(new, [fact for _, fact in facts], row.status))
        await store.aclose()

    anyio.run(add)


def age(file: Path, **seconds: float) -> None:
    """Let turns have ended so many seconds ago."""
    with closing(sqlite3.connect(file)) as db, db:
        for turn, ago in seconds.items():
            at = (time.time() - ago, turn.removeprefix("t"))
            db.execute("UPDATE facts SET at = ? WHERE turn = (SELECT number FROM turns WHERE turn_id = ?)", at)


def test_turn_is_deleted_with_sub_turns(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    kept_turn, alone, family = (cli.run("run", "Work", "--json").turn for _ in range(3))
    add_sub_turn(cli.folder / "turns.db", family)
    assert cli.run("delete", alone).out == f"turn {alone}: deleted\n"
    done = cli.run("delete", family)
    assert (done.code, done.out, done.err) == (0, f"turn {family}: deleted, with 1 sub-turn\n", "")
    assert [event["turn"] for event in cli.run("turns", "--json").events] == [kept_turn]
    assert cli.run("delete", family).code == 2


def test_driven_turn_is_not_deleted(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon")
    child = cli.start("run", "A story", "--json")
    turn = child.until("text_delta")["turn"]
    done = cli.run("delete", turn)
    assert (done.code, done.out) == (2, "")
    assert f"turn {turn} is being driven by" in done.err
    assert child.interrupt().done().last["text"] == "Once upon"


def test_old_ended_turns_are_pruned_and_live_turns_stay(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.").says("Done.").calls(("ask_user_input", {"question": "Which?"}))
    old, new, waits = (cli.run("run", "Work", "--json").turn for _ in range(3))
    add_sub_turn(cli.folder / "turns.db", old)
    month = 30 * 24 * 3600
    age(cli.folder / "turns.db", **{f"t{old}": month + 60, f"t{new}": month - 60, f"t{waits}": month + 60})
    done = cli.run("prune", "--older-than", "30d")
    assert (done.code, done.err) == (0, "")
    assert done.out == "sqlite:///turns.db: 2 turns deleted; 1 turn that has not ended stays\n"
    assert {event["turn"] for event in cli.run("turns", "--json").events} == {new, waits}
    assert (
        cli.run("prune", "--older-than", "30d").out
        == "sqlite:///turns.db: 0 turns deleted; 1 turn that has not ended stays\n"
    )


@pytest.mark.slow
def test_prune_on_a_terminal_asks_and_names_the_store(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    turn = cli.run("run", "Work", "--json").turn
    age(cli.folder / "turns.db", **{f"t{turn}": 3600})
    for flags, answer, remaining in ((), "Nothing is deleted.", [turn]), (("--yes",), "turns.db: 1 turn deleted", []):
        with Tty(cli, ("prune", "--older-than", "1m", *flags)) as terminal:
            if not flags:
                terminal.until("Delete the turns of sqlite:///turns.db that ended more than 1m ago? [y/N] ")
                terminal.types("\n")
            terminal.until(answer)
            assert terminal.done() == 0
        assert [event["turn"] for event in cli.run("turns", "--json").events] == remaining


def test_age_is_a_number_and_a_unit(cli: "Cli", endpoint: "Endpoint") -> None:
    """One turn is a little older, the other a little younger."""
    endpoint.says("Done.")
    older, younger = (cli.run("run", "Work", "--json").turn for _ in range(2))
    units = {"90s": 90, "15m": 900, "12h": 43_200, "30d": 2_592_000, "4w": 2_419_200}
    for duration, seconds in units.items():
        file = cli.folder / f"{duration}.db"
        shutil.copy(cli.folder / "turns.db", file)
        age(file, **{f"t{older}": seconds + 60, f"t{younger}": seconds - 60})
    pruned = cli.each(*(["prune", "--older-than", unit, "--store", f"sqlite:///{unit}.db"] for unit in units))
    assert [done.out for done in pruned] == [f"sqlite:///{unit}.db: 1 turn deleted\n" for unit in units]


#: A store of a later release, with an invented step, under a scheme of its own.
LATER = """
from turnwright.store import SqliteStore, StoreScheme
from turnwright.store.sqlite.schema import Schema, create_store

class LaterStore(SqliteStore):
    _schema = Schema(create_store, "ALTER TABLE turns ADD COLUMN label TEXT;")

def open_later(address: str, *, create: bool) -> LaterStore:
    return LaterStore(address.removeprefix("later:///"))

SCHEME = StoreScheme(name="later", opener="later_store:open_later", help="a later store", example="later:///turns.db")
"""


def test_migrate_prints_both_versions_and_summarizes(
    cli: "Cli",
    endpoint: "Endpoint",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A second migration has nothing to do. With `--summarize`, the inspector's first page has nothing to do either."""
    endpoint.says("Done.")
    assert cli.run("run", "Work").code == 0
    install(tmp_path, "later-store", GROUP, {"later": "later_store:SCHEME"}, LATER)
    monkeypatch.syspath_prepend(tmp_path)
    address = f"later:///{cli.folder / 'turns.db'}"

    def printed(*, summarize: bool = False) -> list[str]:
        migrate(store=address, summarize=summarize)
        return capsys.readouterr().out.splitlines()

    done, advice = printed()
    assert done == f"{address}: schema 1 before, 2 now"
    assert "`turnwright migrate --summarize`" in advice
    assert printed() == [f"{address}: schema 2, as this release needs it; nothing to migrate"]
    assert printed(summarize=True)[1:] == [f"{address}: 1 turn summarized"]
    assert printed(summarize=True)[1:] == [f"{address}: 0 turns summarized"]


def test_newer_store_is_refused_by_every_command(cli: "Cli", endpoint: "Endpoint") -> None:
    """As an older one is: each asks for the version."""
    endpoint.says("Done.")
    turn = cli.run("run", "Work", "--json").turn
    with closing(sqlite3.connect(cli.folder / "turns.db")) as db:
        db.execute("PRAGMA user_version = 99")
    commands: list[list[str]] = [["run", "Work"], ["run", "Go on", "--continue", turn], ["turns"], ["migrate"]]
    commands += [[command, turn] for command in ("resume", "abort", "show", "replay", "delete", "fork")]
    commands += [["steer", turn, "Stop."], ["prune", "--older-than", "1d"], ["diagram", "--turn", turn]]
    for command, refused in zip(commands, cli.each(*commands), strict=True):
        assert (refused.code, refused.out) == (2, ""), command
        assert "written by a newer release (schema 99, this one knows 1): upgrade turnwright" in refused.err, command
    assert len(endpoint.requests) == 1


def test_store_without_pending_migration_is_reported(cli: "Cli") -> None:
    memory, nowhere = cli.each(["migrate", "--store", "memory:"], ["migrate"])
    assert (memory.code, memory.out) == (0, "memory:: a store in memory has nothing to migrate\n")
    assert nowhere.code == 0
    assert nowhere.out.startswith("there is no store turns.db yet: the first use creates it")
    assert list(cli.folder.iterdir()) == []
