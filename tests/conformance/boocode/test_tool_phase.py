"""BooCode: what the tools of a step came to is visible in the events.

- The tool phase's result is `continue | paused | synthesis_done`, with the count, the calls and the next assistant
  message's id.
- `step_start` parts with `{step_number, started_at}` are emitted, the time in UTC, and cannot collide at sequence 0.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from turnwright import Agent, FinishedCall
from turnwright.message import StepStartPart
from turnwright.model.scripted import asks_for
from turnwright.transcript.tool_phase import message_ids
from turnwright_states import Limits

if TYPE_CHECKING:
    from .conftest import Play, Turn

pytestmark = pytest.mark.anyio

TWO = asks_for(("note", {"n": 1}), ("note", {"n": 2}))
ASK = asks_for(("note", {"n": 1}), ("ask_user_input", {"question": "Tabs or spaces?"}))


async def first_two(batch: tuple[FinishedCall, ...]) -> str | None:
    """Gives up on the first batch, and joins the second."""
    return " and ".join(call.text for call in batch) if len(batch) == 2 else None


def call(number: int, name: str = "note", status: str = "ok") -> dict[str, object]:
    return {"id": f"call{number:05d}", "name": name, "status": status}


def phases(turn: "Turn") -> list[tuple[object, object]]:
    """Every result of a tool phase, with the type of its line."""
    return [(line["type"], line["tools"]) for line in turn.lines if "tools" in line]


def message_of(turn: "Turn", name: str) -> list[str]:
    """The types of the parts of the message with this id."""
    by_id = dict(zip(message_ids(turn.result.id, turn.result.messages), turn.result.messages, strict=True))
    return [part.type for part in by_id[name].parts]


async def test_continue_names_the_calls_and_the_message_of_the_next_step(play: "Play") -> None:
    turn = await play(TWO, "Tidy.")
    following = f"{turn.result.id}/assistant-2"
    expected = {"result": "continue", "count": 2, "calls": [call(1), call(2)], "next_message": following}
    assert phases(turn) == [("step_finished", expected)]
    assert turn.said("step_started")[1]["message"] == following
    assert message_of(turn, following) == ["step_start", "text", "step_finish"]


async def test_next_message_at_the_cap_is_the_conclusion(play: "Play") -> None:
    turn = await play(TWO, "Enough.", agent=Agent(name="Tidier", steps=1))
    ((_, phase),) = phases(turn)
    assert isinstance(phase, dict)
    assert phase["result"] == "continue"
    assert message_of(turn, phase["next_message"]) == ["text", "sentinel"]


async def test_paused_names_the_waiting_call(play: "Play") -> None:
    """The same message continues after the answer; then the phase has a result of its own."""
    turn = await play(ASK, "Tidy.")
    waits = [call(1), call(2, "ask_user_input", "waiting")]
    assert phases(turn) == [("paused", {"result": "paused", "count": 1, "calls": waits, "next_message": None})]
    await turn.answer(question_1="spaces")
    answered = [call(1), call(2, "ask_user_input")]
    following = f"{turn.result.id}/assistant-2"
    expected = {"result": "continue", "count": 2, "calls": answered, "next_message": following}
    assert phases(turn)[1:] == [("step_finished", expected)]
    assert message_of(turn, following) == ["step_start", "text", "step_finish"]


async def test_synthesis_done_names_the_message_of_the_synthesis(play: "Play") -> None:
    turn = await play(asks_for(("note", {"n": 0})), TWO, synthesize=first_two)
    following = f"{turn.result.id}/assistant-3"
    expected = {"result": "synthesis_done", "count": 2, "calls": [call(2), call(3)], "next_message": following}
    assert [kind for kind, _ in phases(turn)] == ["step_finished", "synthesized"]
    assert phases(turn)[1][1] == expected
    assert message_of(turn, following) == ["text"]


async def test_phase_count_includes_only_calls_charged_to_the_budget(play: "Play") -> None:
    unknown = asks_for(("note", {"n": 1}), ("erase", {}), ("note", {"n": 2}))
    turn = await play(unknown, "Tidy.", limits=Limits(tool_calls=1))
    ((_, phase),) = phases(turn)
    assert isinstance(phase, dict)
    assert (phase["count"], turn.result.tool_calls) == (1, 1)
    assert phase["calls"] == [call(1), call(2, "erase", "error"), call(3, "note", "refused")]


@pytest.mark.parametrize("script", [("Tidy.",), (asks_for(("hang", {})),)], ids=["no tools", "cut off"])
async def test_unfinished_phase_has_no_result(play: "Play", script: tuple[str]) -> None:
    assert phases(await play(*script)) == []


async def test_pause_of_a_doom_loop_is_no_phase_result(play: "Play") -> None:
    """Its round had continued to the limits, where the doom loop was seen."""
    turn = await play(TWO, TWO, TWO, limits=Limits(doom_response="ask"))
    assert [kind for kind, _ in phases(turn)] == ["step_finished"] * 3
    assert "tools" not in turn.said("paused")[0]


async def test_journal_readers_receive_the_same_phase_results(play: "Play") -> None:
    """The fields follow from the facts alone."""
    for script in ((TWO, "Tidy."), (ASK,), (asks_for(("hang", {})),)):
        turn = await play(*script)
        live = [line for line in turn.lines if not str(line["type"]).endswith("_delta")]
        assert [event.to_json() async for event in turn.engine.events(turn.result.id)] == live


async def test_message_ids_are_unique_and_stable(play: "Play") -> None:
    turn = await play(ASK, TWO, "Tidy.")
    before = message_ids(turn.result.id, turn.result.messages)
    await turn.answer(question_1="spaces")
    after = message_ids(turn.result.id, turn.result.messages)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after)
    assert [name.removeprefix(f"{turn.result.id}/") for name in after] == [
        "user-1",
        "assistant-1",
        "call00001",
        "call00002",
        "assistant-2",
        "call00003",
        "call00004",
        "assistant-3",
    ]


async def test_each_step_starts_with_a_part_of_number_and_time(play: "Play") -> None:
    script = (asks_for(("work", {"seconds": 1.5})), asks_for(("work", {"seconds": 2})), "Tidy.")
    turn = await play(*script)
    starts = turn.parts(StepStartPart)
    assert [(part.step_number, part.elapsed) for part in starts] == [(1, 0.0), (2, 1.5), (3, 3.5)]
    assert [message.parts[0] for message in turn.assistant()] == starts
    assert [part.started_at for part in starts] == [line["started_at"] for line in turn.said("step_started")]
    assert all(datetime.fromisoformat(str(part.started_at)).utcoffset() == timedelta() for part in starts)
    assert [(line["number"], line["elapsed"]) for line in turn.said("step_started")] == [(1, 0.0), (2, 1.5), (3, 3.5)]


async def test_parts_have_distinct_places_above_0(play: "Play") -> None:
    turn = await play(TWO, "Enough.", agent=Agent(name="Tidier", steps=1))
    places = [part.seq for message in turn.result.messages for part in message.parts]
    assert len(set(places)) == len(places)
    assert min(places) > 0
    starts = turn.parts(StepStartPart)
    assert starts[0].seq > turn.result.messages[0].parts[0].seq
