"""The guides that test a store, a model, a trace and a loop: examples run, and the format is the one that is read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from turnwright_audit import traces
from turnwright_states.verdict import Verdict

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(page: str, language: str) -> list[str]:
    text = (GUIDES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


(STORE,) = blocks("test-a-store-or-model.md", "python")
(GUARD,) = (block for block in blocks("bound-your-loop.md", "python") if "LoopGuard(" in block)
PAGE = (GUIDES / "audit-your-runs.md").read_text(encoding="utf-8")
(TRACE,) = blocks("audit-your-runs.md", "python")
(LINES,) = blocks("audit-your-runs.md", "json")


def printed(code: str) -> list[str]:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def test_store_example_passes(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(STORE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert re.search(r"\d\d passed", ran.stdout)


def test_trace_of_the_page_holds() -> None:
    assert {check.verdict for check in traces.check_trace(LINES.splitlines())} == {Verdict.HOLDS}


def test_checker_example_prints_the_output_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in LINES.splitlines(keepends=True) if '"event": "tool_' not in line]
    (tmp_path / "t1.jsonl").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    exec(TRACE, {})  # noqa: S102 (our own page)
    verdict, *violated = capsys.readouterr().out.splitlines()
    (detail,) = re.findall(r"the detail `(.+?)`", PAGE)
    assert f"it prints `{verdict}`" in PAGE
    assert detail in "\n".join(violated)


def test_guard_example_prints_the_output_of_the_page() -> None:
    (text,) = re.findall(r"print\(may.outcome.*  # (.+)", GUARD)
    assert printed(GUARD) == ["not executed: the tool budget is spent", text]


EVENTS: tuple[type[BaseModel], ...] = (
    *(
        traces.TraceTurnStarted,
        traces.TraceModelCalled,
        traces.TraceModelReplied,
        traces.TraceModelFailed,
        traces.TraceToolStarted,
    ),
    *(
        traces.TraceToolRetried,
        traces.TraceToolResult,
        traces.TraceMessage,
        traces.TracePaused,
        traces.TraceResumed,
        traces.TraceTurnEnded,
    ),
)


@pytest.mark.parametrize("event", EVENTS)
def test_table_of_events_names_every_field(event: type[BaseModel]) -> None:
    name = event.model_fields["event"].default
    (row,) = (line for line in PAGE.splitlines() if line.startswith("|") and f"`{name}`" in line.split("|")[1])
    fields = set(event.model_fields) - {"event", "turn", "data"}
    assert {field for field in fields if f"`{field}`" not in row} == set()
