"""`turnwright answer` records what a person says, and drives nothing; ids may be given by their beginnings."""

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from turnwright import Agent, Answering, Engine, tool
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import SqliteStore

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint

CODE = """
from turnwright import tool


@tool(needs_approval=True)
def pay(amount: int) -> str:
    with open("paid", "a") as file:
        file.write(f"{amount}\\n")
    return "paid"
"""


@pytest.fixture
def paused(cli: "Cli", endpoint: "Endpoint") -> str:
    """A turn that waits for two approvals and a reply."""
    cli.write("tools.py", CODE)
    endpoint.calls(("pay", {"amount": 5}), ("pay", {"amount": 6}), ("ask_user_input", {"question": "Which?"}))
    endpoint.says("Done.")
    done = cli.run("run", "Pay", "--tools", "tools.py", "--json")
    assert done.code == 3
    return done.turn


def test_answer_of_several_people_needs_a_name(cli: "Cli", endpoint: "Endpoint") -> None:
    """The refusal names the option, which then works."""
    cli.write("tools.py", CODE.replace("needs_approval=True", "needs_approval=True, approvers=2"))
    endpoint.calls(("pay", {"amount": 5}))
    turn = cli.run("run", "Pay", "--tools", "tools.py", "--json").turn
    for command in ("answer", "resume"):
        refused = cli.run(command, turn, "--approve", "approval-1")
        assert refused.code == 2
        assert "interrupt 'approval-1': it needs a name: give --by NAME" in refused.err
    assert cli.run("answer", turn, "--approve", "approval-1", "--by", "ann").code == 0


def test_answer_is_recorded_and_no_turn_runs(cli: "Cli", paused: str) -> None:
    first = cli.run("answer", paused, "--approve", "approval-1")
    assert (first.code, first.err) == (0, "")
    assert first.out == f"turn {paused}: recorded approval-1; still open: approval-2, question-1\n"
    rest = cli.run("answer", paused, "--reject", "approval-2=too much", "--answer", "question-1=the first", "--json")
    assert rest.events == [{"turn": paused, "answered": ["question-1", "approval-2"], "open": []}]
    assert not (cli.folder / "paid").exists()
    (row,) = cli.run("turns", "--json").events
    assert (row["state"], row["driver"], row["answered"]) == ("PAUSED", None, True)
    listed = cli.run("turns")
    assert " PAUSED  answered" in listed.out
    assert listed.err == (
        f"turnwright: 1 turn answered, and not resumed yet: `turnwright resume {paused}` resumes it\n"
    )
    assert "answered, and not resumed yet" in cli.run("show", paused).out
    assert cli.run("resume", paused).code == 0
    assert (cli.folder / "paid").read_text() == "5\n"


def test_partially_answered_turn_is_not_listed_as_answered(cli: "Cli", paused: str) -> None:
    cli.run("answer", paused, "--approve", "approval-1")
    assert [row["answered"] for row in cli.run("turns", "--json").events] == [False]
    listed = cli.run("turns")
    assert ("answered" in listed.out, listed.err) == (False, "")


def test_last_answer_names_the_next_command(cli: "Cli", paused: str) -> None:
    cli.run("answer", paused, "--approve", "approval-1", "--approve", "approval-2")
    done = cli.run("answer", paused, "--answer", "q=x")
    assert done.out == f"turn {paused}: recorded question-1; `turnwright resume {paused}` continues the turn\n"


def test_call_is_approved_with_other_arguments(cli: "Cli", paused: str) -> None:
    cli.run("answer", paused, "--reject", "approval-1", "--answer", "question-1=x")
    unfit = cli.run("answer", paused, "--arguments", '{"amount": "a lot"}')
    assert (unfit.code, "the changed arguments do not fit pay" in unfit.err) == (2, True)
    done = cli.run("answer", paused, "--arguments", '{"amount": 4}')
    assert (done.code, done.out.startswith(f"turn {paused}: recorded approval-2; ")) == (0, True), done.err
    assert cli.run("resume", paused).code == 0
    assert (cli.folder / "paid").read_text() == "4\n"
    journal = cli.run("show", paused, "--journal").out
    assert "approval-2: approve, with other arguments" in journal
    conversation = cli.run("show", paused).out
    assert 'pay({"amount": 6})' in conversation
    assert '[a person approved this call with other arguments: {"amount": 4}]' in conversation


@pytest.mark.parametrize(
    "flags",
    [
        ("--arguments", 'approval-2={"amount": 4}'),
        ("--approve", "approval-2", "--arguments", '{"amount": 4}'),
        ("--answer", 'approval-2={"amount": 4}', "--tools", "tools.py"),
    ],
)
def test_arguments_belong_to_the_named_approval(cli: "Cli", paused: str, flags: tuple[str, ...]) -> None:
    assert cli.run("answer", paused, *flags).code == 0
    cli.run("resume", paused, "--approve", "approval-1", "--answer", "question-1=x")
    assert sorted((cli.folder / "paid").read_text().split()) == ["4", "5"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--arguments", '{"amount": 4}'), "write --arguments ID=JSON"),
        (("--arguments", "approval-2"), "interrupt 'approval-2': write --arguments ID=JSON"),
        (
            ("--approve", "approval-2", "--arguments", "[4]"),
            "approval-2': the changed arguments are not a JSON object",
        ),
        (("--arguments", "approval-2=4"), "the changed arguments are not a JSON object"),
        (("--arguments", "approval-2={4}"), "the changed arguments are not a JSON object"),
        (("--arguments", 'question-1={"amount": 4}'), "a question takes reply or no, not approve"),
        (("--arguments", 'approval-2={"amount": 4}', "--tools", "none.py"), "there is no file none.py"),
        (("--arguments", 'approval-2={"amount": 4}', "--reject", "approval-2"), "it is answered twice"),
        ((), "no answer: give --approve, --reject or --answer with one of approval-1, approval-2, question-1"),
        (("--approve", "approval"), "it is ambiguous: approval-1, approval-2: write more of it"),
        (("--approve", "x"), "no such interrupt is open"),
        (("--answer", "question-1"), "write --answer ID=TEXT"),
        (("--approve", "question-1"), "a question takes"),
        (("--approve", "approval-1", "--reject", "approval-1"), "it is answered twice"),
    ],
)
def test_invalid_answer_is_refused(cli: "Cli", paused: str, flags: tuple[str, ...], words: str) -> None:
    done = cli.run("answer", paused, *flags)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert len(cli.run("show", paused, "--json").last["answered"]) == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--reject", "approval-1=no"), "'approval-1': it was answered before, and the first answer counts"),
        (("--reject", "approval-1"), "(open: approval-2)"),
        (("--answer", "q=other"), "'question-1': it was answered before, and the first answer counts"),
        (("--answer", "q=other"), "(open: approval-2)"),
        (("--approve", "x"), "no such interrupt is open (open: approval-2)"),
        (("--answer", "approval-2=why"), "(open: approval-2)"),
        ((), "no answer: give --approve, --reject or --answer with one of approval-2\n"),
    ],
)
def test_answered_interrupt_is_no_longer_open(cli: "Cli", paused: str, flags: tuple[str, ...], words: str) -> None:
    assert cli.run("answer", paused, "--approve", "approval-1", "--answer", "question-1=x").code == 0
    done = cli.run("answer", paused, *flags)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_answer_without_an_open_interrupt_is_reported(cli: "Cli", paused: str) -> None:
    """By a beginning as by the whole id; and once the turn has ended, that it has."""
    cli.run("answer", paused, "--approve", "approval-1", "--approve", "approval-2", "--answer", "question-1=x")
    assert cli.run("answer", paused).err == (
        f"turnwright: turn {paused}: nothing is open: approval-1, approval-2, question-1: already answered\n"
    )
    for name in ("approval-1", "approval-2", "question-1", "q"):
        done = cli.run("answer", paused, "--reject", f"{name}=no")
        whole = "question-1" if name == "q" else name
        assert f"interrupt '{whole}': " in done.err
        assert "(none is open)" in done.err
    several = cli.run("answer", paused, "--reject", "approval").err
    assert "it is ambiguous: approval-1, approval-2: write more of it (none is open)" in several
    assert cli.run("resume", paused).code == 0
    for flags in ((), ("--approve", "approval-1")):
        assert f"turn {paused} has ended (finished: answered)" in cli.run("answer", paused, *flags).err


def test_turn_without_questions_is_reported(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once")
    child = cli.start("run", "A story", "--json")
    turn = child.until("text_delta")["turn"]
    assert cli.run("answer", turn).err == f"turnwright: turn {turn} has no open question: it is in STREAM\n"
    child.interrupt().done()


def test_turn_of_another_program_can_only_be_answered(cli: "Cli") -> None:
    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return str(amount)

    async def begin() -> str:
        model = ScriptedModel(asks_for(("pay", {"amount": 5})))
        async with Engine(model=model, tools=[pay], store=SqliteStore(cli.folder / "turns.db")) as engine:
            return (await engine.run(Agent(name="A"), "Pay")).id

    turn = anyio.run(begin)
    summary = cli.run("show", turn).out
    assert f'    turnwright answer {turn} --approve approval-1    (or --reject approval-1="why")\n' in summary
    assert "turnwright resume" not in summary
    refused = cli.run("resume", turn, "--approve", "approval-1")
    assert refused.code == 2
    assert f"record an answer with `turnwright answer {turn}`; then `Engine.recover()` or a worker" in refused.err
    done = cli.run("answer", turn, "--approve", "approval-1")
    assert done.out == (
        f"turn {turn}: recorded approval-1;"
        " `Engine.recover()` or a worker of the program that began it continues the turn\n"
    )
    assert "turnwright resume" not in cli.run("show", turn).out
    assert cli.run("turns").err == (
        "turnwright: 1 turn answered, and not resumed yet:"
        " `Engine.recover()` or a worker of the program that began it resumes it\n"
    )


def test_turn_of_an_app_that_authorizes_is_answered_there(cli: "Cli") -> None:
    """Rule 15, scenario 17: the command line has no app that could decide, so nothing is stored."""

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return str(amount)

    async def may(_: Answering) -> bool:
        return True

    store = SqliteStore(cli.folder / "turns.db")

    async def begin() -> str:
        model = ScriptedModel(asks_for(("pay", {"amount": 5})))
        async with Engine(model=model, tools=[pay], store=store, authorize=may) as engine:
            return (await engine.run(Agent(name="A"), "Pay")).id

    turn = anyio.run(begin)
    refused = cli.run("answer", turn, "--approve", "approval-1", "--by", "ann")
    assert (refused.code, refused.out) == (2, "")
    assert "your app must authorize its answer" in refused.err
    assert anyio.run(SqliteStore(cli.folder / "turns.db").inbox, turn) == []


def test_sub_agent_turn_is_answered_through_the_root_turn(cli: "Cli", paused: str) -> None:
    done = cli.run("answer", f"{paused}:call00001", "--approve", "approval-1")
    assert done.code == 2


# Ids by their beginnings.


def copied(folder: Path, turn: str, *ids: str) -> None:
    """Give the store more turns: copies of one, with these ids."""

    async def copy() -> None:
        store = SqliteStore(folder / "turns.db")
        engine = Engine(model=ScriptedModel("x"), store=store)
        for name in ids:
            fork = await engine.fork(turn, at=2)
            rename(folder, fork, name)
        await engine.aclose()

    anyio.run(copy)


def rename(folder: Path, turn: str, name: str) -> None:
    with sqlite3.connect(folder / "turns.db") as database:
        database.execute("UPDATE turns SET turn_id = ? WHERE turn_id = ?", (name, turn))
    database.close()


def test_prefix_of_a_turn_id_suffices_everywhere(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("list_files", {})).says("Not done.")
    cli.write("AGENTS.md", "---\nname: A\nsteps: 1\n---\n")
    turn = cli.run("run", "Work", "--agents", "AGENTS.md", "--json").turn
    prefix = turn[:5]
    for command in (("show", prefix), ("show", prefix, "--journal"), ("replay", prefix), ("diagram", "--turn", prefix)):
        assert cli.run(*command).code == 0, command
    assert cli.run("fork", prefix).code == 2
    assert f"turnwright fork {turn} --at SEQ" in cli.run("fork", prefix).err
    endpoint.says("More.")
    assert cli.run("run", "--continue", prefix, "Go on").code == 0
    assert "has ended" in cli.run("steer", prefix, "hi").err
    assert "has ended" in cli.run("abort", prefix).err
    assert "has ended" in cli.run("resume", prefix).err
    assert cli.run("delete", turn[:9]).out == f"turn {turn}: deleted\n"


def test_ambiguous_prefix_is_refused_with_all_matches(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    turn = cli.run("run", "Work", "--json").turn
    copied(cli.folder, turn, "aaaa1111", "aaaa2222", "aaaa")
    done = cli.run("show", "aaa")
    assert (done.code, done.out) == (2, "")
    assert "aaa is ambiguous: 3 turns begin so: " in done.err
    assert all(name in done.err for name in ("aaaa1111", "aaaa2222"))
    assert cli.run("show", "aaaa").code == 0, "a whole id is not a beginning"
    assert "there is no turn 'zzz'" in cli.run("show", "zzz").err


def test_each_part_of_a_sub_agent_id_may_be_a_prefix(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write(
        "AGENTS.md",
        "---\nname: Lead\n---\nLead.\n\n---\nname: Reader\ndescription: Reads.\nmode: subagent\n---\nRead.\n",
    )
    endpoint.calls(("Reader", {"prompt": "Read"})).says("Read.").says("Done.")
    turn = cli.run("run", "Work", "--agents", "AGENTS.md", "--json").turn
    assert f"called by call00001 of turn {turn}" in cli.run("show", f"{turn[:6]}:call").out


def test_name_of_the_person_is_kept_and_shown(cli: "Cli", paused: str) -> None:
    """Rule 13: `--by` is kept with the answer, its channel is `cli`, and `show --journal` has both."""
    assert cli.run("answer", paused, "--approve", "approval-1", "--by", "ann").code == 0
    cli.run("answer", paused, "--reject", "approval-2", "--answer", "question-1=the first", "--by", "bob")
    cli.run("resume", paused)
    journal = cli.run("show", paused, "--journal").out
    assert "approval-1: approve (by ann via cli, " in journal
    assert "question-1: reply (by bob via cli, " in journal
