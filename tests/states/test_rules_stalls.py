"""The machine's responses to stalls: the same error, or nothing new (docs/rules.md#stalls)."""

from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.proof.conformance import ConformingMachine

from turnwright_proof.verify.case import Case
from turnwright_proof.verify.walk import walk
from turnwright_states import (
    AnsweredInput,
    AwaitPerson,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    Conclude,
    ConcludedInput,
    Decision,
    EndReason,
    Halt,
    Limits,
    Outcome,
    Stall,
    StartedInput,
    State,
    SteeredInput,
    ToolCall,
    TurnMachine,
    facts,
)
from turnwright_states.limits import PresetName
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

from .conftest import Script

if TYPE_CHECKING:
    from .conftest import Begin

ERROR, NOTHING = Stall.SAME_ERROR, Stall.NOTHING_NEW
#: Nothing but the stall that a test is about.
OFF: dict[str, object] = {"doom_threshold": None, "stall_errors": None, "stall_rounds": None, "idle_steps": None}


def asks(name: str, n: int = 0) -> ToolCall:
    return ToolCall(name=name, arguments={"n": n})


def go(turn: Script, *calls: ToolCall | str, error: str | None = None, result: str = "fine") -> Stall | None:
    """One step, whose calls have this result or this error; the stall of which the next request has a hint."""
    turn.reply(*calls)
    turn.settle(CallStatus.OK, result) if error is None else turn.settle(CallStatus.ERROR, error)
    assert isinstance(turn.action, CallModel)
    assert not turn.action.nudge
    assert turn.of(facts.StepStarted)[-1].stall is turn.action.stall
    return turn.action.stall


def test_same_error_four_times_gives_a_hint_for_any_tool(begin: "Begin") -> None:
    turn = begin()
    hints = [go(turn, asks(name, n), error="no such file") for n, name in enumerate("abcab")]
    assert hints == [None, None, None, ERROR, ERROR]
    assert turn.state is State.STREAM


def test_errors_differing_only_in_noise_are_equal(begin: "Begin") -> None:
    turn = begin(**OFF | {"stall_errors": 2})
    assert go(turn, asks("a", 1), error="timed out after 1.5 s") is None
    assert go(turn, asks("a", 2), error="timed out after 2.1 s") is ERROR


@pytest.mark.parametrize(
    "other_result", [{"error": "no such folder"}, {"result": "no such file"}], ids=["error", "result"]
)
def test_other_result_breaks_a_row_of_errors(begin: "Begin", other_result: dict[str, str]) -> None:
    turn = begin(**OFF | {"stall_errors": 3})
    failures = [{"error": "no such file"}] * 2
    hints = [
        go(turn, asks("a", n), **result) for n, result in enumerate([*failures, other_result, *failures, *failures])
    ]
    assert hints == [None, None, None, None, None, ERROR, ERROR]


def test_all_calls_of_a_round_must_have_the_error(begin: "Begin") -> None:
    turn = begin(**OFF | {"stall_errors": 2})
    for n in range(3):
        turn.reply(asks("a", n), asks("b", n))
        first, second = turn.ready
        turn.settle_one(first, CallStatus.ERROR, "no")
        turn.settle_one(second, CallStatus.ERROR if n else CallStatus.OK, "no")
    assert turn.action == CallModel(tools=True, stall=ERROR)
    assert [fact.stall for fact in turn.of(facts.StepStarted)] == [None, None, None, ERROR]


def test_round_with_two_errors_has_no_common_error(begin: "Begin") -> None:
    turn = begin(**OFF | {"stall_errors": 2})
    for _ in range(3):
        turn.reply("a", "b")
        for call, error in zip(turn.ready, ("no", "never"), strict=True):
            turn.settle_one(call, CallStatus.ERROR, error)
        assert turn.action == CallModel(tools=True)


def test_six_rounds_without_news_give_a_hint(begin: "Begin") -> None:
    """A cycle of five rounds is not a doom loop."""
    turn = begin()
    hints = [go(turn, name) for name in "abcde" * 3]
    assert hints == [None] * 10 + [NOTHING] * 5


def test_new_call_or_new_result_counts_as_news(begin: "Begin") -> None:
    turn = begin(**OFF | {"stall_rounds": 2})
    assert [go(turn, *"ab"), go(turn, *"ba"), go(turn, "b")] == [None, None, NOTHING]
    assert [go(turn, *"bc"), go(turn, "c"), go(turn, "a")] == [None, None, NOTHING]
    assert [go(turn, "a", result="more"), go(turn, "a"), go(turn, "a", result="more")] == [None, None, NOTHING]
    assert go(turn, "b", result="more") is None


def test_call_repeated_within_a_round_is_new_once(begin: "Begin") -> None:
    turn = begin(**OFF | {"stall_rounds": 2})
    assert [go(turn, *"aa"), go(turn, "a"), go(turn, *"aaa")] == [None, None, NOTHING]
    stalls = turn.machine.turn.rounds.stalls
    assert (len(stalls.seen), stalls.checksum) == (25, crc32(stalls.seen.encode()))
    go(turn, "b")
    stalls = turn.machine.turn.rounds.stalls
    assert (len(stalls.seen), stalls.checksum) == (50, crc32(stalls.seen.encode()))


def test_hint_about_errors_precedes_the_hint_about_news(begin: "Begin") -> None:
    turn = begin(**OFF | {"stall_errors": 3, "stall_rounds": 2})
    assert [go(turn, "a", error="no") for _ in range(4)] == [None, None, ERROR, ERROR]


@pytest.mark.parametrize("status", [CallStatus.REFUSED, CallStatus.UNKNOWN, CallStatus.ABORTED, CallStatus.REJECTED])
def test_denied_or_stopped_calls_neither_count_nor_break_a_row(begin: "Begin", status: CallStatus) -> None:
    turn = begin(**OFF | {"stall_errors": 2, "stall_rounds": 2})
    hints, stalls = [], []
    for now in (CallStatus.ERROR, status, CallStatus.ERROR, status, status):
        turn.reply("a")
        turn.feed(CallSettledInput(call=turn.ready[0], status=now, result="no"))
        assert isinstance(turn.action, CallModel)
        hints.append(turn.action.stall)
        stalls.append(turn.machine.turn.rounds.stalls)
    assert hints == [None, None, ERROR, None, None]
    assert stalls[1] == stalls[0]
    assert stalls[4] == stalls[3] == replace(stalls[2], stall=None)


def test_exempt_tools_do_not_count(begin: "Begin") -> None:
    turn = begin(**OFF | {"stall_rounds": 2})
    poll = ToolCall(name="poll", arguments={}, ignore_in_loop_detection=True)
    assert [go(turn, poll) for _ in range(5)] == [None] * 5
    assert turn.machine.turn.rounds.stalls.seen == ""


def test_calls_unable_to_run_count_with_the_error(begin: "Begin") -> None:
    turn = begin(**OFF | {"stall_errors": 2})
    for n in range(2):
        turn.reply(ToolCall(name=f"fly{n}", problem="send JSON"))
    assert turn.action == CallModel(tools=True, stall=ERROR)


@pytest.mark.parametrize("at", ["before the reply", "while the calls run"])
def test_message_counts_as_news(begin: "Begin", at: str) -> None:
    turn = begin(**OFF | {"stall_errors": 2, "stall_rounds": 2})
    go(turn, "a", error="no")
    if at == "before the reply":
        turn.feed(SteeredInput(text="Use b."))
        assert go(turn, "a", error="no") is None
    else:
        turn.reply("a")
        turn.feed(SteeredInput(text="Use b."))
        turn.settle(CallStatus.ERROR, "no")
        assert turn.action == CallModel(tools=True)
        assert go(turn, "a", error="no") is None
    assert go(turn, "a", error="no") is ERROR


def test_hint_ends_with_the_step(begin: "Begin") -> None:
    turn = begin(steps=3, **OFF | {"stall_errors": 2})
    for n in range(2):
        go(turn, asks("a", n), error="no")
    turn.reply("b")
    turn.settle()
    assert turn.action == Conclude(EndReason.STEP_CAP, 30.0, 1024)
    assert turn.machine.turn.stall is None


def test_both_stall_limits_can_be_switched_off(begin: "Begin") -> None:
    turn = begin(**OFF)
    assert [go(turn, "a", error="no") for _ in range(9)] == [None] * 9
    assert turn.of(facts.CallSettled)[0].key == ""


@pytest.mark.parametrize("compare", ["results", "calls"])
def test_doom_loop_precedes_a_stall(begin: "Begin", compare: str) -> None:
    turn = begin(doom_compare=compare, nudges=9)
    for _ in range(4):
        turn.reply("a")
        turn.settle(CallStatus.ERROR, "no")
    assert turn.action == CallModel(tools=True, nudge=True, stall=ERROR)
    assert turn.machine.turn.counters.nudges_left == 7


@pytest.mark.parametrize("name", ["boocode", "opencode", "glm-cli"])
def test_other_system_presets_detect_no_stalls(name: PresetName) -> None:
    assert not Limits.preset(name).watches_stalls
    assert Limits.preset("default").watches_stalls
    assert Limits(stall_errors=None).watches_stalls
    assert Limits(stall_rounds=None).watches_stalls


def test_shortest_loop_is_the_minimum_over_all_detectors() -> None:
    assert Limits().shortest_loop == 3
    assert Limits(doom_threshold=9, stall_response="loop").shortest_loop == 4
    assert Limits(doom_threshold=9, stall_errors=8, stall_response="loop").shortest_loop == 7
    assert Limits(doom_threshold=9, stall_errors=None, stall_rounds=None, stall_response="loop").shortest_loop == 9
    assert Limits.model_validate(OFF | {"stall_response": "loop"}).shortest_loop is None


# A stall that is a doom loop.


def stopped(turn: Script) -> bool:
    """A stall of two errors of different calls; whether the turn continued for two steps."""
    for n in range(2):
        assert isinstance(turn.action, CallModel)
        turn.reply(asks("a", n), asks("b", n))
        turn.settle(CallStatus.ERROR, "no")
    return not isinstance(turn.action, CallModel)


@pytest.mark.parametrize("compare", ["results", "calls"])
@pytest.mark.parametrize("threshold", [None, 3])
def test_repeated_error_may_be_a_doom_loop(begin: "Begin", compare: str, threshold: int | None) -> None:
    turn = begin(doom_threshold=threshold, doom_compare=compare, stall_errors=2, stall_response="loop")
    assert stopped(turn)
    assert turn.action == Conclude(EndReason.DOOM_LOOP, 30.0, 1024)
    assert turn.machine.turn.rounds.tools == ("a", "b")
    turn.feed(ConcludedInput(text="It fails."))
    assert turn.end == Halt(Outcome.DOOM_LOOP, EndReason.DOOM_LOOP)


def test_rounds_without_news_may_be_a_doom_loop(begin: "Begin") -> None:
    turn = begin(**OFF | {"stall_rounds": 2, "stall_response": "loop"})
    for name in "abab":
        assert turn.action == CallModel(tools=True)
        turn.step(name)
    assert turn.action == Conclude(EndReason.DOOM_LOOP, 30.0, 1024)


def test_loop_of_equal_rounds_names_the_tools_of_the_loop(begin: "Begin") -> None:
    turn = begin(doom_threshold=2, stall_errors=None, stall_rounds=2, stall_response="loop")
    for name in "abab":
        turn.step(name)
    assert isinstance(turn.action, Conclude)
    assert turn.machine.turn.rounds.tools == ("a", "b")


def test_nudge_comes_first_with_the_words_of_the_stall(begin: "Begin") -> None:
    turn = begin(**OFF | {"stall_errors": 2, "stall_response": "loop", "nudges": 1})
    assert not stopped(turn)
    assert turn.action == CallModel(tools=True, nudge=True, stall=ERROR)
    turn.reply("c")
    turn.settle(CallStatus.ERROR, "no")
    assert isinstance(turn.action, Conclude)


@pytest.mark.parametrize(
    ("limits", "subject"),
    [({"stall_errors": 2}, "keeps getting the same error"), ({"stall_rounds": 2}, "finds out nothing new")],
    ids=["errors", "rounds"],
)
def test_question_about_a_stall_pauses_the_turn(begin: "Begin", limits: dict[str, object], subject: str) -> None:
    turn = begin(**OFF | limits | {"stall_response": "loop", "doom_response": "ask"})
    action = None
    for _ in range(3):
        if action is None:
            turn.reply("a")
            turn.settle(CallStatus.ERROR, "no")
        action = turn.action if isinstance(turn.action, AwaitPerson) else None
    assert action is not None
    assert action.interrupts[0].question == f"The model {subject} (a). Go on?"
    turn.feed(AnsweredInput(interrupt="doom-1", decision=Decision.GO_ON))
    assert turn.action == CallModel(tools=True)
    turn.reply("a")
    turn.settle(CallStatus.ERROR, "no")
    assert isinstance(turn.action, CallModel)


def test_doom_loop_beside_a_stall_hint_is_asked_about_as_a_loop(begin: "Begin") -> None:
    turn = begin(doom_response="ask", stall_rounds=2)
    for _ in range(3):
        turn.step("a")
    assert isinstance(turn.action, AwaitPerson)
    assert turn.machine.turn.rounds.stalls.stall is NOTHING
    assert turn.action.interrupts[0].question == "The model keeps asking for the same calls (a). Go on?"


def test_always_removes_the_tools_of_the_stall(begin: "Begin") -> None:
    turn = begin(**OFF | {"stall_errors": 2, "stall_response": "loop", "doom_response": "ask"})
    assert stopped(turn)
    turn.feed(AnsweredInput(interrupt="doom-1", decision=Decision.ALWAYS))
    assert not stopped(turn)


def test_message_precedes_the_last_result_only_if_stopping_the_turn(begin: "Begin") -> None:
    for response in ("hint", "loop"):
        turn = begin(**OFF | {"stall_errors": 2, "stall_response": response})
        turn.reply("a")
        turn.settle(CallStatus.ERROR, "no")
        turn.reply("b")
        turn.feed(CallStartedInput(call="call00002"))
        for status, text in ((CallStatus.ERROR, "no"), (CallStatus.ERROR, "other"), (CallStatus.OK, "no")):
            last = CallSettledInput(call="call00002", status=status, result=text)
            stops = (response, status, text) == ("loop", CallStatus.ERROR, "no")
            assert turn.machine.takes_messages_before(last) is stops
            there = turn.machine.copy()
            there.feed(last)
            assert isinstance(there.action, Conclude) is stops


# The fold, the replay and the walk.

ROUNDS = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([*CallStatus][:2]), st.sampled_from("xy")), max_size=2),
    max_size=12,
)
LIMITS = st.fixed_dictionaries(
    {
        "doom_threshold": st.none() | st.just(3),
        "doom_compare": st.sampled_from(["results", "calls"]),
        "stall_errors": st.none() | st.integers(2, 3),
        "stall_rounds": st.none() | st.integers(2, 3),
        "stall_response": st.sampled_from(["hint", "loop"]),
        "nudges": st.integers(0, 1),
    }
)


def by_the_rules(rounds: list[list[tuple[str, CallStatus, str]]], limits: Limits) -> Stall | None:
    """The stall after these rounds, by the words of the rules."""
    rounds = [calls for calls in rounds if calls]
    last, most = rounds[-1:], limits.stall_errors
    failed = {(status, text) for calls in rounds[-(most or 1) :] for _, status, text in calls}
    if most and len(rounds) >= most and len(failed) == 1 and next(iter(failed))[0] is CallStatus.ERROR:
        return ERROR
    idle = 0
    for place, calls in enumerate(rounds):
        before = {(name, text) for earlier in rounds[:place] for name, _, text in earlier}
        idle = idle + 1 if {(name, text) for name, _, text in calls} <= before else 0
    return NOTHING if last and limits.stall_rounds and idle >= limits.stall_rounds else None


@given(ROUNDS, LIMITS)
def test_stalls_agree_with_the_rules_and_the_replay(
    rounds: list[list[tuple[str, CallStatus, str]]], limits: dict[str, object]
) -> None:
    bounds = Limits.model_validate(limits)
    turn = Script(StartedInput(prompt="x", limits=bounds))
    for place, calls in enumerate(rounds):
        if not isinstance(turn.action, CallModel) or not calls:
            break
        turn.reply(*(name for name, _, _ in calls))
        for call, (_, status, text) in zip(turn.ready, calls, strict=True):
            turn.settle_one(call, status, text)
        stall = by_the_rules(rounds[: place + 1], bounds)
        assert turn.machine.turn.rounds.stalls.stall is stall
        if isinstance(turn.action, CallModel):
            assert turn.action.stall is stall
    assert isinstance(turn.action, CallModel) or bounds.shortest_loop is not None
    assert TurnMachine.resume(turn.facts).turn.digest() == turn.machine.turn.digest()
    assert replay(enumerate(turn.facts, start=1)).check.verdict is Verdict.HOLDS


@pytest.mark.parametrize("compare", ["results", "calls"])
def test_hint_changes_no_path(compare: str) -> None:
    """The walk has the same rows, ends and edges as without it."""
    doom: dict[str, object] = {"doom_threshold": 2, "doom_compare": compare, "max_retries": 0, "max_pauses": 1}
    stalls: tuple[dict[str, object], ...] = ({"stall_errors": 2, "stall_rounds": 2}, {})
    cases = [
        Case(Limits.model_validate({"steps": 3, "tool_calls": 4} | OFF | stall | doom), widest=1) for stall in stalls
    ]
    first_walk, without = map(walk, cases)
    assert first_walk == without


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"stall_response": "hint", "doom_threshold": 2}, {}], ids=["a hint", "a loop"])
def test_walk_agrees_with_the_walk_without_reductions(fields: dict[str, object]) -> None:
    fields = OFF | {"stall_errors": 2, "stall_rounds": 2, "stall_response": "loop"} | fields
    limits = Limits.model_validate(fields | {"steps": 3, "tool_calls": None, "max_retries": 0, "max_pauses": 0})
    case = Case(limits, widest=1)
    reduced_walk, whole = (walk(case, reduced=reduced) for reduced in (True, False))
    assert (reduced_walk.rows, reduced_walk.ends.keys()) == (whole.rows, whole.ends.keys())
    assert reduced_walk.configurations < whole.configurations


@pytest.mark.slow
@pytest.mark.parametrize("response", ["stop", "ask"])
def test_walk_covers_stalls_as_doom_loops(response: str) -> None:
    fields = OFF | {"stall_errors": 2, "stall_rounds": 2, "stall_response": "loop", "max_retries": 0, "max_pauses": 1}
    case = Case(Limits.model_validate(fields | {"steps": 3, "tool_calls": 4, "doom_response": response}), widest=1)
    assert "doom_loop/doom_loop" in walk(case, machine=ConformingMachine).ends
