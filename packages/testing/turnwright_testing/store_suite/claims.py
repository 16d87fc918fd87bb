"""The contract of a store for claims: one driver a turn, and a driver that lost its claim writes nothing."""

from contextlib import suppress
from typing import Final

import anyio
import pytest

from turnwright.errors import LeaseLostError, TurnBusyError, TurnNotFoundError
from turnwright.store import NOBODY, QUEUED, AbandonedDrivers, Claim, InboxItem, InboxKind, Store

from .bench import NOW, Bench, StoreFacts, Written

#: How often two calls are made at once: what goes wrong between them need not do so at the first time.
_TIMES: Final = 20


class ClaimFacts(StoreFacts):
    async def test_new_turn_is_claimed_by_its_creator(self, store: Store, draft: Written, claim: Claim) -> None:
        """The turn has its first facts, epoch 1, and an owner."""
        assert (claim.turn, claim.epoch, claim.seq, claim.crashed) == ("t1", 1, len(draft.facts), False)
        assert await store.is_driven("t1")
        row = await store.get("t1")
        assert (row.id, row.session, row.agent, row.model, row.created_at) == ("t1", None, "Tidier", "scripted", NOW)
        assert (row.epoch, row.status) == (1, draft.status)
        assert row.owner is not None

    async def test_a_turn_that_is_driven_is_busy(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """The turn is busy for its own process as for any other; the error names the owner, and the epoch stays."""
        for handle in (store, other_store):
            assert await handle.is_driven("t1")
            with pytest.raises(TurnBusyError) as busy:
                await handle.claim("t1")
            assert busy.value.turn == "t1"
            assert busy.value.owner
        await store.append(claim, draft.answer(), draft.status)

    async def test_append_names_the_lost_claim(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """The error has its turn and its epoch, whether the append has facts or only a status."""
        await store.release(claim)
        await other_store.claim("t1")
        for facts in ((), draft.calls("read_file")):
            with pytest.raises(LeaseLostError) as error_info:
                await store.append(claim, facts, draft.status)
            assert (error_info.value.turn, error_info.value.epoch) == ("t1", claim.epoch)

    async def test_a_released_turn_can_be_claimed(self, store: Store, other_store: Store, draft: Written) -> None:
        """Any process can claim a released turn, with the next epoch, and it does not look crashed."""
        await store.release(await draft.create(store))
        assert not await store.is_driven("t1")
        assert (await store.get("t1")).owner is None
        claim = await other_store.claim("t1")
        assert (claim.epoch, claim.seq, claim.crashed) == (2, len(draft.facts), False)
        assert await store.is_driven("t1")

    async def test_a_crash_may_be_left_for_the_next_one_to_account_for(
        self, store: Store, other_store: Store, draft: Written
    ) -> None:
        """A process that claimed a crashed turn and released it unused: the next claim still reports the crash."""
        await store.release(await draft.create(store), crashed=True)
        assert not await store.is_driven("t1")
        assert not await other_store.is_driven("t1")
        claim = await other_store.claim("t1")
        assert (claim.epoch, claim.crashed) == (2, True)
        await other_store.release(claim)
        assert not (await store.claim("t1")).crashed

    async def test_a_crash_that_nobody_has_accounted_for_has_no_owner_by_name(
        self, store: Store, draft: Written
    ) -> None:
        """`owner` is `NOBODY` then, and None only after a release."""
        await store.release(await draft.create(store), crashed=True)
        assert (await store.get("t1")).owner == NOBODY

    async def test_turn_of_a_dead_driver_can_be_claimed(self, bench: Bench, store: Store, draft: Written) -> None:
        """The claim reports that the turn was not released."""
        await draft.create(store)
        await bench.bury(store)
        other_store = await bench.open()
        assert not await other_store.is_driven("t1")
        claim = await other_store.claim("t1")
        assert (claim.epoch, claim.seq, claim.crashed) == (2, len(draft.facts), True)

    async def test_overtaken_driver_writes_nothing(self, bench: Bench, store: Store, draft: Written) -> None:
        """An append under an old epoch is `LeaseLostError`: no fact, no status, no item of the inbox consumed."""
        loser = await draft.create(store)
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        await bench.bury(store)
        other_store = await bench.open()
        winner = await other_store.claim("t1")
        before = list(draft.facts)
        with pytest.raises(LeaseLostError, match="t1"):
            await store.append(loser, draft.abort(), draft.status, ("abort",))
        assert loser.seq == len(before)
        assert await other_store.facts("t1") == list(enumerate(before, start=1))
        assert (await other_store.get("t1")).status.outcome is None
        assert [item.id for item in await other_store.inbox("t1")] == ["abort"]
        await other_store.append(winner, draft.facts[len(before) :], draft.status)
        assert winner.seq == len(draft.facts)

    async def test_an_overtaken_driver_does_not_release_the_turn_of_the_winner(
        self, bench: Bench, store: Store, draft: Written
    ) -> None:
        """A release under an old epoch changes nothing."""
        loser = await draft.create(store)
        await bench.bury(store)
        other_store = await bench.open()
        winner = await other_store.claim("t1")
        await store.release(loser)
        assert await other_store.is_driven("t1")
        assert (await other_store.get("t1")).epoch == winner.epoch
        with pytest.raises(TurnBusyError):
            await other_store.claim("t1")

    async def test_a_second_release_does_not_release_the_turn_of_the_next_driver(
        self, store: Store, draft: Written
    ) -> None:
        """The second release is under an old epoch, also where both owners are of one process."""
        first = await draft.create(store)
        await store.release(first)
        second = await store.claim("t1")
        await store.release(first)
        assert await store.is_driven("t1")
        with pytest.raises(TurnBusyError):
            await store.claim("t1")
        await store.append(second, draft.answer(), draft.status)

    async def test_owner_of_a_turn_is_the_name_of_its_driver(
        self, store: Store, other_store: Store, claim: Claim
    ) -> None:
        """The row names the driver's store as owner from the claim on, and nobody after the release."""
        assert (await other_store.get("t1")).owner == store.owner
        await store.release(claim)
        assert (await store.get("t1")).owner is None
        await other_store.claim("t1")
        assert (await store.get("t1")).owner == other_store.owner

    async def test_a_turn_is_taken_over_from_an_owner_that_was_given_up(
        self, store: Store, other_store: Store, draft: Written
    ) -> None:
        """Even a living driver loses the turn: its release changes nothing, and the claim reports no release."""
        loser = await draft.create(store)
        before = len(draft.facts)
        winner = await other_store.claim(
            "t1", abandoned=AbandonedDrivers(frozenset({"nobody that we know", store.owner}))
        )
        assert (winner.epoch, winner.seq, winner.crashed) == (2, before, True)
        with pytest.raises(LeaseLostError, match="t1"):
            await store.append(loser, draft.answer(), draft.status)
        await store.release(loser)
        assert (await store.get("t1")).owner == other_store.owner
        assert await store.is_driven("t1")
        await other_store.append(winner, draft.facts[before:], draft.status)
        assert winner.seq == len(draft.facts)
        await other_store.release(winner)
        assert (await store.get("t1")).owner is None

    async def test_a_turn_is_not_taken_over_from_an_owner_that_was_not_named(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """The turn is busy, even if other owners are abandoned; the epoch stays."""
        for handle in (store, other_store):
            with pytest.raises(TurnBusyError, match="t1"):
                await handle.claim("t1", abandoned=AbandonedDrivers(frozenset({NOBODY, f"not {store.owner}"})))
        await store.append(claim, draft.answer(), draft.status)

    async def test_a_later_claim_of_an_owner_that_was_given_up_stands(
        self, store: Store, other_store: Store, draft: Written
    ) -> None:
        """With known claims, only these are abandoned, and no others."""
        await store.release(await draft.create(store))
        claim = await store.claim("t1")
        with pytest.raises(TurnBusyError, match="t1"):
            await other_store.claim(
                "t1", abandoned=AbandonedDrivers(frozenset({store.owner}), frozenset({claim.epoch - 1}))
            )
        abandoned_drivers = AbandonedDrivers(frozenset({store.owner}), frozenset({claim.epoch - 1, claim.epoch}))
        assert (await other_store.claim("t1", abandoned=abandoned_drivers)).epoch == claim.epoch + 1

    async def test_a_turn_may_be_made_for_others_to_drive(
        self, store: Store, other_store: Store, draft: Written
    ) -> None:
        """Such a turn has no driver and epoch 0; its first claim finds all facts, and reports no crash."""
        await store.create(draft.new, draft.facts, draft.status, driven=False)
        for handle in (store, other_store):
            row = await handle.get("t1")
            assert (row.owner, row.epoch, await handle.is_driven("t1")) == (None, 0, False)
            assert (row.status.state, (await handle.turns())[0].status.state) == (QUEUED, QUEUED)
        claim = await other_store.claim("t1")
        assert (claim.epoch, claim.seq, claim.crashed) == (1, len(draft.facts), False)
        assert (await store.get("t1")).status == draft.status
        await other_store.append(claim, draft.answer(), draft.status)
        assert await store.facts("t1") == list(enumerate(draft.facts, start=1))

    async def test_an_owner_that_was_given_up_need_not_have_the_turn(
        self, store: Store, other_store: Store, draft: Written
    ) -> None:
        """A released turn can be claimed as usual, and does not look crashed."""
        await store.release(await draft.create(store))
        claim = await other_store.claim("t1", abandoned=AbandonedDrivers(frozenset({store.owner})))
        assert (claim.epoch, claim.crashed) == (2, False)

    async def test_of_two_that_claim_at_once_one_gets_the_turn(
        self, bench: Bench, store: Store, draft: Written
    ) -> None:
        """The other one gets an error that it is busy, and the epoch rises by one."""
        handles = [store, await bench.open(), await bench.open()]
        await store.release(await draft.create(store))
        claims: list[Claim] = []
        refusals: list[TurnBusyError] = []

        async def claim(handle: Store) -> None:
            try:
                claims.append(await handle.claim("t1"))
            except TurnBusyError as busy:
                refusals.append(busy)

        async with anyio.create_task_group() as group:
            for handle in handles:
                group.start_soon(claim, handle)
        assert [claim.epoch for claim in claims] == [2]
        assert len(refusals) == len(handles) - 1

    async def test_of_two_that_claim_at_once_through_one_handle_one_gets_the_turn(
        self, store: Store, draft: Written
    ) -> None:
        """Of two calls of one process, the second gets an error that the turn is busy, and no claim reports a crash."""
        await store.release(await draft.create(store))
        for epoch in range(2, 2 + _TIMES):
            claims: list[Claim] = []
            async with anyio.create_task_group() as group:
                for _ in range(2):
                    group.start_soon(_claim, store, claims)
            (claim,) = claims
            assert (claim.epoch, claim.crashed) == (epoch, False)
            assert await store.is_driven("t1")
            await store.release(claim)

    async def test_a_claim_during_a_release_of_its_own_process_reports_no_crash(
        self, store: Store, claim: Claim
    ) -> None:
        """The claim succeeds, or fails because the turn is busy."""
        for _ in range(_TIMES):
            claims: list[Claim] = []
            async with anyio.create_task_group() as group:
                group.start_soon(store.release, claim)
                group.start_soon(_claim, store, claims)
            assert not any(claim.crashed for claim in claims)
            claim = claims[0] if claims else await store.claim("t1")
            assert not claim.crashed

    async def test_turn_in_creation_cannot_be_claimed(self, store: Store) -> None:
        """The turn is unknown or busy; its creator drives it."""
        for n in range(_TIMES):
            draft, claims = Written(f"t{n}"), list[Claim]()
            async with anyio.create_task_group() as group:
                group.start_soon(draft.create, store)
                group.start_soon(_claim, store, claims, f"t{n}")
            assert claims == []
            assert (await store.get(f"t{n}")).epoch == 1


async def _claim(store: Store, claims: list[Claim], turn_id: str = "t1") -> None:
    """Add the claim to `claims`, unless another driver has the turn, or the turn does not exist yet."""
    with suppress(TurnBusyError, TurnNotFoundError):
        claims.append(await store.claim(turn_id))
