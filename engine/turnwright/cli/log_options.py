"""The options that every command has: what is logged, and in which format. A log goes to stderr, never to stdout."""

import inspect
import logging
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import wraps
from typing import Annotated, Final

import typer

from turnwright.logs import FORMAT_VARIABLE, LEVEL_VARIABLE

from . import process


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_FORMAT_HELP: Final = "Write a log to stderr, with a line for each state of a turn: as text, or one JSON object a line."
_LEVEL_HELP: Final = "The least that is logged [default: info with --log-format, else warning]."

LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option("--log-format", envvar=FORMAT_VARIABLE, case_sensitive=False, help=_FORMAT_HELP),
]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option("--log-level", envvar=LEVEL_VARIABLE, case_sensitive=False, help=_LEVEL_HELP),
]
#: The same behind a command. The environment was heard before, so that it overrules no flag in front of the command.
_OPTIONS: Final = {
    "log_format": Annotated[LogFormat | None, typer.Option("--log-format", case_sensitive=False, help=_FORMAT_HELP)],
    "log_level": Annotated[LogLevel | None, typer.Option("--log-level", case_sensitive=False, help=_LEVEL_HELP)],
}
_FLAGS: Final = ("--log-format", "--log-level")


def with_log_options(command: Callable[..., object]) -> Callable[..., object]:
    @wraps(command)
    def logged(*, log_format: LogFormat | None, log_level: LogLevel | None, **given: object) -> object:
        choose_log(log_format, log_level)
        return command(**given)

    # By these two Typer knows what a function takes.
    signature = inspect.signature(command)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in _OPTIONS.items()
    ]
    whole = signature.replace(parameters=[*signature.parameters.values(), *added])
    vars(logged).update(__signature__=whole)
    logged.__annotations__ = {**command.__annotations__, **_OPTIONS}
    del logged.__wrapped__
    return logged


def behind_log_options(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments without the options of the log that stand in front of the command."""
    rest = list(arguments)
    while rest and rest[0].partition("=")[0] in _FLAGS:
        del rest[: 1 if "=" in rest[0] else 2]
    return rest


def choose_log(log_format: LogFormat | None, log_level: LogLevel | None) -> None:
    """Log as was asked for. Where neither was said nothing changes; behind the command goes before in front of it."""
    if log_format is not None:
        _Chosen.format = log_format
    if log_level is not None:
        _Chosen.level = log_level
    if _Chosen.format is None and _Chosen.level is None:
        return
    level = _Chosen.level or LogLevel.INFO
    as_json = _Chosen.format is LogFormat.JSON
    process.log_as(as_json=as_json, level=logging.getLevelNamesMapping()[level.upper()])


class _Chosen:
    """What was said so far: in front of the command first."""

    format: LogFormat | None = None
    level: LogLevel | None = None
