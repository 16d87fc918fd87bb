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


class CardLine(NamedTuple):
    """One line of a card. `number` is the row's where the row begins, and None where it goes on."""

    number: int | None
    words: tuple[Word, ...]


def card_lines(arrow: Arrow, columns: int) -> Iterator[CardLine]:
    """The lines of an arrow's card, at most `columns` characters long unless a single word is longer.

    An event is not said again on the rows below it, and an abort's reason is left to the state where it leads.
    """
    said = None
    for line in arrow.lines:
        for place, words in enumerate(_wrapped(_words(line, say_event=line.event != said), columns)):
            yield CardLine(None if place else line.number, words)
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
