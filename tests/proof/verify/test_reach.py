"""The search for a way to an end: it finds a shortest one, which a fresh machine goes, or says that there is none."""

from itertools import pairwise
from typing import Final

import pytest

from turnwright_proof.verify import (
    ENDS,
    Case,
    Counterexample,
    Environment,
    Goal,
    Search,
    event_name,
    reach,
    retrace,
    search,
)
from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    CallSettledInput,
    CallStartedInput,
    CallWaitingInput,
    Cause,
    ConcludedInput,
    Decision,
    EndReason,
    ExpireInput,
    FailInput,
    Finish,
    Halt,
    Input,
    InterruptKind,
    Limits,
    ModelRepliedInput,
    Spent,
    State,
    SteeredInput,
    ToolCall,
    TurnMachine,
    Usage,
)
from turnwright_states.chart import CHART
from turnwright_states.inputs import JsonObject


def limits(**fields: object) -> Limits:
    small = {"steps": 2, "tool_calls": 1, "max_pauses": 1, "max_retries": 0, "doom_threshold": None}
    return Limits.model_validate(small | fields)


CASES: Final = (
    Case(limits(steps=0)),
    Case(limits(), synthesis=True),
    Case(limits(tokens=1, cost=1.0, seconds=1.0)),
    Case(limits(tokens=1)),
    Case(limits(cost=1.0)),
    Case(limits(steps=3, tool_calls=None, doom_threshold=2, doom_response="ask"), widest=1),
    Case(limits(output_retries=0, max_compactions=1), widest=1, hooked=True),
    Case(limits(idle_steps=1), widest=1),
)


def found(result: Search) -> Counterexample:
    assert result.witness is not None
    return result.witness


@pytest.mark.parametrize("end", ENDS)
def test_path_to_every_end_exists_and_replays_on_a_fresh_machine(end: str) -> None:
    witness = found(reach(CASES, Goal(frozenset({end}))))
    machine, _ = TurnMachine.start(witness.case.started)
    for event in witness.events:
        assert not isinstance(machine.action, Halt)
        machine.feed(event)
    action = machine.action
    assert isinstance(action, Halt)
    assert f"{action.outcome}/{action.reason}" == end


@pytest.mark.parametrize(
    ("end", "events"),
    [
        ("finished/answered", 1),  # the model answers
        ("finished/text_only", 1),
        ("failed/context_overflow", 1),
        ("cap_hit/step_cap", 3),  # two replies whose calls cannot run, the conclusion
        ("cap_hit/budget", 4),  # the reply, its call starts, ends, the conclusion
        ("cap_hit/tokens", 2),  # the reply that spends them, the conclusion
        ("cap_hit/deadline", 2),  # the time is up, the conclusion
        ("aborted/superseded", 3),  # the reply, its call waits, a new message
        ("doom_loop/doom_loop", 4),  # twice the same reply, the answer, the conclusion
    ],
)
def test_path_is_a_shortest_path(end: str, events: int) -> None:
    cases = [case for case in CASES if case.limits.steps != 0 or end == "finished/text_only"]
    assert len(found(reach(cases, Goal(frozenset({end})))).events) == events


def test_shortest_path_of_all_cases_is_independent_of_the_case_order() -> None:
    """An allowance of 1 ends at the cap after one reply, of 2 after two."""
    first, second = Case(limits(steps=1)), Case(limits(steps=2))
    goal = Goal(frozenset({"cap_hit/step_cap"}))
    for cases in ((first, second), (second, first)):
        witness = found(reach(cases, goal))
        assert (witness.case, len(witness.events)) == (first, 2)


@pytest.mark.slow
def test_single_case_search_agrees_with_the_search_in_rounds() -> None:
    """The rounds look at each case to a depth, then to a greater one: no way may get lost between them."""
    deep = Goal(frozenset({"cap_hit/step_cap"}), states=frozenset({State.PAUSED}), events=frozenset({"steered"}))
    for goal in (deep, Goal(frozenset({"doom_loop/doom_loop"}))):
        for case in CASES:
            alone = search(case, goal).witness
            together = reach([case], goal).witness
            assert (alone and len(alone.events)) == (together and len(together.events))


def test_unreachable_end_is_searched_to_the_last_configuration() -> None:
    result = reach([Case(limits(steps=1))], Goal(frozenset({"cap_hit/cost"})))
    assert (result.witness, result.whole, result.cut) == (None, True, False)
    assert result.configurations > 10


def test_truncated_search_is_not_whole() -> None:
    result = reach([Case(limits(steps=1))], Goal(frozenset({"cap_hit/cost"})), most=5)
    assert (result.witness, result.whole, result.cut) == (None, False, True)
    assert result.configurations == 5


def test_search_keeps_states_of_rules_apart() -> None:
    """An answer needs an ok call of `b`: a settled call of `a` leads to another configuration."""
    rules: tuple[JsonObject, ...] = ({"name": "answer", "before": "@answer", "need": "b"},)
    case = Case(limits(max_pauses=0, output_retries=0), widest=1, hooked=True, rules=rules)
    assert len(found(search(case, Goal(frozenset({"finished/answered"})))).events) == 3


def test_path_passes_the_required_states() -> None:
    goal = Goal(frozenset({"finished/answered"}), states=frozenset({State.PAUSED, State.CONTINUE}))
    witness = found(reach(CASES, goal))
    passed_states = {state for edge in witness.path for row in edge.rows for state in (row.source, row.dest)}
    assert {State.PAUSED, State.CONTINUE} <= passed_states
    assert any(isinstance(event, AnsweredInput) for event in witness.events)


@pytest.mark.parametrize(("name", "kind"), [("abort", AbortInput), ("answered", AnsweredInput)])
def test_path_contains_the_required_event(name: str, kind: type) -> None:
    goal = Goal(frozenset({"aborted/aborted"}), events=frozenset({name}))
    assert any(isinstance(event, kind) for event in found(reach(CASES, goal)).events)


def test_end_excluded_by_a_required_event_is_not_reached() -> None:
    """A turn that was aborted did not finish."""
    result = reach(CASES[:2], Goal(frozenset({"finished/answered"}), events=frozenset({"abort"})))
    assert (result.witness, result.whole) == (None, True)


def test_events_are_spelled_with_underscores() -> None:
    assert (event_name(ModelRepliedInput), event_name(AbortInput)) == ("model_replied", "abort")


def test_path_is_described_with_the_beginning_and_the_chart_rows() -> None:
    witness = found(reach([Case(limits())], Goal(frozenset({"cap_hit/budget"}))))
    path, machine = retrace(witness.case, witness.events)
    assert path == witness.path
    assert [edge.happened for edge in path] == [
        "the turn begins",
        "the model asks for a",
        "a starts",
        "a ends: ok",
        "the model concludes",
    ]
    assert path[0].rows == (CHART.rows[10],)
    assert path[-1].dest is machine.state is State.CAP_HIT
    assert all(before.dest is after.source for before, after in pairwise(path))


def test_no_event_follows_an_end() -> None:
    """The search stops there, and so does everything around the turn."""
    case = Case(limits(steps=0))
    _, machine = retrace(case, [ModelRepliedInput(text="x")])
    assert list(Environment(case).moves(machine.turn, machine.action)) == []


A, AGENT = ToolCall(name="a", arguments={}), ToolCall(name="agent", arguments={}, delegates=True)
ONE, TWO = "call00001", "call00002"
GRANTED: Final = CallWaitingInput(call=ONE, interrupt_kind=InterruptKind.APPROVAL)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([ModelRepliedInput(text="x", finish=Finish.LENGTH)], "the model answers, cut off at its length"),
        ([ModelRepliedInput(finish=Finish.CONTENT_FILTER)], "the model replies, stopped by a content filter"),
        ([ModelRepliedInput()], "the model sends an empty reply"),
        ([ModelRepliedInput(calls=(A, AGENT))], "the model asks for a, agent"),
        (
            [ModelRepliedInput(calls=(ToolCall(name="b", problem="unknown tool"),))],
            "the model asks for b (unknown tool)",
        ),
        (
            [ModelRepliedInput(calls=(A,), usage=Usage(input_tokens=9, cost=9.0), elapsed=9.0)],
            "the model asks for a, and the tokens and money are spent, and the time is up",
        ),
        ([AttemptFailedInput(cause=Cause.RATE_LIMITED)], "the attempt fails (rate limited)"),
        (
            [AttemptFailedInput(cause=Cause.INTERRUPTED, usage=Usage(cost=9.0))],
            "the attempt fails (interrupted), and the money is spent",
        ),
        ([AttemptFailedInput(cause=Cause.CRASH)], "the process dies"),
        ([ModelRepliedInput(calls=(A, A)), CallStartedInput(call=TWO)], "a (the 2. of 2) starts"),
        (
            [ModelRepliedInput(calls=(A,)), CallStartedInput(call=ONE), CallStartedInput(call=ONE)],
            "a runs again after a crash",
        ),
        (
            [ModelRepliedInput(calls=(A,)), CallStartedInput(call=ONE), CallSettledInput(call=ONE, elapsed=9.0)],
            "a ends: ok",
        ),
        ([ModelRepliedInput(calls=(A,)), GRANTED], "a waits for a person (approval)"),
        ([ModelRepliedInput(calls=(A, A)), SteeredInput(text="x")], "a message arrives"),
        (
            [
                ModelRepliedInput(calls=(AGENT,)),
                CallStartedInput(call=ONE),
                CallSettledInput(call=ONE, spent=Spent(calls=2)),
            ],
            "agent ends: ok, its sub-agent made 2 calls",
        ),
        (
            [
                ModelRepliedInput(calls=(AGENT,)),
                CallStartedInput(call=ONE),
                CallWaitingInput(call=ONE, interrupt_kind=InterruptKind.DOOM_LOOP, forwarded="doom-1"),
            ],
            "agent's sub-agent waits for a person (doom loop)",
        ),
        (
            [
                ModelRepliedInput(calls=(A,)),
                CallStartedInput(call=ONE),
                CallWaitingInput(call=ONE, interrupt_kind=InterruptKind.UNKNOWN_OUTCOME),
                AnsweredInput(interrupt="unknown-1", decision=Decision.RERUN),
                CallStartedInput(call=ONE),
            ],
            "a continues",
        ),
        (
            [ModelRepliedInput(calls=(A,)), GRANTED, AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE)],
            "a person answers approval-1: approve",
        ),
        (
            [ModelRepliedInput(calls=(A,)), GRANTED, AbortInput(reason=EndReason.SUPERSEDED)],
            "a new message replaces the turn",
        ),
        ([ExpireInput(elapsed=9.0)], "the time is up"),
        ([ExpireInput(elapsed=9.0), ConcludedInput(text="\n")], "the model concludes without text"),
        ([ExpireInput(elapsed=9.0), ConcludedInput(calls=(A,))], "the model concludes with calls only"),
        ([AbortInput()], "somebody aborts the turn"),
        ([FailInput(error="x")], "the engine fails"),
    ],
)
def test_events_are_described_in_words(events: list[Input], expected: str) -> None:
    case = Case(Limits(steps=2, tokens=9, cost=9.0, seconds=9.0, tool_calls=9))
    assert retrace(case, events)[0][-1].happened.startswith(expected)
