"""An overlay says how often each row was taken in every format, hides nothing, and moves nothing."""

import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_proof.draw import (
    Overlay,
    OverlayKind,
    Picture,
    coverage_overlay,
    to_dot,
    to_mermaid,
    to_svg,
    to_table,
    turn_overlay,
)
from turnwright_proof.draw.overlay import compact_count, level, level_words, number_ranges
from turnwright_states.chart import ROWS
from turnwright_states.inputs import ModelRepliedInput, StartedInput, ToolCall
from turnwright_states.limits import Limits
from turnwright_states.machine import TurnMachine
from turnwright_states.reasons import EndReason
from turnwright_states.row_counts import RowCounts
from turnwright_states.state import State
from turnwright_states.turn import Turn

needs_graphviz = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
FORMATS: tuple[Callable[[Picture, Overlay], str], ...] = (
    to_mermaid,
    lambda picture, overlay: to_dot(picture, overlay=overlay),
    to_table,
)
#: Every count differs from the others and from every row's number; two rows were never taken.
COUNTS = tuple(0 if place in (9, 33) else 100 + place for place in range(len(ROWS)))
COVERAGE = coverage_overlay(RowCounts(COUNTS))
#: Two steps, then the cap, and an answer.
PATH = (11, 14, 47, 53, 11, 14, 47, 53, 2, 64)
_SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def turn() -> Overlay:
    ended = Turn(Limits(steps=2))
    ended.state, ended.reason, ended.also_reached = State.CAP_HIT, EndReason.STEP_CAP, (EndReason.BUDGET,)
    ended.counters.steps, ended.counters.calls, ended.elapsed = 2, 3, 1.25
    return turn_overlay("t1", ended, [ROWS[number - 1] for number in PATH], path="CHECK > ... > CAP_HIT")


def _rows_of_dot(dot: str) -> dict[int, tuple[str, str]]:
    """Return the HTML of each row, and the text of its count."""
    labels = {}
    for label in re.findall(r"\[shape=plain label=<(.*)>\]", dot):
        for html in re.split(r'(?=<TR><TD WIDTH="1"[^>]*></TD><TD ALIGN="RIGHT"[^>]*><FONT)', label)[1:]:
            number = re.search(r">(\d+)</FONT>", html)
            count = re.search(r'<TD ROWSPAN="\d+"[^>]*>(.*?)</TD>', html)
            assert number is not None
            assert count is not None
            labels[int(number[1])] = (html, re.sub("<[^>]*>", "", count[1]))
    return labels


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_shows_the_count_of_every_row(picture: Picture, form: Callable[[Picture, Overlay], str]) -> None:
    text = form(picture, COVERAGE)
    for count in filter(None, COUNTS):
        assert re.search(rf"\b{count}x?\b", text)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_the_caption(picture: Picture, turn: Overlay, form: Callable[[Picture, Overlay], str]) -> None:
    assert "73 of 75 rows taken" in form(picture, COVERAGE)
    assert "never taken: 10, 34" in form(picture, COVERAGE)
    text = form(picture, turn).replace("&gt;", ">")
    for line in turn.caption:
        assert line in text


def test_turn_caption_has_the_ending_and_the_totals(turn: Overlay) -> None:
    assert turn.caption == (
        "turn t1: cap_hit: step_cap (also reached: budget)",
        "2 steps, 3 tool calls run, 1.2 s of driving, 6 of 75 rows taken, 10 times in all",
        "path: CHECK > ... > CAP_HIT",
    )
    assert (turn.stands, turn.reason, turn.here) == (State.CAP_HIT, EndReason.STEP_CAP, "ended here")
    assert turn.taken[13] == 2
    assert sum(turn.taken) == len(PATH)


def test_caption_of_an_open_turn_names_the_state() -> None:
    machine, _ = TurnMachine.start(StartedInput(prompt="x"))
    machine.feed(ModelRepliedInput(calls=(ToolCall(name="a", arguments={}),)))
    overlay = turn_overlay("t2", machine.turn, [ROWS[10], ROWS[13]], path="CHECK > STREAM > TOOL_EXEC")
    assert overlay.caption[0] == "turn t2: not over: in TOOL_EXEC"
    assert overlay.here == "now here"


def test_row_of_another_chart_is_no_row_of_the_picture() -> None:
    with pytest.raises(ValueError, match=re.escape("CHECK --proceed--> FAILED is not a row of this chart")):
        turn_overlay("t3", Turn(), [ROWS[10]._replace(dest=State.FAILED)], path="CHECK > FAILED")


@pytest.mark.parametrize("kind", OverlayKind)
def test_structure_of_the_picture_is_independent_of_the_counts(picture: Picture, kind: OverlayKind) -> None:
    """Two overlays can be compared side by side: the same nodes, arrows and lines of text in the same order."""

    def skeleton(taken_rows: tuple[int, ...]) -> list[tuple[str, ...]]:
        dot = to_dot(picture, overlay=Overlay(kind, taken_rows, ("x",)))
        rows = [re.sub(r"<[^>]*>|&#160;", " ", html.split("<TD ROWSPAN")[0]) for html, _ in _rows_of_dot(dot).values()]
        return [
            *re.findall(r"^  (\S+) -> (\S+)", dot, flags=re.MULTILINE),
            tuple(" ".join(row.split()) for row in rows),
        ]

    assert skeleton(COUNTS) == skeleton((0,) * len(ROWS))


def test_dot_shows_every_row_with_the_count(picture: Picture) -> None:
    rows = _rows_of_dot(to_dot(picture, overlay=COVERAGE))
    assert {number: count for number, (_, count) in rows.items()} == {
        number: str(count) for number, count in enumerate(COUNTS, start=1)
    }


def test_dot_shows_only_untested_rows_in_red(picture: Picture) -> None:
    dot = to_dot(picture, overlay=COVERAGE)
    assert {number for number, (html, _) in _rows_of_dot(dot).items() if "#b91c1c" in html} == {10, 34}
    dashed = re.findall(r"^  (.*) -> (.*) \[.*style=dashed", dot, flags=re.MULTILINE)
    # Another row of the same arrow as row 34 was taken.
    assert dashed == [("CHECK", '"CHECK to PAUSED"'), ('"CHECK to PAUSED"', "PAUSED")]


def test_untested_state_is_red(picture: Picture) -> None:
    into = {number for number, row in enumerate(ROWS, start=1) if State.PAUSED in (row.source, row.dest)}
    counts = tuple(int(number not in into) for number in range(1, len(ROWS) + 1))
    dot = to_dot(picture, overlay=coverage_overlay(RowCounts(counts)))
    red = re.findall(r'^  ([A-Z_]+) \[label=.* color="#b91c1c"\]$', dot, flags=re.MULTILINE)
    assert red == ["PAUSED"]
    assert "class PAUSED unreached" in to_mermaid(picture, coverage_overlay(RowCounts(counts)))


def test_dot_marks_the_path_and_the_final_state_of_a_turn(picture: Picture, turn: Overlay) -> None:
    dot = to_dot(picture, overlay=turn)
    counts = {number: count for number, (_, count) in _rows_of_dot(dot).items() if count}
    assert counts == {2: "1x", 11: "2x", 14: "2x", 47: "2x", 53: "2x", 64: "1x"}
    assert re.findall(r"^  ([A-Z_]+) \[label=.*ended here.* penwidth=3\]$", dot, flags=re.MULTILINE) == ["CAP_HIT"]
    assert dot.count("ended here") == 1
    wide = re.findall(r"^  ([A-Z_]+) -> .*penwidth=2\.2\]$", dot, flags=re.MULTILINE)
    assert wide == ["CHECK", "STREAM", "TOOL_EXEC", "CHECK", "CONTINUE", "CONCLUDE"]
    (reasons,) = re.findall(r"^  CAP_HIT \[.*$", dot, flags=re.MULTILINE)
    assert re.findall(r"<B>(\w+)</B>", reasons) == ["step_cap"]


def test_mermaid_marks_the_path_and_the_final_state_of_a_turn(picture: Picture, turn: Overlay) -> None:
    text = to_mermaid(picture, turn)
    assert text.startswith('---\ntitle: "turn t1: cap_hit: step_cap (also reached: budget)"\n---\n')
    assert re.findall(r"class (\w+) here", text) == ["CAP_HIT"]
    assert set(re.findall(r"class (\w+) unreached", text)) == {
        "COMPACT", "REVIEW", "PAUSED", "TEXT_ONLY", "FINISHED", "SYNTHESIS_DONE", "DOOM_LOOP", "ABORTED", "FAILED"
    }  # fmt: skip
    assert "11 [otherwise] (taken 2x)" in text
    assert text.count("(taken ") == len(set(PATH))
    assert "NEVER" not in text
    assert to_mermaid(picture, COVERAGE).count("(NEVER TAKEN)") == 2


def test_table_has_a_column_of_counts(picture: Picture, turn: Overlay) -> None:
    def column(overlay: Overlay) -> list[str]:
        lines = [line for line in to_table(picture, overlay).splitlines() if re.match(r"\| \d", line)]
        return [line.split(" | ")[1].strip() for line in lines]

    assert column(COVERAGE) == [str(count) if count else "**0**" for count in COUNTS]
    assert column(turn) == [str(count) if count else "" for count in turn.taken]


@needs_graphviz
def test_overlay_svg_fits_a_page_and_has_a_description(picture: Picture, turn: Overlay) -> None:
    for overlay in (turn, COVERAGE):
        root = ET.fromstring(to_svg(to_dot(picture, overlay=overlay), overlay))  # noqa: S314 (our own)
        title, description = root.find(f"{_SVG}title"), root.find(f"{_SVG}desc")
        assert title is not None
        assert description is not None
        assert overlay.caption[0] in (title.text or "")
        assert overlay.caption[1] in (description.text or "")
        texts = {"".join(element.itertext()).strip() for element in root.iter(f"{_SVG}text")}
        assert set(State) <= texts
        assert overlay.caption[0] in texts
        scale = 900 / float((root.get("viewBox") or "").split()[2])
        sizes = [float(element.get("font-size") or 0) for element in root.iter() if element.get("font-size")]
        # Graphviz lays it out by the fonts of the machine: with the widest that we met, the smallest text has 8.9.
        assert min(sizes) * scale > 8.5


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_larger_count_never_has_a_lighter_shade(first: int, second: int) -> None:
    assert (level(first) <= level(second)) or first > second
    assert (level(first) == 0) == (first == 0)


def test_each_shade_names_the_range_of_counts() -> None:
    words = level_words()
    assert words == ("never", "1-9", "10-99", "100-999", "1000-9999", "10000 or more")
    for place, word in enumerate(words):
        for count in map(int, re.findall(r"\d+", word)):
            assert level(count) == place


@given(st.integers(0, 10**12))
def test_brief_count_is_short_and_at_most_a_tenth_too_small(count: int) -> None:
    text = compact_count(count)
    assert len(text) <= 5
    value = int(text.rstrip("kMG")) * {"k": 10**3, "M": 10**6, "G": 10**9}.get(text[-1], 1)
    assert value <= count
    assert count - value <= count / 10


@given(st.sets(st.integers(1, 60)))
def test_ranges_name_each_number_once(numbers: set[int]) -> None:
    spans = [tuple(map(int, span.split("-"))) for span in number_ranges(sorted(numbers)).split(", ") if span]
    assert {number for span in spans for number in range(span[0], span[-1] + 1)} == numbers
    assert all(before[-1] + 1 < after[0] for before, after in pairwise(spans))
