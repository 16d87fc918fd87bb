"""The examples run, offline and without a warning, and print what they promise."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.servers.postgres_server import PostgresServer

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(example: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / example), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return ran.stdout.splitlines()


def test_hand_written_loop_is_stopped_with_a_reason() -> None:
    lines = printed("guarded_loop.py")
    assert [line for line in lines if not line.startswith("          ")] == [
        "runs away",
        "  before: no end after 500 model calls",
        "  after:  cap_hit: step_cap, with 5 tool calls and 6 model calls",
        "goes in circles",
        "  before: no end after 500 model calls",
        "  after:  doom_loop: doom_loop, with 6 tool calls and 7 model calls",
        "wants everything",
        "  before: no end after 500 model calls",
        "  after:  cap_hit: budget, with 20 tool calls and 4 model calls",
    ]
    assert lines[3].strip() == "model: I have seen 12 messages, and am not done."


@pytest.mark.skipif(find_spec("procrastinate") is None, reason="needs procrastinate")
def test_queue_in_postgresql_drives_turns() -> None:
    reason = PostgresServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    with PostgresServer(fsync=False) as server:
        assert printed("postgres_queue.py", server.new_database()) == [
            "PAUSED: erase {'path': 'a.txt'}",
            "finished: It is gone.",
        ]


def test_turns_of_one_customer_share_a_budget() -> None:
    """Two shares are reserved at once. What they leave pays for the third request, under its first id."""
    assert printed("shared_budget.py") == [
        "['Done.', 'Done.', 'no money left'] left: 0.000",
        "spent: {'request-1': 0.007, 'request-2': 0.007} left: 0.016",
        "Done. left: 0.000",
    ]


def test_custom_loop_pauses_crashes_and_ends_without_asyncio() -> None:
    """Three processes, one journal: what had started when the second died is not run again."""
    *lines, journal, asyncio = printed("own_loop.py")
    assert lines == [
        "process 1: waits for approval-1",
        "process 2: was answered, and died in delete",
        "process 3: cap_hit, step_cap at 2 steps",
    ]
    assert journal.split().count("call_started") == 1
    assert journal.split()[-1] == "turn_ended"
    assert asyncio == "asyncio:   not loaded"


@pytest.mark.skipif(find_spec("trio") is None, reason="needs trio: pip install 'turnwright[examples]'")
def test_deadline_under_trio_ends_a_sleeping_tool() -> None:
    ended, facts = printed("under_trio.py")
    assert ended == "cap_hit, deadline at 1 steps"
    kinds = [kind for kind in facts.split() if kind != "notice"]
    assert kinds.count("call_settled") == 3
    assert kinds[-4:] == ["step_finished", "stopping", "concluded", "turn_ended"]


@pytest.mark.skipif(find_spec("langgraph") is None, reason="needs LangGraph: pip install 'turnwright[examples]'")
def test_langgraph_node_runs_a_turn_and_returns_the_reason() -> None:
    """An approved call runs once, though LangGraph runs its nodes again when it resumes."""
    files = ["old1.log", "old2.log", "old3.log", "old4.log"]
    assert printed("langgraph_node.py") == [
        *(f"asked:    delete_file({{'path': '{file}'}})" for file in files),
        f"ran:      {' '.join(files)}",
        "outcome:  cap_hit step_cap handed over",
        "model:    I deleted 4 files, and there are more.",
    ]
