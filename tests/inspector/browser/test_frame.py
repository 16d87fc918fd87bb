"""The frame of a turn's page: the slider stays below the pointer, and a phone shows what matters at once."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from turnwright.model import asks_for
from turnwright_states import Usage

from .stage import DESKTOP, PHONE, Stage, searching, visiting


@pytest.fixture(scope="module")
def mixed(stage: Stage) -> str:
    """A turn with calls, an error and a sub-agent."""
    calls = asks_for(("look_up", {"word": "a"}), ("broken", {"word": "b"}), ("helper", {"prompt": "Help."}))
    return stage.play(calls, "I helped.", asks_for(("wide", {"word": "W"})), "Done.")


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_slider_stays_in_place_at_every_fact_of_the_turn(
    browser: Browser, stage: Stage, mixed: str, size: dict[str, int]
) -> None:
    with visiting(browser, stage, size) as page:  # type: ignore[arg-type]
        page.goto(stage.url(mixed))
        slider = page.get_by_role("slider", name="Place in the journal")
        before = slider.bounding_box()
        assert before is not None
        assert before["y"] + before["height"] <= size["height"]
        slider.focus()
        for key in ("Home", "ArrowRight", "ArrowRight", "End"):
            at = slider.get_attribute("aria-valuetext")
            slider.press(key)
            expect(slider).not_to_have_attribute("aria-valuetext", at or "")
            assert slider.bounding_box() == before


def test_content_on_a_phone_begins_on_the_first_screen(browser: Browser, stage: Stage, mixed: str) -> None:
    with visiting(browser, stage, PHONE) as page:
        page.goto(stage.url(mixed))
        box = page.locator("#tab").bounding_box()
        assert box is not None
        assert box["y"] < PHONE["height"] * 7 / 10
        page.goto(stage.url(stage.play(searching(), repeat=True, steps=2)))
        box = page.locator("#tab").bounding_box()
        assert box is not None
        assert box["y"] < PHONE["height"] * 5 / 6
        page.goto(stage.url(mixed, "?tab=timeline"))
        page.locator(".children").scroll_into_view_if_needed()
        below(page, "#tab", ".children")


def test_printed_answer_is_complete_and_uncovered(page: Page, stage: Stage) -> None:
    turn = stage.play("A line.\n\n" * 60 + "The end.")
    page.goto(stage.url(turn))
    page.emulate_media(media="print")
    for hidden in (".top", ".replay", "#tabs", "#actions"):
        expect(page.locator(hidden)).to_be_hidden()
    assert page.locator(".stop-answer").evaluate("box => box.scrollHeight <= box.clientHeight")
    widths = page.evaluate("[document.querySelector('#tab').offsetWidth, document.querySelector('main').offsetWidth]")
    assert widths[0] == widths[1]


def test_agent_name_keeps_a_line_beside_all_figures(page: Page, stage: Stage) -> None:
    usage = Usage(
        input_tokens=1_000_000, output_tokens=90_000, cost=1.5, cached_tokens=880_000, reasoning_tokens=50_000
    )
    calls = [asks_for(("look_up", {"word": word}), usage=usage) for word in "abc"]
    page.set_viewport_size({"width": 1024, "height": 800})
    page.goto(stage.url(stage.play(*calls, "Done.", name="Long runner")))
    assert page.locator(".turn-name h1").evaluate("one => one.offsetHeight") < 40
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def below(page: Page, upper: str, lower: str) -> None:
    boxes = [page.locator(element).bounding_box() for element in (upper, lower)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] < boxes[1]["y"]


@pytest.mark.usefixtures("mixed")
def test_list_on_a_phone_begins_on_the_first_screen(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage, PHONE) as page:
        page.goto(f"{stage.address}/")
        box = page.locator("a.cover").first.bounding_box()
        assert box is not None
        assert box["y"] < PHONE["height"] * 2 / 3
        expect(page.get_by_label("Outcome")).to_be_hidden()
        page.get_by_label("Filters").check()
        expect(page.get_by_label("Outcome")).to_be_visible()
        page.goto(f"{stage.address}/?outcome=finished")
        expect(page.get_by_label("Outcome")).to_be_visible()


def test_navigation_on_a_phone_shows_where_more_follows(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage, PHONE) as page:
        page.goto(stage.address)
        nav = page.locator(".top nav")
        expect(nav).to_have_attribute("data-more", "after")
        nav.evaluate("row => row.scrollLeft = row.scrollWidth")
        expect(nav).to_have_attribute("data-more", "before")
        assert "linear-gradient" in nav.evaluate("row => getComputedStyle(row).maskImage")
        page.goto(f"{stage.address}/statistics")
        expect(page.locator(".top nav [aria-current]")).to_be_in_viewport(ratio=1)
    with visiting(browser, stage) as page:
        page.goto(stage.address)
        expect(page.locator(".top nav")).not_to_have_attribute("data-more", re.compile(""))
