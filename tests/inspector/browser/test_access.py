"""Access with a real browser, and the security rules that the pages keep."""

from playwright.sync_api import Browser, Page, expect

from turnwright.model import asks_for

from .stage import PHONE, TOKEN, Stage, visiting
from .test_accessibility import violations_by_look


def test_pages_without_the_token_show_nothing(browser: Browser, stage: Stage) -> None:
    context = browser.new_context()
    page = context.new_page()
    for path in ("/", "/turns/x", "/?token=wrong", "/static/inspector.js"):
        response = page.goto(f"{stage.address}{path}")
        assert response is not None
        assert response.status == 401
        expect(page.get_by_role("heading")).to_have_text("Token required")
    assert context.cookies() == []
    context.close()


def test_token_is_entered_on_the_requested_page(browser: Browser, stage: Stage) -> None:
    """It leads to the page that was asked for; the page is styled within its policy, and axe finds nothing."""
    turn = stage.play("Hello.")
    context = browser.new_context(viewport=PHONE)
    page = context.new_page()
    refused: list[str] = []
    page.on(
        "console", lambda message: refused.append(message.text) if "Content Security Policy" in message.text else None
    )
    page.goto(stage.url(turn, "?tab=journal"))
    assert violations_by_look(page, 0) == {}
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("That is not the token of this inspector.")
    assert violations_by_look(page, 1) == {}
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Open").click()
    expect(page).to_have_url(stage.url(turn, "?tab=journal"))
    expect(page.locator("h1")).to_have_text("Searcher")
    assert refused == []
    context.close()


def test_token_leaves_the_address_and_the_cookie_is_hidden_from_scripts(page: Page, stage: Stage) -> None:
    page.goto(f"{stage.address}/?token={TOKEN}")
    expect(page).to_have_url(f"{stage.address}/")
    assert page.evaluate("document.cookie") == ""
    (cookie,) = page.context.cookies()
    assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
    assert TOKEN not in cookie.get("value", "")


def test_link_from_another_site_opens_the_page(browser: Browser, stage: Stage) -> None:
    """The browser keeps the cookie back at first: the page that says so loads itself again."""
    turn = stage.play("Hello.")
    with visiting(browser, stage) as page:
        page.goto(stage.address)
        context = page.context
        elsewhere = context.new_page()
        context.route(
            "http://elsewhere.example/",
            lambda route: route.fulfill(body=f'<a href="{stage.url(turn)}">a turn</a>', content_type="text/html"),
        )
        elsewhere.goto("http://elsewhere.example/")
        elsewhere.get_by_role("link").click()
        expect(elsewhere.locator("h1")).to_have_text("Searcher")


def test_another_site_cannot_send_a_form(browser: Browser, stage: Stage) -> None:
    turn = stage.play(asks_for(("delete_file", {"path": "a"})))
    with visiting(browser, stage) as page:
        context = page.context
        elsewhere = context.new_page()
        context.route(
            "http://elsewhere.example/",
            lambda route: route.fulfill(
                body=f'<form method="post" action="{stage.url(turn)}/abort"><button>Win</button></form>',
                content_type="text/html",
            ),
        )
        elsewhere.goto("http://elsewhere.example/")
        with elsewhere.expect_response(f"{stage.url(turn)}/abort") as answer:
            elsewhere.get_by_role("button").click()
        assert answer.value.status in (401, 403)
        page.goto(stage.url(turn))
        expect(page.get_by_role("button", name="Approve")).to_be_visible()


def test_script_in_a_tool_result_does_not_run(page: Page, stage: Stage) -> None:
    evil = "<img src=x onerror=\"document.title = 'owned'\"><script>document.title = 'owned'</script>"
    turn = stage.play(asks_for(("look_up", {"word": evil}), text=evil), f"{evil} **{evil}**", prompt=evil)
    for tab in ("chart", "transcript", "timeline", "budgets", "request", "journal", "reproduce"):
        for step in ("", "&step=1"):
            page.goto(stage.url(turn, f"?tab={tab}{step}"))
            expect(page.locator("#turn")).to_be_visible()
            assert "owned" not in page.title()
    page.goto(stage.url(turn, "?tab=transcript"))
    expect(page.locator("#tab")).to_contain_text("<script>document.title = 'owned'</script>")
    page.goto(f"{stage.address}/")
    assert "owned" not in page.title()
