"""The page of judges has a row for each, in which nothing failed; each page of a protocol links to it."""

from collections.abc import Mapping

import pytest
from tests.protocols.judge import HERE
from tests.protocols.judges_page import JUDGES, PAGE, put_into, render_table

VERDICTS: Mapping[str, tuple[str, str]] = {"a": ("PASS", ""), "b": ("SKIP", "not offered"), "c": ("FAIL", "broken")}


def rows_of(page: str) -> list[list[str]]:
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return rows[2:]


def test_page_has_a_row_of_each_judge_without_failures() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    assert [row[1] for row in rows] == [f"`{judge.name}`" for judge in JUDGES]
    assert {row[-1] for row in rows} == {"none"}
    assert all(int(row[3]) > 0 for row in rows)


def test_pages_of_protocols_link_to_the_page_of_judges() -> None:
    pages = {judge.page for judge in JUDGES}
    assert all("(judges.md)" in (PAGE.parent / page).read_text(encoding="utf-8") for page in pages)


def test_every_script_of_a_judge_is_in_the_table() -> None:
    scripts = {path.name for path in (HERE / "judges").glob("*_judge.mjs")}
    assert {judge.script.partition(" ")[0] for judge in JUDGES if judge.script} == scripts


def test_table_has_refusals_with_reasons_and_names_of_failures() -> None:
    verdicts, clients = {judge.name: VERDICTS for judge in JUDGES}, {judge.name: "client 1.0" for judge in JUDGES}
    (row, *_) = rows_of(put_into("<!-- judges -->\n<!-- /judges -->\n", render_table(verdicts, clients)))
    assert row[2:] == ["client 1.0", "1", "`b`: not offered", "`c`"]


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="must have <!-- judges -->"):
        put_into("# Judges\n", "")
