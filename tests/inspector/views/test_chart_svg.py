"""The drawings of the chart on a page: they are the committed ones, whole, and what a turn took of them is lit."""

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from turnwright.draw import extract, main_way
from turnwright.draw.svg import is_fresh
from turnwright.inspector.views.chart_svg import FULL_FILE, MAIN_FILE, Lit, chart_svg
from turnwright_states import State
from turnwright_states.chart import CHART

ROOT = Path(__file__).parents[3]
ARROWS = {(arrow.source, arrow.dest): [line.number for line in arrow.lines] for arrow in extract().arrows}
EVERY_ROW = range(1, len(CHART.rows) + 1)
FOLDED = {line.number: rows for rows in main_way(extract()).folded for line in rows.lines}


def drawn(lit: Lit | None = None, *, full: bool = True) -> ET.Element:
    text = chart_svg(lit or Lit({}, None, State.CHECK, ended=False), full=full)
    return ET.fromstring(text)  # noqa: S314 (our own drawing)


def of_class(root: ET.Element, *names: str) -> list[ET.Element]:
    return [element for element in root.iter("g") if set(names) <= set(element.get("class", "").split())]


def rows_of(element: ET.Element) -> list[int]:
    return [int(number) for number in element.get("data-rows", "").split()]


@pytest.mark.parametrize("file", [MAIN_FILE, FULL_FILE])
def test_the_picture_is_the_committed_drawing_of_the_chart(file: Path) -> None:
    assert file.read_bytes() == (ROOT / "diagrams" / file.name).read_bytes(), "run `make diagrams`"
    dot = (ROOT / "diagrams" / file.name).with_suffix(".dot").read_text(encoding="utf-8")
    assert is_fresh(file.read_text(encoding="utf-8"), dot)


@pytest.mark.parametrize("full", [True, False])
def test_every_state_is_in_the_picture(*, full: bool) -> None:
    states = of_class(drawn(full=full), "state")
    assert Counter(element.get("data-state") for element in states) == Counter(State)
    for element in states:
        touching = [row for pair, rows in ARROWS.items() if element.get("data-state") in pair for row in rows]
        assert rows_of(element) == sorted(touching)


def test_every_arrow_is_in_the_picture_with_its_card_and_both_halves() -> None:
    for name, count in (("card", 1), ("arrow", 2)):
        found = Counter((element.get("data-from"), element.get("data-to")) for element in of_class(drawn(), name))
        assert found == dict.fromkeys(ARROWS, count)


def test_every_row_of_the_chart_is_a_line_of_its_arrows_card() -> None:
    for card in of_class(drawn(), "card"):
        lines = [rows_of(line)[0] for line in of_class(card, "line-of-card")]
        assert lines == rows_of(card) == ARROWS[State[card.get("data-from", "")], State[card.get("data-to", "")]]
    assert sorted(rows_of(line)[0] for line in of_class(drawn(), "line-of-card")) == list(EVERY_ROW)


def test_every_row_is_in_one_place_of_the_main_way_an_arrow_or_the_note() -> None:
    root = drawn(full=False)
    lines = [line for card in of_class(root, "card") for line in of_class(card, "line-of-card")]
    assert sorted(row for line in lines for row in rows_of(line)) == list(EVERY_ROW)
    (note,) = of_class(root, "card", "note")
    assert sorted(row for line in of_class(note, "line-of-card") for row in rows_of(line)) == sorted(FOLDED)


@pytest.mark.parametrize("number", sorted(FOLDED))
def test_a_folded_row_that_was_taken_is_lit_in_the_note_of_the_main_way(number: int) -> None:
    at = FOLDED[number].dest or CHART.rows[number - 1].source
    root = drawn(Lit({number: 2}, {number}, at, ended=True), full=False)
    rows = [line.number for line in FOLDED[number].lines]
    assert [rows_of(line) for line in of_class(root, "line-of-card", "taken", "chosen")] == [rows]
    (card,) = of_class(root, "card", "taken")
    assert card.get("aria-label") == "Rows that are alike in several states, taken 2 times"
    row = CHART.rows[number - 1]
    assert {one.get("data-state") for one in of_class(root, "state", "taken")} == {row.source, row.dest}


@pytest.mark.parametrize("full", [True, False])
def test_a_line_begins_with_the_numbers_of_its_rows(*, full: bool) -> None:
    for line in of_class(drawn(full=full), "line-of-card"):
        first = line.find("text")
        assert first is not None
        assert (first.text or "").replace(",", "") == line.get("data-rows")


@pytest.mark.parametrize("number", EVERY_ROW)
def test_a_row_that_was_taken_lights_its_line_its_arrow_and_the_states_that_it_joins(number: int) -> None:
    root = drawn(Lit({number: 3}, None, State.CHECK, ended=False))
    row = CHART.rows[number - 1]
    assert [rows_of(line) for line in of_class(root, "line-of-card", "taken")] == [[number]]
    for kind in ("card", "arrow"):
        lit = {(one.get("data-from"), one.get("data-to")) for one in of_class(root, kind, "taken")}
        assert lit == {(row.source, row.dest)}
    assert {one.get("data-state") for one in of_class(root, "state", "taken")} == {row.source, row.dest, State.CHECK}
    assert [one.findtext("text") for one in of_class(root, "times")] == ["3×"]  # noqa: RUF001 (the sign of multiplication)


def test_it_shows_where_the_turn_stands_or_ended() -> None:
    going = of_class(drawn(Lit({}, None, State.PAUSED, ended=False)), "here")
    assert [(one.get("data-state"), one.get("aria-label")) for one in going] == [
        ("PAUSED", "PAUSED. The turn is here.")
    ]
    over = of_class(drawn(Lit({}, None, State.CAP_HIT, ended=True)), "here", "ended")
    assert [one.get("data-state") for one in over] == ["CAP_HIT"]


def test_the_way_of_the_chosen_step_is_told_from_the_rest() -> None:
    root = drawn(Lit({10: 2, 12: 2, 14: 1}, {10, 14}, State.FINISHED, ended=True))
    assert "has-chosen" in root.get("class", "")
    assert [rows_of(line) for line in of_class(root, "line-of-card", "chosen")] == [[10], [14]]
    assert [rows_of(line) for line in of_class(root, "line-of-card", "taken")] == [[10], [12], [14]]


def test_only_what_was_taken_is_reached_by_keyboard() -> None:
    root = drawn(Lit({14: 1}, None, State.FINISHED, ended=True))
    reached = [
        one.get("data-state") or (one.get("data-from"), one.get("data-to"))
        for one in root.iter("g")
        if one.get("tabindex")
    ]
    assert sorted(map(str, reached)) == sorted(map(str, ["STREAM", "FINISHED", ("STREAM", "FINISHED")]))


@pytest.mark.parametrize("full", [True, False])
def test_no_two_elements_share_an_id(*, full: bool) -> None:
    ids = Counter(one.get("id") for one in drawn(full=full).iter() if one.get("id"))
    assert ids.most_common(1)[0][1] == 1
