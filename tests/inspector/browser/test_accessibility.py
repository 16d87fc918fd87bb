"""Everybody can use the pages: axe-core finds nothing on any of them, by any of its rules."""

from collections.abc import Sequence
from itertools import chain
from typing import Final, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it ships no types
from playwright.sync_api import Browser, Page, ViewportSize, expect

from turnwright import Engine
from turnwright.model import asks_for
from turnwright.store import MemoryStore
from turnwright_inspector import inspector_app
from turnwright_inspector.tabs import TABS

from .stage import DESKTOP, PHONE, Stage, searching, visiting

#: How a page is looked at: in each size and in light and dark, once. Pages take turns with the pairs of these, so
#: that what pages share, their frame and their colors, is seen in all four.
Looks = Sequence[tuple[ViewportSize, Literal["light", "dark"]]]
LOOKS: Final[Sequence[Looks]] = (((PHONE, "light"), (DESKTOP, "dark")), ((PHONE, "dark"), (DESKTOP, "light")))


@pytest.fixture(scope="module")
def turns(stage: Stage) -> dict[str, str]:
    """Turns of each kind that looks different."""
    trusted = stage.play(asks_for(("delete_file", {"path": "a"})), session="trusted")
    stage.answered_elsewhere(trusted, "approval-1", "Done.", always=True)
    mixed = asks_for(("look_up", {"word": "a"}), ("broken", {"word": "b"}), ("helper", {"prompt": "Help."}))
    return {
        "capped": stage.play(searching(), repeat=True, steps=3),
        "mixed": stage.play(mixed, "I helped.", asks_for(("wide", {"word": "W"})), "Done.", session="talk"),
        "asking": stage.play(asks_for(("delete_file", {"path": "a"}), ("delete_file", {"path": "b"}))),
        "paused": stage.play(asks_for(("delete_file", {"path": "a"}), ("look_up", {"word": "b"}))),
        "doomed": stage.play(asks_for(("look_up", {"word": "a"})), repeat=True),
        "failed": stage.play(asks_for(("look_up", {"word": "a"}))),
    }


def violations(page: Page) -> list[str]:
    """Return the violations on the page as it is shown."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    report = page.evaluate("options => axe.run(document, options)", {"resultTypes": ["violations"]})
    return [
        f"{page.url}: {violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in report["violations"]
        for node in violation["nodes"]
    ]


def violations_by_look(page: Page, number: int) -> dict[str, list[str]]:
    """Return the violations on a page in its looks, which depend on its number."""
    faults = {}
    for size, scheme in LOOKS[number % 2]:
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        faults[f"{size['width']} {scheme}"] = violations(page)
    return {look: lines for look, lines in faults.items() if lines}


def test_turn_page_with_each_tab_is_accessible(page: Page, stage: Stage, turns: dict[str, str]) -> None:
    for number, tab in enumerate(TABS):
        page.goto(stage.url(turns["mixed"], f"?tab={tab}&step=1"))
        assert violations_by_look(page, number) == {}


def test_fully_unfolded_transcript_is_accessible(page: Page, stage: Stage) -> None:
    """Calls, Markdown with code, a table and a list, and JSON."""
    text = "# It\n\n- **a** [b](https://a.example)\n\n| a | b |\n|-|-|\n| 1 | 2 |\n\n```python\nx = 'a' # b\n```\n\n> c"
    calls = asks_for(("look_up", {"word": "a", "in": [1, 2, 3, 4, 5]}), ("broken", {"word": "b"}), text=text)
    turn = stage.play(calls, '{"a": {"b": [1, 2, 3, 4, 5], "c": true}}', prompt=text)
    page.goto(stage.url(turn))
    page.evaluate("for (const one of document.querySelectorAll('#turn details')) one.open = true")
    assert violations_by_look(page, 0) == {}


def test_turns_of_each_kind_are_accessible(page: Page, stage: Stage, turns: dict[str, str]) -> None:
    for number, turn in enumerate(turns.values()):
        page.goto(stage.url(turn, "?tab=budgets"))
        assert violations_by_look(page, number) == {}
    page.goto(stage.url(turns["capped"], "?tab=budgets&at=5"))
    assert violations_by_look(page, 0) == {}
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations_by_look(page, 1) == {}


#: The addresses of each page, by the name of its route; those that are nowhere have none.
PAGES: Final = {
    "turns": ("/", "/?q=nothing-like-this", "/?sort=tokens&since=2026-01-01"),
    "needs-you": ("/needs-you",),
    "agents": ("/agents",),
    "approvals": ("/approvals?session=trusted", "/approvals?session=talk"),
    "outbox": ("/outbox",),
    "sessions": ("/sessions",),
    "session": ("/session?session=talk",),
    "statistics": ("/statistics",),
    "compare": ("/compare?left={mixed}&right={capped}", "/compare?left={mixed}", "/compare"),
    "edit": ("/turns/{mixed}/edit?step=2",),
    "new": ("/new",),
    "turn": ("/turns/{mixed}?tab=chart&state=STREAM", "/turns/{mixed}?tab=chart&chart=full"),
    "": ("/nowhere", "/turns/nobody"),
}
#: What is not a page: files, streams and the scripts of the pages.
NO_PAGES: Final = {"journal", "export", "live", "turn-live", "static", "turn-file", "file", "needs-you-count"}


def test_other_pages_are_accessible(browser: Browser, stage: Stage, turns: dict[str, str]) -> None:
    with visiting(browser, stage, unanswered=True) as page:
        for number, path in enumerate(chain.from_iterable(PAGES.values())):
            page.goto(f"{stage.address}{path.format(**turns)}")
            assert violations_by_look(page, number) == {}


def test_accessibility_tests_cover_every_page() -> None:
    routes = inspector_app(Engine(store=MemoryStore())).routes
    page_names = {
        getattr(route, "name", "") for route in routes if "GET" in (getattr(route, "methods", None) or ("GET",))
    }
    assert page_names - NO_PAGES == PAGES.keys() - {""}


def test_error_messages_are_accessible(browser: Browser, stage: Stage) -> None:
    """Of somebody's action with what was written, and of what the page tried by itself."""
    turn = stage.play(asks_for(("delete_file", {"path": "a"})))
    with visiting(browser, stage, unanswered=True) as page:
        page.goto(stage.url(turn, "?tab=budgets"))
        page.get_by_label("A message for the model").fill("Leave it alone. " * 20)
        stage.answered_elsewhere(turn, "approval-1", asks_for(("delete_file", {"path": "b"})))
        expect(page.get_by_role("region", name="That question is closed.")).to_be_visible()
        expect(page.get_by_role("button", name="Approve")).to_be_enabled()
        assert violations_by_look(page, 0) == {}
        page.get_by_role("button", name="Close").click()
        page.context.set_offline(offline=True)
        stage.answered_elsewhere(turn, "approval-2")
        expect(page.get_by_role("region", name="Not up to date.")).to_be_visible()
        assert violations_by_look(page, 1) == {}
