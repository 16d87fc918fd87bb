"""AG-UI's own client, which verifies each stream, as a judge of the page's example.

`make test-all` puts the client into the environment, where npm is there; `TURNWRIGHT_PROTOCOL_CLIENTS` names another
folder.
"""

from pathlib import Path

import pytest
from tests.protocols.judge import NODE_MODULES, run_judge, serving
from tests.servers.forked_python import Python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (NODE_MODULES / "@ag-ui" / "client").is_dir(),
        reason="@ag-ui/client is not there: install npm, then `make test-all` fetches it",
    ),
]


def test_ag_ui_client_passes_every_capability(tmp_path: Path, python: Python) -> None:
    with serving(python, "ag-ui", tmp_path) as (address, _):
        verdicts = run_judge("ag_ui_judge.mjs", f"{address}/", folder=tmp_path)
    assert {name: why for name, (verdict, why) in verdicts.items() if verdict != "PASS"} == {}
    assert len(verdicts) == 9
