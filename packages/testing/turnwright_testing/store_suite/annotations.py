"""The contract of annotations, for a store that keeps them."""

from dataclasses import replace

import pytest

from turnwright.errors import TurnNotFoundError
from turnwright.store import Annotation, AnnotationKind, AnnotationStore, Store
from turnwright.store.memory_summaries import summaries_of
from turnwright.store.summaries import TurnFilter

from .bench import StoreFacts, Written

_TAG = Annotation("t1", AnnotationKind.TAG, "slow", at=1.0)
_SCORE = Annotation("t1", AnnotationKind.SCORE, "success", value=0.5, text="Half of it.", at=2.0)
_NOTE = Annotation("t1", AnnotationKind.NOTE, "slow", text="It waited\nfor the disk. é\u2028", at=3.0)


class AnnotationFacts(StoreFacts):
    @pytest.fixture
    async def notes(self, store: Store) -> AnnotationStore:
        if not isinstance(store, AnnotationStore):
            pytest.skip("the store keeps no annotations")
        for turn in ("t1", "t1:c1", "t10", "t2", "t3", "t4"):
            await store.release(await Written(turn).create(store))
        return store

    async def test_annotations_are_kept_by_turn_the_oldest_first(self, store: Store, notes: AnnotationStore) -> None:
        other_annotation = replace(_TAG, turn="t2", at=0.0)
        await notes.annotate(_NOTE, other_annotation, _SCORE, _TAG)
        assert await notes.annotations(["t1"]) == [_TAG, _SCORE, _NOTE]
        assert await notes.annotations(["t2", "t3", "t2", "nobody", "t1"]) == [other_annotation, _TAG, _SCORE, _NOTE]
        assert await notes.annotations([]) == []
        assert [len(await store.facts(turn)) for turn in ("t1", "t3")] == [2, 2]

    async def test_another_one_of_its_kind_and_name_takes_its_place(self, notes: AnnotationStore) -> None:
        await notes.annotate(_SCORE, _TAG)
        new_score = replace(_SCORE, value=1.0, text="", at=9.0)
        await notes.annotate(new_score)
        assert await notes.annotations(["t1"]) == [_TAG, new_score]
        assert await notes.unannotate("t1", AnnotationKind.TAG, "slow")
        assert not await notes.unannotate("t1", AnnotationKind.TAG, "slow")
        assert not await notes.unannotate("nobody", AnnotationKind.TAG, "slow")
        assert await notes.annotations(["t1"]) == [new_score]

    async def test_turns_are_found_by_a_whole_tag(self, store: Store, notes: AnnotationStore) -> None:
        """Not by a note or a score of that name, nor by a tag that was removed."""
        await notes.annotate(*(replace(_TAG, turn=turn) for turn in ("t1", "t2", "t3")), replace(_NOTE, turn="t4"))
        await notes.unannotate("t2", AnnotationKind.TAG, "slow")
        summaries = summaries_of(store)
        for tag, turns in (("slow", ["t3", "t1"]), ("Slow", []), ("slo", []), ("success", [])):
            assert [entry.row.id for entry in await summaries.find(TurnFilter(tag=tag), limit=9)] == turns, tag
            assert (await summaries.totals(TurnFilter(tag=tag))).turns == len(turns)
        await notes.unannotate("t3", AnnotationKind.TAG, "slow")
        assert [entry.row.id for entry in await summaries.find(TurnFilter(tag="slow"), limit=9)] == ["t1"]

    async def test_all_are_written_or_none(self, notes: AnnotationStore) -> None:
        with pytest.raises(TurnNotFoundError):
            await notes.annotate(_TAG, replace(_TAG, turn="nobody"))
        assert await notes.annotations(["t1", "nobody"]) == []

    async def test_annotations_are_deleted_with_their_turn(self, store: Store, notes: AnnotationStore) -> None:
        kept_annotations = [replace(_TAG, turn=turn) for turn in ("t1", "t1:c1", "t10")]
        await notes.annotate(*kept_annotations)
        await store.delete("t1")
        await store.release(await Written("t1").create(store))
        assert await notes.annotations(["t1", "t1:c1", "t10"]) == [kept_annotations[2]]
