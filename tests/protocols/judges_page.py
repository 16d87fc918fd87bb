"""Runs the judges of all protocols, and puts their verdicts into the page of judges."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.protocols.judge import HERE, NODE_MODULES, RECORDS

PAGE: Final = HERE.parents[1] / "docs" / "judges.md"
_BEGIN, _END = "<!-- judges -->", "<!-- /judges -->"
_HEAD: Final = ("protocol", "judge", "client", "passed", "refused", "failed")
#: Seconds for the tests of one judge.
_PATIENCE: Final = 1200


@dataclass(frozen=True, slots=True)
class Judge:
    """A judge of a protocol: the tests that run it, and its client, a package of npm or else of PyPI.

    With a `script`, its verdicts are what it prints; otherwise the tests are.
    """

    protocol: str
    page: str
    tests: str
    client: str
    script: str = ""

    @property
    def name(self) -> str:
        """The name in the table."""
        return self.script or self.tests

    @property
    def client_version(self) -> str:
        """The client with its version here."""
        if not self.script:
            return f"{self.client} {version(self.client)}"
        package = json.loads((NODE_MODULES / self.client / "package.json").read_text(encoding="utf-8"))
        return f"{package['name']} {package['version']}"


JUDGES: Final = (
    Judge("ACP 1", "acp.md", "acp/test_judge.py", "@agentclientprotocol/sdk", "acp_judge.mjs"),
    Judge("A2A 1.0, JSON-RPC", "a2a.md", "a2a/test_judge.py", "@a2a-js/sdk", "a2a_judge.mjs"),
    Judge("A2A 1.0, REST", "a2a.md", "a2a/test_judge.py", "@a2a-js/sdk", "a2a_judge.mjs --rest"),
    Judge("UI message stream", "ui-stream.md", "ui/test_judge.py", "ai", "ui_judge.mjs"),
    Judge("UI message stream", "ui-stream.md", "ui/test_judge.py", "ai-7", "ui_judge.mjs --ai-7"),
    Judge("AG-UI", "ag-ui.md", "ag_ui/test_judge.py", "@ag-ui/client", "ag_ui_judge.mjs"),
    Judge("Responses, chat completions", "responses.md", "responses/test_routes.py", "openai"),
    Judge("MCP, both eras", "mcp-server.md", "mcp/test_server.py", "mcp"),
)

Verdicts = Mapping[str, Sequence[str]]


def render_table(verdicts: Mapping[str, Verdicts], clients: Mapping[str, str]) -> str:
    """Return the table of all judges, from their verdicts and their clients, by the names of judges."""
    rows = [_HEAD, ("---",) * len(_HEAD), *(_row(judge, verdicts[judge.name], clients[judge.name]) for judge in JUDGES)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def put_into(page: str, table: str) -> str:
    """Return the page with the table between its marks. Raises `ValueError` for a page without marks."""
    new_page, count = re.subn(f"(?<={_BEGIN}\n).*?(?={_END})", lambda _: f"\n{table}\n", page, count=1, flags=re.DOTALL)
    if not count:
        raise ValueError(f"the page must have {_BEGIN} and {_END}, each on a line of its own")
    return new_page


def _row(judge: Judge, verdicts: Verdicts, client: str) -> tuple[str, ...]:
    names = {kind: [name for name, (verdict, _) in verdicts.items() if verdict == kind] for kind in ("PASS", "FAIL")}
    refused = [f"`{name}`: {why}" for name, (verdict, why) in verdicts.items() if verdict == "SKIP"]
    failed = ", ".join(f"`{name}`" for name in names["FAIL"])
    link = f"[{judge.protocol}]({judge.page})"
    return link, f"`{judge.name}`", client, str(len(names["PASS"])), "; ".join(refused) or "none", failed or "none"


def _judge_all(judges: Sequence[Judge], folder: Path) -> Iterator[tuple[str, Verdicts]]:
    """Run the tests of each judge once, and yield their verdicts by the judge's name."""
    environment = {**os.environ, RECORDS: str(folder)}
    for tests in dict.fromkeys(judge.tests for judge in judges):
        report = folder / "report.xml"
        command = [sys.executable, "-m", "pytest", str(HERE / tests), "-q", "-n", "0", f"--junitxml={report}"]
        subprocess.run(command, check=False, env=environment, cwd=HERE.parents[1], timeout=_PATIENCE)
        for judge in (judge for judge in judges if judge.tests == tests):
            record = folder / f"{judge.script}.json"
            yield judge.name, json.loads(record.read_text(encoding="utf-8")) if judge.script else _read_report(report)


def _read_report(report: Path) -> Verdicts:
    """Return the verdicts of tests."""
    cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 (written by our own tests)
    bad = ("failure", "error", "skipped")
    return {case.get("name", ""): ("FAIL" if any(child.tag in bad for child in case) else "PASS", "") for case in cases}


def main() -> int:
    """Judge all, write the page, and return 1 if anything failed."""
    with tempfile.TemporaryDirectory() as folder:
        verdicts = dict(_judge_all(JUDGES, Path(folder)))
    table = render_table(verdicts, {judge.name: judge.client_version for judge in JUDGES})
    PAGE.write_text(put_into(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    return int(any(verdict == "FAIL" for of_judge in verdicts.values() for verdict, _ in of_judge.values()))


if __name__ == "__main__":
    sys.exit(main())
