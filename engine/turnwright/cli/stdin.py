"""What is piped in where an argument was left out."""

import sys

import typer

from turnwright.errors import ConfigError


def piped(what: str) -> str | None:
    """The text on standard input, or None where a person sits there. `what` names it.

    Raises `ConfigError` for what is not UTF-8 text.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return None
    try:
        return typer.get_binary_stream("stdin").read().decode().strip()
    except UnicodeDecodeError as error:
        raise ConfigError(f"the {what} on standard input is not UTF-8 text (byte {error.start})") from None
