"""The page of one agent: its chart, its bounds, and its team, in Markdown with Mermaid."""

from collections.abc import Iterator
from typing import Final

from turnwright_proof.draw.agent_picture import drawn_rows
from turnwright_proof.draw.mermaid import mermaid_text, to_mermaid
from turnwright_proof.draw.overlay import number_ranges
from turnwright_proof.draw.table import markdown_table, to_table
from turnwright_proof.verify.rule_walk import describe_rule
from turnwright_states.chart import ROWS
from turnwright_states.rules import RuleList

from .agent_chart import AgentChart
from .certificate import Certificate, CertifiedBound, SubAgents

#: The first line of a page. `--check` finds the pages of agents that are gone by it.
MARK: Final = "<!-- Made by `turnwright diagram --agents`: edit the agents, not this page. -->"
#: The bounds in a node of the team.
_SHORT: Final = {"cap": "steps", "model calls": "model calls", "tool calls": "tool calls"}


def agent_page(certificate: Certificate, chart: AgentChart) -> str:
    """Return the page of an agent."""
    numbers = drawn_rows(chart.picture)
    left_out = [number for number in range(1, len(ROWS) + 1) if number not in numbers]
    bounds = [(bound.bound, _value(bound), bound.formula) for bound in (*certificate.bounds, certificate.reply)]
    rows_taken = f"A turn of this agent can take {len(numbers)} of the {len(ROWS)} rows of the chart."
    rows_left_out = f"Its limits, tools and hooks exclude the others: {number_ranges(left_out) or 'none'}."
    parts = [
        MARK,
        f"# {plain_markdown(certificate.agent)}",
        _fence(to_mermaid(chart.picture)),
        f"{rows_taken} {rows_left_out}",
    ]
    if certificate.sub_agents is not None:
        parts += ["## Team", _fence(team_mermaid(certificate)), _leases(certificate.sub_agents)]
    if chart.rules.rules:
        parts += ["## Rules", markdown_table(("rule", "guarantees", "effect"), _rules(chart.rules))]
    parts += ["## Bounds", markdown_table(("bound", "at most", "formula"), bounds)]
    parts += ["## Rows", to_table(chart.picture).rstrip()]
    return "\n\n".join(parts) + "\n"


def team_mermaid(certificate: Certificate) -> str:
    """Return the team of an agent as a flowchart: who calls whom, the bounds of each, and of all together."""
    return "\n".join(("flowchart TD", *(f"    {line}" for line in _team(certificate)), ""))


def _team(certificate: Certificate) -> Iterator[str]:
    yield f'first["{_node(certificate.agent, certificate.bounds)}"]'
    team = certificate.sub_agents
    if team is None:
        return
    ids = {agent.tool: f"agent{number}" for number, agent in enumerate(team.agents, start=1)}
    for agent in team.agents:
        yield f'{ids[agent.tool]}["{_node(agent.agent, agent.bounds)}<br/>depth {agent.depth}"]'
    tree = team.tree
    words = f"{tree.turns} turns<br/>{tree.steps} steps<br/>{tree.model_calls} model calls<br/>"
    yield f'tree(["all turns together, at most<br/>{words}{tree.tool_calls} tool calls"])'
    for source, calls in (("first", team.calls), *((ids[agent.tool], agent.calls) for agent in team.agents)):
        for name in calls:
            yield f'{source} -->|"{mermaid_text(name)}"| {ids[name]}'
    yield "first -.- tree"


def _node(name: str, bounds: tuple[CertifiedBound, ...]) -> str:
    values = {bound.bound: _value(bound) for bound in bounds}
    lines = (f"{values[bound]} {words}" for bound, words in _SHORT.items())
    return "<br/>".join((mermaid_text(plain_markdown(name)), *lines))


def _rules(rules: RuleList) -> list[tuple[str, str, str]]:
    pairs = zip(rules.rules, rules.patterns, strict=True)
    return [
        (plain_markdown(rule.name), plain_markdown(describe_rule(rule, words)), rule.effect) for rule, words in pairs
    ]


def _leases(team: SubAgents) -> str:
    return f"Sub-agents are nested at most {team.max_depth} deep. Leases: {team.leases}."


def _value(bound: CertifiedBound) -> str:
    return "unlimited" if bound.value is None else f"{bound.value:.15g}"


def _fence(mermaid: str) -> str:
    return f"```mermaid\n{mermaid}```"


def plain_markdown(text: str) -> str:
    """Return a name without the characters of Markdown and HTML that would make more of it than text."""
    return "".join(" " if character in "`*[]<>|\\#" else character for character in text)
