"""The lines that hold a text or match a regular expression."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.tools import RESULT_LIMIT, ToolFailedError
from turnwright.tools.search import FILE_LIMIT, HIT_LIMIT, search
from turnwright.tools.workspace import Workspace, list_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name, text in {
        "a.py": "import os\nx = 1  # a.b\r\n",
        "src/b.py": "import sys\n",
        "src/deep/c.md": "How to import axb.\n",
        ".git/config": "import\n",
        "node_modules/m.py": "import\n",
        ".github/w.yml": "import: yes\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def find(
    root: Path, pattern: str, path: str = ".", *, glob: str | None = None, regex: bool = False, seconds: float = 10
) -> list[str]:
    return search(Workspace(root).place(path), pattern, glob=glob, regex=regex, seconds=seconds).splitlines()


def test_hits_name_path_line_and_text(root: Path) -> None:
    assert find(root, "import") == [
        "a.py:1: import os",
        ".github/w.yml:1: import: yes",
        "src/b.py:1: import sys",
        "src/deep/c.md:1: How to import axb.",
    ]


def test_a_text_is_taken_literally(root: Path) -> None:
    assert find(root, "a.b") == ["a.py:2: x = 1  # a.b"]
    assert find(root, "(") == ["(nothing found)"]


def test_a_regular_expression_is_matched_on_demand(root: Path) -> None:
    assert find(root, "a.b", regex=True) == ["a.py:2: x = 1  # a.b", "src/deep/c.md:1: How to import axb."]
    assert find(root, "(?i)^IMPORT s", regex=True) == ["src/b.py:1: import sys"]


def test_single_file_can_be_searched(root: Path) -> None:
    assert find(root, "import", "src/b.py") == ["src/b.py:1: import sys"]
    assert find(root, "import", ".git") == [".git/config:1: import"]


@pytest.mark.parametrize(
    ("glob", "files"),
    [
        ("*.py", ["a.py", "src/b.py"]),
        ("src/*.py", ["src/b.py"]),
        ("**/*.py", ["a.py", "src/b.py"]),
        ("src/**/*.md", ["src/deep/c.md"]),
        ("src/**/*.py", ["src/b.py"]),
        ("[", []),
    ],
)
def test_a_glob_picks_files(root: Path, glob: str, files: list[str]) -> None:
    assert [hit.partition(":")[0] for hit in find(root, "import", glob=glob)] == (files or ["(nothing found)"])


def test_invalid_regular_expression_is_refused_with_the_reason(root: Path) -> None:
    with pytest.raises(
        ToolFailedError, match=r"'a\(b' is not a regular expression: missing \), unterminated subpattern"
    ):
        find(root, "a(b", regex=True)


def test_exploding_regular_expression_is_killed(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a" * 60 + "!")
    begin = time.monotonic()
    with pytest.raises(ToolFailedError, match=r"the regular expression took more than 0\.5 s"):
        find(tmp_path, "(a+)+b", regex=True, seconds=0.5)
    assert time.monotonic() - begin < 100


def test_search_stops_at_the_time_limit(root: Path) -> None:
    assert find(root, "import", seconds=1e-9)[-1] == "[stopped at the time limit: search a smaller folder]"


def test_search_without_files_stops_at_the_time_limit(tmp_path: Path) -> None:
    """A tree of folders alone, or a folder of nothing but pipes, is not walked through to its end."""
    for number in range(3):
        (tmp_path / f"{number}" / "inner").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")
    assert find(tmp_path, "x", seconds=1e-9) == [
        "(nothing found)",
        "[stopped at the time limit: search a smaller folder]",
    ]


def test_a_folder_is_listed_only_as_long_as_there_is_time(root: Path) -> None:
    assert list_folder(Workspace(root).place("."), until=time.monotonic()) == []


def test_hits_are_limited(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("hit\n" * (HIT_LIMIT + 1))
    hits = find(tmp_path, "hit")
    assert len(hits) == HIT_LIMIT + 1
    assert hits[-1] == "[stopped after 100 hits: use a longer pattern or a smaller folder]"
    (tmp_path / "f").write_text("hit\n" * HIT_LIMIT)
    assert len(find(tmp_path, "hit")) == HIT_LIMIT


def test_long_lines_are_shortened_and_the_whole_stays_below_the_limit(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 250) / ("e" * 250)
    folder.mkdir(parents=True)
    (folder / "f").write_text(("hit" + "日" * 1000 + "\n") * 150)
    text = search(Workspace(tmp_path).place("."), "hit", glob=None, regex=False)
    assert len(text.encode()) <= RESULT_LIMIT
    assert "日…\n" in text


def test_binary_and_large_files_are_passed_over_and_counted(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"hit\0")
    (tmp_path / "large").write_bytes(b"hit\n" * (FILE_LIMIT // 4 + 1))
    (tmp_path / "full").write_bytes(b"hit\n" + b"x" * (FILE_LIMIT - 4))
    assert find(tmp_path, "hit") == [
        "full:1: hit",
        "[skipped: 2 files or folders that are binary, too large or unreadable]",
    ]


def test_locked_files_are_passed_over_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hit")
    (tmp_path / "file").write_text("hit")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").chmod(0)
    (tmp_path / "folder").chmod(0)
    if os.access(tmp_path / "folder", os.R_OK):
        pytest.skip("nothing is locked for the super-user")
    lines = find(tmp_path, "hit")
    (tmp_path / "folder").chmod(0o700)
    assert lines == ["a:1: hit", "[skipped: 2 files or folders that are binary, too large or unreadable]"]


def test_links_are_not_followed(tmp_path: Path, root: Path) -> None:
    (tmp_path / "secret").write_text("hit")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path, target_is_directory=True)
    assert find(root, "hit") == ["(nothing found)"]


def test_control_characters_of_a_file_are_shown_as_escapes(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("hit\x1b[31m\u2028red")
    assert find(tmp_path, "hit") == ["f:1: hit\\x1b[31m\\u2028red"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


@given(pattern=st.text(st.characters(), min_size=1, max_size=10), content=st.binary(max_size=100))
def test_any_text_can_be_sought_in_any_file(folder: Path, pattern: str, content: bytes) -> None:
    (folder / "f").write_bytes(content)
    for hit in find(folder, pattern):
        hit.encode()
