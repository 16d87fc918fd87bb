"""The drawing of the chart on a page: it is the committed one, whole, and what a turn took of it is lit."""

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from turnwright_inspector.views.chart_svg import FILE, Lit, chart_svg
from turnwright_proof.draw import extract
from turnwright_proof.draw.svg import is_fresh
from turnwright_states import State
from turnwright_states.chart import CHART

ROOT = Path(__file__).parents[3]
ARROWS = {(arrow.source, arrow.dest): [line.number for line in arrow.lines] for arrow in extract().arrows}
EVERY_ROW = range(1, len(CHART.rows) + 1)


def drawn(lit: Lit | None = None) -> ET.Element:
    text = chart_svg(lit or Lit({}, None, State.CHECK, ended=False), lambda state: f"?state={state}")
    return ET.fromstring(text)  # noqa: S314 (our own drawing)


def of_class(root: ET.Element, *names: str) -> list[ET.Element]:
    return [element for element in root.iter() if set(names) <= set(element.get("class", "").split())]


def rows_of(element: ET.Element) -> list[int]:
    return [int(number) for number in element.get("data-rows", "").split()]


def test_picture_equals_the_committed_drawing_of_the_chart() -> None:
    assert FILE.read_bytes() == (ROOT / "diagrams" / FILE.name).read_bytes(), "run `make diagrams`"
    dot = (ROOT / "diagrams" / FILE.name).with_suffix(".dot").read_text(encoding="utf-8")
    assert is_fresh(FILE.read_text(encoding="utf-8"), dot)


def test_every_state_is_in_the_picture() -> None:
    states = of_class(drawn(), "state")
    assert Counter(element.get("data-state") for element in states) == Counter(State)
    for element in states:
        touching = [row for pair, rows in ARROWS.items() if element.get("data-state") in pair for row in rows]
        assert rows_of(element) == sorted(touching)


def test_every_arrow_has_a_card_and_both_halves() -> None:
    for name, count in (("card", 1), ("arrow", 2)):
        counts = Counter((element.get("data-from"), element.get("data-to")) for element in of_class(drawn(), name))
        assert counts == dict.fromkeys(ARROWS, count)


def test_every_chart_row_is_a_line_of_the_arrow_card() -> None:
    for card in of_class(drawn(), "card"):
        lines = [rows_of(line)[0] for line in of_class(card, "line-of-card")]
        assert lines == rows_of(card) == ARROWS[State[card.get("data-from", "")], State[card.get("data-to", "")]]
    assert sorted(rows_of(line)[0] for line in of_class(drawn(), "line-of-card")) == list(EVERY_ROW)


def test_line_begins_with_the_row_number() -> None:
    for line in of_class(drawn(), "line-of-card"):
        assert line.findtext("text") == line.get("data-rows")


@pytest.mark.slow
@pytest.mark.parametrize("number", EVERY_ROW)
def test_taken_row_highlights_line_arrow_and_states(number: int) -> None:
    root = drawn(Lit({number: 3}, None, State.CHECK, ended=False))
    row = CHART.rows[number - 1]
    assert [rows_of(line) for line in of_class(root, "line-of-card", "taken")] == [[number]]
    for kind in ("card", "arrow"):
        lit = {(element.get("data-from"), element.get("data-to")) for element in of_class(root, kind, "taken")}
        assert lit == {(row.source, row.dest)}
    assert {element.get("data-state") for element in of_class(root, "state", "taken")} == {
        row.source,
        row.dest,
        State.CHECK,
    }
    assert [element.findtext("text") for element in of_class(root, "times")] == ["3×"]  # noqa: RUF001 (the sign of multiplication)


def test_chart_marks_the_current_or_final_state() -> None:
    current = of_class(drawn(Lit({}, None, State.PAUSED, ended=False)), "here")
    assert [(element.get("data-state"), element.get("aria-label")) for element in current] == [
        ("PAUSED", "Facts in PAUSED. The turn is here.")
    ]
    over = of_class(drawn(Lit({}, None, State.CAP_HIT, ended=True)), "here", "ended")
    assert [element.get("data-state") for element in over] == ["CAP_HIT"]


def test_path_of_the_chosen_step_is_highlighted_separately() -> None:
    root = drawn(Lit({11: 2, 13: 2, 15: 1}, {11, 15}, State.FINISHED, ended=True))
    assert "has-chosen" in root.get("class", "")
    assert [rows_of(line) for line in of_class(root, "line-of-card", "chosen")] == [[11], [15]]
    assert [rows_of(line) for line in of_class(root, "line-of-card", "taken")] == [[11], [13], [15]]


def test_only_taken_arrows_are_focusable_and_states_link_to_facts() -> None:
    root = drawn(Lit({15: 1}, None, State.FINISHED, ended=True))
    cards = [
        (element.get("data-from"), element.get("data-to")) for element in root.iter("g") if element.get("tabindex")
    ]
    assert cards == [("STREAM", "FINISHED")]
    states = {element.get("data-state"): element.get("href") for element in root.iter("a")}
    assert states == {"STREAM": "?state=STREAM", "FINISHED": "?state=FINISHED"}


def test_no_two_elements_share_an_id() -> None:
    ids = Counter(element.get("id") for element in drawn().iter() if element.get("id"))
    assert ids.most_common(1)[0][1] == 1
