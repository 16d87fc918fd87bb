"""The annotations of a PostgreSQL store (`store/annotations.py`)."""

from collections.abc import Sequence
from typing import Final

from turnwright.errors import TurnNotFoundError
from turnwright.store.annotations import Annotation, AnnotationKind

from .connections import Connections

_WRITE: Final = """
    INSERT INTO turnwright_annotations SELECT turn_id, %s, %s, %s, %s, %s FROM turnwright_turns WHERE turn_id = %s
    ON CONFLICT (turn_id, kind, name) DO UPDATE SET value = excluded.value, text = excluded.text, at = excluded.at
"""
_READ: Final = """
    SELECT turn_id, kind, name, value, text, at
    FROM turnwright_annotations JOIN unnest(%s::text[]) WITH ORDINALITY AS wanted (turn, place) ON turn_id = turn
    ORDER BY place, at, kind, name
"""


class PostgresAnnotations:
    """The annotations of a store in PostgreSQL. Its methods are described at `AnnotationStore`."""

    _connections: Connections

    async def annotate(self, *annotations: Annotation) -> None:
        """See `AnnotationStore.annotate`."""
        async with self._connections.transaction() as connection:
            for entry in annotations:
                row = (entry.kind.value, entry.name, entry.value, entry.text, entry.at, entry.turn)
                if (await connection.execute(_WRITE, row)).rowcount == 0:
                    raise TurnNotFoundError(entry.turn)

    async def unannotate(self, turn_id: str, kind: AnnotationKind, name: str) -> bool:
        """See `AnnotationStore.unannotate`."""
        async with self._connections.transaction() as connection:
            statement = "DELETE FROM turnwright_annotations WHERE turn_id = %s AND kind = %s AND name = %s"
            return (await connection.execute(statement, (turn_id, kind.value, name))).rowcount > 0

    async def annotations(self, turn_ids: Sequence[str]) -> list[Annotation]:
        """See `AnnotationStore.annotations`."""
        rows = await self._connections.read(_READ, (list(dict.fromkeys(turn_ids)),))
        return [Annotation(turn, AnnotationKind(kind), *rest) for turn, kind, *rest in rows]
