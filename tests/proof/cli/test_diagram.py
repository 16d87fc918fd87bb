"""`turnwright diagram` prints the chart, with an overlay or without, writes the files, and says which are stale."""

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio
import pytest
import typer
from tests.one_row_a_fact import one_row_a_fact
from typer.testing import CliRunner, Result

from turnwright import Agent, Engine, tool
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright_proof.cli.diagram import diagram
from turnwright_proof.draw import (
    coverage_overlay,
    extract,
    extract_overview,
    fold_common_rows,
    overview_to_svg,
    overview_to_table,
    read_row_counts,
    to_dot,
    to_mermaid,
    to_table,
)
from turnwright_proof.draw.svg import is_fresh
from turnwright_states.chart import ROWS, VERSION
from turnwright_states.row_counts import RowCounts

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli

COMMITTED = Path(__file__).parents[3] / "diagrams"
NAMES = (
    *("turn.mmd", "turn-full.mmd", "turn.dot", "turn-full.dot", "overview.svg"),
    *("turn.md", "turn.svg", "turn-full.svg"),
)
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
        (("--view", "full"), to_mermaid),
        (("--view", "review"), lambda picture: to_mermaid(fold_common_rows(picture))),
        (("--view", "review", "--format", "dot"), lambda picture: to_dot(fold_common_rows(picture))),
        (("--view", "overview"), lambda picture: overview_to_svg(extract_overview(picture))),
        (("--view", "overview", "--format", "svg"), lambda picture: overview_to_svg(extract_overview(picture))),
        (("--view", "overview", "--format", "table"), lambda picture: overview_to_table(extract_overview(picture))),
    ],
)
def test_stdout_contains_only_the_chosen_format(options: tuple[str, ...], text: object) -> None:
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
        "(`apt-get install graphviz`, `brew install graphviz`); "
        "the formats mermaid, dot and table need nothing\n"
    )


def test_committed_files_pass_the_check_without_graphviz() -> None:
    result = run("--check", str(COMMITTED), env={"PATH": ""})
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_check_names_a_stale_file_and_exits_with_1(tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(COMMITTED, tmp_path / "diagrams"))
    with (copy / name).open("a", encoding="utf-8") as file:
        file.write("one line more\n")
    result = run("--check", str(copy))
    assert result.exit_code == 1
    assert result.stdout == f"{copy / name} is stale\n"
    assert result.stderr == f"to update them: `turnwright diagram --write {copy}`\n"


def test_check_names_missing_files(tmp_path: Path) -> None:
    result = run("--check", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [f"{tmp_path / 'none' / name} is missing" for name in NAMES]


@needs_graphviz
def test_written_files_pass_the_check(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "diagrams"
    result = run("--write", str(folder))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"wrote {folder / name}" for name in NAMES]
    assert run("--check", str(folder)).exit_code == 0
    again = run("--write", str(folder))
    assert (again.exit_code, again.stdout) == (0, f"{folder} is up to date\n")


def test_uncreatable_directory_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("--write", str(tmp_path / "file"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"turnwright diagram: {tmp_path / 'file'}: File exists\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full disk to write to")
def test_full_disk_is_named_without_a_number(cli: "Cli") -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "turnwright", "diagram"]
        process = subprocess.run(command, cwd=cli.folder, env=cli.env, stdout=full, stderr=subprocess.PIPE, check=False)
    text = b"turnwright: the output cannot be written (No space left on device)\n"
    assert (process.returncode, process.stderr) == (1, text)


@pytest.mark.parametrize(
    "options",
    [
        ("--format", "dot", "--check", "x"),
        ("--write", "x", "--check", "x"),
        ("--format", "dot", "--write", "x"),
        ("--turn", "x", "--write", "x"),
        ("--coverage", "x", "--check", "x"),
        ("--view", "review", "--check", "x"),
        ("--view", "full", "--write", "x"),
        ("--coverage", "x", "--turn", "x"),
    ],
)
def test_conflicting_options_are_refused(options: tuple[str, ...]) -> None:
    result = run(*options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "give one of them" in result.stderr


@pytest.mark.parametrize("view", ["overview", "review"])
@pytest.mark.parametrize("overlay", ["--turn", "--coverage"])
def test_overlays_need_the_full_view(view: str, overlay: str) -> None:
    result = run("--view", view, overlay, "x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--view {view} excludes --turn and --coverage: they need the full chart" in result.stderr


@pytest.mark.parametrize(
    ("view", "form", "formats"),
    [
        *(("overview", form, "svg, table") for form in ("mermaid", "dot", "page")),
        *(("review", form, "dot, mermaid, svg") for form in ("table", "page")),
    ],
)
def test_unsupported_format_of_a_view_lists_the_supported_formats(view: str, form: str, formats: str) -> None:
    result = run("--view", view, "--format", form)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"turnwright diagram: --view {view} excludes --format {form}: use {formats}\n"


@pytest.mark.parametrize("overlay", ["--turn", "--coverage"])
def test_page_refuses_an_overlay(overlay: str) -> None:
    result = run("--format", "page", overlay, "x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "use mermaid, dot, svg or table" in result.stderr


def test_unknown_format_is_a_usage_error_with_the_known_formats() -> None:
    result = run("--format", "png")
    assert (result.exit_code, result.stdout) == (2, "")
    assert all(name in result.stderr for name in ("mermaid", "dot", "svg", "table", "page"))


def column(table: str) -> list[str]:
    """The counts in the table, row by row."""
    return [line.split(" | ")[1].strip() for line in table.splitlines() if re.match(r"\| \d", line)]


class Recorded(NamedTuple):
    """A turn in a store, and the rows that driving it took."""

    id: str
    store: str
    counts: RowCounts


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: nothing found"


async def _drive(store: str) -> str:
    model = ScriptedModel(asks_for(("look_up", {"word": "a"})), asks_for(("look_up", {"word": "b"})), "That is all.")
    async with Engine(model=model, tools=[look_up], store=store) as engine:
        return (await engine.run(Agent(name="reader", steps=2), "Look some words up.")).id


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Two steps with a call each, then the cap."""
    store = f"sqlite:///{tmp_path / 'turns.db'}"
    before = RowCounts.now()
    turn = anyio.run(_drive, store)
    return Recorded(turn, store, RowCounts.now() - before)


def test_recorded_turn_is_drawn_with_the_rows_taken(recorded: Recorded) -> None:
    result = run("--turn", recorded.id, "--store", recorded.store, "--format", "table")
    assert (result.exit_code, result.stderr) == (0, "")
    assert column(result.stdout) == [str(count) if count else "" for count in recorded.counts.taken]
    title, figures, path, *_ = result.stdout.split("\n\n")
    assert title == f"**turn {recorded.id}: cap_hit: step_cap**"
    assert re.fullmatch(
        r"2 steps, 2 tool calls run, \d+\.\d s of driving, 6 of 75 rows taken, 10 times in all", figures
    )
    assert path == "path: (CHECK > STREAM > TOOL_EXEC > CONTINUE) x2 > CHECK > CONCLUDE > CAP_HIT"


def test_drawing_a_turn_counts_no_rows(recorded: Recorded) -> None:
    """Else `--turn` in a test would be counted as coverage."""
    before = RowCounts.now()
    assert run("--turn", recorded.id, "--store", recorded.store).exit_code == 0
    assert RowCounts.now() == before


@pytest.mark.parametrize(
    ("form", "marked"),
    [
        pytest.param("svg", "ended here", marks=needs_graphviz),
        ("dot", "ended here"),
        ("mermaid", "class CAP_HIT here"),
    ],
)
def test_recorded_turn_is_drawn_in_every_format(recorded: Recorded, form: str, marked: str) -> None:
    result = run("--turn", recorded.id, "--store", recorded.store, "--format", form)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.count(marked) == 1
    assert f"turn {recorded.id}: cap_hit: step_cap" in result.stdout


def test_journal_contradicting_the_chart_is_not_drawn(recorded: Recorded, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "turns.db") as database:
        one_row_a_fact(database)
        (seq,) = database.execute("SELECT max(seq) FROM facts WHERE kind = 'step_started'").fetchone()
        database.execute(
            "UPDATE facts SET payload = replace(payload, '\"number\":2', '\"number\":1') WHERE seq = ?", (seq,)
        )
    database.close()
    result = run("--turn", recorded.id, "--store", recorded.store)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"turnwright diagram: turn {recorded.id} cannot be drawn: ")
    assert re.search(rf"\b{seq}\b", result.stderr)


def test_unknown_turn_is_a_user_mistake(cli: "Cli", recorded: Recorded) -> None:
    unknown = cli.run("diagram", "--turn", "nobody", "--store", recorded.store)
    assert (unknown.code, unknown.out) == (2, "")
    assert "there is no turn 'nobody'" in unknown.err
    nowhere = run("--turn", recorded.id, "--store", "sqlite:///nowhere.db")
    assert (nowhere.exit_code, nowhere.stdout) == (2, "")
    assert "there is no store nowhere.db" in nowhere.stderr


def _written(path: Path, *taken_rows: int) -> Path:
    """A file in which these rows were taken, each as often as its number says."""
    counts = RowCounts(tuple(number if number in taken_rows else 0 for number in range(1, len(ROWS) + 1)))
    path.write_text(counts.to_json(), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["mermaid", "dot", "table"])
def test_coverage_is_drawn_in_every_format(tmp_path: Path, form: str) -> None:
    file = _written(tmp_path / "rows.json", 10, 14)
    overlay = coverage_overlay(read_row_counts(file))
    texts = {
        "mermaid": to_mermaid(extract(), overlay),
        "dot": to_dot(extract(), overlay=overlay),
        "table": to_table(extract(), overlay),
    }
    result = run("--coverage", str(file), "--format", form, env={"PATH": ""})
    assert (result.exit_code, result.stdout, result.stderr) == (0, texts[form], "")
    assert "2 of 75 rows taken" in result.stdout


@needs_graphviz
def test_coverage_is_drawn_as_svg(tmp_path: Path) -> None:
    result = run("--coverage", str(_written(tmp_path / "rows.json", 10, 14)), "--format", "svg")
    assert (result.exit_code, result.stderr) == (0, "")
    assert '<title id="turn-title">One turn of an agent as a state machine: 2 of 75 rows taken</title>' in result.stdout


def test_several_files_of_coverage_are_added_up(tmp_path: Path) -> None:
    first, second = _written(tmp_path / "one.json", 10, 14), _written(tmp_path / "other.json", 14, 20)
    result = run("--coverage", str(first), "--coverage", str(second), "--format", "table")
    assert result.exit_code == 0
    counts = {number: count for number, count in enumerate(column(result.stdout), start=1) if count != "**0**"}
    assert counts == {10: "10", 14: "28", 20: "20"}


def test_coverage_of_another_chart_is_refused(tmp_path: Path) -> None:
    file = _written(tmp_path / "rows.json", 10)
    file.write_text(file.read_text(encoding="utf-8").replace(f'"chart": {VERSION}', '"chart": 999'), encoding="utf-8")
    result = run("--coverage", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{file}: was written under chart 999, and this release has chart {VERSION}" in result.stderr
