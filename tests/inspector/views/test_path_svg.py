"""The path of a turn as a drawing: every row has its card, and nothing covers anything else."""

import re
from collections.abc import Collection
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnwright_inspector.views.chart_svg import Lit
from turnwright_inspector.views.path_svg import path_svg
from turnwright_states import State
from turnwright_states.chart import CHART

EVERY_ROW = range(1, len(CHART.rows) + 1)
#: The rows of turns: one that meets its step limit, one that is answered, one that fails, one with retries and a pause.
TURNS = (
    {11, 14, 47, 53, 2, 64},
    {11, 16},
    {11, 14, 47, 53, 19},
    {11, 17, 14, 44, 57, 47, 53, 16, 54, 10, 55, 56, 62, 63},
)

Box = tuple[float, float, float, float]


def drawn(rows: Collection[int], stands: State = State.CHECK, taken_rows: Collection[int] = ()) -> ET.Element:
    lit = Lit(dict.fromkeys(taken_rows, 1), None, stands, ended=False)
    return ET.fromstring(path_svg(lit, rows, lambda state: f"?state={state}"))  # noqa: S314 (our own drawing)


def of_class(root: ET.Element, name: str) -> list[ET.Element]:
    return [element for element in root.iter() if name in element.get("class", "").split()]


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path)]


def box(element: ET.Element) -> Box:
    path = element.find("path")
    assert path is not None
    corners = points(path.get("d", ""))
    return (
        min(x for x, _ in corners),
        min(y for _, y in corners),
        max(x for x, _ in corners),
        max(y for _, y in corners),
    )


def meet(box: Box, other_box: Box) -> bool:
    return box[0] < other_box[2] and other_box[0] < box[2] and box[1] < other_box[3] and other_box[1] < box[3]


def check_nothing_covers_anything(root: ET.Element) -> None:
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    boxes = {element.get("id"): box(element) for name in ("card", "state") for element in of_class(root, name)}
    for (name, first_box), (other_name, second_box) in combinations(boxes.items(), 2):
        assert not meet(first_box, second_box), (name, other_name)
    assert all(0 <= x < right <= width and 0 <= top < low <= height for x, top, right, low in boxes.values())


@pytest.mark.parametrize("rows", [*TURNS, set(EVERY_ROW)])
def test_every_row_is_a_line_of_a_card_between_states(rows: set[int]) -> None:
    root = drawn(rows)
    lines = [int(line.get("data-rows", "")) for line in of_class(root, "line-of-card")]
    assert sorted(lines) == sorted(rows)
    for card in of_class(root, "card"):
        for number in map(int, card.get("data-rows", "").split()):
            row = CHART.rows[number - 1]
            assert (card.get("data-from"), card.get("data-to")) == (row.source, row.dest)
    states = {state for number in rows for state in (CHART.rows[number - 1].source, CHART.rows[number - 1].dest)}
    assert {element.get("data-state") for element in of_class(root, "state")} == states | {State.CHECK}
    check_nothing_covers_anything(root)


@example({58}, State.CHECK)
@given(st.sets(st.sampled_from(EVERY_ROW)), st.sampled_from(State))
def test_drawn_elements_never_overlap(rows: set[int], stands: State) -> None:
    check_nothing_covers_anything(drawn(rows, stands))


@given(st.sets(st.sampled_from(EVERY_ROW), min_size=1))
def test_arrow_passes_behind_no_card_except_of_a_loop(rows: set[int]) -> None:
    root = drawn(rows)
    cards = {
        (element.get("data-from"), element.get("data-to")): box(element)
        for element in of_class(root, "card")
        if element.get("data-from") != element.get("data-to")
    }
    for arrow in of_class(root, "arrow"):
        path = arrow.find("path")
        assert path is not None
        for (x, y), (to_x, to_y) in zip(points(path.get("d", "")), points(path.get("d", ""))[1:], strict=False):
            line = (min(x, to_x), min(y, to_y), max(x, to_x) + 0.01, max(y, to_y) + 0.01)
            for name, card in cards.items():
                own = name == (arrow.get("data-from"), arrow.get("data-to"))
                assert own or not meet(line, card), (name, path.get("d"))


def test_arrow_begins_and_ends_at_states() -> None:
    root = drawn(EVERY_ROW)
    states = {element.get("data-state"): box(element) for element in of_class(root, "state")}
    for arrow in of_class(root, "arrow"):
        path, head = arrow.find("path"), arrow.find("polygon")
        assert path is not None
        assert head is not None
        for name, (x, y) in (
            ("data-from", points(path.get("d", ""))[0]),
            ("data-to", points(head.get("points", ""))[0]),
        ):
            x_min, top, right, low = states[arrow.get(name)]
            assert x_min <= x <= right
            assert top <= y <= low


def test_untaken_rows_have_a_reserved_place() -> None:
    early, late = (drawn(TURNS[0], State.STREAM, taken_rows) for taken_rows in ({11}, TURNS[0]))
    assert {element.get("id"): box(element) for element in of_class(early, "card")} == {
        element.get("id"): box(element) for element in of_class(late, "card")
    }
    assert [element.get("id") for element in of_class(early, "card") if "taken" in element.get("class", "")] == [
        "path-card-CHECK-STREAM"
    ]


def test_taken_state_links_to_the_facts() -> None:
    root = drawn(TURNS[1], State.FINISHED, TURNS[1])
    assert {element.get("data-state"): element.get("href") for element in root.iter("a")} == {
        state: f"?state={state}" for state in ("CHECK", "STREAM", "FINISHED")
    }
