"""The conformance suite of the authors of MCP, run against our server over HTTP."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.engine.tools.mcp.test_conformance import NODE, SUITE, conformance

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


@pytest.fixture(scope="module")
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


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_server_passes_the_scenario(scenario: str, address: str, tmp_path: Path) -> None:
    ran = conformance("server", "--url", address, "--scenario", scenario, "--output-dir", tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Passed: 0/0" not in ran.stdout + ran.stderr
