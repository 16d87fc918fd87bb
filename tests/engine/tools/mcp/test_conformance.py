"""The conformance suite of the authors of MCP, run against our client (`conformance_client.py`).

`make test-all` puts the suite into the environment, where npm is there; `TURNWRIGHT_MCP_SERVERS` names another folder.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.engine.tools.mcp.conformance_client import play

from turnwright.errors import ConfigError

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
#: The scenarios of PASSING in which the server or the login is refused.
REFUSED: Final = (
    *("auth/resource-mismatch", "auth/metadata-issuer-mismatch", "auth/scope-retry-limit"),
    *(f"auth/iss-{problem}" for problem in ("supported-missing", "wrong-issuer", "unexpected", "normalized")),
)
#: The scenarios of an extension that we do not offer, skills as resources of a server. Nothing is checked in them.
UNCHECKED: Final = tuple(
    f"sep-2640-client-{behavior}" for behavior in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")
)


def suite_command(*arguments: str | Path) -> list[str]:
    """Return a command of the suite."""
    return [str(NODE), "--import", str(HERE / "glob_sync.mjs"), str(SUITE), *map(str, arguments)]


@dataclass
class Clients:
    """Our clients: one for each scenario, one after the other, since a slow answer counts as that of an old server."""

    #: The scenarios of which the client ended with an error.
    refused: set[str] = field(default_factory=set)
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    async def serve(self, connection: SocketStream) -> None:
        """Play the client of the scenario that `conformance_forward.py` names, and send it what went wrong."""
        lines = BufferedByteReceiveStream(connection)
        async with connection, self._turn:
            url, scenario, settings = [(await lines.receive_until(b"\n", 1 << 20)).decode() for _ in range(3)]
            try:
                await play(scenario, url, json.loads(settings or "{}"))
            except ConfigError as error:
                self.refused.add(scenario)
                await connection.send(str(error).encode())


async def output_of_suite(clients: Clients, folder: Path) -> str:
    """Run all scenarios, which the suite begins at the same time."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, clients.serve)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 (no Django)
        client = shlex.join([sys.executable, "-IS", str(HERE / "conformance_forward.py"), str(port)])
        how = ("--suite", "all", "--verbose", "--timeout", "240000", "--output-dir", folder)
        ran = await anyio.run_process(
            suite_command("client", "--command", client, *how), stderr=subprocess.STDOUT, check=False
        )
        group.cancel_scope.cancel()
        return ran.stdout.decode()
    raise AssertionError  # for pyright: the task group swallows no error


@pytest.mark.anyio
async def test_client_passes_the_scenarios(tmp_path: Path) -> None:
    clients = Clients()
    output = await output_of_suite(clients, tmp_path)
    verdicts = dict(re.findall(r"^. (\S+): (\d+ passed, .*)$", output, re.MULTILINE))
    clean_scenarios = {scenario for scenario, verdict in verdicts.items() if verdict.endswith(" 0 failed")}
    assert clean_scenarios == {*PASSING, *UNCHECKED}, output[output.index("=== SUITE SUMMARY ===") :]
    assert verdicts.keys() - clean_scenarios == FAILING.keys(), "a scenario that passes now belongs to PASSING"
    assert {name for name in clean_scenarios if verdicts[name].startswith("0 ")} == set(UNCHECKED)
    assert clients.refused - FAILING.keys() == set(REFUSED), output
