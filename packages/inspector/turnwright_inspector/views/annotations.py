"""The tags, notes and scores of turns, from stores that keep some."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from turnwright.store import Annotation, AnnotationKind, AnnotationStore, Store


async def annotations_of(store: Store, turn_id: str) -> tuple[Annotation, ...] | None:
    """Return the tags, notes and scores of a turn; None if the store keeps none."""
    return tuple(await store.annotations([turn_id])) if isinstance(store, AnnotationStore) else None


async def marks_of(store: Store, turn_ids: Sequence[str]) -> Mapping[str, tuple[Annotation, ...]]:
    """Return the tags and scores of some turns, for a list."""
    if not isinstance(store, AnnotationStore):
        return {}
    found = (one for one in await store.annotations(turn_ids) if one.kind is not AnnotationKind.NOTE)
    return {turn: tuple(some) for turn, some in groupby(found, key=lambda one: one.turn)}
