"""Sub-agents on the command line: who does what, what they ask, what a crash leaves, and what is listed of them."""

import re
import shlex
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Done, Endpoint, Json

AGENTS = """---
name: Lead
---
Lead well.

---
name: Reader
description: Reads and erases files.
mode: subagent
tools: [erase, slow, Writer]
steps: 5
---
Read well.

---
name: Writer
description: Writes files.
mode: subagent
tools: [erase, ask_user_input]
---
Write well.
"""

TOOLS = '''
from pathlib import Path

import anyio

from turnwright import tool


@tool(needs_approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"{path} is gone"


@tool
async def slow() -> str:
    """Take for ever, the first time."""
    file = Path("ran")
    file.write_text(file.read_text() + "+" if file.exists() else "+")
    if file.read_text() == "+":
        await anyio.sleep_forever()
    return "did it"
'''

ASK: "tuple[str, Json]" = ("ask_user_input", {"question": "Which color?", "choices": ["red", "blue"]})
ERASE: "tuple[str, Json]" = ("erase", {"path": "old.log"})


@pytest.fixture(autouse=True)
def _files(cli: "Cli") -> None:
    cli.write("AGENTS.md", AGENTS)
    cli.write("mine.py", TOOLS)


def asks(name: str, prompt: str = "Tidy up.") -> "tuple[str, Json]":
    """A call of a sub-agent."""
    return name, {"prompt": prompt}


@pytest.fixture
def paused(cli: "Cli", endpoint: "Endpoint") -> "Done":
    """A turn whose sub-agent's own sub-agent wants to erase a file."""
    endpoint.calls(asks("Reader")).calls(asks("Writer")).calls(ERASE)
    return cli.run(*RUN, "--json")


def plain(text: str) -> str:
    """The final text of a terminal, without styles."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def of(child: "Done", turn: str) -> "list[Json]":
    """The events of one turn."""
    return [event for event in child.events if event["turn"] == turn]


RUN = ("run", "Work", "--agents", "AGENTS.md", "--tools", "mine.py")


# Who does what.


def test_sub_agent_output_is_indented_below_the_call_with_the_name(cli: "Cli", endpoint: "Endpoint") -> None:
    """Its steps, calls, results, text and end; the closing lines are the turn's own."""
    cli.write("ran", "+")
    endpoint.calls(asks("Reader")).calls(("slow", {})).says("Clean.\nReally.").says("All clean.")
    done = cli.run(*RUN)
    turn = done.out.split()[1]
    lines = re.sub(r"\d\.\d\d s", "0.00 s", done.out.replace(turn, "T")).splitlines()
    assert lines[1 : lines.index("")] == [
        "             Work",
        "STREAM       step 1 of 200",
        "TOOL_EXEC    call00001 Reader(prompt='Tidy up.')",
        "    call00001 Reader  turn T:call00001  agent Reader  model default  limits: 5 steps, 49 tool calls",
        "    call00001 Reader  STREAM       step 1 of 5",
        "    call00001 Reader  TOOL_EXEC    slow()",
        "    call00001 Reader               slow: ok 0.00 s: did it",
        "    call00001 Reader  STREAM       step 2 of 5",
        "    call00001 Reader               Clean.",
        "    call00001 Reader               Really.",
        "    call00001 Reader  FINISHED     answered",
        "             call00001 Reader: ok 0.00 s: Clean. Really. [sub-agent: finished, answered; turn T:call00001]",
        "STREAM       step 2 of 200",
        "             All clean.",
    ]
    assert lines[lines.index("") + 1 :][0].startswith("Done in 2 steps (2 tool calls, ")
    assert len(lines) == lines.index("") + 2


def test_concurrent_sub_agents_print_whole_lines(cli: "Cli", endpoint: "Endpoint") -> None:
    """Each line says whose it is, and those of each are in order."""
    cli.write("ran", "+")
    tasks = asks("Reader", "One."), asks("Reader", "Two.")
    endpoint.calls(*tasks).calls(("slow", {})).calls(("slow", {})).says("Clean.\nReally.")
    done = cli.run(*RUN)
    assert done.code == 0
    indented = [line for line in done.out.splitlines() if line.startswith("    call")]
    for call in ("call00001", "call00002"):
        mine = [line[len("    call00001 Reader  ") :] for line in indented if line.startswith(f"    {call} Reader  ")]
        assert mine[0].startswith(f"turn {done.out.split()[1]}:{call}  agent Reader  ")
        assert mine[-3:] == ["             Clean.", "             Really.", "FINISHED     answered"]
    assert len(indented) == sum("Reader  " in line for line in done.out.splitlines())
    assert done.out.count("Done in ") == 1


def test_json_names_the_turn_of_each_event_and_ends_with_the_root(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(asks("Reader")).says("Clean.").says("All clean.")
    done = cli.run(*RUN, "--json")
    child = f"{done.turn}:call00001"
    assert (done.code, done.events[0]["type"], ":" in done.turn) == (0, "turn_started", False)
    assert {event["turn"] for event in done.events} == {done.turn, child}
    assert [of(done, child)[0]["type"], of(done, child)[-1]["type"]] == ["turn_started", "turn_ended"]
    for turn in (done.turn, child):
        seqs = [event["seq"] for event in of(done, turn) if not event["type"].endswith("_delta")]
        assert seqs == list(range(1, len(seqs) + 1))
    assert (done.last["type"], done.last["turn"], done.last["text"]) == ("turn_ended", done.turn, "All clean.")


def test_live_screen_keeps_the_output_of_sub_agents(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(asks("Reader")).calls(asks("Writer", "Write.")).says("Written.").says("Read.").says("All done.")
    done = cli.run(*RUN, terminal=True, env={"TERM": "xterm", "COLUMNS": "120"})
    lines = [line.rstrip() for line in plain(done.out).splitlines()]
    first, second = lines.index("    call00001 Reader"), lines.index("        call00001/call00001 Writer")
    assert lines.index("step 1 of 200") < first < lines.index("    step 1 of 5") < second
    assert second < lines.index("        Written.") < lines.index("    Read.") < lines.index("All done.")
    assert sum(line.startswith("Done in ") for line in lines) == 1


def test_low_screen_shows_as_many_sub_agents_as_fit(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(*[asks("Reader", f"Read {number}.") for number in range(6)]).begins("Once")
    child = cli.start(*RUN, terminal=True, env={"TERM": "xterm", "COLUMNS": "120", "LINES": "12"})
    child.shows("    and 2 more")
    assert child.interrupt().done().code == 130


# What they ask.


def test_paused_turn_names_the_asking_sub_agent_and_a_working_command(cli: "Cli", endpoint: "Endpoint") -> None:
    """Also two deep, and where the store is not the usual one."""
    endpoint.calls(asks("Reader")).calls(asks("Writer")).calls(ERASE, ASK)
    paused = cli.run(*RUN, "--store", "sqlite:///my turns.db")
    for ending in ("Painted.", "Read.", "All done."):
        endpoint.says(ending)
    assert paused.code == 3
    assert paused.out.count("Paused: ") == 1
    alone = cli.run("show", f"{paused.out.split()[1]}:call00001:call00001", "--store", "sqlite:///my turns.db")
    assert alone.out.count("turnwright resume") == 2
    assert 'Reader > Writer: may erase run?\n    arguments:\n    | path: "old.log"\n' in paused.out
    grant = re.search(r"^ *turnwright (resume .* --approve call00001/call00001/approval-1) ", paused.out, re.MULTILINE)
    assert grant is not None, paused.out
    again = cli.run(*shlex.split(grant[1]))
    assert (again.code, "Reader > Writer: Which color? (red / blue)" in again.out) == (3, True)
    answer = re.search(r"^ *turnwright (resume .* --answer call00001/call00001/question-1=.*)", again.out, re.MULTILINE)
    assert answer is not None, again.out
    done = cli.run(*shlex.split(answer[1].replace("...", "a/b=c")))
    assert (done.code, "Done in " in done.out) == (0, True)
    results = [message["content"] for message in endpoint.requests[3].messages if message["role"] == "tool"]
    assert results == ["old.log is gone", "a/b=c"]


def test_sub_agent_question_is_answered_in_the_calling_turn(cli: "Cli", endpoint: "Endpoint", paused: "Done") -> None:
    (interrupt,) = paused.interrupts
    assert (paused.code, paused.last["turn"]) == (3, paused.turn)
    assert interrupt == {
        "id": "call00001/call00001/approval-1",
        "kind": "approval",
        "tool": "erase",
        "call": "call00001:call00001:call00001",
        "key": f"{paused.turn}:call00001:call00001:call00001",
        "question": "Reader > Writer: may erase run?",
        "arguments": {"path": "old.log"},
        "choices": [],
    }
    none = cli.run("resume", paused.turn, "--json")
    assert (none.code, none.last["turn"], none.interrupts) == (3, paused.turn, [interrupt])
    wrong = cli.run("resume", paused.turn, "--approve", "approval-1")
    assert (wrong.code, f"(open: {interrupt['id']})" in wrong.err) == (2, True)
    below = ["resume", f"{paused.turn}:call00001", "--approve", "approval-1"]
    for alone in cli.each(below, [*below, "--base-url", endpoint.url]):
        assert (alone.code, alone.out) == (2, "")
        assert f"resume turn {paused.turn}" in alone.err
    endpoint.says("Kept it.").says("It is kept.").says("All kept.")
    done = cli.run("resume", paused.turn, "--reject", f"{interrupt['id']}=keep a/b", "--json")
    assert (done.code, done.last["turn"], done.last["text"]) == (0, paused.turn, "All kept.")
    assert "keep a/b" in endpoint.requests[3].messages[-1]["content"]


# How it ends.


def test_sub_agent_of_a_killed_process_resumes_with_the_caller(cli: "Cli", endpoint: "Endpoint") -> None:
    """Its tool, which had started, does not run again; the agents are those of then."""
    endpoint.calls(asks("Reader")).calls(("slow", {})).says("Perhaps.").says("Perhaps clean.")
    child = cli.start(*RUN, "--json")
    turn = child.until("turn_started")["turn"]
    cli.await_file("ran")
    child.kill()
    (cli.folder / "AGENTS.md").unlink()
    listed = cli.run("turns")
    assert f"1 turn crashed or left: `turnwright resume {turn}` resumes it;" in listed.err
    summary = cli.run("show", f"{turn}:call00001")
    assert f"`turnwright resume {turn}` resumes it" in summary.out
    done = cli.run("resume", turn)
    assert (done.code, (cli.folder / "ran").read_text()) == (0, "+")
    lines = done.out.splitlines()
    assert lines[0].startswith("    call00001 Reader               slow: unknown")
    assert lines[1:3] == [
        "    call00001 Reader  STREAM       step 2 of 5",
        "    call00001 Reader               Perhaps.",
    ]
    assert "Done in " in done.out


@pytest.mark.slow
def test_signal_for_the_turn_reaches_the_sub_agents(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(asks("Reader")).calls(("slow", {})).calls(asks("Reader")).calls(("slow", {}))
    child = cli.start(*RUN, "--json")
    cli.await_file("ran")
    stopped = child.terminate().done()
    again = f"`turnwright resume {stopped.turn}` resumes it"
    assert (stopped.code, stopped.err) == (
        143,
        f"turnwright: stopped by SIGTERM; turn {stopped.turn} has not ended: {again}\n",
    )
    (cli.folder / "ran").unlink()
    pressed = cli.start(*RUN, "--json")
    cli.await_file("ran")
    done = pressed.interrupt().done()
    assert (done.code, done.last["turn"], done.last["outcome"]) == (130, done.turn, "aborted")
    assert of(done, f"{done.turn}:call00001")[-1]["outcome"] == "aborted"


def test_exit_code_is_of_the_root_turn(cli: "Cli", endpoint: "Endpoint") -> None:
    """A sub-agent at its cap has a result like any other; its caller at its cap has not."""
    cli.write("ran", "+")
    cli.write("AGENTS.md", AGENTS.replace("steps: 5", "steps: 1"))
    endpoint.calls(asks("Reader")).calls(("slow", {})).says("Not done.").says("Well.")
    done = cli.run(*RUN, "--json")
    assert (of(done, f"{done.turn}:call00001")[-1]["outcome"], done.code) == ("cap_hit", 0)
    endpoint.calls(asks("Reader")).says("Clean.").says("Not done.")
    capped = cli.run(*RUN, "--steps", "1")
    assert (capped.code, "Stopped at the step limit (1 of 1)." in capped.out) == (4, True)
    assert (
        f'To continue in a new turn:\n  turnwright run --continue {capped.out.split()[1]} --steps 2 "..."' in capped.out
    )


def test_sub_agent_has_the_configured_limits_and_not_the_flag_limits(cli: "Cli", endpoint: "Endpoint") -> None:
    """Also one that begins after a pause, and whatever has become of the file by then."""
    cli.write("mine.txt", "Say what is left.")
    file = cli.write("turnwright.toml", "conclude_prompt_file = 'mine.txt'\n[limits]\nsteps = 2\n")
    endpoint.calls(asks("Reader"), asks("Writer"), ASK).says("Read.").says("Written.")
    waits = cli.run(*RUN, "--steps", "7", "--json")
    (interrupt,) = waits.interrupts
    file.unlink()
    endpoint.calls(asks("Writer")).says("Written.").says("All done.")
    done = cli.run("resume", waits.turn, "--answer", f"{interrupt['id']}=red", "--json")
    begun = waits.of("turn_started") + done.of("turn_started")
    steps = [(event["agent"]["name"], event["limits"]["steps"]) for event in begun]
    assert (done.code, steps[0], sorted(steps[1:])) == (0, ("Lead", 7), [("Reader", 5), ("Writer", 2), ("Writer", 2)])
    assert {event["agent"]["conclude_prompt"] for event in begun} == {"Say what is left."}


# What is listed of them.


def test_sub_agent_turns_are_listed_below_callers_on_demand(cli: "Cli", endpoint: "Endpoint", paused: "Done") -> None:
    endpoint.says("Hello.")
    newer = cli.run("run", "Hi", "--session", "s1", "--json").turn
    ours, everything, of_session, rows = cli.each(
        ["turns"], ["turns", "--all"], ["turns", "--all", "--session", "s1"], ["turns", "--all", "--json"]
    )
    turn = paused.turn
    assert [line.split()[0] for line in ours.out.splitlines()] == ["TURN", newer, turn]
    assert re.findall(r"^ *\w{16}\S*", everything.out, re.MULTILINE) == [
        *(newer, turn, f"  {turn}:call00001", f"    {turn}:call00001:call00001"),
    ]
    assert [line.split()[0] for line in of_session.out.splitlines()] == ["TURN", newer]
    assert [(row["turn"], row["parent"]) for row in rows.events] == [
        (newer, None),
        (turn, None),
        (f"{turn}:call00001", turn),
        (f"{turn}:call00001:call00001", f"{turn}:call00001"),
    ]


def test_turn_shows_child_turns_and_child_turns_show_the_caller(cli: "Cli", paused: "Done") -> None:
    turn, reader, writer = paused.turn, f"{paused.turn}:call00001", f"{paused.turn}:call00001:call00001"
    whole, whole_json, below, below_json = cli.each(
        ["show", turn], ["show", turn, "--json"], ["show", writer], ["show", writer, "--json"]
    )
    assert f"  turn {reader}, agent Reader: PAUSED\n" in whole.out
    assert whole_json.last["sub_turns"] == [
        *(
            {
                "call": "call00001",
                "turn": reader,
                "agent": "Reader",
                "state": "PAUSED",
                "outcome": None,
                "reason": None,
            },
        ),
    ]
    assert below.out.splitlines()[0] == f"agent Writer, called by call00001 of turn {reader}"
    assert f"turnwright resume {turn} --approve call00001/call00001/approval-1 " in below.out
    assert (below_json.last["parent"], below_json.last["parent_call"]) == (reader, "call00001")
    assert below_json.last["sub_turns"] == []


def test_sub_agent_is_steered_and_aborted_alone(cli: "Cli", endpoint: "Endpoint", paused: "Done") -> None:
    """Its caller continues without it."""
    turn, writer = paused.turn, f"{paused.turn}:call00001:call00001"
    steered = cli.run("steer", writer, "Hurry.")
    assert (steered.code, steered.out) == (0, f"turn {writer} is paused, and will read it when it continues\n")
    aborted = cli.run("abort", writer)
    assert aborted.out == f"turn {writer}: aborted\n`turnwright resume {turn}` continues without it\n"
    endpoint.says("Without it.").says("All done.")
    done = cli.run("resume", turn, "--json")
    assert (done.code, done.last["text"]) == (0, "All done.")
    assert "sub-agent: aborted" in endpoint.requests[3].messages[-1]["content"]
    assert cli.run("delete", turn).out == f"turn {turn}: deleted, with 2 sub-turns\n"


def test_sub_agent_bounds_are_explained(cli: "Cli") -> None:
    """Also where they are opencode's, in a folder."""
    folder = cli.folder / ".opencode" / "agent"
    folder.mkdir(parents=True)
    (folder / "lead.md").write_text("---\ndescription: Leads.\nmode: primary\n---\nLead well.\n")
    (folder / "reader.md").write_text("---\ndescription: Reads.\nmode: subagent\nsteps: 5\n---\nRead well.\n")
    explain = ["explain", "--agents", "AGENTS.md", "--tools", "mine.py"]
    ours, theirs = cli.each(explain, ["explain", "--agents", ".opencode"])
    for explanation, rows in ((ours, [("Reader", "5"), ("Writer", "200")]), (theirs, [("reader", "5")])):
        assert (explanation.code, explanation.err) == (0, "")
        table = explanation.out.partition("It may call sub-agents")[2].splitlines()
        assert [tuple(line.split()[i] for i in (0, 3)) for line in table[3 : 3 + len(rows)]] == rows


def test_agents_of_a_folder_run_and_are_listed(cli: "Cli", endpoint: "Endpoint") -> None:
    folder = cli.folder / ".opencode" / "agent"
    folder.mkdir(parents=True)
    (folder / "lead.md").write_text("---\ndescription: Leads.\nmode: primary\n---\nLead well.\n")
    (folder / "reader.md").write_text("---\ndescription: Reads.\nmode: subagent\n---\nRead well.\n")
    listed = cli.run("agents", ".opencode")
    assert [line.split()[:2] for line in listed.out.splitlines()[1:]] == [["lead", "primary"], ["reader", "subagent"]]
    endpoint.calls(asks("reader")).says("Clean.").says("All clean.")
    done = cli.run("run", "Work", "--agents", ".opencode", "--json")
    assert (done.code, done.last["text"], of(done, f"{done.turn}:call00001") != []) == (0, "All clean.", True)
    assert "Read well." in endpoint.requests[1].messages[0]["content"]
