"""The official client of ACP, as a judge of the agent over standard input and output.

`make test-all` puts the client into the environment, where npm is there; `TURNWRIGHT_PROTOCOL_CLIENTS` names another
folder.
"""

from pathlib import Path

import pytest
from tests.protocols.judge import HERE, NODE_MODULES, run_judge
from tests.servers.forked_python import Python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (NODE_MODULES / "@agentclientprotocol").is_dir(),
        reason="the SDK of ACP is not there: install npm, then `make test-all` fetches it",
    ),
]

#: What the agent does not offer, and why.
NOT_OFFERED = {
    "delete": "the protocol's Python library has no route for it",
}


def test_client_passes_every_capability(tmp_path: Path, python: Python) -> None:
    root = str(HERE.parents[1])
    code = f"import sys; sys.path.insert(0, {root!r}); sys.argv[1:] = [sys.argv[-1]]; import runpy; "
    code += "runpy.run_module('tests.protocols.acp_server', run_name='__main__')"
    verdicts = run_judge("acp_judge.mjs", "--", *python.command, "-c", code, "{STORE}", folder=tmp_path, seconds=560)
    assert {name: why for name, (verdict, why) in verdicts.items() if verdict == "FAIL"} == {}
    assert {name for name, (verdict, _) in verdicts.items() if verdict == "SKIP"} == NOT_OFFERED.keys()
    assert len(verdicts) == 48
