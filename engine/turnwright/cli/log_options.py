"""The logging options of every command, and commands that take several options as one object."""

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Final, TypeGuard, get_type_hints

import typer

from turnwright.logs import FORMAT_VARIABLE, LEVEL_VARIABLE

from . import process

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


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

    A field may be such a group too. The logging options come after the options of the command.
    """
    kinds = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in kinds.items() if _is_group(kind)}
    parameters: list[Parameter] = []
    for name, own_parameter in inspect.signature(command).parameters.items():
        parameters += _options_of(groups[name]) if name in groups else [own_parameter.replace(annotation=kinds[name])]
    for name, option in _OPTIONS.items():
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=option))

    @wraps(command)
    def spread(*, log_format: LogFormat | None, log_level: LogLevel | None, **options: object) -> object:
        choose_log(log_format, log_level)
        groups_made = {name: _make_group(kind, options) for name, kind in groups.items()}
        return command(**options, **groups_made)

    # Typer reads the parameters of a function from these two attributes.
    vars(spread).update(__signature__=inspect.Signature(parameters))
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del spread.__wrapped__
    return spread


def _is_group(kind: object) -> "TypeGuard[type[DataclassInstance]]":
    return isinstance(kind, type) and is_dataclass(kind)


def _options_of(group: "type[DataclassInstance]") -> Iterator[Parameter]:
    """Yield the options of a group of flags, in their order."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        kind = hints[field.name]
        if _is_group(kind):
            yield from _options_of(kind)
        else:
            yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=kind)


def _make_group(group: "type[DataclassInstance]", options: dict[str, object]) -> object:
    """Return a group with its values, which are taken out of the options."""
    hints = get_type_hints(group, include_extras=True)
    return group(
        **{
            field.name: _make_group(kind, options) if _is_group(kind := hints[field.name]) else options.pop(field.name)
            for field in fields(group)
        }
    )


def behind_log_options(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments without the logging options before the command."""
    words = list(arguments)
    while words and words[0].partition("=")[0] in _FLAGS:
        del words[: 1 if "=" in words[0] else 2]
    return words


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
