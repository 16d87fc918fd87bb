"""The timeline in a browser: a drag zooms, a bar leads on, and what runs now says for how long."""

import re

from playwright.sync_api import Page, expect

from turnwright.model import asks_for

from .stage import Stage, searching


def test_drag_over_the_scale_zooms_and_back_shows_the_whole_turn(page: Page, stage: Stage) -> None:
    turn = stage.play(searching(calls=3), repeat=True, steps=12)
    page.goto(stage.url(turn, "?tab=timeline"))
    lanes = page.locator("#timeline [aria-label='Steps and calls'] > .lane")
    expect(lanes).to_have_count(12 * 4 + 1)
    for place in (".strip", ".scale .lane-bars"):
        box = page.locator(place).bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.4, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=3)
        page.mouse.up()
        expect(page).to_have_url(re.compile(r"zoom=[\d.]+-[\d.]+"))
        expect(lanes).not_to_have_count(12 * 4 + 1)
        expect(page.locator(".drag")).to_have_count(0)
        page.locator("#zoom-whole").click()
        expect(lanes).to_have_count(12 * 4 + 1)
    page.locator("#zoom-in").click()
    expect(page.locator("#zoom-out")).to_be_visible()
    page.go_back()
    expect(lanes).to_have_count(12 * 4 + 1)


def test_timeline_bar_opens_the_request_of_the_step(page: Page, stage: Stage) -> None:
    turn = stage.play(asks_for(("look_up", {"word": "a"})), "Done.")
    page.goto(stage.url(turn, "?tab=timeline"))
    page.locator(".lane[data-step='2'] .bar-model").click()
    expect(page.locator("#tabs [aria-current]")).to_have_text("Request")
    expect(page.locator("#steps [aria-current] .step-title")).to_have_text("Step 2")


def test_running_call_shows_the_elapsed_time(page: Page, stage: Stage) -> None:
    with stage.playing(asks_for(("wait_here", {"word": "a"})), "It is done.") as turn:
        page.goto(stage.url(turn, "?tab=timeline"))
        expect(page.locator(".runs-now")).to_contain_text(re.compile(r"Runs now: wait_here \(call00001\) for \d+ s"))
        expect(page.locator(".bar-call.bar-running")).to_have_count(1)
    expect(page.locator(".runs-now")).to_have_count(0)
