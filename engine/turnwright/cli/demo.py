"""`turnwright demo`: four turns that could have gone wrong, on a scripted model, explained as they happen."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from turnwright.agent import Agent
from turnwright.engine import Engine
from turnwright.journal.questions import words
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.result import TurnResult
from turnwright.store import SqliteStore
from turnwright.tools import tool
from turnwright_states.facts import Fact

from .demo_child import CHILD, crash_script, crash_tools, delete_file, keeps_looking_up, second_call
from .display import PlainDisplay
from .process import echo
from .screen import print_lines
from .server_options import LOOPBACK, PORT, PortOption, ServerOptions, need_extra
from .show import journal_lines
from .summary import closing_lines


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: nothing found"


def demo(
    *,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show turns of every kind as pages, and one that goes on, until Ctrl-C.")
    ] = False,
    port: PortOption = PORT,
    as_json: Annotated[bool, typer.Option("--json", help="With --serve: print one JSON object a line.")] = False,
) -> None:
    """Show a cap, a doom loop, a pause, and a kill -9 with its recovery; no key and no model needed.

    With --serve the pages of `turnwright serve` show these and more, in a store that is gone afterwards. They can be
    answered, steered, stopped and forked there.
    """
    if serve:
        _serve(ServerOptions.of(LOOPBACK, port, None), as_json=as_json)
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="turnwright-demo-") as folder:
        for number, scene in enumerate((_cap, _doom_loop, _pause, _crash), start=1):
            title, *story = scene.__doc__.strip().splitlines() if scene.__doc__ else [""]
            print_lines(["", "=" * 78, f"{number}. {title}", ""])
            print_lines([*(f"   {line.strip()}" for line in story if line.strip()), ""], hang=3)
            scene(Path(folder))
    print_lines(["", "=" * 78, f"Four turns, four clear endings, in {time.monotonic() - began:.0f} s."])
    print_lines(["No model was asked: each said what a script told it to, and everything else was real."])


def _serve(place: ServerOptions, *, as_json: bool) -> None:
    need_extra()
    from .demo_turns import demo_engine, play_turns  # noqa: PLC0415 (the other demo has turns of its own)
    from .serving import serve_pages  # noqa: PLC0415 (an extra)

    with tempfile.TemporaryDirectory(prefix="turnwright-demo-") as folder:
        serve_pages(
            demo_engine(Path(folder)),
            place,
            store="",
            drives=True,
            as_json=as_json,
            words="open it in a browser: demo turns, on a model that says what a script tells it; Ctrl-C stops it",
            task=partial(play_turns, Path(folder)),
        )


def _cap(folder: Path) -> None:
    """A model that never stops asking meets the step cap.

    The agent may take 3 steps. The model asks for another word each time, and would go on for ever.
    After the third step it is called once more, with its tools disabled, to say what it did.
    """
    words = iter(("alpha", "beta", "gamma", "delta"))

    def next_word(request: ModelRequest) -> ModelResponse | str:
        if request.tool_choice == "none":
            return "I looked up alpha, beta and gamma. None was found; delta is left."
        return asks_for(("look_up", {"word": next(words)}))

    _play(folder, ScriptedModel(next_word, repeat=True), Agent(name="Searcher", steps=3), "Find the word.")


def _doom_loop(folder: Path) -> None:
    """A model that repeats itself is stopped long before the cap.

    The same call with the same arguments, three rounds in a row: nothing new can come of it.
    """
    _play(folder, ScriptedModel(keeps_looking_up("alpha"), repeat=True), Agent(name="Searcher"), "Find the word alpha.")


def _pause(folder: Path) -> None:
    """A call that needs a person pauses the turn; it goes on when she has answered.

    The turn rests in the journal: it could be answered tomorrow, by another process.
    """
    script = ScriptedModel(asks_for(("delete_file", {"path": "old.log"})), "old.log is gone.")
    display = PlainDisplay()

    async def play() -> TurnResult:
        engine = Engine(
            model=script, tools=[delete_file], store=SqliteStore(folder / "demo.db"), on_event=[display.hear]
        )
        async with engine:
            paused = await engine.run(Agent(name="Cleaner"), "Delete old.log.")
            echo("\n   ... the turn rests; nothing runs. A person is asked:\n")
            print_lines(f"   {line}" for one in paused.interrupts for line in words(one).split("\n"))
            echo("\n   ... and says yes:\n")
            return await engine.resume(paused.id, {one.id: "yes" for one in paused.interrupts})

    _close(anyio.run(play), display.view.said)


def _crash(folder: Path) -> None:
    """A process is killed with kill -9 in the middle of a tool call, and another takes the turn up.

    The first call had its result: it never runs again. The second had started: its tool says that it may be
    rerun, with the same idempotency key. Each execution is appended to a file, which is the witness.
    """
    database, witness = folder / "crash.db", folder / "witness.txt"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(database), str(witness)])  # noqa: S603 (ourselves)
    try:
        turn = anyio.run(_second_call, database)
        killed = f"child process {child.pid} drives turn {turn}; its second call is running. kill -9 {child.pid}"
        print_lines([f"   {killed}", ""], hang=3)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    died_after = len(anyio.run(_journal, database, turn))

    async def take_up() -> TurnResult:
        async with Engine(model=crash_script(), tools=crash_tools(witness), store=SqliteStore(database)) as engine:
            return (await engine.recover())[0]

    result = anyio.run(take_up)
    echo("   the journal, and where the process died:\n")
    for seq, line in enumerate(journal_lines(anyio.run(_journal, database, turn)), start=1):
        print_lines([f"   {line}"], hang=40)
        if seq == died_after:
            echo("     --  kill -9; another process takes the turn up")
    _close(result)
    echo("\n   executions, by the witness:")
    for line in witness.read_text(encoding="utf-8").splitlines():
        print_lines([f"     {line}"])


async def _journal(database: Path, turn: str) -> list[tuple[int, Fact]]:
    store = SqliteStore(database)
    try:
        return await store.facts(turn)
    finally:
        await store.aclose()


async def _second_call(database: Path) -> str:
    store = SqliteStore(database)
    try:
        return await second_call(store)
    finally:
        await store.aclose()


def _play(folder: Path, model: ScriptedModel, agent: Agent, prompt: str) -> None:
    display = PlainDisplay()

    async def play() -> TurnResult:
        store = SqliteStore(folder / "demo.db")
        async with Engine(model=model, tools=[look_up], store=store, on_event=[display.hear]) as engine:
            return await engine.run(agent, prompt)

    _close(anyio.run(play), display.view.said)


def _close(result: TurnResult, said: str = "") -> None:
    echo()
    print_lines(closing_lines(result, said=said, hints=False))
