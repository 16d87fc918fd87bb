"""`turnwright explain`: the limits of a turn, with values, formulas, who set them, and how exact they are."""

import json
import shlex
from typing import Annotated, Final

import typer

from turnwright.agents.bounds import EXACTNESS
from turnwright.cli.options import (
    AgentOption,
    AgentsOption,
    ConfigOption,
    HooksOption,
    ToolsOption,
    ToolTimeoutOption,
    choose_agent,
    configuration,
    with_limits,
)
from turnwright.cli.process import echo, echo_json, say
from turnwright.cli.screen import print_columns, print_lines
from turnwright.config.config import Config, SettingSource
from turnwright.errors import ConfigError
from turnwright_proof.certificates.certificate import Certificate, CertifiedBound, CertifiedSubAgent, SetBy, SubAgents
from turnwright_states import REASONS

from .certified import Issuer

#: The bounds in the line of a sub-agent. `--json` has all of them.
_OF_SUB_AGENTS: Final = ("cap", "tool calls", "tokens", "cost", "seconds")


def explain(
    turn: Annotated[str | None, typer.Argument(metavar="TURN", hidden=True)] = None,
    *,
    agent: AgentOption = None,
    agents: AgentsOption = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", help="The most steps, as for `run`.")] = None,
    tools: ToolsOption = None,
    hooks: HooksOption = None,
    tool_timeout: ToolTimeoutOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as one JSON object.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of the certificate.")] = False,
) -> None:
    """Print every limit of an agent's turns, and who set it."""
    if turn is not None:
        raise ConfigError(
            "explain prints the limits of an agent, and takes no turn:"
            f" `turnwright show {shlex.quote(turn)}` shows a turn, and why it ended"
        )
    if schema:
        echo(json.dumps(Certificate.model_json_schema(), indent=2))
        return
    settings = configuration(config, {"limits.tool_timeout": tool_timeout})
    chosen_agent, beside = choose_agent(agent, agents, settings)
    # An error about --steps names the flag.
    with_limits(settings.prepared(chosen_agent), {"steps": steps}).limits_for(settings.limits())
    issuer = Issuer(settings, tools, hooks or ())
    certificate = issuer.certificate(chosen_agent, beside, steps=steps, tool_timeout=tool_timeout)
    if unknown := issuer.offered.unknown_to(chosen_agent, beside):
        names = ", ".join(unknown)
        say(f"unknown tools: {names}: name their module with --tools. One that writes lowers the limit of tool calls")
    if as_json:
        echo_json(certificate.to_json())
    else:
        _print(certificate, settings)


def _print(certificate: Certificate, config: Config) -> None:
    chart = certificate.chart
    print_lines([f"A turn of agent {certificate.agent!r} is bounded by:", ""])
    head = ("bound", "value", "set by", "exactness", "formula")
    print_columns(head, [_cells(bound, config) for bound in (*certificate.bounds, certificate.reply)])
    if certificate.code is not None and certificate.code.endless_tools:
        print_lines(["", f"Without a time limit, by choice: {', '.join(certificate.code.endless_tools)}."])
    if certificate.sub_agents is not None:
        _print_sub_agents(certificate.sub_agents)
    print_lines(["", *(f"{exactness}: {means}" for exactness, means in EXACTNESS.items())])
    print_lines(["", f"Chart {chart.version}, {chart.rows} rows, SHA-256 {chart.digest}"])
    print_lines(["", "How a turn ends, and what to do then:", ""])
    print_lines([f"  {reason:<16}  {meaning.means} {meaning.next}" for reason, meaning in REASONS.items()], hang=20)


def _print_sub_agents(below: SubAgents) -> None:
    print_lines(["", f"It may call sub-agents, nested at most {below.max_depth} deep:", ""])
    head = ("called", "agent", "depth", *_OF_SUB_AGENTS, "may call")
    print_columns(head, [_sub_agent_cells(agent) for agent in below.agents])
    tree = below.tree
    print_lines(["", f"Leases: {below.leases}.", ""])
    most = f"{tree.turns} turns, {tree.steps} steps, {tree.model_calls} model calls and {tree.tool_calls} tool calls"
    print_lines([f"With all turns below it, a turn of this agent is at most {most}."])


def _sub_agent_cells(sub_agent: CertifiedSubAgent) -> tuple[str, ...]:
    values = {bound.bound: bound.shown for bound in sub_agent.bounds}
    bounds = (values[name] for name in _OF_SUB_AGENTS)
    return (sub_agent.tool, sub_agent.agent, str(sub_agent.depth), *bounds, ", ".join(sub_agent.calls) or "-")


def _cells(bound: CertifiedBound, config: Config) -> tuple[str, ...]:
    other_sources = ", ".join(
        f"{setting.field}: {_source(setting.field, setting.set_by, config)}" for setting in bound.settings[1:]
    )
    first = _source(bound.field, bound.set_by, config)
    set_by = f"{first} ({other_sources})" if other_sources else first
    return (bound.bound, bound.shown, set_by, bound.exactness, bound.formula)


def _source(field: str, set_by: SetBy, config: Config) -> str:
    """Return who set a field: for the configuration, the source that `turnwright config` names."""
    if set_by is not SetBy.CONFIGURATION:
        return str(set_by)
    origin = config.origins.get(f"model_settings.{field}" if field == "max_tokens" else f"limits.{field}")
    return str(set_by) if origin is None or origin.source is SettingSource.DEFAULT else str(origin)
