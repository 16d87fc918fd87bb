"""The words of an arrow and of the note, in the notation of statecharts, broken into lines of a given width."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from .model import Arrow, FoldedRows, TextLine


class LabelPart(Enum):
    """The parts of `event [guard] / reason`; an entry of the note also has the states that it joins.

    `BESIDE` is what a row does in the turns of one agent.
    """

    EVENT = auto()
    GUARD = auto()
    REASON = auto()
    STATES = auto()
    BESIDE = auto()


class LabelWord(NamedTuple):
    """A text that is never broken over two lines."""

    text: str
    part: LabelPart


class LabelRow(NamedTuple):
    """One entry of a label: the rows of the chart that it represents, and its words, line by line."""

    rows: tuple[TextLine, ...]
    lines: tuple[tuple[LabelWord, ...], ...]

    @property
    def numbers(self) -> str:
        """The numbers of its rows."""
        return ", ".join(str(row.number) for row in self.rows)


def label_rows(arrow: Arrow, columns: int) -> Iterator[LabelRow]:
    """Yield the rows of an arrow, in lines of at most `columns` characters unless a single word is longer.

    The rows below an event do not repeat it. An abort's reason is shown only in the state where it leads.
    """
    event_shown = None
    for line in arrow.lines:
        yield LabelRow((line,), tuple(_wrap_words(_words(line, say_event=line.event != event_shown), columns)))
        event_shown = line.event


def note_rows(folded_rows: Iterable[FoldedRows], columns: int) -> Iterator[LabelRow]:
    """Yield the entries of the note: rows that are alike, with their source states and their destination."""
    for rows in folded_rows:
        sources = ", ".join(rows.sources)
        states = (f"again in {sources}" if rows.dest is None else f"from {sources} to {rows.dest}").split()
        words = (*_words(rows.shown, say_event=True), *(LabelWord(word, LabelPart.STATES) for word in states))
        yield LabelRow(rows.lines, tuple(_wrap_words(words, columns)))


def _words(line: TextLine, *, say_event: bool) -> Iterator[LabelWord]:
    if say_event:
        yield LabelWord(line.event, LabelPart.EVENT)
    if line.guard:
        yield from (LabelWord(word, LabelPart.GUARD) for word in f"[{line.guard}]".split())
    if line.shown_reason:
        yield LabelWord(f"/ {line.shown_reason}", LabelPart.REASON)
    yield from (LabelWord(word, LabelPart.BESIDE) for word in line.beside.split())


def _wrap_words(words: Iterable[LabelWord], columns: int) -> Iterator[tuple[LabelWord, ...]]:
    row: tuple[LabelWord, ...] = ()
    for word in words:
        if row and len(" ".join(row_word.text for row_word in (*row, word))) > columns:
            yield row
            row = ()
        row = (*row, word)
    yield row
