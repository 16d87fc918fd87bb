"""A service is named by its address, in flags that can be printed and pasted."""

import shlex
import subprocess
import sys

import pytest

from turnwright.cli.runtimes import Service, WorkersModel
from turnwright.errors import ConfigError
from turnwright.runtime import Local

#: Runs the command line where the client of Temporal is not installed.
WITHOUT = "import sys; sys.modules['temporalio'] = None; from turnwright.cli import main; main()"


def test_turns_are_driven_locally_without_an_address() -> None:
    service = Service()
    assert (service.embedded, service.flags) == (True, "")
    assert isinstance(service.runtime(), Local)


def test_service_flags_can_be_pasted() -> None:
    service = Service("temporal.host:7233", None, "it's mine")
    assert shlex.split(service.flags) == ["--temporal-address", "temporal.host:7233", "--queue", "it's mine"]
    assert not service.embedded
    service = Service("host:1", None, None, ["Old Painter=gpu", "a=b=c"])
    assert shlex.split(service.flags)[2:] == ["--agent-queue", "Old Painter=gpu", "--agent-queue", "a=b=c"]
    assert dict(service.queues) == {"Old Painter": "gpu", "a=b": "c"}


@pytest.mark.parametrize("text", ["", "Painter", "=gpu", "Painter="])
def test_agent_queue_is_a_name_and_a_queue(text: str) -> None:
    with pytest.raises(ConfigError, match="AGENT=QUEUE, such as Painter=gpu"):
        Service("host:1", None, None, [text])


@pytest.mark.parametrize("address", ["", "host", "host:", ":7233", "host:0", "host:65536", "host:x", "http://host:80"])
def test_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT, such as localhost:7233"):
        Service(address, None, None)


def test_worker_and_client_use_the_same_model_name() -> None:
    assert [WorkersModel(name).name for name in ("gpt-5-mini", "anthropic:claude-x")] == ["gpt-5-mini", "claude-x"]


@pytest.mark.parametrize("command", [("worker",), ("run", "Work"), ("abort", "x")])
def test_missing_temporal_extra_is_named(command: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bare")
    (folder / "turns.db").touch()
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT, *command, "--temporal-address", "localhost:7233"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr == (
        "turnwright: --temporal-address: turnwright.runtime.Temporal needs temporalio:"
        " pip install 'turnwright[temporal]'\n"
    )
