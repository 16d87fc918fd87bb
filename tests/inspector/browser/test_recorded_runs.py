"""The pages of recorded runs, in a real browser: they lead from the list to a step, and everybody can use them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from turnwright_inspector.views.run_library import RunLibrary

from .stage import DESKTOP, Stage, serving, visiting
from .test_accessibility import LOOKS, violations, violations_by_look


def timed() -> dict[str, object]:
    """A run with the times of its replies and calls."""
    steps: list[dict[str, object]] = [{"source": "user", "message": "Look.", "timestamp": "2026-01-01T10:00:00Z"}]
    for number in range(8):
        times = {"started_at": f"2026-01-01T10:{number:02}:20Z", "ended_at": f"2026-01-01T10:{number:02}:50Z"}
        result = {"source_call_id": f"c{number}", "content": "nothing", "extra": {"turnwright": times}}
        call = {"tool_call_id": f"c{number}", "function_name": "look_up", "arguments": {"word": f"word-{number}"}}
        steps.append(
            {
                "source": "agent",
                "timestamp": f"2026-01-01T10:{number:02}:00Z",
                "tool_calls": [call],
                "observation": {"results": [result]},
            }
        )
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]
    return {"schema_version": "ATIF-v1.8", "agent": {"name": "Reader", "version": "1"}, "steps": numbered}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Pages of a recording with forty steps, and of a file that is none."""
    folder: Path = tmp_path_factory.mktemp("runs")
    messages: list[dict[str, object]] = [{"role": "user", "content": "Look it up."}]
    for number in range(40):
        call = {"name": "look_up", "arguments": json.dumps({"word": f"word-{number}"})}
        messages.append(
            {"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}]}
        )
        if number != 7:
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "nothing"})
    (folder / "run.json").write_text(json.dumps([*messages, {"role": "assistant", "content": "Nothing."}]))
    (folder / "notes.txt").write_text("Nothing of the kind.")
    (folder / "timed.json").write_text(json.dumps(timed()))
    with RunLibrary([folder / name for name in ("run.json", "notes.txt", "timed.json")]) as runs:
        runs.read()
        with serving(folder / "turns.db", runs) as stage:
            yield stage


@pytest.mark.parametrize(("size", "scheme"), LOOKS[0])
def test_run_is_read_step_by_step(browser: Browser, recorded: Stage, size: ViewportSize, scheme: str) -> None:
    with visiting(browser, recorded, size, scheme) as page:
        page.goto(f"{recorded.address}/runs")
        assert violations(page) == []
        page.locator("a.cover").first.click()
        expect(page.get_by_text("1 call has no recorded result.")).to_be_visible()
        assert violations(page) == []
        page.get_by_role("link", name="Step 39").click()
        expect(page.locator(".line.chosen")).to_be_in_viewport()
        page.locator(".line.chosen summary").click()
        expect(page.get_by_role("group", name="Arguments of look_up")).to_contain_text("word-38")
        assert violations(page) == []


def test_drag_on_a_run_timeline_zooms_and_a_bar_opens_the_call(browser: Browser, recorded: Stage) -> None:
    with visiting(browser, recorded, DESKTOP) as page:
        page.goto(f"{recorded.address}/runs/2")
        page.get_by_role("link", name="Timeline").click()
        lanes = page.locator("#timeline [aria-label='Steps and calls'] > .lane")
        expect(lanes).to_have_count(16)
        assert violations_by_look(page, 1) == {}  # ends as it began: on a desktop, in light
        box = page.locator(".scale .lane-bars").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 5)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 5, steps=3)
        page.mouse.up()
        page.wait_for_url("**zoom=*")
        expect(page.get_by_role("link", name="Whole run")).to_be_visible()
        assert 0 < lanes.count() < 16
        page.locator(".lane .bar-call").first.click()
        expect(page.locator("details.call[open]")).to_contain_text("word-2")


def test_list_of_runs_is_filtered_while_typing(browser: Browser, recorded: Stage) -> None:
    with visiting(browser, recorded, DESKTOP) as page:
        page.goto(f"{recorded.address}/runs")
        expect(page.locator("a.cover")).to_have_count(2)
        page.get_by_role("searchbox").fill("word-39")
        expect(page.locator("a.cover")).to_have_count(1)
        page.get_by_role("link", name="Steps").click()
        page.wait_for_url("**sort=steps")


@pytest.mark.parametrize(("size", "scheme"), LOOKS[1])
def test_run_statistics_and_comparisons_are_accessible(
    browser: Browser, recorded: Stage, size: ViewportSize, scheme: str
) -> None:
    with visiting(browser, recorded, size, scheme) as page:
        page.goto(f"{recorded.address}/runs")
        page.get_by_role("link", name="By agent and model").click()
        expect(page.get_by_role("heading", name="Agents of recorded runs")).to_be_visible()
        assert violations(page) == []
        page.get_by_role("link", name="Statistics").last.click()
        expect(page.get_by_role("heading", name="Statistics of recorded runs")).to_be_visible()
        assert violations(page) == []
        page.get_by_role("link", name="By agent and model").click()
        page.get_by_role("link", name="Reader").click()
        page.locator("a.cover").click()
        page.get_by_role("link", name="compare").click()
        page.get_by_label("Right run").fill("1")
        page.get_by_role("button", name="Compare").click()
        expect(page.get_by_role("region", name="Figures of both runs")).to_be_visible()
        assert violations(page) == []
