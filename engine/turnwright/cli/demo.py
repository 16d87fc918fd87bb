"""`turnwright demo`: four turns on a scripted model that could have gone wrong, explained as they run."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Literal

import anyio
import typer

from turnwright.agent import Agent
from turnwright.journal.questions import words
from turnwright.journal.result import TurnResult
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.runtime.engine import Engine
from turnwright.store import SqliteStore
from turnwright.tools import tool

from .demo_child import CHILD, crash_script, crash_tools, delete_file, keeps_looking_up, second_call
from .display import PlainDisplay
from .options import PORT, PortOption
from .packages import import_part
from .process import echo
from .screen import print_lines
from .show import journal_lines
from .stores import Journal, use_store
from .summary import closing_lines, final_text


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: nothing found"


def demo(
    what: Annotated[
        Literal["turns", "audit"],
        typer.Argument(metavar="WHAT", help="`audit` audits a small set of recorded runs instead."),
    ] = "turns",
    *,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve pages with turns of every kind, one of them running, until Ctrl-C.")
    ] = False,
    port: PortOption = PORT,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --serve or `audit`: print one JSON object per line.")
    ] = False,
) -> None:
    """Show four turns that could have gone wrong. Needs no key.

    A model that never stops, a model in a loop, a call that needs approval, and a killed process. With --serve the
    inspector shows these turns and more, from a temporary store, and you can answer, steer, stop and fork them.
    """
    if what == "audit":
        _audit(as_json=as_json)
        return
    if serve:
        part = import_part("turnwright_inspector.cli.demo", "turnwright demo --serve")
        part.serve_demo(port, as_json=as_json)
        return
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="turnwright-demo-") as folder:
        for number, scene in enumerate((_cap, _doom_loop, _pause, _crash), start=1):
            title, *story = scene.__doc__.strip().splitlines() if scene.__doc__ else [""]
            print_lines(["", "=" * 78, f"{number}. {title}", ""])
            print_lines([*(f"   {line.strip()}" for line in story if line.strip()), ""], hang=3)
            scene(Path(folder))
    print_lines(["", "=" * 78, f"Four turns ended clearly, in {time.monotonic() - started_at:.0f} s."])
    print_lines(["The models were scripts. Everything else was real."])


def _audit(*, as_json: bool) -> None:
    part = import_part("turnwright_audit.cli.audit", "turnwright demo audit")
    if not as_json:
        print_lines(["Runs of our own, made by scripted models and labeled. The command was:"])
        print_lines([f"  turnwright audit {part.DEMO_RUNS}", ""])
    part.audit([str(part.DEMO_RUNS)], as_json=as_json)


def _cap(folder: Path) -> None:
    """A model that never stops reaches the step limit.

    The agent may take 3 steps. The model asks for another word in each step, and would never stop.
    After the third step the model is called once more, without tools, to summarize its work.
    """
    words = iter(("alpha", "beta", "gamma", "delta"))

    def next_word(request: ModelRequest) -> ModelResponse | str:
        if request.tool_choice == "none":
            return "I looked up alpha, beta and gamma. None was found; delta is left."
        return asks_for(("look_up", {"word": next(words)}))

    _play(folder, ScriptedModel(next_word, repeat=True), Agent(name="Searcher", steps=3), "Find the word.")


def _doom_loop(folder: Path) -> None:
    """A model that repeats itself is stopped long before the step limit.

    It makes the same call with the same arguments in three rounds: a doom loop.
    """
    _play(folder, ScriptedModel(keeps_looking_up("alpha"), repeat=True), Agent(name="Searcher"), "Find the word alpha.")


def _pause(folder: Path) -> None:
    """A call that needs approval pauses the turn until a person answers.

    The paused turn is in the journal: another process could answer it tomorrow.
    """
    script = ScriptedModel(asks_for(("delete_file", {"path": "old.log"})), "old.log is gone.")
    display = PlainDisplay()

    async def play() -> TurnResult:
        engine = Engine(
            model=script, tools=[delete_file], store=SqliteStore(folder / "demo.db"), on_event=[display.show]
        )
        async with engine:
            pause = await engine.run(Agent(name="Cleaner"), "Delete old.log.")
            echo("\n   ... the turn is paused; nothing runs. A person is asked:\n")
            print_lines(f"   {line}" for interrupt in pause.interrupts for line in words(interrupt).split("\n"))
            echo("\n   ... and approves:\n")
            return await engine.resume(pause.id, {interrupt.id: "yes" for interrupt in pause.interrupts})

    _close(anyio.run(play), display.view.printed_text)


def _crash(folder: Path) -> None:
    """A process is killed with kill -9 during a tool call, and another process resumes the turn.

    The first call had a result: it is not run again. The second call had started: its tool is idempotent, so it
    is run again with the same idempotency key. Each execution appends a line to a file.
    """
    database, witness = folder / "crash.db", folder / "witness.txt"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(database), str(witness)])  # noqa: S603 (ourselves)
    try:
        turn = anyio.run(_second_call, database)
        text = f"child process {child.pid} drives turn {turn}; its second call is running. kill -9 {child.pid}"
        print_lines([f"   {text}", ""], hang=3)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    died_after = len(_journal(database, turn))

    async def resume_it() -> TurnResult:
        async with Engine(model=crash_script(), tools=crash_tools(witness), store=SqliteStore(database)) as engine:
            return (await engine.recover())[0]

    result = anyio.run(resume_it)
    echo("   the journal, and where the process died:\n")
    for seq, line in enumerate(journal_lines(_journal(database, turn)), start=1):
        print_lines([f"   {line}"], hang=40)
        if seq == died_after:
            echo("     --  kill -9; another process resumes the turn")
    _close(result)
    echo("\n   executions, by the file:")
    for line in witness.read_text(encoding="utf-8").splitlines():
        print_lines([f"     {line}"])


def _journal(database: Path, turn: str) -> Journal:
    return use_store(f"sqlite:///{database}", lambda store: store.facts(turn))


async def _second_call(database: Path) -> str:
    async with aclosing(SqliteStore(database)) as store:
        return await second_call(store)


def _play(folder: Path, model: ScriptedModel, agent: Agent, prompt: str) -> None:
    display = PlainDisplay()

    async def play() -> TurnResult:
        store = SqliteStore(folder / "demo.db")
        async with Engine(model=model, tools=[look_up], store=store, on_event=[display.show]) as engine:
            return await engine.run(agent, prompt)

    _close(anyio.run(play), display.view.printed_text)


def _close(result: TurnResult, shown_text: str = "") -> None:
    text = final_text(result, shown_text)
    print_lines(["", *([text, ""] if text else []), *closing_lines(result, hints=False, verbose=True)])
