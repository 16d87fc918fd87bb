"""Parts of a page are replaced, with a real browser: a failed or late response removes nothing."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from turnwright.model import asks_for
from turnwright_inspector.http.refusals import failure

from .stage import DONE, TOKEN, Stage, visiting

WAITS = asks_for(("wait_here", {"word": "a"}))
ASKS = asks_for(("delete_file", {"path": "old.log"}))
#: Notes in `window.waits` how long, by the page's clock, the page waited after an answer until it fetched itself again.
NOTED = """{
    window.waits = [];
    let answered = 0;
    const send = window.fetch;
    window.fetch = async (address, options) => {
        if (new URL(address, location).pathname !== location.pathname) return send(address, options);
        waits.push(Date.now() - answered);
        try { return await send(address, options); } finally { answered = Date.now(); }
    };
}"""
TROUBLE = "<!doctype html><html><body><main><h1>The store cannot be read</h1><p>It is locked.</p></main></body></html>"


@pytest.fixture
def page(browser: Browser, stage: Stage) -> Iterator[Page]:
    """Somebody whose requests are not all answered."""
    with visiting(browser, stage, unanswered=True) as page:
        yield page


class Held:
    """Requests that are held up until they are released."""

    def __init__(self, page: Page, address: re.Pattern[str], method: str = "GET") -> None:
        self._method = method
        self._open = False
        self.routes: list[Route] = []
        page.route(address, self._hold)

    def _hold(self, route: Route) -> None:
        request = route.request
        if not self._open and request.method == self._method and request.resource_type in ("xhr", "fetch"):
            self.routes.append(route)
        else:
            route.continue_()

    def let_go(self) -> None:
        """Answer what was held up, and hold nothing up any more."""
        self._open = True
        for route in self.routes:
            route.continue_()


def failing(
    page: Page, address: re.Pattern[str], *, times: int, status: int = 503, method: str = "GET", body: str = TROUBLE
) -> list[str]:
    """Answer the next requests with an error. Gives the addresses of those that were."""
    failed: list[str] = []

    def answer(route: Route) -> None:
        request = route.request
        if request.method == method and request.resource_type in ("xhr", "fetch") and len(failed) < times:
            failed.append(request.url)
            route.fulfill(status=status, content_type="text/html", body=body)
        else:
            route.continue_()

    page.route(address, answer)
    return failed


def of(turn: str) -> re.Pattern[str]:
    """Return a pattern for the addresses of a turn's page, without its live events."""
    return re.compile(rf"/turns/{re.escape(turn)}(\?|$)")


def wait_for_retry(page: Page, turn: str, milliseconds: int) -> None:
    """Let the page's clock, which the test installed, go on until the page tries again, and wait for the answer."""
    with page.expect_response(of(turn)):
        page.clock.run_for(milliseconds)


def current_step(page: Page, title: str) -> None:
    expect(page.locator("#steps [aria-current] .step-title")).to_have_text(title)


def test_slow_request_is_shown_as_busy(page: Page, stage: Stage) -> None:
    turn = stage.play("Done.")
    page.goto(stage.url(turn))
    held_page = Held(page, of(turn))
    page.get_by_role("link", name="Timeline").click()
    expect(page.locator("html[data-busy]")).to_have_count(1)
    held_page.let_go()
    expect(page.locator("#tab")).to_have_attribute("data-tab", "timeline")
    expect(page.locator("html[data-busy]")).to_have_count(0)


def test_turn_stays_visible_while_the_store_fails_and_then_continues(page: Page, stage: Stage) -> None:
    page.clock.install()
    with stage.playing(WAITS, WAITS, WAITS, "Done.") as turn:
        page.goto(stage.url(turn))
        expect(page.locator("#step-1")).to_be_visible()
        failed = failing(page, of(turn), times=2)
        stage.gate.let_one_through(stage.portal)
        notice = page.get_by_role("region", name="Not up to date.")
        expect(notice).to_contain_text("The store cannot be read: It is locked. This is the state of")
        expect(page.locator("#says")).to_contain_text("Not up to date.")
        expect(page.locator("#step-1")).to_be_visible()
        wait_for_retry(page, turn, 1000)
        wait_for_retry(page, turn, 2000)
        expect(page.locator("#step-2")).to_be_visible()
        expect(notice).to_be_hidden()
        assert len(failed) == 2
        stage.gate.let_one_through(stage.portal)
        expect(page.locator("#step-3")).to_be_visible()


def test_wait_to_try_again_grows_and_need_not_be_waited_for(page: Page, stage: Stage) -> None:
    page.clock.install()
    page.add_init_script(NOTED)
    with stage.playing(WAITS, WAITS, "Done.") as turn:
        page.goto(stage.url(turn))
        failing(page, of(turn), times=4)
        page.evaluate("waits.length = 0")
        stage.gate.let_one_through(stage.portal)
        expect(page.get_by_role("region", name="Not up to date.")).to_be_visible()
        wait_for_retry(page, turn, 1000)
        wait_for_retry(page, turn, 2000)
        with page.expect_response(of(turn)):
            page.get_by_role("button", name="Try now").click()
        page.clock.run_for(300)
        _, first, second, _ = page.evaluate("waits")
        assert second > 1.3 * first
        page.get_by_role("button", name="Try now").click()
        expect(page.locator("#step-2")).to_be_visible()
        expect(page.get_by_role("region", name="Not up to date.")).to_be_hidden()


def test_list_stays_visible_while_the_store_fails(page: Page, stage: Stage) -> None:
    stage.play("Done.", prompt="The first of them.")
    page.clock.install()
    # It asks once for what happened before somebody watched.
    with page.expect_request_finished(lambda request: request.resource_type == "fetch"):
        page.goto(f"{stage.address}/")
    expect(page.locator("#turns")).to_contain_text("The first of them.")
    failed = failing(page, re.compile(rf"{re.escape(stage.address)}/$"), times=1)
    stage.play("Done.", prompt="The second of them.")
    expect(page.get_by_role("region", name="Not up to date.")).to_be_visible()
    expect(page.locator("#turns")).to_contain_text("The first of them.")
    page.clock.run_for(1000)
    expect(page.locator("#turns")).to_contain_text("The second of them.")
    assert len(failed) == 1


def test_expired_session_keeps_the_typed_text_and_can_log_in_again(page: Page, stage: Stage) -> None:
    turn = stage.play(ASKS)
    page.goto(stage.url(turn))
    words = page.get_by_label("A message for the model")
    words.fill("What took ten minutes to write.")
    page.context.clear_cookies()
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("region", name="Not done.")).to_contain_text("Your session has ended.")
    expect(words).to_have_value("What took ten minutes to write.")
    # The page looks again by itself, perhaps before the other one is closed.
    with page.expect_response(lambda answer: of(turn).search(answer.url) is not None and answer.status == 200):
        again = page.context.new_page()
        again.goto(f"{stage.address}/?token={TOKEN}")
        again.close()
    page.get_by_role("button", name="Reject").click()
    expect(page.locator(".turn-name .badge")).to_contain_text("finished")
    expect(page.locator("#notice")).to_be_hidden()


def test_unsent_text_stays_to_be_sent_again(page: Page, stage: Stage) -> None:
    turn = stage.play(ASKS)
    page.goto(stage.url(turn))
    box = page.get_by_label("Send a message to the turn")
    box.fill("Mind the gap")
    page.route(re.compile("/steer$"), lambda route: route.abort(), times=1)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("region", name="Perhaps not done.")).to_contain_text(
        "What you wrote is still here; try again."
    )
    expect(box).to_have_value("Mind the gap")
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#notice")).to_be_hidden()
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#actions")).to_contain_text("waits in the inbox")
    expect(box).to_have_value("")


def test_broken_link_removes_nothing_from_the_page(page: Page, stage: Stage) -> None:
    turn = stage.play("Done.")
    page.goto(stage.url(turn))
    stage.delete(turn)
    page.locator("#tab-journal").click()
    expect(page.get_by_role("region", name="Not shown.")).to_be_visible()
    expect(page.locator("#stop-title")).to_have_text(DONE)
    expect(page).to_have_url(stage.url(turn))


def test_server_error_is_shown_and_removes_nothing(page: Page, stage: Stage) -> None:
    turn = stage.play("Done.")
    page.goto(stage.url(turn))
    failing(page, of(turn), times=1, status=500, body=bytes(failure().body).decode())
    page.locator("#tab-journal").click()
    notice = page.get_by_role("region", name="Not shown.")
    expect(notice).to_contain_text("The inspector failed: This is an error of the inspector, not of a turn")
    expect(page.locator("#stop-title")).to_have_text(DONE)
    page.locator("#tab-journal").click()
    expect(page).to_have_url(stage.url(turn, "?tab=journal"))


def test_replay_stops_at_a_failed_request(page: Page, stage: Stage) -> None:
    turn = stage.play("Done.")
    page.goto(stage.url(turn))
    failing(page, of(turn), times=1)
    page.locator("#play").click()
    expect(page.get_by_role("region", name="Not shown.")).to_be_visible()
    expect(page.locator("#play")).to_have_attribute("aria-pressed", "false")
    expect(page).to_have_url(stage.url(turn))
    page.locator("#play").click()
    expect(page.locator("#now")).to_be_visible()
    expect(page.locator("#notice")).to_be_hidden()


def test_turn_deleted_while_open_stays_visible(page: Page, stage: Stage) -> None:
    turn = stage.play(ASKS)
    page.goto(stage.url(turn))
    stage.delete(turn)
    expect(page.locator("#notice")).to_be_visible()
    expect(page.locator(".asked")).to_be_visible()


def test_slow_step_is_not_undone_by_live_updates(page: Page, stage: Stage) -> None:
    with stage.playing(WAITS, WAITS, "Done.") as turn:
        page.goto(stage.url(turn))
        held_page = Held(page, re.compile(r"\?step=1\b"))
        page.locator("#step-1 a").click()
        stage.gate.let_one_through(stage.portal)
        page.wait_for_timeout(800)
        held_page.let_go()
        expect(page.locator("#step-2")).to_be_visible()
        page.wait_for_timeout(500)
        current_step(page, "Step 1")
        expect(page).to_have_url(re.compile(r"\?step=1\b"))


def test_response_arriving_after_navigation_is_not_shown(page: Page, stage: Stage) -> None:
    with stage.playing(WAITS, WAITS, "Done.") as turn:
        page.goto(stage.url(turn))
        held_page = Held(page, re.compile(rf"/turns/{re.escape(turn)}$"))
        stage.gate.let_one_through(stage.portal)
        while not held_page.routes:
            page.wait_for_timeout(50)
        page.locator("#step-1 a").click()
        current_step(page, "Step 1")
        held_page.let_go()
        expect(page.locator("#step-2")).to_be_visible()
        page.wait_for_timeout(300)
        current_step(page, "Step 1")


def test_slow_action_does_not_restore_the_previous_view(page: Page, stage: Stage) -> None:
    turn = stage.play(ASKS)
    page.goto(stage.url(turn))
    held_page = Held(page, re.compile("/steer$"), "POST")
    page.get_by_label("Send a message to the turn").fill("Hurry")
    page.get_by_role("button", name="Send").click()
    page.locator("#tab-journal").click()
    expect(page).to_have_url(re.compile("tab=journal"))
    held_page.let_go()
    expect(page.locator("#actions")).to_contain_text("waits in the inbox")
    expect(page.locator("#tabs [aria-current]")).to_have_text("Journal")


def test_canceled_pointer_does_not_end_live_updates(page: Page, stage: Stage) -> None:
    with stage.playing(WAITS, WAITS, "Done.") as turn:
        page.goto(stage.url(turn))
        for kind in ("pointerdown", "pointercancel"):
            page.locator("#place").dispatch_event(kind)
        stage.gate.let_one_through(stage.portal)
        expect(page.locator("#step-2")).to_be_visible()


def test_live_updates_continue_after_a_refused_connection(page: Page, stage: Stage) -> None:
    refused: list[Request] = []

    def answer(route: Route) -> None:
        if len(refused) < 2:
            refused.append(route.request)
            route.fulfill(status=503, body="")
        else:
            route.continue_()

    page.clock.install()
    with stage.playing(WAITS, WAITS, "Done.") as turn:
        page.route(re.compile("/live"), answer)
        with page.expect_response(re.compile("/live")):
            page.goto(stage.url(turn))
        expect(page.locator("#step-1")).to_be_visible()
        stage.gate.let_one_through(stage.portal)
        with page.expect_response(re.compile("/live")):
            page.clock.run_for(1000)
        expect(page.locator("#step-2")).to_be_visible()
        assert len(refused) == 2
        with page.expect_response(re.compile("/live")):
            page.clock.run_for(2000)
        stage.gate.let_one_through(stage.portal)
        expect(page.locator("#stop-title")).to_have_text(DONE)


def test_turn_and_journal_are_downloaded(page: Page, stage: Stage) -> None:
    turn = stage.play("Done.")
    for tab, link in (("reproduce", "Download the turn"), ("journal", "Download as JSON lines")):
        page.goto(stage.url(turn, f"?tab={tab}"))
        with page.expect_download() as downloaded:
            page.get_by_role("link", name=link).click()
        assert "turn_started" in downloaded.value.path().read_text(encoding="utf-8")
