"""The page of an audit is complete, loads nothing, and shows no secret and no markup of a recording."""

import re
from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from tests.audit.recorded import call, run_of

from turnwright_audit.distribution import Distribution
from turnwright_audit.measure import measure
from turnwright_audit.page import page_of
from turnwright_audit.plots import Line, curves, histogram
from turnwright_audit.suggest import suggest
from turnwright_audit.totals import Totals
from turnwright_audit.trajectories.atif import Trajectory


def page(runs: Sequence[Trajectory], hidden: str = "nothing") -> str:
    totals = Totals()
    measured = [measure(run, "runs.json", place) for place, run in enumerate(runs)]
    for run in measured:
        totals.take(run)
    return page_of(totals, suggest(totals, measured), files=1, hide=lambda text: text.replace(hidden, "***"))


def test_every_part_is_on_the_page() -> None:
    looping = run_of(*[call("read")] * 30, "Done.", success=False, name="stuck", cost=0.5)
    html = page([looping, run_of(call("read"), "Done.", success=True, name="good", cost=0.25)])
    assert re.findall(r"<h[12]>([^<]+)", html) == [
        "Audit of 2 agent runs",
        "Suggested limits",
        "Size of a run",
        "Limits against successes lost",
        "Loop detectors",
        "Loops on a timeline",
        "Endings",
        "By agent and model",
    ]
    assert "Limits(steps=5, tool_calls=5, tokens=200, cost=0.5)" in html
    assert "<title>read: same result, 30 rounds from step 1, 2,800 tokens after it</title>" in html
    assert '<div class="run"><span>stuck<br><small>read, 31 steps, failed</small></span>' in html


def test_runs_with_lost_results_are_named() -> None:
    html = page([run_of(call("read", result=None), "Done.", name="lost"), run_of("Done.")])
    assert "<h2>Calls without a result</h2>" in html
    assert '<tr><td>lost</td><td>read</td><td class="n">1</td></tr>' in html


def test_page_loads_nothing_and_has_well_formed_pictures() -> None:
    html = page([run_of(*[call("read")] * 12, "Done.")])
    assert not re.search(r"\b(?:src|href)=|url\(|@import|<script", html)
    pictures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(pictures) == 6
    for picture in pictures:
        assert ET.fromstring(picture).get("aria-label")  # noqa: S314 (our own)


def test_texts_of_a_recording_are_escaped_and_redacted() -> None:
    name = "<script>alert('secret')</script>\x1b"
    html = page([run_of(*[call(name)] * 4, ending=name, model=name, name=name)], "secret")
    assert "<script" not in html
    assert "secret" not in html
    assert "&lt;script&gt;alert(&#x27;***&#x27;)&lt;/script&gt;\\x1b" in html


@pytest.mark.parametrize("runs", [[], [run_of("Done.")], [run_of(call("read"))]])
def test_page_of_few_runs_is_complete(runs: Sequence[Trajectory]) -> None:
    assert "<p>No run has a loop.</p>" in page(runs)


def test_page_shows_missing_data_as_not_recorded() -> None:
    html = page([run_of("Done.", tokens=None)])
    assert "<b>not recorded</b><span>tokens</span>" in html
    assert "<b>not recorded</b><span>cost</span>" in html
    assert "<h1>Audit of 1 agent run</h1><p>1 file (" in html
    assert not re.search(r"\b1 (?:runs|steps)\b", html)
    assert html.count('<td class="n">?</td>') >= 3  # the label, and both quantiles of the tokens
    assert "<b>2.00</b><span>cost</span>" in page([run_of("Done.", cost=2.0)])


@pytest.mark.parametrize("numbers", [[0], [7], [1, 2, 3], [0, 10**9], [5, 5, 2000]])
def test_histogram_counts_each_number_in_a_single_bar(numbers: list[int]) -> None:
    distribution = Distribution()
    for number in numbers:
        distribution.add(number)
    counts = re.findall(r"<title>(\d+) runs?</title>", histogram("Steps", distribution, str))
    assert sum(map(int, counts)) == len(numbers)


def test_quantile_marks_are_drawn_before_labels() -> None:
    distribution = Distribution()
    for number in (*range(100), 9_000_000, 12_800_000):
        distribution.add(number)
    picture = histogram("Tokens", distribution, str)
    assert picture.rindex('class="mark"') < picture.index("<text")


@pytest.mark.parametrize("most", [[900, 1000], [9_000_000, 12_800_000], [540_000, 12_800_000], [30, 206]])
def test_quantile_labels_in_a_row_do_not_overlap(most: list[int]) -> None:
    distribution = Distribution()
    for number in [*range(10, 110), *most, *most, *most]:
        distribution.add(number)
    picture = histogram("Tokens", distribution, str)
    rows: dict[str, list[tuple[float, float]]] = {}
    for x, y, anchor in re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">(?:p|max)', picture):
        rows.setdefault(y, []).append((float(x) - 70, float(x)) if anchor == "end" else (float(x), float(x) + 70))
    assert sum(map(len, rows.values())) == 4
    assert all(end <= begin for row in rows.values() for (_, end), (begin, _) in pairwise(sorted(row)))


def test_success_share_covers_only_labeled_runs() -> None:
    html = page([run_of("Done.", success=True), run_of("Done.", success=False), run_of("Done.")])
    assert "<b>50%</b><span>succeeded of the 2 with a label</span>" in html
    assert "<b>100%</b><span>succeeded</span>" in page([run_of("Done.", success=True)])


def test_curve_has_a_point_for_each_value() -> None:
    picture = curves("Steps", ["10", "20"], [Line("saved", "steps saved", [0.4, 0.0])])
    assert re.findall(r"<title>(.*?)</title>", picture) == ["Steps 10: steps saved 40.0%", "Steps 20: steps saved 0.0%"]
    assert ">50%<" in picture
