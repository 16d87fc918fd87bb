"""With any model and any tools the turn ends within its bounds, and its journal replays to the same turn."""

import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.hypothesis_examples import percent_of_examples
from tests.rule_bounds import MOST_STEPS, most_model_calls, most_steps, most_tool_calls, steps_with_tools

from turnwright import Agent, EndReason, Engine, FinishedCall, StoreError, TurnResult, tool
from turnwright.journal.answers import ANSWERABLE
from turnwright.message import AnyPart, ToolCallPart, ToolResultPart
from turnwright.model.protocol import ModelError, ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel
from turnwright.store import MemoryStore, SqliteStore, Store
from turnwright.tools import Tool
from turnwright.transcript.pairing import check_pairing
from turnwright.transcript.transcript import Transcript
from turnwright_states import Cause, Finish, InterruptKind, Limits, Turn, Usage
from turnwright_states import facts as f
from turnwright_states.limits import Concluding, DoomResponse
from turnwright_testing import FaultyStore

AGENT = Agent(name="Anybody")
CONCLUDING: tuple[Concluding, ...] = ("after", "within", "never")
RESPONSES: tuple[DoomResponse, ...] = ("stop", "ask")


@tool
async def ok(n: int = 0) -> str:
    return f"ok {n}"


@tool(loop_key=lambda _: "always the same")
async def fail() -> str:
    raise ValueError("boom")


@tool(needs_approval=True)
async def ask(n: int = 0) -> str:
    return f"allowed {n}"


@tool(ignore_in_loop_detection=True)
async def poll() -> str:
    return "not yet"


TOOLS: list[Tool] = [ok, fail, ask, poll]

arguments: st.SearchStrategy[Mapping[str, JsonValue] | None] = st.one_of(
    st.none(),
    st.just({}),
    st.fixed_dictionaries({"n": st.integers(0, 2)}),
    st.just({"n": "many"}),
    st.just({"unknown": True}),
)
calls = st.builds(
    lambda name, given_arguments: ResponseToolCall(
        name, given_arguments, raw="" if given_arguments is not None else '{"n'
    ),
    st.sampled_from(["ok", "ok", "fail", "ask", "poll", "nowhere", ""]),
    arguments,
)
usages = st.none() | st.builds(Usage, input_tokens=st.integers(0, 50), output_tokens=st.integers(0, 50))
replies = st.builds(
    ModelResponse,
    text=st.sampled_from(["", "", "Well.", "a b c"]),
    reasoning=st.sampled_from(["", "hm"]),
    calls=st.lists(calls, max_size=4).map(tuple),
    finish=st.sampled_from([Finish.STOP] * 8 + [Finish.LENGTH, Finish.CONTENT_FILTER]),
    usage=usages,
)
errors = st.builds(lambda cause: ModelError(f"{cause}", cause=cause), st.sampled_from(Cause))
scripts = st.lists(st.one_of(replies, replies, replies, errors), min_size=1, max_size=12)
limits = st.builds(
    Limits,
    steps=st.none() | st.integers(0, 6),
    ceiling=st.sampled_from([8, MOST_STEPS]),
    concluding=st.sampled_from(CONCLUDING),
    tool_calls=st.none() | st.integers(0, 8),
    max_calls_per_step=st.integers(1, 4),
    tokens=st.none() | st.integers(1, 300),
    doom_threshold=st.none() | st.integers(2, 3),
    idle_steps=st.none() | st.integers(1, 3),
    doom_compare=st.sampled_from(("results", "calls")),
    doom_response=st.sampled_from(RESPONSES),
    nudges=st.integers(0, 2),
    max_retries=st.integers(0, 2),
    max_pauses=st.integers(0, 3),
)
#: Which of an interrupt's decisions is taken, by number; and whether all are answered at once.
answers = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6)


class Run:
    """One turn through the real engine, paused and answered until it has ended."""

    def __init__(
        self,
        script: list[ModelResponse | ModelError],
        bounds: Limits,
        say: list[tuple[int, bool]],
        synthesis: bool,
    ) -> None:
        # The script is repeated for ever: a model that never stops by itself.
        self.model = ScriptedModel(*[line for _ in range(1 + 1000 // len(script)) for line in script])
        self.limits = bounds
        self.say = say
        self.synthesis = synthesis
        self.facts: list[tuple[int, f.Fact]] = []

    def engine(self, store: Store) -> Engine:
        """An engine of a process of its own; the model continues where it was."""
        return Engine(
            model=self.model,
            tools=TOOLS,
            store=store,
            limits=self.limits,
            backoff=Backoff(initial=0),
            synthesize=_synthesize if self.synthesis else None,
        )

    async def drive(self, path: Path) -> TurnResult:
        """The turn on a disk, without a mishap."""
        async with self.engine(SqliteStore(path, durability="normal")) as engine:
            turn = await self._answered(engine, await engine.run(AGENT, "hi"))
            self.facts = await engine.store.facts(turn.id)
        return turn

    async def die(self, at: int, *, after: bool) -> TurnResult:
        """The turn in memory. Its process dies at its `at`-th append, if there are as many; another continues."""
        memory = MemoryStore()
        store = FaultyStore(memory, at=at, after=after)
        try:
            engine = self.engine(store)
            turn = await self._answered(engine, await engine.run(AGENT, "hi"))
        except StoreError:
            await store.aclose()
            engine, (row,) = self.engine(memory), await memory.turns()
            turn = await engine.get(row.id)
            if turn.outcome is None:
                turn = await self._answered(engine, await engine.resume(row.id))
        self.facts = await memory.facts(turn.id)
        return turn

    async def _answered(self, engine: Engine, turn: TurnResult) -> TurnResult:
        rounds = 0
        while turn.outcome is None:
            number, at_once = self.say[rounds % len(self.say)]
            interrupts = turn.interrupts if at_once else turn.interrupts[:1]
            turn = await engine.resume(
                turn.id, {interrupt.id: _decision(interrupt.kind, number) for interrupt in interrupts}
            )
            rounds += 1
            assert rounds < 2000, "it asks for ever"
        return turn


def _decision(kind: InterruptKind, number: int) -> str:
    takes = ANSWERABLE[kind]
    return str(takes[number % len(takes)])


async def _synthesize(batch: tuple[FinishedCall, ...]) -> str | None:
    return "Synthesized." if any(call.text == "ok 2" for call in batch) else None


runs = st.builds(Run, script=scripts, bounds=limits, say=answers, synthesis=st.booleans())


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    """One database for all the examples."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "turns.db"


def parts(turn: TurnResult) -> list[AnyPart]:
    return [part for message in turn.messages for part in message.parts]


@settings(max_examples=percent_of_examples(60))
@given(run=runs)
def test_every_script_ends_within_the_bounds(path: Path, run: Run) -> None:
    turn = anyio.run(run.drive, path)
    bounds = run.limits
    assert turn.outcome is not None
    assert turn.reason is not EndReason.ENGINE_ERROR, turn.error
    assert turn.steps <= most_steps(bounds)
    assert len(run.model.requests) <= most_model_calls(bounds)
    budget = most_tool_calls(bounds)
    assert budget is None or turn.tool_calls <= budget
    started = sum(isinstance(fact, f.StepStarted) for _, fact in run.facts)
    assert started <= steps_with_tools(bounds)
    # Under `within` the conclusion is a step too, and so is the single call of a turn whose cap is 1.
    concluded = any(isinstance(fact, f.Stopping) for _, fact in run.facts) or steps_with_tools(bounds) == 0
    assert turn.steps == started + (bounds.concluding == "within" and most_steps(bounds) > 0 and concluded)
    assert [fact.kind for _, fact in run.facts].count("turn_ended") == 1
    assert sum(isinstance(fact, f.Paused) for _, fact in run.facts) <= bounds.max_pauses


@settings(max_examples=percent_of_examples(60))
@given(run=runs)
def test_every_call_has_exactly_one_result_in_requests_and_transcript(path: Path, run: Run) -> None:
    turn = anyio.run(run.drive, path)
    for request in run.model.requests:
        check_pairing(request.messages)
        assert request.messages[-1].role != "assistant"
        assert [spec.name for spec in request.tools] == [tool.name for tool in TOOLS]
    check_pairing(turn.messages)
    call_ids = [part.id for part in parts(turn) if isinstance(part, ToolCallPart)]
    answered = [part.call for part in parts(turn) if isinstance(part, ToolResultPart)]
    assert call_ids == answered
    assert len(set(call_ids)) == len(call_ids)


@settings(max_examples=percent_of_examples(60))
@given(run=runs)
def test_journal_replays_to_the_same_turn(path: Path, run: Run) -> None:
    """Read back from the store: every prefix folds to the state whose hash its last fact has."""
    turn = anyio.run(run.drive, path)
    folded = Turn()
    for _, fact in run.facts:
        folded.apply(fact)
        assert fact.hash in ("", folded.digest())
    assert (folded.state.outcome, folded.reason, folded.steps_taken) == (turn.outcome, turn.reason, turn.steps)


@settings(max_examples=percent_of_examples(30))
@given(run=runs)
def test_parts_keep_the_same_places_in_a_growing_journal(path: Path, run: Run) -> None:
    anyio.run(run.drive, path)
    earlier_parts: dict[int, AnyPart] = {}
    transcript = Transcript()
    for seq, fact in run.facts:
        transcript.turn.apply(fact)
        transcript.add(seq, fact)
        there = [part for message in transcript.messages for part in message.parts]
        now = {part.seq: part for part in there}
        assert len(now) == len(there), "no two parts share a place"
        assert all(now.get(place) == part for place, part in earlier_parts.items())
        earlier_parts = now


@settings(max_examples=percent_of_examples(30))
@given(run=runs)
def test_only_the_requests_of_steps_may_call_tools(path: Path, run: Run) -> None:
    """The conclusion, and the one request of a turn without steps, forbid it."""
    anyio.run(run.drive, path)
    facts = [fact for _, fact in run.facts]
    stop = next((place for place, fact in enumerate(facts) if isinstance(fact, f.Stopping)), len(facts))
    concluding = sum(isinstance(fact, f.Concluded | f.AttemptFailed) for fact in facts[stop:])
    if run.limits.concluding == "never":  # a fixed text, without a request
        concluding = 0
    step_count = len(run.model.requests) - concluding
    allowed = [request.tool_choice != "none" for request in run.model.requests]
    stepped = any(isinstance(fact, f.StepStarted) for fact in facts)
    assert allowed == [stepped] * step_count + [False] * concluding


@settings(max_examples=percent_of_examples(60))
@given(run=runs, at=st.integers(1, 25), after=st.booleans())
def test_death_at_any_append_keeps_the_bounds_and_the_pairing(run: Run, at: int, after: bool) -> None:
    """A crash is one of the failed attempts that the bounds count, and never breaks a pair."""
    turn = anyio.run(partial(run.die, at, after=after))
    assert turn.reason is not EndReason.ENGINE_ERROR, turn.error
    assert turn.steps <= most_steps(run.limits)
    assert len(run.model.requests) <= most_model_calls(run.limits)
    budget = most_tool_calls(run.limits)
    assert budget is None or turn.tool_calls <= budget
    check_pairing(turn.messages)
    for request in run.model.requests:
        check_pairing(request.messages)
    folded = Turn()
    for _, fact in run.facts:
        folded.apply(fact)
        assert fact.hash in ("", folded.digest())
