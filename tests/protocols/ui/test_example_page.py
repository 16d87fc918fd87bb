"""The page of `examples/use_chat`, with the real `@ai-sdk/react`, in a browser.

It is built of the packages that `make test-all` puts into the environment, where npm is there.
"""

import json
import runpy
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio.to_thread
import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.inspector.browser.conftest import FLAGS
from tests.inspector.browser.stage import CHROMIUM
from tests.protocols.judge import NODE, NODE_MODULES
from tests.protocols.subject import AGENT, TOOLS, reply

from turnwright import Engine, ToolContext, tool
from turnwright.model import ScriptedModel

EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "use_chat"
make_app = runpy.run_path(str(EXAMPLE / "server.py"))["make_app"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (NODE_MODULES / "@ai-sdk" / "react").is_dir() or not CHROMIUM,
        reason="@ai-sdk/react or Chromium is not there: install npm, then `make test-all` fetches the package",
    ),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page's script, built without a network."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copy(EXAMPLE / "page.jsx", folder)
    (folder / "node_modules").symlink_to(NODE_MODULES)
    words = json.loads((EXAMPLE / "package.json").read_text(encoding="utf-8"))["scripts"]["build"].split()
    esbuild = str(NODE_MODULES / "esbuild" / "bin" / words[0])
    subprocess.run([NODE, esbuild, *words[1:]], cwd=folder, check=True, capture_output=True, timeout=120)
    return folder / "build"


@pytest.fixture
def released() -> threading.Event:
    """Whether the tool `wait` may return."""
    return threading.Event()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests of the page."""
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, built: Path, released: threading.Event) -> Iterator[Page]:
    """The page of a new chat."""

    @tool
    async def wait(context: ToolContext) -> str:
        """Work until it is released."""
        context.progress(1, total=2, message="half way")
        await anyio.to_thread.run_sync(released.wait, abandon_on_cancel=True)
        return "waited"

    tools = [wait, *(own_tool for own_tool in TOOLS if own_tool.name != "wait")]
    engine = Engine(model=ScriptedModel(reply, repeat=True, stream_calls=True), tools=tools)
    with serving(engine, built) as address, browser.new_page() as new_page:
        new_page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        new_page.goto(address)
        yield new_page
        released.set()


@contextmanager
def serving(engine: Engine, built: Path) -> Iterator[str]:
    """Serve the example in a thread, and yield its address."""
    server = uvicorn.Server(uvicorn.Config(make_app(engine, AGENT, built), log_level="error"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(60)


def say(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


def test_approval_is_there_after_a_reload(page: Page) -> None:
    say(page, "approve")
    expect(page.get_by_text('pay({"amount":5}): approval-requested')).to_be_visible()
    page.reload()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Result: paid 5")).to_be_visible()
    page.reload()
    expect(page.get_by_text("Result: paid 5")).to_be_visible()
    expect(page.get_by_text("I pay.")).to_have_count(1)


def test_rejected_call_does_not_run(page: Page) -> None:
    say(page, "approve")
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_text("Result:")).to_be_visible()
    expect(page.get_by_text("paid 5")).to_have_count(0)


def test_running_turn_goes_on_after_a_reload(page: Page, released: threading.Event) -> None:
    say(page, "slow")
    expect(page.get_by_text("wait({}): input-available")).to_be_visible()
    page.reload()
    expect(page.get_by_text("wait({}): input-available")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    released.set()
    expect(page.get_by_text("Result: waited")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def test_stopped_turn_takes_another_message(page: Page) -> None:
    say(page, "slow")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    say(page, "hello")
    expect(page.get_by_text("You said: hello")).to_be_visible()
