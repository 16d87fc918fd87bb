"""Inputs that are played again give the same journal; with a change, the journal that follows from it."""

import pytest
from msgspec import structs
from msgspec.structs import force_setattr

from turnwright_states import (
    CallSettledInput,
    CallStatus,
    Input,
    Limits,
    StartedInput,
    State,
    ToolCall,
    TurnMachine,
    facts,
)
from turnwright_states.chart import CHART
from turnwright_states.rederive import rederive
from turnwright_states.replay import FactGroup, replay
from turnwright_states.verdict import Verdict

from .conftest import Script

LIMITS = Limits(steps=3)
BEGINNING = StartedInput(prompt="Tidy utils.py", limits=LIMITS)
#: A tool made the loop key of the second call, from what nobody else knows.
CALLS = (
    ToolCall(name="look", arguments={"n": 1}),
    ToolCall(name="poll", arguments={"n": 2}, loop_key="poll the queue"),
)


@pytest.fixture
def journal(script: Script) -> list[facts.Fact]:
    """A turn of two steps and an answer, as a store has it: the engine notes when each step began."""
    for number in (1, 2):
        script.reply(*CALLS)
        script.settle(result=f"seen {number}")
    script.reply(text="Done.")
    assert script.state is State.FINISHED
    for fact in script.facts:
        if isinstance(fact, facts.StepStarted):
            force_setattr(fact, "started_at", f"2026-11-27T0{fact.number}:00:00Z")
    return script.facts


@pytest.fixture
def script() -> Script:
    return Script(BEGINNING)


def groups_of(journal: list[facts.Fact]) -> list[FactGroup]:
    replayed = replay([*enumerate(journal, start=1)])
    assert replayed.check.verdict is Verdict.HOLDS
    return list(replayed.groups)


def played(journal: list[facts.Fact]) -> list[facts.Fact]:
    rederived = rederive(journal, groups_of(journal), BEGINNING)
    assert not isinstance(rederived, FactGroup)
    return rederived


def test_unchanged_inputs_rederive_the_same_facts(journal: list[facts.Fact]) -> None:
    assert [fact.to_json() for fact in played(journal)] == [fact.to_json() for fact in journal]
    calls = [call for fact in journal if isinstance(fact, facts.ModelReplied) for call in fact.calls]
    assert [call.own_key for call in calls] == [False, True, False, True]


def test_first_row_of_a_turn_without_steps_is_chosen_by_the_limits() -> None:
    started = StartedInput(prompt="Only answer.", limits=Limits(steps=0))
    first = TurnMachine.start(started)[1]
    assert rederive(first, groups_of(first), started) == first


def test_prefix_of_the_groups_gives_a_prefix_of_the_journal(journal: list[facts.Fact]) -> None:
    for count in range(1, len(groups_of(journal)) + 1):
        groups = groups_of(journal)[:count]
        assert rederive(journal, groups, BEGINNING) == journal[: groups[-1].last]


def test_journal_with_a_changed_result_replays(journal: list[facts.Fact]) -> None:
    def other(event: Input) -> Input:
        return structs.replace(event, result="changed") if isinstance(event, CallSettledInput) else event

    rederived = rederive(journal, groups_of(journal), BEGINNING, other)
    assert not isinstance(rederived, FactGroup)
    assert {fact.result for fact in rederived if isinstance(fact, facts.CallSettled)} == {"changed"}
    assert [type(fact) for fact in rederived] == [type(fact) for fact in journal]
    assert groups_of(rederived)


def test_first_group_unfit_for_the_changed_course_is_returned(
    journal: list[facts.Fact],
) -> None:
    group = rederive(journal, groups_of(journal), structs.replace(BEGINNING, limits=Limits(steps=1)))
    assert isinstance(group, FactGroup)
    assert isinstance(journal[group.last - 1], facts.ModelReplied | facts.CallStarted)
    assert group.first > next(number for number, fact in enumerate(journal, 1) if isinstance(fact, facts.StepFinished))


def test_call_unmade_in_the_original_keeps_the_key(journal: list[facts.Fact]) -> None:
    first = next(number for number, fact in enumerate(journal) if isinstance(fact, facts.ModelReplied))
    rederived = rederive(journal[:first], groups_of(journal), BEGINNING)
    assert not isinstance(rederived, FactGroup)
    calls = [call for fact in rederived if isinstance(fact, facts.ModelReplied) for call in fact.calls]
    assert [call.own_key for call in calls] == [False, True, False, True]


def test_rederived_rows_are_not_counted_as_taken(journal: list[facts.Fact]) -> None:
    groups, before = groups_of(journal), list(CHART.taken)
    rederive(journal, groups, BEGINNING)
    assert CHART.taken == before


def test_failed_call_remains_failed(script: Script) -> None:
    script.reply("look")
    script.settle(CallStatus.ERROR, "no such file")
    script.reply(text="It is not there.")
    assert played(script.facts) == script.facts
