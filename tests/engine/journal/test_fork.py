"""A fork continues from a place in a turn's past: it executes, replays, ends, and leaves the original alone."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.hypothesis_examples import percent_of_examples
from tests.properties.test_engine_ends import Run, runs

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    FinishedCall,
    StoreError,
    ToolContext,
    TurnNotFoundError,
    TurnResult,
    agent_tool,
    tool,
)
from turnwright.journal.answers import ANSWERABLE
from turnwright.journal.fork import fork_places, fork_turn
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright.model.retry import Backoff
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import MemoryStore, NewTurn, SqliteStore, Status, Store
from turnwright.tools import Tool
from turnwright_states import CallStatus, Cause, EndReason, InterruptKind, Limits, Outcome, State, Turn
from turnwright_states import facts as f
from turnwright_states.facts import Fact
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT: Final = Agent(name="Tidier")


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


@tool
async def hang(context: ToolContext) -> str:
    """Hangs in the original, and not in its forks."""
    if not context.turn_id.startswith("fork-"):
        await anyio.sleep_forever()
    return "at last"


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return f"erased {path}"


@tool(idempotent=True)
async def again(context: ToolContext) -> str:
    await anyio.sleep(1)
    return f"again for {context.idempotency_key}"


@tool(on_crash="ask")
async def send(to: str) -> str:
    await anyio.sleep(2)
    return f"sent to {to}"


TOOLS: Final[list[Tool]] = [note, hang, erase, again, send]


def build_engine(store: Store, *lines: Line, limits: Limits | None = None, synthesis: bool = False) -> Engine:
    """An engine that never waits, with all the tools."""
    return Engine(
        model=ScriptedModel(*lines),
        tools=TOOLS,
        store=store,
        limits=limits,
        backoff=Backoff(initial=0),
        synthesize=_synthesize if synthesis else None,
        cancel_grace=0,
        clock=anyio.current_time,
    )


async def _synthesize(batch: Sequence[FinishedCall]) -> str | None:
    return "All noted." if len(batch) > 1 else None


async def answered(engine: Engine, turn: TurnResult, choice: int = 0) -> TurnResult:
    """The turn, driven on until it has ended; each interrupt gets the decision of that number."""
    while turn.paused:
        interrupt = turn.interrupts[0]
        takes = ANSWERABLE[interrupt.kind]
        turn = await engine.resume(turn.id, {interrupt.id: str(takes[choice % len(takes)])})
    return turn


# Turns of all kinds. Each leaves its turn in the store.


async def side_by_side(store: Store) -> None:
    calls = asks_for(("note", {}), ("note", {"n": 1}), ("nowhere", {}), ("note", {"n": "x"}))
    await build_engine(store, calls, asks_for(("note", {}), text="Once more."), "Done.").run(AGENT, "hi")


async def capped(store: Store) -> None:
    limits = Limits(steps=2, tool_calls=3, tokens=4)
    await build_engine(store, *[asks_for(("note", {})) for _ in range(2)], "So far.", limits=limits).run(AGENT, "hi")


async def asked(store: Store) -> None:
    engine = build_engine(store, asks_for(("note", {}), ("erase", {"path": "a"}), ("erase", {"path": "b"})), "Done.")
    turn = await engine.run(AGENT, "hi")
    first, second = turn.interrupts
    await engine.resume(turn.id, {first.id: True})
    await engine.resume(turn.id, {second.id: False})


async def looping(store: Store) -> None:
    limits = Limits(doom_threshold=2, doom_response="ask", nudges=1)
    engine = build_engine(store, *[asks_for(("note", {})) for _ in range(8)], "Sorry.", limits=limits)
    turn: TurnResult = await engine.run(AGENT, "hi")
    turn = await engine.resume(turn.id, {"doom-1": "go_on"})
    await engine.resume(turn.id, {"doom-2": "stop"})


async def synthesized(store: Store) -> None:
    calls = asks_for(("note", {})), asks_for(("note", {}), ("note", {"n": 1}))
    await build_engine(store, *calls, synthesis=True).run(AGENT, "hi")


async def text_only(store: Store) -> None:
    await build_engine(store, asks_for(("note", {}), text="I may not."), limits=Limits(steps=0)).run(AGENT, "hi")


async def failing(store: Store) -> None:
    down = ModelError("down", cause=Cause.CONNECTION)
    await build_engine(store, down, "", asks_for(("note", {})), ModelError("no", cause=Cause.AUTHENTICATION)).run(
        AGENT, "hi"
    )


async def late(store: Store) -> None:
    calls = asks_for(("note", {}), ("hang", {}), ("hang", {}))
    await build_engine(store, calls, "Too late.", limits=Limits(seconds=20)).run(AGENT, "hi")


async def aborted(store: Store) -> None:
    engine = build_engine(store, asks_for(("note", {}), ("hang", {})))
    async with engine.stream(AGENT, "hi") as events:
        async for event in events:
            if event.type == "call_settled":
                await engine.abort(event.turn)


async def superseded(store: Store) -> None:
    engine = build_engine(store, asks_for(("erase", {"path": "a"})), "As you like.")
    await engine.run(AGENT, "hi", session="s1")
    await engine.run(AGENT, "never mind", session="s1")


async def crashed(store: Store, at: int) -> None:
    """Its process died at the `at`-th append; another one took it up."""
    calls = asks_for(("note", {}), ("again", {}), ("send", {"to": "her"}))
    dying = FaultyStore(store, at=at)
    with pytest.raises(StoreError):
        await build_engine(dying, calls, "Done.").run(AGENT, "hi")
    if isinstance(store, MemoryStore):
        await store.aclose()
    (row,) = await store.turns()
    engine = build_engine(store, "Done." if at > 1 else calls, "Done.")
    await answered(engine, await engine.resume(row.id))


Kind = Callable[[Store], Awaitable[None]]
KINDS: Final[dict[str, Kind]] = {
    **{
        kind.__name__: kind
        for kind in (
            side_by_side,
            capped,
            asked,
            looping,
            synthesized,
            text_only,
            failing,
            late,
            aborted,
            superseded,
        )
    },
    **{f"crashed at {at}": partial(crashed, at=at) for at in range(1, 6)},
}


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest) -> MemoryStore:
    """A store with a turn of each kind."""
    memory = MemoryStore()
    await KINDS[request.param](memory)
    return memory


async def journals(store: Store) -> dict[str, list[tuple[int, Fact]]]:
    """The store's facts of each turn."""
    return {row.id: await store.facts(row.id) for row in await store.turns()}


def holds(journal: Sequence[tuple[int, Fact]]) -> bool:
    checked = replay(journal).check
    assert checked.verdict is Verdict.HOLDS, checked.detail
    return True


# Everywhere.


async def test_the_journals_of_engines_replay(store: MemoryStore) -> None:
    for journal in (await journals(store)).values():
        assert holds(journal)
        assert isinstance(journal[-1][1], f.TurnEnded)


async def test_fork_at_every_place_ends_replays_and_spares_the_original(store: MemoryStore) -> None:
    """The answer in the fork differs from the original's, and so does the model's reply."""
    originals = await journals(store)
    for turn_id, journal in originals.items():
        places = fork_places(turn_id, journal)
        assert places
        for place in places:
            engine = build_engine(store, "Done.", "Done.", "Done.", "Done.")
            fork = await engine.fork(turn_id, at=place.last)
            copied = await store.facts(fork)
            assert [fact for _, fact in copied[1:]] == [fact for _, fact in journal[1 : place.last]]
            assert holds(copied)
            turn = await answered(engine, await engine.resume(fork), choice=1)
            assert turn.outcome is not None
            assert turn.reason is not EndReason.ENGINE_ERROR, turn.error
            facts = await store.facts(fork)
            assert facts[: place.last] == copied
            assert holds(facts)
    assert {turn_id: await store.facts(turn_id) for turn_id in originals} == originals


async def test_fork_after_a_reply_starts_the_calls_of_the_reply(store: MemoryStore) -> None:
    ran: list[str] = []

    @tool
    async def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    async with Engine(
        model=ScriptedModel(asks_for(("look", {})), "Done.", "Again."), tools=[look], store=store
    ) as engine:
        turn = await engine.run(Agent(name="Looker"), "Look.")
        kinds = {place.last: place.state for place in await engine.fork_places(turn.id)}
        assert [type(fact) for _, fact in (await store.facts(turn.id))[2:4]] == [f.ModelReplied, f.CallStarted]
        assert kinds[3] == kinds[4] == State.TOOL_EXEC
        again = await engine.resume(await engine.fork(turn.id, at=3))
        assert (again.text, ran) == ("Again.", ["look", "look"])
        assert holds(await store.facts(again.id))


async def test_fork_inside_an_event_is_refused_with_the_nearest_places(store: MemoryStore) -> None:
    before = await journals(store)
    for turn_id, journal in before.items():
        ends = [place.last for place in fork_places(turn_id, journal)]
        for at in set(range(-1, len(journal) + 2)) - set(ends):
            near = [*[end for end in ends if end < at][-1:], *[end for end in ends if end > at][:1]]
            with pytest.raises(ConfigError, match=f"fork it at fact {' or '.join(map(str, near))}$"):
                await Engine(store=store).fork(turn_id, at=at)
    assert await journals(store) == before


@settings(max_examples=percent_of_examples(40))
@given(run=runs, at=st.integers(0, 25), after=st.booleans())
def test_driven_turn_replays_wherever_the_process_dies(run: Run, at: int, after: bool) -> None:
    anyio.run(partial(run.die, at, after=after))
    assert holds(run.facts)


# What a fork is.


async def only(store: Store) -> str:
    (row,) = await store.turns()
    return row.id


async def test_fork_is_a_new_turn_naming_the_origin() -> None:
    store = MemoryStore()
    await side_by_side(store)
    original = await only(store)
    fork = await Engine(store=store).fork(original, at=2)
    row, first = await store.get(fork), (await store.facts(fork))[0][1]
    assert fork.startswith("fork-")
    assert (row.session, row.agent, row.model, row.owner) == (None, "Tidier", "scripted", None)
    assert row.status == Status(State.STREAM, steps=1)
    assert isinstance(first, f.TurnStarted)
    assert (first.forked_from, first.forked_at) == (original, 2)
    before = (await store.facts(original))[0][1]
    assert first == structs.replace(before, forked_from=original, forked_at=2)


async def test_engine_lists_the_fork_places() -> None:
    model = ScriptedModel(asks_for(("note", {})), "Done.", "Done again.")
    async with Engine(model=model, tools=[note]) as engine:
        turn = await engine.run(AGENT, "hi")
        places = await engine.fork_places(turn.id)
        assert places == fork_places(turn.id, await engine.store.facts(turn.id))
        assert [place.state.outcome for place in places] == [None] * len(places)
        forked = await engine.resume(await engine.fork(turn.id, at=places[-1].last))
        assert (forked.text, forked.tool_calls) == ("Done again.", 1)
        with pytest.raises(TurnNotFoundError):
            await engine.fork_places("nobody's")


async def test_a_fork_of_a_fork_names_the_fork() -> None:
    store = MemoryStore()
    await side_by_side(store)
    engine = build_engine(store, "Done.")
    fork = await engine.fork(await only(store), at=2)
    first = (await store.facts(await engine.fork(fork, at=2)))[0][1]
    assert isinstance(first, f.TurnStarted)
    assert first.forked_from == fork


async def test_a_fork_survives_on_a_disk(tmp_path: object) -> None:
    path = f"sqlite:///{tmp_path}/turns.db"
    async with build_engine(SqliteStore(f"{tmp_path}/turns.db"), asks_for(("erase", {"path": "a"}))) as engine:
        turn = await engine.run(AGENT, "hi")
        fork = await engine.fork(turn.id, at=len(await engine.store.facts(turn.id)))
    async with Engine(model=ScriptedModel("Done."), tools=TOOLS, store=path) as other_engine:
        ended = await other_engine.resume(fork, {"approval-1": True})
        assert (ended.outcome, (await other_engine.get(turn.id)).paused) == (Outcome.FINISHED, True)


async def test_recovery_continues_an_undriven_fork() -> None:
    store = MemoryStore()
    await side_by_side(store)
    fork = await Engine(store=store).fork(await only(store), at=2)
    (turn,) = await build_engine(store, "Otherwise.").recover()
    assert (turn.id, turn.text) == (fork, "Otherwise.")


async def test_fork_counts_usage_before_the_place_only() -> None:
    store = MemoryStore()
    await capped(store)
    journal = await store.facts(await only(store))
    place = next(seq for seq, fact in journal if isinstance(fact, f.StepStarted) and fact.number == 2)
    places = [fork_place.last for fork_place in fork_places("x", journal)]
    engine = build_engine(store, "Two.")
    turn = await engine.resume(await engine.fork(await only(store), at=min(end for end in places if end >= place)))
    assert (turn.outcome, turn.steps, turn.tool_calls, turn.usage.tokens) == (Outcome.FINISHED, 2, 1, 4)


# People.


async def test_open_interrupts_stay_open_and_are_answered_apart() -> None:
    store = MemoryStore()
    engine = build_engine(store, asks_for(("erase", {"path": "a"})), "Denied, then.", "Erased.")
    turn = await engine.run(AGENT, "hi")
    fork = await engine.fork(turn.id, at=len(await store.facts(turn.id)))
    assert (await engine.get(fork)).interrupts == turn.interrupts
    assert (await engine.resume(fork)).paused
    denied = await engine.resume(fork, {"approval-1": False})
    assert results(denied) == [(CallStatus.REJECTED, "rejected by the person")]
    granted = await engine.resume(turn.id, {"approval-1": True})
    assert results(granted) == [(CallStatus.OK, "erased a")]


def with_sub_agents(store: Store) -> Engine:
    """A lead whose sub-agent has a sub-agent, which erases two files, each with leave."""

    def play(request: ModelRequest) -> ModelResponse | str:
        tools, last = {tool.name for tool in request.tools}, request.messages[-1]
        if last.role == "tool":
            return f"Done: {len(request.messages)}"
        for name in ("Middle", "Inner"):
            if name in tools:
                return asks_for((name, {"prompt": "go"}))
        return asks_for(("erase", {"path": "a"}), ("erase", {"path": "b"}))

    inner = agent_tool(Agent(name="Inner", description="Erases.", mode="subagent", tools=("erase",)))
    middle = agent_tool(Agent(name="Middle", description="Leads.", mode="subagent", tools=("Inner",)))
    return Engine(model=ScriptedModel(play, repeat=True), tools=[*TOOLS, inner, middle], store=store)


async def answered_to_the_end(engine: Engine, turn_id: str) -> TurnResult:
    turn = await engine.get(turn_id)
    while turn.paused:
        turn = await engine.resume(turn_id, {turn.interrupts[0].id: True})
    return turn


async def test_fork_waiting_for_a_sub_agents_question_can_be_answered() -> None:
    """At each of its places, after the original was answered and has ended: the sub-agents' turns are forked too."""
    store = MemoryStore()
    engine = with_sub_agents(store)
    lead = Agent(name="Lead", tools=("Middle",))
    turn = await engine.run(lead, "hi")
    ended = await answered_to_the_end(engine, turn.id)
    assert ended.outcome is Outcome.FINISHED
    waited = 0
    for place in await engine.fork_places(turn.id):
        fork = await engine.fork(turn.id, at=place.last)
        copy = await engine.get(fork)
        below = [row.id for row in await engine.turns() if row.id.startswith(f"{fork}:")]
        assert len(below) == (2 if copy.interrupts else len(below))
        if copy.paused:
            waited += 1
            again = await answered_to_the_end(engine, fork)
            assert (again.outcome, again.text) == (Outcome.FINISHED, ended.text)
            for name in (fork, *below):
                assert replay(await store.facts(name)).check.verdict is Verdict.HOLDS
    assert waited == 2
    assert (await engine.get(turn.id)) == ended


async def test_fork_error_names_a_deleted_sub_agent_turn() -> None:
    store = MemoryStore()
    engine = with_sub_agents(store)
    turn = await engine.run(Agent(name="Lead", tools=("Middle",)), "hi")
    gone = next(row.id for row in await engine.turns() if row.id.count(":") == 1)
    await store.delete(gone)
    with pytest.raises(ConfigError, match=f"sub-agent's turn {gone}, which was deleted"):
        await engine.fork(turn.id, at=len(await store.facts(turn.id)))


async def test_pending_answer_of_the_original_is_not_the_forks() -> None:
    store = MemoryStore()
    engine = build_engine(store, asks_for(("erase", {"path": "a"})), "Done.")
    turn = await engine.run(AGENT, "hi")
    await engine.abort(fork := await engine.fork(turn.id, at=len(await store.facts(turn.id))))
    assert (await engine.get(fork)).outcome is Outcome.ABORTED
    assert (await engine.get(turn.id)).paused


# Calls that had started.


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


async def forked_in(store: Store, name: str, **arguments: str) -> tuple[Engine, str]:
    """A fork of a turn in which a call of this tool has started; and an engine for it."""
    turn = await build_engine(store, asks_for((name, dict(arguments))), "Done.").run(AGENT, "hi")
    journal = await store.facts(turn.id)
    at = next(seq for seq, fact in journal if isinstance(fact, f.CallStarted))
    engine = build_engine(store, "Done.")
    return engine, await engine.fork(turn.id, at=at)


async def test_started_call_has_an_unknown_outcome_in_the_fork() -> None:
    """Though it did run in the original: what it did there is the original's."""
    engine, fork = await forked_in(MemoryStore(), "note")
    (result,) = results(await engine.resume(fork))
    assert result[0] is CallStatus.UNKNOWN


async def test_idempotent_call_of_a_fork_runs_again_under_a_new_key() -> None:
    engine, fork = await forked_in(MemoryStore(), "again")
    assert results(await engine.resume(fork)) == [(CallStatus.OK, f"again for {fork}:call00001")]


async def test_tool_asking_after_a_crash_asks_in_the_fork() -> None:
    engine, fork = await forked_in(MemoryStore(), "send", to="her")
    turn = await engine.resume(fork)
    assert [pending.kind for pending in turn.interrupts] == [InterruptKind.UNKNOWN_OUTCOME]
    ended = await engine.resume(fork, {turn.interrupts[0].id: "rerun"})
    assert results(ended) == [(CallStatus.OK, "sent to her")]


async def test_a_fork_costs_no_retry() -> None:
    """Nobody died: a model call that was open at that place is simply made."""
    store = MemoryStore()
    turn = await build_engine(store, "One.", limits=Limits(max_retries=0)).run(AGENT, "hi")
    engine = build_engine(store, "Two.")
    assert (await engine.resume(await engine.fork(turn.id, at=2))).text == "Two."


# What was said before.


async def test_fork_keeps_earlier_messages_and_none_of_later_turns() -> None:
    """It sends what the original sent at that place, though the session has continued since."""
    store = MemoryStore()
    calls = asks_for(("note", {}), text="Let me see.")
    model = ScriptedModel(calls, "One.", calls, "Two.", calls, "Three.", "Two, otherwise.")
    engine = Engine(model=model, tools=TOOLS, store=store)
    history = [{"role": "user", "content": "before it all"}]
    first = await engine.run(AGENT, "first", session="s1", message_history=history)
    second = await engine.run(AGENT, "second", session="s1", continue_from=first.id)
    await engine.run(AGENT, "third", session="s1")
    at = next(seq for seq, fact in await store.facts(second.id) if isinstance(fact, f.StepStarted) and fact.number == 2)
    fork = await engine.fork(second.id, at=at)
    assert (await engine.resume(fork)).text == "Two, otherwise."
    assert model.requests[-1] == model.requests[3]
    assert [message.text for message in model.requests[-1].messages if message.role == "user"] == [
        "before it all",
        "first",
        "second",
    ]


async def test_a_fork_of_a_fork_hears_the_same() -> None:
    store = MemoryStore()
    model = ScriptedModel("One.", "Two.", "Again.", "And again.")
    engine = Engine(model=model, store=store)
    await engine.run(AGENT, "first", session="s1")
    turn = await engine.run(AGENT, "second", session="s1")
    fork = await engine.fork(turn.id, at=2)
    await engine.resume(fork)
    await engine.resume(await engine.fork(fork, at=2))
    assert model.requests[1] == model.requests[2] == model.requests[3]


async def test_session_excludes_the_messages_of_forks() -> None:
    store = MemoryStore()
    model = ScriptedModel("One.", "Otherwise.", "Two.")
    engine = Engine(model=model, store=store)
    turn = await engine.run(AGENT, "first", session="s1")
    await engine.resume(await engine.fork(turn.id, at=2))
    await engine.run(AGENT, "second", session="s1")
    assert [message.text for message in model.requests[2].messages] == ["first", "One.", "second"]


# What is refused.


async def test_missing_turn_cannot_be_forked() -> None:
    with pytest.raises(TurnNotFoundError):
        await Engine().fork("nobody", at=2)


async def test_the_end_of_a_turn_is_no_place_to_go_on_from() -> None:
    store = MemoryStore()
    await text_only(store)
    turn_id = await only(store)
    with pytest.raises(ConfigError, match=f"^turn {turn_id} ended with fact 4"):
        await Engine(store=store).fork(turn_id, at=4)


async def test_a_forged_turn_is_not_forked() -> None:
    store = MemoryStore()
    await capped(store)
    facts = [fact for _, fact in await store.facts(await only(store))]
    facts[1] = structs.replace(facts[1], number=2)
    new = NewTurn(id="forged", session=None, agent="Tidier", model="scripted", created_at=0)
    turn = Turn()
    for fact in facts:
        turn.apply(fact)
    await store.release(await store.create(new, facts, Status.of(turn)))
    with pytest.raises(
        ConfigError, match="forged cannot be forked, because its journal is invalid: fact 2 of the journal"
    ):
        await Engine(store=store).fork("forged", at=1)


async def test_driven_turn_can_be_forked() -> None:
    """Its journal only grows. What it does continues without the fork, and the other way round."""
    store = MemoryStore()
    engine = build_engine(store, asks_for(("note", {})), "Done.")
    forks: list[str] = []
    async with engine.stream(AGENT, "hi") as events:
        async for event in events:
            if event.type == "model_replied" and not forks:
                forks.append(await fork_turn(store, event.turn, 2, new_id="mine"))
    assert forks == ["mine"]
    turn = await build_engine(store, "Mine.").resume("mine")
    assert (turn.text, turn.steps) == ("Mine.", 1)
