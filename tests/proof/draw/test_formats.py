"""Every format shows every state and every row, the same each time."""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from turnwright_proof.draw import (
    Arrow,
    NodeKind,
    Picture,
    TextLine,
    extract,
    fold_common_rows,
    to_dot,
    to_mermaid,
    to_page,
    to_table,
)
from turnwright_proof.draw.layout_hints import HINTS, LayoutHints
from turnwright_proof.texts import describe_guard
from turnwright_states.chart import ROWS, Chart
from turnwright_states.reasons import REASONS
from turnwright_states.state import State

FORMATS = (to_mermaid, to_dot, to_table, to_page)


def _shown(line: TextLine, *, event: bool) -> str:
    parts = [str(line.number), str(line.event) if event else ""]
    parts += [f"[{line.guard}]" if line.guard else "", f"/ {line.shown_reason}" if line.shown_reason else ""]
    return " ".join(filter(None, parts))


def _on(arrow: Arrow) -> str:
    """Return the text of an arrow: its rows, each event only where it changes."""
    events = [None, *(line.event for line in arrow.lines)]
    return " ".join(_shown(line, event=line.event != before) for line, before in zip(arrow.lines, events, strict=False))


def _plain(html: str) -> str:
    """The text of a label, without tags."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).replace("&#160;", " ").replace("&amp;", "&").split())


def test_mermaid_has_each_arrow_once_with_the_rows(picture: Picture) -> None:
    arrows = re.findall(r"^    (\w+) --> (\w+) : (.*)$", to_mermaid(picture), flags=re.MULTILINE)
    assert [(source, dest, text.replace("<br/>", " ")) for source, dest, text in arrows] == [
        (arrow.source, arrow.dest, _on(arrow)) for arrow in picture.arrows
    ]


def test_mermaid_declares_and_classes_every_state(picture: Picture) -> None:
    text = to_mermaid(picture)
    declared = re.findall(r"^    ([A-Z_]+)$", text, flags=re.MULTILINE)
    assert sorted(declared) == sorted(State)
    assert re.findall(r"^    class (\w+) (\w+)$", text, flags=re.MULTILINE) == [
        (node.state, node.kind) for node in picture.nodes
    ]
    assert re.findall(r"^    classDef (\w+) ", text, flags=re.MULTILINE) == list(NodeKind)


def test_mermaid_labels_contain_no_special_character(picture: Picture) -> None:
    for label in re.findall(r" : (.*)$", to_mermaid(picture), flags=re.MULTILINE):
        assert not re.search(r"[:;#%<>{}\"]", label.replace("<br/>", ""))


def test_dot_has_every_state_as_a_node(picture: Picture) -> None:
    nodes = re.findall(r"^  ([A-Z_]+) \[label", to_dot(picture), flags=re.MULTILINE)
    assert nodes == list(State)


def test_dot_leads_every_arrow_through_a_card_with_the_rows(picture: Picture) -> None:
    text = to_dot(picture)
    for arrow in picture.arrows:
        card = f'"{arrow.source} to {arrow.dest}"'
        label = re.search(rf"^  {card} \[shape=plain label=<(.*)>\]$", text, flags=re.MULTILINE)
        assert label is not None
        assert _plain(label[1]) == _on(arrow)
        assert len(re.findall(rf"^  {arrow.source} -> {card} \[dir=none ", text, flags=re.MULTILINE)) == 1
        assert len(re.findall(rf"^  {card} -> {arrow.dest} \[", text, flags=re.MULTILINE)) == 1
    assert len(re.findall(r"^  .* -> ", text, flags=re.MULTILINE)) == 1 + 2 * len(picture.arrows) + len(HINTS.sides)


def _entries(picture: Picture) -> list[str]:
    """Each entry of the note has the numbers of its rows, its event, its source states and its destination."""
    return [
        " ".join(
            (
                ", ".join(str(line.number) for line in rows.lines),
                _shown(rows.shown, event=True).partition(" ")[2],
                f"again in {', '.join(rows.sources)}"
                if rows.dest is None
                else f"from {', '.join(rows.sources)} to {rows.dest}",
            )
        )
        for rows in fold_common_rows(picture).folded
    ]


def test_dot_has_the_folded_rows_of_the_review_in_a_note(picture: Picture) -> None:
    text = to_dot(fold_common_rows(picture))
    label = re.search(r"^  note \[shape=plain label=<(.*)>\]$", text, flags=re.MULTILINE)
    assert label is not None
    assert _plain(label[1]) == " ".join(("These rows are alike in several states:", *_entries(picture)))
    assert re.findall(r"^  note -> (\w+) ", text, flags=re.MULTILINE) == ["ABORTED"]
    assert "note [" not in to_dot(picture)


def test_mermaid_has_the_folded_rows_of_the_review_in_a_note(picture: Picture) -> None:
    note = re.search(r"    note right of [A-Z]+\n([^:]*)    end note\n", to_mermaid(fold_common_rows(picture)))
    assert note is not None
    assert " ".join(note[1].split()) == " ".join(_entries(picture))
    assert "note" not in to_mermaid(picture)


def test_dot_distinguishes_the_kinds_of_states(picture: Picture) -> None:
    text = to_dot(picture)
    looks = {
        node.kind: {
            re.sub(r"label=(<.*>|\".*\") ", "", attributes)
            for attributes in re.findall(rf"^  {node.state} \[(.*)\]$", text, flags=re.MULTILINE)
        }
        for node in picture.nodes
    }
    assert all(len(look) == 1 for look in looks.values())
    assert len({look for kind_looks in looks.values() for look in kind_looks}) == len(NodeKind)


def test_dot_without_hints_is_complete(picture: Picture) -> None:
    def halves(text: str) -> set[str]:
        return set(re.findall(r"^  ([^{\n]* -> [^\[\n]*) \[", text, flags=re.MULTILINE))

    bare = to_dot(picture, LayoutHints())
    assert halves(bare) == halves(to_dot(picture))
    numbers = {int(number) for number in re.findall(r'<TD ALIGN="RIGHT"><FONT[^>]*>(\d+)<', bare)}
    assert numbers == set(range(1, len(ROWS) + 1))


def test_table_equals_the_chart_row_by_row(picture: Picture) -> None:
    lines = to_table(picture).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert cells[0] == ["#", "from", "event", "guard", "to", "reason"]
    assert len(cells) == 2 + len(ROWS)
    for number, (row, row_cells) in enumerate(zip(ROWS, cells[2:], strict=True), start=1):
        assert row_cells[:3] == [str(number), row.source, row.trigger]
        assert row_cells[3] == describe_guard(row.guard) if row.guard.text else row_cells[3] in {"", "otherwise"}
        assert row_cells[4:] == [row.dest, row.reason or ""]


def test_page_has_both_views_the_rows_and_every_reason(picture: Picture) -> None:
    page = to_page(picture)
    assert f"```mermaid\n{to_mermaid(fold_common_rows(picture))}```\n" in page
    assert f"```mermaid\n{to_mermaid(picture)}```\n" in page
    assert to_table(picture) in page
    for reason, meaning in REASONS.items():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{reason}` ")]
        assert [cell.strip() for cell in line.strip("|").split(" | ")][2:] == [meaning.means, meaning.next]


@pytest.mark.parametrize("form", FORMATS)
def test_change_of_the_chart_changes_every_format(form: Callable[[Picture], str]) -> None:
    assert form(extract(Chart(ROWS[:-1]))) != form(extract())


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_texts_are_independent_of_the_order_of_sets(picture: Picture, seed: str) -> None:
    program = "from turnwright_proof.draw import *; p = extract(); print(to_mermaid(p), to_dot(p), to_page(p))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout == f"{to_mermaid(picture)} {to_dot(picture)} {to_page(picture)}\n"
