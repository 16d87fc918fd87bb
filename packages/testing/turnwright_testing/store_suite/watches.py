"""The contract of a store for watches: a wait for a change never lasts longer than its timeout."""

from functools import partial
from typing import Final

import anyio

from turnwright.store import Store
from turnwright_states.facts import Fact

from .bench import StoreFacts, Written

#: Seconds that a wait may take here at most, if the store is right.
_PATIENCE: Final = 10


class WatchFacts(StoreFacts):
    async def test_a_watch_ends_when_the_time_is_over(self, store: Store) -> None:
        """The wait ends although nothing was written, also with a timeout of 0."""
        await Written().create(store)
        async with store.watching("t1") as wait_for_change:
            with anyio.fail_after(_PATIENCE):
                for seconds in (0, 0.01, 0):
                    await wait_for_change(seconds)

    async def test_watcher_sees_later_facts(self, store: Store, other_store: Store, draft: Written) -> None:
        """A write of any process after the block began ends the wait, and the next read shows it."""
        claim = await draft.create(other_store)
        async with store.watching("t1") as wait_for_change:
            for write in (partial(draft.calls, "look"), draft.abort):
                before, facts = len(draft.facts), write()
                new_facts: list[tuple[int, Fact]] = []
                async with anyio.create_task_group() as group:
                    group.start_soon(other_store.append, claim, facts, draft.status)
                    with anyio.fail_after(_PATIENCE):
                        while not new_facts:
                            await wait_for_change(0.01)
                            new_facts = await store.facts("t1", before)
                assert [fact for _, fact in new_facts] == list(facts)

    async def test_turn_can_be_watched_before_its_creation(self, store: Store, other_store: Store) -> None:
        """Several watchers may wait, and one of them may leave before the others."""
        async with store.watching("t1") as wait_for_change, other_store.watching("t1") as elsewhere:
            async with store.watching("t1") as shortly:
                await shortly(0)
            await Written().create(other_store)
            with anyio.fail_after(_PATIENCE):
                await wait_for_change(0.01)
                await elsewhere(0.01)
        assert (await store.get("t1")).id == "t1"

    async def test_watcher_may_wait_again_after_giving_up(self, store: Store) -> None:
        """A canceled wait leaves the watch unchanged."""
        async with store.watching("t1") as wait_for_change:
            with anyio.fail_after(_PATIENCE):
                with anyio.move_on_after(0.01):
                    await wait_for_change(_PATIENCE * 2)
                await wait_for_change(0.01)
