"""The committed files are fresh, and a stale, edited or missing one is found without Graphviz."""

import shutil
from pathlib import Path

import pytest

from turnwright.errors import ConfigError
from turnwright_proof.draw import stale, write
from turnwright_states.chart import ROWS, Chart

needs_graphviz = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
COMMITTED = Path(__file__).parents[3] / "diagrams"
NAMES = (
    *("turn.mmd", "turn-full.mmd", "turn.dot", "turn-full.dot", "overview.svg"),
    *("turn.md", "turn.svg", "turn-full.svg"),
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(COMMITTED, tmp_path / "diagrams"))


@pytest.fixture
def no_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def test_committed_files_are_fresh() -> None:
    """If this fails, run `turnwright diagram --write diagrams` and look at what changed."""
    assert stale(COMMITTED) == {}


@pytest.mark.parametrize("name", NAMES)
def test_edited_file_is_reported(copy: Path, name: str) -> None:
    text = (copy / name).read_text(encoding="utf-8")
    (copy / name).write_text(text.replace("CONTINUE", "CONTINUED", 1), encoding="utf-8")
    assert stale(copy) == {name: "stale"}


@pytest.mark.parametrize("name", NAMES)
def test_missing_file_is_reported(copy: Path, name: str) -> None:
    (copy / name).unlink()
    assert stale(copy) == {name: "missing"}


def test_non_text_file_is_stale(copy: Path) -> None:
    (copy / "turn.svg").write_bytes(b"\xff\xfe\x00")
    assert stale(copy) == {"turn.svg": "stale"}


def test_change_of_the_chart_makes_every_file_stale() -> None:
    assert stale(COMMITTED, Chart(ROWS[:-1])) == dict.fromkeys(NAMES, "stale")


def test_checkout_with_other_line_endings_is_fresh(copy: Path) -> None:
    for name in NAMES:
        (copy / name).write_bytes((copy / name).read_bytes().replace(b"\n", b"\r\n"))
    assert stale(copy) == {}


@needs_graphviz
def test_writing_creates_the_directory_and_fresh_files(tmp_path: Path) -> None:
    folder = tmp_path / "some" / "where"
    assert sorted(write(folder)) == sorted(NAMES)
    assert stale(folder) == {}
    assert write(folder) == ()


@pytest.mark.usefixtures("no_graphviz")
def test_fresh_svg_is_not_redrawn(copy: Path) -> None:
    """Another version of Graphviz would only draw it differently."""
    (copy / "turn.md").unlink()
    before = (copy / "turn.svg").read_bytes()
    assert write(copy) == ("turn.md",)
    assert (copy / "turn.svg").read_bytes() == before


@pytest.mark.usefixtures("no_graphviz")
def test_only_the_drawings_need_graphviz(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"turn\.svg was not written, the text files were: .*not on PATH"):
        write(tmp_path / "made")
    assert stale(tmp_path / "made") == {"turn.svg": "missing", "turn-full.svg": "missing"}
