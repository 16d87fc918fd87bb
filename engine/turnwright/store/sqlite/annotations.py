"""The annotations of a SQLite file (`store/annotations.py`)."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from turnwright.errors import TurnNotFoundError
from turnwright.store.annotations import Annotation, AnnotationKind

from .tables import SqliteTables

_WRITE: Final = """
    INSERT INTO annotations SELECT turn_id, ?, ?, ?, ?, ? FROM turns WHERE turn_id = ?
    ON CONFLICT (turn_id, kind, name) DO UPDATE SET value = excluded.value, text = excluded.text, at = excluded.at
"""
_READ: Final = """
    SELECT turn_id, kind, name, annotations.value, text, at
    FROM annotations JOIN json_each(?) AS wanted ON turn_id = wanted.value ORDER BY wanted.key, at, kind, name
"""


class SqliteAnnotations(SqliteTables):
    """The annotations of a store with a SQLite connection. Its methods are described at `AnnotationStore`."""

    async def annotate(self, *annotations: Annotation) -> None:
        """See `AnnotationStore.annotate`."""
        async with self._transaction():
            for entry in annotations:
                row = (entry.kind, entry.name, entry.value, entry.text, entry.at, entry.turn)
                if self._db.execute(_WRITE, row).rowcount == 0:
                    raise TurnNotFoundError(entry.turn)

    async def unannotate(self, turn_id: str, kind: AnnotationKind, name: str) -> bool:
        """See `AnnotationStore.unannotate`."""
        async with self._transaction():
            statement = "DELETE FROM annotations WHERE turn_id = ? AND kind = ? AND name = ?"
            return self._db.execute(statement, (turn_id, kind, name)).rowcount > 0

    async def annotations(self, turn_ids: Sequence[str]) -> list[Annotation]:
        """See `AnnotationStore.annotations`."""
        async with self._reading():
            return read_annotations(self._db, turn_ids)


def read_annotations(db: sqlite3.Connection, turn_ids: Sequence[str]) -> list[Annotation]:
    """Return the annotations of turns in a database of this release's schema."""
    rows = db.execute(_READ, (json.dumps(list(dict.fromkeys(turn_ids))),)).fetchall()
    return [Annotation(turn, AnnotationKind(kind), *rest) for turn, kind, *rest in rows]
