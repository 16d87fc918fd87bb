"""`turnwright delete`, `prune` and `migrate`: what is forgotten, and what an older store needs."""

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from turnwright.store import NewTurn, SqliteStore

from .tty import Tty

if TYPE_CHECKING:
    from .conftest import Cli, Endpoint

#: What a release of an older schema wrote: three turns.
OLD = Path(__file__).parents[1] / "store" / "sqlite" / "schema_1.sql"


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


def test_a_turn_is_deleted_with_its_sub_turns(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    kept, alone, family = (cli.run("run", "Work", "--json").turn for _ in range(3))
    add_sub_turn(cli.folder / "turns.db", family)
    assert cli.run("delete", alone).out == f"turn {alone}: deleted\n"
    done = cli.run("delete", family)
    assert (done.code, done.out, done.err) == (0, f"turn {family}: deleted, with 1 sub-turn\n", "")
    assert [one["turn"] for one in cli.run("turns", "--json").events] == [kept]
    assert cli.run("delete", family).code == 2


def test_a_turn_that_is_driven_is_not_deleted(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon")
    child = cli.start("run", "A story", "--json")
    turn = child.until("text_delta")["turn"]
    done = cli.run("delete", turn)
    assert (done.code, done.out) == (2, "")
    assert f"turn {turn} is being driven by" in done.err
    assert child.interrupt().done().last["text"] == "Once upon"


def test_turns_that_ended_long_ago_are_pruned_and_live_ones_stay(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.").says("Done.").calls(("ask_user_input", {"question": "Which?"}))
    old, new, waits = (cli.run("run", "Work", "--json").turn for _ in range(3))
    add_sub_turn(cli.folder / "turns.db", old)
    month = 30 * 24 * 3600
    age(cli.folder / "turns.db", **{f"t{old}": month + 60, f"t{new}": month - 60, f"t{waits}": month + 60})
    done = cli.run("prune", "--older-than", "30d")
    assert (done.code, done.err) == (0, "")
    assert done.out == "sqlite:///turns.db: 2 turns deleted; 1 turn that has not ended stays\n"
    assert {one["turn"] for one in cli.run("turns", "--json").events} == {new, waits}
    assert (
        cli.run("prune", "--older-than", "30d").out
        == "sqlite:///turns.db: 0 turns deleted; 1 turn that has not ended stays\n"
    )


@pytest.mark.slow
def test_a_terminal_asks_before_it_prunes_and_names_the_store(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    turn = cli.run("run", "Work", "--json").turn
    age(cli.folder / "turns.db", **{f"t{turn}": 3600})
    for flags, said, left in ((), "Nothing is deleted.", [turn]), (("--yes",), "turns.db: 1 turn deleted", []):
        with Tty(("prune", "--older-than", "1m", *flags), cli.folder, cli.env) as terminal:
            if not flags:
                terminal.until("Delete the turns of sqlite:///turns.db that ended more than 1m ago? [y/N] ")
                terminal.types("\n")
            terminal.until(said)
            assert terminal.done() == 0
        assert [one["turn"] for one in cli.run("turns", "--json").events] == left


def test_an_age_is_a_number_and_a_unit(cli: "Cli", endpoint: "Endpoint") -> None:
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


def test_an_older_store_is_used_by_no_command_until_it_was_migrated(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    with closing(sqlite3.connect(cli.folder / "turns.db")) as db:
        db.executescript(OLD.read_text())
    commands: list[list[str]] = [["run", "Work"], ["run", "Go on", "--continue", "t-b"], ["turns"]]
    commands += [[command, "t-a"] for command in ("resume", "abort", "show", "replay", "delete", "fork")]
    commands += [["steer", "t-a", "Stop."], ["prune", "--older-than", "1d"], ["diagram", "--turn", "t-b"]]
    for command, refused in zip(commands, cli.each(*commands), strict=True):
        assert (refused.code, refused.out) == (2, ""), command
        assert "run `turnwright migrate --store sqlite:///turns.db`" in refused.err, command
    assert endpoint.requests == []
    done = cli.run("migrate", "--store", "sqlite:///turns.db")
    assert (done.code, done.err) == (0, "")
    said, advice = done.out.splitlines()
    shown, _, now = said.partition("schema 1 before, ")
    assert (shown, now.endswith(" now")) == ("sqlite:///turns.db: ", True)
    assert "`turnwright migrate --summarize`" in advice
    again = cli.run("migrate")
    version = now.removesuffix(" now")
    assert again.out == f"sqlite:///turns.db: schema {version}, as this release needs it; nothing to migrate\n"
    assert len(cli.run("turns", "--json").events) == 3
    assert cli.run("run", "Work").code == 0


def test_a_store_is_summarized_when_it_is_migrated_if_one_wants_it(cli: "Cli") -> None:
    """The inspector's first page then has nothing to do."""
    file = cli.folder / "turns.db"
    with closing(sqlite3.connect(file)) as db:
        db.executescript(OLD.read_text())
        (turns,) = db.execute("SELECT count(*) FROM turns").fetchone()
    done, again = (cli.run("migrate", "--summarize") for _ in range(2))
    assert done.out.splitlines()[1:] == [f"sqlite:///turns.db: {turns} turns summarized"]
    assert again.out.splitlines()[1:] == ["sqlite:///turns.db: 0 turns summarized"]
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT count(*) FROM summaries WHERE seq = 0").fetchone() == (0,)


def test_where_there_is_nothing_to_migrate_that_is_said(cli: "Cli") -> None:
    memory, nowhere = cli.each(["migrate", "--store", "memory:"], ["migrate"])
    assert (memory.code, memory.out) == (0, "memory:: a store in memory has nothing to migrate\n")
    assert nowhere.code == 0
    assert nowhere.out.startswith("there is no store turns.db yet: the first use creates it")
    assert list(cli.folder.iterdir()) == []
