"""Drives a turn for `turnwright run` and `resume`, with its events on the screen."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from turnwright._base.background_task import background_task
from turnwright._base.ids import root_of
from turnwright.driver.admission import TurnOptions
from turnwright.errors import ConfigError, TurnBusyError
from turnwright.journal.answers import need_live
from turnwright.journal.driving_status import by_command_line
from turnwright.journal.inbox import answers_in
from turnwright.journal.result import TurnResult, result_of
from turnwright.journal.subturns import unfinished_below
from turnwright.journal.turn_journal import first_fact
from turnwright.message import FilePart
from turnwright.runtime.engine import Engine
from turnwright.store import Store, TurnRow
from turnwright.transcript.events import TurnEvent
from turnwright_states import Limits
from turnwright_states.facts import TurnStarted

from .answers import read_answers
from .display import choose_display
from .engines import Opening, open_engine
from .interactive import Answers, FollowedTurn, execute
from .options import (
    EngineFlags,
    choose_hooks,
    choose_tools,
    configuration,
    model_named,
    open_models,
    read_agents_of,
    read_schema,
)
from .process import read_piped_text, say
from .prompts import can_ask
from .saved_options import SavedOptions
from .stores import Journal, find_turn, read_journal, store_flag, use_store
from .summary import resumed_by
from .turn_flags import ResumeFlags, RunFlags
from .turn_plan import plan_turn, same_agent

if TYPE_CHECKING:
    from turnwright.runtime.turn_stream import TurnStream


def run_turn(prompt: str | None, flags: RunFlags) -> None:
    """Run one turn, with its events on the screen, and print how it ended."""
    store, service = flags.turn.store, flags.service
    display = choose_display(as_json=flags.as_json, store=store, service=service.flags, verbose=flags.turn.verbose)
    text = _prompt(prompt, continuing=flags.continues is not None)
    parts = [FilePart.read(file) for file in flags.files or ()]
    continues = None if flags.continues is None else find_turn(store, flags.continues)
    before = None if continues is None else first_fact(continues, read_journal(store, continues))
    # The events of a turn that exists already come from its journal, those of another process too.
    is_followed = flags.turn_id is not None or not service.embedded
    plan = plan_turn(flags.turn, [] if is_followed else [display.show], service=service, before=before)
    output_options = {} if flags.output_schema is None else {"output_schema": read_schema(flags.output_schema)}
    if output_options and plan.agent.output_type is not None:
        raise ConfigError(f"--output-schema: agent {plan.agent.name!r} has an output_type of its own")
    agent = plan.agent.model_copy(update=output_options)
    asks = TurnOptions(
        id=flags.turn_id,
        files=parts,
        session=flags.session,
        continue_from=continues,
        metadata=plan.metadata,
        model_settings=plan.settings,
    )

    async def work(engine: Engine) -> TurnResult:
        if not is_followed:
            return await engine.run(agent, text, **asks)
        return await show_stream(engine.stream(agent, text, subagents=service.embedded, **asks))

    async def again(engine: Engine, answers: Answers) -> TurnResult:
        if not is_followed:
            return await engine.resume(display.view.turn, answers, via="cli")
        return await show_stream(engine.stream_resume(display.view.turn, answers, via="cli", subagents=True))

    async def show_stream(block: "AbstractAsyncContextManager[TurnStream[object]]") -> TurnResult:
        async with block as events:
            async for event in events:
                display.show(event)
        return events.result

    is_asking = service.embedded and can_ask(no_input=flags.no_input, as_json=flags.as_json)
    execute(display, plan.opening, work, resume=again if is_asking else None)


def resume_turn(turn: str, flags: ResumeFlags) -> None:
    """Continue a turn, with its events on the screen."""
    store, service = flags.store, flags.service
    display = choose_display(as_json=flags.as_json, store=store, service=service.flags, verbose=flags.verbose)
    turn = find_turn(store, turn)
    row, facts, is_driven, below, answered_ids = use_store(store, partial(_standing, turn=turn))
    for name, journal in {turn: facts, **below}.items():
        display.view.recall(name, [fact for _, fact in journal])
    followed_turn = FollowedTurn(display.show, row, facts, driven=is_driven)
    still_open = [interrupt for interrupt in followed_turn.open if interrupt not in answered_ids]
    answers = read_answers(flags.answers, still_open, answered_ids)
    turn_start, turn_store = first_fact(turn, facts), service.store(store, create=False)
    opening: Opening
    if service.embedded:
        notice = _elsewhere(turn, store_flag(store), asks=bool(still_open))
        opening = engine_for(turn, turn_start, turn_store, followed_turn.observe, flags.engine, elsewhere=notice)
    else:
        service.refuse(flags.engine)
        opening = Engine(store=turn_store, runtime=service.runtime(), on_event=[followed_turn.observe])
    if answers and is_driven and service.embedded:
        say(f"another process drives turn {turn} and gets the answers; waiting for it")

    async def answered_with(engine: Engine, answers: Answers) -> TurnResult:
        try:
            async with background_task(followed_turn.follow, engine):
                result = await engine.resume(turn, answers, by=flags.by, via="cli")
        except TurnBusyError as error:
            still_open = [interrupt for interrupt in followed_turn.open if interrupt not in answered_ids]
            may = f" (you can answer: {', '.join(still_open)})" if still_open else ""
            raise ConfigError(f"{error}{may}") from None
        await followed_turn.catch_up(engine.store)
        return result

    async def work(engine: Engine) -> TurnResult:
        return await answered_with(engine, answers)

    is_asking = service.embedded and can_ask(no_input=flags.no_input, as_json=flags.as_json)
    execute(display, opening, work, followed_turn=followed_turn, resume=answered_with if is_asking else None)


def _elsewhere(turn: str, flags: str, *, asks: bool) -> str:
    """Return what to do with a turn of another program that cannot be resumed here. `asks`: it waits for answers."""
    first = f"record an answer with `turnwright answer {root_of(turn)}{flags}`; then " if asks else ""
    return (
        f"{first}{resumed_by(turn, flags, elsewhere=True)} resumes it. To resume it here, name the model's server with"
        " --base-url and the tools with --tools"
    )


def engine_for(
    turn: str,
    turn_start: TurnStarted,
    store: Store,
    on_event: Callable[[TurnEvent], None],
    flags: EngineFlags,
    *,
    elsewhere: str,
    model: str | None = None,
) -> Opening:
    """Return an engine that opens with the model and the tools of the turn, unless a flag changes them.

    `model` is that of a turn of another program or of a sub-agent, which need one or --base-url. Without both, and for
    a tool that no longer exists, it raises `ConfigError`; `elsewhere` says what to do with another program's turn.
    """
    saved_options, full_config = (
        SavedOptions.from_json(turn_start.metadata),
        configuration(flag_values={"timeout": flags.timeout}),
    )
    has_place = flags.base_url is not None or model is not None
    if turn_start.parent_turn is not None and not has_place:
        raise ConfigError(
            f"turn {turn} belongs to a sub-agent, with the model and the tools of its caller: resume turn"
            f" {root_of(turn)}; to fork it, name the model with --model or its server with --base-url, and the tools"
            " with --tools"
        )
    if not by_command_line(turn_start.metadata) and not has_place:
        raise ConfigError(
            f"turn {turn} was started by another program, which has its model {turn_start.model!r} and its tools:"
            f" {elsewhere}"
        )
    url = saved_options.endpoint(flags.base_url)
    timeout = saved_options.silence(flags.timeout, full_config.settings.timeout)
    options = full_config.engine_options()
    options["limits"] = saved_options.limits or Limits()
    if flags.agents is None:
        registered_agents, helpers = saved_options.registered(), saved_options.helpers()
    else:
        registered_agents, helpers = read_agents_of(flags.agents, full_config)
    model_id = model_named(saved_options.model or model or turn_start.model, url)
    return open_engine(
        options,
        models=open_models(model_id, same_agent(turn_start), url, timeout),
        tools=choose_tools(flags.tools or saved_options.tools, saved_options.root or Path()),
        hooks=choose_hooks(flags.hooks or saved_options.hooks or full_config.settings.hooks),
        servers=flags.mcp or saved_options.mcp,
        agents=registered_agents,
        helpers=helpers,
        store=store,
        on_event=[on_event],
    )


async def _standing(store: Store, *, turn: str) -> tuple[TurnRow, Journal, bool, dict[str, Journal], frozenset[str]]:
    """Return an unfinished turn: its row, its facts, whether it is driven, its unfinished sub-turns, its new answers.

    Raises `TurnNotFoundError` and `TurnAlreadyEndedError`.
    """
    row = await store.get(turn)
    need_live(turn, row.status.outcome, row.status.reason)
    facts = await store.facts(turn)
    answered_ids = answers_in(await store.inbox(turn), result_of(turn, facts).interrupts)
    return row, facts, await store.is_driven(turn), await unfinished_below(store, turn, facts), answered_ids


def _prompt(prompt: str | None, *, continuing: bool) -> str:
    """Return the user's message: the argument, or standard input, or, after a limit, a request to continue."""
    if prompt is None and not continuing:
        prompt = read_piped_text("prompt")
    if prompt is None and continuing:
        return "Go on."
    if prompt is None or not prompt.strip():
        raise ConfigError('no prompt: write one, as in `turnwright run "Tidy utils.py"`, or pipe one in')
    return prompt
