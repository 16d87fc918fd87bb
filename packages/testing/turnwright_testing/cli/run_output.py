"""The progress of a run on standard error, and its failure with the test that fails in the same way."""

import time
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

from turnwright._base.regular_files import write_regular
from turnwright.cli.process import Output, echo
from turnwright.errors import ConfigError

#: Seconds between two lines about the progress.
_EVERY: Final = 2.0


class ProgressLine:
    """A line on standard error every two seconds: `playing: Clerk, example 45 of 200, 6 s`."""

    def __init__(self, name: str, total: int, *, verb: str = "playing", unit: str = "example") -> None:
        self._name = name
        self._planned = total
        self._verb = verb
        self._unit = unit
        self._start = self._last = time.monotonic()

    def show(self, number: int, smaller: bool) -> None:
        """Print the progress, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            verb = "reducing the failure" if smaller else self._verb
            echo(f"{verb}: {self._name}, {self._unit} {number} of {self._planned}, {now - self._start:.0f} s", err=True)


@dataclass(frozen=True, slots=True)
class Run:
    """The seed and the seconds of a run, its output, and the file of a failing test, which is else on the output."""

    seed: int
    seconds: float | None
    file: Path | None
    out: Output

    def fail(self, *lines: str, command: str, test: str) -> None:
        """Print what failed, where its test is, and the command that repeats it."""
        for line in lines:
            echo(line, err=True)
        if self.file is None:
            echo("a test that fails in this way is on stdout: save it in a file, and run pytest", err=True)
            self.out.write(test.removesuffix("\n"))
        else:
            write_for("--test", self.file, test)
            echo(f"a test that fails in this way is in {self.file}: run pytest {quote(str(self.file))}", err=True)
        echo(f"to repeat: {command}", err=True)


def write_for(flag: str, file: Path, text: str) -> None:
    """Write the file that a flag names. Raises `ConfigError`."""
    try:
        write_regular(file, text.encode())
    except OSError as error:
        raise ConfigError(f"{flag} {file}: cannot be written: {error.strerror}") from None
