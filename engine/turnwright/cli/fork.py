"""`turnwright fork`: continues from an earlier point of a turn, in a new turn."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from turnwright._base.words import cut_line
from turnwright.journal.driving_status import DriverStatus, by_command_line
from turnwright.journal.fork import fork_places
from turnwright.journal.fork_changes import ForkChanges
from turnwright.journal.result import result_of
from turnwright.journal.turn_journal import first_fact
from turnwright.runtime.engine import Engine
from turnwright.store import Store, open_store
from turnwright.transcript.events import FactEvent
from turnwright_states.facts import tool_names

from . import codes
from .display import choose_display
from .interactive import execute
from .options import (
    DEFAULT_STORE,
    EngineFlags,
    JsonOption,
    ModelOption,
    NoInputOption,
    SettingOption,
    StoreOption,
    TurnArgument,
    read_changes,
    read_settings,
)
from .process import echo, echo_json, say
from .prompts import can_ask
from .run_turn import engine_for
from .screen import print_columns
from .stores import Journal, find_turn, read_journal, store_flag, use_store
from .summary import closing_lines, print_closing

_COLUMNS: Final = ("AT", "STATE", "AFTER")


def fork(
    turn: TurnArgument,
    *,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="SEQ", help="The last fact to copy. Without it, the possible facts are listed."),
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="Another prompt.")] = None,
    instructions: Annotated[
        str | None, typer.Option("--instructions", metavar="TEXT", help="Other instructions of the agent.")
    ] = None,
    model: ModelOption = None,
    setting: SettingOption = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=VALUE", help="Another limit, such as steps=20; may be repeated."),
    ] = None,
    result: Annotated[
        list[str] | None,
        typer.Option("--result", metavar="CALL=TEXT", help="Another result of a finished call; may be repeated."),
    ] = None,
    rules: Annotated[
        list[Path] | None,
        typer.Option("--rules", metavar="FILE", help="Other rules over calls, in YAML; may be repeated."),
    ] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Copy only, and print how to continue.")] = False,
    store: StoreOption = DEFAULT_STORE,
    flags: EngineFlags,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Continue from an earlier point of a turn, in a new turn.

    The facts up to --at are copied, and the new turn runs from there: the model is called and tools run, so that work
    that the original did later may be done again. The flags apply as if the original had had them from the beginning;
    the new turn records them. `turnwright replay` checks a turn without running anything. Output
    and exit codes are those of `resume`.
    """
    turn = find_turn(store, turn)
    journal = read_journal(store, turn)
    if at is None:
        _list(turn, journal, flags=store_flag(store), as_json=as_json)
        raise typer.Exit(codes.USAGE)
    turn_start = first_fact(turn, journal)
    changes = read_changes(limit, result)
    if prompt is not None:
        changes["prompt"] = prompt
    if instructions is not None:
        changes["instructions"] = instructions
    if model is not None:
        changes["model"] = model
    if rules:
        from turnwright.rules import RuleSet  # noqa: PLC0415 (few forks have other rules)

        changes["rules"] = [RuleSet.load(file) for file in rules]
    if settings := read_settings(setting):
        changes["model_settings"] = {**turn_start.model_settings, **settings.to_json()}
    make = partial(_fork, turn=turn, at=at, changes=changes)
    if no_run:
        _copy(store, turn, at, make, as_json=as_json)
        return
    is_asking = can_ask(no_input=no_input, as_json=as_json)
    display = choose_display(as_json=as_json, store=store)
    turn_store = open_store(store, create=False)
    advice = "`Engine.fork` forks it there. To fork it here, name the model with --model and the tools with --tools"
    opening = engine_for(turn, turn_start, turn_store, display.show, flags, elsewhere=advice, model=model)
    copy_id, facts = use_store(store, make)
    display.show(FactEvent(turn=copy_id, seq=1, fact=facts[0][1]))
    display.view.recall(copy_id, [fact for _, fact in facts])
    execute(
        display,
        opening,
        lambda engine: engine.resume(copy_id),
        resume=(lambda engine, answers: engine.resume(copy_id, answers, via="cli")) if is_asking else None,
    )


def _list(turn: str, journal: Journal, *, flags: str, as_json: bool) -> None:
    """Print the facts at which a turn can be forked."""
    tools = tool_names(fact for _, fact in journal)
    heads = [(group, journal[group.first - 1][1]) for group in fork_places(turn, journal)]
    rows = [(group, cut_line(f"{head.kind}  {head.summary(tools)}", 100)) for group, head in heads]
    if as_json:
        for group, after in rows:
            echo_json({"turn": turn, "at": group.last, "state": group.state, "after": after})
    else:
        print_columns(_COLUMNS, [(str(group.last), group.state, after) for group, after in rows])
    say(f"choose a fact: turnwright fork {turn}{flags} --at SEQ")


def _copy(
    store: str, turn: str, at: int, make: Callable[[Store], Awaitable[tuple[str, Journal]]], *, as_json: bool
) -> None:
    copy_id, facts = use_store(store, make)
    if as_json:
        echo_json(FactEvent(turn=copy_id, seq=1, fact=facts[0][1]).to_json())
        return
    echo(f"turn {copy_id}, forked from {turn} at fact {at}: nothing has run yet")
    elsewhere = not by_command_line(first_fact(copy_id, facts).metadata)
    result = result_of(copy_id, facts)
    closing = closing_lines(result, store=store, elsewhere=elsewhere, driver=DriverStatus.LEFT)
    print_closing(result, closing, flags=store_flag(store))


async def _fork(store: Store, *, turn: str, at: int, changes: ForkChanges) -> tuple[str, Journal]:
    copy_id = await Engine(store=store).fork(turn, at=at, **changes)
    return copy_id, await store.facts(copy_id)
