"""The conformance suite of the authors of MCP, run against our client (`conformance_client.py`).

`make test-all` puts the suite into the environment, where npm is there; `TURNWRIGHT_MCP_SERVERS` names another folder.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(os.environ.get("TURNWRIGHT_MCP_SERVERS", Path(sys.prefix) / "mcp-servers")) / "node_modules"
SUITE: Final = FOLDER / "@modelcontextprotocol/conformance/dist/index.js"
NODE: Final = shutil.which("node")
HERE: Final = Path(__file__).parent

pytestmark = [
    pytest.mark.skipif(
        NODE is None or not SUITE.is_file(),
        reason="the conformance suite is not there: install npm, then `make test-all` fetches it",
    ),
]

PASSING: Final = (
    *("initialize", "tools_call", "sse-retry", "request-metadata", "sep-2322-client-request-state"),
    *("http-standard-headers", "http-custom-headers", "http-invalid-tool-headers"),
    *("json-schema-ref-no-deref", "json-schema-2020-12-preservation"),
    *(f"auth/metadata-{name}" for name in ("default", "var1", "var2", "var3", "issuer-mismatch")),
    *("auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback"),
    *("auth/basic-cimd", "auth/pre-registration", "auth/resource-mismatch", "auth/authorization-server-migration"),
    *("auth/scope-from-www-authenticate", "auth/scope-from-scopes-supported", "auth/scope-omitted-when-undefined"),
    *("auth/scope-step-up", "auth/scope-retry-limit"),
    *("auth/offline-access-scope", "auth/offline-access-not-supported"),
    *(f"auth/token-endpoint-auth-{method}" for method in ("basic", "post", "none")),
    *("auth/iss-supported", "auth/iss-not-advertised", "auth/iss-supported-missing"),
    *("auth/iss-wrong-issuer", "auth/iss-unexpected", "auth/iss-normalized"),
    *("auth/client-credentials-basic", "auth/client-credentials-jwt"),
)
#: The scenarios that our client does not pass, and why.
FAILING: Final[Mapping[str, str]] = {
    "elicitation-sep1034-client-defaults": (
        "the call must be answered while it runs: here a question pauses the turn, which cancels the call, and the call"
        " is repeated with the answer"
    ),
    "auth/dpop": "an extension that the SDK does not have: tokens bound to a key",
    "auth/dpop-nonce": "an extension that the SDK does not have: tokens bound to a key",
    "auth/enterprise-managed-authorization": "an extension that we do not offer: a company's identity provider logs in",
    "auth/wif-jwt-bearer": "an extension that the SDK does not have: a workload's token as the grant",
}
#: The scenarios of an extension that we do not offer, skills as resources of a server. Nothing is checked in them.
UNCHECKED: Final = tuple(
    f"sep-2640-client-{behavior}" for behavior in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")
)


def conformance(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the suite."""
    command = [str(NODE), "--import", str(HERE / "glob_sync.mjs"), str(SUITE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_listed_scenarios_match_the_suite() -> None:
    listed = re.findall(r"^  - (\S+)", conformance("list", "--client").stdout, re.MULTILINE)
    assert sorted(listed) == sorted([*PASSING, *FAILING, *UNCHECKED])


@pytest.mark.parametrize("scenario", [*PASSING, *FAILING, *UNCHECKED])
def test_client_passes_the_scenario(scenario: str, tmp_path: Path) -> None:
    client = shlex.join([sys.executable, str(HERE / "conformance_client.py")])
    patience = ("--timeout", "240000", "--output-dir", tmp_path)
    ran = conformance("client", "--command", client, "--scenario", scenario, *patience)
    output = ran.stdout + ran.stderr
    if scenario in FAILING:
        assert ran.returncode == 1, f"{scenario} passes: it belongs to PASSING"
    else:
        assert ran.returncode == 0, "\n".join(
            line for line in output.splitlines() if "FAILURE" in line or "Error" in line
        )
        assert ("Passed: 0/0" in output) == (scenario in UNCHECKED)
