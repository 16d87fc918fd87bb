"""Annotations of turns: tags, notes and scores that people or programs give a turn.

They are kept beside the journal, never in it: they say nothing about how the turn went, and may change later.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

from turnwright.errors import ConfigError

#: The most characters of a name, and of a text.
_NAME: Final = 100
_TEXT: Final = 10_000


class AnnotationKind(StrEnum):
    """A kind of annotation."""

    TAG = "tag"
    NOTE = "note"
    SCORE = "score"


@dataclass(frozen=True, slots=True)
class Annotation:
    """A tag, a note or a score of a turn. A turn has one of each kind and name; another one takes its place.

    A tag is a `name` alone. A note has a `text`. A score has a `value`, and may have a `text` that explains it. The
    score `success` says whether the turn did what was asked: above 0 it did. `at` is in seconds since the Unix epoch.

    Raises `ConfigError` for a name that is blank, longer than 100 characters, or of several lines, for a text of more
    than 10,000 characters, and for a value that is not a number.
    """

    turn: str
    kind: AnnotationKind
    name: str
    value: float | None = None
    text: str = ""
    at: float = 0.0

    def __post_init__(self) -> None:
        where = f"{self.kind} of turn {self.turn}"
        if not self.name.strip() or len(self.name) > _NAME or not self.name.isprintable():
            raise ConfigError(f"{where}: name it in one line of at most {_NAME} characters, not {self.name[:40]!r}")
        if len(self.text) > _TEXT or "\0" in self.text or self.text.encode(errors="replace").decode() != self.text:
            raise ConfigError(f"{where}: the text must be UTF-8 of at most {_TEXT:,} characters")
        if self.kind is AnnotationKind.NOTE and not self.text.strip():
            raise ConfigError(f"{where}: a note needs a text")
        if (self.value is None) is (self.kind is AnnotationKind.SCORE) or not math.isfinite(self.value or 0.0):
            raise ConfigError(f"{where}: a score, and nothing else, has a number")


@runtime_checkable
class AnnotationStore(Protocol):
    """The optional ability of a store to keep annotations. Every method raises `StoreError`, as those of `Store` do.

    They are deleted with their turn.
    """

    async def annotate(self, *annotations: Annotation) -> None:
        """Write annotations, all of them or none. Raises `TurnNotFoundError`."""
        ...

    async def unannotate(self, turn_id: str, kind: AnnotationKind, name: str) -> bool:
        """Delete an annotation, if the turn has it. Returns whether it had."""
        ...

    async def annotations(self, turn_ids: Sequence[str]) -> list[Annotation]:
        """Return the annotations of these turns, by turn, the oldest first. A turn that does not exist has none."""
        ...


def annotation_store(store: object) -> AnnotationStore:
    """Return the store if it keeps annotations. Raises `ConfigError` otherwise."""
    if not isinstance(store, AnnotationStore):
        raise ConfigError("this store keeps no tags, notes and scores: give it the methods of `AnnotationStore`")
    return store
