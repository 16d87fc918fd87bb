"""The turns of `turnwright demo --serve`, one of each kind, with a scripted model and harmless tools."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from msgspec import structs
from pydantic import JsonValue

from turnwright.agent import Agent
from turnwright.cli.demo_child import (
    CHILD,
    PROMPT,
    crash_line,
    crash_tools,
    delete_file,
    keeps_looking_up,
    second_call,
)
from turnwright.driver.subagents import agent_tool
from turnwright.errors import TurnwrightError
from turnwright.model.protocol import Delta, ModelError, ModelRequest, ModelResponse, ResponseToolCall, TextDelta
from turnwright.model.scripted import asks_for
from turnwright.runtime.engine import Engine
from turnwright.store import SqliteStore
from turnwright.tools import Tool, ToolContext, ToolError, builtin_tools, tool
from turnwright_states import Cause, Usage

from .server_options import LOOPBACK, ServerOptions
from .serving import serve_pages

_DATABASE: Final = "turns.db"
_WITNESS: Final = "witness.txt"
#: Seconds between two words of a reply, and between two walks.
_WORD: Final = 0.04
_BREAK: Final = 5.0
#: The most walks.
_WALKS: Final = 100
_PLACES: Final = ("the gate", "the orchard", "the well", "the barn", "the hedge", "the pond", "the bridge", "the mill")

_Script = Callable[[ModelRequest], ModelResponse | str | ModelError]


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    await anyio.sleep(0.05 + 0.03 * len(word))
    return f"{word}: nothing found"


@tool
async def measure(place: str, seconds: float) -> str:
    """Measure how warm a place is."""
    await anyio.sleep(seconds)
    if place == "the cellar":
        raise ToolError("the cellar is locked: the thermometer in it cannot be read")
    return f"{place}: {12 + len(place)} degrees"


@tool
async def walk_to(place: str, context: ToolContext) -> str:
    """Walk to a place, and report the distance."""
    steps = 6
    for step in range(1, steps + 1):
        await anyio.sleep(0.25)
        context.progress(step, steps, f"{steps - step} steps from {place}")
    return f"{place} is in good order"


class DemoModel:
    """Streams the reply of the script for the first message, word by word.

    The first attempt at a forecast fails.
    """

    name = "scripted"

    def __init__(self) -> None:
        self._overloaded = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        prompt = next((message.text for message in request.messages if message.role == "user"), "")
        if prompt == _FORECAST and not self._overloaded:
            self._overloaded = True
            raise ModelError("the model is overloaded; try again later", cause=Cause.OVERLOADED, status=529)
        reply = _SCRIPTS.get(prompt, _answer_anything)(request)
        if isinstance(reply, ModelError):
            raise reply
        reply = ModelResponse(text=reply) if isinstance(reply, str) else reply
        for index, word in enumerate(reply.text.split(" ") if reply.text else ()):
            await anyio.sleep(_WORD)
            yield TextDelta(f" {word}" if index else word)
        usage = Usage(input_tokens=40 * len(request.messages), output_tokens=8 + len(reply.text.split()))
        yield structs.replace(reply, usage=usage)


def _rounds(request: ModelRequest) -> int:
    return sum(message.role == "assistant" for message in request.messages)


_FIND: Final = "Find the unknown word."
_FIND_ALPHA: Final = "Find the word alpha."
_FIND_OMEGA: Final = "Find the word omega, and ask me if you get stuck."
_TIDY: Final = "Delete old.log, and ask me what else may go."
_FORECAST: Final = "How warm is it here and there?"
_COMPARE: Final = "Compare tea and coffee. Ask an expert for each."
_TEA: Final = "What do you know about tea?"
_COFFEE: Final = "What do you know about coffee?"
_PLAN: Final = "Plan a walk. I may send more messages."
_WALK: Final = "Walk around the farm, and check that everything is in order."


def _find(request: ModelRequest) -> ModelResponse | str:
    if request.tool_choice == "none":
        return "I looked up six words and found none. The unknown word is still missing."
    words = ("ablaut", "bezel", "caravel", "dactyl", "ecru", "fathom", "gnomon", "hapax")
    first = 2 * _rounds(request) % len(words)
    return asks_for(*(("look_up", {"word": word}) for word in words[first : first + 2]), text="I will try two more.")


def _tidy(request: ModelRequest) -> ModelResponse | str:
    if _rounds(request):
        return "That is done."
    question: dict[str, JsonValue] = {"question": "What else may go?", "choices": ["old.log.1", "nothing else"]}
    return asks_for(
        ("delete_file", {"path": "old.log"}), ("ask_user_input", question), text="I need your approval and an answer."
    )


def _forecast(request: ModelRequest) -> ModelResponse | str:
    if _rounds(request):
        return "It is 21 degrees in the garden and 23 in the kitchen. I could not measure the cellar: it is locked."
    places = (("the garden", 0.7), ("the kitchen", 0.3), ("the cellar", 0.5), ("the attic", 0.9))
    return asks_for(*(ResponseToolCall("measure", {"place": place, "seconds": seconds}) for place, seconds in places))


def _compare(request: ModelRequest) -> ModelResponse | str:
    if _rounds(request):
        return "Tea is calmer and coffee is faster. Choose coffee if you must wake up quickly."
    return asks_for(("expert", {"prompt": _TEA}), ("expert", {"prompt": _COFFEE}), text="I will ask two experts.")


def _expert(word: str) -> _Script:
    def script(request: ModelRequest) -> ModelResponse | str:
        if _rounds(request):
            return f"{word.capitalize()} is best when it is hot."
        return asks_for(("look_up", {"word": word}))

    return script


def _plan(request: ModelRequest) -> ModelResponse | str:
    messages = [message.text for message in request.messages if message.role == "user"][1:]
    if messages and _rounds(request) > 1:
        return f"The plan: out by the gate, back by the mill. Your message: {messages[-1]}"
    return asks_for(("measure", {"place": _PLACES[_rounds(request) % len(_PLACES)], "seconds": 0.4}))


def _walk(request: ModelRequest) -> ModelResponse | str:
    if request.tool_choice == "none" or _rounds(request) >= 3 * len(_PLACES):
        return "I walked around the whole farm. Everything is in order."
    place = _PLACES[_rounds(request) % len(_PLACES)]
    texts = [message.text for message in request.messages if message.role == "user"][1:]
    reply = f" You said: {texts[-1]}" if texts else ""
    text = f"I walk to {place}, slowly, so that you can watch the page.{reply}"
    return asks_for(ResponseToolCall("walk_to", {"place": place}), text=text)


def _answer_anything(_: ModelRequest) -> str:
    return "This is a demo. It has no reply to that message."


_SCRIPTS: Final[dict[str, _Script]] = {
    _FIND: _find,
    _FIND_ALPHA: keeps_looking_up("alpha"),
    _FIND_OMEGA: keeps_looking_up("omega"),
    _TIDY: _tidy,
    _FORECAST: _forecast,
    _COMPARE: _compare,
    _TEA: _expert("tea"),
    _COFFEE: _expert("coffee"),
    _PLAN: _plan,
    _WALK: _walk,
    PROMPT: crash_line,
}

_EXPERT: Final = Agent(name="Expert", description="Knows one subject well.", instructions="You know one subject well.")


def serve_demo(port: int, *, as_json: bool) -> None:
    """Serve the pages of the demo's turns, in a store that lasts as long as this process."""
    with tempfile.TemporaryDirectory(prefix="turnwright-demo-") as folder:
        serve_pages(
            _demo_engine(Path(folder)),
            ServerOptions.of(LOOPBACK, port, None),
            store="",
            drives=True,
            as_json=as_json,
            words="open it in a browser: demo turns with a scripted model; Ctrl-C stops it",
            task=partial(_play_turns, Path(folder)),
        )


def _demo_engine(folder: Path) -> Engine:
    """Return an engine that can drive every turn of the demo, on a store in that folder."""
    asks = [tool for tool in builtin_tools(folder) if tool.name == "ask_user_input"]
    tools: list[Tool] = [look_up, measure, delete_file, walk_to, *asks, *crash_tools(folder / _WITNESS)]
    expert = agent_tool(_EXPERT, name="expert")
    return Engine(model=DemoModel(), tools=[*tools, expert], store=SqliteStore(folder / _DATABASE))


async def _play_turns(folder: Path, engine: Engine) -> None:
    """Run the turns of the demo, and one slow walk after another, until canceled."""
    async with anyio.create_task_group() as turns:
        for agent, prompt in (
            (Agent(name="Searcher", steps=3), _FIND),
            (Agent(name="Searcher"), _FIND_ALPHA),
            (Agent(name="Careful", doom_response="ask"), _FIND_OMEGA),
            (Agent(name="Cleaner"), _TIDY),
            (Agent(name="Forecaster"), _FORECAST),
            (Agent(name="Comparer"), _COMPARE),
        ):
            turns.start_soon(engine.run, agent, prompt)
        turns.start_soon(_run_plan, engine)
        turns.start_soon(_run_crash, folder, engine)
        turns.start_soon(_walks, engine)


async def _run_plan(engine: Engine) -> None:
    async with engine.stream(Agent(name="Planner"), _PLAN) as events:
        async for event in events:
            if event.type == "call_started" and event.seq < 8:  # noqa: PLR2004 (in its first step)
                with suppress(TurnwrightError):  # a person stopped it on the page
                    await engine.steer(event.turn, "It will rain: take the short path.")


async def _run_crash(folder: Path, engine: Engine) -> None:
    command = [sys.executable, "-c", CHILD, str(folder / _DATABASE), str(folder / _WITNESS)]
    child = await anyio.open_process(command, stdin=subprocess.DEVNULL, stdout=None, stderr=None)
    try:
        turn = await second_call(engine.store)
    finally:
        with anyio.CancelScope(shield=True):
            os.kill(child.pid, signal.SIGKILL)
            await child.wait()
    with suppress(TurnwrightError):  # a person resumed or stopped it on the page
        await engine.resume(turn)


async def _walks(engine: Engine) -> None:
    """Run walks, so that a turn is always running. A person may stop one."""
    for _ in range(_WALKS):
        try:
            await engine.run(Agent(name="Walker", steps=40), _WALK)
        except TurnwrightError:
            return
        await anyio.sleep(_BREAK)
