"""The contract of a store for calls at once: of many turns, inline, canceled, and in an order that explains them."""

from functools import partial
from typing import Final

import anyio
import pytest
from anyio.lowlevel import checkpoint

from turnwright.errors import LeaseLostError, SessionBusyError, TurnExistsError
from turnwright.store import Claim, InboxItem, InboxKind, Store
from turnwright_testing.linearizability import explain_history, record_history

from .bench import Bench, StoreFacts, Written

#: More than a store may take for few.
_MANY: Final = 40
#: Histories that are recorded. What goes wrong between calls need not do so at the first time.
_HISTORIES: Final = 12


class _Driven:
    """A turn that the test has made and drives, with a message in its inbox. `fenced`: it lost its claim."""

    def __init__(self, draft: Written, claim: Claim) -> None:
        self.draft, self.claim = draft, claim
        self.id = draft.new.id
        self.before = list(draft.facts)
        self.fenced = False

    async def append(self, store: Store) -> None:
        facts = self.draft.calls("read_file", "read_file")
        try:
            waiting = await store.append(self.claim, facts, self.draft.status, ("steer",))
        except LeaseLostError:
            self.fenced = True
        else:
            assert waiting == []
            assert self.claim.seq == len(self.draft.facts)

    async def end(self, store: Store) -> None:
        await store.append(self.claim, self.draft.abort(), self.draft.status)
        await store.release(self.claim)


async def _drive_turns(store: Store) -> list[_Driven]:
    turns: list[_Driven] = []
    for n in range(_MANY):
        draft = Written(f"t{n}", session=f"s{n}")
        turns.append(_Driven(draft, await draft.create(store)))
        await store.post(InboxItem(f"t{n}", "steer", InboxKind.STEER))
    return turns


class CrowdFacts(StoreFacts):
    async def test_an_append_that_is_inline_lets_nobody_else_run(
        self, store: Store, draft: Written, claim: Claim
    ) -> None:
        """Neither the append nor a read of the inbox before it suspends, not even once."""
        for write in (partial(draft.calls, "read_file"), draft.abort):
            inline, facts = store.inline, write()
            looking, appending = store.inbox("t1"), store.append(claim, facts, draft.status)
            if inline:
                for call in (looking, appending):
                    with pytest.raises(StopIteration) as stop:
                        call.send(None)
                    assert stop.value.value == []
            else:
                assert (await looking, await appending) == ([], [])
        assert await store.facts("t1") == list(enumerate(draft.facts, start=1))

    async def test_no_append_is_inline_while_another_is_under_way(self, store: Store) -> None:
        """Otherwise an append could overtake another one of the same turn."""
        turns = await _drive_turns(store)
        starts, ends = 0, 0

        async def append(turn: _Driven) -> None:
            nonlocal starts, ends
            starts += 1
            await turn.append(store)
            ends += 1

        async with anyio.create_task_group() as group:
            for number, turn in enumerate(turns):
                group.start_soon(append, turn)
                if number % 3 == 0:  # now and then somebody comes while others wait
                    await checkpoint()
                assert not (store.inline and starts > ends)
            while ends < len(turns):
                assert not (store.inline and starts > ends)
                await checkpoint()

    async def test_simultaneous_appends_of_many_turns_are_all_written(self, store: Store, other_store: Store) -> None:
        """Every process reads the facts, the status and the consumed items, and the ends and releases too."""
        turns = await _drive_turns(store)

        async def drive(turn: _Driven) -> None:
            await turn.append(store)
            await turn.end(store)

        async with anyio.create_task_group() as group:
            for turn in turns:
                group.start_soon(drive, turn)
        for turn in turns:
            assert await other_store.facts(turn.id) == list(enumerate(turn.draft.facts, start=1))
            row = await other_store.get(turn.id)
            assert (row.status, row.owner, row.epoch) == (turn.draft.status, None, 1)
            assert await other_store.inbox(turn.id) == []
            await Written(f"{turn.id}-next", session=turn.draft.new.session).create(other_store)

    async def test_only_an_overtaken_append_fails(self, bench: Bench, store: Store) -> None:
        """Of appends at once, those without a claim get `LeaseLostError` and write nothing; all others succeed."""
        turns = await _drive_turns(store)
        await bench.bury(store)
        other_store = await bench.open()
        overtaken = turns[3::7]
        for turn in overtaken:
            await other_store.claim(turn.id)
        async with anyio.create_task_group() as group:
            for turn in turns:
                group.start_soon(turn.append, store)
        assert [turn.id for turn in turns if turn.fenced] == [turn.id for turn in overtaken]
        for turn in turns:
            kept_facts = turn.before if turn.fenced else turn.draft.facts
            assert await other_store.facts(turn.id) == list(enumerate(kept_facts, start=1))
            assert [item.id for item in await other_store.inbox(turn.id)] == ["steer"] * turn.fenced
            assert turn.claim.seq == len(kept_facts)

    async def test_turns_that_are_made_at_once_are_kept_out_alone(self, store: Store, other_store: Store) -> None:
        """A taken id or a session's live turn refuses one turn; all others are created and driven."""
        await Written("t3").create(store)
        await Written("old", session="s5").create(store)
        refusals: dict[str, type[Exception]] = {}

        async def make(number: int) -> None:
            try:
                await Written(f"t{number}", session=f"s{number}").create(store)
            except (TurnExistsError, SessionBusyError) as error:
                refusals[f"t{number}"] = type(error)

        async with anyio.create_task_group() as group:
            for number in range(_MANY):
                group.start_soon(make, number)
        assert refusals == {"t3": TurnExistsError, "t5": SessionBusyError}
        assert len(await other_store.turns()) == _MANY  # two that were there, and all but two
        for number in set(range(_MANY)) - {5}:
            assert await other_store.is_driven(f"t{number}")

    async def test_a_canceled_append_is_written_completely_or_not_at_all(
        self, store: Store, other_store: Store
    ) -> None:
        """A canceled one: its claim shows whether it was written, and others are not harmed."""
        turns = await _drive_turns(store)

        async def append(turn: _Driven, *, cancelled: bool) -> None:
            with anyio.CancelScope() as scope:
                if cancelled:
                    group.start_soon(cancel, scope)
                await turn.append(store)

        async def cancel(scope: anyio.CancelScope) -> None:
            scope.cancel()

        async with anyio.create_task_group() as group:
            for number, turn in enumerate(turns):
                group.start_soon(partial(append, turn, cancelled=number % 3 == 0))
        for number, turn in enumerate(turns):
            kept_facts = turn.before if turn.claim.seq == len(turn.before) else turn.draft.facts
            assert await other_store.facts(turn.id) == list(enumerate(kept_facts, start=1))
            assert number % 3 == 0 or kept_facts == turn.draft.facts
            assert turn.claim.seq == len(kept_facts)
            await store.append(turn.claim, turn.draft.facts[len(kept_facts) :], turn.draft.status)

    async def test_calls_at_once_have_an_order(self, bench: Bench) -> None:
        """Clients create, claim, append, post, release, delete and read; some turns are taken from living owners."""
        stores = [await bench.open() for _ in range(3)]
        for seed in range(_HISTORIES):
            explanation = explain_history((await record_history(stores, seed)).operations)
            assert not explanation.stuck, str(explanation)

    async def test_calls_at_once_have_an_order_when_processes_die(self, bench: Bench) -> None:
        """Processes look dead in the middle of their calls, and go on, as after a stall."""
        for seed in range(100, 100 + _HISTORIES // 2):
            stores = [await bench.open() for _ in range(3)]
            explanation = explain_history((await record_history(stores, seed, bury=bench.bury)).operations)
            assert not explanation.stuck, str(explanation)
