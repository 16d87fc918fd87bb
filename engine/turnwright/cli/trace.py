"""`turnwright trace`: checks a trace, recorded by any runtime, against the invariants of a turn."""

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
    file: Annotated[str, typer.Argument(metavar="FILE", help="A trace, one JSON event per line; - is standard input.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a trace of turns from any runtime.

    The claims: calls and results are paired, a turn ends once, and its limits hold. docs/how-to/check-a-trace.md
    describes the format.

    Exit codes: 0 all claims hold, 1 violated, 2 the file cannot be read, 6 the trace lacks data that a claim needs.
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
