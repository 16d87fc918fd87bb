"""The command that was asked for: it is loaded and run, and an error becomes a line and an exit code."""

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from shutil import get_terminal_size
from typing import Annotated, Final

import typer

from turnwright._base import startup
from turnwright._base.version import VERSION
from turnwright.errors import ConfigError, LeaseLostError, RuntimeUnavailableError, StoreError, TurnwrightError
from turnwright.logs import FORMAT_VARIABLE, LEVEL_VARIABLE

from . import codes, process
from .help_text import EXAMPLES, GROUPS, PACKAGE, CommandWithExamples, GroupedCommands, first_steps
from .log_options import LogFormatOption, LogLevelOption, behind_log_options, choose_log, with_shared_options
from .packages import entry_name, load_command
from .process import echo
from .refused import with_advice

#: The place of each command: a module, or the package that adds it. Only the command that was asked for is loaded:
#: loading all takes longer than most run.
PLACES: Final = {name: place for group in GROUPS.values() for name, place in group.items()}
#: The entry points of the commands of two words, which nobody types: `mcp-serve`.
_ENTRIES: Final = frozenset(entry_name(name) for name in PLACES if " " in name)
#: The errors of a full disk. Typer handles a reader of the output that has left.
_FULL: Final = frozenset({errno.EDQUOT, errno.EFBIG, errno.ENOSPC})


def command(name: str) -> Callable[..., object]:
    """Return the function of a command of ours. Raises `ConfigError` if its package is not installed."""
    place = PLACES[name]
    if place.startswith(PACKAGE):
        function = load_command(name, place)
        assert function is not None  # noqa: S101 (else it raised)
        return function
    of_engine: Callable[..., object] = getattr(import_module(f".{place}", __package__), name)
    return of_engine


def _commands_for(arguments: Sequence[str]) -> dict[str, Callable[..., object]]:
    """Return the commands to load for these arguments: all of them for a name that is wrong, and none for the help."""
    arguments = behind_log_options(arguments)
    if list(arguments) in (["--help"], ["--version"]):
        return {}
    if arguments and arguments[0] in PLACES:
        return {arguments[0]: command(arguments[0])}
    if arguments and arguments[0] not in _ENTRIES and not arguments[0].startswith("-"):
        added_command = load_command(arguments[0])
        if added_command is not None:
            return {arguments[0]: added_command}
    commands = {}
    for name in PLACES:
        with suppress(ConfigError):  # its package is not installed
            commands[name] = command(name)
    return commands


def _join_words(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a command of two words as one: `mcp serve`."""
    command_words = behind_log_options(arguments)
    before, name = arguments[: len(arguments) - len(command_words)], " ".join(command_words[:2])
    return [*before, name, *command_words[2:]] if name in PLACES else [*arguments]


def _complete_words() -> Sequence[str]:
    """Return the words of the line that a shell completes, without the program and the word under the cursor."""
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return words.split(" ")[1:-1]


def _app(commands: Mapping[str, Callable[..., object]]) -> typer.Typer:
    app = typer.Typer(
        name="turnwright",
        cls=GroupedCommands,
        epilog=(
            "Exit codes: 0 finished, 1 failed, 2 usage or configuration, 3 paused, 4 cap hit, 5 doom loop,"
            " 6 inconclusive, 130 aborted or interrupted, 143 stopped by SIGTERM (the turn can be resumed)."
        ),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(turnwright)
    for name, function in commands.items():
        _add_command(app, name, function)
    return app


def _add_command(app: typer.Typer, name: str, function: Callable[..., object]) -> None:
    examples = "\n".join(EXAMPLES.get(name, ()))
    app.command(name, cls=CommandWithExamples, epilog=examples)(with_advice(with_shared_options(function)))


def _asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether the arguments are a command and `--help`, and no variable has the options that come before a command."""
    is_help = len(arguments) > 1 and arguments[0] in PLACES and list(arguments[1:]) == ["--help"]
    return is_help and not {FORMAT_VARIABLE, LEVEL_VARIABLE} & os.environ.keys()


def _program(arguments: Sequence[str], *, completing: bool) -> Callable[[], object]:
    """Return a function that runs these arguments."""
    # In standalone mode Typer would print its errors past our streams, which replace what ASCII cannot show.
    if completing or not _asks_for_help(arguments):
        words = () if completing else (list(arguments),)
        return partial(_app(_commands_for(arguments)), *words, standalone_mode=False, prog_name="turnwright")
    # The command alone: Typer loads pydantic for the options before a command, and the help does not need it.
    name, *other_words = arguments
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    _add_command(app, name, command(name))
    return partial(app, other_words, standalone_mode=False, prog_name=f"turnwright {name}")


def _print_version(is_requested: bool) -> None:
    if is_requested:
        echo(f"turnwright {VERSION}")
        raise typer.Exit


def turnwright(
    *,
    _: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Run one turn of an LLM agent as an explicit finite-state machine.

    --log-format and --log-level may be given before or after the command.
    """
    choose_log(log_format, log_level)


def exit_code(*, completing: bool = False) -> int:
    """Run the command of `sys.argv`, and return the exit code of this process.

    `completing`: a shell has started it to complete a line.
    """
    try:
        startup.leave_on_interrupt()
        process.prepare()
        process.check_arguments(sys.argv[1:])
        arguments = _complete_words() if completing else _join_words(sys.argv[1:])
        if not arguments and not completing:
            echo(first_steps(get_terminal_size().columns), err=True)
            return codes.USAGE
        run = _program(arguments, completing=completing)
        startup.interrupt_as_usual()
        result = run()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0 if ending.code is None else codes.FAILED
    except KeyboardInterrupt:
        return codes.ABORTED
    except Exception as error:  # noqa: BLE001 (nothing above it can report the error in one line)
        return _report(error)
    return result if isinstance(result, int) else 0


def _report(error: Exception) -> int:
    if isinstance(error, StoreError | LeaseLostError | RuntimeUnavailableError):
        process.say(" ".join(map(str.strip, str(error).splitlines())))
        return codes.FAILED
    if isinstance(error, TurnwrightError):
        process.say(process.explain(error))
        return codes.USAGE
    # An error of click, known by its attributes: which package defines its class depends on the release of Typer.
    show, code = getattr(error, "show", None), getattr(error, "exit_code", None)
    if callable(show) and isinstance(code, int):
        if isinstance(message := getattr(error, "message", None), str):
            vars(error)["message"] = message.replace("Value error, ", "")  # a prefix of pydantic
        show(file=sys.stderr)
        examples = EXAMPLES.get(next(iter(behind_log_options(_join_words(sys.argv[1:]))), ""))
        if examples and type(error).__name__ != "BadParameter":
            echo("\n".join(["", "Examples:", *(f"  {line}" for line in examples)]), err=True)
        return code
    if type(error).__name__ == "Abort":
        return codes.ABORTED
    if isinstance(error, OSError) and error.errno in _FULL:
        process.report_unwritten(error, sys.stdout)
        return codes.FAILED
    is_refused_path = isinstance(error, OSError) and bool(error.filename)
    if is_refused_path:
        process.say(process.words_of(error))
    else:
        process.say_bug(error)
    return codes.USAGE if is_refused_path else codes.FAILED
