"""The list of a folder and the portions of a file."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.tools import RESULT_LIMIT, ToolFailedError
from turnwright.tools.files import LIST_LIMIT, READ_LIMIT, SKIP_LIMIT, listing, portion
from turnwright.tools.workspace import Workspace


def read(root: Path, path: str, offset: int = 1, limit: int | None = None) -> str:
    return portion(Workspace(root).place(path), offset=offset, limit=limit)


def show(root: Path, path: str = ".", *, recursive: bool = False) -> str:
    return listing(Workspace(root).place(path), recursive=recursive)


@pytest.mark.parametrize(
    ("content", "offset", "limit", "text"),
    [
        (b"a\nb\nc\n", 1, None, "a\nb\nc\n"),
        (b"a\nb\nc", 1, None, "a\nb\nc"),
        (b"a\nb\nc\n", 1, 2, "a\nb\n[lines 1 to 2; continue with offset=3]"),
        (b"a\nb\nc\n", 2, 1, "b\n[lines 2 to 2; continue with offset=3]"),
        (b"a\nb\nc\n", 3, 1, "c\n"),
        (b"a\nb\nc", 3, 9, "c"),
        (b"a\nb\nc\n", 4, None, "(the file has 3 lines)"),
        (b"a\nb\nc", 4, None, "(the file has 3 lines)"),
        (b"a\nb\nc\n", 9, None, "(the file has only 3 lines)"),
        (b"x" * RESULT_LIMIT, 2, None, "(the file has 1 lines)"),
        (b"", 1, None, "(an empty file)"),
        (b"", 5, None, "(an empty file)"),
        (b"caf\xe9\n", 1, None, "caf\ufffd\n"),
        (b"PNG\0\1\2", 1, None, "<a binary file of 6 bytes>"),
        ("日本語\r\n".encode(), 1, None, "日本語\r\n"),
    ],
)
def test_a_file_is_read_from_a_line_on(
    tmp_path: Path, content: bytes, offset: int, limit: int | None, text: str
) -> None:
    (tmp_path / "f").write_bytes(content)
    assert read(tmp_path, "f", offset, limit) == text


def test_long_file_is_read_whole_by_following_the_notices(tmp_path: Path) -> None:
    lines = [f"{number} {'é' * (number % 97)}\n" for number in range(5000)]
    (tmp_path / "f").write_text("".join(lines))
    text = ""
    offset = 1
    portions = 0
    while offset:
        part = read(tmp_path, "f", offset)
        assert len(part.encode()) <= RESULT_LIMIT
        body, _, notice = part.rpartition("[lines")
        text += body if notice.endswith("]") else part
        offset = int(notice.rpartition("=")[2][:-1]) if notice.endswith("]") else 0
        portions += 1
    assert text == "".join(lines)
    assert portions > 5


def test_a_line_longer_than_a_portion_is_cut_between_characters(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("é" * READ_LIMIT + "\nnext\n")
    text = read(tmp_path, "f")
    assert text == "é" * (READ_LIMIT // 2) + (
        f"\n[line 1 is longer than {READ_LIMIT} bytes and is cut here; continue with offset=2]"
    )
    assert read(tmp_path, "f", 2) == "next\n"


def test_binary_file_stays_below_the_limit(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff" * 1_000_000)
    assert len(read(tmp_path, "f").encode()) <= RESULT_LIMIT


@pytest.mark.slow
def test_huge_file_is_not_read_to_the_end(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.write(b"first\n" * 5000)
        file.truncate(1 << 32)  # sparse: four gigabytes of zeros, on no disk
    assert read(tmp_path, "f", limit=1) == "first\n[lines 1 to 1; continue with offset=2]"
    assert read(tmp_path, "f", offset=5000, limit=1) == "first\n[lines 5000 to 5000; continue with offset=5001]"
    with pytest.raises(ToolFailedError, match=f"line 9001 of 'f' is more than {SKIP_LIMIT} bytes into the file"):
        read(tmp_path, "f", offset=9001)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


@given(content=st.binary(max_size=200), offset=st.integers(1, 9), limit=st.none() | st.integers(1, 9))
def test_any_bytes_are_read_as_text(folder: Path, content: bytes, offset: int, limit: int | None) -> None:
    (folder / "f").write_bytes(content)
    read(folder, "f", offset, limit).encode()


def test_folder_is_listed_with_readable_paths(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "a.py").write_text("12345")
    (tmp_path / "src" / "link").symlink_to("a.py")
    assert show(tmp_path) == "src/"
    assert show(tmp_path, "src") == "src/a.py (5 bytes)\nsrc/deep/\nsrc/link (a link)"


def test_empty_folder_is_reported(tmp_path: Path) -> None:
    assert show(tmp_path) == "(an empty folder)"


def test_a_file_is_no_folder_to_list(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(ToolFailedError, match="'f' is not a folder"):
        show(tmp_path, "f")


def test_folders_below_are_listed_without_generated_folders(tmp_path: Path) -> None:
    for name in ("b/c", ".git/objects", "node_modules/x", "z"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "b" / "c" / "f").touch()
    (tmp_path / "loop").symlink_to(".")
    assert show(tmp_path, recursive=True).splitlines() == [
        ".git/ (not listed)",
        "b/",
        "loop (a link)",
        "node_modules/ (not listed)",
        "z/",
        "b/c/",
        "b/c/f (0 bytes)",
    ]
    assert show(tmp_path, ".git", recursive=True) == ".git/objects/"


def test_a_long_list_is_cut_with_a_notice(tmp_path: Path) -> None:
    for number in range(LIST_LIMIT + 1):
        (tmp_path / f"{number:04}").touch()
    lines = show(tmp_path).splitlines()
    assert len(lines) == LIST_LIMIT + 1
    assert lines[-1] == "[cut after 500 entries; for the rest, list a folder in it]"
    (tmp_path / "0000").unlink()
    assert len(show(tmp_path).splitlines()) == LIST_LIMIT


def test_a_list_of_long_names_stays_below_the_limit(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / f"{number:03}{'x' * 250}").touch()
    text = show(tmp_path)
    assert len(text.encode()) <= RESULT_LIMIT
    assert "[cut after " in text


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems take only Unicode names")
def test_undecodable_names_are_shown_as_escapes(tmp_path: Path) -> None:
    (tmp_path / "two\nlines").touch()
    with open(os.fsencode(tmp_path) + b"/caf\xe9", "wb"):  # noqa: PTH123 (a Path has no bytes)
        pass
    assert show(tmp_path) == "caf\\udce9 (0 bytes)\ntwo\\nlines (0 bytes)"


def test_locked_folder_below_is_reported_beside_open_folders(tmp_path: Path) -> None:
    for name in ("locked", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").touch()
    (tmp_path / "locked").chmod(0)
    if os.access(tmp_path / "locked", os.R_OK):
        pytest.skip("nothing is locked for the super-user")
    lines = show(tmp_path, recursive=True).splitlines()
    (tmp_path / "locked").chmod(0o700)
    assert lines == ["locked/", "open/", "['locked' may not be read by this user]", "open/f (0 bytes)"]


def test_a_deep_tree_is_listed(tmp_path: Path) -> None:
    (tmp_path / "/".join(["d"] * 200)).mkdir(parents=True)
    assert len(show(tmp_path, recursive=True).splitlines()) == 200
