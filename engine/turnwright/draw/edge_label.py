"""What stands on an arrow: its rows in the notation of statecharts, broken into lines of a given width."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from .model import Arrow, TextLine


class LabelPart(Enum):
    """The parts of `event [guard] / reason`."""

    EVENT = auto()
    GUARD = auto()
    REASON = auto()


class LabelWord(NamedTuple):
    """What is not broken over two lines."""

    text: str
    part: LabelPart


class CardRow(NamedTuple):
    """One row on a card: the lines that it takes, each with its words."""

    line: TextLine
    broken: tuple[tuple[LabelWord, ...], ...]


def card_rows(arrow: Arrow, columns: int) -> Iterator[CardRow]:
    """The rows of an arrow's card, in lines of at most `columns` characters unless a single word is longer.

    An event is not said again on the rows below it, and an abort's reason is left to the state where it leads.
    """
    said = None
    for line in arrow.lines:
        yield CardRow(line, tuple(_wrapped(_words(line, say_event=line.event != said), columns)))
        said = line.event


def _words(line: TextLine, *, say_event: bool) -> Iterator[LabelWord]:
    if say_event:
        yield LabelWord(line.event, LabelPart.EVENT)
    if line.guard:
        yield from (LabelWord(word, LabelPart.GUARD) for word in f"[{line.guard}]".split())
    if line.shown_reason:
        yield LabelWord(f"/ {line.shown_reason}", LabelPart.REASON)


def _wrapped(words: Iterable[LabelWord], columns: int) -> Iterator[tuple[LabelWord, ...]]:
    row: tuple[LabelWord, ...] = ()
    for word in words:
        if row and len(" ".join(one.text for one in (*row, word))) > columns:
            yield row
            row = ()
        row = (*row, word)
    yield row
