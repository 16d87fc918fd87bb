"""The transcript in a real browser: rows of calls, steps that are scrolled to, and a live end that stays in view."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from turnwright.message import FilePart
from turnwright.model import asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import Line

from .stage import DESKTOP, DONE, Stage

#: A picture of one pixel.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c4944415408d763f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)
#: Live events that a test sends by itself: `stream.emit(name, data)`.
FAKE_EVENTS = """window.EventSource = class extends EventTarget {
    constructor() { super(); window.stream = this; this.readyState = 1; }
    close() { this.readyState = 2; }
    emit(name, data) { this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) })); }
}; window.EventSource.CLOSED = 2;"""
TOP_OF_TABS = "() => document.querySelector('#tabs').getBoundingClientRect().top + scrollY"
#: The words of moments that come onto the page: none is in another zone than the reader's, not even for a blink.
MOMENTS = """() => {
    window.moments = new Set();
    new MutationObserver(() => {
        for (const one of document.querySelectorAll("#turn time")) moments.add(one.textContent);
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
#: Notes where the tabs are after each change of the page.
WATCHED = f"""() => {{
    window.tops = new Set();
    const look = () => tops.add(({TOP_OF_TABS})());
    new MutationObserver(look).observe(document.body, {{ subtree: true, childList: true, attributes: true }});
    look();
}}"""
WAITS = asks_for(("wait_here", {"word": "a"}))


def looking_up(steps: int) -> Line:
    words = iter(range(steps - 1))

    def say(_: ModelRequest) -> ModelResponse | str:
        number = next(words, None)
        return "It is **not** there." if number is None else asks_for(("look_up", {"word": f"word-{number}"}))

    return say


@pytest.fixture(scope="module")
def long(stage: Stage) -> str:
    """A turn of 23 steps."""
    return stage.play(looking_up(23), repeat=True)


def test_turn_of_23_steps_fits_on_two_screens(page: Page, stage: Stage, long: str) -> None:
    page.goto(stage.url(long))
    box = page.locator("#lines").bounding_box()
    assert box is not None
    assert box["height"] < 2 * DESKTOP["height"]
    expect(page.locator(".call")).to_have_count(22)


def test_call_row_opens_to_the_full_call(page: Page, stage: Stage, long: str) -> None:
    page.goto(stage.url(long))
    call = page.locator(".call").first
    expect(call.locator("summary")).to_have_text(
        re.compile(r'look_up\(word="word-0"\)\s*→ word-0: <script>.*nothing found\s*\d+ ms')
    )
    expect(call.get_by_role("group", name="Result of look_up")).to_be_hidden()
    call.locator("summary").click()
    expect(call.get_by_role("group", name="Arguments of look_up")).to_have_text('{\n  "word": "word-0"\n}')
    expect(call.get_by_role("group", name="Result of look_up")).to_be_visible()


def test_chosen_step_is_scrolled_to(page: Page, stage: Stage, long: str) -> None:
    page.goto(stage.url(long))
    assert page.evaluate("scrollY") == 0
    last = page.locator(".line[data-step='21']")
    expect(last).not_to_be_in_viewport()
    page.locator("#step-21 a").click()
    expect(last).to_be_in_viewport()
    expect(last).to_have_class(re.compile("chosen"))
    page.keyboard.press("Home")
    expect(page.locator(".line[data-step='1']").first).to_be_in_viewport()
    page.goto(stage.url(long, "?step=20"))
    expect(page.locator(".line[data-step='20']")).to_be_in_viewport()


def test_rendered_markdown_can_be_read_as_raw_text(page: Page, stage: Stage, long: str) -> None:
    page.goto(stage.url(long))
    answer = page.get_by_role("region", name="Answer")
    expect(answer.locator("strong")).to_have_text("not")
    page.get_by_role("link", name="Raw text").click()
    expect(page.locator(".line").last).to_contain_text("It is **not** there.")
    expect(page).to_have_url(re.compile("raw=1"))
    page.get_by_role("link", name="Formatted").click()
    expect(page.locator(".line").last.locator("strong")).to_have_text("not")


def test_json_folds_and_is_copied_whole(page: Page, stage: Stage) -> None:
    turn = stage.play('{"found": {"a": [1, 2, 3, 4, 5, 6]}, "of": 7}')
    page.goto(stage.url(turn))
    answer = page.get_by_role("region", name="Answer")
    expect(answer).to_contain_text("6")
    answer.locator(".json > summary").first.click()
    expect(answer.locator(".json").nth(1)).to_be_hidden()
    copied = answer.locator("pre").evaluate("pre => JSON.parse(pre.textContent)")
    assert copied == {"found": {"a": [1, 2, 3, 4, 5, 6]}, "of": 7}


def test_picture_thumbnail_opens_the_picture(page: Page, stage: Stage) -> None:
    turn = stage.play("A dot.", files=[FilePart.of(PNG, "image/png", "dot.png")])
    page.goto(stage.url(turn))
    thumb = page.get_by_role("link", name="dot.png")
    assert thumb.locator("img").evaluate("img => img.decode().then(() => img.naturalWidth)") == 1
    thumb.click()
    dialog = page.get_by_role("dialog", name="dot.png")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(thumb).to_be_focused()
    expect(page).to_have_url(stage.url(turn))


def test_call_and_sub_agent_turn_link_to_each_other(page: Page, stage: Stage) -> None:
    turn = stage.play(asks_for(("helper", {"prompt": "Help."})), "I helped.", "Done.")
    page.goto(stage.url(turn))
    call = page.locator(".call")
    call.locator("summary").click()
    call.get_by_role("link", name="Helper").click()
    expect(page.locator("#turn")).to_have_attribute("data-turn", f"{turn}:call00001")
    page.get_by_role("link", name="its call").click()
    expect(page.locator("#turn")).to_have_attribute("data-turn", turn)
    expect(page.locator("#call-call00001")).to_have_attribute("open", "")
    expect(page.locator("#steps [aria-current] .step-title")).to_have_text("Step 1")


def test_live_transcript_does_not_move_the_content_above(page: Page, stage: Stage) -> None:
    lines = [asks_for(("wait_here", {"word": word}), ("helper", {"prompt": word})) for word in "abc"]
    with stage.playing(*[text for line in lines for text in (line, "I helped.")], "Done.", steps=40) as turn:
        page.goto(stage.url(turn))
        expect(page.locator("#stop-title")).to_have_text("Running tools")
        page.evaluate(WATCHED)
        page.evaluate(MOMENTS)
        for step in range(2, 4):
            stage.gate.let_one_through(stage.portal)
            expect(page.locator(f"#step-{step}")).to_be_visible()
        expect(page.locator(".children")).to_be_visible()
        assert page.evaluate("tops.size") == 1
        assert not page.evaluate("[...moments].filter((words) => words.includes('UTC'))")


def test_streamed_text_stays_at_the_end_until_the_page_updates(page: Page, stage: Stage) -> None:
    page.add_init_script(FAKE_EVENTS)
    with stage.playing(WAITS, WAITS, "It is done.") as turn:
        page.goto(stage.url(turn))
        expect(page.locator("#writing")).to_be_hidden()
        top = page.evaluate(TOP_OF_TABS)
        for text in ("First ", "I think."):
            page.evaluate("text => stream.emit('piece', { kind: 'text', index: 0, text })", text)
        expect(page.locator("#lines > :last-child")).to_contain_text("First I think.")
        assert page.evaluate(TOP_OF_TABS) == top
        routes: list[Route] = []
        page.route(re.compile(rf"/turns/{turn}$"), lambda route: routes.append(route))  # noqa: PLW0108 (Playwright marks what it is given)
        page.evaluate("stream.emit('grown', { seq: 7 })")
        while not routes:
            page.wait_for_timeout(20)
        expect(page.locator("#writing")).to_contain_text("First I think.")
        routes[0].continue_()
        expect(page.locator("#writing")).to_be_hidden()


def test_live_transcript_follows_the_end_and_a_pill_leads_back(page: Page, stage: Stage) -> None:
    page.add_init_script(FAKE_EVENTS)
    grow = "stream.emit('piece', { kind: 'text', index: 0, text: '\\nAnother line.'.repeat(20) })"
    at_end = "document.querySelector('#lines').getBoundingClientRect().bottom <= innerHeight"
    with stage.playing(WAITS, "It is done.") as turn:
        page.goto(stage.url(turn))
        pill = page.get_by_role("button", name="New")
        expect(page.locator(".call")).to_be_visible()
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        for _ in range(4):
            page.evaluate(grow)
            assert page.evaluate(at_end)
        expect(pill).to_be_hidden()
        page.evaluate("scrollBy(0, -600)")
        before = page.evaluate("scrollY")
        page.evaluate(grow)
        expect(pill).to_be_visible()
        assert page.evaluate("scrollY") == before
        pill.click()
        expect(pill).to_be_hidden()
        assert page.evaluate(at_end)
        page.evaluate(grow)
        assert page.evaluate(at_end)
    page.evaluate("stream.emit('ended', { seq: 99 })")
    expect(page.locator("#stop-title")).to_have_text(DONE)
    expect(page.locator("#writing")).to_have_count(0)
