"""A recording is played through the real engine: what it says happens, when it says so, and nothing waits."""

import time
from dataclasses import replace

import pytest

from turnwright import (
    Agent,
    Ask,
    ConfigError,
    EndReason,
    FilePart,
    Limits,
    Outcome,
    State,
    TurnAlreadyEndedError,
    Usage,
    reject,
)
from turnwright.model import ModelError, ModelResponse, ResponseToolCall, asks_for
from turnwright.tools import RESULT_LIMIT, cap
from turnwright_states import CallStatus, Cause, InterruptKind
from turnwright_testing import At, Broke, PlaybackError, Recorded, Recording, Unfinished, playback, results_of

WHO = Agent(name="Anybody")
BOTH = asks_for(("look", {"path": "a"}), ("pay", {"sum": 5}))
LOOKED = Recorded("seen")
TWO = Recording(
    agent=WHO,
    prompt="Pay it.",
    model=(BOTH, "Paid."),
    tools=("look", "pay"),
    results={"call00001": LOOKED, "call00002": Recorded("paid")},
)
ABORTED = Recorded("not finished: the turn ended (aborted)", CallStatus.ABORTED)


def test_recording_can_be_played_repeatedly() -> None:
    for _ in range(2):
        turn = playback(TWO)
        assert (turn.outcome, turn.reason, turn.text, turn.steps, turn.tool_calls) == (
            Outcome.FINISHED,
            EndReason.ANSWERED,
            "Paid.",
            2,
            2,
        )
        assert results_of(turn) == TWO.results


def test_results_are_equal_with_equal_text_status_data_and_files() -> None:
    assert Recorded("a", attempt=2) == Recorded("a")
    assert Recorded("a", CallStatus.ERROR) != Recorded("a")
    assert Recorded("a") != Recorded("b")
    assert Recorded("a", structured={"n": 1}) != Recorded("a")
    assert Recorded("a", files=(FilePart.of(b"a", "image/png"),)) != Recorded("a")


def test_limits_and_tools_of_the_recording_override_the_agent() -> None:
    agent = Agent(name="Anybody", steps=0, tools=("other",), model="gone", budget=Limits(cost=1.0))
    turn = playback(replace(TWO, agent=agent, limits=Limits(steps=1)))
    assert (turn.outcome, turn.reason, turn.steps) == (Outcome.CAP_HIT, EndReason.STEP_CAP, 1)


def test_budget_of_money_is_spent_by_recorded_costs() -> None:
    """There is no price that they could be computed from."""
    dear = asks_for(("look", {"path": "a"}), usage=Usage(input_tokens=1, cost=0.6))
    recording = replace(TWO, model=(dear, dear, "Spent."), limits=Limits(cost=1.0))
    turn = playback(replace(recording, results={"call00001": LOOKED, "call00002": LOOKED}))
    assert (turn.reason, turn.usage.cost, turn.text) == (EndReason.COST, 1.2, "Spent.")


def test_failed_attempt_is_retried_without_waiting() -> None:
    start = time.monotonic()
    failed = ModelError(
        "busy", cause=Cause.OVERLOADED, retry_after=1e6, partial=ModelResponse(text="So f", usage=Usage())
    )
    assert playback(replace(TWO, model=(failed, *TWO.model))).text == "Paid."
    turn = playback(replace(TWO, model=(failed,), limits=Limits(max_retries=0)))
    assert (turn.reason, turn.text) == (EndReason.MODEL_ERROR, "So f")
    assert time.monotonic() - start < 60


def test_exhausted_script_ends_the_turn() -> None:
    turn = playback(replace(TWO, model=(BOTH,)))
    assert (turn.reason, turn.error) == (EndReason.MODEL_ERROR, "ScriptedModel has no line 1: give it one more reply")


def test_error_is_raised_at_the_recorded_place() -> None:
    """Errors occur when the reply arrives, before the call begins, or in the tool: only the last counts as a call."""
    for at, begun in (("reply", 0), ("start", 0), ("run", 1)):
        wrong = Recorded("wrong", CallStatus.ERROR, at=at)  # type: ignore[arg-type]
        turn = playback(replace(TWO, results={"call00001": wrong, "call00002": Recorded("paid")}))
        assert (results_of(turn)["call00001"], turn.tool_calls) == (wrong, 1 + begun), at


def test_recorded_result_is_selected_by_call_id() -> None:
    same = asks_for(*[("look", {"path": "a"})] * 3)
    results = {
        "call00001": Recorded("first"),
        "call00002": Recorded("no path", CallStatus.ERROR, at="reply"),
        "call00003": Recorded("third"),
    }
    assert results_of(playback(replace(TWO, model=(same, "So."), results=results))) == results


def test_call_repeats_the_recorded_questions_until_answered() -> None:
    asks = (Ask(InterruptKind.QUESTION, "From where?", ("here", "there")), Ask(InterruptKind.APPROVAL))
    recording = replace(TWO, asks={"call00002": asks})
    turn = playback(recording)
    (interrupt,) = turn.interrupts
    assert (turn.state, interrupt.id, interrupt.question, interrupt.choices) == (
        State.PAUSED,
        "question-1",
        "From where?",
        ("here", "there"),
    )
    turn = playback(replace(recording, then=({"question-1": "here"},)))
    assert [interrupt.id for interrupt in turn.interrupts] == ["approval-1"]
    turn = playback(replace(recording, then=({"question-1": "here"}, {"approval-1": reject("too much")})))
    assert results_of(turn)["call00002"] == Recorded("rejected by the person: too much", CallStatus.REJECTED)
    assert (turn.reason, turn.tool_calls) == (EndReason.ANSWERED, 1)


@pytest.mark.parametrize(
    ("how", "then", "result"),
    [
        ("unknown", (), Recorded("outcome unknown: the process died while this call ran; verify before retrying",
                                 CallStatus.UNKNOWN)),
        ("rerun", (), Recorded("paid", attempt=2)),
        ("ask", ({"unknown-1": "rerun"},), Recorded("paid", attempt=2)),
        ("ask", ({"unknown-1": "unknown"},), Recorded("outcome unknown: verify before retrying", CallStatus.UNKNOWN)),
    ],
)  # fmt: skip
def test_call_interrupted_by_a_crash_is_treated_as_recorded(
    how: str, then: tuple[dict[str, str], ...], result: Recorded
) -> None:
    """Six facts: the turn, the step, the reply, two beginnings and one result."""
    results = {"call00001": LOOKED, "call00002": result}
    turn = playback(
        replace(TWO, on_crash={"pay": how}, results=results, then=(At(6, "crash"), *then))  # type: ignore[dict-item]
    )
    assert turn.reason is EndReason.ANSWERED
    assert results_of(turn) == results


def test_turn_is_aborted_in_the_middle_of_a_word() -> None:
    turn = playback(replace(TWO, model=(BOTH, Unfinished("It is p"))))
    assert (turn.reason, turn.text, turn.steps) == (EndReason.ABORTED, "It is p", 2)
    turn = playback(replace(TWO, model=(BOTH, Unfinished("It is p")), limits=Limits(steps=1)))
    assert (turn.reason, turn.also_reached) == (EndReason.ABORTED, (EndReason.STEP_CAP,))


@pytest.mark.parametrize(("facts", "results"), [(3, {}), (4, {}), (5, {"call00001": LOOKED})])
def test_turn_is_stopped_during_calls(facts: int, results: dict[str, Recorded]) -> None:
    """Calls that had not begun do not begin."""
    begun = Recorded(f"{ABORTED.text}; it had begun: verify before retrying", CallStatus.ABORTED)
    expected = {"call00001": begun if facts == 4 else ABORTED, "call00002": ABORTED, **results}
    turn = playback(replace(TWO, results=expected, then=(At(facts, "abort", ready=("call00002",)),)))
    assert (turn.reason, turn.tool_calls) == (EndReason.ABORTED, 0 if facts == 3 else 1)
    assert results_of(turn) == expected


def test_paused_turn_is_superseded() -> None:
    recording = replace(TWO, asks={"call00002": (Ask(InterruptKind.APPROVAL),)})
    turn = playback(replace(recording, then=(At(7, "superseded"),)))
    assert (turn.reason, results_of(turn)["call00002"].status) == (EndReason.SUPERSEDED, CallStatus.REJECTED)


def test_deadline_passes_without_waiting() -> None:
    start = time.monotonic()
    day = Limits(seconds=24 * 3600)
    in_a_reply = playback(replace(TWO, model=(Unfinished("Well", "deadline"), "Too late."), limits=day))
    in_text = playback(replace(TWO, model=(Unfinished("Well", "deadline"),), limits=Limits(seconds=900, steps=0)))
    open_call = replace(TWO, results={"call00001": LOOKED}, model=(BOTH, "Too late."), limits=day)
    in_a_call = playback(replace(open_call, then=(At(6, "deadline"),)))
    for turn in (in_a_reply, in_text, in_a_call):
        assert (turn.outcome, turn.reason) == (Outcome.CAP_HIT, EndReason.DEADLINE)
    notice = "not finished: the turn's time is up; it had begun: verify before retrying"
    assert results_of(in_a_call)["call00002"] == Recorded(notice, CallStatus.ABORTED)
    assert in_a_call.seconds >= 24 * 3600
    assert time.monotonic() - start < 3600


def test_delayed_process_is_delayed_again() -> None:
    """The call comes back all the same, and then the time is over."""
    turn = playback(replace(TWO, limits=Limits(seconds=3600), then=(At(6, "delay"),), model=(BOTH, "Late.")))
    assert (turn.reason, turn.text) == (EndReason.DEADLINE, "Late.")
    assert results_of(turn) == TWO.results


def test_turn_is_left_at_the_recorded_place() -> None:
    turn = playback(replace(TWO, then=(At(5, "left", ready=("call00002",)),)))
    assert (turn.state, turn.outcome, turn.tool_calls, results_of(turn)) == (
        State.TOOL_EXEC,
        None,
        1,
        {"call00001": LOOKED},
    )
    assert playback(replace(TWO, then=(At(2, "left"),))).state is State.STREAM


def test_non_model_error_ends_the_turn_as_engine_error() -> None:
    turn = playback(replace(TWO, model=(Broke("KeyError: 'x'", text="So"),)))
    assert (turn.reason, turn.text) == (EndReason.ENGINE_ERROR, "So")
    turn = playback(replace(TWO, synthesis=(Broke("KeyError: 'x'"),)))
    assert (turn.reason, results_of(turn)) == (EndReason.ENGINE_ERROR, TWO.results)
    bug = Recorded("not finished: the turn ended (engine_error)", CallStatus.ABORTED, at="bug")
    turn = playback(replace(TWO, results={"call00001": LOOKED, "call00002": bug}))
    assert (turn.reason, turn.tool_calls) == (EndReason.ENGINE_ERROR, 1)


def test_synthesis_repeats_the_recorded_attempts() -> None:
    slow = ModelError("slow", cause=Cause.TIMEOUT)
    turn = playback(replace(TWO, synthesis=(slow, "All paid.")))
    assert (turn.outcome, turn.text) == (Outcome.SYNTHESIS_DONE, "All paid.")
    assert playback(replace(TWO, synthesis=(slow, None))).text == "Paid."


def test_rounds_repeat_with_the_recorded_keys() -> None:
    lines = tuple(asks_for(("look", {"path": str(number)})) for number in range(3))
    recording = replace(TWO, model=(*lines, "So."), results={f"call0000{n}": LOOKED for n in (1, 2, 3)})
    assert playback(recording).reason is EndReason.ANSWERED
    keys = {f"call0000{number}": "always the same" for number in (1, 2, 3)}
    assert playback(replace(recording, loop_keys=keys)).reason is EndReason.DOOM_LOOP
    assert playback(replace(recording, loop_keys=keys, ignore_in_loop_detection=("look",))).reason is EndReason.ANSWERED


def test_invalid_arguments_and_unknown_tools_are_refused_by_the_engine() -> None:
    reply = asks_for(ResponseToolCall("look", None, raw='{"pa'), ("no tool at all!", {}))
    turn = playback(replace(TWO, model=(reply, "So.")))
    why = "Unterminated string starting at character 2 of 4, after `{`"
    assert [recorded.text for recorded in results_of(turn).values()] == [
        f"not executed: the arguments are not one whole JSON object: {why}",
        "there is no tool 'no tool at all!'; the tools are: look, pay",
    ]


@pytest.mark.parametrize("more", ["", "y", "y" * 50, "é" * 9])
@pytest.mark.parametrize("character", ["x", "é", "漢", "🙂"])
def test_cut_result_is_cut_again_at_the_same_place(character: str, more: str) -> None:
    """Wherever in a character the cut goes."""
    for inside in range(len(character.encode())):
        was = cap("x" * (RESULT_LIMIT - inside) + character + more)
        assert "\n[cut: " in was
        results = {"call00001": Recorded(was), "call00002": Recorded(was, CallStatus.ERROR)}
        assert results_of(playback(replace(TWO, results=results))) == results


def test_result_mentioning_a_cut_stays_unchanged() -> None:
    recorded = Recorded("text\n[cut: the first 4 of 9 bytes; ask for less]")
    assert (
        results_of(playback(replace(TWO, results={"call00001": recorded, "call00002": recorded})))["call00001"]
        == recorded
    )


def test_hanging_turn_is_given_up() -> None:
    """A call without a result never comes back."""
    with pytest.raises(PlaybackError, match="stands still after 4 facts"):
        playback(replace(TWO, results={}))


def test_action_after_the_end_is_an_error() -> None:
    with pytest.raises(TurnAlreadyEndedError):
        playback(replace(TWO, then=({"approval-1": "yes"},)))
    with pytest.raises(TurnAlreadyEndedError):
        playback(replace(TWO, then=(At(100, "crash"),)))


def test_recording_unfit_for_any_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="a name must have 1 to 64"):
        playback(replace(TWO, tools=("not a name",)))
