"""Files that are named from outside are opened without waiting, and only if they are regular ones."""

import os
import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from turnwright._base.regular_files import FileTooLargeError, open_regular, read_regular, write_regular
from turnwright.agents.files import read_agents
from turnwright.config.files import read_file
from turnwright.errors import ConfigError
from turnwright.message import FilePart
from turnwright.model.local.weights import find_weights
from turnwright.tools.mcp.config import read_mcp_config
from turnwright_proof.draw import read_row_counts, stale, write

# A test of these would hang for ever where a pipe is waited for.
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "agents": ("agents.md", read_agents),
    "agents of opencode": (".opencode/agent/one.md", lambda path: read_agents(path.parents[1])),
    "configuration": ("turnwright.toml", read_file),
    "project": ("pyproject.toml", read_file),
    "servers": ("mcp.json", read_mcp_config),
    "attachment": ("picture.png", FilePart.read),
    "rows taken": ("rows.json", read_row_counts),
}
EACH_READER = pytest.mark.parametrize(
    ("name", "read"),
    [
        *(pytest.param(*reader, id=kind) for kind, reader in READERS.items()),
        pytest.param(
            "model.gguf",
            find_weights,
            id="weights",
            marks=pytest.mark.skipif(find_spec("xllamacpp") is None, reason="xllamacpp is not installed"),
        ),
    ],
)


@pytest.fixture(params=["pipe", "socket", "device", "link to a device", "folder"])
def make(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    def made(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        match request.param:
            case "pipe":
                os.mkfifo(path)
            case "socket":
                os.chdir(path.parent)  # the name of a socket is short
                with socket.socket(socket.AF_UNIX) as bound:
                    bound.bind(path.name)
            case "folder":
                path.mkdir()
            case "device":
                path.symlink_to("/dev/zero")
            case _:
                path.symlink_to("/dev/tty")

    return made


@pytest.fixture(autouse=True)
def _back() -> object:
    before = Path.cwd()
    yield
    os.chdir(before)


@EACH_READER
def test_irregular_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None], name: str, read: Callable[[Path], object]
) -> None:
    path = tmp_path / name
    make(path)
    with pytest.raises(ConfigError, match=r"regular file|[Dd]irectory|no agent"):
        read(path)


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "bytes": ("rows.json", lambda path: write_regular(path, b"{}")),
    "diagrams": ("turn.mmd", lambda path: write(path.parent)),
    "diagrams that are checked": ("turn.mmd", lambda path: stale(path.parent)),
}


@pytest.mark.parametrize(("name", "act"), WRITERS.values(), ids=WRITERS)
def test_irregular_file_is_never_written_to(
    tmp_path: Path, make: Callable[[Path], None], name: str, act: Callable[[Path], object]
) -> None:
    path = tmp_path / name
    make(path)
    with pytest.raises(OSError, match=r"regular file|[Dd]irectory"):
        act(path)


def test_a_regular_file_is_written_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    for data in (b"long", b"new"):
        write_regular(tmp_path / "link", data)
        assert (tmp_path / "file").read_bytes() == data


def test_a_regular_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"here")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"here"
    assert read_regular(tmp_path / "link", 4) == b"here"
    with pytest.raises(FileTooLargeError, match="larger than 3 bytes"):
        read_regular(tmp_path / "file", 3)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
