"""A browser for all tests here, and a stage for each file of them."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from .stage import CHROMIUM, Stage, serving, visiting

#: It is to be quiet, and to run in a container.
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

    It is gone with the file: as long as it is there, playwright has a loop of asyncio running in this thread, and no
    asynchronous test of another file could run.
    """
    if not CHROMIUM:
        pytest.skip("no Chromium is installed: its executable is looked for as chromium or google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Pages that are served."""
    with serving(tmp_path_factory.mktemp("served") / "turns.db") as stage:
        yield stage


@pytest.fixture
def page(browser: Browser, stage: Stage) -> Iterator[Page]:
    """Somebody at a desk who was let in."""
    with visiting(browser, stage) as page:
        yield page
