"""The words for a turn's activity, its limits and its ending, which every surface shares."""

import pytest
from tests.engine.ruled_turn import AGENT, engine_with_rules

from turnwright import Agent
from turnwright.status import (
    LIMIT_REASONS,
    LIMITS,
    describe_activity,
    describe_ending,
    describe_lost_driver,
    describe_nearest_limit,
    describe_pause,
    describe_work,
    limit_reached,
    name_limit,
    read_rules,
    sentinel_text,
)
from turnwright.store import MemoryStore
from turnwright_states import REASONS, EndReason, Limits, State, Turn
from turnwright_states import facts as f

_ALL: Limits = Limits(steps=5, tool_calls=50, tokens=1_000, cost=1.0, seconds=60.0)


def test_limits_have_names_and_reasons() -> None:
    names = {reason: LIMITS[limit].name for reason, limit in LIMIT_REASONS.items()}
    assert list(LIMIT_REASONS.values()) == list(LIMITS)
    assert all(REASONS[reason].means == f"The turn reached its {name}." for reason, name in names.items())
    assert (name_limit(EndReason.BUDGET), name_limit(EndReason.DOOM_LOOP)) == ("the tool-call limit", "doom loop")


@pytest.mark.parametrize("reason", LIMIT_REASONS)
def test_ending_is_the_sentinel_without_the_next_step(reason: EndReason) -> None:
    turn = Turn(_ALL)
    assert limit_reached(turn, reason).startswith(f"Stopped at {name_limit(reason)} (")
    assert describe_ending(reason, sentinel_text(turn, reason)) == f"{limit_reached(turn, reason)}."
    assert describe_ending(reason) == REASONS[reason].means


def test_lost_driver_is_described_with_the_activity() -> None:
    assert describe_activity(State.TOOL_EXEC) == "Running tools"
    assert describe_lost_driver(State.TOOL_EXEC, crashed=True) == "Crashed while running tools"
    assert describe_lost_driver(State.CHECK, crashed=False) == "Released between two steps"


def test_pause_and_nearest_limit_are_sentences() -> None:
    assert [describe_pause(answers) for answers in (0, 1, 2)] == [
        "Paused: answered, and not resumed yet",
        "Paused: the turn waits for 1 answer",
        "Paused: the turn waits for 2 answers",
    ]
    assert describe_nearest_limit("the step limit (1 of 2)", is_reached=True) == (
        "The nearest other limit is the step limit (1 of 2)."
    )


def test_work_of_a_turn_lists_calls_before_figures() -> None:
    assert describe_work(2, 1, ["283 tokens", "2.9 s"]) == "2 steps (1 tool call, 283 tokens, 2.9 s)"
    assert describe_work(1, 0, ["0.1 s"]) == "1 step (0.1 s)"


@pytest.mark.anyio
async def test_rules_are_described_with_their_state_and_decisions() -> None:
    """Each rule of a turn has a line: its state, what it is owed, and each call or answer that it judged."""
    async with engine_with_rules(MemoryStore()) as engine:
        turn = await engine.run(AGENT, "Pay order 7 back.")
        facts = [fact for _, fact in await engine.store.facts(turn.id)]
    assert list(map(str, read_rules(facts))) == [
        "verify-first: satisfied by call00002; refused call00001; allowed call00003",
        "large: always in force; asked about call00006",
        "tested: nothing is owed; refused the answer",
        "noted: always in force; reported call00004",
    ]
    answer = next(place for place, fact in enumerate(facts) if isinstance(fact, f.ModelReplied) and fact.text)
    owed = read_rules(facts[:answer])[2]
    assert (str(owed), owed.is_owed, owed.by) == ("tested: owed since call00004", True, ("call00004",))


@pytest.mark.anyio
async def test_no_rule_is_read_from_a_turn_without_rules() -> None:
    async with engine_with_rules(MemoryStore()) as engine:
        turn = await engine.run(Agent(name="Clerk"), "Pay order 7 back.")
        assert read_rules(fact for _, fact in await engine.store.facts(turn.id)) == ()
