"""`fuzz-your-agents.md` and `rehearse-an-agent.md`: their files, commands and outputs are real."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnwright_testing import INVARIANTS, Driven

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = "".join(
    (GUIDES / f"{page}.md").read_text(encoding="utf-8") for page in ("fuzz-your-agents", "rehearse-an-agent")
)

#: The agent and the tools of the guide.
AGENTS = """\
---
name: Clerk
steps: 6
budget: 10
---
You book rooms. Ask before you cancel anything.
"""
ROOMS = '''\
from turnwright import tool

BOOKED: dict[str, str] = {}


@tool(idempotent=True)
def find_booking(guest: str) -> str:
    """Find the room of a guest."""
    return BOOKED.get(guest, "no booking")


@tool
async def book(guest: str, room: int, nights: int = 1) -> str:
    """Book a room."""
    BOOKED[guest] = f"room {room}, {nights} nights"
    return "booked"


@tool(needs_approval=True)
async def cancel(guest: str) -> str:
    """Cancel a booking."""
    return BOOKED.pop(guest, "no booking")
'''
#: The tool of `fuzz-your-agents.md` whose approval check assumes an argument.
REFUNDS = '''\
from collections.abc import Mapping

from pydantic import JsonValue

from turnwright.tools import Ask, Tool, ToolContext
from turnwright_states import InterruptKind


class Refund(Tool):
    """Ask a person first when many nights are refunded."""

    def asks(
        self, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> Ask | None:
        nights = arguments["nights"]
        many = isinstance(nights, int) and nights > 3
        return Ask(InterruptKind.APPROVAL) if many and not context.answers else None

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> str:
        return f"{values['nights']} nights refunded"


refund = Refund(
    name="refund",
    description="Refund nights to a guest, one by default.",
    parameters={
        "type": "object",
        "properties": {"guest": {"type": "string"}, "nights": {"type": "integer"}},
    },
)
'''


def block(heading: str) -> str:
    """The code block below a comment."""
    match = re.search(rf"<!-- {re.escape(heading)} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None, heading
    return match[1]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], cwd=folder, capture_output=True, text=True, check=False)


def pytest_in(folder: Path) -> subprocess.CompletedProcess[str]:
    return run(folder, "pytest", "-q", "-p", "no:cacheprovider")


def without_figures(line: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "N", line)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the page works in."""
    (tmp_path / "AGENTS.md").write_text(AGENTS)
    (tmp_path / "rooms.py").write_text(ROOMS)
    (tmp_path / "refunds.py").write_text(REFUNDS)
    (tmp_path / "desk.py").write_text(block("file: desk.py"))
    (tmp_path / "test_compaction.py").write_text(block("file: test_compaction.py"))
    return tmp_path


def test_command_prints_the_output_of_the_page(folder: Path) -> None:
    command, *promised = block("output of the command, figures aside").splitlines()
    assert command == "$ turnwright fuzz --agents AGENTS.md --tools rooms.py --seed 1"
    ran = run(folder, *command.split()[1:], "--examples", "10")
    output = [without_figures(line) for line in ran.stdout.splitlines()]
    assert (ran.returncode, ran.stderr) == (0, "")
    assert output[: len(promised)] == [without_figures(line) for line in promised]
    claims = [invariant(Driven(facts=())).claim for invariant in INVARIANTS]
    assert re.findall(r"^  holds: (.*) \(in", ran.stdout, re.MULTILINE) == claims


def test_rehearsal_prints_the_fault_of_the_page(folder: Path) -> None:
    """The test on standard output fails with it; then the mended desk is green, and warns of nothing."""
    command, promised = block("first line of the rehearsal, names aside").splitlines()
    arguments, _, file = command.removeprefix("$ ").partition(" > ")
    ran = run(folder, *arguments.split())
    names = re.compile(r"(ann|bob) canceled \w\d$", re.MULTILINE)
    lines = [line for line in ran.stderr.splitlines() if not line.startswith(("rehearsing", "reducing"))]
    assert (ran.returncode, names.sub("X", lines[0])) == (1, names.sub("X", promised))
    (folder / file).write_text(ran.stdout)
    assert promised.removeprefix("violated: ").rpartition(": ")[0] in run(folder, "pytest", "-q", file).stdout
    mend(folder / "desk.py", r"if order not in CUSTOMERS:", 'if CUSTOMERS.get(order) != ctx.metadata["customer"]:')
    green = run(folder, *arguments.split(), "--examples", "40", "--strict")
    assert (green.returncode, "warning: " in green.stdout) == (0, False)


def test_failure_becomes_a_test_and_both_page_mistakes_are_fixed(folder: Path) -> None:
    """In one go, for each run of pytest takes seconds to begin."""
    command, *promised = block("standard error of the command").splitlines()
    arguments, _, file = command.removeprefix("$ ").partition(" > ")
    ran = run(folder, *arguments.split())
    assert (ran.returncode, ran.stderr.splitlines()[: len(promised)]) == (1, promised)
    assert ran.stdout.endswith(block("end of the standard output of the command"))
    (folder / file).write_text(ran.stdout)

    failing = pytest_in(folder)
    assert "\n2 failed in " in failing.stdout
    (unpaired,) = re.findall(r"fails with `(.*)`", PAGE)
    for line in (f"InvariantViolatedError: {promised[0]}", unpaired, *block("output of the test").splitlines()):
        assert line in failing.stdout

    (approval,) = re.findall(r"`(@tool\(needs_approval=.*\))`", PAGE)
    (folder / "refunds.py").write_text(
        f"from turnwright import tool\n\n\n{approval}\nasync def refund(nights: int = 1) -> str:\n"
        '    """Refund nights."""\n    return f"{nights} nights refunded"\n'
    )
    mend(folder / "test_compaction.py", r"async def compact.*?\n\n\n", block("instead, in test_compaction.py") + "\n\n")
    assert "\n2 passed in " in pytest_in(folder).stdout


def mend(file: Path, wrong: str, right: str) -> None:
    text, mended = re.subn(wrong, right, file.read_text(), flags=re.DOTALL)
    assert mended == 1
    file.write_text(text)
