"""What every store must do, as pytest tests that run over any store.

    class TestMyStore(StoreSuite):
        @pytest.fixture
        async def bench(self) -> AsyncIterator[Bench]:
            ...

The tests are marked `anyio` and run on its pytest plugin. Source: DESIGN 5, and `turnwright.store.Store`.
"""

# ruff: noqa: S101 (pytest's asserts are what a suite of tests consists of)

from collections.abc import Sequence
from typing import Final, Protocol

import anyio
import pytest

from turnwright.errors import Fenced, SessionBusy, StoreError, TurnBusy, UnknownTurn
from turnwright.store import Claim, InboxItem, InboxKind, NewTurn, Status, Store
from turnwright_states import (
    Abort,
    CallWaits,
    EndReason,
    InterruptKind,
    ModelReplied,
    Outcome,
    Started,
    State,
    ToolCall,
    TurnMachine,
    Usage,
    fold,
)
from turnwright_states.facts import Fact

_T0: Final = 1_700_000_000.0


class Bench(Protocol):
    """The place where the store under test keeps its data, empty at first."""

    async def open(self) -> Store:
        """Open the store there, as one process would. Each call is another process, where the store allows several."""
        ...

    async def bury(self, store: Store) -> None:
        """Make the process behind `store` look dead to the others. The handle works on: a zombie, to be fenced."""
        ...


class Written:
    """A turn that a test writes by hand: its machine, its claim, and the facts that should be in the store."""

    def __init__(self, turn_id: str = "t1", *, session: str | None = None, prompt: str = "hi", age: float = 0) -> None:
        self.machine, first = TurnMachine.start(Started(prompt=prompt, session=session))
        self.facts: list[Fact] = list(first)
        self.new = NewTurn(id=turn_id, session=session, agent="Tidier", model="scripted", created_at=_T0 - age)

    @property
    def status(self) -> Status:
        """The status after the facts so far."""
        return Status.of(self.machine.turn)

    async def create(self, store: Store) -> Claim:
        """Write the turn."""
        return await store.create(self.new, self.facts, self.status)

    def calls(self, *names: str, text: str = "") -> Sequence[Fact]:
        """The facts of a reply that asks for these tools."""
        calls = tuple(ToolCall(name=name, arguments={"n": 1}) for name in names)
        return self._keep(
            self.machine.feed(ModelReplied(text=text, calls=calls, usage=Usage(input_tokens=3, cost=0.1), elapsed=0.5))
        )

    def answer(self, text: str = "done") -> Sequence[Fact]:
        """The facts of a reply that ends the turn."""
        return self._keep(self.machine.feed(ModelReplied(text=text, elapsed=1.25)))

    def pause(self) -> Sequence[Fact]:
        """The facts of a reply whose one call waits for a person."""
        asked = list(self.machine.feed(ModelReplied(calls=(ToolCall(name="delete_file", arguments={}),), elapsed=0.5)))
        (call,) = self.machine.turn.batch
        return self._keep(asked + self.machine.feed(CallWaits(call=call, interrupt_kind=InterruptKind.APPROVAL)))

    def abort(self) -> Sequence[Fact]:
        """The facts of an abort."""
        return self._keep(self.machine.feed(Abort(elapsed=2)))

    def _keep(self, facts: list[Fact]) -> Sequence[Fact]:
        self.facts += facts
        return facts


@pytest.mark.anyio
class StoreSuite:
    """Subclass it, and define a fixture `bench` that gives a `Bench`."""

    async def test_a_new_turn_is_claimed_by_who_made_it(self, bench: Bench) -> None:
        """It has its first facts, epoch 1, and an owner."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        assert (claim.turn, claim.epoch, claim.seq, claim.crashed) == ("t1", 1, len(written.facts), False)
        assert await store.is_driven("t1")
        row = await store.get("t1")
        assert (row.id, row.session, row.agent, row.model, row.created_at) == ("t1", None, "Tidier", "scripted", _T0)
        assert (row.epoch, row.status) == (1, written.status)
        assert row.owner is not None

    async def test_facts_come_back_as_they_were_written(self, bench: Bench) -> None:
        """Oldest first, numbered from 1, equal field by field, the hash among them."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        await store.append(claim, written.calls("read_file", "read_file"), written.status)
        await store.append(claim, written.abort(), written.status)
        assert await store.facts("t1") == list(enumerate(written.facts, start=1))
        assert await store.facts("t1", after=2) == list(enumerate(written.facts, start=1))[2:]
        assert await store.facts("t1", after=len(written.facts)) == []

    async def test_any_text_comes_back(self, bench: Bench) -> None:
        """Quotes, control characters, every plane of Unicode, and a megabyte."""
        text = "'\"\\ \x00\x1f\u2028 é 漢 🙂\U0010ffff" + "x" * 2**20
        store, written = await bench.open(), Written(prompt=text)
        claim = await written.create(store)
        await store.append(claim, written.answer(text), written.status)
        assert await store.facts("t1") == list(enumerate(written.facts, start=1))

    async def test_an_append_moves_the_claim_and_the_status(self, bench: Bench) -> None:
        """In one step: what a query sees is what the journal says."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        facts = written.answer()
        assert await store.append(claim, facts, written.status) == len(written.facts)
        assert claim.seq == len(written.facts)
        status = (await store.get("t1")).status
        assert (status.state, status.reason, status.steps) == (State.FINISHED, EndReason.ANSWERED, 1)
        assert status.outcome is Outcome.FINISHED

    async def test_an_append_says_when_it_was(self, bench: Bench) -> None:
        """`updated_at` is the time of the last append; `created_at` stays."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        await store.append(claim, written.answer(), written.status)
        row = await store.get("t1")
        assert row.created_at == _T0 < row.updated_at

    async def test_a_turn_that_is_driven_is_busy(self, bench: Bench) -> None:
        """For its own process as for any other; the epoch stays."""
        store, other, written = await bench.open(), await bench.open(), Written()
        claim = await written.create(store)
        for handle in (store, other):
            assert await handle.is_driven("t1")
            with pytest.raises(TurnBusy, match="t1"):
                await handle.claim("t1")
        await store.append(claim, written.answer(), written.status)

    async def test_a_turn_that_was_let_go_of_can_be_claimed(self, bench: Bench) -> None:
        """By anybody, with the next epoch, and it does not look crashed."""
        store, other, written = await bench.open(), await bench.open(), Written()
        await store.release(await written.create(store))
        assert not await store.is_driven("t1")
        assert (await store.get("t1")).owner is None
        claim = await other.claim("t1")
        assert (claim.epoch, claim.seq, claim.crashed) == (2, len(written.facts), False)
        assert await store.is_driven("t1")

    async def test_a_crash_may_be_left_for_the_next_one_to_account_for(self, bench: Bench) -> None:
        """Who claimed a crashed turn and could not drive it lets go, and the next claim is told of the crash still."""
        store, other, written = await bench.open(), await bench.open(), Written()
        await store.release(await written.create(store), crashed=True)
        assert not await store.is_driven("t1")
        assert not await other.is_driven("t1")
        claim = await other.claim("t1")
        assert (claim.epoch, claim.crashed) == (2, True)
        await other.release(claim)
        assert not (await store.claim("t1")).crashed

    async def test_a_turn_whose_driver_died_can_be_claimed(self, bench: Bench) -> None:
        """The claim says that nobody let go."""
        store, written = await bench.open(), Written()
        await written.create(store)
        await bench.bury(store)
        other = await bench.open()
        assert not await other.is_driven("t1")
        claim = await other.claim("t1")
        assert (claim.epoch, claim.seq, claim.crashed) == (2, len(written.facts), True)

    async def test_who_was_overtaken_writes_nothing(self, bench: Bench) -> None:
        """An append under an old epoch is `Fenced`: no fact, no status, no item of the inbox consumed."""
        store, written = await bench.open(), Written()
        loser = await written.create(store)
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        await bench.bury(store)
        other = await bench.open()
        winner = await other.claim("t1")
        before = list(written.facts)
        with pytest.raises(Fenced, match="t1"):
            await store.append(loser, written.abort(), written.status, ("abort",))
        assert loser.seq == len(before)
        assert await other.facts("t1") == list(enumerate(before, start=1))
        assert (await other.get("t1")).status.outcome is None
        assert [item.id for item in await other.inbox("t1")] == ["abort"]
        assert await other.append(winner, written.facts[len(before) :], written.status) == len(written.facts)

    async def test_who_was_overtaken_does_not_let_go_for_the_winner(self, bench: Bench) -> None:
        """A release under an old epoch changes nothing."""
        store, written = await bench.open(), Written()
        loser = await written.create(store)
        await bench.bury(store)
        other = await bench.open()
        winner = await other.claim("t1")
        await store.release(loser)
        assert await other.is_driven("t1")
        assert (await other.get("t1")).epoch == winner.epoch
        with pytest.raises(TurnBusy):
            await other.claim("t1")

    async def test_who_lets_go_twice_does_not_let_go_for_the_next_one(self, bench: Bench) -> None:
        """Also where both are of one process: the second release is under an old epoch."""
        store, written = await bench.open(), Written()
        first = await written.create(store)
        await store.release(first)
        second = await store.claim("t1")
        await store.release(first)
        assert await store.is_driven("t1")
        with pytest.raises(TurnBusy):
            await store.claim("t1")
        await store.append(second, written.answer(), written.status)

    async def test_of_two_that_claim_at_once_one_gets_the_turn(self, bench: Bench) -> None:
        """The other is told that it is busy, and the epoch goes up by one."""
        store, written = await bench.open(), Written()
        handles = [store, await bench.open(), await bench.open()]
        await store.release(await written.create(store))
        claims: list[Claim] = []
        refused: list[TurnBusy] = []

        async def claim(handle: Store) -> None:
            try:
                claims.append(await handle.claim("t1"))
            except TurnBusy as busy:
                refused.append(busy)

        async with anyio.create_task_group() as group:
            for handle in handles:
                group.start_soon(claim, handle)
        assert [claim.epoch for claim in claims] == [2]
        assert len(refused) == len(handles) - 1

    async def test_a_crash_that_nobody_has_accounted_for_has_no_owner_by_name(self, bench: Bench) -> None:
        """`owner` is empty then, and None only where somebody let go."""
        store, written = await bench.open(), Written()
        await store.release(await written.create(store), crashed=True)
        assert (await store.get("t1")).owner == ""

    async def test_an_unknown_turn_is_said_to_be_unknown(self, bench: Bench) -> None:
        """By everything that needs it to be there."""
        store = await bench.open()
        for call in (store.get, store.facts, store.claim, store.is_driven):
            with pytest.raises(UnknownTurn, match="nobody"):
                await call("nobody")
        with pytest.raises(UnknownTurn, match="nobody"):
            await store.post(InboxItem("nobody", "abort", InboxKind.ABORT))

    async def test_a_turn_is_written_once(self, bench: Bench) -> None:
        """An id that is there already is refused, and the first turn stays as it was."""
        store, written = await bench.open(), Written()
        await written.create(store)
        with pytest.raises(StoreError):
            await Written(prompt="other").create(store)
        assert await store.facts("t1") == list(enumerate(written.facts, start=1))

    async def test_anybody_may_post_to_a_turn_that_is_driven(self, bench: Bench) -> None:
        """Without a claim; each item is there until it is consumed, oldest first."""
        store, other, written = await bench.open(), await bench.open(), Written()
        claim = await written.create(store)
        answer = InboxItem("t1", "answer:q-1", InboxKind.ANSWER, '{"text": "é"}')
        assert await other.post(answer)
        assert await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        assert [(item.id, item.kind, item.payload) for item in await store.inbox("t1")] == [
            ("answer:q-1", InboxKind.ANSWER, '{"text": "é"}'),
            ("abort", InboxKind.ABORT, "{}"),
        ]
        await store.append(claim, (), written.status, ("answer:q-1", "never posted"))
        assert [item.id for item in await other.inbox("t1")] == ["abort"]
        assert claim.seq == len(written.facts)

    async def test_the_same_item_is_posted_once(self, bench: Bench) -> None:
        """The first one stays; whoever comes second is told."""
        store, written = await bench.open(), Written()
        await written.create(store)
        first = InboxItem("t1", "answer:q-1", InboxKind.ANSWER, '{"text": "yes"}')
        assert await store.post(first)
        assert not await store.post(first)
        assert not await store.post(InboxItem("t1", "answer:q-1", InboxKind.ANSWER, '{"text": "no"}'))
        assert [item.payload for item in await store.inbox("t1")] == ['{"text": "yes"}']

    async def test_the_inbox_outlives_its_driver(self, bench: Bench) -> None:
        """An abort that was not consumed is there for the next one."""
        store, written = await bench.open(), Written()
        await written.create(store)
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        await bench.bury(store)
        other = await bench.open()
        await other.claim("t1")
        assert [item.id for item in await other.inbox("t1")] == ["abort"]

    async def test_a_session_has_one_live_turn(self, bench: Bench) -> None:
        """A second one is refused, by every handle, and leaves no trace."""
        store, other, written = await bench.open(), await bench.open(), Written("t1", session="s1")
        claim = await written.create(store)
        for handle in (store, other):
            with pytest.raises(SessionBusy, match="t1") as busy:
                await Written("t2", session="s1").create(handle)
            assert (busy.value.session, busy.value.turn) == ("s1", "t1")
            with pytest.raises(UnknownTurn):
                await handle.get("t2")
        await Written("t3", session="s2").create(store)
        await store.append(claim, written.answer(), written.status)
        await Written("t4", session="s1").create(other)

    async def test_a_turn_at_rest_is_live(self, bench: Bench) -> None:
        """It has not ended, so its session is busy, although nobody drives it."""
        store, other, written = await bench.open(), await bench.open(), Written("t1", session="s1")
        claim = await written.create(store)
        await store.append(claim, written.pause(), written.status)
        await store.release(claim)
        for handle in (store, other):
            with pytest.raises(SessionBusy, match="t1"):
                await Written("t2", session="s1").create(handle)
            assert [row.id for row in await handle.turns(live=True)] == ["t1"]

    async def test_the_status_can_be_rebuilt_from_the_facts(self, bench: Bench) -> None:
        """It is a copy: the fold of what is stored says the same."""
        store, written = await bench.open(), Written()
        claim = await written.create(store)
        for facts in (written.calls("read_file"), written.abort()):
            await store.append(claim, facts, written.status)
        stored = fold(fact for _, fact in await store.facts("t1"))
        assert (await store.get("t1")).status == Status.of(stored)

    async def test_turns_without_a_session_are_in_nobodys_way(self, bench: Bench) -> None:
        """Any number of them may be live."""
        store = await bench.open()
        for turn_id in ("t1", "t2"):
            await Written(turn_id).create(store)
        assert len(await store.turns(live=True)) == 2  # noqa: PLR2004 (both)

    async def test_turns_are_listed_newest_first(self, bench: Bench) -> None:
        """All, those of a session, the live, the ended, and no more than asked for."""
        store = await bench.open()
        for turn_id, session, age in (("old", "s1", 30), ("mid", "s1", 20), ("new", "s2", 10)):
            written = Written(turn_id, session=session, age=age)
            claim = await written.create(store)
            if turn_id != "new":
                await store.append(claim, written.answer(), written.status)

        async def listed(
            session: str | None = None, *, live: bool | None = None, limit: int | None = None
        ) -> list[str]:
            return [row.id for row in await store.turns(session=session, live=live, limit=limit)]

        assert await listed() == ["new", "mid", "old"]
        assert await listed("s1") == ["mid", "old"]
        assert await listed(live=True) == ["new"]
        assert await listed(live=False) == ["mid", "old"]
        assert await listed("s1", live=True) == []
        assert await listed(limit=1) == ["new"]

    async def test_turns_do_not_meet(self, bench: Bench) -> None:
        """Each has its own numbering, its own epoch and its own inbox."""
        store, one, two = await bench.open(), Written("t1"), Written("t2", prompt="other")
        first, second = await one.create(store), await two.create(store)
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        await store.append(second, two.answer(), two.status, ("abort",))
        await store.append(first, one.calls("read_file"), one.status)
        assert await store.facts("t1") == list(enumerate(one.facts, start=1))
        assert await store.facts("t2") == list(enumerate(two.facts, start=1))
        assert [item.id for item in await store.inbox("t1")] == ["abort"]
        assert await store.inbox("t2") == []

    async def test_another_process_reads_what_was_appended(self, bench: Bench) -> None:
        """At once, and without a claim."""
        store, other, written = await bench.open(), await bench.open(), Written()
        claim = await written.create(store)
        await store.append(claim, written.calls("read_file"), written.status)
        assert await other.facts("t1") == list(enumerate(written.facts, start=1))
        assert (await other.get("t1")).status == written.status
