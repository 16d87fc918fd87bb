"""Reads the JSON values of a recording as a typed shape: documents, or a value in each line."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Generic, TypeVar

from .atif import Trajectory
from .shapes import Shape
from .source import Recording, UnreadableRecordingError, partial_documents

T = TypeVar("T")


class Values(Generic[T]):
    """The values of a recording. Once they were iterated, `cut` and `unreadable_lines` say what is missing.

    `records` names the lists of a document whose items make sense without one another. Of a document that is cut or
    corrupt, their complete items are kept. `uses` says of each record or message of a
    value whether the reader knows anything in it. The recording counts them
    (`turnwright_audit.trajectories.accounting`).
    """

    def __init__(
        self,
        recording: Recording,
        shape: Shape[T],
        records: Collection[str],
        uses: Callable[[T], Iterable[bool]] | None = None,
    ) -> None:
        self._recording = recording
        self._uses = uses
        self._shape = shape
        self._records = records
        self.cut = False
        self.unreadable_lines = 0

    def __iter__(self) -> Iterator[T]:
        if self._recording.is_lines:
            yield from self._lines()
        else:
            yield from self._documents()

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
            value = self._shape.decode(line)
            self.cut = value is None  # unless another line follows
            if value is not None:
                self._account(value)
                yield value

    def _account(self, value: T) -> None:
        for is_used in () if self._uses is None else self._uses(value):
            self._recording.records_read += 1
            self._recording.unused_records += not is_used

    def _documents(self) -> Iterator[T]:
        """Yield the document; or those of several files that were written one behind another, and what one begins."""
        data = self._recording.data()
        decoded_value = None if data is None else self._shape.decode(data)
        if decoded_value is not None:
            self._account(decoded_value)
            yield decoded_value
            return
        if data is None:
            with self._recording.open() as stream:
                parts, is_cut = partial_documents(stream, self._records)
        else:
            parts, is_cut = partial_documents(data, self._records)
        begun_parts = [part for part in parts if part] or parts
        fitting = [fitting_value for part in begun_parts if (fitting_value := self._shape.convert(part)) is not None]
        if not fitting:
            raise UnreadableRecordingError("it is not the beginning of such a document")
        for value in fitting:
            self._account(value)
        *whole, last = fitting
        yield from whole
        self.cut = is_cut
        yield last
