"""`turnwright diagram` prints the chart, writes the files, and says which are stale."""

import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from turnwright.cli.diagram import diagram
from turnwright.draw import extract, to_dot, to_mermaid, to_table
from turnwright.draw.svg import is_fresh

COMMITTED = Path(__file__).parents[2] / "diagrams"
NAMES = ("turn.mmd", "turn.dot", "turn.md", "turn.svg")
needs_graphviz = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    app = typer.Typer()
    app.command()(diagram)
    return CliRunner().invoke(app, arguments, env=env)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), to_mermaid),
        (("--format", "mermaid"), to_mermaid),
        (("--format", "dot"), to_dot),
        (("--format", "table"), to_table),
    ],
)
def test_a_format_is_printed_and_nothing_else(options: tuple[str, ...], text: object) -> None:
    result = run(*options, env={"PATH": ""})
    assert callable(text)
    assert (result.exit_code, result.stdout, result.stderr) == (0, text(extract()), "")


@needs_graphviz
def test_svg_is_printed() -> None:
    result = run("--format", "svg")
    assert (result.exit_code, result.stderr) == (0, "")
    assert is_fresh(result.stdout, to_dot(extract()))


def test_svg_without_graphviz_is_an_error_without_a_traceback() -> None:
    result = run("--format", "svg", env={"PATH": ""})
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "turnwright diagram: an SVG is drawn by Graphviz, and its `dot` is not on PATH: install it "
        "(`apt-get install graphviz`, `brew install graphviz`); the formats mermaid, dot and table need nothing\n"
    )


def test_the_committed_files_pass_the_check_without_graphviz() -> None:
    result = run("--check", str(COMMITTED), env={"PATH": ""})
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_the_check_names_a_stale_file_and_exits_with_1(tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(COMMITTED, tmp_path / "diagrams"))
    with (copy / name).open("a", encoding="utf-8") as file:
        file.write("one line more\n")
    result = run("--check", str(copy))
    assert result.exit_code == 1
    assert result.stdout == f"{copy / name} is stale\n"
    assert result.stderr == f"write them anew with `turnwright diagram --write {copy}`\n"


def test_the_check_names_what_is_missing(tmp_path: Path) -> None:
    result = run("--check", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [f"{tmp_path / 'none' / name} is missing" for name in NAMES]


@needs_graphviz
def test_what_is_written_passes_the_check(tmp_path: Path) -> None:
    made = tmp_path / "new" / "diagrams"
    written = run("--write", str(made))
    assert written.exit_code == 0
    assert written.stdout.splitlines() == [f"wrote {made / name}" for name in NAMES]
    assert run("--check", str(made)).exit_code == 0
    again = run("--write", str(made))
    assert (again.exit_code, again.stdout) == (0, f"{made} is up to date\n")


def test_a_directory_that_cannot_be_made_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("--write", str(tmp_path / "file"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("turnwright diagram: ")
    assert str(tmp_path / "file") in result.stderr


@pytest.mark.parametrize(
    "options",
    [("--format", "dot", "--check", "x"), ("--write", "x", "--check", "x"), ("--format", "dot", "--write", "x")],
)
def test_two_things_at_once_are_refused(options: tuple[str, ...]) -> None:
    result = run(*options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "give one of them" in result.stderr


def test_an_unknown_format_is_a_usage_error_that_names_the_known_ones() -> None:
    result = run("--format", "png")
    assert (result.exit_code, result.stdout) == (2, "")
    assert all(name in result.stderr for name in ("mermaid", "dot", "svg", "table"))
