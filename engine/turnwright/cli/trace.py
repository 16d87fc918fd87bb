"""`turnwright trace`: what any runtime recorded of its turns, checked against the invariants of a turn."""

from collections.abc import Sequence
from typing import Annotated

import typer

from turnwright.errors import ConfigError
from turnwright_states.traces import InvalidTraceError, check_trace
from turnwright_states.verdict import Check

from . import check_report
from .lines import read_lines
from .process import echo_json
from .screen import print_lines


def trace(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A trace, one JSON event a line; - reads standard input.")
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as one JSON object.")] = False,
) -> None:
    """Check a trace of turns, from any runtime: pairing, one ending, bounds.

    docs/how-to/check-a-trace.md has the format.

    Exit code 0 when every claim holds, 1 when one is violated, 2 when the file cannot be read, 6 when the trace lacks
    what a claim needs.
    """
    checks = _checked(file)
    if as_json:
        echo_json(check_report.json_of(checks))
    else:
        print_lines(check_report.lines_of(checks))
    raise typer.Exit(check_report.exit_code(checks))


def _checked(file: str) -> Sequence[Check]:
    try:
        return check_trace(read_lines(file))
    except InvalidTraceError as error:
        raise ConfigError(f"{file}: {error}") from error
