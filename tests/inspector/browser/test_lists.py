"""The pages of many turns with a real browser: searched, sorted and filtered; turns that need somebody; sessions."""

import re

import pytest
from playwright.sync_api import Browser, Page, Route, ViewportSize, expect

from turnwright.model import asks_for
from turnwright.model.protocol import ModelResponse
from turnwright_states import Usage

from .stage import DESKTOP, PHONE, Stage, visiting

ASKS = asks_for(("delete_file", {"path": "old.log"}))


def test_search_finds_words_of_results_while_typing(page: Page, stage: Stage) -> None:
    """The address keeps the search."""
    turn = stage.play(asks_for(("look_up", {"word": "quokka"})), "It is small.", prompt="Find an animal.")
    stage.play("Nothing.", prompt="Find a plant.")
    page.goto(stage.address)
    page.get_by_role("searchbox", name="Search").press_sequentially("quok")
    expect(page.locator("#turns tbody tr")).to_have_count(1)
    expect(page.locator("#turns tbody tr")).to_contain_text(turn)
    expect(page).to_have_url(re.compile(r"[?&]q=quok"))
    page.reload()
    expect(page.locator("#turns tbody tr")).to_have_count(1)


def test_views_and_back_button_follow_the_filters(page: Page, stage: Stage) -> None:
    stage.play("Nothing.", prompt="Find a plant.")
    page.goto(stage.address)
    view = page.locator("#views [aria-current]")
    expect(view).to_have_text("All")
    page.get_by_label("Outcome").select_option("failed")
    expect(page).to_have_url(re.compile(r"/\?outcome=failed$"))
    expect(view).to_have_text("Failed")
    page.get_by_label("Agent", exact=True).fill("nobody")
    page.keyboard.press("Tab")
    expect(page).to_have_url(re.compile(r"/\?outcome=failed&agent=nobody$"))
    expect(view).to_have_count(0)
    entries = page.evaluate("history.length")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("#turns .empty")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("history.length") == entries
    page.go_back()
    expect(page).to_have_url(re.compile(r"/\?outcome=failed$"))
    page.get_by_role("link", name="Clear").click()
    expect(view).to_have_text("All")
    expect(page.get_by_role("link", name="Clear")).to_have_count(0)


def test_no_row_moves_below_the_pointer_until_the_pointer_leaves(page: Page, stage: Stage) -> None:
    stage.play("Done.", name="Pointed")
    page.goto(f"{stage.address}/?agent=pointed")
    rows = page.locator("#turns tbody tr")
    rows.first.hover()
    expect(page.locator("#turns tbody tr:hover")).to_have_count(1)
    stage.play("Done.", name="Pointed")
    page.wait_for_timeout(1000)
    expect(rows).to_have_count(1)
    page.get_by_role("heading", name="Turns").hover()
    expect(rows).to_have_count(2)


def test_rows_that_were_asked_for_wait_for_a_pointer_that_came_since(page: Page, stage: Stage) -> None:
    """The answer to a look that was under way when the pointer came to a row is shown when the pointer leaves."""
    stage.play("Done.", name="Hurried")
    looks: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.resource_type == "fetch" and not looks:
            looks.append(route)
        else:
            route.continue_()

    page.goto(f"{stage.address}/?agent=hurried")
    page.route(re.compile(r"/\?agent=hurried$"), hold)
    page.mouse.move(0, 0)
    with page.expect_request(lambda request: request.resource_type == "fetch"):
        stage.play("Done.", name="Hurried")
    rows = page.locator("#turns tbody tr")
    rows.first.hover()
    expect(page.locator("#turns tbody tr:hover")).to_have_count(1)
    with page.expect_request_finished(lambda request: request.resource_type == "fetch"):
        looks[0].continue_()
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(rows).to_have_count(1)
    page.get_by_role("heading", name="Turns").hover()
    expect(rows).to_have_count(2)


def test_click_on_a_column_sorts_and_a_second_click_reverses(page: Page, stage: Stage) -> None:
    stage.play(asks_for(("look_up", {"word": "a"})), "Two steps.", name="Sorted")
    stage.play("One step.", name="Sorted")
    page.goto(f"{stage.address}/?agent=sorted")
    steps = page.locator("#turns tbody td[data-label=Steps]")
    for expected, way in ((["2", "1"], "descending"), (["1", "2"], "ascending")):
        page.get_by_role("link", name="Steps").click()
        expect(steps).to_have_text(expected)
        expect(page.get_by_role("columnheader", name="Steps")).to_have_attribute("aria-sort", way)
    expect(page.get_by_label("Totals of these turns")).to_contain_text(
        re.compile(r"Turns\s*2\b.*Steps\s*3\b", re.DOTALL)
    )


def test_agent_links_to_the_turns_of_the_agent(page: Page, stage: Stage) -> None:
    turn = stage.play("Done.", name="Solitary")
    page.goto(f"{stage.address}/agents")
    page.get_by_role("link", name="Solitary").click()
    expect(page.locator("#turns tbody tr")).to_have_count(1)
    expect(page.locator("#turns tbody tr")).to_contain_text(turn)


def test_turn_on_the_needs_you_page_is_answered_in_place(browser: Browser, stage: Stage) -> None:
    """On a phone too. Every page says how many there are."""
    turn = stage.play(ASKS, prompt="Delete it alone.")
    with visiting(browser, stage, PHONE) as page:
        page.goto(stage.address)
        page.get_by_role("link", name="Needs you").click()
        expect(page).to_have_title(re.compile(r"^\(\d+\) Needs you"))
        page.wait_for_load_state()  # before its scripts run, a form leads to another document
        page.evaluate("window.sameDocument = true")
        card = page.locator(f"#turns article[id^='waiting-{turn}']")
        card.get_by_role("button", name="Approve").click()
        expect(card).to_have_count(0)
        assert page.evaluate("window.sameDocument")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_rejecting_several_turns_leaves_unselected_turns_open(page: Page, stage: Stage) -> None:
    turns = [stage.play(ASKS, prompt=f"Delete number {number}.") for number in range(3)]
    page.goto(f"{stage.address}/needs-you")
    for turn in turns[:2]:
        page.locator(f"article[id^='waiting-{turn}'] input[name=chosen]").check()
    page.locator("#all-reject").click()
    for turn in turns[:2]:
        expect(page.locator(f"article[id^='waiting-{turn}']")).to_have_count(0)
    last = page.locator(f"article[id^='waiting-{turns[2]}']")
    expect(last).to_be_visible()
    # To stop turns, which cannot be taken back, takes one more click.
    last.locator("input[name=chosen]").check()
    stop = page.get_by_role("button", name="Stop them")
    expect(stop).to_be_hidden()
    page.locator("#all-stop summary").click()
    stop.click()
    expect(last).to_have_count(0)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_bulk_buttons_stay_below_the_page_header(browser: Browser, stage: Stage, size: ViewportSize) -> None:
    for number in range(3):
        stage.play(ASKS, prompt=f"Delete file {number}.")
    with visiting(browser, stage, size) as page:
        page.goto(f"{stage.address}/needs-you")
        page.locator("article input[name=chosen]").last.check()
        page.evaluate("scrollTo(0, 700)")
        head, bar = page.locator(".top").bounding_box(), page.locator("#all-form").bounding_box()
        assert head is not None
        assert bar is not None
        assert bar["y"] >= head["y"] + head["height"] - 1


def test_checkbox_of_a_question_does_not_answer_another(browser: Browser, stage: Stage) -> None:
    turn = stage.play(ASKS, prompt="Delete two.")
    with visiting(browser, stage, unanswered=True) as page:
        page.goto(f"{stage.address}/needs-you")
        page.locator(f"article[id^='waiting-{turn}'] input[name=chosen]").check()
        stage.answered_elsewhere(turn, "approval-1", asks_for(("delete_file", {"path": "other.log"})))
        expect(page.locator(f"article[id^='waiting-{turn}']")).to_contain_text("other.log")
        page.locator("#all-approve").click()
        expect(page.get_by_role("alert")).to_contain_text("no turn is chosen")
        assert stage.asked(turn) == ["approval-2"]


def test_notification_is_offered_and_remembered(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage) as page:
        page.context.grant_permissions(["notifications"])
        # Chromium without windows says "denied" here, even of what it grants when it is asked.
        page.add_init_script("Object.defineProperty(Notification, 'permission', { value: 'granted' })")
        page.goto(f"{stage.address}/needs-you")
        button = page.get_by_role("button", name="Notify me in this browser")
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")
        page.reload()
        expect(button).to_have_attribute("aria-pressed", "true")
        button.click()
        expect(button).to_have_attribute("aria-pressed", "false")


def test_session_is_opened_from_the_list_of_sessions(page: Page, stage: Stage) -> None:
    for prompt, answer in (("How are you?", "**Well**, thanks."), ("And today?", "Better.")):
        stage.play(answer, prompt=prompt, session="small talk")
    page.goto(f"{stage.address}/sessions")
    page.get_by_role("link", name="How are you?").click()
    expect(page.locator(".talk > li")).to_have_count(2)
    expect(page.locator(".says").first.locator("strong")).to_have_text("Well")
    expect(page.get_by_label("Totals of the session")).to_contain_text(re.compile(r"Turns\s*2\b"))


def test_long_agent_name_pushes_no_column_out_of_the_table(browser: Browser, stage: Stage) -> None:
    long = "a_very_long_tool_name_" * 8
    usage = Usage(input_tokens=1_000, output_tokens=50, cost=1.25)
    failing = ModelResponse(calls=asks_for((long, {"word": "a"})).calls, usage=usage)
    stage.play(failing, failing, "No.", name="Agent_with_a_name_" + "x" * 80)
    with visiting(browser, stage, ViewportSize(width=1440, height=900)) as page:
        page.goto(f"{stage.address}/agents")
        count = page.locator(".failures", has_text="a_very_long").locator("span")
        expect(count).to_have_text("2")
        expect(count).to_be_in_viewport(ratio=1)
        table = page.get_by_role("region", name="Agents and models")
        assert table.evaluate("box => box.scrollWidth - box.clientWidth") == 0


def test_list_columns_stay_in_place_while_numbers_grow(page: Page, stage: Stage) -> None:
    stage.play("Done.")
    page.goto(stage.address)
    before = page.locator("thead th").evaluate_all("all => all.map(one => one.getBoundingClientRect().x)")
    page.locator("tbody td.num").evaluate_all("all => { for (const one of all) one.textContent = '1,234,567'; }")
    after = page.locator("thead th").evaluate_all("all => all.map(one => one.getBoundingClientRect().x)")
    assert after == before


def test_growing_figures_on_a_phone_move_nothing(browser: Browser, stage: Stage) -> None:
    with (
        visiting(browser, stage, PHONE) as page,
        stage.playing(asks_for(("wait_here", {"word": "a"})), "Done.") as turn,
    ):
        page.goto(stage.url(turn))
        top = page.locator(".turn-top")
        before = top.bounding_box()
        page.locator(".figure dd").nth(1).evaluate(
            "one => { one.textContent = '1,234 min 34 s, and a half of a second'; }"
        )
        assert top.bounding_box() == before
