"""`turnwright resume`: answers to a paused turn, and turns whose process died."""

import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Done, Endpoint, Json

TOOLS = '''
from pathlib import Path

import anyio

from turnwright import ToolContext, tool


@tool(needs_approval=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


async def first_time_for_ever(name: str) -> str:
    file = Path(name)
    file.write_text(file.read_text() + "+" if file.exists() else "+")
    if file.read_text() == "+":
        await anyio.sleep_forever()
    return "did it"


@tool
async def once() -> str:
    """Must not run twice."""
    return await first_time_for_ever("once")


@tool(idempotent=True)
async def again() -> str:
    """May run twice."""
    return await first_time_for_ever("again")


@tool(on_crash="ask")
async def careful() -> str:
    """Ask what to do after a crash."""
    return await first_time_for_ever("careful")


@tool
def quick() -> str:
    """Be done at once."""
    return "quick"
'''

DEPS = '''
from turnwright import ToolContext, TurnInfo, tool


async def make_deps(turn: TurnInfo):
    yield f"the {turn.agent}, resumed: {turn.resumed}"


@tool(needs_approval=True)
def sign(ctx: ToolContext[str]) -> str:
    """Sign."""
    return f"signed by {ctx.deps}"
'''

ASK: "tuple[str, Json]" = ("ask_user_input", {"question": "Which color?", "choices": ["red", "blue"]})
DELETE: "tuple[str, Json]" = ("delete_file", {"path": "old.log"})


@pytest.fixture(autouse=True)
def _tools(cli: "Cli") -> None:
    cli.write("mine.py", TOOLS)


@pytest.fixture
def resume_each(cli: "Cli") -> "Callable[[str, Sequence[tuple[str, ...]]], list[Done]]":
    """Resume one paused turn in several ways, each in a copy of the store."""

    def resume(turn: str, ways: Sequence[tuple[str, ...]]) -> "list[Done]":
        for number in range(len(ways)):
            shutil.copy(cli.folder / "turns.db", cli.folder / f"{number}.db")
        commands = (
            ["resume", turn, "--store", f"sqlite:///{number}.db", "--json", *way] for number, way in enumerate(ways)
        )
        return cli.each(*commands)

    return resume


def result_told(endpoint: "Endpoint") -> str:
    """The last tool result that was sent to the model."""
    content: str = next(
        message["content"] for message in reversed(endpoint.requests[-1].messages) if message["role"] == "tool"
    )
    return content


def test_answer_to_a_question_may_contain_an_equals_sign(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(ASK).says("Painted.")
    paused = cli.run("run", "Paint it", "--json")
    assert paused.code == 3
    (interrupt,) = paused.interrupts
    assert interrupt == {
        "id": interrupt["id"],
        "kind": "question",
        "tool": "ask_user_input",
        "call": "call00001",
        "key": f"{paused.turn}:call00001",
        "question": "Which color?",
        "choices": ["red", "blue"],
    }
    assert "=" not in interrupt["id"]
    done = cli.run("resume", paused.turn, "--answer", f"{interrupt['id']}=a=b=c", "--json")
    assert (done.code, done.last["outcome"]) == (0, "finished")
    assert result_told(endpoint) == "a=b=c"


def test_approval_is_granted_or_denied_with_a_note(
    cli: "Cli",
    endpoint: "Endpoint",
    resume_each: "Callable[[str, Sequence[tuple[str, ...]]], list[Done]]",
) -> None:
    endpoint.calls(DELETE).says("So be it.")
    paused = cli.run("run", "Clean up", "--tools", "mine.py", "--json")
    assert paused.code == 3
    (interrupt,) = paused.interrupts
    assert interrupt == {
        "id": interrupt["id"],
        "kind": "approval",
        "tool": "delete_file",
        "call": "call00001",
        "key": f"{paused.turn}:call00001",
        "question": "may delete_file run?",
        "arguments": {"path": "old.log"},
        "choices": [],
    }
    interrupt_id = interrupt["id"]
    ways = (
        ("--approve", interrupt_id),
        ("--answer", f"{interrupt_id}=yes"),
        ("--reject", interrupt_id),
        ("--reject", f"{interrupt_id}=keep it = keep"),
    )
    done = resume_each(paused.turn, ways)
    assert [result.code for result in done] == [0, 0, 0, 0]
    assert [result.last["tool_calls"] for result in done] == [1, 1, 0, 0]
    results = {next(m["content"] for m in request.messages if m["role"] == "tool") for request in endpoint.requests[1:]}
    assert "old.log is gone" in results
    assert any("keep it = keep" in words for words in results)
    assert len(results) == 3


def test_json_object_approves_a_call_with_other_arguments(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(DELETE).says("So be it.")
    paused = cli.run("run", "Clean up", "--tools", "mine.py", "--json")
    interrupt_id = paused.interrupts[0]["id"]
    wrong = cli.run("resume", paused.turn, "--answer", f'{interrupt_id}={{"file": "new.log"}}', "--json")
    assert wrong.code != 0
    assert "the changed arguments do not fit delete_file" in wrong.err
    done = cli.run("resume", paused.turn, "--answer", f'{interrupt_id}={{"path": "new.log"}}', "--json")
    assert done.code == 0
    assert result_told(endpoint).endswith("new.log is gone")


def test_tools_file_makes_the_dependencies_in_each_process(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write("mine.py", DEPS)
    endpoint.calls(("sign", {})).says("Signed.")
    paused = cli.run("run", "Sign", "--tools", "mine.py", "--json")
    assert paused.code == 3
    done = cli.run("resume", paused.turn, "--approve", paused.interrupts[0]["id"], "--json")
    assert done.code == 0
    assert endpoint.requests[-1].messages[-1]["content"] == "signed by the assistant, resumed: True"


def test_grant_allows_reading_a_file_outside_the_root(
    cli: "Cli", endpoint: "Endpoint", tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "notes.txt"
    outside.write_text("buy milk")
    endpoint.calls(("request_read_access", {"path": str(outside), "reason": "You said so."}))
    endpoint.calls(("read_file", {"path": str(outside)})).says("Milk.")
    paused = cli.run("run", "Read my notes", "--json")
    (interrupt,) = paused.interrupts
    assert (interrupt["kind"], interrupt["tool"]) == ("grant", "request_read_access")
    assert interrupt["question"] == f"Allow reading {outside.resolve()}? You said so."
    done = cli.run("resume", paused.turn, "--approve", interrupt["id"], "--json")
    assert (done.code, done.last["text"]) == (0, "Milk.")
    assert "buy milk" in result_told(endpoint)


def test_turn_stays_paused_until_each_interrupt_is_answered(cli: "Cli", endpoint: "Endpoint") -> None:
    """The last line says what is left, also where nothing was answered; what needs nobody has run."""
    endpoint.calls(ASK, DELETE, ("quick", {})).says("All done.")
    paused = cli.run("run", "Work", "--tools", "mine.py", "--json")
    question, approval = paused.interrupts
    assert [event["result"] for event in paused.of("call_settled")] == ["quick"]
    none = cli.run("resume", paused.turn, "--json")
    assert (none.code, none.interrupts) == (3, [question, approval])
    assert endpoint.requests[1:] == []
    some = cli.run("resume", paused.turn, "--answer", f"{question['id']}=red", "--json")
    assert (some.code, some.interrupts) == (3, [approval])
    plain = cli.run("resume", paused.turn)
    assert (plain.code, "Paused: the turn waits for 1 answer." in plain.out) == (3, True)
    rest = cli.run("resume", paused.turn, "--reject", approval["id"], "--json")
    assert (rest.code, rest.last["text"], rest.last["tool_calls"]) == (0, "All done.", 2)


def test_doom_loop_is_answered_in_three_ways(
    cli: "Cli", endpoint: "Endpoint", resume_each: "Callable[[str, Sequence[tuple[str, ...]]], list[Done]]"
) -> None:
    look: tuple[str, Json] = ("list_files", {})
    endpoint.calls(look).calls(look).calls(look).says("That was a loop.")
    paused = cli.run("run", "Look", "--agents", cli.agent("doom_response: ask\ndoom_compare: calls"), "--json")
    (interrupt,) = paused.interrupts
    assert (paused.code, interrupt["id"], interrupt["kind"]) == (3, "doom-1", "doom_loop")
    assert set(interrupt["choices"]) == {"go_on", "always", "stop"}
    go_on, always, stop, wrong = resume_each(
        paused.turn, [("--answer", f"doom-1={answer}") for answer in ("go_on", "always", "stop", "perhaps")]
    )
    assert (go_on.code, go_on.last["outcome"], go_on.last["steps"]) == (0, "finished", 4)
    assert (always.code, always.last["outcome"], always.last["steps"]) == (0, "finished", 4)
    assert (stop.code, stop.last["outcome"], stop.last["steps"]) == (5, "doom_loop", 3)
    assert (wrong.code, wrong.out) == (2, "")
    assert "a doom_loop takes go_on or always or stop, not 'perhaps'" in wrong.err


def test_live_screen_keeps_the_events_before_the_pause(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(DELETE, ("quick", {})).says("Gone.")
    paused = cli.run("run", "Work", "--tools", "mine.py", terminal=True, env={"TERM": "xterm", "COLUMNS": "120"})
    assert paused.code == 3
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", paused.out)
    assert "step 1 of 200" in text.splitlines(), "it is above the screen, and not only in its last line"
    assert re.search(r"^delete_file +path='old.log' +waits for approval-1 *$", text, re.MULTILINE)
    assert re.search(r"^quick +ok +\d\.\d\d s$", text, re.MULTILINE)
    assert "Paused: the turn waits for 1 answer." in text


def test_printed_command_can_be_copied(cli: "Cli", endpoint: "Endpoint") -> None:
    """Also where the store is not the usual one."""
    endpoint.calls(DELETE).says("Gone.")
    paused = cli.run("run", "Clean up", "--tools", "mine.py", "--store", "sqlite:///my turns.db")
    assert paused.code == 3
    assert 'approval-1: may delete_file run?\n    arguments:\n    | path: "old.log"\n' in paused.out
    match = re.search(r"^ *turnwright (resume .* --approve \S+)", paused.out, re.MULTILINE)
    assert match is not None, paused.out
    assert cli.run(*shlex.split(match[1])).code == 0


def test_resumed_turn_reads_every_setting_from_the_journal(
    cli: "Cli", endpoint: "Endpoint", tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Agent, limits, model, endpoint, tools and root: in another folder, without the agent file and the variable."""
    cli.write("here.txt", "still here")
    endpoint.calls(DELETE).calls(("read_file", {"path": "here.txt"})).says("Two steps.")
    store = f"sqlite:///{cli.folder / 'turns.db'}"
    file = cli.agent("steps: 2", "model: tiny", "max_retries: 0")
    paused = cli.run("run", "Clean up", "--agents", file, "--tools", "mine.py", "--store", store, "--json")
    file.unlink()
    done = cli.run(
        *("resume", paused.turn, "--approve", paused.interrupts[0]["id"], "--store", store, "--json"),
        folder=tmp_path_factory.mktemp("elsewhere"),
        env={"OPENAI_BASE_URL": None},
    )
    assert (done.code, done.last["reason"], done.last["steps"]) == (4, "step_cap", 2)
    assert {request.body["model"] for request in endpoint.requests} == {"tiny"}
    assert "Test well." in endpoint.requests[1].messages[0]["content"]
    assert "still here" in result_told(endpoint)


def test_flag_wins_over_the_current_and_the_original_environment(
    cli: "Cli", endpoint: "Endpoint", serve: "Callable[[], Endpoint]"
) -> None:
    endpoint.calls(ASK).says("the old one")
    newer, newest = serve().says("the newer one"), serve().says("the newest one")
    paused = cli.run("run", "hi", "--json")
    answer = ("--answer", f"{paused.interrupts[0]['id']}=red")
    shutil.copy(cli.folder / "turns.db", cli.folder / "copy.db")
    moved = cli.run("resume", paused.turn, *answer, "--json", env={"OPENAI_BASE_URL": newer.url})
    assert moved.last["text"] == "the newer one"
    resumed = cli.run(
        *("resume", paused.turn, *answer, "--json", "--store", "sqlite:///copy.db", "--base-url", newest.url),
        env={"OPENAI_BASE_URL": newer.url},
    )
    assert resumed.last["text"] == "the newest one"


def test_address_with_a_secret_is_not_kept(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(ASK).says("done")
    address = endpoint.url.replace("http://", "http://me:sk-other-secret@")
    paused = cli.run("run", "hi", "--base-url", address, "--json", env={"OPENAI_BASE_URL": None})
    assert paused.code == 3
    assert "sk-other-secret" not in paused.out
    assert b"sk-other-secret" not in (cli.folder / "turns.db").read_bytes()
    command = ("resume", paused.turn, "--answer", f"{paused.interrupts[0]['id']}=red", "--json")
    lost = cli.run(*command, env={"OPENAI_BASE_URL": None})
    assert (lost.code, lost.out) == (2, "")
    assert "give it again with --base-url" in lost.err
    assert cli.run(*command, "--base-url", address).code == 0


def test_driven_turn_cannot_be_resumed(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(None)
    driver = cli.start("run", "hi", "--json")
    turn = driver.until("step_started")["turn"]
    done = cli.run("resume", turn)
    assert (done.code, done.out) == (2, "")
    assert f"turn {turn} is being driven by" in done.err
    driver.interrupt().done()


@pytest.mark.parametrize(
    ("tool", "ran", "expected"),
    [
        ("once", "+", "outcome unknown: the process died while this call ran; verify before retrying"),
        ("again", "++", "did it"),
    ],
)
def test_call_interrupted_by_a_kill_follows_the_crash_policy(
    cli: "Cli", endpoint: "Endpoint", tool: str, ran: str, expected: str
) -> None:
    """The calls that had their results never run again; this one does what its tool says."""
    endpoint.calls(("quick", {}), (tool, {})).says("Recovered.")
    child = cli.start("run", "Work", "--tools", "mine.py", "--json")
    turn = child.until("call_settled")["turn"]
    cli.await_file(tool)
    child.kill()
    assert (
        f"\n{tool} (call00002) had started, and has no result\nCrashed while running tools: "
        in cli.run("show", turn).out
    )
    done = cli.run("resume", turn, "--json")
    assert (done.code, done.last["text"], done.last["tool_calls"]) == (0, "Recovered.", 2)
    assert (cli.folder / tool).read_text() == ran
    assert result_told(endpoint) == expected
    assert len(done.of("call_settled")) == 1


def test_tool_may_ask_a_person_after_a_crash(
    cli: "Cli",
    endpoint: "Endpoint",
    resume_each: "Callable[[str, Sequence[tuple[str, ...]]], list[Done]]",
) -> None:
    endpoint.calls(("careful", {})).says("Recovered.")
    child = cli.start("run", "Work", "--tools", "mine.py", "--json")
    turn = child.until("call_started")["turn"]
    cli.await_file("careful")
    child.kill()
    paused = cli.run("resume", turn, "--json")
    (interrupt,) = paused.interrupts
    assert (paused.code, interrupt["kind"], interrupt["tool"]) == (3, "unknown_outcome", "careful")
    assert interrupt["choices"] == ["rerun", "unknown"]
    rerun, unknown = resume_each(turn, [("--answer", f"{interrupt['id']}={answer}") for answer in ("rerun", "unknown")])
    assert (rerun.code, unknown.code) == (0, 0)
    assert rerun.of("call_settled")[0]["result"] == "did it"
    assert unknown.of("call_settled")[0]["status"] == "unknown"


def test_stream_of_a_killed_process_is_requested_again(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon").says("Once upon a time.")
    child = cli.start("run", "A story", "--json")
    turn = child.until("text_delta")["turn"]
    child.kill()
    summary = cli.run("show", turn)
    assert f"`turnwright resume {turn}` resumes it" in summary.out
    done = cli.run("resume", turn, "--json")
    assert (done.code, done.last["text"], done.last["steps"]) == (0, "Once upon a time.", 1)
    assert [event["cause"] for event in done.of("attempt_failed")] == ["crash"]
    assert {event["turn"] for event in done.events} == {turn}
