"""`turnwright turns` and `show`: what a store holds."""

import json
import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import anyio
import typer
from pydantic import JsonValue

from turnwright.engine import Engine
from turnwright.errors import ConfigError
from turnwright.ledger import beginning
from turnwright.message import (
    AnyPart,
    Message,
    SentinelPart,
    StepFinishPart,
    StepStartPart,
    ToolCallPart,
    ToolResultPart,
)
from turnwright.opening import said_before
from turnwright.result import TurnResult
from turnwright.store import TurnRow, open_store
from turnwright_states.facts import Fact, TurnStarted

from .closing import closing_lines, store_flag
from .columns import print_columns
from .display import forked
from .options import DEFAULT_STORE, JsonOption, StoreOption
from .view import one_line, safe

_COLUMNS: Final = ("TURN", "WHEN", "AGENT", "MODEL", "STEPS", "CALLS", "STATE", "REASON", "SESSION")


def turns(
    *,
    store: StoreOption = DEFAULT_STORE,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Only of this conversation.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List turns, the newest first."""
    nothing_run_here = store == DEFAULT_STORE and not Path(store.removeprefix("sqlite:///")).exists()
    rows = [] if nothing_run_here else anyio.run(_turns, store, session)
    if as_json:
        for row in rows:
            typer.echo(json.dumps(_record(row)))
    elif not rows:
        typer.echo("no turns yet", err=True)
    else:
        print_columns(_COLUMNS, [_row(row) for row in rows])


def show(
    turn: Annotated[str, typer.Argument(help="The turn's id.")],
    *,
    journal: Annotated[bool, typer.Option("--journal", help="Print the facts instead of the transcript.")] = False,
    as_test: Annotated[
        bool,
        typer.Option(
            "--as-test",
            help="Print a pytest file that plays the turn again, its model and its tools as recorded."
            " All that the journal holds is in it, secrets too: read it before you share it.",
        ),
    ] = False,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Show a turn: its transcript, how it stands, and why it stopped."""
    if as_test:
        if journal or as_json:
            raise ConfigError(f"--as-test prints a file of its own: leave out {'--journal' if journal else '--json'}")
        _print_test(anyio.run(_read_incident, store, turn))
        return
    result, facts = anyio.run(_turn, store, turn)
    if journal:
        for seq, fact in facts:
            kept = json.loads(fact.payload())
            line = json.dumps({"seq": seq, "kind": fact.kind, **kept})
            typer.echo(line if as_json else f"{seq:>4}  {fact.kind:<15} {safe(fact.payload())}")
    elif as_json:
        typer.echo(json.dumps(_result_record(result) | _origin(beginning(turn, facts))))
    else:
        for line in forked(beginning(turn, facts)):
            typer.echo(line)
        for message in result.messages:
            typer.echo(_said(message))
        typer.echo("\n".join(closing_lines(result, said=result.text, flags=store_flag(store))))


async def _turns(store: str, session: str | None) -> list[TurnRow]:
    opened = open_store(store, create=False)
    try:
        return await opened.turns(session=session)
    finally:
        await opened.aclose()


async def _turn(store: str, turn: str) -> tuple[TurnResult, list[tuple[int, Fact]]]:
    async with Engine(store=open_store(store, create=False)) as engine:
        return await engine.get(turn), await engine.store.facts(turn)


def _print_test(make: Callable[[], str]) -> None:
    # A turn that failed fails again where it is played: that is no news of this process.
    logging.disable()
    # UTF-8 whatever the terminal speaks: that is what Python reads.
    typer.echo(make().encode(), nl=False)


async def _read_incident(store: str, turn: str) -> Callable[[], str]:
    """What writes the test of a turn, once no event loop runs here: it plays the turn in one of its own."""
    # Only who wants a test pays for the means to write it.
    from turnwright.testing.incident import as_test  # noqa: PLC0415

    opened = open_store(store, create=False)
    try:
        row, facts = await opened.get(turn), await opened.facts(turn)
        history = await said_before(opened, turn, beginning(turn, facts), until=row.created_at)
    finally:
        await opened.aclose()
    return partial(as_test, turn, facts, history=history, recorded=_day(row.created_at))


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d")


def _record(row: TurnRow) -> dict[str, JsonValue]:
    return {
        "turn": row.id,
        "session": row.session,
        "agent": row.agent,
        "model": row.model,
        "created_at": row.created_at,
        "state": row.status.state,
        "outcome": row.status.outcome,
        "reason": row.status.reason,
        "steps": row.status.steps,
        "tool_calls": row.status.tool_calls,
    }


def _result_record(result: TurnResult) -> dict[str, JsonValue]:
    return {
        "turn": result.id,
        "state": result.state,
        "outcome": result.outcome,
        "reason": result.reason,
        "also_reached": list(result.also_reached),
        "steps": result.steps,
        "tool_calls": result.tool_calls,
        "text": result.text,
        "usage": result.usage.model_dump(mode="json"),
        "seconds": result.seconds,
        "error": result.error,
        "path": list(result.path),
        "pending": [one.to_json() for one in result.pending],
        "messages": [message.model_dump(mode="json") for message in result.messages],
    }


def _origin(started: TurnStarted) -> dict[str, JsonValue]:
    return {"forked_from": started.forked_from, "forked_at": started.forked_at}


def _row(row: TurnRow) -> tuple[str, ...]:
    when = datetime.fromtimestamp(row.created_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    status = row.status
    figures = (str(status.steps), str(status.tool_calls))
    cells = (row.id, when, row.agent, row.model, *figures, status.state, status.reason or "", row.session or "")
    return tuple(one_line(cell) for cell in cells)


def _said(message: Message) -> str:
    lines = [line for part in message.parts for line in _part(part)]
    return "\n".join(f"{message.role + ':' if not index else '':<11}{line}" for index, line in enumerate(lines))


def _part(part: AnyPart) -> list[str]:
    match part:
        case StepStartPart():
            return [f"-- step {part.step_number}"]
        case StepFinishPart():
            return [f"-- step {part.step_number} took {part.seconds:.2f} s, {part.output_tokens} tokens written"]
        case ToolCallPart():
            return [f"{part.id}  {one_line(part.name)}({one_line(json.dumps(part.arguments, ensure_ascii=False))})"]
        case ToolResultPart():
            first, *rest = safe(part.text).splitlines() or [""]
            return [f"{part.call}  {part.status}: {first}", *(f"  {line}" for line in rest)]
        case SentinelPart():
            return [f"[{part.kind}: {safe(part.text)}]"]
        case _:
            return safe(part.text).splitlines()
