"""Reads what a file, or standard input, holds line by line."""

import sys
from typing import Final

from turnwright._base.regular_files import read_regular
from turnwright.errors import ConfigError

# Far longer than any journal: a turn has at most 200 steps.
_MAX_BYTES: Final = 1024**3


def read_lines(file: str) -> list[str]:
    """Read the lines of a file of JSON lines; of standard input for `-`.

    Raises `ConfigError` for what cannot be read, also for what is no regular file.
    """
    try:
        # Split at line feeds alone: a text may hold other separators of lines, which JSON does not escape.
        return (sys.stdin.buffer.read() if file == "-" else read_regular(file, _MAX_BYTES)).decode().split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except (OSError, ValueError) as error:  # ValueError: a name with a null character in it
        raise ConfigError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
