"""The overview: each state is in one box, each row belongs to one arrow, and the drawing is small and complete."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import chain, combinations, pairwise

import pytest

from turnwright.errors import ConfigError
from turnwright_proof.draw import Arrow, NodeKind, Picture, TextLine, extract, extract_overview, overview_to_svg
from turnwright_proof.draw.overview import BOXES, RULES, STEPS, TURN
from turnwright_proof.draw.table import overview_to_table
from turnwright_states.chart import ROWS, Chart
from turnwright_states.state import FINAL, State, Trigger

_SVG = "{http://www.w3.org/2000/svg}"
_Point = tuple[float, float]


@pytest.fixture(scope="module")
def root() -> ET.Element:
    return ET.fromstring(overview_to_svg(extract_overview(extract())))  # noqa: S314 (our own drawing)


def _paths(root: ET.Element) -> list[list[_Point]]:
    """Return the corners of each arrow; a round corner is its control point."""
    paths = []
    for path in root.iter(f"{_SVG}path"):
        if path.get("marker-end"):
            numbers = [part.split() for part in (path.get("d") or "").translate(str.maketrans("MLQ", ",,,")).split(",")]
            paths.append([(float(part[0]), float(part[1])) for part in numbers if part])
    return paths


def _rectangles(root: ET.Element) -> list[tuple[float, float, float, float]]:
    """Return left, top, right and bottom of each box."""
    sized = [[float(box.get(key) or 0) for key in ("x", "y", "width", "height")] for box in _boxes(root)]
    return [(x, y, x + width, y + height) for x, y, width, height in sized]


def _boxes(root: ET.Element) -> list[ET.Element]:
    return [rect for rect in root.iter(f"{_SVG}rect") if rect.get("rx") == "9"]


def _crosses(first: tuple[_Point, _Point], second: tuple[_Point, _Point]) -> bool:
    """Whether two rectangles, given by opposite corners, overlap. A horizontal or vertical line is one too."""
    spans = [[sorted(point[axis] for point in line) for line in (first, second)] for axis in (0, 1)]
    return all(a[0] <= b[1] and b[0] <= a[1] for a, b in spans)


def _with_row(source: State, dest: State, event: Trigger) -> Picture:
    picture = extract()
    line = TextLine(len(ROWS) + 1, event, "", "")
    return replace(picture, arrows=(*picture.arrows, Arrow(source, dest, (line,))))


def test_each_state_is_in_a_single_box() -> None:
    assert sorted(chain.from_iterable(box.states for box in BOXES)) == sorted(State)
    assert set(TURN.states) == set(State) - FINAL
    assert set(STEPS.states) < set(TURN.states)


def test_each_row_belongs_to_a_single_arrow_between_the_states(picture: Picture) -> None:
    overview = extract_overview(picture)
    numbers = sorted(chain.from_iterable(arrow.numbers for arrow in overview.arrows))
    assert numbers == list(range(1, len(ROWS) + 1))
    for arrow in overview.arrows:
        for row in (ROWS[number - 1] for number in arrow.numbers):
            forth = row.source in arrow.rule.source.states and row.dest in arrow.rule.dest.states
            back = row.source in arrow.rule.dest.states and row.dest in arrow.rule.source.states
            assert forth or (back and arrow.rule.back)


def test_overview_has_at_most_12_boxes_and_16_arrows(root: ET.Element) -> None:
    assert len(_boxes(root)) <= 12
    assert len(_paths(root)) == len(RULES) + 1 <= 16


def test_each_arrow_of_the_overview_has_rows(picture: Picture) -> None:
    assert [arrow.rule for arrow in extract_overview(picture).arrows] == list(RULES)


def test_arrow_without_rows_is_not_drawn() -> None:
    rows = tuple(row for row in ROWS if row.source is not State.REVIEW and row.dest is not State.REVIEW)
    overview = extract_overview(extract(Chart(rows)))
    assert not [arrow for arrow in overview.arrows if "REVIEW" in arrow.rule.ends]
    assert len(overview.arrows) == len(RULES) - 3


@pytest.mark.parametrize(
    ("source", "dest", "event"),
    [
        (State.CONTINUE, State.STREAM, Trigger.PROCEED),
        (State.COMPACT, State.REVIEW, Trigger.COMPACTED),
        (State.STREAM, State.TOOL_EXEC, Trigger.EXPIRE),
        (State.STREAM, State.STREAM, Trigger.ABORT),
        (State.PAUSED, State.FAILED, Trigger.EXPIRE),
    ],
)
def test_row_without_a_fitting_arrow_is_an_error(source: State, dest: State, event: Trigger) -> None:
    with pytest.raises(ConfigError, match=rf"row 76 \({source} --{event}--> {dest}\) belongs to 0 arrows .*RULES"):
        extract_overview(_with_row(source, dest, event))


def test_new_row_joins_the_fitting_arrow() -> None:
    overview = extract_overview(_with_row(State.COMPACT, State.FAILED, Trigger.TRIPPED))
    (stopped,) = [arrow for arrow in overview.arrows if 76 in arrow.numbers]
    assert stopped.rule.words == "abort, failure, guardrail"
    assert "74-76" in overview_to_svg(overview)


def test_no_two_rules_fit_the_same_row() -> None:
    for source, dest in ((source, dest) for source in State for dest in State):
        for event in Trigger:
            assert sum(rule.fits(source, dest, event) for rule in RULES) <= 1


def test_states_of_a_box_have_the_same_kind(picture: Picture) -> None:
    kinds = {node.state: node.kind for node in picture.nodes}
    assert all(len({kinds[state] for state in box.states}) == 1 for box in BOXES)
    assert extract_overview(picture).kinds == {box: kinds[box.states[0]] for box in BOXES}


def test_overview_shows_every_state_and_label(root: ET.Element) -> None:
    texts = ["".join(element.itertext()) for element in root.iter(f"{_SVG}text")]
    assert set(State) <= {name for text in texts for name in text.split(", ")}
    all_text = " ".join(texts)
    assert all(rule.words in all_text and rule.back_words in all_text for rule in RULES)
    assert all(kind.means in texts for kind in NodeKind)
    assert all(area.words in texts for area in (*BOXES, STEPS, TURN))


def test_overview_text_has_13_pixels_at_700(root: ET.Element) -> None:
    assert root.get("width") == (root.get("viewBox") or "").split()[2] == "700"
    assert all(float(element.get("font-size") or 13) >= 13 for element in root.iter() if element.get("font-size"))


def test_overview_describes_every_arrow_to_screen_readers(root: ET.Element) -> None:
    texts_by_id = {element.get("id"): element.text or "" for element in root}
    assert root.get("role") == "img"
    assert all(texts_by_id.get(element_id) for element_id in (root.get("aria-labelledby") or "").split())
    assert all(f"{rule.ends}: {rule.label}." in texts_by_id["overview-description"] for rule in RULES)


def test_no_box_of_the_overview_covers_another(root: ET.Element) -> None:
    for first, second in combinations(_rectangles(root), 2):
        assert not _crosses((first[:2], first[2:]), (second[:2], second[2:]))


def test_no_arrow_of_the_overview_crosses_another(root: ET.Element) -> None:
    lines = [list(pairwise(path)) for path in _paths(root)]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in chain.from_iterable(lines))
    for first, second in combinations(lines, 2):
        assert not any(_crosses(a, b) for a in first for b in second)


def test_no_arrow_of_the_overview_crosses_a_box(root: ET.Element) -> None:
    for line in chain.from_iterable(pairwise(path) for path in _paths(root)):
        for x_min, top, right, bottom in _rectangles(root):
            assert not _crosses(line, ((x_min + 1, top + 1), (right - 1, bottom - 1)))


def test_table_lists_each_arrow_with_the_rows(picture: Picture) -> None:
    lines = overview_to_table(extract_overview(picture)).splitlines()
    assert len(lines) == 2 + len(RULES)
    assert sum("| a state to itself " in line for line in lines) == 1
    assert [cell.strip() for cell in lines[2].strip("|").split(" | ")] == ["CHECK to STREAM", "a step starts", "3, 11"]
