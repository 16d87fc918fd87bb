"""A turn and its journal: a write is complete although its caller is canceled, and an item may be dropped unfed."""

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from turnwright import LeaseLostError, StoreError
from turnwright.errors import UnreadableTurnError
from turnwright.journal.turn_journal import JournalFold, TurnJournal, first_fact, stamp
from turnwright.store import Claim, InboxItem, InboxKind, MemoryStore, NewTurn, SqliteStore, Status, Store
from turnwright_states import (
    CallSettledInput,
    CallStartedInput,
    Limits,
    ModelRepliedInput,
    StartedInput,
    State,
    ToolCall,
    TurnMachine,
    Usage,
)
from turnwright_states.facts import CallSettled, CallStarted, Fact, MessageAdded, StepStarted
from turnwright_testing import FaultyStore
from turnwright_testing.faults import StoreWrapper

pytestmark = pytest.mark.anyio

TURN = "t1"
REPLY = ModelRepliedInput(text="Done.", elapsed=1.0)
ITEMS = tuple(InboxItem(TURN, f"answer:{n}", InboxKind.ANSWER) for n in range(2))


async def journal_on(store: Store, limits: Limits | None = None) -> TurnJournal:
    """A turn that waits for its model, with two items in its inbox."""
    machine, facts = TurnMachine.start(StartedInput(prompt="hi", limits=limits or Limits()))
    new = NewTurn(id=TURN, session=None, agent="Tidier", model="m", created_at=0.0)
    claim = await store.create(new, facts, Status.of(machine.turn))
    await store.post(*ITEMS)
    return await TurnJournal.open(store, claim)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_dropped_item_is_gone_and_nothing_is_written(kind: str, tmp_path: Path) -> None:
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "turns.db")
    journal = await journal_on(store)
    before, row = await store.facts(TURN), await store.get(TURN)
    await journal.drop("answer:0")
    assert await store.inbox(TURN) == [ITEMS[1]]
    assert await store.facts(TURN) == before
    assert (await store.get(TURN)).status == row.status
    await journal.feed(REPLY)
    assert (await store.get(TURN)).status.outcome is not None
    await store.aclose()


async def test_drop_after_a_failed_append_is_refused() -> None:
    """The machine is ahead of the journal then, and so would be the status that is written."""
    store = FaultyStore(MemoryStore(), at=1, heals=True)
    journal = await journal_on(store)
    with pytest.raises(StoreError, match="append 1"):
        await journal.feed(REPLY)
    with pytest.raises(StoreError, match="an earlier append failed"):
        await journal.drop("answer:0")
    assert store.appends == 1
    assert await store.inbox(TURN) == list(ITEMS)


async def test_lost_lease_fails_every_later_call() -> None:
    """A batch appends the results of its calls at once: whichever error reaches the caller, the turn was overtaken."""
    store = MemoryStore()
    journal = await journal_on(store)
    await store.aclose()
    await store.claim(TURN)
    with pytest.raises(LeaseLostError):
        await journal.feed(REPLY)
    with pytest.raises(LeaseLostError) as lost:
        await journal.drop("answer:0")
    assert (lost.value.turn, lost.value.epoch) == (TURN, 1)


async def test_failed_drop_keeps_the_item_and_the_turn_goes_on() -> None:
    store = FaultyStore(MemoryStore(), at=1, heals=True)
    journal = await journal_on(store)
    with pytest.raises(StoreError, match="append 1"):
        await journal.drop("answer:0")
    assert await store.inbox(TURN) == list(ITEMS)
    await journal.drop("answer:0")
    await journal.feed(REPLY)
    assert (await store.get(TURN)).status.outcome is not None


class Slow(StoreWrapper):
    """Its appends take a while: `started` is set when the first begins, and `go_on` lets all of them end."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.started, self.go_on = anyio.Event(), anyio.Event()
        self.under_way = 0
        self.most = 0

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        self.started.set()
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.go_on.wait()
        self.under_way -= 1
        return await super().append(claim, facts, status, consumed)


async def test_drop_waits_for_a_pending_append() -> None:
    """Two appends of one claim at once would not know each other's facts."""
    store = Slow(MemoryStore())
    journal = await journal_on(store)
    async with anyio.create_task_group() as group:
        group.start_soon(journal.feed, REPLY)
        await store.started.wait()
        group.start_soon(journal.drop, "answer:0")
        await anyio.wait_all_tasks_blocked()
        store.go_on.set()
    assert store.most == 1
    assert await store.inbox(TURN) == [ITEMS[1]]
    assert (await store.get(TURN)).status.outcome is not None


async def test_drop_completes_despite_cancellation() -> None:
    store = Slow(MemoryStore())
    journal = await journal_on(store)
    async with anyio.create_task_group() as group:
        group.start_soon(journal.drop, "answer:0")
        await store.started.wait()
        group.cancel_scope.cancel()
        store.go_on.set()
    assert await store.inbox(TURN) == [ITEMS[1]]


CALLS = ModelRepliedInput(calls=(ToolCall(name="look", arguments={}),) * 2, usage=Usage(input_tokens=1), elapsed=1.0)


async def held_journal(first: ModelRepliedInput, *, deferred: bool = False) -> tuple[TurnJournal, Slow, list[str]]:
    """A turn whose model asked for two calls, its store, whose next appends take a while, and the ids of the calls."""
    store = Slow(MemoryStore())
    store.go_on.set()
    journal = await journal_on(store)
    await journal.feed(first, deferred=deferred)
    store.started, store.go_on = anyio.Event(), anyio.Event()
    return journal, store, list(journal.machine.turn.batch)


async def kinds(store: Store) -> list[str]:
    return [fact.kind for _, fact in await store.facts(TURN)]


async def test_reply_is_written_despite_cancellation() -> None:
    """It is paid for."""
    journal, store, _ = await held_journal(replace(CALLS, starts=True), deferred=True)
    before = await kinds(store)
    assert "model_replied" not in before
    async with anyio.create_task_group() as group:
        group.start_soon(journal.write)
        await store.started.wait()
        group.cancel_scope.cancel()
        store.go_on.set()
    assert await kinds(store) == [*before, "model_replied", "call_started", "call_started"]
    await journal.write()
    assert store.most == 1


async def test_messages_are_fed_despite_cancellation() -> None:
    journal, store, _ = await held_journal(CALLS)
    message = InboxItem(TURN, "steer:0", InboxKind.STEER, '{"text":"And quickly."}')
    await store.post(message)
    async with anyio.create_task_group() as group:
        group.start_soon(journal.take_in, [message], 2.0)
        await store.started.wait()
        group.cancel_scope.cancel()
        store.go_on.set()
    (fed,) = [fact for _, fact in await store.facts(TURN) if isinstance(fact, MessageAdded)]
    assert (fed.text, fed.elapsed) == ("And quickly.", 2.0)
    assert await store.inbox(TURN) == list(ITEMS)


async def test_waiting_start_is_cancelled_and_written_start_is_not() -> None:
    """Nobody has begun the work of the call that waits."""
    journal, store, (first, second) = await held_journal(CALLS)
    async with anyio.create_task_group() as group:
        group.start_soon(journal.feed, CallStartedInput(call=first, elapsed=1.0))
        await store.started.wait()
        group.start_soon(journal.feed, CallStartedInput(call=second, elapsed=1.0))
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
        store.go_on.set()
    started = [fact.call for _, fact in await store.facts(TURN) if isinstance(fact, CallStarted)]
    assert started == [first]


async def test_waiting_result_is_written_despite_cancellation() -> None:
    """The call has run."""
    journal, store, calls = await held_journal(replace(CALLS, starts=True))
    async with anyio.create_task_group() as group:
        group.start_soon(journal.feed, CallSettledInput(call=calls[0], result="seen", elapsed=2.0))
        await store.started.wait()
        group.start_soon(journal.feed, CallSettledInput(call=calls[1], result="seen", elapsed=2.0))
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
        store.go_on.set()
    settled = [fact.call for _, fact in await store.facts(TURN) if isinstance(fact, CallSettled)]
    assert settled == calls
    assert store.most == 1


async def test_read_facts_are_kept_only_on_request() -> None:
    store = MemoryStore()
    journal = await journal_on(store)
    assert journal.fold.facts == []
    assert not JournalFold(TURN, await store.facts(TURN)).keep_facts
    fold = await JournalFold.read(store, TURN, keep_facts=True)
    assert fold.facts == await store.facts(TURN)
    await TurnJournal(store, journal.claim, fold).feed(REPLY)
    assert fold.facts == await store.facts(TURN)


def test_a_step_is_stamped_with_milliseconds_of_utc() -> None:
    _, facts = TurnMachine.start(StartedInput(prompt="hi", limits=Limits()))
    stamp(facts, 1_700_000_000.1239)
    (step,) = [fact for fact in facts if isinstance(fact, StepStarted)]
    assert step.started_at == "2023-11-14T22:13:20.123Z"


@pytest.mark.parametrize("first", [1, 2])
def test_journal_without_a_beginning_is_unreadable(first: int) -> None:
    _, facts = TurnMachine.start(StartedInput(prompt="hi", limits=Limits()))
    with pytest.raises(UnreadableTurnError) as unreadable:
        first_fact(TURN, list(enumerate(facts, start=1))[first:])
    assert (unreadable.value.turn, unreadable.value.why) == (TURN, "its journal does not begin with turn_started")


class Damaged(StoreWrapper):
    """A call starts that nobody asked for."""

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        """See `Store.facts`."""
        started = CallStarted(call="nobody's", attempt=1, elapsed=1.0, state=State.TOOL_EXEC)
        return [*await super().facts(turn_id, after), (after + 1, started)]


async def test_damaged_journal_is_named_at_every_read() -> None:
    store = MemoryStore()
    await journal_on(store)
    facts = await store.facts(TURN)
    fold = JournalFold(TURN, facts)
    for read in (partial(JournalFold, TURN, facts * 2), partial(JournalFold, TURN, [])):
        with pytest.raises(UnreadableTurnError, match=f"^turn {TURN}: "):
            read()
    with pytest.raises(UnreadableTurnError, match=f"^turn {TURN}: "):
        await fold.catch_up(Damaged(store))


async def test_journal_catches_up_with_later_facts() -> None:
    store = MemoryStore()
    journal = await journal_on(store)
    fold = await JournalFold.read(store, TURN, keep_facts=True)
    await journal.feed(REPLY)
    await fold.catch_up(store)
    assert fold.facts == await store.facts(TURN)
    assert fold.seq == len(fold.facts)
    assert fold.result() == journal.result()
    assert (fold.result().id, fold.result().text) == (TURN, "Done.")
    assert journal.fold.seq == fold.seq


async def test_step_has_the_time_of_the_given_clock() -> None:
    store = MemoryStore()
    await store.release((await journal_on(store)).claim)
    journal = await TurnJournal.open(store, await store.claim(TURN), now=lambda: 1_700_000_000.5)
    await journal.feed(replace(CALLS, starts=True))
    await journal.feed(
        *(CallSettledInput(call=call, result="seen", elapsed=2.0) for call in journal.machine.turn.batch)
    )
    steps = [fact.started_at for _, fact in await store.facts(TURN) if isinstance(fact, StepStarted)]
    assert steps[1:] == ["2023-11-14T22:13:20.500Z"]


async def test_known_facts_are_not_read_again() -> None:
    """After a read the inbox is read again too: something may have come meanwhile."""
    store = MemoryStore()
    journal, fold = await journal_on(store), await JournalFold.read(store, TURN)
    await journal.feed(CALLS)
    await store.release(journal.claim)
    opened = await TurnJournal.open(store, claim := await store.claim(TURN), fold=fold)
    assert opened.result() == journal.result()
    assert opened.machine.turn.state is journal.machine.turn.state
    assert (opened.waiting, claim.waiting) == (None, list(ITEMS))
    again = await TurnJournal.open(store, claim, fold=fold)
    assert again.waiting == list(ITEMS)


async def test_message_between_two_results_precedes_the_final_result() -> None:
    store = MemoryStore()
    journal = await journal_on(store, Limits(steps=1))
    await journal.feed(replace(CALLS, starts=True))
    first, second = journal.machine.turn.batch
    await journal.feed(CallSettledInput(call=first, result="seen", elapsed=2.0))
    await store.post(InboxItem(TURN, "steer:0", InboxKind.STEER, '{"text":"And quickly."}'))
    await journal.feed(CallSettledInput(call=second, result="seen", elapsed=3.0))
    recorded = [fact for _, fact in await store.facts(TURN) if isinstance(fact, CallSettled | MessageAdded)]
    assert [fact.kind for fact in recorded] == ["call_settled", "message_added", "call_settled"]
    assert [fact.elapsed for fact in recorded] == [2.0, 3.0, 3.0]


@pytest.mark.parametrize("together", [True, False])
async def test_message_before_the_final_result_is_handed_back(*, together: bool) -> None:
    """It waits in the inbox until then: only the append that ends the turn consumes it."""
    store, message = MemoryStore(), InboxItem(TURN, "steer:0", InboxKind.STEER, '{"text":"And quickly."}')
    journal = await journal_on(store)
    await journal.feed(replace(CALLS, calls=CALLS.calls[:1] * 3, starts=True))
    answer, *other_inputs = (
        CallSettledInput(call=call, result="seen", elapsed=2.0) for call in journal.machine.turn.batch
    )
    await store.post(message)
    if together:
        await journal.feed(*other_inputs, replace(answer, final=True))
    else:
        await journal.feed(replace(answer, final=True))
        assert await store.inbox(TURN) == [*ITEMS, message]
        await journal.feed(*other_inputs)
    assert journal.result().undelivered == ("And quickly.",)
    assert await store.inbox(TURN) == list(ITEMS)
    facts = [fact for _, fact in await store.facts(TURN)]
    assert len([fact for fact in facts if isinstance(fact, CallSettled)]) == 3
    assert not any(isinstance(fact, MessageAdded) for fact in facts)


async def test_facts_are_logged_from_the_first_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "turnwright.journal.turn_journal")
    store = MemoryStore()
    journal = await journal_on(store)
    journal.log([fact for _, fact in await store.facts(TURN)])
    await journal.feed(REPLY)
    assert [record.levelname for record in caplog.records] == ["INFO"] * 4
    assert {getattr(record, "turn", None) for record in caplog.records} == {TURN}
    assert caplog.messages[0] == "turn t1: started, with at most 200 steps"
    assert caplog.messages[-1] == "turn t1: ended: finished: answered"


async def test_calls_without_permission_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "turnwright.journal.turn_journal")
    await (await journal_on(MemoryStore(), Limits(steps=0, max_retries=0))).feed(CALLS)
    assert caplog.messages == ["turn t1: the model asked for 2 calls without being allowed any: all refused"]


async def test_feeds_of_a_turn_keep_their_order_while_the_file_is_locked(tmp_path: Path) -> None:
    """An append that ran inline waits for the lock after all; those after it wait for its end, canceled or not."""
    path = tmp_path / "turns.db"
    store = SqliteStore(path, durability="normal")
    journal = await journal_on(store)
    await journal.feed(replace(CALLS, starts=True))
    calls = list(journal.machine.turn.batch)
    with closing(sqlite3.connect(path, isolation_level=None)) as other_connection:
        other_connection.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            for call in calls:
                group.start_soon(journal.feed, CallSettledInput(call=call, result="seen", elapsed=2.0))
            group.start_soon(journal.drop, "answer:0")
            await anyio.sleep(0.001)
            group.cancel_scope.cancel()
            other_connection.rollback()
    settled = [fact.call for _, fact in await store.facts(TURN) if isinstance(fact, CallSettled)]
    assert settled == calls
    assert await store.inbox(TURN) == [ITEMS[1]]
    await store.aclose()
