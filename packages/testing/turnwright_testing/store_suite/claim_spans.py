"""The contract of a store for claim spans: each driver that wrote facts of a turn has its span of them."""

from collections.abc import Sequence
from contextlib import suppress

import anyio
import pytest

from turnwright.errors import LeaseLostError, StoreError, TurnNotFoundError
from turnwright.store import AbandonedDrivers, Claim, InboxItem, InboxKind, Store

from .bench import NOW, Bench, StoreFacts, Written


async def _list_owners(store: Store, turn_id: str = "t1") -> Sequence[tuple[int, int, str]]:
    return [(span.first, span.epoch, span.owner) for span in await store.claim_spans(turn_id)]


class ClaimSpanFacts(StoreFacts):
    async def test_facts_of_one_driver_are_one_span(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """Any number of appends is one span, from the turn's creation to the last append."""
        (only_span,) = await other_store.claim_spans("t1")
        assert (only_span.began, only_span.ended) == (NOW, NOW)
        await store.append(claim, draft.calls("read_file"), draft.status)
        await store.append(claim, draft.abort(), draft.status)
        for handle in (store, other_store):
            (span,) = await handle.claim_spans("t1")
            assert (span.first, span.epoch, span.owner) == (1, 1, store.owner)
            assert span.began == NOW
            assert span.ended == (await handle.get("t1")).updated_at > NOW

    async def test_two_drivers_have_two_spans(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """The second begins with its first fact, and the first one ended when its own last was written."""
        await store.append(claim, draft.calls("read_file"), draft.status)
        (before,) = await store.claim_spans("t1")
        await store.release(claim)
        claim, at = await other_store.claim("t1"), len(draft.facts) + 1
        facts = draft.abort()
        await other_store.append(claim, facts[:1], draft.status)
        await other_store.append(claim, facts[1:], draft.status)
        for handle in (store, other_store):
            assert await _list_owners(handle) == [(1, 1, store.owner), (at, 2, other_store.owner)]
            first, second = await handle.claim_spans("t1")
            assert first == before
            assert first.ended <= second.began <= second.ended == (await handle.get("t1")).updated_at

    async def test_one_driver_that_claims_again_has_another_span(
        self, store: Store, draft: Written, claim: Claim
    ) -> None:
        """The spans have the same owner and a higher epoch; each begins where the one before ends."""
        expected = [(1, 1, store.owner)]
        for text in ("one", "two"):
            await store.release(claim)
            claim = await store.claim("t1")
            expected.append((len(draft.facts) + 1, claim.epoch, store.owner))
            facts = draft.calls("read_file") if text == "one" else draft.abort()
            await store.append(claim, facts, draft.status)
        assert await _list_owners(store) == expected

    async def test_a_claim_that_wrote_nothing_has_no_span(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """A claim that wrote no fact has no span, and does not lengthen the span before it."""
        await store.append(claim, draft.calls("read_file"), draft.status)
        await store.release(claim)
        before = await store.claim_spans("t1")
        await other_store.release(await other_store.claim("t1"))
        assert await store.claim_spans("t1") == before
        await store.post(InboxItem("t1", "q-1", InboxKind.ANSWER))
        claim = await other_store.claim("t1")
        await other_store.append(claim, (), draft.status, ("q-1",))
        assert await store.claim_spans("t1") == before
        at = len(draft.facts) + 1
        await other_store.append(claim, draft.abort(), draft.status)
        assert await _list_owners(store) == [(1, 1, store.owner), (at, 3, other_store.owner)]
        assert (await store.claim_spans("t1"))[:1] == before

    async def test_a_turn_that_is_taken_over_from_a_dead_driver_has_both(
        self, bench: Bench, store: Store, draft: Written
    ) -> None:
        """A dead driver's late facts are not written, and it has no span for them."""
        loser, name = await draft.create(store), store.owner
        at = len(draft.facts) + 1
        await bench.bury(store)
        other_store = await bench.open()
        winner = await other_store.claim("t1")
        facts = draft.answer()
        with pytest.raises(LeaseLostError):
            await store.append(loser, facts, draft.status)
        assert await _list_owners(other_store) == [(1, 1, name)]
        await other_store.append(winner, facts, draft.status)
        with pytest.raises(LeaseLostError):
            await store.append(loser, facts, draft.status)
        assert await _list_owners(other_store) == [(1, 1, name), (at, 2, other_store.owner)]

    async def test_driver_overtaken_before_its_first_fact_has_no_span(self, bench: Bench) -> None:
        """The lost claim has raised the epoch all the same."""
        store, other_store, third, draft = await bench.open(), await bench.open(), await bench.open(), Written()
        await store.release(await draft.create(store))
        loser = await other_store.claim("t1")
        winner = await third.claim("t1", abandoned=AbandonedDrivers(frozenset({other_store.owner})))
        at, facts = len(draft.facts) + 1, draft.answer()
        with pytest.raises(LeaseLostError):
            await other_store.append(loser, facts, draft.status)
        await third.append(winner, facts, draft.status)
        assert await _list_owners(store) == [(1, 1, store.owner), (at, 3, third.owner)]

    async def test_repeated_append_is_signed_after_a_failure(
        self, store: Store, other_store: Store, draft: Written
    ) -> None:
        """The span begins with the first fact that was written."""
        await store.release(await draft.create(store))
        claim, at = await other_store.claim("t1"), len(draft.facts) + 1
        claim.seq = 0
        facts = draft.answer()
        with pytest.raises(StoreError):
            await other_store.append(claim, facts, draft.status)
        claim.seq = at - 1
        assert await _list_owners(store) == [(1, 1, store.owner)]
        await other_store.append(claim, facts, draft.status)
        assert await _list_owners(store) == [(1, 1, store.owner), (at, 2, other_store.owner)]

    async def test_submitted_facts_belong_to_the_submitter(self, store: Store, other_store: Store) -> None:
        """The submitter has a span of epoch 0, before that of the driver, which may be the same process."""
        for turn_id, driver in (("t1", other_store), ("t2", store)):
            draft = Written(turn_id)
            await store.create(draft.new, draft.facts, draft.status, driven=False)
            assert await _list_owners(other_store, turn_id) == [(1, 0, store.owner)]
            claim, at = await driver.claim(turn_id), len(draft.facts) + 1
            await driver.append(claim, draft.answer(), draft.status)
            assert await _list_owners(other_store, turn_id) == [(1, 0, store.owner), (at, 1, driver.owner)]

    async def test_claim_spans_of_turns_that_write_at_once_do_not_meet(self, store: Store, other_store: Store) -> None:
        """Each begins with the first fact of its own turn, in whatever order they are written."""
        turns = [Written(f"t{n}") for n in range(8)]
        places: dict[str, int] = {}

        async def drive(draft: Written) -> None:
            claim = await other_store.claim(draft.new.id)
            places[draft.new.id] = len(draft.facts) + 1
            for name in ("read_file", "write_file"):
                facts = draft.calls(name) if name == "read_file" else draft.abort()
                await other_store.append(claim, facts, draft.status)

        for draft in turns:
            await store.release(await draft.create(store))
        async with anyio.create_task_group() as group:
            for draft in turns:
                group.start_soon(drive, draft)
        for name, at in places.items():
            assert await _list_owners(store, name) == [(1, 1, store.owner), (at, 2, other_store.owner)]
        assert len(places) == len(turns)

    async def test_a_turn_made_anew_has_no_span_of_the_one_deleted(self, store: Store, other_store: Store) -> None:
        """Neither a deleted turn nor an unknown one has spans."""
        first = Written()
        await store.release(await first.create(store))
        claim = await other_store.claim("t1")
        await other_store.append(claim, first.answer(), first.status)
        await other_store.release(claim)
        await store.delete("t1")
        for turn_id in ("t1", "nobody"):
            for handle in (store, other_store):
                with pytest.raises(TurnNotFoundError, match=turn_id):
                    await handle.claim_spans(turn_id)
        await Written(prompt="again").create(other_store)
        assert await _list_owners(store) == [(1, 1, other_store.owner)]

    async def test_a_turn_that_was_refused_has_no_span(self, store: Store, other_store: Store, draft: Written) -> None:
        """The existing turn with that id keeps its own spans."""
        await draft.create(store)
        with suppress(StoreError):
            await Written(prompt="other").create(other_store)
        assert await _list_owners(other_store) == [(1, 1, store.owner)]
