"""`turnwright abort`, `answer` and `steer`: requests to a turn, whichever process drives it."""

import json
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from turnwright._base.frozen import unique_keys
from turnwright._base.ids import root_of
from turnwright._base.words import explain_json_error
from turnwright.errors import ConfigError, TurnNotFoundError
from turnwright.journal.answers import Answer, need_live
from turnwright.journal.result import TurnResult
from turnwright.journal.turn_journal import first_fact
from turnwright.runtime.engine import Engine
from turnwright.store import Queued, Store
from turnwright_states import State
from turnwright_states.facts import TurnStarted

from .answers import change_arguments, read_answers
from .engines import Opening, with_mcp
from .options import (
    DEFAULT_STORE,
    AddressOption,
    AgentsOption,
    AnswerFlags,
    ByOption,
    JsonObjectOption,
    NamespaceOption,
    QueueOption,
    StoreOption,
    ToolsOption,
    TurnArgument,
    choose_tools,
    configuration,
    read_agents_of,
    with_helpers,
)
from .process import echo, echo_json, read_piped_text
from .runtimes import Service
from .saved_options import SavedOptions
from .stores import find_turn, is_elsewhere, store_flag, use_store
from .summary import resumed_by


def abort(
    turn: TurnArgument,
    *,
    store: StoreOption = DEFAULT_STORE,
    address: AddressOption = None,
    namespace: NamespaceOption = None,
    queue: QueueOption = None,
) -> None:
    """End a paused turn, or stop a running one.

    The turn of a sub-agent can be stopped alone. With --temporal-address the job on the Temporal server is canceled at
    once.
    """
    service = Service(address, namespace, queue)
    turn = find_turn(store, turn)
    root = root_of(turn)

    async def stop(turn_store: Store) -> tuple[TurnResult, bool]:
        async with aclosing(service.runtime()) as runtime:
            engine = Engine(store=turn_store, runtime=runtime)
            result = await engine.get(turn)
            need_live(turn, result.outcome, result.reason)
            await engine.abort(turn)
        idle = await _is_idle(turn_store, root)
        return await engine.get(turn), idle and not await is_elsewhere(turn_store, root)

    result, caller_is_idle = use_store(store, stop)
    echo(f"turn {turn}: " + ("aborted" if result.outcome else "asked to stop; its driver ends it"))
    if root != turn and caller_is_idle:
        echo(f"`turnwright resume {root}{store_flag(store)}{service.flags}` continues without it")


def answer(
    turn: TurnArgument,
    *,
    flags: AnswerFlags,
    by: ByOption = "",
    store: StoreOption = DEFAULT_STORE,
    agents: AgentsOption = None,
    tools: ToolsOption = None,
    service: Service,
    as_json: JsonObjectOption = False,
) -> None:
    """Answer a paused turn, and leave it to its driver.

    The driver is a worker, the program that began the turn, or a later `turnwright resume`. A call's tool checks its
    --arguments at once: a tool of the turn's own module, or of --tools, or a sub-agent of --agents.
    """
    turn = find_turn(store, turn)

    async def record(turn_store: Store) -> tuple[dict[str, str | Answer], TurnResult, str]:
        async with aclosing(service.runtime()) as runtime:
            before = await Engine(store=turn_store).get(turn)
            need_live(turn, before.outcome, before.reason)
            still_open = [interrupt.id for interrupt in before.interrupts if interrupt.id not in before.answered]
            answers = read_answers(flags, still_open, before.answered)
            if not answers:
                raise ConfigError(_no_answer(before, still_open))
            make = partial(Engine, store=turn_store, runtime=runtime)
            checks = change_arguments(answers.values())
            turn_start = first_fact(turn, await turn_store.facts(turn))
            async with _with_tools(make, agents, tools, turn_start) if checks else make() as engine:
                await engine.answer(turn, answers, by=by, via="cli")
                result, is_driven = await engine.get(turn), await turn_store.is_driven(turn)
                elsewhere = await is_elsewhere(turn_store, turn)
        again = resumed_by(turn, store_flag(store) + service.flags, elsewhere=elsewhere)
        return answers, result, "the driver of the turn reads it" if is_driven else f"{again} continues the turn"

    answers, result, next_step = use_store(store, record)
    still_waiting = [
        interrupt.id
        for interrupt in result.interrupts
        if interrupt.id not in result.answered and interrupt.id not in answers
    ]
    if as_json:
        echo_json({"turn": turn, "answered": [*answers], "open": still_waiting})
    elif still_waiting:
        echo(f"turn {turn}: recorded {', '.join(answers)}; still open: {', '.join(still_waiting)}")
    else:
        echo(f"turn {turn}: recorded {', '.join(answers)}; {next_step}")


def settle(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="The call's key, as `turnwright show` prints it: TURN:CALL.")
    ],
    *,
    result: Annotated[str | None, typer.Option("--result", metavar="TEXT", help="The result as text.")] = None,
    data: Annotated[str | None, typer.Option("--json", metavar="JSON", help="The result as JSON.")] = None,
    error: Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Why the call failed.")] = None,
    progress: Annotated[
        float | None, typer.Option("--progress", metavar="N", help="Report progress instead, such as 0.5.")
    ] = None,
    by: ByOption = "",
    store: StoreOption = DEFAULT_STORE,
    service: Service,
) -> None:
    """Give the result of a call that waits for it, or that a crash left open.

    The turn's driver reads it: a worker, the program that began the turn, or a later `turnwright resume`. The same
    result again changes nothing.
    """
    if sum(option is not None for option in (result, data, error, progress)) != 1:
        raise ConfigError("give one of --result, --json, --error and --progress")
    turn, _, calls = key.partition(":")
    if not calls:
        raise ConfigError(f"{key!r} is not the key of a call: write TURN:CALL, as `turnwright show` prints it")
    key = f"{find_turn(store, turn)}:{calls}"
    value: JsonValue = result
    if data is not None:
        try:
            value = json.loads(data, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as fault:
            raise ConfigError(f"--json: {explain_json_error(fault)}") from None

    async def record(turn_store: Store) -> bool:
        async with aclosing(service.runtime()) as runtime:
            engine = Engine(store=turn_store, runtime=runtime)
            if progress is not None:
                await engine.progress(key, progress)
                return True
            if error is not None:
                return await engine.settle(key, error=error, by=by, via="cli")
            return await engine.settle(key, value, by=by, via="cli")

    is_stored = use_store(store, record)
    outcome = "recorded" if is_stored else "has this result already"
    echo(f"call {key}: {outcome if progress is None else 'progress recorded'}")


def _with_tools(
    make: Callable[..., Engine], agents: str | None, module: str | None, turn_start: TurnStarted
) -> Opening:
    """Return an engine that opens with the tools of a turn, which check changed arguments. Raises `ConfigError`."""
    options = SavedOptions.from_json(turn_start.metadata)
    tool_choice = choose_tools(module or options.tools, options.root or Path())
    helpers = options.helpers() if agents is None else read_agents_of(agents, configuration())[1]
    return with_mcp(options.mcp, make, with_helpers(tool_choice.tools, helpers))


def steer(
    turn: TurnArgument,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="The message. Read from standard input if left out.", show_default=False),
    ] = None,
    *,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Send a message to a running turn.

    The model gets it with its next call that may use tools. A message adds nothing to a limit. If the turn ends first,
    the message is reported as not delivered.
    """
    message = read_piped_text("message") if text is None else text
    if message is None:
        raise ConfigError(f'no message: write one, as in `turnwright steer {turn} "Leave the tests alone."`')

    turn = find_turn(store, turn)

    async def post(turn_store: Store) -> str:
        await Engine(store=turn_store).steer(turn, message)
        is_driven, root = await turn_store.is_driven(turn), root_of(turn)
        again = resumed_by(root, store_flag(store), elsewhere=await is_elsewhere(turn_store, root))
        return _when_read((await turn_store.get(turn)).status.state, driven=is_driven, again=again)

    echo(f"turn {turn} " + use_store(store, post))


def _no_answer(result: TurnResult, still_open: Sequence[str]) -> str:
    if still_open:
        return f"no answer: give --approve, --reject or --answer with one of {', '.join(still_open)}"
    if result.interrupts:
        ids = ", ".join(interrupt.id for interrupt in result.interrupts)
        return f"turn {result.id}: nothing is open: {ids}: already answered"
    return f"turn {result.id} has no open question: it is in {result.state}"


async def _is_idle(store: Store, turn: str) -> bool:
    with suppress(TurnNotFoundError):
        return (await store.get(turn)).status.outcome is None and not await store.is_driven(turn)
    return False


def _when_read(state: State | Queued, *, driven: bool, again: str) -> str:
    """Return when a turn in this state reads a message. `again` resumes a turn whose driver is gone."""
    if state.outcome is not None or state in (State.CONCLUDE, State.TEXT_ONLY):
        return "makes no further call that may use tools: the message will be reported as not delivered"
    if driven:
        return "will read it before its next model call"
    if state is State.PAUSED:
        return "is paused, and will read it when it continues"
    return f"has no driver, and will read it when {again} resumes it"
