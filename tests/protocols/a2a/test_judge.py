"""The official JavaScript client of A2A, as a judge of a real server, which it kills and starts again.

`make test-all` puts the client into the environment, where npm is there; `TURNWRIGHT_PROTOCOL_CLIENTS` names another
folder.
"""

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from tests.protocols.judge import HERE, NODE_MODULES, run_judge, serving
from tests.servers.forked_python import Python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (NODE_MODULES / "@a2a-js").is_dir(),
        reason="the SDK of A2A is not there: install npm, then `make test-all` fetches it",
    ),
]


@pytest.mark.parametrize("binding", [[], ["--rest"]], ids=["json_rpc", "rest"])
def test_client_passes_every_capability(tmp_path: Path, python: Python, binding: list[str]) -> None:
    pid_file = tmp_path / "pid"
    with serving(python, "a2a", tmp_path) as (address, server):
        pid_file.write_text(str(server.pid), encoding="utf-8")
        words = [sys.executable, "-m", "tests.protocols.restart_server", str(pid_file), "a2a"]
        words += [f"sqlite:///{tmp_path}/turns.db", address.rpartition(":")[2]]
        restart = f"cd {shlex.quote(str(HERE.parents[1]))} && {shlex.join(words)}"
        try:
            verdicts = run_judge("a2a_judge.mjs", address, *binding, "--restart", restart, folder=tmp_path)
        finally:
            pid = int(pid_file.read_text(encoding="utf-8"))
            if pid != server.pid:
                os.kill(pid, signal.SIGKILL)
    assert {name: why for name, (verdict, why) in verdicts.items() if verdict != "PASS"} == {}
    assert len(verdicts) == 28
