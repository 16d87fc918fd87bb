"""`turnwright agents`: the agents of a file with their limits, and the effect of a change on these."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnwright._base.words import collapse_whitespace
from turnwright.agent import Agent
from turnwright.agents.bounds import class_of
from turnwright.agents.files import read_agents
from turnwright.driver.dependencies import no_such_tool
from turnwright.driver.subagents import AgentTool, agent_tools
from turnwright.errors import ConfigError
from turnwright.tools import Tool
from turnwright_states import Limits
from turnwright_states.limits import ToolClass

from .options import AgentsOption, ConfigOption, HooksOption, JsonLinesOption, ToolsOption, choose_tools, configuration
from .packages import import_part
from .process import echo, echo_json
from .screen import print_columns

if TYPE_CHECKING:
    from turnwright.config.config import Config

_UNSET: Final = "—"
COLUMNS: Final = ("NAME", "MODE", "STEPS", "CAP", "ALLOWANCE", "BUDGET", "TOOLS", "MODEL", "DESCRIPTION")


class DiffFormat(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"


def agents(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="A Markdown file, a folder like .opencode, a .py file, or MODULE:NAME"
            " [default: the configuration's, else AGENTS.md, else agents/*.md and *.agent.md].",
        ),
    ] = None,
    *,
    sources: AgentsOption = None,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option("--diff", metavar="OLD NEW", help="Compare two versions of a source; a blank file has no agents."),
    ] = None,
    form: Annotated[DiffFormat, typer.Option("--format", help="The format of --diff.")] = DiffFormat.TEXT,
    tools: ToolsOption = None,
    hooks: HooksOption = None,
    config: ConfigOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """List agents with their limits.

    CAP is the step limit: STEPS of the agent file, at most 200. ALLOWANCE is how many of these steps may call tools.
    `explain` has all limits of an agent. --diff prints what a change does to bounds, tools, and what turns may do.
    """
    if diff is not None:
        full_config = configuration(config)
        part = import_part("turnwright_proof.cli.agents_diff", "turnwright agents --diff")
        part.print_diff(*diff, full_config, tools=tools, hooks=hooks or (), form=form, as_json=as_json)
        return
    named_sources = tuple(name for name in (source, sources) if name is not None)
    try:
        full_config = configuration(config)
        limits = full_config.limits()
        agent_list = read_agents(*(named_sources or full_config.agent_sources()), limits=limits)
        classes = _tool_classes(agent_list, full_config, tools)
    except ConfigError as error:
        echo(error, err=True)
        raise typer.Exit(2) from None
    if as_json:
        for agent in agent_list:
            echo_json(record(agent, limits, classes[agent.name]))
    else:
        print_columns(COLUMNS, [row(agent, limits, classes[agent.name]) for agent in agent_list])


def _tool_classes(agents: Sequence[Agent], config: "Config", tools: str | None) -> dict[str, ToolClass]:
    """Return the class of each agent's tools, `default` without a module of tools.

    Raises `ConfigError` for an agent that names a tool that is not offered.
    """
    if tools is None and config.settings.tools is None:
        return dict.fromkeys([agent.name for agent in agents], "default")
    offered_tools, helpers = OfferedTools(config, tools), agent_tools(agents)
    for agent in agents:
        offered_tools.require(agent, helpers)
    return {agent.name: offered_tools.class_for(agent, helpers) or "default" for agent in agents}


class OfferedTools:
    """The tools of a module, by name. `module` is the value of `--tools`, and else the configuration's."""

    def __init__(self, config: "Config", module: str | None) -> None:
        toolset = choose_tools(module or config.settings.tools, Path(config.settings.root))
        self.by_name: Mapping[str, Tool] = {tool.name: tool for tool in toolset.tools}

    def class_for(self, agent: Agent, helpers: Sequence[AgentTool]) -> ToolClass | None:
        """Return the class of an agent's tools (`class_of`); None if it names tools that are not offered."""
        tools = self.tools_for(agent, helpers)
        return None if tools is None else class_of(tools)

    def tools_for(self, agent: Agent, helpers: Sequence[AgentTool]) -> list[Tool] | None:
        """Return the tools that an agent may use; None if it names one that is not offered."""
        tools_by_name = {**self.by_name, **{tool.name: tool for tool in helpers}}
        if not tools_by_name.keys() >= set(agent.tools_needed):
            return None
        return [tool for name, tool in tools_by_name.items() if agent.may_use(name, delegates=tool.delegates)]

    def require(self, agent: Agent, helpers: Sequence[AgentTool]) -> None:
        """Raise `ConfigError` for a tool that the agent names and that is not offered."""
        if unknown := self.unknown_to(agent, helpers):
            raise no_such_tool(agent, unknown[0], [*self.by_name, *(tool.name for tool in helpers)])

    def unknown_to(self, agent: Agent, helpers: Sequence[AgentTool]) -> list[str]:
        """Return the tools that an agent names and that are not offered. An MCP server may have `server__tool`."""
        tool_names = self.by_name.keys() | {tool.name for tool in helpers}
        return [name for name in agent.tools_needed if name not in tool_names and "__" not in name]


def record(agent: Agent, engine: Limits, tools: ToolClass = "default") -> dict[str, object]:
    """Return an agent as `--json` prints it: `steps` as written (null if unset), all other limits as they apply.

    `engine` has the limits that apply where the agent sets none. `tools` is the class of the agent's tools.
    """
    limits = agent.limits_for(engine).for_tools(tools)
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


def row(agent: Agent, engine: Limits, tools: ToolClass = "default") -> tuple[str, ...]:
    limits = agent.limits_for(engine).for_tools(tools)
    budgets = (
        "calls unlimited" if limits.call_limit is None else f"{limits.call_limit} calls",
        None if limits.tokens is None else f"{limits.tokens} tokens",
        None if limits.cost is None else f"cost {limits.cost:g}",
        None if limits.seconds is None else f"{limits.seconds:g} s",
    )
    return (
        collapse_whitespace(agent.name),
        agent.mode,
        _UNSET if agent.steps is None else str(agent.steps),
        str(limits.cap),
        f"{limits.allowance} ({limits.concluding})",
        ", ".join(budget for budget in budgets if budget is not None),
        "all" if agent.tools is None else ", ".join(map(collapse_whitespace, agent.tools)) or "none",
        _UNSET if agent.model is None else collapse_whitespace(agent.model),
        collapse_whitespace(agent.description),
    )
