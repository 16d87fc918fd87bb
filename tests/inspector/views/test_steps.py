"""The steps of a turn, read from its journal."""

from collections import Counter

import pytest

from turnwright import Agent, Engine, tool
from turnwright.driver.subagents import agent_tool
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import Line
from turnwright.tools import Tool
from turnwright_inspector.views.steps import CONCLUDE, TEXT_ONLY, Step, step_summaries
from turnwright_inspector.views.turn_record import TurnRecord, read_turn
from turnwright_states import Decision, State
from turnwright_states.chart import CHART
from turnwright_states.facts import Answered

pytestmark = pytest.mark.anyio


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: nothing found"


@tool
async def broken(word: str) -> str:
    """Fail."""
    raise ValueError(f"{word} cannot be read")


@tool(needs_approval=True)
async def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is deleted"


def engine_of(*lines: Line, repeat: bool = False) -> Engine:
    helper = Agent(name="Helper", description="Helps", mode="subagent")
    tools: list[Tool] = [look_up, broken, delete_file, agent_tool(helper, name="helper", description="Helps")]
    return Engine(model=ScriptedModel(*lines, repeat=repeat), tools=tools)


async def told(*lines: Line, repeat: bool = False, **agent: object) -> TurnRecord:
    async with engine_of(*lines, repeat=repeat) as engine:
        turn = await engine.run(Agent.model_validate({"name": "Searcher", **agent}), "Find the word.")
        return await read_turn(engine.store, turn.id)


def searching() -> Line:
    words = iter(("alpha", "beta", "gamma", "delta"))

    def say(request: ModelRequest) -> ModelResponse | str:
        if request.tool_choice == "none":
            return "Nothing was found."
        return asks_for(("look_up", {"word": next(words)}))

    return say


def arrows(step: Step) -> list[tuple[State, State]]:
    """The pairs of states that the rows join which it took."""
    return [(row.source, row.dest) for row in (CHART.rows[number - 1] for number in step.rows)]


def keys(turn: TurnRecord) -> list[str]:
    return [step.key for step in turn.steps]


async def test_answer_is_a_step() -> None:
    turn = await told("Forty-two.")
    (step,) = turn.steps
    assert (step.key, step.title, step.text, step.state) == ("1", "Step 1", "Forty-two.", State.FINISHED)
    assert (step.first, step.last) == (1, turn.length)
    assert arrows(step) == [(State.CHECK, State.STREAM), (State.STREAM, State.FINISHED)]


async def test_step_begins_with_the_check_of_the_limits() -> None:
    turn = await told(searching(), repeat=True, steps=2)
    first, second, conclusion = turn.steps
    assert (
        arrows(first)
        == arrows(second)
        == [
            (State.CHECK, State.STREAM),
            (State.STREAM, State.TOOL_EXEC),
            (State.TOOL_EXEC, State.CONTINUE),
            (State.CONTINUE, State.CHECK),
        ]
    )
    assert arrows(conclusion) == [(State.CHECK, State.CONCLUDE), (State.CONCLUDE, State.CAP_HIT)]
    assert conclusion.key == CONCLUDE
    assert conclusion.text == "Nothing was found."


async def test_steps_take_each_row_of_the_replay_once() -> None:
    for turn in (
        await told(searching(), repeat=True, steps=3),
        await told(asks_for(("delete_file", {"path": "a"}), ("look_up", {"word": "b"}))),
        await told("Only words.", steps=0),
        await told(asks_for(("look_up", {"word": "alpha"})), repeat=True),
    ):
        taken_rows = Counter(CHART.rows[number - 1] for step in turn.steps for number in step.rows)
        assert taken_rows == turn.replayed.rows


async def test_steps_cover_the_journal_without_a_gap() -> None:
    turn = await told(searching(), repeat=True, steps=3)
    ends = [(step.first, step.last) for step in turn.steps]
    assert ends[0][0] == 1
    assert ends[-1][1] == turn.length
    assert [first for first, _ in ends[1:]] == [last + 1 for _, last in ends[:-1]]


async def test_turn_with_zero_steps_has_a_single_text_call() -> None:
    turn = await told("Only words.", steps=0)
    (step,) = turn.steps
    assert (step.key, step.text) == (TEXT_ONLY, "Only words.")
    assert arrows(step) == [(State.CHECK, State.TEXT_ONLY), (State.TEXT_ONLY, State.FINISHED)]


async def test_call_has_arguments_status_and_result() -> None:
    turn = await told(asks_for(("look_up", {"word": "alpha"}), ("broken", {"word": "b"}), ("nothing", {})), "Done.")
    good, bad, unknown = turn.steps[0].calls
    assert (good.status, good.made.arguments) == ("ok", {"word": "alpha"})
    assert good.seconds is not None
    assert bad.status == "error"
    assert unknown.status == "error"
    assert unknown.seconds is None
    assert [mark.words for mark in step_summaries(turn.steps)[0].marks] == ["2 calls failed"]


async def test_waiting_call_has_a_question_and_the_sibling_a_result() -> None:
    turn = await told(asks_for(("delete_file", {"path": "a"}), ("look_up", {"word": "b"})))
    (step,) = turn.steps
    assert [call.status for call in step.calls] == ["waiting", "ok"]
    assert step.calls[0].interrupt == turn.result.interrupts[0].id
    assert arrows(step)[-1] == (State.TOOL_EXEC, State.PAUSED)
    assert "1 call waits for a person" in [mark.words for mark in step_summaries(turn.steps)[0].marks]


async def test_answer_belongs_to_the_asking_step() -> None:
    async with engine_of(asks_for(("delete_file", {"path": "a"})), "It is gone.") as engine:
        turn = await engine.run(Agent(name="Cleaner"), "Delete a.")
        await engine.resume(turn.id, {turn.interrupts[0].id: True})
        read = await read_turn(engine.store, turn.id)
    first, second = read.steps
    assert len(first.answers) == 1
    assert first.calls[0].status == "ok"
    assert (State.PAUSED, State.TOOL_EXEC) in arrows(first)
    assert second.text == "It is gone."


async def test_doom_loop_question_belongs_to_the_tripping_step() -> None:
    async with engine_of(*[asks_for(("look_up", {"word": "alpha"}))] * 3, "I give up.") as engine:
        turn = await engine.run(Agent.model_validate({"name": "Searcher", "doom_response": "ask"}), "Find it.")
        assert turn.paused
        asking_turn = await read_turn(engine.store, turn.id)
        await engine.resume(turn.id, {turn.interrupts[0].id: "go_on"})
        read = await read_turn(engine.store, turn.id)
    assert keys(asking_turn) == ["1", "2", "3"]
    assert arrows(asking_turn.steps[2])[-1] == (State.CHECK, State.PAUSED)
    assert arrows(read.steps[2])[-1] == (State.PAUSED, State.CHECK)
    assert arrows(read.steps[3]) == [(State.CHECK, State.STREAM), (State.STREAM, State.FINISHED)]


async def test_failed_attempt_has_a_cause() -> None:
    turn = await told(asks_for(("look_up", {"word": "alpha"})))  # the script has no second line
    last = turn.steps[-1]
    assert last.attempts
    assert not last.attempts[-1].retry
    assert last.state is State.FAILED
    assert step_summaries(turn.steps)[-1].what.startswith("no reply: ")


async def test_sub_agent_call_names_the_turn() -> None:
    turn = await told(asks_for(("helper", {"prompt": "Help."})), "I helped.", "All is done.")
    (call,) = turn.steps[0].calls
    assert call.child == f"{turn.row.id}:{call.made.id}"
    assert [(name, row.id) for name, row in turn.children.items()] == [(call.made.id, call.child)]


async def test_step_summary_names_tools_or_the_first_words() -> None:
    two = asks_for(("look_up", {"word": "a"}), ("look_up", {"word": "b"}), ("broken", {"word": "c"}))
    first, second = step_summaries((await told(two, "word " * 100)).steps)
    assert (first.what, first.tools) == ("look_up ×2, broken", True)  # noqa: RUF001 (the sign of multiplication)
    assert not second.tools
    assert second.what.endswith("…")
    assert max(first.share, second.share) == 1.0


@pytest.fixture
async def stopped() -> TurnRecord:
    return await told(searching(), repeat=True, steps=2)


async def test_unknown_step_is_none(stopped: TurnRecord) -> None:
    assert stopped.step("7") is None
    assert stopped.step(None) is None
    assert stopped.step("2") is stopped.steps[1]


async def test_step_with_a_hint_has_a_mark() -> None:
    calls = [asks_for(("look_up", {"word": "a"}))] * 4
    nudged = await told(*calls, "Done.", nudges=2, stall_rounds=None)
    words = [[badge.words for badge in summary.marks] for summary in step_summaries(nudged.steps)]
    assert words[3] == ["the model received a notice that it repeats itself"]
    failing = [asks_for(("broken", {"word": "a"}))] * 4
    hinted = await told(*failing, "Done.", doom_threshold=None, stall_errors=4, stall_rounds=2)
    words = [[badge.words for badge in summary.marks] for summary in step_summaries(hinted.steps)]
    assert "the model received a notice that its calls bring nothing new" in words[3]
    assert "the model received a notice that the same error comes again and again" in words[4]


def test_step_mark_contains_the_answer_of_a_person() -> None:
    """With the text, unless it is long: nothing is cut there."""
    answers = [
        Answered(1.0, State.TOOL_EXEC, interrupt="approval-1", decision=Decision.REJECT, text="not on a Friday"),
        Answered(1.0, State.TOOL_EXEC, interrupt="approval-2", decision=Decision.APPROVE),
        Answered(1.0, State.TOOL_EXEC, interrupt="question-1", decision=Decision.REJECT, text="x" * 121),
    ]
    step = Step("1", "Step 1", 1, 9, 0.0, 1.0, State.CHECK, answers=answers)
    (summary,) = step_summaries([step])
    assert [badge.words for badge in summary.marks if "answered" in badge.words] == [
        "a person answered approval-1: reject: not on a Friday",
        "a person answered approval-2: approve",
        "a person answered question-1: reject",
    ]
