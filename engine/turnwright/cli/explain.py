"""`turnwright explain`: what can stop a turn, with values, formulas, and what may be overshot."""

import json
from pathlib import Path
from typing import Annotated

import typer

from turnwright.bounds import bounds_of
from turnwright_states import REASONS

from .options import AgentOption, AgentsOption, choose_agent, with_steps


def explain(
    *,
    agent: AgentOption = None,
    agents: AgentsOption = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", help="Steps, as `run` takes them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print every bound of an agent's turns: its value, its formula, and whether it is exact."""
    file = agents or (Path("AGENTS.md") if agent else None)
    chosen = with_steps(choose_agent(agent, file), steps)
    bounds = bounds_of(chosen.limits_for())
    if as_json:
        records = [
            {
                "bound": bound.name,
                "value": bound.value,
                "formula": bound.formula,
                "exactness": bound.exactness,
                "setting": bound.setting,
                "reason": bound.reason,
            }
            for bound in bounds
        ]
        typer.echo(json.dumps({"agent": chosen.name, "bounds": records}))
        return
    typer.echo(f"A turn of agent {chosen.name!r} is bounded by:\n")
    width = max(len(bound.name) for bound in bounds)
    for bound in bounds:
        value = "off" if bound.value is None else f"{bound.value:g}"
        typer.echo(f"  {bound.name:<{width}}  {value:>5}  {bound.formula}  [{bound.exactness}]")
    typer.echo("\nWhat ends it, and what to do then:\n")
    for reason, meaning in REASONS.items():
        typer.echo(f"  {reason:<16}  {meaning.means} {meaning.next}")
