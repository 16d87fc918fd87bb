"""The keyboard: rows of a list, and the command palette."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it ships no types
from playwright.sync_api import Page, expect

from turnwright.model import asks_for

from .stage import Stage


@pytest.fixture(scope="module")
def answered(stage: Stage) -> str:
    """A turn of two steps, below which there is another one."""
    stage.play("Earlier.", prompt="Say something.")
    return stage.play(asks_for(("look_up", {"word": "a"})), "Done.")


def test_j_and_k_walk_the_list_rows_and_enter_opens_a_row(page: Page, stage: Stage, answered: str) -> None:
    page.goto(f"{stage.address}/")
    for key, row in (("j", 0), ("j", 1), ("k", 0), ("k", 0)):
        page.keyboard.press(key)
        expect(page.locator("tbody tr a.cover").nth(row)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(stage.url(answered))


def test_j_walks_open_turns_and_the_turns_of_a_session(page: Page, stage: Stage) -> None:
    for place in ("a", "b"):
        stage.play(asks_for(("delete_file", {"path": place})), prompt=f"Delete {place}.")
        stage.play("See [it](https://a.example).", session="walked")
    for path, links in (("needs-you", ".waiting h2 a"), ("session?session=walked", ".talk > li > p a")):
        page.goto(f"{stage.address}/{path}")
        for row in (0, 1):
            page.keyboard.press("j")
            expect(page.locator(links).nth(row)).to_be_focused()


def test_palette_leads_to_steps_tabs_and_pages(page: Page, stage: Stage, answered: str) -> None:
    page.goto(stage.url(answered))
    for words, kind, address in (
        ("journ", "tab", re.compile("tab=journal")),
        ("step 2", "step", re.compile("step=2")),
        ("statis", "page", re.compile("/statistics$")),
    ):
        page.keyboard.press("Control+k")
        field = page.get_by_role("combobox")
        expect(field).to_be_focused()
        field.fill(words)
        expect(page.get_by_role("option").first).to_contain_text(kind)
        page.keyboard.press("Enter")
        expect(page).to_have_url(address)
        expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.usefixtures("answered")
def test_palette_leads_to_a_view_of_a_list(page: Page, stage: Stage) -> None:
    page.goto(f"{stage.address}/agents")
    page.keyboard.press("Control+k")
    page.locator("#palette-field").fill("fail most")
    expect(page.locator("#palette-list > li").first).to_contain_text("view")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("sort=success"))


def test_palette_searches_turns_and_is_accessible(page: Page, stage: Stage, answered: str) -> None:
    page.goto(stage.url(answered))
    page.get_by_role("button", name="Commands").click()
    page.get_by_role("combobox").fill("something")
    option = page.get_by_role("option", selected=True)
    expect(option).to_have_text(re.compile("Turns with “something” *search"))
    rules = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]}
    assert Axe().run(page, options={"runOnly": rules}).response["violations"] == []
    option.click()
    expect(page).to_have_url(f"{stage.address}/?q=something")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_palette_focuses_a_form_without_submitting(page: Page, stage: Stage) -> None:
    turn = stage.play(asks_for(("delete_file", {"path": "a"})))
    page.goto(stage.url(turn))
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("approve")
    page.keyboard.press("Enter")
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_focused()
    expect(page.locator(".turn-name .badge")).to_contain_text("paused")
