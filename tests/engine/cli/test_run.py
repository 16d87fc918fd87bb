"""`turnwright run`: one turn from its prompt to its outcome, for programs and for people."""

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint, Json

TOOLS = '''
import subprocess, time

from turnwright import tool

print("hello from the module")


@tool
def boom() -> str:
    """Raise."""
    raise RuntimeError("it broke")


@tool(timeout=0.2)
def hang() -> str:
    """Take for ever, in a thread that nobody can stop."""
    time.sleep(3600)
    return "never"


@tool(timeout=0.2)
async def linger() -> str:
    """Take for ever."""
    import anyio
    await anyio.sleep(3600)
    return "never"


@tool
def raw() -> bytes:
    """Give bytes."""
    return b"\\xff\\x00\\x1b"


@tool
def much() -> str:
    """Give a megabyte."""
    return "x" * 2**20


@tool
def loud() -> str:
    """Print, and start a program that prints."""
    print("hello from the tool")
    subprocess.run(["echo", "hello from the program"])
    return "done"


@tool
def escape() -> str:
    """Try to command the terminal."""
    return "\\x1b]0;owned\\x07\\x1b[2J\\u009b31m red"
'''

#: Sets the title, clears the screen, and, in one character, begins a color.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m"


def test_each_line_is_an_event_and_the_last_has_the_ending(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("list_files", {})).says("Nothing here.")
    done = cli.run("run", "What is here?", "--json")
    assert (done.code, done.err) == (0, "")
    assert [event["type"] for event in done.events] == [
        "turn_started",
        "step_started",
        "tool_call_delta",
        "model_replied",
        "call_started",
        "call_settled",
        "step_finished",
        "step_started",
        "text_delta",
        "model_replied",
        "step_finished",
        "turn_ended",
    ]
    assert {event["turn"] for event in done.events} == {done.turn}
    seqs = [event["seq"] for event in done.events if not event["type"].endswith("_delta")]
    assert seqs == list(range(1, len(seqs) + 1))
    assert list(done.last) == [
        *("type", "turn", "seq", "outcome", "reason", "also_reached", "steps", "tool_calls", "text", "usage"),
    ]
    assert done.last["text"] == "Nothing here."
    assert (done.last["usage"]["input_tokens"], done.last["usage"]["output_tokens"]) == (22, 14)


def test_first_line_names_the_turn_even_if_superseding_another(cli: "Cli", endpoint: "Endpoint") -> None:
    """The store has the end of the other one."""
    endpoint.calls(("ask_user_input", {"question": "Which?"})).says("Done.")
    waits = cli.run("run", "Ask", "--session", "s1", "--json").turn
    done = cli.run("run", "Never mind", "--session", "s1", "--json")
    assert (done.code, done.events[0]["type"], {event["turn"] for event in done.events}) == (
        *(0, "turn_started", {done.last["turn"]}),
    )
    assert cli.run("show", waits, "--json").last["reason"] == "superseded"


def test_lines_arrive_during_the_reply(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon")
    child = cli.start("run", "A story", "--json")
    assert child.until("turn_started")["prompt"] == "A story"
    assert child.until("text_delta")["text"] == "Once upon"
    assert child.interrupt().done().code == 130


def test_turn_id_is_printed_before_the_reply(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(None)
    child = cli.start("run", "A story", "--json")
    assert re.fullmatch(r"[0-9a-f]{16}", child.until("turn_started")["turn"])
    child.interrupt().done()


def test_event_line_stays_a_single_line_for_any_text(cli: "Cli", endpoint: "Endpoint") -> None:
    """Other characters than the line feed end lines too, for some readers; all but ASCII is escaped."""
    text = "a\u2028b\x85c\x0bd\r\ne é " + ESCAPES
    endpoint.says(text)
    done = cli.run("run", "hi", "--json")
    assert done.last["text"] == text
    assert done.out.isascii()
    assert done.out.count("\n") == len(done.events) == len(done.out.splitlines())


def test_person_reads_the_answer_and_a_summary(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("list_files", {})).says("Nothing here.\nReally.")
    done = cli.run("run", "What is here?")
    lines = done.out.splitlines()
    assert re.fullmatch(r"turn \w{16}  agent assistant  model default  limits: 200 steps, 50 tool calls", lines[0])
    assert "TOOL_EXEC    list_files()" in lines
    assert re.search(r"list_files: ok \d\.\d\d s: ", done.out)
    assert done.out.count("Nothing here.") == 1
    assert re.fullmatch(r"Done in 2 steps \(1 tool call, 36 tokens, \d+\.\d s\)\.", lines[-1])
    assert "path:" not in done.out


def test_verbose_adds_the_outcome_the_figures_and_the_path(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("list_files", {})).says("Nothing here.")
    lines = cli.run("run", "What is here?", "--verbose").out.splitlines()
    assert lines[-4] == "outcome:  finished: answered"
    assert re.fullmatch(r"used:     2 steps, 1 tool call, 36 tokens, \d+\.\d s", lines[-3])
    assert lines[-2:] == [
        "nearest:  the tool-call limit (1 of 50)",
        "path:     CHECK > STREAM > TOOL_EXEC > CONTINUE > CHECK > STREAM > FINISHED",
    ]


def test_request_carries_key_agent_and_model(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("done")
    cli.run("run", "hi", "--agents", cli.agent("model: tiny", "tools: [read_file]"))
    cli.run(
        "run", "hi", "--model", "large", "--base-url", f"{endpoint.url}/other/", env={"OPENAI_BASE_URL": "http://x"}
    )
    first, second = endpoint.requests
    assert first.headers["authorization"].startswith("Bearer sk-")
    assert (first.path, first.body["model"]) == ("/v1/chat/completions", "tiny")
    assert [tool["function"]["name"] for tool in first.body["tools"]] == ["read_file"]
    assert first.messages[0]["role"] == "system"
    assert "Test well." in first.messages[0]["content"]
    assert (second.path, second.body["model"]) == ("/v1/other/chat/completions", "large")


def test_model_settings_come_from_configuration_agent_and_flags(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write("turnwright.toml", "[model_settings]\ntemperature = 0.9\ntop_p = 0.5\nseed = 1\n")
    endpoint.calls(("list_files", {})).says("One step was not enough.").says("done")
    agent = cli.agent("steps: 1", "model_settings: {temperature: 0.4, seed: 2, stop_sequences: [END]}")
    flags = ["--setting", "seed=3", "--setting", "thinking=low", "--setting", 'extra_body={"a": 1}']
    capped = cli.run("run", "Work", "--agents", agent, *flags, "--json")
    cli.run("run", "--continue", capped.turn, "--setting", "temperature=0")
    for request, temperature in zip(endpoint.requests, (0.4, 0.4, 0), strict=True):
        body = request.body
        assert (body["temperature"], body["top_p"], body["seed"]) == (temperature, 0.5, 3)
        assert (body["stop"], body["reasoning_effort"], body["a"]) == (["END"], "low", 1)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("tempature=1", "--setting: tempature: is unknown: did you mean `temperature`?"),
        ("top_p=2", "--setting: top_p: must be less than or equal to 1, not 2"),
        ("seed", "--setting seed: write it as NAME=VALUE, such as temperature=0"),
    ],
)
def test_wrong_setting_is_named(cli: "Cli", flag: str, message: str) -> None:
    done = cli.run("run", "hi", "--setting", flag)
    assert (done.code, done.err.strip()) == (2, f"turnwright: {message}")


def test_unsupported_setting_is_reported_once_or_refused(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("list_files", {})).says("done")
    done = cli.run("run", "hi", "--setting", "thinking=4096")
    assert done.code == 0
    assert done.err.count("the setting thinking is not sent: 4096 tokens: the server takes a level of effort") == 1
    strict = cli.run("run", "hi", "--setting", "thinking=4096", env={"TURNWRIGHT_STRICT_SETTINGS": "true"})
    assert strict.code == 2
    assert "cannot use these settings: thinking: 4096 tokens" in strict.err


def test_prompt_can_be_piped_in(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("done")
    cli.run("run", stdin="Tidy é\nup.\n")
    assert endpoint.requests[0].messages[-1] == {"role": "user", "content": "Tidy é\nup."}


def test_session_contains_earlier_turns(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Nice to meet you, Ada.").says("Ada.")
    cli.run("run", "I am Ada.", "--session", "s1")
    cli.run("run", "Who am I?", "--session", "s1")
    messages = [(message["role"], message["content"]) for message in endpoint.requests[1].messages[-3:]]
    assert messages == [("user", "I am Ada."), ("assistant", "Nice to meet you, Ada."), ("user", "Who am I?")]


def test_busy_session_names_the_turn(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(None)
    busy = cli.start("run", "hi", "--session", "s1", "--json")
    turn = busy.until("step_started")["turn"]
    done = cli.run("run", "hi", "--session", "s1")
    assert (done.code, done.out) == (2, ""), done.err
    assert f"session 's1' is busy with turn {turn}" in done.err
    busy.interrupt().done()


def test_continuation_keeps_agent_transcript_and_tools(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write("mine.py", TOOLS)
    endpoint.calls(("loud", {})).says("One step was not enough.").calls(("much", {})).says("Still not.")
    first = cli.run("run", "Work", "--agents", cli.agent("steps: 1"), "--tools", "mine.py", "--json")
    assert (first.code, first.last["reason"]) == (4, "step_cap")
    (cli.folder / "AGENTS.md").unlink()
    second = cli.run("run", "--continue", first.turn, "--json")
    assert (second.code, second.last["reason"], second.last["steps"]) == (4, "step_cap", 1)
    started = second.events[0]
    assert (started["agent"]["name"], started["prompt"], started["continue_from"]) == ("Tester", "Go on.", first.turn)
    assert "One step was not enough." in str(endpoint.requests[2].messages)
    assert second.of("call_started")[0]["call"] == "call00001"


def test_continue_command_after_a_cap_can_be_copied(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("list_files", {})).says("Not done.").says("Done now.")
    store = "sqlite:///other.db"
    capped = cli.run("run", "Work", "--steps", "1", "--store", store)
    command = r'^ +turnwright (run --continue \w+ --store sqlite:///other\.db --steps 2) "\.\.\."$'
    match = re.search(command, capped.out, re.MULTILINE)
    assert match is not None, capped.out
    done = cli.run(*match[1].split(), "Go on, please.")
    assert (done.code, "Done now." in done.out) == (0, True)


def test_tool_failures_become_results(cli: "Cli", endpoint: "Endpoint") -> None:
    """One raises, two take too long, one gives bytes, one a megabyte; one does not exist."""
    cli.write("mine.py", TOOLS)
    names = ("boom", "hang", "linger", "raw", "much", "nothing")
    endpoint.calls(*((name, {}) for name in names)).says("done")
    done = cli.run("run", "Work", "--tools", "mine.py", "--json")
    assert (done.code, done.last["tool_calls"]) == (0, 5)
    results = {
        name: message["content"] for name, message in zip(names, endpoint.requests[1].messages[-6:], strict=True)
    }
    assert results["boom"] == "RuntimeError: it broke"
    assert results["hang"] == "hang did not finish within 0.2 s; part of its work may be done"
    assert results["linger"] == "linger did not finish within 0.2 s; part of its work may be done"
    assert results["raw"] == "<3 bytes of binary data>"
    assert results["much"] == "x" * 2**16 + "\n[cut: the first 65536 of 1048576 bytes; ask for less]"
    assert "there is no tool 'nothing'" in results["nothing"]


def test_tool_output_does_not_mix_with_event_lines(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write("mine.py", TOOLS)
    endpoint.calls(("loud", {})).says("done")
    done = cli.run("run", "Work", "--tools", "mine.py", "--json")
    assert done.last["outcome"] == "finished"
    for where in ("module", "tool", "program"):
        assert f"hello from the {where}\n" in done.err


def test_module_of_tools_is_found_in_the_working_folder(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write("mine.py", TOOLS)
    endpoint.calls(("raw", {})).says("done")
    assert cli.run("run", "Work", "--tools", "mine", "--json").last["tool_calls"] == 1


def test_built_in_tools_stay_below_the_root(cli: "Cli", endpoint: "Endpoint") -> None:
    (cli.folder / "project").mkdir()
    cli.write("secret.txt", "a private word")
    cli.write("project/open.txt", "a public word")
    endpoint.calls(("read_file", {"path": "open.txt"}), ("read_file", {"path": "../secret.txt"})).says("done")
    done = cli.run("run", "Read", "--root", "project", "--json")
    assert done.code == 0
    inside, outside = (message["content"] for message in endpoint.requests[1].messages[-2:])
    assert "a public word" in inside
    assert "a private word" not in outside
    assert "outside the folder that you may read" in outside


@pytest.mark.parametrize("terminal", [False, True], ids=["plain", "live"])
def test_escape_sequences_are_shown_and_not_executed(cli: "Cli", endpoint: "Endpoint", *, terminal: bool) -> None:
    """In the model's text, in its tools' names and arguments, and in results."""
    cli.write("mine.py", TOOLS)
    calls: list[tuple[str, Json]] = [("escape", {}), ("read_file", {"path": ESCAPES}), (f"x{ESCAPES}", {})]
    endpoint.calls(*calls).says(f"Look: {ESCAPES}")
    env = {"TERM": "xterm", "COLUMNS": "200"}
    done = cli.run("run", f"Show {ESCAPES}", "--tools", "mine.py", terminal=terminal, env=env)
    assert done.code == 0
    for obeyed in ("\x1b]", "\x07", "\x1b[2J", "\x9b"):
        assert obeyed not in done.out
    assert r"Look: \x1b]0;owned" in done.out
    assert ("\x1b" in done.out) is terminal


def test_live_screen_keeps_finished_lines(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("list_files", {})).says("Nothing here.")
    done = cli.run("run", "What is here?", terminal=True, env={"TERM": "xterm", "COLUMNS": "120"})
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.out)
    for words in ("step 1 of 200", "list_files", "step 2 of 200", "Nothing here.", "Done in 2 steps (1 tool call, "):
        assert words in text


def test_live_screen_shows_an_answer_without_a_step(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Only words.")
    done = cli.run("run", "Talk", "--steps", "0", terminal=True, env={"TERM": "xterm", "COLUMNS": "120"})
    assert "Only words." in done.out.rpartition("Done in 0 steps")[0]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--json"], []], ids=["json", "plain"])
def test_reader_leaving_early_does_not_stop_the_turn(cli: "Cli", endpoint: "Endpoint", flags: list[str]) -> None:
    """`turnwright run ... | head -1`: no traceback, and the turn is there to be shown."""
    endpoint.says("".join(f"Part {part} of a long story.\n" for part in range(6_000)))
    command = [sys.executable, "-m", "turnwright", "run", "Tell", *flags]
    with subprocess.Popen(
        command, cwd=cli.folder, env=cli.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "turn" in process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 0
    assert err == "turnwright: the output cannot be written (Broken pipe); the turn continues\n"
    assert cli.run("turns", "--json").last["outcome"] == "finished"


@pytest.mark.slow
def test_run_works_with_closed_stdout(cli: "Cli", endpoint: "Endpoint") -> None:
    """Standard output may be closed from the beginning."""
    endpoint.says("done")
    for flags in ((), ("--json",)):
        command = [sys.executable, "-m", "turnwright", "run", "hi", *flags]
        script = 'exec "$@" >&-'
        done = subprocess.run(
            ["/bin/sh", "-c", script, "sh", *command], cwd=cli.folder, env=cli.env, stderr=subprocess.PIPE, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full disk to write to")
@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("config",)])
def test_full_disk_is_no_bug(cli: "Cli", arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "turnwright", *arguments]
        done = subprocess.run(command, cwd=cli.folder, env=cli.env, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr.decode()) == (
        1,
        "turnwright: the output cannot be written (No space left on device)\n",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["audit", "-"], 2, "-: it is empty"),
        (["replay", "-"], 6, "the journal is empty"),
        (["decode", "--api", "openai-chat", "-"], 0, '"file": "-"'),
        (["mcp", "login", "x", "--mcp", "servers.json"], 2, "the login failed"),
    ],
)
def test_closed_stdin_is_empty(cli: "Cli", command: list[str], code: int, words: str) -> None:
    cli.write("servers.json", '{"mcpServers": {"x": {"url": "http://127.0.0.1:9/mcp"}}}')
    shell = ["/bin/sh", "-c", 'exec "$@" <&- 2>&1', "sh", sys.executable, "-m", "turnwright", *command]
    done = subprocess.run(shell, cwd=cli.folder, env=cli.env, stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, "this is a bug" in done.stdout, words in done.stdout) == (code, False, True), done.stdout


@pytest.mark.slow
def test_ascii_terminal_gets_substitute_characters(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Grüße \u2192 \ud83d")
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = cli.run("run", "hi", env=ascii_only, fresh=True)
    assert (done.code, "Gr??e ?" in done.out) == (0, True)


@pytest.mark.slow
def test_installed_command_equals_the_module(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("done")
    command = Path(sys.executable).with_name("turnwright")
    done = subprocess.run(
        [command, "run", "hi", "--json"], cwd=cli.folder, env=cli.env, capture_output=True, check=True
    )
    assert done.stdout.splitlines()[-1].startswith(b'{"type": "turn_ended"')


def test_run_leaves_only_the_store_behind(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("done")
    cli.run("run", "hi")
    assert [path.name for path in cli.folder.iterdir()] == ["turns.db"]


def test_answer_is_validated_by_the_schema_file(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write("schema.json", '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}')
    endpoint.calls(("final_result", {"n": "x"})).calls(("final_result", {"n": 5}))
    done = cli.run("run", "Count", "--output-schema", "schema.json")
    assert (done.code, '{"n": 5}' in done.out) == (0, True)
    assert "n: 'x' is not of type 'integer'" in str(endpoint.requests[1].body["messages"])


def test_invalid_schema_file_is_named(cli: "Cli") -> None:
    cli.write("schema.json", "[]")
    done = cli.run("run", "Count", "--output-schema", "schema.json")
    assert (done.code, done.err) == (2, "turnwright: --output-schema schema.json: a JSON Schema is a JSON object\n")
    cli.write("deep.json", "[" * 100_000)
    done = cli.run("run", "Count", "--output-schema", "deep.json")
    deep = "turnwright: --output-schema deep.json: it nests too many lists and objects\n"
    assert (done.code, done.err) == (2, deep)
    for name, why in (("nope.json", "No such file or directory"), ("/dev/zero", "not a regular file, but a pipe")):
        done = cli.run("run", "Count", "--output-schema", name)
        assert (done.code, f"turnwright: --output-schema {name}: {why}" in done.err) == (2, True)


def test_unused_agent_file_is_named(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("hi").says("hi").says("hi")
    cli.write("AGENTS.md", "# Rules\n\n---\n\nname: no agent\n")
    assert not cli.run("run", "hi").err
    cli.write("AGENTS.md", "---\ndescription: Pays.\nname: Payer\nhooks: [raises]\n---\nPay.\n")
    done = cli.run("run", "hi")
    assert (done.code, done.err) == (0, "turnwright: AGENTS.md is not used: --agents AGENTS.md runs its agent\n")
    cli.write("AGENTS.md", "---\nname: Payer\n---\nPay.\n")
    assert not cli.run("run", "--agents", "AGENTS.md", "hi").err


def test_address_for_a_model_without_address_is_refused(cli: "Cli") -> None:
    done = cli.run("run", "--model", "local", "--base-url", "http://127.0.0.1:1/v1", "hi")
    message = "turnwright: --base-url: model local takes no address: leave one of the two flags out\n"
    assert (done.code, done.err) == (2, message)


def test_schema_with_an_external_reference_is_refused_with_the_field(cli: "Cli") -> None:
    cli.write("schema.json", '{"type": "object", "properties": {"n": {"$ref": "https://example.com/n.json"}}}')
    done = cli.run("run", "Count", "--output-schema", "schema.json")
    assert done.code == 2
    message = "turnwright: --output-schema schema.json: properties.n.$ref: 'https://example.com/n.json' is in "
    assert done.err.startswith(message)


CLERK = '''
from turnwright import ToolContext, tool

async def make_deps(turn):
    return turn.metadata["user"]

@tool
def whose(ctx: ToolContext) -> str:
    """Return the user."""
    return ctx.deps
'''


def test_metadata_reaches_make_deps_templates_and_continuations(cli: "Cli", endpoint: "Endpoint") -> None:
    tools = cli.write("clerk.py", CLERK)
    cli.write("AGENTS.md", "---\nname: Clerk\nsteps: 1\n---\nServe {{ metadata.user }}, number {{ metadata.id }}.\n")
    endpoint.calls(("whose", {})).says("Your steps are used up.")
    flags = ("--metadata", "user=ann", "--metadata", "id=7")
    done = cli.run("run", "Who am I?", "--agents", "AGENTS.md", "--tools", tools, *flags, "--json")
    assert [event["result"] for event in done.of("call_settled")] == ["ann"]
    assert "Serve ann, number 7." in str(endpoint.requests[0].body)
    endpoint.calls(("whose", {})).says("Again.")
    again = cli.run("run", "--continue", done.turn, "--json")
    assert [event["result"] for event in again.of("call_settled")] == ["ann"]


def test_error_of_make_deps_names_its_line(cli: "Cli") -> None:
    tools = cli.write("clerk.py", CLERK)
    done = cli.run("run", "Who am I?", "--tools", tools)
    assert done.code == 2
    assert "deps: make_deps raised KeyError: 'user': the turn stays as it is (" in done.err
    assert done.err.endswith("clerk.py, line 5)\n")


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ("user", "--metadata user: write it as KEY=VALUE, such as user=ann"),
        ("tools=x.py", "--metadata tools: the command line saves a flag under this key: choose another key"),
    ],
)
def test_metadata_without_a_value_or_under_a_flag_key_is_refused(cli: "Cli", metadata: str, why: str) -> None:
    done = cli.run("run", "hi", "--metadata", metadata)
    assert done.code == 2
    assert why in done.err


def test_excessive_steps_are_reported_at_reading(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    done = cli.run("run", "hi", "--steps", "500")
    assert (done.code, done.err.splitlines()[0]) == (0, "turnwright: --steps 500: a turn takes at most 200 steps")
    cli.agent("steps: 300")
    read = cli.run("run", "hi", "--agent", "Tester")
    assert read.code == 0
    warning = (
        "AGENTS.md:3: agent 'Tester': steps: is 300, and a turn takes at most 200 steps: continue it in a new turn"
    )
    assert warning in read.err
    for err in (done.err, read.err):
        assert err.count("a turn takes at most") == err.count("turnwright run --continue TURN`") == 1


def test_non_numeric_setting_is_refused_in_a_clause(cli: "Cli") -> None:
    done = cli.run("run", "hi", "--setting", "temperature=zero")
    assert (done.code, done.err) == (2, "turnwright: --setting: temperature: must be a valid number, not 'zero'\n")


def test_each_mistake_of_a_file_begins_with_the_program_name(cli: "Cli") -> None:
    cli.write(
        "AGENTS.md", "---\nname: A\n---\nHelp.\n---\nname: B\nsteps: -1\n---\nHelp.\n\n---\nname: C\nsteps: -1\n---\n"
    )
    done = cli.run("run", "hi", "--agent", "A")
    assert done.code == 2
    assert len(done.err.splitlines()) > 1
    assert all(line.startswith("turnwright: AGENTS.md:") for line in done.err.splitlines())
