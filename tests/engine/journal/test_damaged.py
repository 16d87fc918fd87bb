"""Damaged rows: any value that SQLite can hold, in each column of each table.

One turn is damaged at a time. Reading it raises an error that names the damage, and the other turns go on.
"""

import json
import logging
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import chdir, closing, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import anyio
import httpx
import pytest
import typer
from tests.inspector.conftest import browser
from tests.one_row_a_fact import one_row_a_fact
from typer.testing import CliRunner, Result

from turnwright import Agent, Engine, SessionBusyError, StoreError, TurnwrightError, UnreadableTurnError, tool
from turnwright.cli.app import command
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.scripted import Line
from turnwright.store import InboxItem, InboxKind
from turnwright_inspector import inspector_app
from turnwright_inspector.http.access import Open

T = TypeVar("T")
AGENT: Final = Agent(name="Reader", steps=4)
SESSION: Final = "talk"
#: What a column can hold, as SQL writes it.
VALUES: Final = {
    "null": "NULL",
    "blob": "x'ff00'",
    "real": "1.5",
    "infinite": "9e999",
    "huge": "9223372036854775807",
    "negative": "-1",
    "text": "'dreamt'",
    "path": "'../../x'",
    "no UTF-8": "CAST(x'41ff' AS TEXT)",
    "list": "'[]'",
    "half a pair": '\'{"v":1,"elapsed":0,"state":"STREAM","text":"\\ud800"}\'',
}
COLUMNS: Final = {
    "turns": ("number", "turn_id", "session", "agent", "model", "created_at", "epoch", "owner", "live"),
    "facts": (*("turn", "seq", "kind", "payload", "at", "state", "reason", "steps", "tool_calls", "epoch", "owner"),),
    "inbox": ("n", "turn_id", "id", "kind", "payload", "at"),
}


@tool
def ok(n: int) -> str:
    """Do something."""
    return f"done {n}"


@tool(needs_approval=True)
def risky() -> str:
    """Do something that a person allows."""
    return "done"


class Samples(NamedTuple):
    """A store with one turn that ended in a session, one that waits for a person, and a sound one."""

    file: Path
    ended: str
    paused: str
    sound: str


def engine_on(file: Path, *lines: Line) -> Engine:
    model = ScriptedModel(*(lines or ("More.",)), repeat=not lines)
    return Engine(model=model, tools=[ok, risky], store=f"sqlite:///{file}")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    file = tmp_path_factory.mktemp("damaged") / "turns.db"

    async def make() -> Samples:
        lines = (asks_for(("ok", {"n": 1})), "One.", asks_for(("risky", {})), "Sound.")
        async with engine_on(file, *lines) as engine:
            ended = await engine.run(AGENT, "one", session=SESSION)
            paused = await engine.run(AGENT, "two")
            await engine.store.post(InboxItem(paused.id, "steer:1", InboxKind.STEER, '{"text": "three"}'))
            return Samples(file, ended.id, paused.id, (await engine.run(AGENT, "four")).id)

    return anyio.run(make)


def damaged(samples: Samples, file: Path, statement: str, *, single: bool = False) -> None:
    """A copy of the store without the types and constraints of its columns, in which `statement` was executed.

    `single`: each fact has a row of its own.
    """
    shutil.copy(samples.file, file)
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        for table in COLUMNS:
            names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            db.execute(f"ALTER TABLE {table} RENAME TO was")
            # A new turn gets its number from this column, unless that is what is damaged.
            keeps_key = table == "turns" and "number =" not in statement
            first = f"{names[0]} INTEGER PRIMARY KEY" if keeps_key else names[0]
            db.execute(f"CREATE TABLE {table} ({', '.join([first, *names[1:]])})")
            db.execute(f"INSERT INTO {table} SELECT * FROM was")  # noqa: S608 (constant)
            db.execute("DROP TABLE was")
        if single:
            one_row_a_fact(db)
        assert db.execute(statement).rowcount > 0


def damages() -> Iterator[tuple[str, str]]:
    """Each column by name, with the update that damages it in both turns; `?` is what it is set to."""
    for table, columns in COLUMNS.items():
        for column in columns:
            if table != "facts":
                yield f"{table}.{column}", f"UPDATE {table} SET {column} = ? WHERE turn_id <> '{{sound}}'"  # noqa: S608
                continue
            for extreme in ("min", "max"):
                place = f"(SELECT {extreme}(seq) FROM facts AS f WHERE f.turn = facts.turn)"  # noqa: S608
                turns = "(SELECT number FROM turns WHERE turn_id <> '{sound}')"
                where = f"turn IN {turns} AND seq = {place}"
                yield f"facts.{column}, the {extreme} one", f"UPDATE facts SET {column} = ? WHERE {where}"  # noqa: S608


DAMAGES: Final = dict(damages())
#: The number of a turn.
TURN: Final = "(SELECT number FROM turns WHERE turn_id = '{}')"
#: What is read of each of the damaged turns, by a command and by a page; and of all turns.
COMMANDS: Final = (("show", "{turn}"), ("show", "{turn}", "--as-test"), ("replay", "{turn}"), ("abort", "{turn}"))
OVERVIEWS: Final = ("--all", "--json")
LISTS: Final = ("/?outcome=finished", "/?q=three", "/statistics", "/turns/{sound}")
PAGES: Final = ("/turns/{turn}", "/turns/{turn}?tab=timeline", "/turns/{turn}/journal.jsonl")


@pytest.fixture(params=DAMAGES, scope="module")
def column(request: pytest.FixtureRequest) -> str:
    """The name of the column that is damaged."""
    return str(request.param)


@pytest.fixture(scope="module")
def damaged_stores(column: str, samples: Samples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores in which one column is damaged, each with another value in it: `0.db` has the first of `VALUES`."""
    statement = DAMAGES[column].format(**samples._asdict())
    folder = tmp_path_factory.mktemp("stores")
    for n, sql in enumerate(VALUES.values()):
        damaged(samples, folder / f"{n}.db", statement.replace("?", sql))
    return folder


@pytest.fixture
def stores(damaged_stores: Path, tmp_path: Path) -> dict[str, Path]:
    """Copies of them, by the value in the column."""
    shutil.copytree(damaged_stores, tmp_path, dirs_exist_ok=True)
    return {value: tmp_path / f"{n}.db" for n, value in enumerate(VALUES)}


def dealt(items: Sequence[T], column: str) -> Iterator[T]:
    """Deal things out to values in turn: in each column another value gets the first one.

    Each column and each value meets each of them, while not all three meet, which would take minutes.
    """
    return islice(cycle(items), tuple(DAMAGES).index(column) % len(items), None)


def run(store: Path, *arguments: str) -> str:
    """The output of a command, which may fail with an error of ours, and with no other."""
    result = invoked(store, *arguments)
    assert isinstance(result.exception, SystemExit | TurnwrightError | None), (store.name, arguments, result.exception)
    return result.output


def raised(store: Path, *arguments: str) -> None:
    """Raise what a command fails with."""
    failed = invoked(store, *arguments).exception
    if failed is not None:
        raise failed


def invoked(store: Path, *arguments: str) -> Result:
    """The result of a command."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command(arguments[0]))
    levels = {name: logging.getLogger(name).level for name in (None, "turnwright")}
    with chdir(store.parent):  # this repository's pyproject.toml would be read each time
        result = CliRunner().invoke(app, [*arguments[1:], "--store", f"sqlite:///{store}"])
    for name, level in levels.items():  # a command sets those of its process, which is ours here
        logging.getLogger(name).setLevel(level)
    logging.disable(logging.NOTSET)  # `show --as-test` is silent
    return result


def test_commands_fail_only_for_the_damaged_turn(stores: dict[str, Path], samples: Samples, column: str) -> None:
    commands, overviews = dealt(COMMANDS, column), dealt(OVERVIEWS, column)
    for file in stores.values():
        assert samples.sound in run(file, "turns", next(overviews))
        for turn in (samples.ended, samples.paused):
            run(file, *(command_line.format(turn=turn) for command_line in next(commands)))
        run(file, "prune", "--older-than", "1s")


@pytest.mark.anyio
async def test_pages_fail_only_for_the_damaged_turn(stores: dict[str, Path], samples: Samples, column: str) -> None:
    lists, pages = dealt(LISTS, column), dealt(PAGES, column)
    for value, file in stores.items():
        async with engine_on(file) as engine, browser(inspector_app(engine, access=Open())) as client:
            path = next(lists).format(sound=samples.sound)
            assert (await client.get(path)).status_code == httpx.codes.OK, (value, path)
            assert samples.sound in (await client.get("/")).text
            for turn in (samples.ended, samples.paused):
                page = next(pages)
                status = (await client.get(page.format(turn=turn))).status_code
                assert status in {200, 404, 503}, (value, page)


@pytest.mark.anyio
async def test_an_engine_goes_on_with_the_other_turns(stores: dict[str, Path], samples: Samples, column: str) -> None:
    """A question about the damaged turn raises an error of ours, or is answered."""
    # Without numbers nothing can be written.
    refused = (UnreadableTurnError, StoreError) if column == "turns.number" else (UnreadableTurnError,)
    for value, file in stores.items():
        async with engine_on(file) as engine:
            store = engine.store
            assert samples.sound in [row.id for row in await engine.turns()], value
            for turn in (samples.ended, samples.paused):
                for ask in (engine.get, store.facts, store.claim_spans, store.inbox, engine.fork_places):
                    with suppress(TurnwrightError):
                        await ask(turn)
                with suppress(TurnwrightError):
                    _ = [event async for event in engine.events(turn)]
                with suppress(TurnwrightError):
                    await engine.resume(turn, {"approval-1": True})
            await store.requests(*InboxKind)
            await engine.recover()
            with suppress(SessionBusyError, *refused):
                await engine.run(AGENT, "go on", session=SESSION)
            assert (await engine.get(samples.sound)).text == "Sound."
            with suppress(*refused):
                assert (await engine.run(AGENT, "another")).outcome is not None


@pytest.mark.anyio
async def test_session_goes_on_without_an_unreadable_turn(
    samples: Samples, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning names that turn. Continuing it by name is rejected."""
    file = tmp_path / "turns.db"
    statement = f"UPDATE facts SET payload = x'ff' WHERE seq = 3 AND turn = {TURN.format(samples.ended)}"  # noqa: S608
    damaged(samples, file, statement, single=True)
    async with engine_on(file) as engine:
        turn = await engine.run(AGENT, "go on", session=SESSION)
        assert turn.text == "More."
        assert (
            f"turn {turn.id}: turn {samples.ended}, earlier in its session, is left out of its history" in caplog.text
        )
        with pytest.raises(UnreadableTurnError, match=f"turn {samples.ended}: fact 3 of the journal: its payload"):
            await engine.run(AGENT, "go on", continue_from=samples.ended)
        assert await engine.turns(session=SESSION, live=True) == []


@pytest.mark.parametrize("column", ["state = 'dreamt'", "reason = x'ff'", "payload = x'ff'", "at = NULL"])
def test_a_damaged_turn_can_be_deleted(column: str, samples: Samples, tmp_path: Path) -> None:
    """That is what its error advises."""
    file = tmp_path / "turns.db"
    damaged(samples, file, f"UPDATE facts SET {column} WHERE turn = {TURN.format(samples.ended)}")  # noqa: S608
    assert run(file, "delete", samples.ended) == f"turn {samples.ended}: deleted\n"
    assert samples.ended not in run(file, "turns")


@pytest.mark.parametrize("owner", ["x'ff00'", "1.5", "2"])
def test_turn_with_a_non_text_owner_can_be_deleted(owner: str, samples: Samples, tmp_path: Path) -> None:
    file = tmp_path / "turns.db"
    damaged(samples, file, f"UPDATE turns SET owner = {owner} WHERE turn_id = '{samples.ended}'")  # noqa: S608
    assert run(file, "delete", samples.ended) == f"turn {samples.ended}: deleted\n"


def test_turn_with_renamed_calls_yields_no_test(samples: Samples, tmp_path: Path) -> None:
    """Each command prints what `show` prints about that turn."""
    file = tmp_path / "turns.db"
    payload = "replace(payload, 'call00001', 'call00009')"
    statement = (
        f"UPDATE facts SET payload = {payload} WHERE kind = 'call_started' AND turn = {TURN.format(samples.ended)}"  # noqa: S608
    )
    damaged(samples, file, statement, single=True)
    message = f"turn {samples.ended}: its facts do not follow from each other: KeyError: 'call00009'"
    for command_line in (("show", samples.ended), ("show", samples.ended, "--as-test")):
        with pytest.raises(UnreadableTurnError, match=message):
            raised(file, *command_line)
    # The facts can be read and saved all the same, as the runbook says.
    saved = run(file, "show", samples.ended, "--journal", "--json")
    assert json.loads(saved.splitlines()[3])["call"] == "call00009"
    assert "call_started" in run(file, "show", samples.ended, "--journal")


CHANGED: Final = r"the turn is not in the state of its hash, so a fact up to here was changed, added, moved or lost"
#: What happened to the journal of a paused turn, and what is said about it.
BREAKS: Final = {
    "cut short": ("DELETE FROM facts WHERE seq > 1", "its journal ends within an input, or was changed: abort is"),
    "changed": (
        "UPDATE facts SET payload = replace(payload, '\"PAUSED\"', '\"CHECK\"') WHERE kind = 'paused'",
        f"fact 5 of the journal: paused: {CHANGED}",
    ),
}
#: What happened to a journal that a machine can still end.
DAMAGES_TO_END: Final = {
    "renumbered": (
        "UPDATE facts SET seq = 9 WHERE kind = 'paused'",
        "its journal has 5 facts, and the last one is fact 9",
    ),
    "without a fact": (
        "DELETE FROM facts WHERE seq = 2 AND turn = {turn}",
        f"fact 2 of the journal: model_replied: {CHANGED}",
    ),
    "other arguments": (
        """UPDATE facts SET payload = replace(payload, '"arguments":{{}}', '"arguments":{{"a":1}}') WHERE seq = 3""",
        f"fact 3 of the journal: model_replied: {CHANGED}",
    ),
    "an earlier hash": (
        """UPDATE facts SET payload = replace(payload, '"hash":"', '"hash":"f') WHERE seq = 1""",
        f"fact 1 of the journal: turn_started: {CHANGED}",
    ),
}


@pytest.mark.parametrize("event", BREAKS)
def test_broken_journal_is_not_aborted_and_can_be_deleted(event: str, samples: Samples, tmp_path: Path) -> None:
    file = tmp_path / "turns.db"
    statement, message = BREAKS[event]
    damaged(samples, file, statement, single=True)
    with pytest.raises(UnreadableTurnError, match=f"turn {samples.paused}: {message}"):
        raised(file, "abort", samples.paused)
    assert run(file, "delete", samples.paused) == f"turn {samples.paused}: deleted\n"


@pytest.mark.parametrize("event", DAMAGES_TO_END)
def test_damaged_turn_does_not_continue_and_can_be_ended(event: str, samples: Samples, tmp_path: Path) -> None:
    """The error names the command that ends the turn. Afterwards it is shown, and `replay` still names the damage."""
    file = tmp_path / "turns.db"
    statement, message = DAMAGES_TO_END[event]
    damaged(samples, file, statement.format(turn=TURN.format(samples.paused)), single=True)
    remedy = f"end the turn as it is \\(`turnwright abort {samples.paused}`\\)"

    async def answer() -> None:
        async with engine_on(file) as engine:
            with pytest.raises(UnreadableTurnError, match=f"turn {samples.paused}: {message}.*{remedy}"):
                await engine.resume(samples.paused, {"approval-1": True})

    anyio.run(answer)
    output = run(file, "show", samples.paused)
    assert f"Damaged: turn {samples.paused}: " in output
    assert "turnwright answer" not in output
    assert run(file, "abort", samples.paused) == f"turn {samples.paused}: aborted\n"
    assert "outcome:  aborted: aborted" in run(file, "show", samples.paused)
    assert run(file, "replay", samples.paused).startswith("violated: fact ")


@pytest.mark.anyio
async def test_answer_to_a_missing_call_affects_only_the_turn(samples: Samples, tmp_path: Path) -> None:
    file = tmp_path / "turns.db"
    payload = """replace(payload, '"call":"call00001","tool"', '"call":"call00077","tool"')"""
    damaged(samples, file, f"UPDATE facts SET payload = {payload} WHERE kind = 'call_waiting'", single=True)  # noqa: S608
    async with engine_on(file) as engine:
        message = f"turn {samples.paused}: fact 4 of the journal: call_waiting: {CHANGED}"
        with pytest.raises(UnreadableTurnError, match=message):
            await engine.resume(samples.paused, {"approval-1": True})
        await engine.recover()
        assert (await engine.run(AGENT, "another")).text == "More."


@pytest.mark.anyio
async def test_call_with_a_lost_result_does_not_run_again(samples: Samples, tmp_path: Path) -> None:
    """The call's result was taken out of its journal: nobody can say any more what became of it."""
    file = tmp_path / "turns.db"
    async with engine_on(tmp_path / "was.db", asks_for(("ok", {"n": 1}), ("risky", {}))) as engine:
        waits = await engine.run(AGENT, "both")
    forged = 'kind = \'message_added\', payload = \'{"v":1,"elapsed":0,"state":"TOOL_EXEC","text":"x"}\''
    statement = f"UPDATE facts SET {forged} WHERE kind = 'call_settled'"  # noqa: S608
    damaged(samples._replace(file=tmp_path / "was.db"), file, statement, single=True)
    async with engine_on(file) as engine:
        with pytest.raises(UnreadableTurnError, match=f"fact 6 of the journal: message_added: {CHANGED}"):
            await engine.resume(waits.id, {"approval-1": True})
        assert [fact.kind for _, fact in await engine.store.facts(waits.id)].count("call_started") == 1
