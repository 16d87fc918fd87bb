"""A journal is read once for an answer, a resume or a follow-up, and the inbox comes with the appends."""

from collections import Counter

import anyio
import pytest

from turnwright import Agent, Compact, Engine, approve, reject, tool
from turnwright.journal.turn_journal import JournalFold
from turnwright.model.protocol import ModelRequest
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import InboxItem, InboxKind, MemoryStore, Store
from turnwright_states import Outcome, State, TurnMachine
from turnwright_states.facts import Fact
from turnwright_states.replay import replay
from turnwright_testing.faults.wrapper import StoreWrapper

AGENT = Agent(name="Tidier")

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]


class Counting(StoreWrapper):
    """Counts how often each turn's journal and inbox are read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.journals = Counter[str]()
        self.inboxes = Counter[str]()

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        self.journals[turn_id] += 1
        return await super().facts(turn_id, after)

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        self.inboxes[turn_id] += 1
        return await super().inbox(turn_id)


@tool(needs_approval=True)
async def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


def engine_on(store: MemoryStore, *lines: Line) -> tuple[Engine, Counting]:
    """Another process, as it were, and what it reads."""
    counting = Counting(store)
    return Engine(model=ScriptedModel(*lines), tools=[erase], store=counting), counting


async def test_an_answer_reads_the_journal_once() -> None:
    """From the answer to the end: the answer is checked, the call runs, and the model answers."""
    store = MemoryStore()
    engine, _ = engine_on(store, asks_for(("erase", {"path": "x"})))
    paused = await engine.run(AGENT, "hi")
    engine, read = engine_on(store, "Done.")
    turn = await engine.resume(paused.id, {paused.interrupts[0].id: approve()})
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    assert read.journals == {paused.id: 1}
    assert read.inboxes[paused.id] <= 2
    assert turn == await engine.get(paused.id)


async def test_answer_before_a_next_question_reads_the_journal_once() -> None:
    """The result says what is open then."""
    store = MemoryStore()
    engine, _ = engine_on(store, asks_for(("erase", {"path": "x"})))
    paused = await engine.run(AGENT, "hi")
    engine, read = engine_on(store, asks_for(("erase", {"path": "y"})))
    turn = await engine.resume(paused.id, {paused.interrupts[0].id: reject("not that one")})
    assert turn.paused
    assert [interrupt.arguments for interrupt in turn.interrupts] == [{"path": "y"}]
    assert read.journals == {paused.id: 1}
    assert turn == await engine.get(paused.id)


async def test_a_resume_reads_the_journal_once() -> None:
    """The driver before has released it in the middle."""
    store = MemoryStore()
    engine, _ = engine_on(store, asks_for(("erase", {"path": "x"})))
    paused = await engine.run(AGENT, "hi")
    await engine.answer(paused.id, {paused.interrupts[0].id: True})
    engine, read = engine_on(store, "Done.")
    turn = await engine.resume(paused.id)
    assert turn.outcome is Outcome.FINISHED
    assert read.journals == {paused.id: 1}
    assert read.inboxes[paused.id] <= 2


async def test_abort_before_the_resume_reads_the_journal_once() -> None:
    """And once more what was written since: somebody else may have answered."""
    store = MemoryStore()
    engine, _ = engine_on(store, asks_for(("erase", {"path": "x"})))
    paused = await engine.run(AGENT, "hi")
    await store.post(InboxItem(paused.id, "abort", InboxKind.ABORT))
    engine, read = engine_on(store)
    turn = await engine.resume(paused.id, {paused.interrupts[0].id: approve()})
    assert turn.outcome is Outcome.ABORTED
    assert read.journals == {paused.id: 2}


async def test_only_later_facts_are_read_again() -> None:
    """Somebody answered, and drove the turn on to its next question, after the journal was read for this answer."""
    store = MemoryStore()
    first, _ = engine_on(store, asks_for(("erase", {"path": "x"}), ("erase", {"path": "y"})))
    paused = await first.run(AGENT, "hi")
    first_id, second_id = (interrupt.id for interrupt in paused.interrupts)
    other_engine, _ = engine_on(store)
    engine, _ = engine_on(store, "Done.")
    fold = await engine._read(paused.id)  # noqa: SLF001 (the moment between reading and driving)
    assert (await other_engine.resume(paused.id, {first_id: True})).paused
    before, read = fold.seq, engine_on(store, "Done.")
    turn = await read[0]._resume(fold, {second_id: True})  # noqa: SLF001 (likewise)
    assert turn.outcome is Outcome.FINISHED
    assert read[1].journals == {paused.id: 1}
    assert fold.seq > before
    assert turn == await engine.get(paused.id)


async def test_facts_written_between_read_and_claim_are_caught_up() -> None:
    """Another driver wrote any part of it between this read and the claim: the facts of whole inputs."""
    store = MemoryStore()
    engine, _ = engine_on(store, asks_for(("erase", {"path": "x"})))
    paused = await engine.run(AGENT, "hi")
    await engine_on(store, "Done.")[0].resume(paused.id, {paused.interrupts[0].id: True})
    facts = await store.facts(paused.id)
    now = TurnMachine.resume(fact for _, fact in facts)
    *groups, _ = replay(facts).groups
    assert len(groups) > 3
    for group in groups:
        fold = JournalFold(paused.id, facts[: group.last])
        await fold.catch_up(store)
        assert (fold.machine.state, fold.machine.turn.digest()) == (now.state, now.turn.digest())
        assert fold.machine.action == now.action


async def test_turn_read_during_the_model_call_runs_the_calls() -> None:
    """The driver that received the reply was canceled in the call."""
    store, start = MemoryStore(), anyio.Event()

    @tool(read_only=True, on_crash="rerun")
    async def look(again: bool) -> str:
        """Look once, or for ever."""
        if start.is_set():
            return f"seen {again}"
        start.set()
        await anyio.sleep_forever()
        raise AssertionError

    first = Engine(model=ScriptedModel(asks_for(("look", {"again": True}))), tools=[look], store=store)
    async with anyio.create_task_group() as group:
        group.start_soon(first.run, AGENT, "hi")
        await start.wait()
        group.cancel_scope.cancel()
    turn_id = (await store.turns())[0].id
    streaming = JournalFold(turn_id, (await store.facts(turn_id))[:2])
    assert streaming.machine.state is State.STREAM
    second = Engine(model=ScriptedModel("Done."), tools=[look], store=store)
    turn = await second._resume(streaming, None)  # noqa: SLF001 (the moment between reading and driving)
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")


@pytest.mark.parametrize("continues", [False, True])
async def test_a_follow_up_reads_each_earlier_journal_once(*, continues: bool) -> None:
    """The journals of its session, of the paused turn that it ends, and of the turn that it continues."""
    store = MemoryStore()
    engine, _ = engine_on(store, "One.", "Two.", asks_for(("erase", {"path": "x"})))
    turns = [await engine.run(AGENT, prompt, session="s") for prompt in ("first", "second", "third")]
    engine, read = engine_on(store, "Done.")
    turn = await engine.run(AGENT, "go on", session="s", continue_from=turns[0].id if continues else None)
    assert turn.text == "Done."
    assert read.journals == {turn.id: 1 for turn in turns}


async def test_long_session_reads_only_journals_since_the_compaction() -> None:
    """And its request is as long as any other, whatever the number of turns before it."""
    store, agent = MemoryStore(), Agent(name="Talker", compaction=Compact(at_tokens=300, keep_steps=2))

    def say(request: ModelRequest) -> str:
        prompt = request.messages[-1].text
        return "They count." if "only your summary" in prompt else f"You said {prompt}. " + "word " * 40

    lengths: list[int] = []
    reads: list[int] = []
    for number in range(40):
        model, counting = ScriptedModel(say, repeat=True), Counting(store)
        await Engine(model=model, store=counting).run(agent, str(number), session="s")
        lengths.append(len(model.requests[-1].messages))
        reads.append(counting.journals.total())
    assert max(lengths) <= max(lengths[:12])
    assert max(reads) <= max(reads[:12])
    assert max(reads) < 10
