"""`turnwright explain`: what can stop a turn, with values, formulas, who set them, and what may be overshot."""

import json
from pathlib import Path
from typing import Annotated

import typer

from turnwright.bounds import EXACTNESS
from turnwright.certificate import Certificate, CertifiedBound, certificate
from turnwright_states import REASONS

from .columns import print_columns
from .options import AgentOption, AgentsOption, choose_agent, with_steps


def explain(
    *,
    agent: AgentOption = None,
    agents: AgentsOption = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", help="Steps, as `run` takes them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate: one JSON object.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of the certificate.")] = False,
) -> None:
    """Print every bound of an agent's turns: its value, its formula, who set it, and whether it is exact."""
    if schema:
        typer.echo(json.dumps(Certificate.model_json_schema(), indent=2))
        return
    file = agents or (Path("AGENTS.md") if agent else None)
    chosen = choose_agent(agent, file)
    with_steps(chosen, steps)  # refuses steps out of range in the words of the flag
    certified = certificate(chosen, steps=steps)
    if as_json:
        typer.echo(json.dumps(certified.to_json()))
    else:
        _print(certified)


def _print(certified: Certificate) -> None:
    chart = certified.chart
    typer.echo(f"A turn of agent {certified.agent!r} is bounded by:\n")
    head = ("bound", "value", "set by", "exactness", "formula")
    print_columns(head, [_cells(bound) for bound in certified.bounds])
    typer.echo("")
    for exactness, means in EXACTNESS.items():
        typer.echo(f"{exactness}: {means}")
    typer.echo(f"\nChart {chart.version}, {chart.rows} rows, SHA-256 {chart.digest}")
    typer.echo("\nWhat ends it, and what to do then:\n")
    for reason, meaning in REASONS.items():
        typer.echo(f"  {reason:<16}  {meaning.means} {meaning.next}")


def _cells(bound: CertifiedBound) -> tuple[str, ...]:
    others = ", ".join(f"{one.field}: {one.set_by}" for one in bound.settings[1:])
    who = f"{bound.set_by} ({others})" if others else str(bound.set_by)
    value = "off" if bound.value is None else f"{bound.value:.15g}"
    return (bound.bound, value, who, bound.exactness, bound.formula)
