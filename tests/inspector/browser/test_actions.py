"""Actions of people with a real browser: watch a turn, answer it, steer it, stop it, fork it."""

import re

from playwright.sync_api import Browser, Page, expect

from turnwright.model import asks_for

from .stage import DONE, PHONE, TOKEN, Stage, searching, visiting

ASKS = asks_for(("delete_file", {"path": "old.log"}))


def test_turn_is_watched_live_paused_answered_and_finished(page: Page, stage: Stage) -> None:
    """Another process drives it to its pause; what it does is seen without loading the page again."""
    wait = asks_for(("wait_here", {"word": "a"}), text="First I wait.")
    with stage.playing(wait, ASKS) as turn:
        page.goto(stage.url(turn))
        page.evaluate("window.sameDocument = true")
        expect(page.locator("#step-1")).to_be_visible()
        expect(page.locator("#step-2")).to_have_count(0)
        stage.gate.let_one_through(stage.portal)
        expect(page.locator("#step-2")).to_be_visible()
        expect(page.locator(".asked")).to_contain_text("old.log")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".turn-name .badge")).to_contain_text("finished")
    expect(page.locator(".asked")).to_have_count(0)
    assert page.evaluate("window.sameDocument")


def test_typed_text_survives_updates_of_the_turn(page: Page, stage: Stage) -> None:
    wait = asks_for(("wait_here", {"word": "a"}))
    with stage.playing(wait, wait, "Done.") as turn:
        page.goto(stage.url(turn))
        box = page.get_by_label("Send a message to the turn")
        box.fill("Mind the g")
        stage.gate.let_one_through(stage.portal)
        expect(page.locator("#step-2")).to_be_visible()
        expect(box).to_have_value("Mind the g")
        expect(box).to_be_focused()
        box.press_sequentially("ap")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_text("waits in the inbox")).to_be_visible()
        expect(page.locator("#actions")).to_contain_text("Mind the gap")
        expect(box).to_have_value("")


def test_stopping_a_turn_needs_a_confirmation(page: Page, stage: Stage) -> None:
    turn = stage.play(ASKS)
    page.goto(stage.url(turn))
    stop = page.get_by_role("button", name="Stop it")
    expect(stop).to_be_hidden()
    page.get_by_text("Stop the turn").click()
    stop.click()
    expect(page.locator(".turn-name .badge")).to_contain_text("aborted")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)


def test_fork_is_driven_independently_of_the_original(page: Page, stage: Stage) -> None:
    turn = stage.play(asks_for(("look_up", {"word": "a"})), "It is not there.")
    page.goto(stage.url(turn, "?step=1"))
    page.get_by_role("button", name=re.compile("^Fork")).first.click()
    expect(page).to_have_url(re.compile(r"/turns/fork-\w+"))
    expect(page.locator(".relations")).to_contain_text(turn)
    expect(page.locator(".turn-name .badge")).to_contain_text("finished")


def test_second_click_starts_no_second_turn(page: Page, stage: Stage) -> None:
    page.goto(stage.url(stage.play("Done.")))
    requests = sent_by(page)
    page.route("**/fork", lambda route: route.fulfill(status=204))  # the page stays
    fork = page.get_by_role("button", name=re.compile("^Fork"))
    fork.click()
    expect(fork).to_be_disabled()
    for _ in range(2):
        fork.dispatch_event("click")
        page.wait_for_timeout(50)
    assert len(requests) == 1


def test_late_answer_is_refused_and_keeps_the_typed_text(browser: Browser, stage: Stage) -> None:
    turn = stage.play(ASKS, ASKS)
    context = browser.new_context()
    late = context.new_page()
    late.goto(f"{stage.address}/?token={TOKEN}")
    # The late page receives nothing of the first page's actions.
    late.route(re.compile("/live"), lambda route: route.abort())
    late.goto(stage.url(turn))
    late.route(stage.url(turn), lambda route: route.abort())
    late.get_by_label("A message for the model").fill("Leave it alone.")
    first = context.new_page()
    first.goto(stage.url(turn))
    first.get_by_role("button", name="Approve").click()
    expect(first.locator(".turn-name .badge")).to_contain_text("finished")
    late.get_by_role("button", name="Reject").click()
    expect(late.get_by_role("alert")).to_contain_text("Not done.")
    # What the page shows by itself afterwards is not an answer to that.
    late.unroute(stage.url(turn))
    with late.expect_response(stage.url(turn)):
        late.evaluate("dispatchEvent(new Event('online'))")
    expect(late.locator("#stop-title")).to_have_text(DONE)
    expect(late.locator("#actions")).to_contain_text("Not done.")
    expect(late.locator("#actions")).to_contain_text("Leave it alone.")
    context.close()


#: Presses a button as soon as there is one: a click that was meant for the button before it.
PRESSED_AT_ONCE = """([form, value]) => new MutationObserver(() => {
    const button = document.querySelector(`form:has(input[value="${form}"]) button[value=${value}]`);
    if (!button || window.pressed || !window.isReady(button)) return;
    window.pressed = true;
    button.click();
}).observe(document.body, { subtree: true, childList: true, attributes: true })"""


def sent_by(page: Page) -> list[str]:
    """Return a list that receives the address of each form sent from now on."""
    addresses: list[str] = []
    page.on("request", lambda request: addresses.append(request.url) if request.method == "POST" else None)
    return addresses


def test_key_press_does_not_answer_a_replaced_question(page: Page, stage: Stage) -> None:
    turn = stage.play(ASKS)
    page.goto(stage.url(turn))
    page.get_by_label("A message for the model").fill("Not the old one.")
    page.get_by_role("button", name="Approve").focus()
    stage.answered_elsewhere(turn, "approval-1", asks_for(("delete_file", {"path": "precious.db"})), "Done.")
    expect(page.locator(".asked")).to_contain_text("precious.db")
    expect(page.locator("#says")).not_to_be_empty()
    # Neither focus nor words go over to it, and what was written is not lost.
    expect(page.locator("#actions")).to_be_focused()
    expect(page.get_by_label("A message for the model")).to_have_value("")
    expect(page.get_by_role("region", name="That question is closed.")).to_contain_text("Not the old one.")
    requests = sent_by(page)
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    page.wait_for_timeout(300)
    assert (requests, stage.asked(turn)) == ([], ["approval-2"])
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".turn-name .badge")).to_contain_text("finished")


def test_click_on_a_newly_shown_question_is_ignored(page: Page, stage: Stage) -> None:
    turn = stage.play(ASKS)
    page.goto(stage.url(turn))
    page.evaluate("void (window.isReady = () => true)")
    page.evaluate(PRESSED_AT_ONCE, ["approval-2", "approve"])
    requests = sent_by(page)
    stage.answered_elsewhere(turn, "approval-1", asks_for(("delete_file", {"path": "precious.db"})), "Done.")
    while not page.evaluate("window.pressed"):
        page.wait_for_timeout(50)
    page.wait_for_timeout(300)
    assert (requests, stage.asked(turn)) == ([], ["approval-2"])
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".turn-name .badge")).to_contain_text("finished")


def test_click_on_a_recently_moved_question_is_ignored(page: Page, stage: Stage) -> None:
    turn = stage.play(asks_for(("delete_file", {"path": "old.log"}), ("delete_file", {"path": "precious.db"})))
    page.goto(stage.url(turn))
    place = "button => button.getBoundingClientRect().top"
    allow = page.locator("form:has(input[value='approval-2'])").get_by_role("button", name="Approve")
    was = allow.evaluate(place)
    page.evaluate(f"void (window.isReady = button => ({place})(button) < {was} - 20)")
    page.evaluate(PRESSED_AT_ONCE, ["approval-2", "approve"])
    requests = sent_by(page)
    stage.answered_elsewhere(turn, "approval-1")
    while not page.evaluate("window.pressed"):
        page.wait_for_timeout(50)
    page.wait_for_timeout(300)
    assert (requests, stage.asked(turn)) == ([], ["approval-2"])
    allow.click()
    expect(page.locator(".turn-name .badge")).to_contain_text("finished")


def test_input_typed_for_a_turn_does_not_go_to_another(page: Page, stage: Stage) -> None:
    """Its page comes in place of the other's without the document being loaded anew."""
    turn, other_turn = stage.play(ASKS), stage.play(ASKS)
    page.goto(stage.url(turn))
    page.get_by_label("A message for the model").fill("Not the old one.")
    page.get_by_label("Send a message to the turn").fill("Hurry")
    link = f"<a id='other' href='/turns/{other_turn}'>the other</a>"
    page.locator("#tabs").evaluate(f'tabs => {{ tabs.insertAdjacentHTML("beforeend", "{link}"); htmx.process(tabs) }}')
    page.locator("#other").click()
    expect(page.locator("#turn")).to_have_attribute("data-turn", other_turn)
    expect(page.get_by_label("A message for the model")).to_have_value("")
    expect(page.get_by_label("Send a message to the turn")).to_have_value("")


def test_pages_work_without_scripts(browser: Browser, stage: Stage) -> None:
    turn = stage.play(ASKS)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{stage.address}/turns/{turn}?token={TOKEN}&tab=journal")
    page.get_by_label("Send a message to the turn").fill("Hurry")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#actions")).to_contain_text("Hurry")
    expect(page).to_have_url(f"{stage.url(turn)}?tab=journal")
    page.get_by_role("button", name="Approve").click()
    expect(page).to_have_url(f"{stage.url(turn)}?tab=journal")
    for _ in range(50):
        if "finished" in page.locator(".turn-name .badge").inner_text():
            break
        page.reload()
    expect(page.locator(".turn-name .badge")).to_contain_text("finished")
    context.close()


def test_advice_on_the_page_is_a_button(page: Page, stage: Stage) -> None:
    turn = stage.play(ASKS)
    page.set_viewport_size({"width": 390, "height": 600})
    page.goto(stage.url(turn))
    page.get_by_role("link", name="Answer").click()
    expect(page.get_by_role("heading", name="Searcher wants to run delete_file: old.log")).to_be_in_viewport()
    capped = stage.play(searching(), repeat=True, steps=2)
    page.goto(stage.url(capped))
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".relations")).to_contain_text(f"continues from {capped}")
    expect(page.get_by_role("region", name="Answer")).to_have_text("Done.")


def test_long_approval_is_given_only_after_scrolling_to_the_end(browser: Browser, stage: Stage) -> None:
    """Also one of several that are approved at once. Without scripts all of it is on the page."""
    command = "\n".join(f"line {number} of the script" for number in range(1_500))
    turns = [stage.play(asks_for(("delete_file", {"path": command})), "Done.") for _ in range(2)]
    with visiting(browser, stage, PHONE) as page:
        page.goto(stage.url(turns[0]))
        box = page.locator(".question")
        size = box.bounding_box()
        assert size is not None
        assert size["height"] <= 0.6 * PHONE["height"] + 1
        page.get_by_role("button", name="Approve").click()
        notice = page.get_by_role("region", name="Not approved.")
        expect(notice).to_contain_text("read it to its end first")
        expect(box).to_be_focused()
        assert stage.asked(turns[0])
        page.keyboard.press("End")
        expect(notice).to_be_hidden()
        page.get_by_role("button", name="Approve").click()
        expect(page.locator("#stop-title")).to_have_text(DONE)
        page.goto(f"{stage.address}/needs-you")
        page.locator(f'[id^="waiting-{turns[1]}"] [name=chosen]').check()
        page.locator("#all-approve").click()
        expect(notice).to_be_visible()
        assert stage.asked(turns[1])
    context = browser.new_context(java_script_enabled=False, viewport=PHONE)
    page = context.new_page()
    page.goto(f"{stage.address}/?token={TOKEN}")
    page.goto(stage.url(turns[1]))
    size = page.locator(".question").bounding_box()
    assert size is not None
    assert size["height"] > 1_500 * 10
    context.close()
