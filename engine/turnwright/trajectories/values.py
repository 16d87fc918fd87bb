"""Reads the JSON values of a recording as a typed shape: one document, or a value in each line."""

from collections.abc import Collection, Iterable, Iterator
from typing import Generic, TypeVar

from .atif import Trajectory
from .shapes import Shape
from .source import Recording, UnreadableRecordingError, partial_document

T = TypeVar("T")


class Values(Generic[T]):
    """The values of a recording. Once they were iterated, `cut` and `unreadable_lines` say what is missing.

    `records` names the lists of a document whose items make sense without one another. Of a document that is cut or
    corrupt, their complete items are kept.
    """

    def __init__(self, recording: Recording, shape: Shape[T], records: Collection[str]) -> None:
        self._recording = recording
        self._shape = shape
        self._records = records
        self.cut = False
        self.unreadable_lines = 0

    def __iter__(self) -> Iterator[T]:
        if self._recording.is_lines:
            yield from self._lines()
        else:
            yield self._document()

    def noted(self, runs: Iterable[Trajectory], without: str) -> Iterator[Trajectory]:
        """Yield the runs that were made of the values; the notes of the last one say what is missing.

        Raises `UnreadableRecordingError` with the words `without` if there is no run.
        """
        latest: Trajectory | None = None
        for run in runs:
            if latest is not None:
                yield latest
            latest = run
        if latest is None:
            raise UnreadableRecordingError(without)
        latest.run_notes.cut = latest.run_notes.cut or self.cut
        latest.run_notes.unreadable_lines += self.unreadable_lines
        yield latest

    def _lines(self) -> Iterator[T]:
        for line in self._recording.lines():
            self.unreadable_lines += self.cut
            found = self._shape.decode(line)
            self.cut = found is None  # unless another line follows
            if found is not None:
                yield found

    def _document(self) -> T:
        data = self._recording.data()
        found = None if data is None else self._shape.decode(data)
        if found is not None:
            return found
        self.cut = True
        if data is None:
            with self._recording.open() as stream:
                part = partial_document(stream, self._records)
        else:
            part = partial_document(data, self._records)
        found = self._shape.convert(part)
        if found is None:
            raise UnreadableRecordingError("it is not the beginning of such a document")
        return found
