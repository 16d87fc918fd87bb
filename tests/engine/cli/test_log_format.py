"""`--log-format` and `--log-level`: a log on stderr if asked for, and an unchanged stdout."""

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from turnwright.cli.app import PLACES

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Done, Endpoint


@pytest.fixture
def run(cli: "Cli", endpoint: "Endpoint") -> "list[str]":
    """A script that runs one turn with a model that answers at once."""
    endpoint.says("Hello.")
    return ["run", "--base-url", endpoint.url, "--store", f"sqlite:///{cli.folder / 'turns.db'}", "Say hello"]


def lines(done: "Done") -> list[dict[str, Any]]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.err.splitlines()]


def test_default_logs_nothing(cli: "Cli", run: list[str]) -> None:
    done = cli.run(*run)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("spelled", [("--log-format", "json"), ("--log-format=json",), ("--log-format", "JSON")])
def test_json_log_is_an_object_a_line_on_stderr(cli: "Cli", run: list[str], spelled: tuple[str, ...]) -> None:
    entries = lines(cli.run(run[0], *spelled, *run[1:]))
    assert {"time", "level", "logger", "message", "turn", "step", "state"} <= set(entries[0])
    last = {name: entries[-1].get(name) for name in ("state", "outcome", "reason", "step", "level")}
    assert last == {"state": "FINISHED", "outcome": "finished", "reason": "answered", "step": 1, "level": "INFO"}


def test_log_flags_may_precede_the_command(cli: "Cli", run: list[str]) -> None:
    assert lines(cli.run("--log-level", "info", "--log-format=json", *run))[-1]["state"] == "FINISHED"


def test_log_settings_may_come_from_the_environment(cli: "Cli", run: list[str]) -> None:
    env = {"TURNWRIGHT_LOG_FORMAT": "json", "TURNWRIGHT_LOG_LEVEL": "debug"}
    assert "DEBUG" in {line["level"] for line in lines(cli.run(*run, env=env))}


def test_log_flags_after_the_command_win_over_earlier_and_environment(cli: "Cli", run: list[str]) -> None:
    env = {"TURNWRIGHT_LOG_FORMAT": "text"}
    assert lines(cli.run("--log-format", "json", *run, env=env))
    assert lines(cli.run("--log-format", "text", *run, "--log-format", "json"))


def test_log_leaves_stdout_unchanged(cli: "Cli", run: list[str]) -> None:
    done = cli.run(*run, "--json", "--log-format", "json", "--log-level", "debug")
    assert done.last["type"] == "turn_ended"
    assert lines(done)
    assert all("logger" not in event for event in done.events)


def test_text_is_a_line_with_moment_level_and_logger(cli: "Cli", run: list[str]) -> None:
    done = cli.run(*run, "--log-level", "info")
    moment, level, logger, text = done.err.splitlines()[-1].split(" ", 3)
    assert (moment[-1], level, logger) == ("Z", "INFO", "turnwright.journal.turn_journal:")
    assert text.endswith("ended: finished: answered")


def test_log_level_excludes_lower_levels(cli: "Cli", run: list[str]) -> None:
    assert lines(cli.run(*run, "--log-format", "json", "--log-level", "warning")) == []


def test_user_messages_are_json_too(cli: "Cli") -> None:
    done = cli.run("show", "nobody", "--store", "memory:", "--log-format", "json")
    assert done.code == 2
    (entry,) = map(json.loads, done.err.splitlines())
    assert (entry["level"], entry["logger"]) == ("WARNING", "turnwright.cli")
    assert "nobody" in entry["message"]


@pytest.mark.parametrize(
    "arguments",
    [("turns", "--log-format", "xml"), ("--log-format", "xml", "turns"), ("turns", "--log-level", "loud")],
)
def test_wrong_value_is_a_mistake_listing_the_choices(cli: "Cli", arguments: tuple[str, ...]) -> None:
    done = cli.run(*arguments)
    assert done.code == 2
    assert all(f"'{choice}'" in done.err for choice in (("text", "json") if "xml" in arguments else ("debug", "info")))


def test_wrong_value_in_the_environment_names_the_variable(cli: "Cli") -> None:
    done = cli.run("turns", env={"TURNWRIGHT_LOG_FORMAT": "yaml"})
    assert done.code == 2
    assert "TURNWRIGHT_LOG_FORMAT" in done.err


def test_empty_variable_counts_as_unset(cli: "Cli", run: list[str]) -> None:
    done = cli.run(*run, env={"TURNWRIGHT_LOG_FORMAT": "", "TURNWRIGHT_LOG_LEVEL": ""})
    assert (done.code, done.err) == (0, "")


def test_help_describes_both_log_options(cli: "Cli") -> None:
    help_text = cli.run("--help").out
    assert all(words in help_text for words in ("--log-format", "--log-level", "TURNWRIGHT_LOG_FORMAT"))


@pytest.mark.parametrize("name", PLACES)
def test_every_command_accepts_both_log_options(cli: "Cli", name: str) -> None:
    help_text = cli.run(name, "--help").out
    assert "--log-format" in help_text
    assert "--log-level" in help_text


def test_log_contains_no_key(cli: "Cli", endpoint: "Endpoint") -> None:
    """The fixture fails the run if it is; here the error of a server contains the key."""
    endpoint.plays(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 34\r\n\r\nbad key sk-secret-0123456789abcdef\n")
    done = cli.run("run", "--base-url", endpoint.url, "Hi", "--log-format", "json", "--log-level", "debug")
    assert (done.code, json.loads(done.err.splitlines()[-1])["reason"]) == (1, "model_error")


SPEAKS = """
import logging, os, warnings

from turnwright import tool


@tool
async def look() -> str:
    \"\"\"Look somewhere.\"\"\"
    warnings.warn(os.environ["SOME_TOKEN"], stacklevel=1)
    logging.getLogger("mine").warning("the token is %s", os.environ["SOME_TOKEN"])
    return "nothing"
"""


def test_python_warning_is_a_json_line(cli: "Cli", endpoint: "Endpoint", run: list[str]) -> None:
    cli.write("mine.py", SPEAKS)
    endpoint.forgets().calls(("look", {})).says("Nothing.")
    done = cli.run(*run, "--tools", "mine.py", "--log-format", "json", env={"SOME_TOKEN": "told-to-nobody"})
    assert [line["message"].count("***") for line in lines(done) if line["level"] == "WARNING"] == [1, 1]


def test_text_log_shows_no_secret_of_the_environment(cli: "Cli", endpoint: "Endpoint", run: list[str]) -> None:
    cli.write("mine.py", SPEAKS)
    endpoint.forgets().calls(("look", {})).says("Nothing.")
    done = cli.run(*run, "--tools", "mine.py", "--log-format", "text", env={"SOME_TOKEN": "told-to-nobody"})
    assert "mine: the token is ***" in done.err


FORMATS = [(), ("--log-format", "text"), ("--log-format", "json")]
TOLD = "told-to-nobody"
#: What a model says to a tool whose approval check quotes it: a terminal's orders, and a second line.
FORGED = "\x1b[2J\x7f\x9b1m\u202e\r\nturnwright: all is well\nsecond"

#: Secrets of others, by their forms, and one that has none.
FORMS = (
    "sk-0123456789abcdef0123",
    "ghp_0123456789abcdefghij0123",
    "Bearer 0123456789abcdef0123",
    "postgresql://ann:hunter2@db.example/turns",
    "password=hunter2-x",
    "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
    "the api_key may write",
)

RAISES = """
import logging, os, warnings

from turnwright import tool


def check(words):
    raise ValueError(f"{os.environ['MY_API_KEY']} {words}")


@tool(needs_approval=check)
async def erase(words: str) -> str:
    \"\"\"Erase everything.\"\"\"
    return "erased"


@tool
async def look(words: str) -> str:
    \"\"\"Look somewhere.\"\"\"
    warnings.warn(words, stacklevel=1)
    logging.getLogger("mine").warning("%d", words)
    try:
        raise RuntimeError(words)
    except RuntimeError:
        logging.getLogger("mine\\nforged: its name").exception("it failed")
    return "nothing"
"""


@pytest.fixture
def raises(cli: "Cli", endpoint: "Endpoint", run: list[str]) -> list[str]:
    """A script that runs a turn whose tool raises an error with the model's text and a key."""
    cli.write("mine.py", RAISES)
    endpoint.forgets().calls(("erase", {"words": FORGED})).says("It was refused.")
    return [*run, "--tools", "mine.py"]


def logged(cli: "Cli", code: int, *arguments: str) -> str:
    """The log of such a run. It is not a fixture's run, because JSON has a traceback as text."""
    env = {**cli.env, "MY_API_KEY": TOLD}
    ran = cli.python.run("-m", "turnwright", *arguments, folder=cli.folder, env=env)
    err = ran.stderr
    assert (ran.returncode, TOLD in err) == (code, False), err
    # Of all that is not a printable character it holds the ends of its lines.
    assert [line for line in err.removesuffix("\n").split("\n") if not line.isprintable()] == []
    return err


@pytest.mark.parametrize("spelled", FORMATS)
def test_model_text_in_a_log_is_escaped_and_stays_on_the_line(
    cli: "Cli", raises: list[str], spelled: tuple[str, ...]
) -> None:
    """And a secret of the environment is not in it, which each of these looks for."""
    err = logged(cli, 0, *raises, *spelled)
    (line,) = [line for line in err.splitlines() if "all is well" in line]
    assert "ValueError: *** " in line
    assert not line.startswith("turnwright: all is well")
    assert all(mark in line for mark in ("1b[2J", "7f", "9b1m", "u202e", "\\r\\n"))


def test_warning_is_a_single_line_by_default(cli: "Cli", raises: list[str]) -> None:
    err = logged(cli, 0, *raises)
    warning = "turnwright: the approval check of tool erase raised; its call is refused: ValueError: *** "
    assert (err.startswith(warning), err.count("\n")) == (True, 1)
    assert err.endswith("mine.py, line 8)\n"), "the user's own line"


@pytest.mark.parametrize("spelled", FORMATS)
def test_traceback_python_warning_and_unfit_record_are_single_lines(
    cli: "Cli", endpoint: "Endpoint", run: list[str], spelled: tuple[str, ...]
) -> None:
    cli.write("mine.py", RAISES)
    endpoint.forgets().calls(("look", {"words": f"{FORGED} {TOLD}"})).says("Nothing.")
    level = ("--log-level", "warning") if spelled else ()
    warned, unfit, error = logged(cli, 0, *run, "--tools", "mine.py", *level, *spelled).splitlines()
    assert "UserWarning: " in warned
    assert "a record of the logger mine cannot be written (TypeError)" in unfit
    assert "RuntimeError: " in error


@pytest.mark.parametrize("spelled", FORMATS)
def test_text_in_the_form_of_a_secret_is_hidden(
    cli: "Cli", endpoint: "Endpoint", raises: list[str], spelled: tuple[str, ...]
) -> None:
    endpoint.forgets().calls(("erase", {"words": " and ".join(FORMS)})).says("It was refused.")
    err = logged(cli, 0, *raises, *spelled)
    masked = "*** and *** and Bearer *** and postgresql://ann:***@db.example/turns and password=*** and *** and ***"
    assert f"{masked} and the api_key may write" in err


SAYS = r"""
import os
from turnwright.cli import process

process.prepare()
process.say("two\x1b[2J\nlines")
process.say_bug(ValueError("it\x1b[2J\nbroke: " + os.environ["MY_API_KEY"]))
"""


def test_user_message_is_escaped_and_a_bug_report_hides_secrets(cli: "Cli") -> None:
    env = {**cli.env, "MY_API_KEY": TOLD}
    output = subprocess.run([sys.executable, "-c", SAYS], env=env, capture_output=True, text=True, check=True).stderr
    bug = "turnwright: this is a bug, please report it: ValueError: it\\x1b[2J\\nbroke: ***"
    assert output.splitlines() == ["turnwright: two\\x1b[2J", "turnwright: lines", bug]


def test_worker_does_not_log_silenced_messages(cli: "Cli", endpoint: "Endpoint") -> None:
    """Loggers that a worker silences stay silent, because its output has the same messages."""
    endpoint.says("Hello.")
    store = f"sqlite:///{cli.folder / 'turns.db'}"
    child = cli.start("worker", "--store", store, "--base-url", endpoint.url, "--json", "--log-format", "json")
    child.until("started")
    child.terminate()
    assert lines(child.done()) == []
