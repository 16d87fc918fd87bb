"""One turn on one screen, in a real browser: its steps, its tabs, its replay, its chart."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from turnwright.model import asks_for

from .stage import DONE, PHONE, Stage, searching, visiting


@pytest.fixture(scope="module")
def capped(stage: Stage) -> str:
    """A turn that met its cap of three steps."""
    return stage.play(searching(), repeat=True, steps=3)


def current_step(page: Page, title: str) -> None:
    expect(page.locator("#steps [aria-current] .step-title")).to_have_text(title)


def current_tab(page: Page, title: str) -> None:
    expect(page.locator("#tabs [aria-current]")).to_have_text(title)


def test_arrow_keys_walk_the_steps_and_the_tabs(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped))
    current_step(page, "Whole turn")
    for key, title in (
        ("ArrowDown", "Step 1"),
        ("ArrowDown", "Step 2"),
        ("j", "Step 3"),
        ("ArrowUp", "Step 2"),
        ("k", "Step 1"),
        ("End", "Conclusion"),
        ("ArrowDown", "Conclusion"),
        ("Home", "Step 1"),
        ("Escape", "Whole turn"),
    ):
        page.keyboard.press(key)
        current_step(page, title)
    for key, title in (("ArrowRight", "Timeline"), ("]", "Request"), ("[", "Timeline"), ("ArrowLeft", "Transcript")):
        page.keyboard.press(key)
        current_tab(page, title)


def test_keys_typed_into_a_field_do_not_navigate(page: Page, stage: Stage) -> None:
    turn = stage.play(asks_for(("delete_file", {"path": "a"})))
    page.goto(stage.url(turn))
    field = page.locator("textarea").first
    field.fill("k")
    field.press("Home")
    field.press("j")
    expect(field).to_have_value("jk")
    current_step(page, "Whole turn")


def test_address_contains_the_step_the_tab_and_the_place(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped))
    page.locator("#step-2 a").click()
    expect(page).to_have_url(re.compile(r"[?&]step=2(&|$)"))
    page.locator("#tab-journal").click()
    expect(page).to_have_url(re.compile(r"step=2.*tab=journal"))
    page.locator("#place-before").click()
    expect(page).to_have_url(re.compile(r"step=2.*tab=journal.*at=\d+"))
    page.reload()
    current_step(page, "Step 2")
    current_tab(page, "Journal")
    expect(page.locator("#now")).to_be_visible()
    page.go_back()
    expect(page.locator("#now")).to_have_count(0)
    current_tab(page, "Journal")


def test_slider_shows_an_earlier_state_of_the_turn(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped, "?tab=chart"))
    slider = page.get_by_role("slider", name="Place in the journal")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("conclusion, CAP_HIT$"))
    slider.focus()
    slider.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^fact 2 of .*, step 1, STREAM$"))
    expect(page.locator("#step-2")).to_have_count(0)
    expect(page.locator(".chart-picture .here")).to_have_attribute("data-state", "STREAM")
    expect(slider).to_be_focused()
    slider.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("TOOL_EXEC$"))
    page.locator("#now").click()
    expect(page.locator("#step-conclude")).to_be_visible()
    assert "at=" not in page.url


def test_replay_plays_to_the_end(page: Page, stage: Stage) -> None:
    turn = stage.play("Forty-two.")
    page.goto(stage.url(turn))
    page.keyboard.press(",")
    expect(page.locator("#now")).to_be_visible()
    page.locator("#play").click()
    expect(page.locator("#now")).to_have_count(0)
    expect(page.locator("#play")).to_have_attribute("aria-pressed", "false")


def test_hovering_a_step_highlights_the_arrows_taken_in_the_chart(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped, "?tab=chart"))
    page.locator("#step-conclude").hover()
    lit = page.locator(".chart-picture .card.lit")
    expect(lit).to_have_count(2)
    assert {(arrow.get_attribute("data-from"), arrow.get_attribute("data-to")) for arrow in lit.all()} == {
        ("CHECK", "CONCLUDE"),
        ("CONCLUDE", "CAP_HIT"),
    }
    page.locator("#step-1 a").focus()
    expect(page.locator(".chart-picture .state.lit[data-state=STREAM]")).to_have_count(1)
    expect(page.locator(".chart-picture .state.lit[data-state=CONCLUDE]")).to_have_count(0)


def test_hovering_the_chart_marks_the_matching_steps(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped, "?tab=chart"))
    page.locator(".chart-picture .card[data-from=STREAM][data-to=TOOL_EXEC]").hover()
    expect(page.locator(".step-item.lit .step-title")).to_have_text(["Step 1", "Step 2", "Step 3"])
    page.locator(".chart-picture .state[data-state=CAP_HIT]").focus()
    expect(page.locator(".step-item.lit .step-title")).to_have_text(["Conclusion"])
    page.locator(".way-row").first.hover()
    expect(page.locator(".chart-picture .card.lit[data-from=CHECK][data-to=STREAM]")).to_have_count(1)


def test_chart_highlights_taken_arrows_and_the_final_state(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped, "?tab=chart"))
    expect(page.locator(".chart-picture .here.ended")).to_have_attribute("data-state", "CAP_HIT")
    rounds = page.locator(".chart-picture .times").filter(has_text="3×")  # noqa: RUF001 (the sign of multiplication)
    expect(rounds).to_have_count(4)
    page.locator("#step-1 a").click()
    expect(page.locator(".chart-picture .state.taken.chosen[data-state=TOOL_EXEC]")).to_have_count(1)
    expect(page.locator(".chart-picture .state.taken:not(.chosen)[data-state=CAP_HIT]")).to_have_count(1)


def test_link_leads_to_the_full_chart_and_back_to_taken_rows(page: Page, stage: Stage) -> None:
    failed = stage.play(searching())
    page.goto(stage.url(failed, "?tab=chart"))
    taken_card = page.locator(".chart-picture .card.taken[data-from=STREAM][data-to=FAILED]")
    cards = page.locator(".chart-picture .card")
    expect(cards).to_have_count(5)
    expect(taken_card).to_have_count(1)
    page.locator("#chart-view").click()
    expect(page).to_have_url(re.compile(r"chart=full"))
    expect(taken_card).to_have_count(1)
    assert cards.count() > 40
    page.locator("#step-1 a").click()
    current_step(page, "Step 1")
    expect(page).to_have_url(re.compile(r"chart=full"))
    page.locator("#chart-view").click()
    expect(cards).to_have_count(5)


def test_state_opens_facts_in_place_and_back_returns(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped, "?tab=chart"))
    page.evaluate("window.stays = true")
    page.locator(".chart-picture a[data-state=CONCLUDE]").click()
    expect(page.locator("#way-title")).to_contain_text("Facts in CONCLUDE")
    expect(page.locator("#way-list a")).to_contain_text(["stopping", "concluded", "turn_ended"])
    assert page.evaluate("window.stays")
    page.go_back()
    expect(page.locator("#way-title")).to_have_text("The path, row by row")
    page.locator(".chart-picture a[data-state=CONCLUDE]").press("Enter")
    expect(page.locator("#way-title")).to_contain_text("Facts in CONCLUDE")
    page.locator("#way-list a").first.click()
    current_tab(page, "Journal")


def test_chart_is_legible_at_the_initial_size(browser: Browser, stage: Stage, capped: str) -> None:
    with visiting(browser, stage, PHONE) as page:
        page.goto(stage.url(capped, "?tab=chart"))
        heights = page.locator(".chart-picture .card text").evaluate_all(
            "all => all.map((one) => parseFloat(one.getAttribute('font-size')) * one.getScreenCTM().a)"
        )
        assert min(heights) >= 10


def test_dot_follows_the_slider_through_the_chart(browser: Browser, stage: Stage, capped: str) -> None:
    with visiting(browser, stage) as page:
        page.emulate_media(reduced_motion="no-preference")
        page.goto(stage.url(capped, "?tab=chart&at=2"))
        page.evaluate(
            "new MutationObserver((all) => { for (const one of all) for (const node of one.addedNodes)"
            " if (node.classList?.contains('token')) document.documentElement.dataset.followed = ''; })"
            ".observe(document.body, { childList: true, subtree: true })"
        )
        page.get_by_role("slider", name="Place in the journal").press("ArrowRight")
        expect(page.locator("html")).to_have_attribute("data-followed", "")
        expect(page.locator(".chart-picture .token")).to_have_count(0)


#: How far each text of the chart stands within its card or state, on both sides.
WITHIN_ITS_CARD = """() => [...document.querySelectorAll(".card text, .state text")]
  .filter((text) => !text.closest(".times")).flatMap((text) => {
    const [card, words] = [text.closest(".card, .state").querySelector("path"), text].map((one) => one.getBBox());
    return [words.x - card.x, card.x + card.width - words.x - words.width];
  })"""

#: Which texts of the chart's cards a count lies over, beyond the room above a line.
COVERED = """() => [...document.querySelectorAll(".times rect")].flatMap((count) => {
  const over = count.getBoundingClientRect();
  return [...document.querySelectorAll(".card text")].filter((text) => !text.closest(".times")).filter((text) => {
    const words = text.getBoundingClientRect();
    const aside = words.right <= over.left || words.left >= over.right;
    return !aside && words.bottom > over.top && words.top + words.height / 4 < over.bottom;
  }).map((text) => text.textContent);
})"""


@pytest.mark.parametrize("view", ["?tab=chart", "?tab=chart&chart=full"])
def test_chart_texts_stay_inside_the_cards(page: Page, stage: Stage, capped: str, view: str) -> None:
    """Words fit with any fonts of the machine."""
    page.goto(stage.url(capped, view))
    room = page.evaluate(WITHIN_ITS_CARD)
    assert room
    assert min(room) > 3
    assert page.evaluate(COVERED) == []


def test_path_of_the_turn_is_shown_whole(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped, "?tab=chart"))
    assert page.locator("#way-list").evaluate("list => list.scrollHeight - list.clientHeight") <= 1


def test_chart_on_a_phone_begins_where_most_of_the_path_is_visible(browser: Browser, stage: Stage, capped: str) -> None:
    with visiting(browser, stage, PHONE) as page:
        page.goto(stage.url(capped, "?tab=chart"))
        for state in ("CHECK", "STREAM", "TOOL_EXEC", "CONTINUE", "CONCLUDE", "CAP_HIT"):
            box = page.locator(f".chart-picture .state[data-state={state}] > path").first.bounding_box()
            assert box is not None
            assert 0 < box["x"] < box["x"] + box["width"] < PHONE["width"], state


def test_chosen_tab_on_a_phone_is_visible_and_the_row_fades(browser: Browser, stage: Stage, capped: str) -> None:
    def in_view(page: Page, title: str) -> None:
        expect(page.locator("#tabs [aria-current]")).to_have_text(title)
        expect(page.locator("#tabs [aria-current]")).to_be_in_viewport(ratio=0.99)

    with visiting(browser, stage, PHONE) as page:
        for tab, title, sides in (
            ("transcript", "Transcript", "after"),
            ("budgets", "Limits", "before after"),
            ("reproduce", "Reproduce", "before"),
        ):
            page.goto(stage.url(capped, f"?tab={tab}"))
            in_view(page, title)
            expect(page.locator("html")).to_have_attribute("data-tabs", sides)
            assert page.evaluate("scrollY") == 0
        for key, title in (("ArrowLeft", "Journal"), ("ArrowLeft", "Limits"), ("ArrowLeft", "Chart")):
            page.keyboard.press(key)
            in_view(page, title)
        page.locator("#tabs").evaluate("row => { row.scrollLeft = 0; }")
        expect(page.locator("html")).to_have_attribute("data-tabs", "after")
        # Another step of the same tab leaves the row where it was scrolled to.
        page.keyboard.press("ArrowDown")
        current_step(page, "Step 1")
        assert page.locator("#tabs").evaluate("row => row.scrollLeft") == 0


def test_fork_form_names_the_first_fact(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped))
    expect(page.get_by_role("button", name=re.compile(r"^Fork after fact \d+$"))).to_be_visible()
    expect(page.locator("#actions")).to_contain_text(
        re.compile(r"Fact \d+ is the last one after which this turn can be forked\.")
    )
    page.goto(stage.url(capped, "?at=5"))
    at = page.get_by_role("slider", name="Place in the journal").get_attribute("aria-valuetext")
    assert at is not None
    expect(page.get_by_role("button", name=f"Fork after {at.split(' of ')[0]}", exact=True)).to_be_visible()
    expect(page.locator("#actions")).not_to_contain_text("is the last one")


def test_tabs_name_the_conclusion(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped, "?tab=request"))
    expect(page.get_by_role("heading", name="Request of the conclusion", exact=True)).to_be_visible()
    page.goto(stage.url(capped, "?tab=request&step=2"))
    expect(page.get_by_role("heading", name="Request of step 2", exact=True)).to_be_visible()
    page.goto(stage.url(capped, "?tab=transcript"))
    expect(page.locator("#tab .note").first).to_be_visible()
    expect(page.locator("#tab .note")).not_to_contain_text("`")


def test_reason_for_stopping_is_explained(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped))
    expect(page.locator("#stop-title")).to_have_text("Stopped at the step limit (3 of 3)")
    expect(page.get_by_role("region", name="Last text")).to_have_text("Nothing was found.")


def test_theme_follows_the_system_until_changed(browser: Browser, stage: Stage) -> None:
    with visiting(browser, stage, scheme="dark") as page:
        page.goto(stage.address)
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(ground)
        page.get_by_role("button", name="Light or dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        assert page.evaluate(ground) != dark
        page.keyboard.press("t")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert page.evaluate(ground) == dark
        page.keyboard.press("t")
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        assert page.evaluate(ground) != dark


def test_keyboard_shortcuts_are_explained(page: Page, stage: Stage) -> None:
    page.goto(stage.address)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


def test_turn_page_follows_a_running_turn(page: Page, stage: Stage) -> None:
    lines = asks_for(("wait_here", {"word": "a"})), asks_for(("wait_here", {"word": "b"})), "It is done."
    with stage.playing(*lines) as turn:
        page.goto(stage.url(turn, "?tab=chart"))
        expect(page.locator("#stop-title")).to_have_text("Running tools")
        expect(page.locator(".stop-words")).to_contain_text(re.compile(r"Step 1: wait_here for \d+ s"))
        expect(page.locator(".chart-picture .here")).to_have_attribute("data-state", "TOOL_EXEC")
        expect(page.locator("#step-2")).to_have_count(0)
        stage.gate.let_one_through(stage.portal)
        expect(page.locator("#step-2")).to_be_visible()
        expect(page.locator(".chart-picture .card[data-from=CONTINUE][data-to=CHECK].taken")).to_have_count(1)
        stage.gate.let_one_through(stage.portal)
        expect(page.locator("#stop-title")).to_have_text(DONE)
        expect(page.locator("#says")).to_have_text(DONE)
        expect(page.locator(".chart-picture .here.ended")).to_have_attribute("data-state", "FINISHED")


def test_running_call_shows_the_progress(page: Page, stage: Stage) -> None:
    turn = stage.play(asks_for(("copy_files", {"count": 5})))
    page.goto(stage.url(turn, "?tab=transcript"))
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("[data-progress]")).to_have_text("2 of 5 copied")
    stage.gate.let_one_through(stage.portal)
    expect(page.locator(".turn-name .badge")).to_contain_text("finished")
    expect(page.locator("[data-progress]")).to_have_count(0)


def test_typed_and_unfolded_parts_stay_while_the_turn_runs(page: Page, stage: Stage) -> None:
    lines = asks_for(("wait_here", {"word": "a"})), asks_for(("wait_here", {"word": "b"})), "It is done."
    with stage.playing(*lines) as turn:
        page.goto(stage.url(turn, "?tab=journal"))
        field = page.locator("#steer-text")
        field.fill("Hurry")
        page.locator("#tab details > summary").first.click()
        stage.gate.let_one_through(stage.portal)
        expect(page.locator("#step-2")).to_be_visible()
        expect(field).to_have_value("Hurry")
        expect(page.locator("#tab details").first).to_have_attribute("open", "")


def test_earlier_place_stays_in_view_while_the_turn_runs(page: Page, stage: Stage) -> None:
    with stage.playing(asks_for(("wait_here", {"word": "a"})), "It is done.") as turn:
        page.goto(stage.url(turn, "?at=2"))
        expect(page.locator("#stop-title")).to_contain_text("After fact 2 of")
        stage.gate.let_one_through(stage.portal)
    expect(page.locator("#stop-title")).to_contain_text("After fact 2 of")
    page.locator("#now").click()
    expect(page.locator("#stop-title")).to_have_text(DONE)


def test_links_work_without_scripts(browser: Browser, stage: Stage, capped: str) -> None:
    with visiting(browser, stage) as page:
        page.goto(stage.address)
        state = page.context.storage_state()
    with browser.new_context(java_script_enabled=False, storage_state=state) as context:
        page = context.new_page()
        page.goto(stage.url(capped))
        page.locator("#step-2 a").click()
        current_step(page, "Step 2")
        page.locator("#tab-transcript").click()
        current_tab(page, "Transcript")
        page.locator("#place-before").click()
        expect(page.locator("#now")).to_be_visible()
        expect(page.locator("#place")).to_be_hidden()


@pytest.mark.parametrize("tab", ["chart", "transcript", "timeline", "budgets", "request", "journal", "reproduce"])
def test_no_element_is_wider_than_a_phone(browser: Browser, stage: Stage, tab: str) -> None:
    turn = stage.play(
        asks_for(("wide", {"word": "W" * 40}), ("broken", {"word": "x" * 900})), "Z" * 4000, prompt="Y" * 900
    )
    with visiting(browser, stage, PHONE) as page:
        page.goto(stage.url(turn, f"?tab={tab}"))
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_script_in_tool_output_is_not_run(page: Page, stage: Stage, capped: str) -> None:
    page.goto(stage.url(capped, "?tab=transcript"))
    expect(page.locator("#tab")).to_contain_text("<script>document.title")
    assert "owned" not in page.title()
