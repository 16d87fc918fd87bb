"""A real Temporal server of one's own: it keeps its data and its address, and leaves nothing behind."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.servers.temporal_server import TemporalServer

from turnwright.errors import ConfigError, RuntimeUnavailableError

if (_REASON := TemporalServer.reason_missing()) is not None:
    pytest.skip(_REASON, allow_module_level=True)


@pytest.fixture(scope="module")
def server() -> Iterator[TemporalServer]:
    with TemporalServer() as server:
        yield server


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.anyio
async def test_stored_workflows_survive_every_end(server: TemporalServer) -> None:
    """Stopped or killed: data and address stay, and one that runs is left as it is."""
    client = pytest.importorskip("temporalio.client")
    address = server.address
    await (await client.Client.connect(address)).start_workflow("Nobody", id="kept", task_queue="nobody's")
    for end in (server.stop, server.kill):
        end()
        server.start()
        server.start()
        assert server.address == address
        described = await (await client.Client.connect(address)).get_workflow_handle("kept").describe()
        assert described.status is client.WorkflowExecutionStatus.RUNNING


@pytest.mark.anyio
async def test_namespace_has_the_search_attributes_of_turns(server: TemporalServer) -> None:
    client = pytest.importorskip("temporalio.client")
    connected = await client.Client.connect(server.address)
    assert [workflow async for workflow in connected.list_workflows("TurnwrightAgent = 'Clerk'")] == []


def test_killed_server_is_down_until_started(server: TemporalServer) -> None:
    """Ending it again does nothing."""
    server.kill()
    server.kill()
    server.stop()
    assert not answers(server.address)
    server.start()
    assert answers(server.address)


def test_closing_leaves_nothing_behind() -> None:
    """And it cannot be started again. An address it never had is not made up."""
    server = TemporalServer()
    with pytest.raises(ConfigError, match="never started"):
        _ = server.address
    with server:
        folder = server.log.parent
        assert folder.exists()
        assert answers(server.address)
    server.close()
    assert not folder.exists()
    assert not answers(server.address)
    with pytest.raises(RuntimeUnavailableError, match="closed"):
        server.start()


def test_failed_start_has_a_reason() -> None:
    server = TemporalServer(search_attributes=["no=such"])
    with pytest.raises(RuntimeUnavailableError, match=r"did not start.*such=Keyword"):
        server.start()
    server.close()


ROOT: Final = Path(__file__).parents[2]
_OWNER: Final = """
import time
from tests.servers.temporal_server import TemporalServer
server = TemporalServer()
server.start()
print(server.address, server.log.parent, flush=True)
time.sleep(600)
"""


def test_server_dies_with_the_parent_process() -> None:
    """Also when that is killed with SIGKILL, which nobody can prepare for; its folder goes as well."""
    with subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        address, folder = owner.stdout.readline().split()
        assert answers(address)
        owner.kill()
    while Path(folder).exists():
        time.sleep(0.01)
    assert not answers(address)
