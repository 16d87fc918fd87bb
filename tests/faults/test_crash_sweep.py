"""The process dies at every append of a turn, before it or after it; another takes the turn up, and it ends the same.

The turn has four steps: calls side by side in the first two, a pause in the second, which another engine answers, a
call in the third, and the answer in the fourth.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest

from turnwright import Agent, Engine, StoreError, TurnResult, tool
from turnwright.message import StepFinishPart, StepStartPart, ToolResultPart
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import Claim, MemoryStore, NewTurn, SqliteStore, Status, Store, open_store
from turnwright.tools import Tool, ToolContext
from turnwright.transcript.pairing import check_pairing
from turnwright_states import CallStatus, Cause, EndReason, Limits, Outcome, State, Turn
from turnwright_states import facts as f
from turnwright_testing import FaultyStore
from turnwright_testing.faults import StoreWrapper

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
#: Appends of a whole turn. Two results of the first step come together, and one comes later.
APPENDS = 11
#: Before and after each append in memory and SQLite; on PostgreSQL, where it takes longer, before or after each.
SWEEP = [
    pytest.param(place, at, after, id=f"{place}-{'after' if after else 'before'}-{at}")
    for place in ("memory", "sqlite", "postgres")
    for at in range(1, APPENDS + 1)
    for after in (False, True)
    if place != "postgres" or after == at % 2
]
LINES: tuple[ModelResponse | str, ...] = (
    asks_for(("note", {"text": "a"}), ("note", {"text": "b"}), ("note", {"text": "late"}), text="Beginning."),
    asks_for(("erase", {"path": "x"}), ("note", {"text": "c"})),
    asks_for(("note", {"text": "d"})),
    "Done.",
)


def next_line(request: ModelRequest) -> ModelResponse | str:
    """Choose the reply by the conversation, not by the number of calls."""
    return LINES[sum(bool(message.calls) for message in request.messages)]


class Toolbox:
    """Tools, and what they did: it outlives every process."""

    def __init__(self, *, idempotent: bool) -> None:
        self.ran: list[str] = []

        @tool(idempotent=idempotent)
        async def note(context: ToolContext, text: str) -> str:
            self.ran.append(context.call_id)
            if text == "late":
                await anyio.sleep(0.01)
            return f"noted {text}"

        @tool(idempotent=idempotent, needs_approval=True)
        async def erase(context: ToolContext, path: str) -> str:
            self.ran.append(context.call_id)
            return f"erased {path}"

        self.tools: list[Tool] = [note, erase]

    def engine(self, store: Store, limits: Limits | None = None) -> Engine:
        return Engine(model=ScriptedModel(next_line, repeat=True), tools=self.tools, store=store, limits=limits)


async def finish(toolbox: Toolbox, store: Store, turn_id: str) -> TurnResult:
    """Take the turn up, give leave to whatever asks, until it has ended. Each time it is another engine."""
    while await store.is_driven(turn_id):  # noqa: ASYNC110 (a server notices a moment later that a session is gone)
        await anyio.sleep(0.005)
    turn = await toolbox.engine(store).get(turn_id)
    while turn.outcome is None:
        turn = await toolbox.engine(store).resume(turn_id, {interrupt.id: True for interrupt in turn.interrupts})
    return turn


async def undisturbed(toolbox: Toolbox, store: Store) -> TurnResult:
    return await finish(toolbox, store, (await toolbox.engine(store).run(AGENT, "hi")).id)


async def crashed(toolbox: Toolbox, store: StoreWrapper) -> str:
    """Run the turn until its process dies. Returns its id."""
    with pytest.raises(StoreError, match="as planned"):
        await undisturbed(toolbox, store)
    (row,) = await store.inner.turns(limit=1)
    return row.id


class DiesAtBirth(FaultyStore):
    """Dies when it has made the turn, which is not an append."""

    async def create(self, new: NewTurn, facts: Sequence[f.Fact], status: Status, *, driven: bool = True) -> Claim:
        await self.inner.create(new, facts, status, driven=driven)
        self.dead = True
        raise StoreError("making the turn fails, as planned")


def shown(turn: TurnResult) -> list[object]:
    """The transcript without what differs from run to run: places in the journal, and times."""
    return [
        (
            message.role,
            {name: value for name, value in part.to_json().items() if name not in ("seq", "seconds", "started_at")},
        )
        for message in turn.messages
        for part in message.parts
        if not isinstance(part, StepStartPart | StepFinishPart)
    ]


def results(turn: TurnResult) -> dict[str, tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return {part.call: (part.status, part.text) for part in parts if isinstance(part, ToolResultPart)}


def running(facts: list[tuple[int, f.Fact]]) -> set[str]:
    """The calls that had started and had no result."""
    started = {fact.call for _, fact in facts if isinstance(fact, f.CallStarted)}
    return started - {fact.call for _, fact in facts if isinstance(fact, f.CallSettled)}


def follows(facts: list[tuple[int, f.Fact]]) -> bool:
    """Whether each fact's hash is that of the state which the facts up to it amount to."""
    turn = Turn()
    for _, fact in facts:
        turn.apply(fact)
        if fact.hash not in ("", turn.digest()):
            return False
    return True


@pytest.fixture
def sqlite(tmp_path: Path) -> Callable[[], Store]:
    """Opens the one database of a test, again and again."""
    return lambda: SqliteStore(tmp_path / "turns.db", durability="normal")


@pytest.fixture(scope="session")
def database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
def postgres(database: str) -> Callable[[], Store]:
    """Opens one database for all turns of this module."""
    return partial(open_store, database)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Opens a store, again and again."""
    if request.param == "memory":
        memory = MemoryStore()  # closed, it keeps its turns
        return lambda: memory
    opens: Callable[[], Store] = request.getfixturevalue(request.param)
    return opens


async def test_number_of_appends_equals_the_sweep() -> None:
    store = FaultyStore(MemoryStore())
    turn = await undisturbed(Toolbox(idempotent=False), store)
    assert (turn.outcome, turn.text, turn.steps, store.appends) == (Outcome.FINISHED, "Done.", 4, APPENDS)


@pytest.mark.parametrize(("place", "at", "after"), SWEEP, indirect=["place"])
async def test_rerunnable_tools_give_the_same_transcript(at: int, after: bool, place: Callable[[], Store]) -> None:
    """And nothing that had finished runs again."""
    plain = await undisturbed(Toolbox(idempotent=True), MemoryStore())
    toolbox, first = Toolbox(idempotent=True), place()
    store = FaultyStore(first, at=at, after=after)
    turn_id = await crashed(toolbox, store)
    left_facts = await first.facts(turn_id)
    ran = list(toolbox.ran)
    await store.aclose()
    second = place()
    turn = await finish(toolbox, second, turn_id)
    assert shown(turn) == shown(plain)
    assert (turn.outcome, turn.steps, turn.tool_calls) == (plain.outcome, plain.steps, plain.tool_calls)
    facts = await second.facts(turn_id)
    assert facts[: len(left_facts)] == left_facts, "what was written stays"
    assert follows(facts)
    done = {fact.call for _, fact in left_facts if isinstance(fact, f.CallSettled)}
    assert done.isdisjoint(toolbox.ran[len(ran) :])
    assert all(toolbox.ran.count(call) == 1 for call in set(toolbox.ran) - running(left_facts))
    await second.aclose()


async def test_crash_at_the_creation_leaves_a_resumable_turn(place: Callable[[], Store]) -> None:
    """Its first facts are written with it; there is no transaction before that one to crash at."""
    toolbox, first = Toolbox(idempotent=False), place()
    store = DiesAtBirth(first)
    turn_id = await crashed(toolbox, store)
    assert [fact.kind for _, fact in await first.facts(turn_id)] == ["turn_started", "step_started"]
    await store.aclose()
    second = place()
    turn = await finish(toolbox, second, turn_id)
    assert shown(turn) == shown(await undisturbed(Toolbox(idempotent=False), MemoryStore()))
    await second.aclose()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, APPENDS + 1))
async def test_running_calls_of_other_tools_are_unknown(at: int, after: bool, sqlite: Callable[[], Store]) -> None:
    """Nothing runs twice, and what had not started runs."""
    plain = await undisturbed(Toolbox(idempotent=False), MemoryStore())
    toolbox, first = Toolbox(idempotent=False), sqlite()
    store = FaultyStore(first, at=at, after=after)
    turn_id = await crashed(toolbox, store)
    lost = running(await first.facts(turn_id))
    await store.aclose()
    second = sqlite()
    turn = await finish(toolbox, second, turn_id)
    assert turn.outcome is Outcome.FINISHED
    assert len(set(toolbox.ran)) == len(toolbox.ran)
    actual, expected = results(turn), results(plain)
    assert {call for call, (status, _) in actual.items() if status is CallStatus.UNKNOWN} == lost
    assert {call: actual[call] for call in actual.keys() - lost} == {
        call: expected[call] for call in actual.keys() - lost
    }
    assert actual.keys() == expected.keys()
    check_pairing(turn.messages)
    assert follows(await second.facts(turn_id))
    await second.aclose()


@pytest.mark.parametrize("at", [1, 4, 9, 11])  # the replies
async def test_crash_during_a_model_call_costs_a_retry(at: int) -> None:
    """The reply was not written, so the model is asked again, and that is written first (docs/rules.md#retries)."""
    memory, toolbox = MemoryStore(), Toolbox(idempotent=False)
    store = FaultyStore(memory, at=at)
    turn_id = await crashed(toolbox, store)
    fact_count = len(await memory.facts(turn_id))
    await store.aclose()
    turn = await finish(toolbox, memory, turn_id)
    assert turn.outcome is Outcome.FINISHED
    _, next_fact = (await memory.facts(turn_id))[fact_count]
    assert isinstance(next_fact, f.AttemptFailed)
    assert (next_fact.cause, next_fact.retry, next_fact.attempt) == (Cause.CRASH, True, 1)


async def test_process_dying_at_the_same_call_repeatedly_ends_the_turn() -> None:
    """Bounded by `max_retries`, whatever starts the process anew."""
    memory, toolbox, limits = MemoryStore(), Toolbox(idempotent=False), Limits(max_retries=2)
    store = FaultyStore(memory, at=1)
    with pytest.raises(StoreError):
        await toolbox.engine(store, limits).run(AGENT, "hi")
    (row,) = await memory.turns()
    deaths = 1
    while True:
        await memory.aclose()
        dying = FaultyStore(memory, at=2)  # the crash is written, the reply is not
        try:
            turn = await toolbox.engine(dying).resume(row.id)
        except StoreError:
            deaths += 1
            assert deaths < 9
            continue
        break
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.CRASHED)
    assert deaths == 3


@pytest.mark.parametrize("at", range(1, APPENDS + 1))
async def test_single_store_failure_leaves_a_resumable_turn(at: int) -> None:
    """The disk was full for a moment: the driver writes nothing more, and releases the turn.

    Its work is lost with the append, as after a crash, and the next driver accounts for it.
    """
    memory, toolbox = MemoryStore(), Toolbox(idempotent=True)
    store = FaultyStore(memory, at=at, heals=True)
    turn_id = await crashed(toolbox, store)
    facts = await memory.facts(turn_id)
    assert follows(facts)
    assert not await memory.is_driven(turn_id)
    turn = await finish(toolbox, memory, turn_id)
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    assert follows(await memory.facts(turn_id))
    plain = await undisturbed(Toolbox(idempotent=True), MemoryStore())
    assert shown(turn) == shown(plain)


async def test_second_of_two_simultaneous_results_is_not_written() -> None:
    """The second is not written either: its facts would speak of a state that the journal never reached."""
    memory = MemoryStore()
    store = FaultyStore(memory, at=f.CallSettled, heals=True)
    toolbox = Toolbox(idempotent=True)
    with pytest.raises(StoreError):
        await toolbox.engine(store).run(AGENT, "hi")
    (row,) = await memory.turns()
    facts = await memory.facts(row.id)
    assert [fact.kind for _, fact in facts][-2:] == ["call_started"] * 2
    assert row.status.state is State.TOOL_EXEC
    assert follows(facts)
