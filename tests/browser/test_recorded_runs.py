"""The pages of recorded runs, in a real browser: they lead from the list to a step, and everybody can use them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from turnwright.inspector.views.run_library import RunLibrary

from .stage import DESKTOP, PHONE, Stage, serving, visiting
from .test_accessibility import violations


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Pages of a recording with forty steps, and of a file that is none."""
    folder: Path = tmp_path_factory.mktemp("runs")
    said: list[dict[str, object]] = [{"role": "user", "content": "Look it up."}]
    for number in range(40):
        call = {"name": "look_up", "arguments": json.dumps({"word": f"word-{number}"})}
        said.append({"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}]})
        if number != 7:
            said.append({"role": "tool", "tool_call_id": f"c{number}", "content": "nothing"})
    (folder / "run.json").write_text(json.dumps([*said, {"role": "assistant", "content": "Nothing."}]))
    (folder / "notes.txt").write_text("Nothing of the kind.")
    with RunLibrary([folder / "run.json", folder / "notes.txt"]) as runs:
        runs.read()
        with serving(folder / "turns.db", runs) as stage:
            yield stage


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_run_is_read_step_by_step(browser: Browser, recorded: Stage, size: ViewportSize) -> None:
    with visiting(browser, recorded, size) as page:
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
