"""`turnwright agents`: what an agent file says, and what comes of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from turnwright.agent import Agent
from turnwright.agents.files import read_agents
from turnwright.errors import ConfigError
from turnwright_states import Limits

from . import columns
from .options import ConfigOption, configuration
from .process import echo, echo_json

_UNSET: Final = "—"
_COLUMNS: Final = ("NAME", "MODE", "STEPS", "CAP", "ALLOWANCE", "BUDGET", "TOOLS", "MODEL", "DESCRIPTION")


def agents(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Agents in Markdown, or a folder (.opencode). Else the configuration's, or AGENTS.md.",
        ),
    ] = None,
    *,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List the agents of FILE, with their limits as they will hold.

    STEPS is as written, and CAP is min(steps, 200).
    ALLOWANCE is how many steps may call tools: concluding comes after the cap,
    or is the last call within it.
    What an agent leaves out is shown as the configuration fills it in (see `config`). Where the tool calls go by
    what the agent's tools do, the number of the class "default" is shown: `explain` knows the agent's class.
    """
    try:
        said = configuration(config)
        limits = said.limits()
        found = read_agents(*(said.agent_files() if file is None else (file,)), limits=limits)
    except ConfigError as error:
        echo(error, err=True)
        raise typer.Exit(2) from None
    if as_json:
        for agent in found:
            echo_json(record(agent, limits))
    else:
        columns.print_columns(_COLUMNS, [_row(agent, limits) for agent in found])


def record(agent: Agent, engine: Limits) -> dict[str, object]:
    """What `--json` prints of an agent: `steps` as written (null if unset), all other limits as they will hold.

    `engine` are the limits that the agent's own are laid over.
    """
    limits = agent.limits_for(engine).for_tools("default")
    return {
        "name": agent.name,
        "description": agent.description,
        "mode": agent.mode,
        "model": agent.model,
        "tools": agent.tools,
        "steps": agent.steps,
        "cap": limits.cap,
        "concluding": limits.concluding,
        "allowance": limits.allowance,
        "budget": limits.model_dump(mode="json", include={"tool_calls", "tokens", "cost", "seconds"}),
    }


def table(found: Sequence[Agent], engine: Limits | None = None) -> columns.Columns:
    return columns.Columns(_COLUMNS, [_row(agent, engine or Limits()) for agent in found])


def plain(found: Sequence[Agent], engine: Limits | None = None) -> str:
    return columns.plain(_COLUMNS, [_row(agent, engine or Limits()) for agent in found])


def _row(agent: Agent, engine: Limits) -> tuple[str, ...]:
    limits = agent.limits_for(engine)
    budgets = (
        "calls unlimited" if limits.call_limit is None else f"{limits.call_limit} calls",
        None if limits.tokens is None else f"{limits.tokens} tokens",
        None if limits.cost is None else f"cost {limits.cost:g}",
        None if limits.seconds is None else f"{limits.seconds:g} s",
    )
    return (
        _line(agent.name),
        agent.mode,
        _UNSET if agent.steps is None else str(agent.steps),
        str(limits.cap),
        f"{limits.allowance} ({limits.concluding})",
        ", ".join(budget for budget in budgets if budget is not None),
        "all" if agent.tools is None else ", ".join(map(_line, agent.tools)) or "none",
        _UNSET if agent.model is None else _line(agent.model),
        _line(agent.description),
    )


def _line(text: str) -> str:
    return " ".join(text.split())
