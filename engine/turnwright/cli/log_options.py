"""The logging options of every command, and commands that take several options as one object."""

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter
from typing import Annotated, Final, get_type_hints

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


_FORMAT_HELP: Final = "Log each state of a turn to stderr, as text or as one JSON object per line."
_LEVEL_HELP: Final = "The lowest level to log [default: info with --log-format, else warning]."

LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option("--log-format", envvar=FORMAT_VARIABLE, case_sensitive=False, help=_FORMAT_HELP),
]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option("--log-level", envvar=LEVEL_VARIABLE, case_sensitive=False, help=_LEVEL_HELP),
]
#: The same options after a command, without the environment: it must not override a flag before the command.
_OPTIONS: Final = {
    "log_format": Annotated[LogFormat | None, typer.Option("--log-format", case_sensitive=False, help=_FORMAT_HELP)],
    "log_level": Annotated[LogLevel | None, typer.Option("--log-level", case_sensitive=False, help=_LEVEL_HELP)],
}
_FLAGS: Final = ("--log-format", "--log-level")


def with_shared_options(command: Callable[..., object]) -> Callable[..., object]:
    """Return the command as Typer sees it: a parameter whose type is a dataclass becomes an option for each field.

    The logging options come after the options of the command.
    """
    kinds = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}
    parameters: dict[str, Parameter] = {}
    for name, own in inspect.signature(command).parameters.items():
        if name in groups:
            hints = get_type_hints(groups[name], include_extras=True)
            for field in fields(groups[name]):
                annotation = hints[field.name]
                parameters[field.name] = Parameter(
                    field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation
                )
        else:
            parameters[name] = own.replace(annotation=kinds[name])
    for name, option in _OPTIONS.items():
        parameters[name] = Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=option)

    @wraps(command)
    def spread(*, log_format: LogFormat | None, log_level: LogLevel | None, **options: object) -> object:
        choose_log(log_format, log_level)
        groups_made = {
            name: kind(**{field.name: options.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        return command(**options, **groups_made)

    # Typer reads the parameters of a function from these two attributes.
    vars(spread).update(__signature__=inspect.Signature(list(parameters.values())))
    spread.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    del spread.__wrapped__
    return spread


def behind_log_options(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments without the logging options before the command."""
    rest = list(arguments)
    while rest and rest[0].partition("=")[0] in _FLAGS:
        del rest[: 1 if "=" in rest[0] else 2]
    return rest


def choose_log(log_format: LogFormat | None, log_level: LogLevel | None) -> None:
    """Set the log format and level; None changes nothing. An option after the command wins over one before it."""
    if log_format is not None:
        _LogChoice.format = log_format
    if log_level is not None:
        _LogChoice.level = log_level
    if _LogChoice.format is None and _LogChoice.level is None:
        return
    level = _LogChoice.level or LogLevel.INFO
    as_json = _LogChoice.format is LogFormat.JSON
    process.log_as(as_json=as_json, level=logging.getLevelNamesMapping()[level.upper()])


class _LogChoice:
    """The options read so far: those before the command are read first."""

    format: LogFormat | None = None
    level: LogLevel | None = None
