"""The `turnwright` command: registers the commands, and turns errors into a line and an exit code."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from turnwright.errors import Fenced, StoreError, TurnwrightError

from . import codes, process
from .agents import agents
from .config import config
from .decode import decode
from .demo import demo
from .diagram import diagram
from .explain import explain
from .fork import fork
from .fuzz import fuzz
from .inbox import abort, steer
from .replay import replay
from .run import resume, run
from .show import show
from .trace import trace
from .turns import turns
from .upkeep import delete, migrate, prune
from .verify import verify

app = typer.Typer(
    name="turnwright",
    epilog=(
        "Exit codes: 0 finished, 1 failed, 2 usage or configuration, 3 paused, 4 cap hit, 5 doom loop, 6 inconclusive,"
        " 130 aborted, 143 stopped by SIGTERM (the turn can be resumed)."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    demo,
    run,
    resume,
    abort,
    steer,
    turns,
    show,
    replay,
    fork,
    delete,
    prune,
    migrate,
    explain,
    config,
    agents,
    diagram,
    verify,
    fuzz,
    decode,
    trace,
):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"turnwright {version('turnwright')}")
        raise typer.Exit


@app.callback()
def turnwright(
    *,
    _: Annotated[
        bool,
        typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Drive one turn of an LLM agent as an explicit finite-state machine, and show that it ends."""


def main() -> None:
    """Run the command line. What the user can mend is one line on stderr; a traceback is never shown."""
    process.prepare()
    process.leave(_code())


def _code() -> int:
    """Run the command, and return the exit code."""
    try:
        process.check_arguments(sys.argv[1:])
        app()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0 if ending.code is None else codes.FAILED
    except (StoreError, Fenced) as error:
        process.say(str(error))
        return codes.FAILED
    except TurnwrightError as error:
        process.say(str(error))
        return codes.USAGE
    except KeyboardInterrupt:
        return codes.ABORTED
    except Exception as error:  # noqa: BLE001 (the last one who can say it in a line)
        process.say_bug(error)
        return codes.FAILED
    return 0
