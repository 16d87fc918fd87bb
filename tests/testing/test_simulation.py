"""The simulation: a seed repeats a schedule exactly, and planted faults are found and made small."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, cast

import anyio
import pytest
from tests.campaigns.simulation.targets import TARGETS

from turnwright import Agent, Engine, agent_tool, tool
from turnwright.message import Message
from turnwright.model.protocol import Delta, Model, ModelRequest, ModelResponse
from turnwright.store import Claim, InboxItem, Status, Store
from turnwright.transcript.events import FactEvent, StreamEvent
from turnwright_states.facts import CallStarted, Fact
from turnwright_testing import InvariantViolatedError
from turnwright_testing.faults import StoreWrapper
from turnwright_testing.simulation import SimulationTarget, assert_schedule, run_schedule, simulate
from turnwright_testing.simulation.loop import NobodyRunsError, SimulatedLoop
from turnwright_testing.simulation.shrink import plain


@tool(idempotent=True)
def look(n: int) -> str:
    """Look at something."""
    return f"{n}"


@tool
def pay(amount: int, note: str = "") -> str:
    """Pay an amount."""
    return f"{amount} {note}"


#: The engine, for arguments that are changed.
ENGINE: Final = cast("Callable[..., Engine]", Engine)
READER: Final = Agent(name="Reader", description="Reads.", steps=2)
CLERK: Final = Agent(name="Clerk")
TARGET: Final = SimulationTarget(CLERK, (look, pay, agent_tool(READER)))

#: Prints a digest of each of some schedules.
PROGRAM: Final = """
import hashlib
from tests.testing.test_simulation import TARGET, digest
for seed in range(12):
    print(digest(seed))
"""


def digest(seed: int) -> str:
    """Return a digest of everything that a schedule recorded."""
    schedule = run_schedule(TARGET, seed)
    record = json.dumps([schedule.trace, schedule.journals, schedule.choices, schedule.ends, schedule.seconds])
    return hashlib.sha256(record.encode()).hexdigest()


@pytest.mark.slow
def test_seed_repeats_a_schedule_exactly_in_another_process() -> None:
    """Journals, traces and choices are the same, whatever the hash seed, the memory addresses and the time of day."""

    def printed(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", PROGRAM]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    assert printed("1") == printed("2") == "".join(f"{digest(seed)}\n" for seed in range(12))


def test_choices_alone_repeat_a_schedule() -> None:
    """Without the seed, which a test need not know."""
    first = run_schedule(TARGET, 7)
    again = run_schedule(TARGET, 7, choices=plain(first.choices))
    assert (again.journals, again.trace) == (first.journals, first.trace)


def test_simplest_schedule_is_a_single_answer() -> None:
    """Without any choice nothing fails, nobody acts, and the model answers at once."""
    schedule = run_schedule(TARGET, choices={})
    assert schedule.ends == ["finished/answered"]
    assert schedule.seconds < 10
    assert_schedule(schedule)


@pytest.mark.slow
def test_some_schedules_keep_every_promise() -> None:
    """Processes crash, stall and take turns over; people answer twice, abort and steer."""
    report = simulate([TARGET], schedules=40, seed=1000)
    assert report.found is None, report.found
    assert report.schedules == 40
    assert len(report.ends) > 3


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_schedules_keep_every_promise(name: str) -> None:
    """Agents with sub-agents, hooks, guardrails, typed answers, compaction and synthesis. `make simulate` runs more."""
    report = simulate([TARGETS[name]], schedules=60, seed=2000)
    assert report.found is None, report.found


@pytest.mark.slow
def test_command_simulates_our_own_agents() -> None:
    command = [sys.executable, "-m", "tests.campaigns.simulation", "--schedules", "10", "--target", "hooks"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("10 schedules keep every promise: ")


class LosesResults(StoreWrapper):
    """A post that accepts a service's result, and stores nothing."""

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        return await super().post(*items) if not any('"service"' in item.payload for item in items) else ()


class NoFence(StoreWrapper):
    """An append that does not look at the epoch."""

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        row, journal = await self.inner.get(claim.turn), await self.inner.facts(claim.turn)
        epoch, claim.epoch, claim.seq = claim.epoch, row.epoch, len(journal)
        try:
            return await self.inner.append(claim, facts, status, consumed)
        finally:
            claim.epoch = epoch


class WritesLater(StoreWrapper):
    """The start of a call is written with the next append."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.kept_facts: list[Fact] = []

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        if any(isinstance(fact, CallStarted) for fact in facts):
            self.kept_facts += facts
            claim.seq += len(facts)
            return []
        held_facts, self.kept_facts = self.kept_facts, []
        claim.seq -= len(held_facts)
        return await self.inner.append(claim, [*held_facts, *facts], status, consumed)


class LosesMessages(StoreWrapper):
    """A message to a turn is acknowledged, and not written."""

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        if items[0].id.startswith("steer:"):
            await self.inner.get(items[0].turn)
            return ()
        return await self.inner.post(*items)


class ReadsTwice(StoreWrapper):
    """A read returns the last fact twice."""

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        facts = await self.inner.facts(turn_id, after)
        return [*facts, *facts[-1:]]


class Breaks(StoreWrapper):
    """Its errors are those of a client that it forgot to translate."""

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        raise ConnectionError(turn_id)


class CallsTwice:
    """A model that is called twice for each call."""

    name = "twice"

    def __init__(self, inner: Model) -> None:
        self.inner = inner

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        for number in range(9):
            async for item in self.inner.stream(request):
                if number == 8 or not isinstance(item, ModelResponse):
                    yield item


class TellsTwice(Engine):
    """An engine whose followers read each fact twice."""

    async def events(self, turn_id: str, after: int = 0, **options: bool) -> AsyncIterator[StreamEvent]:
        async for event in super().events(turn_id, after, **options):
            yield event
            if isinstance(event, FactEvent):
                yield event


async def wait_for_ever(_messages: tuple[Message, ...]) -> Sequence[Message]:
    """Wait for something that never happens."""
    await anyio.Event().wait()
    raise AssertionError("it happened")


def with_store(make: Callable[[Store], Store], **parts: object) -> Engine:
    return ENGINE(**{**parts, "store": make(cast("Store", parts["store"]))})


def with_model(**parts: object) -> Engine:
    return ENGINE(**{**parts, "model": CallsTwice(cast("Model", parts["model"]))})


PLANTED: Final[dict[str, tuple[Callable[..., Engine], str]]] = {
    "a lost fence": (partial(with_store, NoFence), "at most one ending"),
    "a fact that is written late": (partial(with_store, WritesLater), "facts are in the journal before"),
    "a message that is lost": (partial(with_store, LosesMessages), "no accepted message"),
    "an error that nobody translated": (partial(with_store, Breaks), "an engine raises only"),
    "a hook that waits for ever": (
        partial(Engine, history_processor=wait_for_ever, tool_timeout=None),
        "nobody waits for ever",
    ),
    "a store that loses results": (partial(with_store, LosesResults), "no accepted message"),
    "a store that reads a fact twice": (partial(with_store, ReadsTwice), "an engine raises only"),
    "an event that is sent twice": (cast("Callable[..., Engine]", TellsTwice), "a follower reads each fact once"),
    "a model that is called too often": (with_model, "model calls <="),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_detected_and_shrunk(fault: str) -> None:
    """The reduced schedule still violates the same claim, and needs few choices."""
    build, claim = PLANTED[fault]
    report = simulate([SimulationTarget(CLERK, (look, pay), build)], schedules=400, seed=100)
    assert report.found is not None
    assert any(violation.claim.startswith(claim) for violation in report.found.violations), report.found.violations
    assert sum(number > 0 for numbers in plain(report.found.choices).values() for number in numbers) <= 20
    again = run_schedule(SimulationTarget(CLERK, (look, pay), build), report.found.seed, choices=report.found.choices)
    with pytest.raises(InvariantViolatedError):
        assert_schedule(again)


def test_deadlocked_tasks_are_detected() -> None:
    """No timer is set, so an ordinary loop would stand still for ever."""
    loop = SimulatedLoop(lambda _: 0)
    with pytest.raises(NobodyRunsError):
        loop.run(asyncio.Event().wait())


def test_choice_decides_the_order_of_tasks() -> None:
    """Three tasks are ready at once: the choice is which of those that are left runs next."""

    def order(choose: Callable[[int], int]) -> list[int]:
        ran: list[int] = []

        async def note(number: int) -> None:
            ran.append(number)

        async def run() -> None:
            async with anyio.create_task_group() as group:
                for number in range(3):
                    group.start_soon(note, number)

        SimulatedLoop(choose).run(run())
        return ran

    assert order(lambda _: 0) == [0, 1, 2]
    assert order(lambda ready: ready - 1) == [2, 1, 0]
