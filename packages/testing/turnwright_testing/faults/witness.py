"""An independent record of a trial: a file to which its processes append, one line an event."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from turnwright.tools import ToolContext

_BEGINS: Final = "start"
_ENDS: Final = "end"


@dataclass(frozen=True, slots=True)
class WitnessLine:
    """One line: the process that wrote it, and its words."""

    process: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a tool, by `process`. `ended` is false if it never ended."""

    process: int
    turn: str
    call: str
    attempt: int
    ended: bool


class Witness:
    """The file `path`, which is made when the first line is written."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def note(self, *words: object) -> None:
        """Write one line: the number of this process, and these words, which hold no space and are not empty."""
        self.note_all([words])

    def note_all(self, lines: "list[tuple[object, ...]]") -> None:
        """Write several lines at once, all of them or, if the process dies before, none."""
        text = "".join(" ".join(map(str, (os.getpid(), *words))) + "\n" for words in lines)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)

    @contextmanager
    def runs(self, context: ToolContext) -> Iterator[None]:
        """Write `{turn} {call} {attempt} start` before the block, and `... end` after it."""
        self.note(context.turn_id, context.call_id, context.attempt, _BEGINS)
        yield
        self.note(context.turn_id, context.call_id, context.attempt, _ENDS)

    def open_gate(self, number: int) -> None:
        """Open this gate for every process that waits at it, now or later."""
        self._gate(number).touch()

    async def gate_opened(self, number: int) -> None:
        """Wait until the gate is open."""
        gate = self._gate(number)
        while not gate.exists():  # noqa: ASYNC110 (it is another process that opens it)
            await anyio.sleep(0.005)

    def _gate(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}-gate-{number}")

    def lines(self) -> list[WitnessLine]:
        """Return the lines so far, oldest first; empty if there is no file yet."""
        if not self.path.exists():
            return []
        word_lists = (line.split() for line in self.path.read_text(encoding="utf-8").splitlines())
        return [WitnessLine(int(process), tuple(words)) for process, *words in word_lists]

    def ran(self) -> list[Ran]:
        """Return every start of a tool, oldest first."""
        return executions(self.lines())


def executions(lines: list[WitnessLine]) -> list[Ran]:
    """Return every start of a tool, from the lines of `Witness.runs`; other lines are skipped."""
    ends = {(line.process, line.words[:3]) for line in lines if line.words[3:] == (_ENDS,)}
    return [
        Ran(line.process, line.words[0], line.words[1], int(line.words[2]), (line.process, line.words[:3]) in ends)
        for line in lines
        if line.words[3:] == (_BEGINS,)
    ]
