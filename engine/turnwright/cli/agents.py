"""`turnwright agents`: what an agent file says, and what comes of it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from turnwright.agent import Agent
from turnwright.agents_md import load_agents
from turnwright.errors import ConfigError

from . import columns

_UNSET: Final = "—"
_COLUMNS: Final = ("NAME", "STEPS", "CAP", "ALLOWANCE", "BUDGET", "TOOLS", "MODEL", "DESCRIPTION")


def agents(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="Markdown with YAML front matter.")] = Path(
        "AGENTS.md"
    ),
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List the agents of FILE, with their limits as they will hold.

    STEPS is as written, and CAP is min(steps, 200).
    ALLOWANCE is how many steps may call tools: concluding comes after the cap,
    or is the last call within it.
    What an agent leaves out is shown as an engine without settings fills it in.
    """
    try:
        found = load_agents(file)
    except ConfigError as error:
        typer.echo(error, err=True)
        raise typer.Exit(2) from None
    if as_json:
        for agent in found:
            typer.echo(json.dumps(record(agent), ensure_ascii=False))
    else:
        columns.print_columns(_COLUMNS, [_row(agent) for agent in found])


def record(agent: Agent) -> dict[str, object]:
    """What `--json` prints of an agent: `steps` as written (null if unset), all other limits as they will hold."""
    limits = agent.limits_for()
    return {
        "name": agent.name,
        "description": agent.description,
        "model": agent.model,
        "tools": agent.tools,
        "steps": agent.steps,
        "cap": limits.cap,
        "concluding": limits.concluding,
        "allowance": limits.allowance,
        "budget": limits.model_dump(mode="json", include={"tool_calls", "tokens", "cost", "seconds"}),
    }


def table(found: Sequence[Agent]) -> Table:
    """The agents for a terminal, which gives the table its width."""
    return columns.table(_COLUMNS, [_row(agent) for agent in found])


def plain(found: Sequence[Agent]) -> str:
    """The agents in aligned columns, nothing cut off: for pipes and files."""
    return columns.plain(_COLUMNS, [_row(agent) for agent in found])


def _row(agent: Agent) -> tuple[str, ...]:
    limits = agent.limits_for()
    budgets = (
        "calls unlimited" if limits.tool_calls is None else f"{limits.tool_calls} calls",
        None if limits.tokens is None else f"{limits.tokens} tokens",
        None if limits.cost is None else f"cost {limits.cost:g}",
        None if limits.seconds is None else f"{limits.seconds:g} s",
    )
    return (
        _line(agent.name),
        _UNSET if agent.steps is None else str(agent.steps),
        str(limits.cap),
        f"{limits.allowance} ({limits.concluding})",
        ", ".join(budget for budget in budgets if budget is not None),
        "all" if agent.tools is None else ", ".join(map(_line, agent.tools)) or "none",
        _UNSET if agent.model is None else _line(agent.model),
        _line(agent.description),
    )


def _line(text: str) -> str:
    """The text in one line, and without characters that a terminal would obey."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())
