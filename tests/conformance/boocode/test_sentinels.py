"""BooCode: the part that shows the user why the turn was stopped.

- Parts of kind `cap_hit` with reason `budget | step_cap` ("Stopped at the tool-call limit (50 of 50
  calls)", "Stopped at the step limit (5 of 5)"), and `doom_loop`.
- They are visible in the transcript, in the command line, and over JSON.
- There is one at most, and none where nothing was stopped.
"""

import json
from typing import TYPE_CHECKING

import pytest

from turnwright import Agent
from turnwright.cli.summary import closing_lines
from turnwright.message import SentinelPart
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright.model.scripted import Line, asks_for

if TYPE_CHECKING:
    from .conftest import Play, Turn

pytestmark = pytest.mark.anyio

NOTE = asks_for(("note", {"n": 1}))
LOOPING = "Stopped because the model repeated the same tool calls: note"


async def stopped(play: "Play", by: str) -> "Turn":
    """A turn that this stopped."""
    if by == "step_cap":
        return await play(play.endless(), agent=Agent(name="Refactorer", steps=5))
    if by == "budget":
        return await play(play.endless(2))
    return await play(NOTE, NOTE, NOTE, "I was going in circles.")


SENTINELS = pytest.mark.parametrize(
    ("by", "kind", "says"),
    [
        ("budget", "cap_hit", "Stopped at the tool-call limit (50 of 50 calls)"),
        ("step_cap", "cap_hit", "Stopped at the step limit (5 of 5)"),
        ("doom_loop", "doom_loop", LOOPING),
    ],
)


@SENTINELS
async def test_sentinel_is_the_last_part_of_the_transcript(play: "Play", by: str, kind: str, says: str) -> None:
    turn = await stopped(play, by)
    part = turn.result.messages[-1].parts[-1]
    assert isinstance(part, SentinelPart)
    assert (part.kind, part.reason, part.text.split(". ")[0]) == (kind, by, says)
    assert turn.sentinels == [(kind, by, says)]


@SENTINELS
async def test_sentinel_contains_advice(play: "Play", by: str, kind: str, says: str) -> None:
    (part,) = (await stopped(play, by)).parts(SentinelPart)
    assert part.kind == kind
    assert len(part.text.removeprefix(f"{says}. ").split()) > 5


@SENTINELS
async def test_sentinel_is_in_the_last_json_line(play: "Play", by: str, kind: str, says: str) -> None:
    turn = await stopped(play, by)
    (part,) = turn.parts(SentinelPart)
    assert part.text.startswith(says)
    assert turn.lines[-1]["sentinel"] == {"kind": kind, "reason": by, "text": part.text}


@SENTINELS
async def test_sentinel_is_a_part_of_the_json_message(play: "Play", by: str, kind: str, says: str) -> None:
    """As `turnwright show --json` prints the transcript."""
    last = json.loads(json.dumps((await stopped(play, by)).result.messages[-1].to_json()))
    part = last["parts"][-1]
    assert (part["type"], part["kind"], part["reason"]) == ("sentinel", kind, by)
    assert part["text"].startswith(says)


@SENTINELS
async def test_sentinel_ends_the_command_line_output(play: "Play", by: str, kind: str, says: str) -> None:
    turn = await stopped(play, by)
    lines = closing_lines(turn.result, verbose=True)
    assert says in lines[0]
    assert any(line.startswith(f"outcome:  {kind}: {by}") for line in lines)


@SENTINELS
async def test_sentinel_is_never_sent_to_the_model(play: "Play", by: str, kind: str, says: str) -> None:
    """It is the user's: a turn that continues from this one is sent the conclusion without it."""
    turn = await stopped(play, by)
    await turn.engine.run(Agent(name="Tidier", steps=0), "Go on.", continue_from=turn.result.id)
    messages = turn.requests[-1].messages
    assert messages[-1].text == "Go on."
    assert turn.ended == (kind, by)
    assert turn.result.text in [message.text for message in messages]
    assert not any(says in message.text for message in messages)


@pytest.mark.parametrize(
    "script",
    [("Tidy.",), (NOTE, NOTE, "Tidy."), (asks_for(("ask_user_input", {"question": "Which?"})),)],
    ids=["an answer", "an answer after two equal rounds", "a pause"],
)
async def test_unstopped_turn_has_no_sentinel(play: "Play", script: tuple[Line, ...]) -> None:
    turn = await play(*script)
    assert turn.sentinels == []
    assert "sentinel" not in turn.lines[-1]


async def test_calls_with_the_conclusion_are_refused_and_noted_once(play: "Play") -> None:
    anyway = ModelResponse(
        text="That was it.", calls=(ResponseToolCall("note", {"n": 7}), ResponseToolCall("note", {"n": 8}))
    )
    turn = await play(NOTE, anyway, agent=Agent(name="Tidier", steps=1))
    (part,) = turn.parts(SentinelPart)
    assert part.text.count("were refused: note, note.") == 1
    assert (play.done, turn.result.text, len(turn.requests)) == (["note 1"], "That was it.", 2)


@pytest.mark.parametrize(("calls", "reason"), [(49, None), (50, "budget"), (51, "budget")])
async def test_simultaneous_budget_and_cap_give_a_single_sentinel(play: "Play", calls: int, reason: str | None) -> None:
    """The cap comes first in the chart; the budget is also reported, if it is spent too."""
    line = play.endless(25)
    last = play.endless(calls - 25)
    turn = await play(line, last, "Enough.", agent=Agent(name="Tidier", steps=2))
    assert turn.sentinels == [("cap_hit", "step_cap", "Stopped at the step limit (2 of 2)")]
    assert turn.result.also_reached == (() if reason is None else (reason,))
    assert turn.result.tool_calls == min(calls, 50)
