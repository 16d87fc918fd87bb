"""`turnwright replay`: says whether a journal holds, where it does not, and does nothing else."""

import json
import sqlite3
from contextlib import closing
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from tests.one_row_a_fact import one_row_a_fact

from turnwright_states.chart import ROWS

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Done, Endpoint, Json

LATER = "the journal: its payload has version 9, and this release reads 1"


@pytest.fixture
def capped(cli: "Cli", endpoint: "Endpoint") -> "Done":
    """A turn of two calls that met its cap. The tool counts how often it ran."""
    cli.write(
        "mine.py",
        "from pathlib import Path\n\nfrom turnwright import tool\n\n\n@tool\ndef once() -> str:\n"
        '    """Count."""\n    with Path("ran").open("a") as file:\n        file.write("+")\n    return "done"\n',
    )
    endpoint.calls(("once", {}), ("once", {})).says("Not done.")
    cli.agent("steps: 1")
    return cli.run("run", "Work", "--agents", "AGENTS.md", "--tools", "mine.py", "--session", "s1", "--json")


@pytest.fixture
def lines(cli: "Cli", capped: "Done") -> "list[Json]":
    """Its journal, as it is printed."""
    return cli.run("show", capped.turn, "--journal", "--json").events


def write(cli: "Cli", lines: "list[Json]") -> str:
    """The journal as a file; returns its name."""
    return cli.write("turn.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines)).name


def test_stored_turn_holds(cli: "Cli", capped: "Done", lines: "list[Json]") -> None:
    done = cli.run("replay", capped.turn)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"holds: {len(lines)} facts, 5 events, every fact follows from the ones before",
        f"rows: 6 of the chart's {len(ROWS)} taken, 6 times in all",
        "turn: cap_hit, step_cap",
        "not checked: texts that decide nothing (prompts, replies, results, answers) may have been changed",
    ]


def test_output_of_show_is_accepted_by_replay(cli: "Cli", capped: "Done", lines: "list[Json]") -> None:
    """As a file, whatever its name, and as a pipe."""
    name = write(cli, lines)
    journal_file = cli.write("journal", (cli.folder / name).read_text())
    (from_store,) = cli.run("replay", capped.turn, "--json").events
    assert cli.run("replay", name, "--json").events == [from_store]
    assert cli.run("replay", journal_file, "--json").events == [from_store]
    assert cli.run("replay", "-", "--json", stdin=journal_file.read_text()).events == [from_store]


def test_replay_verdict_is_printed_as_json(cli: "Cli", capped: "Done", lines: "list[Json]") -> None:
    (event,) = cli.run("replay", capped.turn, "--json").events
    assert event.pop("rows")["CHECK --proceed [steps >= allowance]--> CONCLUDE"] == 1
    assert event == {
        "verdict": "holds",
        "claim": "every fact follows from the ones before",
        "detail": f"{len(lines)} facts, 5 events; the turn ended: cap_hit, step_cap",
        "fault": None,
        "facts": len(lines),
        "events": 5,
        "state": "CAP_HIT",
        "outcome": "cap_hit",
        "reason": "step_cap",
        "believed": [],
    }


def test_replay_executes_nothing_and_leaves_the_store_unchanged(
    cli: "Cli", endpoint: "Endpoint", capped: "Done"
) -> None:
    def state() -> dict[str, str]:
        return {path.name: sha256(path.read_bytes()).hexdigest() for path in cli.folder.iterdir() if path.is_file()}

    before, request_count = state(), len(endpoint.requests)
    assert cli.run("replay", capped.turn).code == 0
    assert cli.run("replay", capped.turn, "--json").code == 0
    assert state() == before
    assert len(endpoint.requests) == request_count
    assert (cli.folder / "ran").read_text() == "++"


def test_read_only_store_can_be_replayed(cli: "Cli", lines: "list[Json]") -> None:
    """A journal as a file needs no store at all, and none is made."""
    name = write(cli, lines)
    (cli.folder / "turns.db").unlink()
    assert cli.run("replay", name).code == 0
    assert not (cli.folder / "turns.db").exists()


def test_forged_file_is_refused_at_the_first_wrong_fact(cli: "Cli", lines: "list[Json]") -> None:
    place = next(index for index, line in enumerate(lines) if line["kind"] == "step_finished")
    lines[place]["number"] = 2
    done = cli.run("replay", write(cli, lines))
    assert done.code == 1
    first, until, *_ = done.out.splitlines()
    assert first == (
        f"violated: fact {place + 1} of the journal: step_finished: number is 2, and 1 follows from the facts before it"
    )
    assert until == (
        f"until then: {place - 1} facts, 3 events, every fact follows from the ones before;"
        f" the last is fact {place - 1}: CallSettled -> TOOL_EXEC"
    )
    (event,) = cli.run("replay", "turn.jsonl", "--json").events
    assert (event["verdict"], event["fault"], event["facts"]) == ("violated", place + 1, place - 1)


def test_forged_store_is_refused(cli: "Cli", capped: "Done", lines: "list[Json]") -> None:
    """A changed file may also skip a number. A fact that cannot be read is named as well."""
    place = next(line["seq"] for line in lines if line["kind"] == "call_started" and line["call"] == "call00002")
    with sqlite3.connect(cli.folder / "turns.db") as database:
        one_row_a_fact(database)
        database.execute("DELETE FROM facts WHERE seq = ?", (place,))
    database.close()
    done = cli.run("replay", capped.turn)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith(f"violated: fact {place} of the journal: it is missing: fact {place + 1} is in its")
    with sqlite3.connect(cli.folder / "turns.db") as database:
        database.execute("UPDATE facts SET kind = 'tool_dreamt' WHERE seq = ?", (place + 1,))
    database.close()
    done = cli.run("replay", capped.turn)
    assert done.code == 1
    assert f"violated: fact {place + 1} of the journal: its kind 'tool_dreamt' is unknown to this release" in done.out


def test_unfinished_turn_holds_with_a_note(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("ask_user_input", {"question": "Which?"}))
    turn = cli.run("run", "Work", "--json").turn
    done = cli.run("replay", turn)
    assert (done.code, done.out.splitlines()[-2]) == (0, "turn: not ended, in PAUSED")


def test_fact_of_a_later_release_is_inconclusive(cli: "Cli", lines: "list[Json]") -> None:
    lines[4]["v"] = 9
    done = cli.run("replay", write(cli, lines))
    assert done.code == 6
    assert done.out.startswith(f"inconclusive: fact 5 of {LATER}")
    assert cli.run("replay", cli.write("empty.jsonl", "")).code == 6


def test_journal_of_another_chart_is_refused(cli: "Cli", lines: "list[Json]") -> None:
    lines[0]["chart"] = 99
    done = cli.run("replay", write(cli, lines))
    assert done.code == 1
    assert "violated: fact 1 of the journal: it was written under chart 99" in done.out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: is not JSON"),
        ("[]", "line 2: is not a JSON object"),
        ('{"kind": "turn_ended"}', "line 2: a fact has a whole number as its `seq`, and a text as its `kind`"),
        ('{"seq": true, "kind": "turn_ended"}', "line 2: a fact has a whole number"),
        ('{"seq": 2, "kind": 3}', "line 2: a fact has a whole number"),
        ("[" * 100_000, "line 2: nests more than 300 lists and objects"),
    ],
)
def test_non_fact_line_is_a_mistake_with_the_line_number(
    cli: "Cli", lines: "list[Json]", line: str, words: str
) -> None:
    name = cli.write("turn.jsonl", f"{json.dumps(lines[0])}\n{line}\n").name
    done = cli.run("replay", name)
    assert (done.code, done.out) == (2, "")
    assert f"turnwright: turn.jsonl: {words}" in done.err


@pytest.mark.usefixtures("capped")
def test_deeply_nested_line_is_a_mistake_at_any_depth(cli: "Cli", lines: "list[Json]") -> None:
    """However much of the stack its readers need, and whichever of them would run out of it first."""
    for levels in (300, 940, *range(970, 978), 2000):
        nested = f'{{"a":{"[" * levels}{"]" * levels}}}'
        line = json.dumps({**lines[0], "metadata": 0}).replace('"metadata": 0', f'"metadata": {nested}')
        done = cli.run("replay", cli.write("turn.jsonl", f"{line}\n").name)
        assert (done.code, done.out) == (2, "")
        assert "turn.jsonl: line 1: nests more than 300 lists and objects" in done.err


@pytest.mark.usefixtures("capped")
@pytest.mark.parametrize("twice", ["state", "seq", "kind", "v", "limits.steps"])
def test_line_with_a_duplicate_name_is_refused(cli: "Cli", lines: "list[Json]", twice: str) -> None:
    """Both values may be the same, and the name may stand inside: which of the two is meant, nobody can say."""
    outer, _, inner = twice.partition(".")
    name, value = inner or outer, json.dumps(lines[0][outer][inner] if inner else lines[0][outer])
    text, first = "".join(f"{json.dumps(line)}\n" for line in lines), f'"{name}": {value}'
    cli.write("turn.jsonl", text.replace(first, f"{first}, {first}", 1))
    done = cli.run("replay", "turn.jsonl")
    assert done.code == 1
    violation = f"violated: fact 1 of the journal: '{name}' occurs twice in one object of its line"
    assert done.out.splitlines()[0] == violation


@pytest.mark.usefixtures("capped")
def test_missing_turn_or_file_is_a_mistake(cli: "Cli") -> None:
    for target, words in {
        "nobody": "there is no turn 'nobody'",
        "no.jsonl": "cannot read no.jsonl: No such file or directory",
        "x" * 300: "there is no turn 'xxx",
        "latin.jsonl": "latin.jsonl is not UTF-8 text",
    }.items():
        (cli.folder / "latin.jsonl").write_bytes(b"\xff\n")
        done = cli.run("replay", target)
        assert (done.code, done.out) == (2, "")
        assert words in done.err


def test_quoted_text_is_escaped(cli: "Cli", lines: "list[Json]") -> None:
    place = next(index for index, line in enumerate(lines) if line["kind"] == "call_started")
    lines[place]["call"] = "\x1b[2J"
    done = cli.run("replay", write(cli, lines))
    assert done.code == 1
    assert "\x1b" not in done.out


#: Changes of each column that copies a fact.
CHANGES = {
    "state": "CASE state WHEN 'CHECK' THEN 'STREAM' ELSE 'CHECK' END",
    "reason": "CASE WHEN reason IS NULL THEN 'answered' ELSE NULL END",
    "steps": "steps + 1",
    "tool_calls": "tool_calls + 1",
    "at": "at - 100",
    "epoch": "7 - coalesce(epoch, 0)",
}


@pytest.mark.parametrize("column", CHANGES)
def test_changed_column_of_a_fact_is_a_fault(cli: "Cli", capped: "Done", column: str) -> None:
    """Queries read the columns, so each must say what the facts say, in every append."""
    with closing(sqlite3.connect(cli.folder / "turns.db", isolation_level=None)) as store:
        rows = [row for (row,) in store.execute("SELECT rowid FROM facts ORDER BY seq")]
        for row in rows:
            store.execute("BEGIN")
            before = store.execute(f"SELECT {column} FROM facts WHERE rowid = ?", (row,)).fetchone()  # noqa: S608 (constant)
            store.execute(f"UPDATE facts SET {column} = {CHANGES[column]} WHERE rowid = ?", (row,))  # noqa: S608 (constant)
            store.execute("COMMIT")
            done = cli.run("replay", capped.turn)
            assert (done.code, done.out[:9]) == (1, "violated:"), row
            store.execute(f"UPDATE facts SET {column} = ? WHERE rowid = ?", (*before, row))  # noqa: S608 (constant)
    assert cli.run("replay", capped.turn).code == 0


@pytest.mark.parametrize("change", ["live = 1 - live", "epoch = 0", "epoch = 'x'", "created_at = created_at + 1"])
def test_changed_column_of_the_turn_is_a_fault(cli: "Cli", capped: "Done", change: str) -> None:
    with closing(sqlite3.connect(cli.folder / "turns.db")) as store:
        store.execute(f"UPDATE turns SET {change}")  # noqa: S608 (constant)
        store.commit()
    (event,) = cli.run("replay", capped.turn, "--json").events
    assert event["verdict"] == "violated"
    assert "column" in str(event["detail"])
