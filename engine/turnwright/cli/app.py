"""The `turnwright` command: registers the commands, and turns errors into a line and an exit code."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Final

import typer

from turnwright._base import startup
from turnwright.errors import LeaseLostError, RuntimeUnavailableError, StoreError, TurnwrightError

from . import codes, process
from .log_options import LogFormatOption, LogLevelOption, behind_log_options, choose_log, with_shared_options
from .process import echo
from .refused import with_advice

#: The room of each command, in the order of the help. Only the one that was asked for is loaded: what all of them need
#: takes longer to load than most of them take to run.
ROOMS: Final = {
    "demo": "demo",
    "run": "run",
    "resume": "run",
    "answer": "inbox",
    "abort": "inbox",
    "steer": "inbox",
    "worker": "worker",
    "serve": "serve",
    "turns": "turns",
    "show": "show",
    "replay": "replay",
    "fork": "fork",
    "delete": "upkeep",
    "prune": "upkeep",
    "migrate": "upkeep",
    "explain": "explain",
    "config": "config",
    "agents": "agents",
    "diagram": "diagram",
    "verify": "verify",
    "fuzz": "fuzz",
    "decode": "decode",
    "trace": "trace",
}


def command(name: str) -> Callable[..., object]:
    found: Callable[..., object] = getattr(import_module(f".{ROOMS[name]}", __package__), name)
    return found


def _asked_for(arguments: Sequence[str]) -> Sequence[str]:
    """The commands that these arguments need: one, or all of them where the help or a mistake lists them."""
    if arguments == ["--version"]:
        return ()
    arguments = behind_log_options(arguments)
    return arguments[:1] if arguments and arguments[0] in ROOMS else tuple(ROOMS)


def _app(commands: Sequence[str]) -> typer.Typer:
    app = typer.Typer(
        name="turnwright",
        epilog=(
            "Exit codes: 0 finished, 1 failed, 2 usage or configuration, 3 paused, 4 cap hit, 5 doom loop,"
            " 6 inconclusive, 130 aborted or interrupted, 143 stopped by SIGTERM (the turn can be resumed)."
        ),
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(turnwright)
    for name in commands:
        app.command()(with_shared_options(with_advice(command(name))))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"turnwright {version('turnwright')}")
        raise typer.Exit


def turnwright(
    *,
    _: Annotated[
        bool,
        typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_print_version),
    ] = False,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Drive one turn of an LLM agent as an explicit finite-state machine, and show that it ends.

    --log-format and --log-level may stand before a command or behind it.
    """
    choose_log(log_format, log_level)


def main() -> None:
    """Run the command line. What the user can mend is one line on stderr; a traceback is never shown."""
    code = _code()
    startup.leave_on_interrupt()
    process.leave(code)


def _code() -> int:
    try:
        startup.leave_on_interrupt()
        process.prepare()
        process.check_arguments(sys.argv[1:])
        app = _app(_asked_for(sys.argv[1:]))
        startup.interrupt_as_usual()
        # Not standalone: typer would print its errors past our streams where those are ASCII.
        ended = app(standalone_mode=False)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0 if ending.code is None else codes.FAILED
    except KeyboardInterrupt:
        return codes.ABORTED
    except Exception as error:  # noqa: BLE001 (the last one who can say it in a line)
        return _told(error)
    return ended if isinstance(ended, int) else 0


def _told(error: Exception) -> int:
    if isinstance(error, StoreError | LeaseLostError | RuntimeUnavailableError):
        process.say(" ".join(map(str.strip, str(error).splitlines())))
        return codes.FAILED
    if isinstance(error, TurnwrightError):
        process.say(str(error))
        return codes.USAGE
    # A mistake in the command line, by its shape: which click it comes from differs by the release of typer.
    show, code = getattr(error, "show", None), getattr(error, "exit_code", None)
    if callable(show) and isinstance(code, int):
        show(file=sys.stderr)
        return code
    if type(error).__name__ == "Abort":
        return codes.ABORTED
    process.say_bug(error)
    return codes.FAILED
