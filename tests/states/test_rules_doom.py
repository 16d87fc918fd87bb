"""The machine's responses to doom loops (docs/rules.md#doom-loops). The detector's tests are in test_doom.py."""

from itertools import cycle, islice
from typing import TYPE_CHECKING

import pytest

from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    AwaitPerson,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    Cause,
    Conclude,
    ConcludedInput,
    Decision,
    EndReason,
    Halt,
    InterruptKind,
    InvalidCallError,
    Outcome,
    State,
    SteeredInput,
    ToolCall,
    facts,
)
from turnwright_states.result_key import result_key

if TYPE_CHECKING:
    from .conftest import Begin, Script


def rounds_until_it_stops(turn: "Script", *names: str, most: int = 20) -> int:
    """Repeat one-call rounds with these names, in turn; how many there were when the machine did not go on."""
    for number, name in enumerate(islice(cycle(names), most), start=1):
        turn.step(name)
        if not isinstance(turn.action, CallModel):
            return number
    return most


@pytest.mark.parametrize("threshold", [2, 3, 5])
def test_identical_rounds_trip_the_detector_at_the_threshold(begin: "Begin", threshold: int) -> None:
    turn = begin(doom_threshold=threshold)
    assert rounds_until_it_stops(turn, "look") == threshold
    assert turn.action == Conclude(EndReason.DOOM_LOOP, 30.0, 1024)
    turn.feed(ConcludedInput(text="I kept looking."))
    assert turn.end == Halt(Outcome.DOOM_LOOP, EndReason.DOOM_LOOP)


def test_three_identical_rounds_are_the_default(begin: "Begin") -> None:
    assert rounds_until_it_stops(begin(), "look") == 3


def test_detection_can_be_switched_off(begin: "Begin") -> None:
    assert rounds_until_it_stops(begin(doom_threshold=None), "look") == 20


@pytest.mark.parametrize(
    ("names", "threshold"),
    [("ab", 2), ("abc", 2), ("abcd", 2), ("ab", 3), ("abc", 3), ("abcd", 3), ("aab", 3), ("aabb", 3), ("abac", 4)],
)
def test_cycle_of_period_2_to_4_trips_the_detector(begin: "Begin", names: str, threshold: int) -> None:
    turn = begin(doom_threshold=threshold)
    assert rounds_until_it_stops(turn, *names) == len(names) * threshold


def test_cycle_of_period_5_is_no_loop(begin: "Begin") -> None:
    assert rounds_until_it_stops(begin(doom_threshold=2), *"abcde") == 20


def test_different_round_breaks_the_run(begin: "Begin") -> None:
    turn = begin()
    for name in ("look", "look", "list", "look", "look"):
        turn.step(name)
    assert turn.action == CallModel(tools=True)


def test_identical_calls_in_a_batch_do_not_trip_the_detector(begin: "Begin") -> None:
    turn = begin()
    turn.step("look", "look", "look")
    assert turn.action == CallModel(tools=True)


def test_round_is_a_multiset(begin: "Begin") -> None:
    """The order of the calls does not count, how often each occurs does."""
    turn = begin(doom_threshold=2)
    turn.step("look", "list", "look")
    turn.step("look", "list")
    assert turn.action == CallModel(tools=True)
    turn.step("list", "look")
    assert isinstance(turn.action, Conclude)


def test_order_of_keys_does_not_count(begin: "Begin") -> None:
    turn = begin(doom_threshold=2)
    turn.step(ToolCall(name="read", arguments={"path": "a.py", "lines": {"from": 1, "to": 9}}))
    turn.step(ToolCall(name="read", arguments={"lines": {"to": 9, "from": 1}, "path": "a.py"}))
    assert isinstance(turn.action, Conclude)


def test_other_arguments_are_another_call(begin: "Begin") -> None:
    turn = begin(doom_threshold=2)
    turn.step(ToolCall(name="read", arguments={"path": "a.py"}))
    turn.step(ToolCall(name="read", arguments={"path": "b.py"}))
    assert turn.action == CallModel(tools=True)


def test_loop_key_replaces_the_arguments(begin: "Begin") -> None:
    turn = begin(doom_threshold=2)
    turn.step(ToolCall(name="fetch", arguments={"url": "/a?nonce=1"}, loop_key="/a"))
    turn.step(ToolCall(name="fetch", arguments={"url": "/a?nonce=2"}, loop_key="/a"))
    assert isinstance(turn.action, Conclude)


def test_invalid_json_is_compared_as_raw_text(begin: "Begin") -> None:
    turn = begin(doom_threshold=2)
    turn.step(ToolCall(name="read", raw="{path: a.py"))
    turn.step(ToolCall(name="read", raw="{path: b.py"))
    assert turn.action == CallModel(tools=True)
    turn.step(ToolCall(name="read", raw="{path: b.py"))
    assert isinstance(turn.action, Conclude)


def results(turn: "Script", *texts: str) -> bool:
    """Ask for the same call again and again, with these results; whether the machine continued each time."""
    for text in texts:
        turn.reply("look")
        turn.settle(result=text)
        if not isinstance(turn.action, CallModel):
            return False
    return True


@pytest.mark.parametrize("compare", ["results", "calls"])
def test_calls_with_other_results_are_a_loop_only_by_calls(begin: "Begin", compare: str) -> None:
    turn = begin(doom_compare=compare)
    assert results(turn, "page 1", "page 2", "page 3", "page 4") is (compare == "results")


def test_results_differing_only_in_noise_are_equal(begin: "Begin") -> None:
    assert not results(begin(), "ok in 0.25s", "ok in 1.5s", "ok in 0.3s")


def test_cycle_of_results_is_a_loop(begin: "Begin") -> None:
    assert results(begin(), *"ababa")
    assert not results(begin(), *"ababab")


def test_results_of_a_batch_count_with_the_calls_in_any_order(begin: "Begin") -> None:
    turn = begin(doom_threshold=2)
    for order in ((0, 1), (1, 0)):
        turn.reply("look", "list")
        for place in order:
            turn.settle_one(turn.machine.turn.open_calls()[0 if turn.calls % 2 else place].id, result="x")
    assert isinstance(turn.action, Conclude)
    swapped = begin(doom_threshold=2)
    for first_result, second_result in (("x", "y"), ("y", "x")):
        swapped.reply("look", "list")
        first, second = swapped.ready
        swapped.settle_one(first, result=first_result)
        swapped.settle_one(second, result=second_result)
    assert isinstance(swapped.action, CallModel)


def test_files_of_a_result_count(begin: "Begin") -> None:
    turn = begin(doom_threshold=2)
    for picture in ("a", "b", "b"):
        assert isinstance(turn.action, CallModel)
        turn.reply("look")
        call = turn.ready[0]
        turn.feed(CallStartedInput(call=call))
        turn.feed(CallSettledInput(call=call, result="a picture", files=({"data": picture},)))
    assert isinstance(turn.action, Conclude)


def test_half_a_surrogate_pair_in_result_files_is_a_question_mark(begin: "Begin") -> None:
    turn = begin(doom_threshold=2)
    for name in ("\ud83d.png", "?.png"):
        assert isinstance(turn.action, CallModel)
        turn.reply("look")
        call = turn.ready[0]
        turn.feed(CallStartedInput(call=call))
        turn.feed(CallSettledInput(call=call, files=({"name": name, "data": "a"},)))
    assert isinstance(turn.action, Conclude)


@pytest.mark.parametrize("status", [CallStatus.REFUSED, CallStatus.UNKNOWN, CallStatus.ABORTED, CallStatus.REJECTED])
def test_denied_or_stopped_call_is_left_out_of_a_round_with_results(begin: "Begin", status: CallStatus) -> None:
    turn = begin(doom_threshold=2)
    for _ in range(4):
        turn.reply("look")
        turn.feed(CallSettledInput(call=turn.ready[0], status=status, result="no"))
        assert isinstance(turn.action, CallModel)
    calls = begin(doom_threshold=2, doom_compare="calls")
    for _ in range(2):
        calls.reply("look")
        calls.feed(CallSettledInput(call=calls.ready[0], status=status, result="no"))
    assert isinstance(calls.action, Conclude)


def test_call_unable_to_run_is_a_round_with_the_error(begin: "Begin") -> None:
    turn = begin(doom_threshold=2)
    for _ in range(2):
        assert isinstance(turn.action, CallModel)
        turn.reply(ToolCall(name="fly", arguments={}, problem="there is no tool fly"))
    assert isinstance(turn.action, Conclude)


def test_result_key_is_recorded_only_if_results_are_compared(begin: "Begin") -> None:
    off = {"stall_errors": None, "stall_rounds": None}
    for limits, keyed in (
        (off, True),
        (off | {"doom_compare": "calls"}, False),
        (off | {"doom_threshold": None}, False),
        (off | {"doom_threshold": None, "stall_errors": 2}, True),
        (off | {"doom_compare": "calls", "stall_rounds": 2}, True),
    ):
        turn = begin(**limits)
        turn.step("look")
        assert turn.of(facts.CallSettled)[0].key == (result_key("") if keyed else "")


def test_message_precedes_the_last_result_only_if_closing_a_loop(begin: "Begin") -> None:
    turn = begin(doom_threshold=2)
    turn.reply("look")
    pictures = ({"data": "a"}, {"data": "b"})
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", result="one file", files=pictures[:1]))
    turn.reply("look")
    turn.feed(CallStartedInput(call="call00002"))
    for text, files, takes_messages in (
        ("one file", pictures[:1], True),
        ("two files", pictures[:1], False),
        ("one file", pictures[1:], False),
        ("one file", (), False),
    ):
        last = CallSettledInput(call="call00002", result=text, files=files)
        assert turn.machine.takes_messages_before(last) is takes_messages
    assert not turn.machine.takes_messages_before(CallSettledInput(call="call00009", result="one file"))


def test_round_is_recorded_once_when_the_reply_arrives(begin: "Begin") -> None:
    """A failed attempt, a pause and an answer do not enter it again."""
    turn = begin()
    for number in (1, 2):
        turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT))
        turn.reply("write")
        turn.wait(turn.ready[0])
        turn.feed(AnsweredInput(interrupt=f"approval-{number}", decision=Decision.APPROVE))
        turn.settle()
    assert turn.action == CallModel(tools=True)
    turn.step("write")
    assert isinstance(turn.action, Conclude)


def test_calls_of_exempt_tools_are_left_out(begin: "Begin") -> None:
    poll = ToolCall(name="poll", arguments={}, ignore_in_loop_detection=True)
    turn = begin()
    for _ in range(10):
        turn.step(poll)
    assert turn.action == CallModel(tools=True)
    for _ in range(3):
        turn.step(poll, "look")
    assert isinstance(turn.action, Conclude)


def test_empty_round_neither_counts_nor_breaks_a_run(begin: "Begin") -> None:
    poll = ToolCall(name="poll", arguments={}, ignore_in_loop_detection=True)
    turn = begin()
    for call in ("look", poll, "look", poll, poll):
        turn.step(call)
        assert turn.action == CallModel(tools=True)
    turn.step("look")
    assert isinstance(turn.action, Conclude)


def test_detection_covers_refused_and_denied_calls(begin: "Begin") -> None:
    """Calls that were refused or denied are still what the model asked for."""
    turn = begin(tool_calls=1, doom_threshold=2)
    bad = ToolCall(name="loook", arguments={}, problem="there is no tool loook")
    turn.step(bad)
    turn.step(bad)
    assert turn.calls == 0
    assert isinstance(turn.action, Conclude)


# A nudge.


def test_nudge_costs_a_step_and_keeps_the_rounds(begin: "Begin") -> None:
    turn = begin(steps=10, nudges=1)
    assert rounds_until_it_stops(turn, "look", most=3) == 3
    assert turn.action == CallModel(tools=True, nudge=True)
    assert turn.of(facts.StepStarted)[-1].nudge
    assert turn.steps == 4
    turn.step("look")
    assert isinstance(turn.action, Conclude)


def test_successful_nudge_is_not_repeated(begin: "Begin") -> None:
    turn = begin(nudges=1)
    for _ in range(3):
        turn.step("look")
    turn.step("write")
    assert turn.action == CallModel(tools=True, nudge=False)


def test_nudge_ends_with_the_step(begin: "Begin") -> None:
    """The turn does not keep it, so a turn that concludes is the same with and without it."""
    turn = begin(nudges=1)
    for _ in range(3):
        turn.step("look")
    assert turn.machine.turn.nudge
    turn.step("look")
    assert isinstance(turn.action, Conclude)
    assert not turn.machine.turn.nudge


def test_each_nudge_is_used_once(begin: "Begin") -> None:
    turn = begin(nudges=2)
    nudged = []
    for _ in range(5):
        turn.step("look")
        nudged.append(turn.action == CallModel(tools=True, nudge=True))
    assert nudged == [False, False, True, True, False]
    assert isinstance(turn.action, Conclude)


@pytest.mark.parametrize(
    ("limits", "also"),
    [
        ({"tool_calls": 3}, EndReason.BUDGET),
        ({"tool_calls": 4}, None),
        ({"seconds": 1}, EndReason.DEADLINE),
    ],
    ids=str,
)
def test_nudge_never_exceeds_a_spent_budget(begin: "Begin", limits: dict[str, object], also: EndReason | None) -> None:
    turn = begin(nudges=1, **limits)
    for _ in range(2):
        turn.step("look")
    turn.clock = 1.0
    turn.step("look")
    if also is None:
        assert turn.action == CallModel(tools=True, nudge=True)
    else:
        stopping = turn.of(facts.Stopping)[0]
        assert (stopping.reason, stopping.also_reached) == (EndReason.DOOM_LOOP, (also,))


def test_step_cap_precedes_a_nudge(begin: "Begin") -> None:
    turn = begin(steps=3, nudges=1)
    for _ in range(3):
        turn.step("look")
    stopping = turn.of(facts.Stopping)[0]
    assert (stopping.reason, stopping.also_reached) == (EndReason.STEP_CAP, (EndReason.DOOM_LOOP,))


# Asking a person.


def looping(begin: "Begin", *names: str, **limits: object) -> "Script":
    """A turn that has just tripped the detector, and asks."""
    turn = begin(doom_response="ask", **limits)
    for _ in range(3):
        turn.step(*(names or ("look",)))
    return turn


@pytest.mark.parametrize("compare", ["results", "calls"])
def test_ask_pauses_with_the_interrupt_doom_1(begin: "Begin", compare: str) -> None:
    turn = looping(begin, "list", "look", doom_compare=compare)
    assert isinstance(turn.action, AwaitPerson)
    (interrupt,) = turn.action.interrupts
    assert (interrupt.id, interrupt.kind, interrupt.call) == ("doom-1", InterruptKind.DOOM_LOOP, "")
    assert interrupt.choices == ("go_on", "always", "stop")
    assert interrupt.tool == "list, look"
    assert interrupt.question == "The model keeps asking for the same calls (list, look). Go on?"


def test_no_message_precedes_the_answer_to_a_doom_loop(begin: "Begin") -> None:
    """It has no batch that the answer could settle."""
    turn = looping(begin)
    assert not turn.machine.takes_messages_before(AnsweredInput(interrupt="doom-1", decision=Decision.GO_ON))


def test_go_on_clears_the_rounds(begin: "Begin") -> None:
    turn = looping(begin)
    turn.feed(AnsweredInput(interrupt="doom-1", decision=Decision.GO_ON))
    for _ in range(2):
        assert turn.action == CallModel(tools=True)
        turn.step("look")
    assert turn.action == CallModel(tools=True)
    turn.step("look")
    assert turn.interrupts == ["doom-2"]


def test_always_removes_the_tools_of_the_loop_for_the_turn(begin: "Begin") -> None:
    turn = looping(begin, "list", "look")
    turn.feed(AnsweredInput(interrupt="doom-1", decision=Decision.ALWAYS))
    assert turn.of(facts.Answered)[0].always_for == ("list", "look")
    for _ in range(6):
        turn.step("look", "list")
    assert turn.action == CallModel(tools=True)
    for _ in range(3):
        turn.step("look", "write")
    assert turn.interrupts == ["doom-2"]


def test_stop_concludes_with_doom_loop(begin: "Begin") -> None:
    turn = looping(begin)
    turn.feed(AnsweredInput(interrupt="doom-1", decision=Decision.STOP))
    assert turn.action == Conclude(EndReason.DOOM_LOOP, 30.0, 1024)
    turn.feed(ConcludedInput(text="Stopped."))
    assert turn.end == Halt(Outcome.DOOM_LOOP, EndReason.DOOM_LOOP)


@pytest.mark.parametrize("abort", [AbortInput(), AbortInput(reason=EndReason.SUPERSEDED)])
def test_abort_names_the_loop_only_during_a_question_about_the_loop(begin: "Begin", abort: AbortInput) -> None:
    turn = looping(begin)
    turn.feed(abort)
    assert turn.of(facts.TurnEnded)[0].also_reached == (EndReason.DOOM_LOOP,)
    turn = begin()
    turn.step("erase")
    turn.step("erase")
    turn.reply("erase")
    turn.wait("call00003")
    turn.feed(abort)
    assert turn.of(facts.TurnEnded)[0].also_reached == ()


def test_spent_budget_prevents_the_question(begin: "Begin") -> None:
    """The answer could change nothing."""
    turn = looping(begin, tool_calls=3)
    stopping = turn.of(facts.Stopping)[0]
    assert (stopping.reason, stopping.also_reached) == (EndReason.DOOM_LOOP, (EndReason.BUDGET,))


@pytest.mark.parametrize(("pauses", "asks"), [(0, False), (1, True)])
def test_exhausted_pauses_prevent_the_question(begin: "Begin", pauses: int, asks: bool) -> None:
    turn = looping(begin, max_pauses=pauses)
    assert isinstance(turn.action, AwaitPerson) is asks
    assert isinstance(turn.action, Conclude) is not asks


def test_nudge_precedes_the_question(begin: "Begin") -> None:
    turn = looping(begin, nudges=1)
    assert turn.action == CallModel(tools=True, nudge=True)
    turn.step("look")
    assert turn.interrupts == ["doom-1"]


def test_other_limits_apply_after_go_on(begin: "Begin") -> None:
    """The answer leads to CHECK, which may find that the time is up by now."""
    turn = looping(begin, seconds=60)
    turn.clock = 60.0
    turn.feed(AnsweredInput(interrupt="doom-1", decision=Decision.GO_ON))
    assert turn.action == Conclude(EndReason.DEADLINE, 30.0, 1024)


def test_message_to_the_turn_clears_the_rounds(begin: "Begin") -> None:
    turn = begin()
    turn.step("look")
    turn.step("look")
    turn.reply("look")
    turn.feed(SteeredInput(text="Look in src/"))
    turn.settle()
    assert turn.action == CallModel(tools=True)
    for _ in range(2):
        turn.step("look")
    assert turn.action == CallModel(tools=True)
    turn.step("look")
    assert isinstance(turn.action, Conclude)


def test_message_before_the_calls_of_a_step_keeps_the_round(begin: "Begin") -> None:
    for compare, forgotten in (("results", True), ("calls", False)):
        turn = begin(doom_threshold=2, doom_compare=compare, stall_errors=None, stall_rounds=None)
        turn.feed(SteeredInput(text="Look in src/"))
        assert not turn.machine.turn.round_forgotten
        turn.reply("look")
        turn.feed(SteeredInput(text="And in tests/"))
        assert turn.machine.turn.round_forgotten is forgotten
        turn.settle()
        turn.step("look")
        assert turn.action == CallModel(tools=True)
        turn.step("look")
        assert isinstance(turn.action, Conclude)


def test_stopped_step_is_no_round(begin: "Begin") -> None:
    turn = begin(doom_threshold=2)
    turn.step("look")
    rounds = turn.machine.turn.rounds
    turn.reply("look", "list")
    turn.settle_one("call00002")
    turn.feed(AbortInput())
    assert turn.machine.turn.rounds == rounds
    assert turn.of(facts.TurnEnded)[0].also_reached == ()
    assert turn.machine.turn.rounds.tools == ()


def test_uncounted_results_close_no_loop(begin: "Begin") -> None:
    turn = begin(doom_threshold=2)
    turn.step("look")
    turn.reply("look")
    assert turn.machine.turn.may_loop({"call00002": (turn.of(facts.CallSettled)[0].key, False)})
    assert not turn.machine.turn.may_loop({})
    off = begin(doom_threshold=None)
    off.reply("look")
    assert not off.machine.turn.may_loop({"call00001": ("x", False)})


def test_only_the_machine_asks_about_a_doom_loop(begin: "Begin") -> None:
    turn = begin()
    turn.reply("look")
    with pytest.raises(InvalidCallError, match="only the machine asks about a doom loop"):
        turn.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.DOOM_LOOP))
    assert turn.state is State.TOOL_EXEC
