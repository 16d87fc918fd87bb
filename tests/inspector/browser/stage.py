"""A real browser at pages that are really served, and engines that play turns for them."""

import re
import shutil
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import uvicorn
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, ViewportSize

from turnwright import Agent, Engine, tool
from turnwright.driver.subagents import agent_tool
from turnwright.journal.answers import Answer
from turnwright.journal.result import TurnResult
from turnwright.message import FilePart
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import Line
from turnwright.tools import Tool, ToolContext
from turnwright_inspector import Token, inspector_app
from turnwright_inspector.views.run_library import RunLibrary
from turnwright_states import Decision

TOKEN: Final = "a-token-that-nobody-guesses"  # noqa: S105 (a test's)
#: Without windows Chromium takes a third of the time.
BROWSERS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM: Final = next(filter(None, map(shutil.which, BROWSERS)), "")
DESKTOP: Final = ViewportSize(width=1280, height=900)
PHONE: Final = ViewportSize(width=390, height=844)
#: The title of a turn that finished.
DONE: Final = re.compile(r"^Done in \d+ steps?")
#: What htmx says of a request that the next click replaced, as `hx-sync` asks. A request that failed says more.
REPLACED: Final = ("htmx:afterRequest", "htmx:sendAbort")
#: What a browser and htmx say of a request that failed.
UNANSWERED: Final = ("Failed to load resource", "htmx:sendError")


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: <script>document.title = 'owned'</script> nothing found"


@tool
async def broken(word: str) -> str:
    """Fail."""
    raise ValueError(f"{word}: the disk is full")


@tool
async def wide(word: str) -> str:
    """Answer with one long word."""
    return word * 3000


@tool(needs_approval=True)
async def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is deleted"


def searching(*, calls: int = 1) -> Line:
    """A model that looks up other words for ever."""
    words = iter(f"word-{number}" for number in range(10_000))

    def say(request: ModelRequest) -> ModelResponse | str:
        if request.tool_choice == "none":
            return "Nothing was found."
        return asks_for(*[("look_up", {"word": next(words)}) for _ in range(calls)])

    return say


class Gate:
    """A tool whose calls wait until they are released."""

    def __init__(self) -> None:
        self._passes = 0
        self._changed = anyio.Event()

    def tool(self) -> Tool:
        """The tool."""

        @tool
        async def wait_here(word: str) -> str:
            """Wait until somebody opens the gate."""
            while not self._passes:
                await self._changed.wait()
            self._passes -= 1
            return f"{word}: let through"

        return wait_here

    def slow_tool(self) -> Tool:
        """A tool that a person must allow, and that says how far it is until the gate is open."""

        @tool(needs_approval=True)
        async def copy_files(count: int, context: ToolContext) -> str:
            """Copy files."""
            while not self._passes:
                context.progress(2, total=count, message=f"2 of {count} copied")
                with anyio.move_on_after(0.05):
                    await self._changed.wait()
            self._passes -= 1
            return "copied"

        return copy_files

    def let_one_through(self, portal: BlockingPortal) -> None:
        """Let one call go on."""
        portal.call(self._open, 1)

    def open_all(self, portal: BlockingPortal) -> None:
        """Let every call go on."""
        portal.call(self._open, 1000)

    def close(self, portal: BlockingPortal) -> None:
        """Let no more calls go on."""
        portal.call(self._open, -self._passes)

    async def _open(self, passes: int) -> None:
        self._passes += passes
        self._changed.set()
        self._changed = anyio.Event()


@dataclass
class Stage:
    """Pages at `address`, of the store in `file`."""

    address: str
    file: Path
    portal: BlockingPortal
    gate: Gate = field(default_factory=Gate)

    def engine(self, *lines: Line, repeat: bool = False) -> Engine:
        """An engine whose model says these lines."""
        helper = agent_tool(
            Agent(name="Helper", description="Helps", mode="subagent"), name="helper", description="Helps"
        )
        tools: list[Tool] = [look_up, broken, wide, delete_file, self.gate.tool(), self.gate.slow_tool(), helper]
        return Engine(
            model=ScriptedModel(*lines, repeat=repeat), tools=tools, store=f"sqlite:///{self.file}", poll_interval=0.02
        )

    def play(
        self,
        *lines: Line,
        repeat: bool = False,
        prompt: str = "Find the word.",
        files: Sequence[FilePart] = (),
        session: str | None = None,
        **agent: object,
    ) -> str:
        """Run a turn to its end or to a pause. Returns its id."""
        searcher = Agent.model_validate({"name": "Searcher"} | agent)

        async def run() -> TurnResult:
            async with self.engine(*lines, repeat=repeat) as engine:
                return await engine.run(searcher, prompt, files=files, session=session)

        return self.portal.call(run).id

    @contextmanager
    def playing(self, *lines: Line, **agent: object) -> Iterator[str]:
        """A turn that is driven by somebody else while the block runs, up to a call of `wait_here`. Gives its id."""
        searcher = Agent.model_validate({"name": "Searcher"} | agent)
        begun: list[str] = []
        is_streaming = self.portal.call(anyio.Event)

        async def run() -> None:
            async with self.engine(*lines) as engine, engine.stream(searcher, "Find the word.") as events:
                async for event in events:
                    begun.append(event.turn)
                    is_streaming.set()

        done = self.portal.start_task_soon(run)
        self.portal.call(is_streaming.wait)
        try:
            yield begun[0]
        finally:
            self.gate.open_all(self.portal)
            done.result(timeout=100)
            self.gate.close(self.portal)

    def answered_elsewhere(self, turn: str, interrupt: str, *lines: Line, always: bool = False) -> None:
        """Grant what is asked, from elsewhere; with lines for its model the turn is also driven on by them."""

        async def answer() -> None:
            async with self.engine(*lines) as engine:
                await engine.answer(turn, {interrupt: Answer(Decision.APPROVE, always=always)})
                if lines:
                    await engine.resume(turn)

        self.portal.call(answer)

    def asked(self, turn: str) -> list[str]:
        """Return the ids of the turn's unanswered interrupts."""

        async def look() -> list[str]:
            async with self.engine() as engine:
                answered = {item.id for item in await engine.store.inbox(turn)}
                return [
                    interrupt.id
                    for interrupt in (await engine.get(turn)).interrupts
                    if f"answer:{interrupt.id}" not in answered
                ]

        return self.portal.call(look)

    def delete(self, turn: str) -> None:
        """Delete a turn."""

        async def delete() -> None:
            async with self.engine() as engine:
                await engine.store.delete(turn)

        self.portal.call(delete)

    def is_its_own(self, url: str) -> bool:
        """Whether a request stays at the stage."""
        return url.startswith((f"{self.address}/", "data:"))

    def url(self, turn: str, query: str = "") -> str:
        """The address of a turn's page."""
        return f"{self.address}/turns/{turn}{query}"


@contextmanager
def serving(file: Path, runs: RunLibrary | None = None) -> Iterator[Stage]:
    """Pages of a store, and of recorded runs, served from a thread while the block runs."""
    with socket.socket() as listening, start_blocking_portal() as portal:
        listening.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        stage = Stage(address, file, portal)
        served = portal.wrap_async_context_manager(_served(stage, listening, runs))
        with served:
            yield stage


@asynccontextmanager
async def _served(stage: Stage, listening: socket.socket, runs: RunLibrary | None) -> AsyncIterator[None]:
    async with stage.engine("Done.", repeat=True) as engine:
        app = inspector_app(engine, access=Token(TOKEN), store="sqlite:///turns.db", drives=True, runs=runs)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
                await anyio.sleep(0.01)
            yield
            server.should_exit = True


@contextmanager
def visiting(
    browser: Browser,
    stage: Stage,
    viewport: ViewportSize = DESKTOP,
    scheme: str = "light",
    *,
    unanswered: bool = False,
) -> Iterator[Page]:
    """An empty page of somebody who was let in.

    At the end it shows something, and nothing went wrong in it: no error, nothing that the policy of the page forbids,
    and no request to another server. Where some are to stay `unanswered`, the browser may say that of requests.
    """
    context: BrowserContext = browser.new_context(
        viewport=viewport, color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce"
    )
    context.set_default_timeout(90_000)  # of a busy machine
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))

    def hear(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith((*REPLACED, *(UNANSWERED if unanswered else ()))):
            wrong.append(message.text)

    page.on("console", hear)
    page.on("request", lambda request: None if stage.is_its_own(request.url) else wrong.append(request.url))
    try:
        context.request.get(f"{stage.address}/?token={TOKEN}", max_redirects=0)  # it shares the cookies with the page
        yield page
        assert page.url != "about:blank", "no page was visited"
        assert not wrong, wrong
    finally:
        context.close()
