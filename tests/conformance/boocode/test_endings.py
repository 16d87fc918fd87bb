"""BooCode: what ends the loop, and how each end looks.

- non-tool finish
- step cap
- doom loop (3 identical)
- budget of tool calls
- abort
- stream error
- pause (user input, read grant)
- synthesis success

Each has an outcome and a reason, at most one sentinel, a transcript in which every step is complete, and events that
end with it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnwright import Agent, FinishedCall
from turnwright.message import SentinelPart, TextPart, ToolResultPart
from turnwright.model.protocol import ModelError
from turnwright.model.scripted import asks_for
from turnwright.transcript.pairing import check_pairing
from turnwright_states import Cause, Limits, State

if TYPE_CHECKING:
    from .conftest import Play, Turn

pytestmark = pytest.mark.anyio

NOTE = asks_for(("note", {"n": 1}))
ASK = asks_for(("ask_user_input", {"question": "Tabs or spaces?"}))


async def joined(batch: tuple[FinishedCall, ...]) -> str:
    return " and ".join(call.text for call in batch)


def shape(turn: "Turn") -> list[list[str]]:
    """The parts of each message of the assistant."""
    return [[part.type for part in message.parts] for message in turn.assistant()]


def ends(turn: "Turn", outcome: str, reason: str) -> None:
    """The last line says how it ended, the transcript could be sent as it is, and steps start and finish in pairs."""
    last = turn.lines[-1]
    assert (last["type"], last["outcome"], last["reason"]) == ("turn_ended", outcome, reason)
    assert turn.ended == (outcome, reason)
    assert (last["text"], last["steps"]) == (turn.result.text, turn.result.steps)
    started, finished = turn.said("step_started"), turn.said("step_finished")
    assert [line["number"] for line in started] == [line["number"] for line in finished]
    check_pairing(turn.result.messages)


async def test_reply_without_calls_ends_the_loop(play: "Play") -> None:
    turn = await play(NOTE, "Tidy now.")
    ends(turn, "finished", "answered")
    assert (turn.result.text, turn.result.steps, turn.sentinels) == ("Tidy now.", 2, [])
    assert shape(turn) == [["step_start", "tool_call", "step_finish"], ["step_start", "text", "step_finish"]]


async def test_step_cap_ends_the_loop(play: "Play") -> None:
    turn = await play(play.endless(), agent=Agent(name="Tidier", steps=2))
    ends(turn, "cap_hit", "step_cap")
    assert turn.sentinels == [("cap_hit", "step_cap", "Stopped at the step limit (2 of 2)")]
    assert shape(turn) == [["step_start", "tool_call", "step_finish"]] * 2 + [["text", "sentinel"]]
    assert [line["type"] for line in turn.lines[-3:]] == ["text_delta", "concluded", "turn_ended"]
    assert turn.said("stopping")[0]["reason"] == "step_cap"


async def test_three_identical_rounds_end_the_loop(play: "Play") -> None:
    turn = await play(NOTE, NOTE, NOTE, "I was going in circles.")
    ends(turn, "doom_loop", "doom_loop")
    text = "Stopped because the model repeated the same tool calls: note"
    assert turn.sentinels == [("doom_loop", "doom_loop", text)]
    assert turn.result.steps == 3
    assert shape(turn)[-1] == ["text", "sentinel"]


@pytest.mark.parametrize(("rounds", "tripped"), [(2, False), (3, True), (4, True)])
async def test_doom_loop_needs_three_identical_rounds(play: "Play", rounds: int, *, tripped: bool) -> None:
    turn = await play(*[NOTE] * rounds, "Done.")
    assert (turn.ended[0] == "doom_loop") is tripped
    assert turn.result.steps == 3


async def test_identical_calls_in_a_round_are_a_single_round(play: "Play") -> None:
    """The model has seen no result in between. Three such rounds are a doom loop like any other."""
    batch = asks_for(*[("note", {"n": 1})] * 3)
    turn = await play(batch, batch, "Done.")
    assert (turn.ended, turn.result.tool_calls) == (("finished", "answered"), 6)
    turn = await play(batch, batch, batch, "Done.")
    assert (turn.ended, turn.result.tool_calls) == (("doom_loop", "doom_loop"), 9)


async def test_tool_budget_ends_the_loop(play: "Play") -> None:
    turn = await play(play.endless(10))
    ends(turn, "cap_hit", "budget")
    assert turn.sentinels == [("cap_hit", "budget", "Stopped at the tool-call limit (50 of 50 calls)")]
    assert (turn.result.steps, turn.result.tool_calls) == (5, 50)
    assert shape(turn)[-1] == ["text", "sentinel"]


async def test_abort_ends_the_loop(play: "Play") -> None:
    """Finished calls keep their results, and the open call has a result too."""
    turn = await play(asks_for(("note", {"n": 1}), ("hang", {})))
    ends(turn, "aborted", "aborted")
    assert play.done == ["note 1", "hang"]
    assert [(part.name, part.status) for part in turn.parts(ToolResultPart)] == [("note", "ok"), ("hang", "aborted")]
    assert [(kind, reason) for kind, reason, _ in turn.sentinels] == [("aborted", "aborted")]
    assert shape(turn) == [["step_start", "tool_call", "tool_call", "step_finish"], ["sentinel"]]


async def test_abort_ends_a_paused_turn(play: "Play") -> None:
    turn = await play(ASK)
    await turn.engine.abort(turn.result.id)
    turn.result = await turn.engine.get(turn.result.id)
    ends(turn, "aborted", "aborted")
    assert shape(turn) == [["step_start", "tool_call", "step_finish"], ["sentinel"]]


async def test_stream_error_ends_the_loop(play: "Play") -> None:
    """The steps before the failure stay."""
    turn = await play(NOTE, ModelError("the key is not valid", cause=Cause.AUTHENTICATION))
    ends(turn, "failed", "model_error")
    assert [kind for kind, *_ in turn.sentinels] == ["failed"]
    assert "the key is not valid" not in turn.parts(SentinelPart)[0].text, "it is for developers"
    assert turn.lines[-1]["error"] == "the key is not valid"
    assert (turn.result.steps, turn.result.tool_calls) == (2, 1)


async def test_question_to_the_user_pauses_the_loop(play: "Play") -> None:
    """It rests without a sentinel, and continues in the same step with the answer."""
    turn = await play(ASK, "Spaces, then.")
    assert (turn.result.paused, turn.result.outcome, turn.sentinels) == (True, None, [])
    assert turn.lines[-1]["type"] == "paused"
    assert turn.said("paused")[0]["interrupts"] == [
        {
            "id": "question-1",
            "kind": "question",
            "tool": "ask_user_input",
            "call": "call00001",
            "key": f"{turn.result.id}:call00001",
            "question": "Tabs or spaces?",
            "choices": [],
        }
    ]
    assert shape(turn) == [["step_start", "tool_call"]]
    await turn.answer(question_1="spaces")
    ends(turn, "finished", "answered")
    assert (turn.result.text, turn.result.steps) == ("Spaces, then.", 2)


async def test_read_grant_pauses_the_loop(play: "Play", tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "notes.txt"
    outside.write_text("Spaces!")
    ask = asks_for(("request_read_access", {"path": str(outside), "reason": "the style"}))
    turn = await play(ask, asks_for(("read_file", {"path": str(outside)})), "Spaces, then.")
    (interrupt,) = turn.result.interrupts
    assert (turn.result.state, interrupt.kind, Path(interrupt.grant or "").name) == (State.PAUSED, "grant", "notes.txt")
    await turn.answer(grant_1=True)
    ends(turn, "finished", "answered")
    assert "Spaces!" in turn.parts(ToolResultPart)[-1].text


async def test_successful_synthesis_ends_the_loop(play: "Play") -> None:
    """Its text is the answer; the model is not asked again."""
    turn = await play(asks_for(("note", {"n": 1}), ("note", {"n": 2})), synthesize=joined)
    ends(turn, "synthesis_done", "synthesized")
    assert (turn.result.text, turn.sentinels, len(turn.requests)) == ("noted 1 and noted 2", [], 1)
    assert shape(turn) == [["step_start", "tool_call", "tool_call", "step_finish"], ["text"]]


# On the last step, or when a limit fires at the top of the loop.


@pytest.mark.parametrize("cap", [1, 2, 3])
async def test_pause_on_the_last_step_pauses_the_turn(play: "Play", cap: int) -> None:
    """One sentinel, and only after the answer: the cap is looked at when the step is over."""
    before = [asks_for(("note", {"n": n})) for n in range(cap - 1)]
    turn = await play(*before, ASK, "Enough.", agent=Agent(name="Tidier", steps=cap))
    assert (turn.result.paused, turn.sentinels, turn.said("stopping")) == (True, [], [])
    await turn.answer(question_1="spaces")
    ends(turn, "cap_hit", "step_cap")
    assert turn.sentinels == [("cap_hit", "step_cap", f"Stopped at the step limit ({cap} of {cap})")]


async def test_synthesis_on_the_last_step_ends_the_turn(play: "Play") -> None:
    turn = await play(NOTE, agent=Agent(name="Tidier", steps=1), synthesize=joined)
    ends(turn, "synthesis_done", "synthesized")
    assert (turn.sentinels, turn.said("stopping"), turn.result.also_reached) == ([], [], ())


@pytest.mark.parametrize(
    "limits",
    [Limits(steps=1), Limits(tool_calls=1), Limits(tokens=2), Limits(seconds=1)],
    ids=["steps", "calls", "tokens", "seconds"],
)
async def test_no_message_is_left_empty_by_a_limit_before_the_step(play: "Play", limits: Limits) -> None:
    """Every message of the assistant says something, in the transcript and in what is sent."""
    turn = await play(asks_for(("work", {"seconds": 1})), "Enough.", limits=limits)
    assert turn.ended[0] == "cap_hit"
    assert shape(turn) == [["step_start", "tool_call", "step_finish"], ["text", "sentinel"]]
    for message in (*turn.assistant(), *turn.requests[-1].messages):
        assert message.says_something
        assert all(part.text for part in message.parts if isinstance(part, TextPart))
    assert turn.requests[-1].messages[-1].role == "user"


async def test_failed_conclusion_leaves_no_empty_message(play: "Play") -> None:
    failing = ModelError("no", cause=Cause.BAD_REQUEST)
    turn = await play(NOTE, failing, agent=Agent(name="Tidier", steps=1))
    ends(turn, "cap_hit", "step_cap")
    assert shape(turn)[-1] == ["text", "sentinel"]
    assert turn.result.text.startswith("Stopped at the step limit (1 of 1). The model gave no summary.")
