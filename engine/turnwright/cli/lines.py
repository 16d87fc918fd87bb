"""Reads files of JSON lines, and standard input."""

import sys
from typing import Final

import typer

from turnwright._base.regular_files import read_regular
from turnwright.errors import ConfigError

# Far longer than any journal: a turn has at most 200 steps.
_MAX_BYTES: Final = 1024**3


def read_lines(file: str) -> list[str]:
    """Read the lines of a file of JSON lines; of standard input for `-`.

    Raises `ConfigError` for a file that cannot be read, and for one that is not a regular file.
    """
    try:
        # Split at line feeds only: a text may contain other line separators, which JSON does not escape.
        return (sys.stdin.buffer.read() if file == "-" else read_regular(file, _MAX_BYTES)).decode().split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except (OSError, ValueError) as error:  # ValueError: the name contains a null character
        raise ConfigError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error


def piped(what: str) -> str | None:
    """Return the text on standard input, or None if standard input is a terminal. `what` names the text.

    Raises `ConfigError` for input that is not UTF-8 text.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return None
    try:
        return typer.get_binary_stream("stdin").read().decode().strip()
    except UnicodeDecodeError as error:
        raise ConfigError(f"the {what} on standard input is not UTF-8 text (byte {error.start})") from None
