"""`turnwright export`: writes one turn in the format of other tools."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from turnwright._base.regular_files import write_regular
from turnwright.cli.options import DEFAULT_STORE, StoreOption, TurnArgument
from turnwright.cli.process import echo
from turnwright.cli.stores import find_turn, use_store
from turnwright.errors import ConfigError
from turnwright.journal.subturns import sub_turns
from turnwright.privacy.redaction import redactor
from turnwright.store import Store
from turnwright_audit.trajectories.journal_run import run_of
from turnwright_audit.transfer import export_turn
from turnwright_states.facts import Fact


def export(
    turn: TurnArgument,
    *,
    format: Annotated[  # noqa: A002 (the flag's name)
        Literal["atif", "journal"],
        typer.Option(
            "--format",
            help="Agent Trajectory Interchange Format 1.8 as JSON, or the journal, which `serve --runs` opens.",
        ),
    ] = "atif",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file, not to stdout.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Write a turn in the format of other tools, or for another inspector.

    Its sub-agents are embedded. Known secrets are hidden, but prompts, arguments and results are not: read the file
    before you share it.
    """
    turn = find_turn(store, turn)
    if format == "journal":
        data = "\n".join(use_store(store, lambda turn_store: export_turn(turn_store, turn))).encode()
    else:
        journals = use_store(store, lambda turn_store: _journals(turn_store, turn))
        run = run_of(journals[turn], turn=turn, journals=journals.get)
        data = msgspec.json.encode(redactor().hide_in(msgspec.to_builtins(run)))
    if output is None:
        echo(data.decode())
        return
    try:
        write_regular(output, data + b"\n")
    except OSError as error:
        raise ConfigError(f"--output {output}: {error.strerror or error}") from error


async def _journals(store: Store, turn: str) -> dict[str, list[Fact]]:
    """Return the facts of a turn and of its sub-agents' turns, at every depth."""
    journals: dict[str, list[Fact]] = {}
    waiting = [turn]
    while waiting:
        turn_id = waiting.pop()
        facts = await store.facts(turn_id)
        journals[turn_id] = [fact for _, fact in facts]
        waiting += [row.id for row in (await sub_turns(store, turn_id, facts)).values()]
    return journals
