"""Turnwright's own journals are read as runs: stores, and the lines that `turnwright show --journal --json` prints."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import JsonValue
from tests.audit.trajectories.reading import assert_a_cut_is_safe, calls, read, recognized, results, without_events

from turnwright import Agent, Engine, Trip, TurnContext, agent_tool, output_guardrail, tool
from turnwright.model import Backoff
from turnwright.model.protocol import ModelError, ModelResponse
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import MemoryStore, SqliteStore, Store
from turnwright_audit.invariants import check_run
from turnwright_audit.measure import measure
from turnwright_audit.trajectories.atif import Trajectory, TrajectoryStep
from turnwright_audit.trajectories.files import runs as runs_at
from turnwright_audit.trajectories.formats import format_of
from turnwright_audit.trajectories.journal_run import run_of
from turnwright_audit.trajectories.journal_trace import trace_of
from turnwright_audit.trajectories.source import Recording, UnreadableRecordingError, opener
from turnwright_audit.transfer import export_turn
from turnwright_states import Cause, Finish, State, Usage
from turnwright_states import facts as f
from turnwright_states.facts import Fact
from turnwright_states.verdict import Verdict

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

CLERK = Agent(name="Clerk", instructions="Be brief.")
LINES = (
    asks_for(("look", {"n": 1}), ("look", {"n": 2}), text="Looking.", usage=Usage(input_tokens=7, output_tokens=3)),
    ModelError("too busy", cause=Cause.OVERLOADED),
    "Done.",
)


@tool
async def look(n: int) -> str:
    if n == 2:
        raise ValueError("no such page")
    return f"page {n}"


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return path


@output_guardrail
async def no_numbers(_: TurnContext, text: str) -> Trip | None:
    return Trip("a number") if "42" in text else None


def engine_on(store: Store, *lines: Line) -> Engine:
    helper = agent_tool(Agent(name="Helper", description="Helps."), name="helper")
    return Engine(store=store, model=ScriptedModel(*lines), tools=[look, erase, helper])


async def turn_of(*lines: Line, agent: Agent = CLERK) -> tuple[str, list[Fact]]:
    """The id and the facts of a turn with these replies."""
    store = MemoryStore()
    turn = await engine_on(store, *lines).run(agent, "Pay the invoice.", session="s-1")
    return turn.id, [fact for _, fact in await store.facts(turn.id)]


def as_lines(facts: Sequence[Fact]) -> bytes:
    """The lines that `turnwright show --journal --json` prints."""
    listed = enumerate(facts, 1)
    lines = (json.dumps({"seq": seq, "kind": fact.kind, **json.loads(fact.payload())}) for seq, fact in listed)
    return "\n".join(lines).encode()


def replies(run: Trajectory) -> list[TrajectoryStep]:
    return [step for step in run.steps if step.source == "agent"]


def statuses(run: Trajectory) -> list[str | None]:
    results = [result for step in run.steps if step.observation for result in step.observation.results]
    return [result.extra.turnwright.status for result in results if result.extra and result.extra.turnwright]


async def test_turn_is_a_run_with_attempts_results_tokens_and_ending() -> None:
    turn, facts = await turn_of(*LINES)
    run = run_of(facts, turn=turn)
    assert [step.source for step in run.steps] == ["system", "user", "agent", "system", "agent"]
    assert (run.agent.name, run.agent.model_name, run.session_id) == ("Clerk", "scripted", "s-1")
    assert statuses(run) == ["ok", "error"]
    failed, last = run.steps[3], run.steps[4]
    assert failed.message == "overloaded: too busy"
    assert failed.extra is not None
    assert failed.extra.turnwright is not None
    assert failed.extra.turnwright.error
    assert last.extra is not None
    assert last.extra.turnwright is not None
    assert last.extra.turnwright.attempt == 2
    assert run.final_metrics is not None
    assert run.final_metrics.total_prompt_tokens == sum(
        step.metrics.prompt_tokens or 0 for step in run.steps if step.metrics
    )
    notes = run.run_notes
    assert (notes.ending, notes.success, notes.cut) == ("finished: answered", None, False)
    assert notes.limits is not None
    assert notes.spent is not None
    assert (notes.limits["tool_calls"], notes.spent["tool_calls"]) == (50, 2)
    assert notes.hash == facts[-1].hash
    assert all(step.timestamp for step in run.steps if step.source != "system")


async def test_journal_lines_give_the_same_run() -> None:
    _, facts = await turn_of(*LINES)
    data = as_lines(facts)
    assert recognized(data) == "turnwright"
    assert list(map(without_events, read(data, "turnwright"))) == [run_of(facts)]


async def test_each_turn_of_a_store_is_a_run_containing_sub_agents(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "turns.db")
    asks = asks_for(("helper", {"prompt": "Find it."}))
    engine = engine_on(store, asks, "Found.", "Done.", asks_for(("erase", {"path": "a"})))
    first = await engine.run(CLERK, "Pay the invoice.")
    await engine.run(CLERK, "Erase it.")
    child = f"{first.id}:call00001"
    journals = {turn: [fact for _, fact in await store.facts(turn)] for turn in (first.id, child)}
    open_now = [run.found for run in runs_at([tmp_path / "turns.db"])]
    await store.aclose()
    for runs in (open_now, [*read((tmp_path / "turns.db").read_bytes(), "turnwright")]):
        paid, erased = [run for run in runs if isinstance(run, Trajectory)]
        assert without_events(paid) == run_of(journals[first.id], turn=first.id, journals=journals.get)
        [inner] = paid.subagent_trajectories or []
        assert (inner.trajectory_id, inner.agent.name) == (child, "Helper")
        observation = replies(paid)[0].observation
        assert observation is not None
        [reference] = observation.results[0].subagent_trajectory_ref or []
        assert reference.trajectory_id == child
        assert erased.run_notes.ending == "paused"
        assert results([erased]) == 0
        [waiting] = replies(erased)[0].tool_calls or []
        assert waiting.extra is not None
        assert waiting.extra.turnwright is not None
        assert waiting.extra.turnwright.state == "waiting"


async def test_events_of_turns_and_sub_agents_reach_the_check(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "turns.db")
    lines = (asks_for(("helper", {"prompt": "Look."})), asks_for(("look", {"n": 1})), "Found.", "Done.")
    await engine_on(store, *lines).run(CLERK, "Pay the invoice.")
    await store.aclose()
    [run] = runs_at([tmp_path / "turns.db"])
    assert isinstance(run.found, Trajectory)
    invariants = check_run(run.found, "turns.db", "run")
    assert (invariants.turns, invariants.verdict) == (2, Verdict.HOLDS)


async def test_turn_with_a_damaged_fact_is_undecided() -> None:
    _, facts = await turn_of(*LINES)
    [run] = read(as_lines(facts).replace(b'"call_started"', b'"call_restarted"', 1), "turnwright")
    assert check_run(run, "f", "run").verdict is Verdict.INCONCLUSIVE


async def test_check_of_a_forged_journal_names_the_remedy() -> None:
    _, facts = await turn_of(*LINES)
    place = next(place for place, fact in enumerate(facts) if isinstance(fact, f.ModelReplied))
    [run] = read(as_lines([*facts[:place], *facts[place + 1 :]]), "turnwright")
    message = r"its facts do not follow from each other: KeyError: .*: `turnwright replay` names the first wrong fact"
    with pytest.raises(UnreadableRecordingError, match=message):
        check_run(run, "f", "run")


async def test_reply_withheld_by_a_guardrail_stays_withheld() -> None:
    store = MemoryStore()
    engine = Engine(store=store, model=ScriptedModel("It is 42."), guardrails=[no_numbers])
    turn = await engine.run(CLERK, "What is it?")
    run = run_of([fact for _, fact in await store.facts(turn.id)])
    assert [step.message for step in replies(run)] == ["withheld by no_numbers"]
    assert run.run_notes.success is False


async def test_conclusion_is_a_reply_and_names_the_limit() -> None:
    _, facts = await turn_of(LINES[0], "I looked twice.", agent=Agent(name="Clerk", steps=1))
    run = run_of(facts)
    assert [step.message for step in replies(run)] == ["Looking.", "I looked twice."]
    assert run.run_notes.ending == "cap_hit: step_cap"
    assert "A limit was reached: step_cap" in [step.message for step in run.steps]


async def test_turn_that_asks_for_no_conclusion_has_only_its_replies() -> None:
    turn, facts = await turn_of(LINES[0], agent=Agent(name="Clerk", steps=1, concluding="never"))
    assert [step.message for step in replies(run_of(facts))] == ["Looking."]
    events = [event.event for event in trace_of(turn, facts)]
    assert [event for event in events if event.startswith("model")] == ["model_called", "model_replied"]


@pytest.mark.parametrize(
    ("steps", "concluding", "lines", "counted"),
    [
        (2, "after", ["Sum."], 2),
        (2, "within", ["Sum."], 2),
        (2, "never", [], 2),
        (2, "after", ["", "Sum."], 2),  # a conclusion is asked for twice
        (2, "within", ["", "Sum."], 2),
        (0, "after", ["Sum."], 0),
        (1, "within", ["Sum."], 1),
        (3, "after", ["Done."], 3),
    ],
)
async def test_steps_of_a_turn_are_counted_as_by_its_limit(
    steps: int, concluding: Literal["after", "within", "never"], lines: list[str], counted: int
) -> None:
    looks = [asks_for(("look", {"n": n})) for n in (1, 3)]
    agent = Agent(name="Clerk", steps=steps, concluding=concluding)
    store = MemoryStore()
    turn = await engine_on(store, *looks[: steps - (concluding == "within")], *lines).run(agent, "Look.")
    run = run_of([fact for _, fact in await store.facts(turn.id)])
    run_measure = measure(run, "turns.db")
    spent = run.run_notes.spent or {}
    assert (turn.steps, run_measure.steps, spent["steps"]) == (counted, counted, counted)
    assert [turn_measure.steps for turn_measure in run_measure.measured] == [counted] * (counted > 0)
    assert run_measure.tokens == turn.usage.input_tokens + turn.usage.output_tokens


async def test_tokens_of_failed_attempts_belong_to_the_turn() -> None:
    usage = Usage(input_tokens=7, output_tokens=3, cost=0.5)
    store = MemoryStore()
    blank, done = (ModelResponse(text=text, usage=usage, finish=Finish.STOP) for text in ("", "Done."))
    engine = Engine(store=store, model=ScriptedModel(blank, blank, done), backoff=Backoff(initial=0))
    turn = await engine.run(CLERK, "Look.")
    run_measure = measure(run_of([fact for _, fact in await store.facts(turn.id)]), "turns.db")
    tokens = run_measure.input_tokens, run_measure.output_tokens, run_measure.cost
    assert tokens == (turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.cost) == (21, 9, 1.5)


async def test_events_between_replies_become_steps() -> None:
    """A message, a compaction, a refused reply and an answer of the app, in facts of their own."""
    _, facts = await turn_of(LINES[0], "Done.")
    started, stepped, replied, *_ = facts
    replied = replace(replied, state=State.REVIEW, calls=())
    around: list[Fact] = [
        f.MessageAdded(text="Faster.", elapsed=1.0, state=State.STREAM),
        f.Compacted(text="We looked.", kept=1, elapsed=1.0, state=State.STREAM),
        f.Compacted(cleared=True, kept=1, elapsed=1.0, state=State.STREAM),
        replied,
        f.Reviewed(refused=True, retry=True, feedback="no", elapsed=1.0, state=State.CHECK),
        replied,
        f.Synthesized(text="All paid.", elapsed=1.0, state=State.SYNTHESIS_DONE),
    ]
    run = run_of([started, stepped, *around])
    assert [(step.source, step.message) for step in run.steps[2:]] == [
        ("user", "Faster."),
        ("system", "The conversation was compacted. We looked."),
        ("system", "The conversation was compacted. Old tool results were cleared."),
        ("agent", "withheld: the reply was refused"),
        ("system", "The reply was refused."),
        ("agent", "withheld: its check did not finish"),
        ("system", "The app gave the answer: All paid."),
    ]
    steered = run.steps[2].extra
    assert steered is not None
    assert steered.turnwright is not None
    assert steered.turnwright.steered


async def test_damaged_journal_with_repeated_reply_and_bad_times_is_read() -> None:
    _, facts = await turn_of(LINES[0], "Done.")
    started, stepped, replied, called, *_ = facts
    late = replace(called, elapsed=1e300)
    never = replace(stepped, started_at="2026-99-99T00:00:00Z")
    run = run_of([started, stepped, replied, late, replied, never, called])
    assert sum(calls([run]).values()) == 4
    assert results([run]) == 0


async def test_exported_turn_has_its_own_id_as_its_name() -> None:
    store = MemoryStore()
    lines = ("One.", asks_for(("helper", {"prompt": "Help."})), "Helped.", "Two.")
    engine = engine_on(store, *lines)
    turns = [await engine.run(CLERK, prompt, session="s-1") for prompt in ("First.", "Second.")]
    data = "\n".join([line for turn in turns for line in await export_turn(store, turn.id)]).encode()
    assert recognized(data) == "turnwright"
    for exported in (data, data[data.index(b"\n") + 1 :]):  # also where the first fact is lost
        runs = read(exported, "turnwright")
        assert [measure(run, "-").run for run in runs] == [turn.id for turn in turns]
        assert measure(runs[1], "-").subagents == 1


async def test_origin_of_a_turn_is_noted() -> None:
    store = MemoryStore()
    engine = engine_on(store, "One.", "Two.")
    first = await engine.run(Agent(name="Clerk", steps=0), "Pay.")
    second = await engine.run(CLERK, "Go on.", continue_from=first.id)
    assert run_of([fact for _, fact in await store.facts(second.id)]).notes == f"It continues turn {first.id}."


def test_database_of_another_program_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE birds (name TEXT)")
    assert format_of(Recording(str(path), opener(path))) is None


@pytest.mark.parametrize(("version", "advice"), [(0, "run `turnwright migrate`"), (99, "upgrade turnwright")])
async def test_store_of_another_release_is_refused_with_advice(tmp_path: Path, version: int, advice: str) -> None:
    await SqliteStore(tmp_path / "turns.db").aclose()
    with closing(sqlite3.connect(tmp_path / "turns.db")) as db:
        db.execute(f"PRAGMA user_version = {version}")
    data = (tmp_path / "turns.db").read_bytes()
    with pytest.raises(UnreadableRecordingError, match=advice):
        read(data, "turnwright")


async def test_damaged_fact_of_a_store_is_counted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "turns.db")
    await engine_on(store, *LINES).run(CLERK, "Pay the invoice.")
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "turns.db")) as db:
        db.execute("UPDATE facts SET payload = '{}' WHERE kind LIKE 'model_replied%'")
        db.commit()
    [run] = read((tmp_path / "turns.db").read_bytes(), "turnwright")
    assert run.run_notes.unreadable_lines > 0
    assert not calls([run])


@pytest.fixture(scope="module")
def journal() -> bytes:
    """The lines of a journal."""
    _, facts = anyio.run(turn_of, LINES[0], "Done.")
    return as_lines(facts)


@given(data=st.data())
def test_no_cut_invents_a_call(journal: bytes, data: st.DataObject) -> None:
    assert_a_cut_is_safe(journal, data.draw(st.integers(0, len(journal))), "turnwright")


@given(garbage=st.binary(max_size=40), data=st.data())
def test_line_of_garbage_invents_no_call(journal: bytes, garbage: bytes, data: st.DataObject) -> None:
    """Garbage that looks like the beginning of a database is refused as a whole."""
    lines = journal.split(b"\n")
    lines[data.draw(st.integers(0, len(lines) - 1))] = garbage.replace(b"\n", b" ")
    with suppress(UnreadableRecordingError):
        assert not calls(read(b"\n".join(lines), "turnwright")) - calls(read(journal, "turnwright"))


VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(value=VALUES, data=st.data())
def test_values_of_wrong_types_raise_no_error(journal: bytes, value: JsonValue, data: st.DataObject) -> None:
    lines = journal.split(b"\n")
    number = data.draw(st.integers(1, len(lines) - 1))
    fields = json.loads(lines[number])
    lines[number] = json.dumps({**fields, data.draw(st.sampled_from(sorted(fields))): value}).encode()
    recognized(b"\n".join(lines[number:]))
    assert read(b"\n".join(lines), "turnwright")
