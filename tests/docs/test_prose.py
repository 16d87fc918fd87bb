"""Claims of docs/why.md, comparison.md, security.md and the operating guides, compared with the code."""

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
import typer

from turnwright import Agent, Engine, SessionBusyError
from turnwright.cli import app, codes
from turnwright.cli.log_options import with_shared_options
from turnwright.cli.refused import busy_words
from turnwright.errors import ConfigError
from turnwright.model import ScriptedModel
from turnwright.store import SqliteStore, open_store
from turnwright.tools.result import FILES_LIMIT, RESULT_LIMIT, STRUCTURED_LIMIT
from turnwright_states import REASONS_OF, EndReason, Limits, Outcome
from turnwright_states.chart import ROWS

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
GUIDES: Final = ("deploy", "back-up-and-upgrade", "runbook")
PAGES: Final = ("why.md", "comparison.md", "security.md", *(f"how-to/{name}.md" for name in GUIDES))
TEXTS: Final = {page: (DOCS / page).read_text(encoding="utf-8") for page in PAGES}
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
DETAILS: Final = (ROOT / "bench" / "DETAILS.md").read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """Return the text under a heading, up to the next heading of the same level."""
    return text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


def table(text: str) -> list[list[str]]:
    """The cells of all tables of a text, without the lines below their heads."""
    lines = (line for line in text.splitlines() if line.startswith("|") and not line.startswith(("| ---", "|---")))
    return [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in lines]


def codes_in(text: str) -> list[str]:
    """Return the code spans of a text."""
    return re.findall(r"`([^`\n]+)`", text)


def commands(text: str) -> Iterator[list[str]]:
    """The words of each `turnwright` command that a page names, in its blocks and in its sentences."""
    blocks = re.findall(r"^```(?:bash|console)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if "$ " in line[:2]]
    lines += [line for block in blocks if "$ " not in block for line in block.splitlines()]
    for line in [*lines, *codes_in(text)]:
        if line.startswith("turnwright "):
            yield re.split(r" [|>#] |  ", line)[0].split()[1:]


def options_of(name: str) -> set[str]:
    """The options of a command."""
    alone = typer.Typer()
    alone.command()(with_shared_options(app.command(name)))
    return {option for parameter in typer.main.get_command(alone).params for option in parameter.opts}


@pytest.mark.parametrize("page", PAGES)
def test_every_named_command_exists_with_the_options(page: str) -> None:
    for name, *words in commands(TEXTS[page]):
        assert name in app.PLACES, name
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options_of(name), (name, words)


@pytest.mark.parametrize("page", PAGES)
def test_every_named_file_exists(page: str) -> None:
    paths = [code for code in codes_in(TEXTS[page]) if re.fullmatch(r"(?:tests|bench|engine|states)/\S+\.\w+", code)]
    assert [name for name in paths if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_page_without_a_test_shows_no_python(page: str) -> None:
    assert "```python" not in TEXTS[page]


def test_each_threat_has_a_mitigation_and_a_test() -> None:
    heads, *threats = table(section(TEXTS["security.md"], "Threats"))
    assert heads == ["threat", "what Turnwright does", "what is left to you", "tested in"]
    supply = next(row for row in threats if row[0].startswith("A dependency"))
    for row in threats:
        assert row[0], row
        assert row[1], row
        assert row is supply or "](../tests/" in row[3], row


def test_bounds_of_a_result_equal_the_code() -> None:
    text, data, files = RESULT_LIMIT // 1024, STRUCTURED_LIMIT // 1024, FILES_LIMIT // 1024 // 1024
    sentence = f"text is cut at {text} KiB; data above {data} KiB and files above {files} MiB are left out"
    assert sentence in TEXTS["security.md"]


def test_reports_are_named_by_repository_and_number_with_a_link() -> None:
    reports = re.findall(r"^> \[(\S+) #(\d+)\]\((\S+)\)", TEXTS["why.md"], re.MULTILINE)
    assert 6 <= len(reports) <= 12
    assert [url for _, _, url in reports] == [
        f"https://github.com/{name}/issues/{number}" for name, number, _ in reports
    ]


def test_why_page_has_the_number_of_chart_rows() -> None:
    assert f"table of {len(ROWS)} rows" in TEXTS["why.md"]


#: Cells about others that need no source: they depend on your code, were tested here, or say that nothing was found.
UNSOURCED: Final = re.compile(
    "if you write it|up to you|usually|no|as the engine retries|the turns|the graph is drawn|.* that we found"
)


@pytest.mark.parametrize("heading", ["Agent frameworks", "Other loops"])
def test_every_cell_about_others_has_a_source_or_needs_none(heading: str) -> None:
    heads, *rows = table(section(TEXTS["comparison.md"], heading))
    about = [(row[0], head, cell) for row in rows for head, cell in zip(heads, row, strict=True) if head]
    bare = [cell for cell in about if cell[1] != "Turnwright" and "](https://" not in cell[2]]
    assert [cell for cell in bare if not UNSOURCED.fullmatch(cell[2])] == []


def test_comparison_names_advantages_of_others_with_sources() -> None:
    ahead = section(TEXTS["comparison.md"], "Where the others are ahead today")
    entries = {entry.partition(".**")[0]: entry for entry in ahead.split("- **")[1:]}
    names = {"Budgets over many runs": "SpendLimits", "Background tools": "background_tools"}
    names |= {"Idle timeouts": "TimeoutPolicy", "Approvals": "OPA policies"}
    assert [title for title, name in names.items() if name not in entries.get(title, "")] == []
    assert [title for title, text in entries.items() if "](https://" not in text] == ["Age and use"]
    rows = {row[0]: row for row in table(section(TEXTS["comparison.md"], "Agent frameworks"))}
    assert "`durability`" in "".join(rows["finished tools run again after a crash"])
    assert all(name in rows["finished tools run again after a crash"][-1] for name in ("Absurd", "pgtask", "Lambda"))
    assert "StepPersistence" in rows["an interrupted call"][-1]


def test_readme_comparison_equals_the_page() -> None:
    page = {row[0]: row for row in table(section(TEXTS["comparison.md"], "Agent frameworks"))}
    heads, *rows = table(section(README, "How it compares"))
    columns = {"LangGraph": "LangGraph, LangChain"}
    shared = [row for row in rows if row[0] in page]
    assert len(shared) >= 5
    for row in shared:
        for head, cell in zip(heads[1:], row[1:], strict=True):
            full = page[row[0]][page[""].index(columns.get(head, head))]
            assert re.split("[;:]", re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", full))[0] == cell, (row[0], head)


def test_growth_of_the_disk_equals_the_measurement() -> None:
    page = " ".join(section(TEXTS["how-to/deploy.md"], "Size it").split())
    heads, *measured = table(section(DETAILS, "A step"))
    full = next(row for row in measured if row[0] == "Turnwright, SQLite FULL")
    early, late = full[heads.index("stored")].split(" / ")
    assert f"{early} bytes per step" in page
    assert f"{late} late in a turn" in page
    early, late = full[heads.index("written")].split(" / ")
    assert f"a step writes {early} bytes, and {late} late" in page
    heads, *measured = table(section(DETAILS, "Turns in flight"))
    flight = next(row for row in measured if row[0] == "Turnwright, SQLite FULL")
    assert f"{flight[heads.index('KiB a turn, 1,000')]} KiB for each turn" in page
    assert "100 MiB a process" in (DOCS / "scale.md").read_text(encoding="utf-8")


def test_reasons_to_watch_exist() -> None:
    rows = {row[0]: row[1:] for row in table(TEXTS["how-to/runbook.md"])}
    assert {*codes_in(rows["limits that are reached"][0])} == REASONS_OF[Outcome.CAP_HIT]
    assert {*codes_in(rows["outcomes by reason"][1])} <= {*map(str, EndReason), *map(str, Outcome)}
    assert codes_in(rows["[doom loops](../glossary.md#limits)"][0]) == [EndReason.DOOM_LOOP]


def test_exit_codes_and_retries_equal_the_code() -> None:
    text = " ".join(TEXTS["how-to/deploy.md"].split())
    assert f"aborts the turn: exit code {codes.ABORTED}." in text
    assert f"has not ended: {codes.TERMINATED}." in text
    text = TEXTS["how-to/runbook.md"]
    assert f"`max_retries` is {Limits().max_retries}" in text
    assert f"attempt {Limits().max_retries + 1}\n" in text


def test_errors_of_the_runbook_equal_the_messages() -> None:
    text = TEXTS["how-to/runbook.md"]
    busy = SessionBusyError("s2", "88c6cfa421e0826a")
    assert f"turnwright: {busy_words(busy, '', driven=False, elsewhere=False)}\n" in text
    with pytest.raises(ConfigError) as missing:
        open_store("sqlite:///nowhere.db", create=False)
    assert f"turnwright: {missing.value}" in text


@pytest.mark.anyio
async def test_plain_copy_of_a_store_lacks_facts_unlike_the_documented_ways(tmp_path: Path) -> None:
    path = tmp_path / "turns.db"
    async with Engine(model=ScriptedModel("It is."), store=SqliteStore(path)) as engine:
        await engine.run(Agent(name="Clerk"), "Is it?")
        shutil.copy(path, tmp_path / "plain.db")
        with closing(sqlite3.connect(path)) as store, closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
            store.execute("VACUUM INTO ?", (str(tmp_path / "vacuum.db"),))
            store.backup(backup)
            whole = facts_in(path)
    assert facts_in(tmp_path / "plain.db") < whole
    assert facts_in(tmp_path / "backup.db") == facts_in(tmp_path / "vacuum.db") == whole > 0


def facts_in(path: Path) -> int:
    """The number of facts that a file holds; 0 if it holds no table for them yet."""
    with closing(sqlite3.connect(path)) as store:
        try:
            (count,) = store.execute("SELECT COUNT(*) FROM facts").fetchone()
        except sqlite3.OperationalError:
            return 0
        return int(count)
