"""Reads what a file, or standard input, holds line by line."""

import sys
from pathlib import Path

from turnwright.errors import ConfigError


def read_lines(file: str) -> list[str]:
    """The lines of a file of JSON lines; of standard input for `-`. Raises `ConfigError` when it cannot be read."""
    try:
        # Split at line feeds alone: a text may hold other separators of lines, which JSON does not escape.
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode().split("\n")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error
