"""The contract of a store for claim spans: each driver that wrote facts of a turn has its span of them."""

from collections.abc import Sequence
from contextlib import suppress

import anyio
import pytest

from turnwright.errors import LeaseLostError, StoreError, TurnNotFoundError
from turnwright.store import AbandonedDrivers, InboxItem, InboxKind, Store

from .bench import NOW, Bench, Written


async def _who(store: Store, turn_id: str = "t1") -> Sequence[tuple[int, int, str]]:
    return [(one.first, one.epoch, one.owner) for one in await store.claim_spans(turn_id)]


class ClaimSpanFacts:
    async def test_what_a_driver_wrote_is_one_span(self, bench: Bench) -> None:
        """Any number of appends is one span, from the turn's creation to the last append."""
        store, other, written = await bench.open(), await bench.open(), Written()
        claim = await written.create(store)
        (made,) = await other.claim_spans("t1")
        assert (made.began, made.ended) == (NOW, NOW)
        await store.append(claim, written.calls("read_file"), written.status)
        await store.append(claim, written.abort(), written.status)
        for handle in (store, other):
            (span,) = await handle.claim_spans("t1")
            assert (span.first, span.epoch, span.owner) == (1, 1, store.owner)
            assert span.began == NOW
            assert span.ended == (await handle.get("t1")).updated_at > NOW

    async def test_two_drivers_have_two_spans(self, bench: Bench) -> None:
        """The second begins with its first fact, and the first one ended when its own last was written."""
        store, other, written = await bench.open(), await bench.open(), Written()
        claim = await written.create(store)
        await store.append(claim, written.calls("read_file"), written.status)
        (before,) = await store.claim_spans("t1")
        await store.release(claim)
        claim, at = await other.claim("t1"), len(written.facts) + 1
        facts = written.abort()
        await other.append(claim, facts[:1], written.status)
        await other.append(claim, facts[1:], written.status)
        for handle in (store, other):
            assert await _who(handle) == [(1, 1, store.owner), (at, 2, other.owner)]
            first, second = await handle.claim_spans("t1")
            assert first == before
            assert first.ended <= second.began <= second.ended == (await handle.get("t1")).updated_at

    async def test_one_driver_that_claims_again_has_another_span(self, bench: Bench) -> None:
        """The spans have the same owner and a higher epoch; each begins where the one before ends."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        expected = [(1, 1, store.owner)]
        for text in ("one", "two"):
            await store.release(claim)
            claim = await store.claim("t1")
            expected.append((len(written.facts) + 1, claim.epoch, store.owner))
            facts = written.calls("read_file") if text == "one" else written.abort()
            await store.append(claim, facts, written.status)
        assert await _who(store) == expected

    async def test_a_claim_that_wrote_nothing_has_no_span(self, bench: Bench) -> None:
        """A claim that wrote no fact has no span, and does not lengthen the span before it."""
        store, other, written = await bench.open(), await bench.open(), Written()
        claim = await written.create(store)
        await store.append(claim, written.calls("read_file"), written.status)
        await store.release(claim)
        before = await store.claim_spans("t1")
        await other.release(await other.claim("t1"))
        assert await store.claim_spans("t1") == before
        await store.post(InboxItem("t1", "q-1", InboxKind.ANSWER))
        claim = await other.claim("t1")
        await other.append(claim, (), written.status, ("q-1",))
        assert await store.claim_spans("t1") == before
        at = len(written.facts) + 1
        await other.append(claim, written.abort(), written.status)
        assert await _who(store) == [(1, 1, store.owner), (at, 3, other.owner)]
        assert (await store.claim_spans("t1"))[:1] == before

    async def test_a_turn_that_is_taken_over_from_a_dead_driver_has_both(self, bench: Bench) -> None:
        """A dead driver's late facts are not written, and it has no span for them."""
        store, written = await bench.open(), Written()
        loser, name = await written.create(store), store.owner
        at = len(written.facts) + 1
        await bench.bury(store)
        other = await bench.open()
        winner = await other.claim("t1")
        facts = written.answer()
        with pytest.raises(LeaseLostError):
            await store.append(loser, facts, written.status)
        assert await _who(other) == [(1, 1, name)]
        await other.append(winner, facts, written.status)
        with pytest.raises(LeaseLostError):
            await store.append(loser, facts, written.status)
        assert await _who(other) == [(1, 1, name), (at, 2, other.owner)]

    async def test_who_is_overtaken_before_its_first_fact_has_no_span(self, bench: Bench) -> None:
        """The lost claim has raised the epoch all the same."""
        store, other, third, written = await bench.open(), await bench.open(), await bench.open(), Written()
        await store.release(await written.create(store))
        loser = await other.claim("t1")
        winner = await third.claim("t1", abandoned=AbandonedDrivers(frozenset({other.owner})))
        at, facts = len(written.facts) + 1, written.answer()
        with pytest.raises(LeaseLostError):
            await other.append(loser, facts, written.status)
        await third.append(winner, facts, written.status)
        assert await _who(store) == [(1, 1, store.owner), (at, 3, third.owner)]

    async def test_an_append_that_failed_is_signed_when_it_is_made_again(self, bench: Bench) -> None:
        """The span begins with the first fact that was written."""
        store, other, written = await bench.open(), await bench.open(), Written()
        await store.release(await written.create(store))
        claim, at = await other.claim("t1"), len(written.facts) + 1
        claim.seq = 0
        facts = written.answer()
        with pytest.raises(StoreError):
            await other.append(claim, facts, written.status)
        claim.seq = at - 1
        assert await _who(store) == [(1, 1, store.owner)]
        await other.append(claim, facts, written.status)
        assert await _who(store) == [(1, 1, store.owner), (at, 2, other.owner)]

    async def test_what_was_written_for_others_to_drive_is_its_submitter_s(self, bench: Bench) -> None:
        """The submitter has a span of epoch 0, before that of the driver, which may be the same process."""
        store, other = await bench.open(), await bench.open()
        for turn_id, driver in (("t1", other), ("t2", store)):
            written = Written(turn_id)
            await store.create(written.new, written.facts, written.status, driven=False)
            assert await _who(other, turn_id) == [(1, 0, store.owner)]
            claim, at = await driver.claim(turn_id), len(written.facts) + 1
            await driver.append(claim, written.answer(), written.status)
            assert await _who(other, turn_id) == [(1, 0, store.owner), (at, 1, driver.owner)]

    async def test_claim_spans_of_turns_that_write_at_once_do_not_meet(self, bench: Bench) -> None:
        """Each begins with the first fact of its own turn, in whatever order they are written."""
        store, other = await bench.open(), await bench.open()
        turns = [Written(f"t{n}") for n in range(8)]
        places: dict[str, int] = {}

        async def drive(written: Written) -> None:
            claim = await other.claim(written.new.id)
            places[written.new.id] = len(written.facts) + 1
            for name in ("read_file", "write_file"):
                facts = written.calls(name) if name == "read_file" else written.abort()
                await other.append(claim, facts, written.status)

        for written in turns:
            await store.release(await written.create(store))
        async with anyio.create_task_group() as group:
            for written in turns:
                group.start_soon(drive, written)
        for name, at in places.items():
            assert await _who(store, name) == [(1, 1, store.owner), (at, 2, other.owner)]
        assert len(places) == len(turns)

    async def test_a_turn_made_anew_has_no_span_of_the_one_deleted(self, bench: Bench) -> None:
        """Neither a deleted turn nor an unknown one has spans."""
        store, other, first = await bench.open(), await bench.open(), Written()
        await store.release(await first.create(store))
        claim = await other.claim("t1")
        await other.append(claim, first.answer(), first.status)
        await other.release(claim)
        await store.delete("t1")
        for turn_id in ("t1", "nobody"):
            for handle in (store, other):
                with pytest.raises(TurnNotFoundError, match=turn_id):
                    await handle.claim_spans(turn_id)
        await Written(prompt="again").create(other)
        assert await _who(store) == [(1, 1, other.owner)]

    async def test_a_turn_that_was_refused_has_no_span(self, bench: Bench) -> None:
        """The existing turn with that id keeps its own spans."""
        store, other, written = await bench.open(), await bench.open(), Written()
        await written.create(store)
        with suppress(StoreError):
            await Written(prompt="other").create(other)
        assert await _who(other) == [(1, 1, store.owner)]
