"""The conformance suite of the authors of MCP, run against our server over HTTP."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.engine.tools.mcp.test_conformance import NODE, SUITE, suite_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        NODE is None or not SUITE.is_file(),
        reason="the conformance suite is not there: install npm, then `make test-all` fetches it",
    ),
]

#: Scenarios without tools of the suite's own, such as `test_simple_text`, which a server of agents does not have.
SCENARIOS: Final = (
    *("server-initialize", "server-session-lifecycle", "ping", "tools-list", "dns-rebinding-protection"),
    *("server-sse-multiple-streams", "input-required-result-unsupported-methods", "http-header-validation"),
)


@pytest.fixture
def address() -> Iterator[str]:
    """The address of the subject in a process of its own."""
    command = [sys.executable, "-m", "tests.protocols.mcp.http_server"]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as server:
        try:
            assert server.stdout is not None
            yield f"http://localhost:{int(server.stdout.readline())}/mcp"
        finally:
            server.kill()


def test_server_passes_the_scenarios(address: str, tmp_path: Path) -> None:
    """In one run of all scenarios: a process for each would take several times as long."""
    command = suite_command("server", "--url", address, "--suite", "all", "--output-dir", tmp_path)
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    clean_scenarios = re.findall(r"^✓ (\S+): [1-9]\d* passed, 0 failed$", output, re.MULTILINE)
    assert set(SCENARIOS) - {*clean_scenarios} == set(), output
