"""The examples run, offline and without a warning, and print what they promise."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from turnwright_states import REASONS, EndReason

EXAMPLES = Path(__file__).parent.parent / "examples"


def printed(example: str) -> list[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / example)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return ran.stdout.splitlines()


def test_a_hand_written_loop_is_stopped_with_a_reason() -> None:
    lines = printed("guarded_loop.py")
    assert [line for line in lines if not line.startswith("          ")] == [
        "runs away",
        "  before: no end after 500 model calls",
        "  after:  step_cap at 5 steps, 5 tool calls, 6 model calls",
        "goes in circles",
        "  before: no end after 500 model calls",
        "  after:  doom_loop at 6 steps, 6 tool calls, 7 model calls",
        "wants everything",
        "  before: no end after 500 model calls",
        "  after:  budget at 3 steps, 20 tool calls, 4 model calls",
    ]
    assert lines[3].strip().startswith("The turn took all the steps that it may take.")
    assert lines[4].strip() == "model: I have seen 11 messages, and am not done."


@pytest.mark.skipif(find_spec("langgraph") is None, reason="needs LangGraph: pip install 'turnwright[examples]'")
def test_a_graph_of_langgraph_is_stopped_with_a_reason() -> None:
    meaning = REASONS[EndReason.STEP_CAP]
    assert printed("guarded_langgraph.py") == [
        "before: an exception at the recursion limit of 25, and no answer",
        "after:  cap_hit, step_cap at 5 steps and 5 tool calls",
        f"        {meaning.means} {meaning.next}",
        "        model: I read 5 pages, and there are more.",
    ]
