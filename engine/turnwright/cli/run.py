"""`turnwright run` and `resume`: drive a turn, with its events on the screen."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from turnwright._base.background_task import background_task
from turnwright._base.ids import root_of
from turnwright.agent import Agent
from turnwright.driver.subagents import agent_tools
from turnwright.engine import Engine
from turnwright.errors import ConfigError, StoreError, TurnAlreadyEndedError, TurnBusyError
from turnwright.events import TurnEvent
from turnwright.journal.admission import TurnOptions
from turnwright.journal.driving_status import by_command_line
from turnwright.journal.inbox import answers_in
from turnwright.journal.subturns import unfinished_below
from turnwright.journal.turn_journal import first_fact
from turnwright.message import FilePart
from turnwright.model.providers import open_model
from turnwright.result import TurnResult
from turnwright.store import Store, TurnRow
from turnwright.telemetry import Telemetry
from turnwright_states import Limits
from turnwright_states.facts import TurnStarted

from .answers import AnswerFlags, read_answers
from .display import choose_display
from .following import Followed
from .interactive import Opening, execute
from .lines import piped
from .models import model_named, models_for
from .options import (
    DEFAULT_STORE,
    AgentOption,
    ApproveOption,
    ConfigOption,
    DriverFlags,
    EngineFlags,
    JsonOption,
    RejectOption,
    StoreOption,
    TurnArgument,
    choose_agent,
    choose_tools,
    configuration,
    with_steps,
)
from .process import say
from .runtimes import Service, WorkersModel
from .saved_options import SavedOptions
from .stores import Journal, find_turn, read_journal, use_store
from .telemetry import Exporting
from .worker_engine import engine_with, with_mcp


def run(
    prompt: Annotated[
        str | None,
        typer.Argument(help="What to do; read from standard input if left out. With --continue it may be left out."),
    ] = None,
    *,
    agent: AgentOption = None,
    flags: DriverFlags,
    files: Annotated[
        list[Path] | None,
        typer.Option("--file", metavar="FILE", help="A picture or a document to show with it; may be repeated."),
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", help="The agent's steps, for this turn.")] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="The conversation that the turn belongs to.")
    ] = None,
    continues: Annotated[
        str | None, typer.Option("--continue", metavar="TURN", help="Go on from a turn that a limit stopped.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    service: Service,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Drive one turn: stream the model, run its tools, and say how and why it ended.

    With --continue, what no flag says is as it was in the turn to go on from.

    Ctrl-C aborts the turn, twice leaves at once: then `resume` ends it. After SIGTERM `resume` takes it up again.

    With --temporal-address the workers of a Temporal server drive the turn (`turnwright worker`), with their tools, and
    their model unless --model or the agent names one. What is shown is what they write down.
    """
    display = choose_display(as_json=as_json, store=store, service=service.flags)
    said = _prompt(prompt, going_on=continues is not None)
    shown = [FilePart.read(file) for file in files or ()]
    continues = None if continues is None else find_turn(store, continues)
    before = None if continues is None else first_fact(continues, read_journal(store, continues))
    kept = SavedOptions() if before is None else SavedOptions.from_json(before.metadata)
    if before is not None and not by_command_line(before.metadata) and flags.model is None and flags.base_url is None:
        raise ConfigError(
            f"turn {continues} was run by another program, which has its model {before.model!r} and its tools: go on"
            " there, or name a model with --model, and the tools with --tools"
        )
    flagged = agent is not None or flags.agents is not None
    said_so = configuration(config, {"limits.steps": steps, "base_url": flags.base_url, "timeout": flags.timeout})
    # The flag is the turn's own: its sub-agents have the steps of their files and of the configuration.
    for_all = said_so if steps is None else configuration(config)
    options = for_all.engine_options()
    if flagged or before is None:
        chosen, others = choose_agent(agent, flags.agents, said_so)
        chosen, helpers = said_so.prepared(chosen), agent_tools(for_all.prepared(one.agent) for one in others)
    else:
        chosen, helpers = with_steps(_same_agent(before), steps), kept.helpers()
        options["limits"] = kept.limits or before.limits
    url = said_so.settings.base_url if before is None else kept.endpoint(flags.base_url)
    timeout = kept.timeout if flags.timeout is None and kept.timeout is not None else said_so.settings.timeout
    asked = flags.model or (chosen.model if flagged else None) or kept.model or chosen.model or said_so.settings.model
    named = model_named(asked, url)
    if not service.embedded and flags.model is not None:
        chosen = chosen.model_copy(update={"model": named})  # all that workers know of a turn is what it says itself
    served = open_model(named, base_url=url, timeout=timeout) if service.embedded else WorkersModel(named)
    tools = flags.tools or kept.tools or said_so.settings.tools
    root = flags.root or kept.root or Path(said_so.settings.root)
    servers = flags.mcp or kept.mcp or tuple(map(Path, said_so.settings.mcp))
    exporting = Exporting()
    make = partial(
        engine_with,
        options,
        telemetry=exporting.telemetry,
        model=served,
        models=models_for(served, named, chosen, url, timeout) if service.embedded else WorkersModel.named,
        store=service.store(store),
        runtime=service.runtime(),
        on_event=[display.hear] if service.embedded else [],
    )
    context = SavedOptions.of(
        model=named,
        base_url=url,
        from_flag=flags.base_url is not None or kept.from_flag,
        timeout=timeout,
        tools=tools,
        root=root,
        mcp=servers,
        helpers=helpers,
        limits=options["limits"],
    ).to_json()
    asks = TurnOptions(files=shown, session=session, continue_from=continues, metadata=context)

    async def work(engine: Engine) -> TurnResult:
        if service.embedded:
            return await engine.run(chosen, said, **asks)
        async with engine.stream(chosen, said, **asks) as events:
            async for event in events:
                display.hear(event)
        return await engine.get(display.view.turn)

    with exporting.sent():
        execute(display, with_mcp(servers, make, [*choose_tools(tools, root), *helpers]), work)


def resume(
    turn: TurnArgument,
    *,
    answer: Annotated[
        list[str] | None, typer.Option("--answer", metavar="ID=TEXT", help="Answer an interrupt; may be repeated.")
    ] = None,
    approvals: ApproveOption = None,
    rejections: RejectOption = None,
    store: StoreOption = DEFAULT_STORE,
    flags: EngineFlags,
    service: Service,
    as_json: JsonOption = False,
) -> None:
    """Answer a paused turn and drive it on, or take up a turn whose process died or was stopped.

    Where another process drives the turn, that one is given the answers, and what it does is shown.
    An ID may be the beginning of an interrupt's, where no other one begins so.
    Agent, limits, model, tools and root are those that the turn began with, unless a flag says otherwise.

    With --temporal-address the workers of a Temporal server drive it on, and what they write down is shown.
    """
    display = choose_display(as_json=as_json, store=store, service=service.flags)
    turn = find_turn(store, turn)
    row, facts, driven, below, answered = use_store(store, partial(_standing, turn=turn))
    for name, journal in {turn: facts, **below}.items():
        display.view.recall(name, [fact for _, fact in journal])
    followed = Followed(display.hear, row, facts, driven=driven)
    still_open = [one for one in followed.open if one not in answered]
    answers = read_answers(
        AnswerFlags("--answer", answer or [], approvals or [], rejections or []), still_open, answered
    )
    started, opened = first_fact(turn, facts), service.store(store, create=False)
    opening: Opening
    exporting = Exporting()
    if service.embedded:
        opening = engine_for(turn, started, opened, followed.observe, flags, telemetry=exporting.telemetry)
    else:
        service.refuse(flags)
        opening = Engine(store=opened, runtime=service.runtime(), on_event=[followed.observe])
    if answers and driven and service.embedded:
        say(f"turn {turn} is driven by another process, which is given the answers; waiting for it")

    async def work(engine: Engine) -> TurnResult:
        try:
            async with background_task(followed.follow, engine):
                result = await engine.resume(turn, answers)
        except TurnBusyError as error:
            still_open = [one for one in followed.open if one not in answered]
            may = f" (open, and to be answered meanwhile: {', '.join(still_open)})" if still_open else ""
            raise ConfigError(f"{error}{may}") from None
        await followed.catch_up(engine.store)
        return result

    with exporting.sent():
        execute(display, opening, work, followed)


def engine_for(
    turn: str,
    started: TurnStarted,
    store: Store,
    hear: Callable[[TurnEvent], None],
    flags: EngineFlags,
    *,
    telemetry: Telemetry | None = None,
) -> Opening:
    """What opens an engine with the model and the tools that a turn began with, unless a flag says otherwise.

    Raises `ConfigError` when they are not known here, or not there any more.
    """
    kept, said_so = SavedOptions.from_json(started.metadata), configuration(given={"timeout": flags.timeout})
    if started.parent_turn is not None and flags.base_url is None:
        raise ConfigError(
            f"turn {turn} is a sub-agent's, with the model and the tools of whoever called it: resume turn"
            f" {root_of(turn)}; to fork it, name the model's server with --base-url and the tools with --tools"
        )
    if not by_command_line(started.metadata) and flags.base_url is None:
        raise ConfigError(
            f"turn {turn} was begun by another program, which has its model {started.model!r} and its tools: resume it"
            " there, or name the model's server with --base-url and the tools with --tools"
        )
    url = kept.endpoint(flags.base_url)
    patience = kept.timeout if flags.timeout is None and kept.timeout is not None else said_so.settings.timeout
    named = model_named(kept.model or started.model, url)
    served = open_model(named, base_url=url, timeout=patience)
    options = said_so.engine_options()
    options["limits"] = kept.limits or Limits()
    make = partial(
        engine_with,
        options,
        model=served,
        models=models_for(served, named, _same_agent(started), url, patience),
        store=store,
        on_event=[hear],
        telemetry=telemetry,
    )
    own = [*choose_tools(flags.tools or kept.tools, kept.root or Path()), *kept.helpers()]
    return with_mcp(flags.mcp or kept.mcp, make, own)


async def _standing(store: Store, *, turn: str) -> tuple[TurnRow, Journal, bool, dict[str, Journal], frozenset[str]]:
    """A live turn: its row, its facts, whether it is driven, its unfinished sub-turns, and what waits as answered.

    Raises `TurnNotFoundError` and `TurnAlreadyEndedError`.
    """
    row = await store.get(turn)
    if row.status.outcome is not None and row.status.reason is not None:
        raise TurnAlreadyEndedError(turn, row.status.outcome, row.status.reason)
    facts = await store.facts(turn)
    answered = answers_in(await store.inbox(turn))
    return row, facts, await store.is_driven(turn), await unfinished_below(store, turn, facts), answered


def _same_agent(before: TurnStarted) -> Agent:
    try:
        return Agent.from_json(before.agent)
    except ValidationError as error:
        raise StoreError(f"the agent of the turn to go on from cannot be read: {error.errors()[0]['msg']}") from None


def _prompt(given: str | None, *, going_on: bool) -> str:
    """What the user says: the argument, or standard input, or (after a limit) that the turn is to go on."""
    if given is None and not going_on:
        given = piped("prompt")
    if given is None and going_on:
        return "Go on."
    if given is None or not given.strip():
        raise ConfigError('no prompt: write one, as in `turnwright run "Tidy utils.py"`, or pipe one in')
    return given
