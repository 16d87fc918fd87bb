"""The readable paths: nothing outside the root and the grants, whatever links exist."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnwright.errors import ConfigError
from turnwright.tools import ToolFailedError
from turnwright.tools.workspace import FolderEntry, Workspace, is_folder, list_folder, open_file

SECRET = b"the secret"


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with links of every kind, beside a folder that is none of its business."""
    ground = tmp_path_factory.mktemp("ground")
    root, outside = ground / "project", ground / "outside"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"inside")
    (root / "src" / "b.txt").write_bytes(b"inside")
    (outside / "deep").mkdir(parents=True)
    (outside / "secret.txt").write_bytes(SECRET)
    (outside / "deep" / "secret.txt").write_bytes(SECRET)
    (ground / "project-2").mkdir()
    (ground / "project-2" / "secret.txt").write_bytes(SECRET)
    (root / "to_file").symlink_to(outside / "secret.txt")
    (root / "to_folder").symlink_to(outside, target_is_directory=True)
    (root / "src" / "relative").symlink_to("../../outside/secret.txt")
    (root / "twice").symlink_to("to_folder/deep")
    (root / "to_root").symlink_to("/")
    (root / "up").symlink_to("..")
    (root / "within").symlink_to("src/b.txt")
    (root / "round").symlink_to("round")
    return ground


def read(ground: Path, path: str, *grants: Path) -> bytes:
    place = Workspace(ground / "project").place(path, tuple(map(str, grants)))
    with open_file(place) as file:
        return file.read()


@pytest.mark.parametrize(
    "path",
    [
        "a.txt",
        "./a.txt",
        "src/../a.txt",
        "src/b.txt",
        "within",
        "src//b.txt",
        "up/project/a.txt",
        "to_folder/../project/a.txt",
    ],
)
def test_inside_file_is_readable_by_any_path(ground: Path, path: str) -> None:
    assert read(ground, path) == b"inside"
    assert read(ground, str(ground / "project" / path)) == b"inside"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "src/../../outside/secret.txt",
        "../project-2/secret.txt",
        "to_file",
        "to_folder/secret.txt",
        "to_folder/deep/../secret.txt",
        "src/relative",
        "twice/secret.txt",
        "up/outside/secret.txt",
        "to_root/etc/passwd",
        "/etc/passwd",
        "~/.bashrc",
        "..",
        "/",
    ],
)
def test_outside_path_is_refused_with_advice(ground: Path, path: str) -> None:
    with pytest.raises(ToolFailedError, match=r"outside the folder that you may read\. Call request_read_access"):
        read(ground, path)


def test_an_absolute_path_outside_is_refused(ground: Path) -> None:
    with pytest.raises(ToolFailedError, match="outside the folder"):
        read(ground, str(ground / "outside" / "secret.txt"))


@pytest.mark.parametrize("path", ["to_file", "../outside/secret.txt", "to_folder/secret.txt"])
def test_granted_file_is_readable_by_any_path(ground: Path, path: str) -> None:
    assert read(ground, path, ground / "outside" / "secret.txt") == SECRET


def test_granted_file_opens_no_neighbor(ground: Path) -> None:
    with pytest.raises(ToolFailedError, match="outside the folder"):
        read(ground, "../outside/deep/secret.txt", ground / "outside" / "secret.txt")


def test_granted_folder_opens_everything_below(ground: Path) -> None:
    assert read(ground, "../outside/deep/secret.txt", ground / "outside") == SECRET
    with pytest.raises(ToolFailedError, match="outside the folder"):
        read(ground, "../project-2/secret.txt", ground / "outside")


def test_an_empty_grant_opens_nothing(ground: Path) -> None:
    place = Workspace(ground / "project")
    with pytest.raises(ToolFailedError, match="outside the folder"):
        place.place("/etc/passwd", ("",))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.txt", "'none.txt' does not exist"),
        ("a.txt/b", "'a.txt/b' is not a folder"),
        ("src", "'src' is a folder: list_files"),
        (".", "'.' is a folder: list_files"),
        ("", "'.' is a folder: list_files"),
        ("a\0b", "is not a path: it contains a NUL character"),
        ("x/" * 3000, "is too long"),
        ("x" * 300, "File name too long"),
        ("\ud800", "is not a path"),
        ("\udcff", "does not exist"),
    ],
)
def test_unreadable_path_is_refused_with_the_reason(ground: Path, path: str, message: str) -> None:
    with pytest.raises(ToolFailedError) as caught:
        read(ground, path)
    assert message in str(caught.value)


def test_circular_link_is_refused(ground: Path) -> None:
    with pytest.raises(ToolFailedError, match="round"):
        read(ground, "round")


@pytest.fixture
def pipe_and_socket(tmp_path: Path) -> Iterator[Path]:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to_device").symlink_to("/dev/zero")
    with closing(socket.socket(socket.AF_UNIX)) as unix:
        here = Path.cwd()
        os.chdir(tmp_path)  # the address of a socket must be short
        try:
            unix.bind("socket")
        finally:
            os.chdir(here)
        yield tmp_path


@pytest.mark.parametrize("name", ["pipe", "socket"])
def test_pipes_and_sockets_are_refused_without_waiting(pipe_and_socket: Path, name: str) -> None:
    with pytest.raises(ToolFailedError, match="is not a regular file"):
        open_file(Workspace(pipe_and_socket).place(name))


def test_device_is_refused_even_when_granted(pipe_and_socket: Path) -> None:
    place = Workspace(pipe_and_socket).place("to_device", ("/dev",))
    with pytest.raises(ToolFailedError, match="is not a regular file"):
        open_file(place)


def test_file_replaced_by_a_link_after_the_check_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret.txt").write_bytes(SECRET)
    (tmp_path / "root" / "a.txt").write_bytes(b"inside")
    place = Workspace(tmp_path / "root").place("a.txt")
    (tmp_path / "root" / "a.txt").unlink()
    (tmp_path / "root" / "a.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ToolFailedError, match="is not a regular file"):
        open_file(place)


def test_folder_replaced_by_a_link_after_the_check_is_refused(tmp_path: Path) -> None:
    for folder in ("root/a/b", "outside/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "f.txt").write_bytes(SECRET)
    workspace = Workspace(tmp_path / "root")
    inner, below = workspace.place("a/b/f.txt"), workspace.place("a/b")
    (tmp_path / "root" / "a").rename(tmp_path / "root" / "old")
    (tmp_path / "root" / "a").symlink_to(tmp_path / "outside", target_is_directory=True)
    with pytest.raises(ToolFailedError, match="is not a folder"):
        open_file(inner)
    with pytest.raises(ToolFailedError, match="is not a folder"):
        list_folder(below)
    with pytest.raises(ToolFailedError, match="is not a folder"):
        is_folder(below)


def test_grant_replaced_by_a_link_is_refused(tmp_path: Path) -> None:
    for name in ("root", "granted", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "f.txt").write_bytes(SECRET)
    (tmp_path / "granted").rmdir()
    (tmp_path / "granted").symlink_to(tmp_path / "outside", target_is_directory=True)
    with pytest.raises(ToolFailedError, match="outside the folder"):
        Workspace(tmp_path / "root").place("../granted/f.txt", (str(tmp_path / "granted"),))


def test_a_folder_is_listed_by_name_with_kinds_and_sizes(pipe_and_socket: Path) -> None:
    (pipe_and_socket / "b").mkdir()
    (pipe_and_socket / "a").write_bytes(b"123")
    assert list_folder(Workspace(pipe_and_socket).place(".")) == [
        FolderEntry("a", "file", 3),
        FolderEntry("b", "folder", 0),
        FolderEntry("pipe", "other", 0),
        FolderEntry("socket", "other", 0),
        FolderEntry("to_device", "link", 0),
    ]


def test_names_of_places_are_shown_below_the_root_or_absolute(ground: Path) -> None:
    workspace = Workspace(ground / "project")
    assert workspace.place("src/../a.txt").shown_path == "a.txt"
    assert workspace.place(".").child("a\nb").shown_path == "a\\nb"
    assert workspace.place("src").child("b.txt").shown_path == "src/b.txt"
    outside = ground / "outside"
    assert workspace.place("to_folder", (str(outside),)).child("x").shown_path == f"{outside}/x"


def test_a_root_may_be_reached_by_a_link(ground: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(ground / "project", target_is_directory=True)
    with open_file(Workspace(tmp_path / "link").place("a.txt")) as file:
        assert file.read() == b"inside"


@pytest.mark.parametrize("root", ["none", "file.txt"])
def test_root_must_be_a_folder(tmp_path: Path, root: str) -> None:
    (tmp_path / "file.txt").touch()
    with pytest.raises(ConfigError, match=r"the root.*give a folder that exists"):
        Workspace(tmp_path / root)


_PARTS = st.sampled_from(
    ["..", ".", "", "~", "src", "to_file", "to_folder", "twice", "up", "to_root", "round", "within", "outside", "deep",
     "secret.txt", "a.txt", "b.txt", "project", "project-2", "relative"]
)  # fmt: skip
_PATHS = st.lists(_PARTS | st.text(st.characters(), max_size=4), max_size=8).map("/".join) | st.text(st.characters())


@given(_PATHS, st.booleans())
@example("outside/secret.txt", True)
def test_no_path_gives_the_content_of_a_file_outside(ground: Path, path: str, below: bool) -> None:
    try:
        content = read(ground, str(ground / path) if below else path)
    except ToolFailedError as error:
        str(error).encode()
    else:
        assert content == b"inside"


@given(_PATHS)
def test_no_path_gives_the_list_of_a_folder_outside(ground: Path, path: str) -> None:
    try:
        place = Workspace(ground / "project").place(path)
        names = {entry.name for entry in list_folder(place)}
    except ToolFailedError as error:
        str(error).encode()
    else:
        assert names in ({entry.name for entry in (ground / "project").iterdir()}, {"b.txt", "relative"})
