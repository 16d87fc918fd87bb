"""`turnwright run`, `resume` and `abort`: drive a turn, with its events on the screen."""

import sys
from pathlib import Path
from typing import Annotated

import anyio
import typer
from pydantic import ValidationError

from turnwright.agent import Agent
from turnwright.answers import Reply, deny, grant
from turnwright.engine import Engine
from turnwright.errors import ConfigError, StoreError, TurnEnded
from turnwright.result import TurnResult
from turnwright.store import Store, open_store
from turnwright_states.facts import Fact, TurnStarted

from .display import Display, choose_display
from .live import execute
from .options import (
    DEFAULT_STORE,
    AgentOption,
    AgentsOption,
    BaseUrlOption,
    JsonOption,
    RootOption,
    StoreOption,
    TimeoutOption,
    ToolsOption,
    choose_agent,
    choose_model,
    choose_tools,
    name_of,
    with_steps,
)
from .remembered import Remembered


def run(
    prompt: Annotated[str | None, typer.Argument(help="What to do; read from standard input if left out.")] = None,
    *,
    agent: AgentOption = None,
    agents: AgentsOption = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="ID", help="The model; `local` is the embedded one.")
    ] = None,
    base_url: BaseUrlOption = None,
    timeout: TimeoutOption = None,
    tools: ToolsOption = None,
    root: RootOption = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", help="The agent's steps, for this turn.")] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="The conversation that the turn belongs to.")
    ] = None,
    continues: Annotated[
        str | None, typer.Option("--continue", metavar="TURN", help="Go on from a turn that a limit stopped.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Drive one turn: stream the model, run its tools, and say how and why it ended.

    With --continue, what no flag says is as it was in the turn to go on from.
    """
    display = choose_display(as_json=as_json, store=store)
    said = _prompt(prompt, going_on=continues is not None)
    opened = open_store(store)
    before = None if continues is None else _beginning(anyio.run(opened.facts, continues))
    kept = Remembered() if before is None else Remembered.from_json(before.context)
    if before is not None and kept.foreign and model is None and base_url is None:
        raise ConfigError(
            f"turn {continues} was run by another program, which has its model {before.model!r} and its tools: go on"
            " there, or name a model with --model, and the tools with --tools"
        )
    flagged = agent is not None or agents is not None
    chosen = with_steps(choose_agent(agent, agents) if flagged or before is None else _same_agent(before), steps)
    url, timeout = kept.endpoint(base_url), kept.timeout if timeout is None else timeout
    served = choose_model(model or (chosen.model if flagged else None) or kept.model or chosen.model, url, timeout)
    tools, root = tools or kept.tools, root or kept.root or Path()
    engine = Engine(model=served, tools=choose_tools(tools, root), store=opened, observers=[display.hear])
    context = Remembered.of(
        model=name_of(served),
        base_url=url,
        from_flag=base_url is not None or kept.from_flag,
        timeout=timeout,
        tools=tools,
        root=root,
    ).to_json()
    execute(display, engine, lambda: engine.run(chosen, said, session=session, continues=continues, context=context))


def resume(
    turn: Annotated[str, typer.Argument(help="The turn's id.")],
    *,
    answer: Annotated[
        list[str] | None, typer.Option("--answer", metavar="ID=TEXT", help="Answer an interrupt; may be repeated.")
    ] = None,
    grants: Annotated[
        list[str] | None, typer.Option("--grant", metavar="ID", help="Allow what an interrupt asks.")
    ] = None,
    denials: Annotated[
        list[str] | None, typer.Option("--deny", metavar="ID[=WORDS]", help="Turn it down, with words for the model.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    tools: ToolsOption = None,
    base_url: BaseUrlOption = None,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a paused turn and drive it on, or take up a turn whose process died.

    Agent, limits, model, tools and root are those that the turn began with, unless a flag says otherwise.
    """
    display = choose_display(as_json=as_json, store=store)
    answers = _answers(answer or [], grants or [], denials or [])
    opened = open_store(store, create=False)
    facts = anyio.run(_journal, opened, turn)
    engine = engine_for(turn, _beginning(facts), opened, display, tools=tools, base_url=base_url, timeout=timeout)
    display.view.recall(turn, [fact for _, fact in facts])
    execute(display, engine, lambda: engine.resume(turn, answers))


def engine_for(
    turn: str,
    started: TurnStarted,
    store: Store,
    display: Display,
    *,
    tools: str | None,
    base_url: str | None,
    timeout: float | None,
) -> Engine:
    """An engine with the model and the tools that a turn began with, unless a flag says otherwise.

    Raises `ConfigError` when they are not known here, or not there any more.
    """
    kept = Remembered.from_json(started.context)
    if kept.foreign and base_url is None:
        raise ConfigError(
            f"turn {turn} was begun by another program, which has its model {started.model!r} and its tools: resume it"
            " there, or name the model's server with --base-url and the tools with --tools"
        )
    return Engine(
        model=choose_model(
            kept.model or started.model, kept.endpoint(base_url), kept.timeout if timeout is None else timeout
        ),
        tools=choose_tools(tools or kept.tools, kept.root or Path()),
        store=store,
        observers=[display.hear],
    )


def abort(turn: Annotated[str, typer.Argument(help="The turn's id.")], *, store: StoreOption = DEFAULT_STORE) -> None:
    """Stop a turn, whatever it is doing, from this process or another."""

    async def stop() -> TurnResult:
        async with Engine(store=open_store(store, create=False)) as engine:
            result = await engine.get(turn)
            if result.outcome is not None and result.reason is not None:
                raise TurnEnded(turn, result.outcome, result.reason)
            await engine.abort(turn)
            return await engine.get(turn)

    result = anyio.run(stop)
    typer.echo(f"turn {turn}: " + ("aborted" if result.outcome else "told to stop; whoever drives it ends it"))


async def _journal(store: Store, turn_id: str) -> list[tuple[int, Fact]]:
    """The facts of a live turn. Raises `UnknownTurn` and `TurnEnded`."""
    status = (await store.get(turn_id)).status
    if status.outcome is not None and status.reason is not None:
        raise TurnEnded(turn_id, status.outcome, status.reason)
    return await store.facts(turn_id)


def _beginning(facts: list[tuple[int, Fact]]) -> TurnStarted:
    first = facts[0][1] if facts else None
    if not isinstance(first, TurnStarted):
        raise StoreError("the turn's journal does not begin with turn_started")
    return first


def _same_agent(before: TurnStarted) -> Agent:
    try:
        return Agent.from_json(before.agent)
    except ValidationError as error:
        raise StoreError(f"the agent of the turn to go on from cannot be read: {error.errors()[0]['msg']}") from None


def _prompt(given: str | None, *, going_on: bool) -> str:
    """What the user says: the argument, or standard input, or (after a limit) that the turn is to go on."""
    if given is None and not going_on and sys.stdin is not None and not sys.stdin.isatty():
        given = _piped()
    if given is None and going_on:
        return "Go on."
    if given is None or not given.strip():
        raise ConfigError('no prompt: write one, as in `turnwright run "Tidy utils.py"`, or pipe one in')
    return given


def _piped() -> str:
    try:
        return typer.get_binary_stream("stdin").read().decode().strip()
    except UnicodeDecodeError as error:
        raise ConfigError(f"the prompt on standard input is not UTF-8 text (byte {error.start})") from None


def _answers(texts: list[str], grants: list[str], denials: list[str]) -> dict[str, str | Reply]:
    """The answers by interrupt. Raises `ConfigError` for one without an id, and for two to one interrupt."""
    given: list[tuple[str, str | Reply]] = []
    for text in texts:
        name, separator, said = text.partition("=")
        if not separator:
            raise ConfigError(f"--answer {text!r}: write ID=TEXT")
        given.append((name, said))
    given += [(name, grant()) for name in grants]
    for text in denials:
        name, _, words = text.partition("=")
        given.append((name, deny(words)))
    answers = dict(given)
    if len(answers) < len(given):
        names = [name for name, _ in given]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"interrupt {twice!r} is answered twice: give one answer to each")
    return answers
