"""What stands on an arrow: its rows in the notation of statecharts, broken into lines of a given width."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from .model import Arrow, Line


class Part(Enum):
    """The parts of `event [guard] / reason`."""

    EVENT = auto()
    GUARD = auto()
    REASON = auto()


class Word(NamedTuple):
    """What is not broken over two lines."""

    text: str
    part: Part


class CardRow(NamedTuple):
    """One row on a card: the lines that it takes, each with its words."""

    line: Line
    broken: tuple[tuple[Word, ...], ...]


def card_rows(arrow: Arrow, columns: int) -> Iterator[CardRow]:
    """The rows of an arrow's card, in lines of at most `columns` characters unless a single word is longer.

    An event is not said again on the rows below it, and an abort's reason is left to the state where it leads.
    """
    said = None
    for line in arrow.lines:
        yield CardRow(line, tuple(_wrapped(_words(line, say_event=line.event != said), columns)))
        said = line.event


def _words(line: Line, *, say_event: bool) -> Iterator[Word]:
    if say_event:
        yield Word(line.event, Part.EVENT)
    if line.guard:
        yield from (Word(word, Part.GUARD) for word in f"[{line.guard}]".split())
    if line.shown_reason:
        yield Word(f"/ {line.shown_reason}", Part.REASON)


def _wrapped(words: Iterable[Word], columns: int) -> Iterator[tuple[Word, ...]]:
    row: tuple[Word, ...] = ()
    for word in words:
        if row and len(" ".join(one.text for one in (*row, word))) > columns:
            yield row
            row = ()
        row = (*row, word)
    yield row
