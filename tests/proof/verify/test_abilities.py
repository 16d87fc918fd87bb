"""The rows that the turns of one agent can take: none of them is ever left out, and few others are kept."""

import random
from typing import Any, Final

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from turnwright_proof.verify import Abilities, rows_of
from turnwright_proof.verify.abilities import rows_within
from turnwright_proof.verify.case import Case
from turnwright_proof.verify.configuration import WalkedMachine
from turnwright_proof.verify.environment import Environment
from turnwright_states import Limits, State
from turnwright_states.chart import ROWS, Row
from turnwright_states.inputs import AbortInput, ExpireInput, FailInput, Input, TrippedInput
from turnwright_states.state import FINAL

NONE: Final = Abilities(
    tools=False,
    delegates=False,
    asks=False,
    direct=False,
    typed=False,
    reviews="never",
    refuses=False,
    trips=False,
    synthesis=False,
)
TOOLS: Final = NONE._replace(tools=True)

#: An example takes a second, and its limits say enough without being made smaller.
FEW: Final = settings(deadline=None, max_examples=25, phases=(Phase.explicit, Phase.reuse, Phase.generate))

any_abilities: Final = st.builds(
    Abilities,
    *[st.booleans()] * 5,
    st.sampled_from(("always", "sometimes", "never")),
    *[st.booleans()] * 3,
)


def some_limits(most: int, calls: int, steps: int) -> st.SearchStrategy[Limits]:
    few = st.integers(0, most)
    return st.builds(
        Limits,
        steps=st.integers(0, steps),
        concluding=st.sampled_from(("after", "within", "never")),
        tool_calls=st.none() | st.integers(0, calls),
        max_calls_per_step=st.integers(1, min(calls, 4)),
        tokens=st.none() | st.just(1),
        cost=st.none() | st.just(1.0),
        seconds=st.none() | st.just(1.0),
        doom_threshold=st.none() | st.integers(2, 4),
        doom_compare=st.sampled_from(("results", "calls")),
        doom_response=st.sampled_from(("stop", "ask")),
        nudges=few,
        max_retries=few,
        output_retries=few,
        max_compactions=few,
        max_pauses=few,
    )


def numbers(rows: frozenset[Row]) -> list[int]:
    return [number for number, row in enumerate(ROWS, start=1) if row in rows]


def a_turn(limits: Limits, abilities: Abilities, chance: random.Random) -> set[Row]:
    """Play one turn with its real limits. It prefers some kinds of inputs, so that turns become long and different."""
    case = Case(limits, abilities.synthesis, min(limits.max_calls_per_step, 3), abilities.delegates, abilities.hooked)
    around = Environment(case, reduced=False)
    weights: dict[tuple[type[Input], str], float] = {}
    machine, _ = WalkedMachine.start(case.started)
    for _ in range(400):
        if machine.state in FINAL:
            break
        moves = [move for move in around.moves(machine.turn, machine.action) if abilities.allows(move)]
        kinds = [(type(move), repr(move)) for move in moves]
        for kind in kinds:
            rare = kind[0] in (AbortInput, FailInput, ExpireInput, TrippedInput)
            weights.setdefault(kind, 0.01 if rare else chance.choice((0.02, 1, 30)))
        (event,) = chance.choices(moves, [weights[kind] for kind in kinds])
        machine.feed(abilities.as_it_comes(event, machine.action))
    return set(machine.rows)


@pytest.mark.slow
@FEW
@given(some_limits(5, 60, 30), any_abilities, st.randoms(use_true_random=False))
def test_no_row_taken_by_a_turn_is_left_out(limits: Limits, abilities: Abilities, chance: random.Random) -> None:
    """With the real limits, not the small ones of the walk."""
    rows = rows_of(limits, abilities).rows
    for _ in range(5):
        assert numbers(frozenset(a_turn(limits, abilities, chance)) - rows) == []


#: Only a sub-agent can spend this budget, and its own call takes one.
DELEGATING: Final = Abilities(
    tools=False,
    delegates=True,
    asks=False,
    direct=False,
    typed=True,
    reviews="always",
    refuses=True,
    trips=False,
    synthesis=True,
)


@pytest.mark.slow
@FEW
@given(some_limits(1, 3, 3), any_abilities)
@example(Limits(steps=3, tool_calls=3, max_calls_per_step=1, doom_threshold=None, nudges=0, max_pauses=0), DELEGATING)
def test_no_row_is_left_out_of_small_turns(limits: Limits, abilities: Abilities) -> None:
    """Walked whole, with the limits as they are."""
    width = min(limits.max_calls_per_step, 2)
    case = Case(limits, abilities.synthesis, width, abilities.delegates, abilities.hooked)
    whole = rows_within(case, abilities)
    small_walk = rows_of(limits, abilities)
    assert numbers(whole.rows - small_walk.rows) == []
    assert whole.ends <= small_walk.ends


CHECKS: Final = {
    "step_cap": 2,
    "nudge": 3,
    "doom_loop": 4,
    "budget": 5,
    "tokens": 6,
    "cost": 7,
    "deadline": 8,
    "idle": 9,
    "doom pause": 10,
}


def checked(abilities: Abilities = TOOLS, **limits: Any) -> list[str]:  # noqa: ANN401 (values of limits)
    rows = numbers(rows_of(Limits.model_validate({"idle_steps": None} | limits), abilities).rows)
    return [name for name, number in CHECKS.items() if number in rows]


def test_unspendable_budget_is_left_out() -> None:
    """Four steps before the last check, each of at most ten calls. A sub-agent can spend everything at once."""
    few: dict[str, Any] = {"steps": 5, "max_calls_per_step": 10, "doom_threshold": None}
    assert checked(tool_calls=40, **few) == ["step_cap", "budget"]
    assert checked(tool_calls=41, **few) == ["step_cap"]
    assert checked(TOOLS._replace(delegates=True), tool_calls=41, **few) == ["step_cap", "budget"]
    assert checked(NONE, tool_calls=1, **few) == ["step_cap"], "calls of unknown tools cost nothing"


def test_loop_longer_than_the_steps_is_left_out() -> None:
    assert checked(steps=3, tool_calls=None, doom_threshold=3) == ["step_cap"]
    assert checked(steps=4, tool_calls=None, doom_threshold=3) == ["step_cap", "doom_loop"]
    assert checked(steps=100, tool_calls=None, doom_threshold=99, nudges=1) == ["step_cap", "nudge"]
    assert checked(steps=100, tool_calls=None, doom_threshold=98, nudges=1) == ["step_cap", "nudge", "doom_loop"]


def test_pauses_unused_by_loops_leave_the_question() -> None:
    asks: dict[str, Any] = {"tool_calls": None, "doom_response": "ask", "doom_threshold": 3}
    assert checked(steps=100, max_pauses=100, **asks) == ["step_cap", "doom pause"]
    assert checked(steps=100, max_pauses=10, **asks) == ["step_cap", "doom_loop", "doom pause"]
    assert checked(TOOLS._replace(asks=True), steps=100, **asks) == ["step_cap", "doom_loop", "doom pause"]
    assert checked(steps=100, max_pauses=0, **asks) == ["step_cap", "doom_loop"]


def test_each_set_limit_has_a_row() -> None:
    for name, reason in (("tokens", "tokens"), ("cost", "cost"), ("seconds", "deadline")):
        limit: dict[str, Any] = {name: 10}
        assert checked(steps=100, tool_calls=None, doom_threshold=None, **limit) == ["step_cap", reason]
    everything: dict[str, Any] = {"tokens": 9, "cost": 9, "seconds": 9, "nudges": 1, "doom_response": "ask"}
    everything["idle_steps"] = 5
    assert checked(steps=100, **everything) == list(CHECKS)


def test_idle_steps_stop_a_turn_only_before_the_last_step() -> None:
    assert checked(steps=5, tool_calls=None, doom_threshold=None, idle_steps=5) == ["step_cap"]
    assert checked(steps=6, tool_calls=None, doom_threshold=None, idle_steps=5) == ["step_cap", "idle"]


def test_loop_of_calls_unable_to_run_may_end_the_idle_steps() -> None:
    """Then nobody is asked, because no step is left."""
    asks: dict[str, Any] = {"tool_calls": None, "doom_response": "ask", "steps": 100, "max_pauses": 100}
    assert checked(doom_threshold=3, idle_steps=2, **asks) == ["step_cap", "idle", "doom pause"]
    assert checked(doom_threshold=3, idle_steps=3, **asks) == ["step_cap", "doom_loop", "idle", "doom pause"]


def states(abilities: Abilities, **limits: Any) -> set[State]:  # noqa: ANN401 (values of limits)
    rows = rows_of(Limits.model_validate(limits), abilities).rows
    return {row.source for row in rows} | {row.dest for row in rows}


def test_states_never_entered_by_an_agent_are_left_out() -> None:
    assert states(TOOLS) == set(State) - {
        *(State.COMPACT, State.REVIEW, State.PAUSED, State.TEXT_ONLY, State.SYNTHESIS_DONE)
    }
    assert states(TOOLS, steps=0) == {*(State.CHECK, State.TEXT_ONLY, State.FINISHED, State.FAILED, State.ABORTED)}
    assert State.PAUSED in states(TOOLS._replace(asks=True))
    assert State.PAUSED not in states(TOOLS._replace(asks=True), max_pauses=0)
    assert State.COMPACT in states(TOOLS, max_compactions=3)
    assert State.REVIEW in states(TOOLS._replace(reviews="sometimes"))
    assert State.SYNTHESIS_DONE in states(TOOLS._replace(synthesis=True))


def test_unreviewed_rows_are_left_out_if_every_reply_is_reviewed() -> None:
    always = numbers(rows_of(Limits(), TOOLS._replace(reviews="always")).rows)
    assert {12, 13, 35, 36, 37} <= set(always)
    assert not {14, 15, 16, 33, 34} & set(always)
    refused = numbers(rows_of(Limits(), TOOLS._replace(reviews="always", refuses=True)).rows)
    assert {33, 34} <= set(refused)


@pytest.mark.slow
def test_agent_with_all_abilities_takes_every_row() -> None:
    everything = Limits(tokens=9, cost=9, seconds=9, nudges=1, doom_response="ask", max_compactions=2)
    rows = rows_of(everything, Abilities()).rows | rows_of(Limits(steps=0, seconds=9), Abilities()).rows
    assert numbers(frozenset(ROWS) - rows) == []


@pytest.mark.parametrize(
    ("ability", "limits", "more"),
    [
        ({"asks": True}, {}, {44, 54, 57, 58}),
        ({"direct": True}, {}, {45, 49}),
        ({"synthesis": True}, {}, {46}),
        ({"trips": True}, {}, {21, 48, 65}),
        ({}, {"max_compactions": 1}, {18, 20, 27, 28, 29, 31, 32}),
        ({}, {"seconds": 1}, {8, 22, 50}),
    ],
)
def test_each_ability_adds_rows(ability: dict[str, Any], limits: dict[str, int], more: set[int]) -> None:
    """With `direct`, a call gives the answer before a deadline too."""
    timed = {"seconds": 1} if "direct" in ability else {}
    plain = rows_of(Limits.model_validate(timed), TOOLS).rows
    rows = rows_of(Limits.model_validate(timed | limits), TOOLS._replace(**ability)).rows
    assert set(numbers(rows - plain)) == more
    assert plain <= rows
