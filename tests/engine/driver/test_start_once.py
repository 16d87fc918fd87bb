"""Turns with an id that the caller chose: a repeated start attaches to its turn (docs/rules.md#start-once)."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from tests.servers.forked_python import Python

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    Outcome,
    SessionBusyError,
    TurnBusyError,
    TurnConflictError,
    TurnNotFoundError,
    tool,
)
from turnwright.driver.admission import TurnOptions
from turnwright.message import FilePart
from turnwright.model import ModelRequest, ScriptedModel, asks_for
from turnwright.model.model_settings import ModelSettings
from turnwright.store import (
    NONE_ABANDONED,
    AbandonedDrivers,
    Claim,
    InboxItem,
    MemoryStore,
    Status,
    Store,
)
from turnwright_states import State
from turnwright_states.facts import Fact, TurnStarted
from turnwright_testing.faults import StoreWrapper

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Biller")
HISTORY = ({"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."})


@tool(needs_approval=True)
async def pay(invoice: str = "") -> str:
    """Pay, with leave."""
    return f"paid {invoice}"


async def started_fact(engine: Engine, turn_id: str) -> TurnStarted:
    fact = (await engine.store.facts(turn_id))[0][1]
    assert isinstance(fact, TurnStarted)
    return fact


@pytest.mark.parametrize("turn_id", ["", ".", "..", "a:b", "a/b", "a b", "é", "x" * 129, "line\n", 17])
async def test_invalid_id_is_refused(turn_id: str) -> None:
    """Rule 25: an id is 1 to 128 of `A-Z a-z 0-9 . _ -`. Nothing is written for another one."""
    async with Engine(model=ScriptedModel()) as engine:
        for start in (engine.run, engine.start, engine.submit):
            with pytest.raises(ConfigError, match=r"^id: 1 to 128 of A-Z a-z 0-9 \. _ -, not "):
                await start(AGENT, "Bill.", id=turn_id)
        with pytest.raises(ConfigError, match=r"^id: 1 to 128"):
            async with engine.stream(AGENT, "Bill.", id=turn_id):
                pass
        assert await engine.turns() == []


@pytest.mark.parametrize("turn_id", ["0", "order-17", "A.b_c-9", "x" * 128])
async def test_valid_id_becomes_the_id_of_the_turn(turn_id: str) -> None:
    """Rule 25: the id is the turn's id in the result, the store and the journal, with a digest of the request."""
    async with Engine(model=ScriptedModel("Billed.")) as engine:
        turn = await engine.run(AGENT, "Bill.", id=turn_id, metadata={"order": 17})
        assert (turn.id, [row.id for row in await engine.turns()]) == (turn_id, [turn_id])
        assert (await started_fact(engine, turn_id)).request.keys() == {"agent", "prompt", "metadata"}


async def test_turn_without_a_chosen_id_keeps_no_digest() -> None:
    """Rule 25: only a caller that can repeat the id needs the digest; other journals are as before."""
    async with Engine(model=ScriptedModel("Billed.", "Again.")) as engine:
        turn = await engine.run(AGENT, "Bill.", metadata={"order": 17})
        started = await started_fact(engine, turn.id)
        assert (started.request, '"request"' in started.payload()) == ({}, False)
        with pytest.raises(TurnConflictError, match=f"turn {turn.id} exists with another request"):
            await engine.run(AGENT, "Bill.", id=turn.id, metadata={"order": 17})


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("files", {"files": [FilePart.of(b"a", "text/plain")]}),
        ("message_history", {"message_history": HISTORY}),
        ("session", {"session": "s1"}),
        ("continue_from", {"continue_from": "earlier"}),
        ("metadata", {"metadata": {"order": 18}}),
        ("model_settings", {"model_settings": ModelSettings(temperature=0.5)}),
    ],
)
async def test_conflict_names_the_option_that_differs(field: str, options: TurnOptions) -> None:
    """Rule 25: each option is part of the digest. Rule 26: the error names the one that differs."""
    async with Engine(model=ScriptedModel("Earlier.", "Billed.")) as engine:
        await engine.run(AGENT, "Earlier.", id="earlier")
        same = options.copy()
        same["id"] = "k1"
        await engine.run(AGENT, "Bill.", **same)
        again = await engine.run(AGENT, "Bill.", **same)
        assert again.text == "Billed."
        with pytest.raises(
            TurnConflictError, match=rf"^turn k1 exists with (an)?other {field}: use another id"
        ) as conflict:
            await engine.run(AGENT, "Bill.", id="k1")
        assert (conflict.value.turn, conflict.value.field) == ("k1", field)


async def test_conflict_names_the_prompt_or_the_agent() -> None:
    """Rule 26: every way to start raises, and the turn stays as it is."""
    async with Engine(model=ScriptedModel("Billed.")) as engine:
        await engine.run(AGENT, "Bill.", id="k1")
        facts = await engine.store.facts("k1")
        for start in (engine.run, engine.start, engine.submit):
            with pytest.raises(TurnConflictError, match=r"^turn k1 exists with another prompt: use another id"):
                await start(AGENT, "Pay.", id="k1")
            with pytest.raises(TurnConflictError, match=r"^turn k1 exists with another agent: use another id"):
                await start(Agent(name="Payer"), "Bill.", id="k1")
        with pytest.raises(TurnConflictError, match="another prompt"):
            async with engine.stream(AGENT, "Pay.", id="k1"):
                pass
        assert await engine.store.facts("k1") == facts


async def test_deploy_between_two_starts_is_no_conflict() -> None:
    """Rule 25: instructions, limits, tools, model and settings of agent and engine are not part of the digest."""
    store = MemoryStore()
    await Engine(model=ScriptedModel("Billed.", name="old"), store=store).run(AGENT, "Bill.", id="k1")
    newer = Agent(name="Biller", instructions="Be short.", steps=3, tools=["gone"])
    engine = Engine(model=ScriptedModel(name="new"), store=store, model_settings=ModelSettings(temperature=0))
    assert (await engine.run(newer, "Bill.", id="k1")).text == "Billed."


async def test_metadata_is_compared_without_the_order_of_its_keys() -> None:
    """Rule 25: a caller that builds the same object in another order asks for the same."""
    async with Engine(model=ScriptedModel("Billed.")) as engine:
        await engine.run(AGENT, "Bill.", id="k1", metadata={"a": 1, "b": {"c": 2, "d": 3}})
        assert (await engine.run(AGENT, "Bill.", id="k1", metadata={"b": {"d": 3, "c": 2}, "a": 1})).text == "Billed."


async def test_repeated_start_of_an_ended_turn_returns_its_result() -> None:
    """Rule 26: `run`, `start`, `submit` and `stream` attach. The model is asked once."""
    model = ScriptedModel("Billed.")
    async with Engine(model=model) as engine:
        first = await engine.run(AGENT, "Bill.", id="k1")
        assert await engine.run(AGENT, "Bill.", id="k1") == first
        assert await (await engine.start(AGENT, "Bill.", id="k1")).result() == first
        assert await engine.submit(AGENT, "Bill.", id="k1") == "k1"
        async with engine.stream(AGENT, "Bill.", id="k1") as events:
            types = [event.type async for event in events]
        assert events.result == first
        assert (types[0], types[-1]) == ("turn_started", "turn_ended")
        assert len(model.requests) == 1


async def test_repeated_start_of_a_paused_turn_returns_its_question() -> None:
    """Rule 26: a turn that waits for a person is returned as it is, and continues with the answer."""
    async with Engine(model=ScriptedModel(asks_for(("pay", {})), "Paid."), tools=[pay]) as engine:
        paused = await engine.run(AGENT, "Pay.", id="k1")
        again = await engine.run(AGENT, "Pay.", id="k1")
        assert again.interrupts == paused.interrupts
        async with engine.stream(AGENT, "Pay.", id="k1") as events:
            kinds = [event.type async for event in events]
        assert kinds.count("paused") == 1
        assert (await (await engine.start(AGENT, "Pay.", id="k1")).result()).paused
        await engine.answer("k1", {"approval-1": True})
        assert (await engine.run(AGENT, "Pay.", id="k1")).text == "Paid."


async def test_start_beside_a_running_turn_waits_for_the_turn() -> None:
    """Rule 26: ten equal calls at once in one process are one turn, and all get its result."""
    model = ScriptedModel("Billed.")
    async with Engine(model=model, poll_interval=0.01) as engine:
        texts: list[str] = []

        async def bill() -> None:
            texts.append((await engine.run(AGENT, "Bill.", id="k1")).text)

        async def bill_by_handle() -> None:
            texts.append((await (await engine.start(AGENT, "Bill.", id="k1")).result()).text)

        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(bill if number % 2 else bill_by_handle)
        assert (texts, len(model.requests)) == (["Billed."] * 10, 1)


async def test_stream_of_a_running_turn_has_all_its_facts() -> None:
    """Rule 26: the second stream begins with the journal and ends with the turn."""
    requested, may = anyio.Event(), anyio.Event()

    async def wait(_: ModelRequest) -> str:
        requested.set()
        await may.wait()
        return "Billed."

    types: list[str] = []
    async with Engine(model=ScriptedModel(wait), poll_interval=0.01) as engine:
        handle = await engine.start(AGENT, "Bill.", id="k1")
        await requested.wait()

        async def follow() -> None:
            async with engine.stream(AGENT, "Bill.", id="k1") as events:
                async for event in events:
                    types.append(event.type)
                    may.set()

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
        assert (await handle.result()).text == "Billed."
    assert [kind for kind in types if kind != "text_delta"] == [
        "turn_started",
        "step_started",
        "model_replied",
        "step_finished",
        "turn_ended",
    ]


@pytest.mark.slow
async def test_start_after_a_crash_resumes_the_turn(tmp_path: Path, python: Python) -> None:
    """Rule 26: the caller's process died in the model call; its next attempt drives the same turn to its end."""
    script = f"""
import os
import anyio
from turnwright import Agent, Engine
from turnwright.model import ScriptedModel
async def main():
    engine = Engine(model=ScriptedModel(lambda _: os._exit(9)), store="sqlite:///{tmp_path}/turns.db")
    await engine.run(Agent(name="Biller"), "Bill.", id="k1", session="s1")
anyio.run(main)
"""
    assert python.run("-c", script).returncode == 9
    async with Engine(model=ScriptedModel("Billed."), store=f"sqlite:///{tmp_path}/turns.db") as engine:
        turn = await engine.run(AGENT, "Bill.", id="k1", session="s1")
        assert (turn.id, turn.outcome, turn.text) == ("k1", Outcome.FINISHED, "Billed.")
        assert len(await engine.turns()) == 1


@pytest.mark.slow
async def test_starts_of_eight_processes_are_a_single_turn(tmp_path: Path, python: Python) -> None:
    """Rule 26: eight processes start at once; the tool runs once, and each prints the same answer."""
    script = f"""
import sys, time
from pathlib import Path
import anyio
from turnwright import Agent, Engine, tool
from turnwright.model import ScriptedModel, asks_for
folder = Path({str(tmp_path)!r})
@tool
async def charge() -> str:
    "Charge."
    with (folder / "charges").open("a") as file:
        file.write("charge\\n")
    await anyio.sleep(0.2)
    return "charged"
async def main():
    model = ScriptedModel(asks_for(("charge", {{}})), "Charged.")
    store = f"sqlite:///{{folder}}/turns.db"
    async with Engine(model=model, tools=[charge], store=store, poll_interval=0.02) as engine:
        print("ready", flush=True)
        sys.stdin.readline()
        turn = await engine.run(Agent(name="Biller"), "Charge.", id="k1", session="s1")
        print(turn.id, turn.text, flush=True)
anyio.run(main)
"""
    with ExitStack() as running:
        programs = [running.enter_context(python.start("-c", script)) for _ in range(8)]
        ready = [program.stdout.readline() for program in programs]
        for program in programs:
            program.stdin.write("go\n")
        outputs = [program.stdout.read() for program in programs]
    assert ready == ["ready\n"] * 8
    assert outputs == ["k1 Charged.\n"] * 8
    assert (tmp_path / "charges").read_text() == "charge\n"


async def test_repeated_start_supersedes_nothing() -> None:
    """Rule 26: the turn is looked up before the session's paused turn ends: a retry does not end its own turn."""
    async with Engine(model=ScriptedModel(asks_for(("pay", {})), "Paid."), tools=[pay]) as engine:
        await engine.run(AGENT, "Pay.", id="k1", session="s1")
        for _ in range(3):
            assert (await engine.run(AGENT, "Pay.", id="k1", session="s1")).paused
        with pytest.raises(TurnConflictError, match="another prompt"):
            await engine.run(AGENT, "Something else.", id="k1", session="s1")
        assert (await engine.get("k1")).paused


class LateStore(StoreWrapper):
    """A store in which an equal start comes first, between the look-up of the id and the write of the turn."""

    def __init__(self, inner: Store, rival: Engine) -> None:
        super().__init__(inner)
        self.rival = rival

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        try:
            return await self.inner.facts(turn_id, after)
        except TurnNotFoundError:
            await self.rival.run(AGENT, "Pay.", id="k1", session="s1")
            raise


async def test_loser_of_a_race_ends_no_turn_of_the_winner() -> None:
    """Rule 26: the winner's turn is paused already when the loser ends the session's paused turn."""
    store = MemoryStore()
    rival = Engine(model=ScriptedModel(asks_for(("pay", {}))), tools=[pay], store=store)
    engine = Engine(model=ScriptedModel(), tools=[pay], store=LateStore(store, rival))
    turn = await engine.run(AGENT, "Pay.", id="k1", session="s1")
    assert (turn.id, turn.state) == ("k1", State.PAUSED)


async def test_busy_session_still_refuses_another_turn() -> None:
    """Rule 26: an id changes nothing for a session whose other turn runs."""
    store = MemoryStore()
    requested = anyio.Event()

    async def wait(_: ModelRequest) -> str:
        requested.set()
        await anyio.sleep_forever()
        return ""

    async with Engine(model=ScriptedModel(wait), store=store) as engine:
        await engine.start(AGENT, "Bill.", id="k1", session="s1")
        await requested.wait()
        with pytest.raises(SessionBusyError):
            await engine.run(AGENT, "Bill.", id="k2", session="s1")
        with pytest.raises(TurnNotFoundError):
            await engine.get("k2")


async def test_repeated_submit_leaves_a_single_job() -> None:
    """Rule 26: a worker drives the turn of two equal submissions once."""
    model = ScriptedModel("Billed.")
    async with Engine(model=model) as engine:
        assert await engine.submit(AGENT, "Bill.", id="k1") == "k1"
        assert await engine.submit(AGENT, "Bill.", id="k1") == "k1"
        assert (await engine.run(AGENT, "Bill.", id="k1")).text == "Billed."
        assert (len(model.requests), len(await engine.turns())) == (1, 1)


async def test_fork_of_a_turn_with_an_id_has_no_digest() -> None:
    """Rule 25: a fork is another turn, which nobody started by its id."""
    async with Engine(model=ScriptedModel("Billed.", "Billed again.")) as engine:
        await engine.run(AGENT, "Bill.", id="k1")
        fork = await engine.fork("k1", at=2)
        assert (await started_fact(engine, fork)).request == {}
        assert (await engine.resume(fork)).text == "Billed again."


async def test_pruned_id_is_free_again() -> None:
    """Rule 27: after `prune` or `delete`, the same id starts a new turn, with any request."""
    async with Engine(model=ScriptedModel("One.", "Two.", "Three.")) as engine:
        assert (await engine.run(AGENT, "Bill.", id="k1", session="s1")).text == "One."
        assert await engine.prune(older_than=-1.0) == 1
        assert (await engine.run(AGENT, "Bill.", id="k1", session="s1")).text == "Two."
        assert await engine.delete("k1") == 1
        assert (await engine.run(AGENT, "Pay.", id="k1")).text == "Three."


async def test_equal_starts_wait_while_the_other_ends_the_paused_turn() -> None:
    """Rule 26: of two starts that replace a paused turn, the loser attaches instead of finding the session busy."""
    store = MemoryStore()
    asking = Engine(model=ScriptedModel(asks_for(("pay", {}))), tools=[pay], store=store)
    await asking.run(AGENT, "Pay.", session="s1")
    model = ScriptedModel("Billed.")
    entered, may, refused = anyio.Event(), anyio.Event(), anyio.Event()

    class SlowEnd(StoreWrapper):
        async def append(
            self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
        ) -> list[InboxItem]:
            entered.set()
            await may.wait()
            return await self.inner.append(claim, facts, status, consumed)

    class Refusing(StoreWrapper):
        async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
            try:
                return await self.inner.claim(turn_id, abandoned=abandoned)
            except TurnBusyError:
                refused.set()
                raise

    texts: list[str] = []

    async def bill(engine: Engine) -> None:
        texts.append((await engine.run(AGENT, "Bill.", id="k1", session="s1")).text)

    first = Engine(model=model, store=SlowEnd(store), tools=[pay])
    second = Engine(model=model, store=Refusing(store), tools=[pay], poll_interval=0.01)
    async with anyio.create_task_group() as group:
        group.start_soon(bill, first)
        await entered.wait()
        group.start_soon(bill, second)
        await refused.wait()
        may.set()
    assert (texts, len(model.requests)) == (["Billed."] * 2, 1)
