"""A way through the chart, drawn in text: the states one under the other, and between them what happened."""

import textwrap
from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from turnwright_states import REASONS
from turnwright_states.chart import CHART, Row
from turnwright_states.verify import Case, Counterexample, Edge, retrace

_WIDTH: Final = 96
_LINE: Final = "    │  "


def drawn(witness: Counterexample) -> Iterator[str]:
    """The limits of the case, then the way, line by line. A row has the number of its place in the chart, from 1."""
    path, machine = retrace(witness.case, witness.events)
    yield from limits_of(witness.case)
    yield ""
    yield f"  {path[0].source}"
    for edge in path:
        yield from _drawn(edge)
    turn = machine.turn
    if turn.reason is not None:  # as it is at every end
        also = f" (also reached: {', '.join(turn.also_reached)})" if turn.also_reached else ""
        yield from _wrapped(f"{turn.reason}: {REASONS[turn.reason].means}{also}", "    ", "    ")


def _drawn(edge: Edge) -> Iterator[str]:
    yield from _wrapped(edge.happened, _LINE, _LINE)
    for row in edge.rows:
        number = f"{_number(row)}  "
        yield from _wrapped(_said(row), f"    ├─ {number}", _LINE + " " * len(number))
        yield "    ▼"
        yield f"  {row.dest}"


def _said(row: Row) -> str:
    guard = f" [{row.guard.words}]" if row.guard.text else ""
    return f"{row.trigger}{guard}" + (f" / {row.reason}" if row.reason else "")


def _number(row: Row) -> int:
    return CHART.rows.index(row) + 1


def limits_of(case: Case) -> Iterator[str]:
    """The limits of a case that are not the defaults, and what its surroundings have."""
    limits = ", ".join(
        f"{name}={_shown(value)}" for name, value in case.limits.model_dump(exclude_defaults=True).items()
    )
    yield from _wrapped(limits or "the defaults", "  limits  ", " " * 10)
    extras = [f"batches of up to {case.widest} call{'s' * (case.widest > 1)}"]
    extras += ["a synthesis"] if case.synthesis else []
    extras += ["sub-agents"] if case.delegates else []
    yield from _wrapped(", ".join(extras), "  with    ", " " * 10)


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _wrapped(text: str, first: str, then: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=then)


def json_of_witness(witness: Counterexample) -> dict[str, JsonValue]:
    path, machine = retrace(witness.case, witness.events)
    turn = machine.turn
    case = witness.case
    return {
        "end": f"{turn.state.outcome}/{turn.reason}",
        "also_reached": [str(reason) for reason in turn.also_reached],
        "limits": case.limits.model_dump(mode="json"),
        "synthesis": case.synthesis,
        "widest": case.widest,
        "delegates": case.delegates,
        "path": [
            {
                "happened": edge.happened,
                "event": edge.event,
                "from": edge.source,
                "to": edge.dest,
                "rows": [{"number": _number(row), "row": row.name} for row in edge.rows],
            }
            for edge in path
        ],
    }
