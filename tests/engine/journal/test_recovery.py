"""Another process takes a turn up: what it needs for that, what it finds out, and who may."""

import logging
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from tests.servers.forked_python import Program, Python

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    LeaseLostError,
    StoreError,
    TurnAlreadyEndedError,
    TurnBusyError,
    TurnResult,
    tool,
)
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import InboxItem, InboxKind, MemoryStore, NewTurn, Status, Store
from turnwright.tools import OnCrash, Tool
from turnwright_states import (
    CallStatus,
    CallWaitingInput,
    EndReason,
    InterruptKind,
    Limits,
    ModelRepliedInput,
    Outcome,
    StartedInput,
    ToolCall,
    TurnMachine,
)
from turnwright_states import facts as f
from turnwright_testing import FaultyStore
from turnwright_testing.faults import StoreWrapper

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


@tool(on_crash="ask")
async def send(to: str) -> str:
    return f"sent to {to}"


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


async def dead(
    *lines: ModelResponse | str, tools: list[Tool], at: int | type[f.Fact], limits: Limits | None = None
) -> tuple[MemoryStore, str]:
    """A turn whose process died at the append `at` (see `FaultyStore`); its store, and its id."""
    memory = MemoryStore()
    store = FaultyStore(memory, at=at)
    with pytest.raises(StoreError):
        await Engine(model=ScriptedModel(*lines), tools=tools, store=store, limits=limits).run(AGENT, "hi")
    await store.aclose()
    (row,) = await memory.turns()
    return memory, row.id


async def only(store: Store) -> str:
    (row,) = await store.turns()
    return row.id


async def test_recovery_drives_every_unfinished_turn_to_the_end() -> None:
    memory, turn_id = await dead(asks_for(("note", {})), tools=[note], at=f.CallSettled)
    (turn,) = await Engine(model=ScriptedModel("I see."), tools=[note], store=memory).recover()
    assert (turn.id, turn.outcome, turn.text) == (turn_id, Outcome.FINISHED, "I see.")
    assert results(turn)[0][0] is CallStatus.UNKNOWN


async def test_recovery_of_an_empty_store_returns_nothing() -> None:
    engine = Engine(model=ScriptedModel("Done."))
    assert await engine.recover() == []
    await engine.run(AGENT, "hi")
    assert await engine.recover() == []


async def test_driven_turn_is_left_alone() -> None:
    hangs = anyio.Event()

    class Hanging:
        name = "hanging"

        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
            assert request.messages
            hangs.set()
            await anyio.sleep_forever()
            yield ModelResponse()

    engine = Engine(model=Hanging())
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run, AGENT, "hi")
        await hangs.wait()
        assert await engine.recover() == []
        (row,) = await engine.store.turns()
        with pytest.raises(TurnBusyError, match=row.id):
            await engine.resume(row.id)
        group.cancel_scope.cancel()


async def test_turn_without_the_needed_tools_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """`resume` says what is missing; nothing is written, and who has the tools can take it up."""
    memory, turn_id = await dead(asks_for(("note", {})), tools=[note], at=f.CallSettled)
    before = await memory.facts(turn_id)
    poor = Engine(model=ScriptedModel("hi"), store=memory)
    with caplog.at_level(logging.WARNING, "turnwright"):
        assert await poor.recover() == []
    record = caplog.records[-1]
    skipped = f"turn {turn_id} is skipped: turn {turn_id}: its open calls need the tools note"
    assert record.getMessage().startswith(skipped)
    assert vars(record)["turn"] == turn_id
    with pytest.raises(ConfigError, match="need the tools note"):
        await poor.resume(turn_id)
    assert await memory.facts(turn_id) == before
    assert not await memory.is_driven(turn_id)
    turn = await Engine(model=ScriptedModel("I see."), tools=[note], store=memory).resume(turn_id)
    assert turn.outcome is Outcome.FINISHED


async def test_turn_without_the_needed_model_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    memory, turn_id = await dead("never written", tools=[], at=1)
    with caplog.at_level(logging.WARNING, "turnwright"):
        assert await Engine(store=memory).recover() == []
    assert "no model" in caplog.text
    with pytest.raises(ConfigError, match="no model"):
        await Engine(store=memory).resume(turn_id)


async def test_vain_recovery_keeps_a_crash_on_record() -> None:
    """An engine that cannot run the turn leaves it as it found it: crashed, so that the retry is still spent."""
    memory, turn_id = await dead("never written", tools=[], at=1, limits=Limits(max_retries=0))
    assert await Engine(store=memory).recover() == []
    turn = await Engine(model=ScriptedModel("Hello."), store=memory).resume(turn_id)
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.CRASHED)


async def left_behind(store: Store, turn_id: str, *, paused: bool = False) -> None:
    """A turn that nobody drives: before its first reply, or waiting for leave to run a call."""
    machine, facts = TurnMachine.start(StartedInput(prompt="hi", agent=AGENT.to_json()))
    if paused:
        facts += machine.feed(ModelRepliedInput(calls=(ToolCall(name="note", arguments={}),)))
        facts += machine.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.APPROVAL))
    new = NewTurn(id=turn_id, session=None, agent="Tidier", model="scripted", created_at=0)
    await store.release(await store.create(new, facts, Status.of(machine.turn)))


@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
async def test_unreadable_turn_does_not_block_recovery_of_other_turns(paused: bool) -> None:
    """It is named in the log, and left alone."""

    class Torn(MemoryStore):
        torn = ""

        async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, f.Fact]]:
            if turn_id == self.torn:
                raise StoreError("fact 2 of the journal cannot be read")
            return await super().facts(turn_id, after)

    store = Torn()
    await left_behind(store, "good")
    await left_behind(store, "torn", paused=paused)
    store.torn = "torn"
    (turn,) = await Engine(model=ScriptedModel("Hello."), store=store).recover()
    assert (turn.id, turn.outcome) == ("good", Outcome.FINISHED)


async def test_recovery_does_not_stop_at_a_thousand() -> None:
    """Turns that wait for people may be many, and are newer than the one that waits for us."""
    store = MemoryStore()

    await left_behind(store, "left")
    for n in range(1000):
        await left_behind(store, f"waits{n}", paused=True)
    recovered = await Engine(model=ScriptedModel("Hello."), tools=[note], store=store).recover()
    assert [turn.id for turn in recovered] == ["left"]


async def test_call_of_an_asking_tool_waits_for_a_person_after_the_crash() -> None:
    asking = asks_for(("send", {"to": "Ann"}), ("note", {}))
    for decision, status in (("rerun", CallStatus.OK), ("unknown", CallStatus.UNKNOWN)):
        memory, turn_id = await dead(asking, tools=[send, note], at=f.CallSettled)
        engine = Engine(model=ScriptedModel("Done."), tools=[send, note], store=memory)
        (paused,) = await engine.recover()
        (interrupt,) = paused.interrupts
        assert (interrupt.id, interrupt.kind, interrupt.tool) == ("unknown-1", InterruptKind.UNKNOWN_OUTCOME, "send")
        assert interrupt.arguments == {"to": "Ann"}
        turn = await engine.resume(turn_id, {"unknown-1": decision})
        assert (turn.outcome, results(turn)[0][0]) == (Outcome.FINISHED, status)


@pytest.mark.parametrize(("on_crash", "status"), [(None, CallStatus.OK), ("unknown", CallStatus.UNKNOWN)])
async def test_a_read_only_call_runs_again_after_the_crash(on_crash: OnCrash | None, status: CallStatus) -> None:
    @tool(read_only=True, on_crash=on_crash)
    async def look() -> str:
        return "looked"

    memory, _ = await dead(asks_for(("look", {})), tools=[look], at=f.CallSettled)
    (turn,) = await Engine(model=ScriptedModel("I see."), tools=[look], store=memory).recover()
    started = [fact.attempt for _, fact in await memory.facts(turn.id) if isinstance(fact, f.CallStarted)]
    assert (turn.text, [call_status for call_status, _ in results(turn)]) == ("I see.", [status])
    assert started == ([1, 2] if status is CallStatus.OK else [1])


async def test_message_precedes_the_result_of_a_non_repeatable_call() -> None:
    """It clears the doom-loop detector, so the turn continues, and the model reads it."""

    @tool(read_only=True)
    async def look() -> str:
        return "looked"

    limits = Limits(doom_threshold=2, doom_compare="calls", max_retries=0)
    looks = [asks_for(("look", {}))] * 2
    memory, turn_id = await dead(*looks, tools=[look], at=4, limits=limits)  # at the second result
    engine = Engine(model=ScriptedModel("I see."), tools=[look], store=memory)
    await engine.steer(turn_id, "Look elsewhere.")
    (turn,) = await engine.recover()
    assert [call_status for call_status, _ in results(turn)] == [CallStatus.OK, CallStatus.UNKNOWN]
    assert (turn.outcome, turn.text, turn.undelivered) == (Outcome.FINISHED, "I see.", ())


async def test_overtaken_driver_stops_and_writes_nothing() -> None:
    """`LeaseLostError` is an exception, not an outcome; the one that took over ends the turn."""
    memory, started = MemoryStore(), anyio.Event()
    go = anyio.Event()

    class Waiting:
        name = "waiting"

        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
            assert request.messages
            started.set()
            await go.wait()
            yield ModelResponse(text="I am late.")

    zombie = Engine(model=Waiting(), store=memory)
    failures: list[LeaseLostError] = []
    journal: list[tuple[int, f.Fact]] = []

    async def drive() -> None:
        try:
            await zombie.run(AGENT, "hi")
        except LeaseLostError as error:
            failures.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(drive)
        await started.wait()
        await memory.aclose()  # it looks dead to everybody
        turn_id = await only(memory)
        await Engine(model=ScriptedModel("I am quick."), store=memory).resume(turn_id)
        journal.extend(await memory.facts(turn_id))
        go.set()
    (fenced,) = failures
    turn_id = await only(memory)
    assert (fenced.turn, fenced.epoch) == (turn_id, 1)
    assert await memory.facts(turn_id) == journal
    assert (await zombie.get(turn_id)).text == "I am quick."


async def test_an_ended_turn_cannot_be_resumed() -> None:
    engine = Engine(model=ScriptedModel("Done."))
    turn = await engine.run(AGENT, "hi")
    with pytest.raises(TurnAlreadyEndedError, match=rf"turn {turn.id} has ended \(finished: answered\)"):
        await engine.resume(turn.id)


async def test_store_failure_during_a_turn_is_a_store_error() -> None:
    """Also when the poll of the inboxes fails: no exception group, and the turn is released."""

    class Flaky(MemoryStore):
        shared = True
        broken = False

        async def requests(self, *kinds: InboxKind) -> list[InboxItem]:
            if self.broken:
                raise StoreError("the inboxes cannot be read")
            return await super().requests(*kinds)

    store = Flaky()

    @tool
    async def dawdle() -> None:
        store.broken = True
        await anyio.sleep_forever()

    engine = Engine(model=ScriptedModel(asks_for(("dawdle", {}))), tools=[dawdle], store=store)
    with anyio.fail_after(60), pytest.raises(StoreError, match="the inboxes cannot"):
        await engine.run(AGENT, "hi")
    assert not await store.is_driven((await store.turns())[0].id)


# A real process that dies.

CHILD = """
import sys
import anyio
from turnwright import Agent, Engine, tool
from turnwright.model.scripted import ScriptedModel, asks_for

@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"

@tool
async def dawdle() -> str:
    await settled.wait()  # the other call of the batch
    print("running", flush=True)
    await anyio.sleep(60)
    return "done"

def see(event):
    if event.type == "call_settled":
        settled.set()

async def main():
    global settled
    settled = anyio.Event()
    model = ScriptedModel(asks_for(("note", {"n": 1}), ("dawdle", {})), "Done.")
    tools, store = [note, dawdle], sys.argv[1]
    async with Engine(model=model, tools=tools, store=store, cancel_grace=0.05, on_event=[see]) as engine:
        turn = await engine.run(Agent(name="Tidier"), "hi")
        print(turn.outcome, flush=True)

anyio.run(main)
"""


@contextmanager
def child(python: Python, address: str) -> Iterator[Program]:
    """Another process that drives a turn, and is in the middle of a tool."""
    with python.start("-c", CHILD, address) as program:
        assert program.stdout.readline() == "running\n"
        yield program


@tool
async def dawdle() -> str:
    raise AssertionError("it ran again")


@pytest.mark.slow
@pytest.mark.no_waiting(False)
async def test_stopped_process_keeps_a_turn_and_a_killed_process_does_not(tmp_path: Path, python: Python) -> None:
    """The lock is the operating system's: it goes with the process, and with nothing less (docs/rules.md#leases)."""
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    model = ScriptedModel("I see.")
    with child(python, address) as program:
        async with Engine(model=model, tools=[note, dawdle], store=address) as engine:
            turn_id = await only(engine.store)
            with pytest.raises(TurnBusyError):
                await engine.resume(turn_id)
            program.send(signal.SIGSTOP)
            with pytest.raises(TurnBusyError):
                await engine.resume(turn_id)
            assert await engine.recover() == []
            program.end()
            (turn,) = await engine.recover()
            assert (turn.id, turn.outcome) == (turn_id, Outcome.FINISHED)
            assert [status for status, _ in results(turn)] == [CallStatus.OK, CallStatus.UNKNOWN]
    names = [path.name async for path in anyio.Path(tmp_path).iterdir()]
    assert not [name for name in names if "-owner-" in name], "no lock is left behind"


@pytest.mark.slow
@pytest.mark.no_waiting(False)
async def test_a_turn_of_another_process_can_be_aborted(tmp_path: Path, python: Python) -> None:
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    with child(python, address) as program:
        async with Engine(store=address) as engine:
            turn_id = await only(engine.store)
            await engine.abort(turn_id)
            assert program.stdout.readline() == "aborted\n"
            assert program.wait() == 0
            turn = await engine.get(turn_id)
            assert (turn.outcome, turn.reason) == (Outcome.ABORTED, EndReason.ABORTED)
            assert [status for status, _ in results(turn)] == [CallStatus.OK, CallStatus.ABORTED]


async def test_store_failure_of_recover_is_raised_unchanged() -> None:
    memory, _ = await dead(asks_for(("note", {})), tools=[note], at=f.CallSettled)
    store = FaultyStore(memory)
    store.dead = True
    with pytest.raises(StoreError, match="the store is dead"):
        await Engine(model=ScriptedModel("I see."), tools=[note], store=store).recover()


async def test_turn_of_a_later_release_is_skipped_by_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An agent of a later release, say, has fields that this one does not know."""
    memory, good = await dead(asks_for(("note", {})), tools=[note], at=f.CallSettled)
    machine, facts = TurnMachine.start(StartedInput(prompt="hi", agent={"name": "Tidier", "telepathy": True}))
    new = NewTurn(id="later", session=None, agent="Tidier", model="scripted", created_at=0)
    await memory.release(await memory.create(new, facts, Status.of(machine.turn)))
    engine = Engine(model=ScriptedModel("I see."), tools=[note], store=memory)
    assert [turn.id for turn in await engine.recover()] == [good]
    assert "turn later is skipped: turn later: its agent cannot be read: " in caplog.text
    with pytest.raises(StoreError, match="turn later: its agent cannot be read: agent 'Tidier': is unknown"):
        await engine.resume("later")


async def test_busy_error_does_not_end_the_stream_of_the_driver() -> None:
    """Its driver may not even have looked into its inbox yet."""

    class Slow(StoreWrapper):
        async def inbox(self, turn_id: str) -> list[InboxItem]:
            await anyio.sleep(0.05)
            return await super().inbox(turn_id)

    engine = Engine(model=ScriptedModel("Done."), store=Slow(MemoryStore()))
    types: list[str] = []
    async with engine.stream(AGENT, "hi") as events:
        async for event in events:
            if not types:
                with pytest.raises(TurnBusyError):
                    await engine.resume(event.turn)
            types.append(event.type)
    assert types[-1] == "turn_ended"


@pytest.mark.parametrize(
    "wrong", [{"max_parallel_tools": 0}, {"max_parallel_tools": True}, {"cancel_grace": -1.0}, {"poll_interval": 0.0}]
)
def test_useless_worker_numbers_are_refused(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"^{name} must be "):
        Engine(**wrong)  # type: ignore[call-overload] # what a caller without a type checker may give


async def test_model_found_by_name_is_made_once_and_closed() -> None:
    created: list[str] = []
    closed: list[str] = []

    class Client(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(self.name)

    def find(name: str) -> Client:
        created.append(name)
        return Client("Done.", name=name, repeat=True)

    async with Engine(models=find) as engine:
        for _ in range(2):
            await engine.run(Agent(name="Tidier", model="m"), "hi")
    assert (created, closed) == (["m"], ["m"])
