"""A browser and a served store for each module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from .stage import BROWSERS, CHROMIUM, Stage, serving, visiting

#: No background traffic, and no sandbox, which containers lack.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The machine's Chromium.

    It is closed after each module. While it is open, Playwright runs an asyncio loop in this thread, and no
    asynchronous test of another module could run.
    """
    if not CHROMIUM:
        pytest.skip(f"no Chromium is installed: its executable is looked for as {', '.join(BROWSERS)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The inspector, served over HTTP."""
    with serving(tmp_path_factory.mktemp("served") / "turns.db") as stage:
        yield stage


@pytest.fixture
def page(browser: Browser, stage: Stage) -> Iterator[Page]:
    """A page of an authorized person, at the size of a desktop."""
    with visiting(browser, stage) as page:
        yield page
