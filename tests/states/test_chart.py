"""The chart: its rows are the design's, a `transitions.Machine` executes them, and what has no row changes nothing."""

import copy
import re
from collections.abc import Callable
from itertools import groupby, product
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
import transitions

from turnwright_proof.rank import rank_of
from turnwright_proof.texts import describe_guard
from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AnswerMismatchError,
    AttemptFailedInput,
    CallSettledInput,
    CallStartedInput,
    CallWaitingInput,
    Cause,
    ConcludedInput,
    Decision,
    ExpireInput,
    FailInput,
    IllegalInputError,
    Input,
    InterruptKind,
    InvalidCallError,
    Limits,
    ModelRepliedInput,
    StartedInput,
    State,
    SteeredInput,
    SynthesizedInput,
    ToolCall,
    Trigger,
    TurnMachine,
)
from turnwright_states.chart import CHART, ROWS, Chart, Row
from turnwright_states.counters import NAMES, Counters
from turnwright_states.fast_event import FastEvent
from turnwright_states.state import FINAL, LIVE, RESTING, TRANSIENT

if TYPE_CHECKING:
    from .conftest import Begin, Script

# A second copy of the table: from, event, guard in words, to, reason.
# fmt: off
DESIGN: Final = """
CHECK     | proceed        | no step is allowed or no tool call is allowed                | TEXT_ONLY      |
CHECK     | proceed        | all allowed steps started                                    | CONCLUDE       | step_cap
CHECK     | proceed        | doom loop and a nudge is left and no budget is spent         | STREAM         |
CHECK     | proceed        | doom loop and (nobody is to be asked or no pause is left or a budget is spent) | CONCLUDE | doom_loop
CHECK     | proceed        | tool calls spent                                             | CONCLUDE       | budget
CHECK     | proceed        | tokens spent                                                 | CONCLUDE       | tokens
CHECK     | proceed        | cost spent                                                   | CONCLUDE       | cost
CHECK     | proceed        | time spent                                                   | CONCLUDE       | deadline
CHECK     | proceed        | no call ran in too many steps in a row                       | CONCLUDE       | no_call_ran
CHECK     | proceed        | doom loop                                                    | PAUSED         |
CHECK     | proceed        |                                                              | STREAM         |
STREAM    | replied        | content filter                                               | FAILED         | content_filter
STREAM    | replied        | to be reviewed                                               | REVIEW         |
STREAM    | replied        | tool calls                                                   | TOOL_EXEC      |
STREAM    | replied        | cut off by length                                            | FINISHED       | truncated
STREAM    | replied        |                                                              | FINISHED       | answered
STREAM    | attempt_failed | a retry is left and the cause may pass                       | STREAM         |
STREAM    | attempt_failed | the context overflowed and a compaction is left              | COMPACT        |
STREAM    | attempt_failed |                                                              | FAILED         | the cause
STREAM    | oversized      |                                                              | COMPACT        |
STREAM    | expire         |                                                              | CONCLUDE       | deadline
COMPACT   | compacted      | tokens spent                                                 | CONCLUDE       | tokens
COMPACT   | compacted      | cost spent                                                   | CONCLUDE       | cost
COMPACT   | compacted      |                                                              | STREAM         |
COMPACT   | attempt_failed | a retry is left and the cause may pass                       | COMPACT        |
COMPACT   | attempt_failed |                                                              | STREAM         |
COMPACT   | expire         |                                                              | CONCLUDE       | deadline
REVIEW    | reviewed       | refused and an output retry is left                          | CONTINUE       |
REVIEW    | reviewed       | refused                                                      | FAILED         | invalid_output
REVIEW    | reviewed       | tool calls                                                   | TOOL_EXEC      |
REVIEW    | reviewed       | cut off by length                                            | FINISHED       | truncated
REVIEW    | reviewed       |                                                              | FINISHED       | answered
REVIEW    | attempt_failed | a retry is left and the cause may pass                       | REVIEW         |
REVIEW    | attempt_failed |                                                              | FAILED         | the cause
REVIEW    | expire         |                                                              | CONCLUDE       | deadline
TOOL_EXEC | settled        | a person is waited for                                       | PAUSED         |
TOOL_EXEC | settled        | a call gave the answer                                       | FINISHED       | answered
TOOL_EXEC | settled        | the synthesis succeeded                                      | SYNTHESIS_DONE | synthesized
TOOL_EXEC | settled        |                                                              | CONTINUE       |
TOOL_EXEC | expire         | a call gave the answer                                       | FINISHED       | answered
TOOL_EXEC | expire         |                                                              | CONCLUDE       | deadline
CONTINUE  | proceed        |                                                              | CHECK          |
PAUSED    | answered       | a person is waited for                                       | PAUSED         |
PAUSED    | answered       | a doom loop was answered and go on                           | CHECK          |
PAUSED    | answered       | a doom loop was answered                                     | CONCLUDE       | doom_loop
PAUSED    | answered       |                                                              | TOOL_EXEC      |
CONCLUDE  | attempt_failed | a retry is left and the cause may pass                       | CONCLUDE       | carried
CONCLUDE  | attempt_failed | stopping for a doom loop                                     | DOOM_LOOP      | carried
CONCLUDE  | attempt_failed |                                                              | CAP_HIT        | carried
CONCLUDE  | concluded      | no text and a retry is left and the first try               | CONCLUDE       | carried
CONCLUDE  | concluded      | stopping for a doom loop                                     | DOOM_LOOP      | carried
CONCLUDE  | concluded      |                                                              | CAP_HIT        | carried
TEXT_ONLY | replied        | content filter                                               | FAILED         | content_filter
TEXT_ONLY | replied        |                                                              | FINISHED       | text_only
TEXT_ONLY | attempt_failed | a retry is left and the cause may pass                       | TEXT_ONLY      |
TEXT_ONLY | attempt_failed |                                                              | FAILED         | the cause
TEXT_ONLY | expire         |                                                              | CAP_HIT        | deadline
"""  # noqa: E501
# fmt: on
FAILS: Final = ("STREAM", "COMPACT", "REVIEW", "TOOL_EXEC", "CONCLUDE", "TEXT_ONLY")
ABORTS: Final = (*FAILS, "PAUSED")
TRIPS: Final = ("STREAM", "REVIEW", "TOOL_EXEC", "CONCLUDE", "TEXT_ONLY")

Line = tuple[str, ...]


def designed() -> list[Line]:
    rows = [tuple(cell.strip() for cell in line.split("|")) for line in DESIGN.strip().splitlines()]
    rows += [(state, "abort", "", "ABORTED", "aborted or superseded") for state in ABORTS]
    rows += [(state, "fail", "", "FAILED", "engine_error") for state in FAILS]
    rows += [(state, "tripped", "", "FAILED", "guardrail") for state in TRIPS]
    return rows


def built() -> list[Line]:
    return [(row.source, row.trigger, describe_guard(row.guard), row.dest, row.reason or "") for row in ROWS]


def groups(rows: list[Line]) -> dict[tuple[str, str], list[Line]]:
    """The rows of each pair of state and event, in their order, which is all the order that means something."""
    by_pair: dict[tuple[str, str], list[Line]] = {}
    for row in rows:
        by_pair.setdefault((row[0], row[1]), []).append(row[2:])
    return by_pair


def test_chart_rows_equal_the_design() -> None:
    assert len(ROWS) == 75
    assert groups(built()) == groups(designed())


def test_every_pair_of_state_and_trigger_ends_in_a_row_without_a_guard() -> None:
    """And only there: a row after it could never be taken."""
    for pair, group in groupby(ROWS, key=lambda row: (row.source, row.trigger)):
        guards = [row.guard.text for row in group]
        assert guards[-1] == "", pair
        assert all(guards[:-1]), pair


def test_rows_of_a_state_and_trigger_are_adjacent() -> None:
    """A reader sees at one place what may happen."""
    runs = [pair for pair, _ in groupby(ROWS, key=lambda row: (row.source, row.trigger))]
    assert len(runs) == len(set(runs))


def test_only_final_states_have_no_rows() -> None:
    assert {row.source for row in ROWS} == set(State) - FINAL
    assert {row.dest for row in ROWS} == set(State)


def test_every_state_has_a_single_kind() -> None:
    assert sorted([*TRANSIENT, *RESTING, *LIVE, *FINAL]) == sorted(State)


def test_transient_states_accept_only_proceed() -> None:
    for state, trigger in product(TRANSIENT, Trigger):
        assert CHART.accepts(state, trigger) is (trigger is Trigger.PROCEED)


def test_row_name_is_unique_and_has_the_transition() -> None:
    assert ROWS[1].name == "CHECK --proceed [steps >= allowance]--> CONCLUDE"
    assert len({row.name for row in ROWS}) == len(ROWS)


# The executor.


class Model:
    """The model that the machine moves."""

    def __init__(self, state: State) -> None:
        self.state = state


def test_transitions_machine_executes_the_chart() -> None:
    """One for all turns: it holds no model, makes no triggers of its own, and passes on what it is given."""
    for chart in (CHART, Chart(ROWS)):
        assert isinstance(chart.machine, transitions.Machine)
        assert chart.machine.models == []
        assert chart.machine.initial == State.CHECK
        assert set(chart.machine.events) == set(Trigger)
        assert set(chart.machine.states) == set(State)
        assert {type(event) for event in chart.machine.events.values()} == {FastEvent}
        assert {name: (event.name, event.machine) for name, event in chart.machine.events.items()} == {
            trigger: (trigger, chart.machine) for trigger in Trigger
        }
        assert chart.machine.send_event is False


def test_row_without_a_guard_has_no_condition() -> None:
    """It is the fallback: the machine calls no function for it."""
    events = Chart(ROWS).machine.events
    for (state, trigger), rows in groupby(ROWS, key=lambda row: (row.source, row.trigger)):
        conditions = [len(transition.conditions) for transition in events[trigger].transitions[state.name]]
        assert conditions == [bool(row.guard.text) for row in rows]


def test_chart_counts_how_often_each_row_was_taken() -> None:
    chart = Chart(ROWS)
    assert chart.taken == [0] * len(ROWS)
    chart.fire(Model(State.STREAM), Trigger.ABORT, Counters(Limits()))
    row = chart.fire(Model(State.STREAM), Trigger.ABORT, Counters(Limits()))
    assert [count for count in chart.taken if count] == [2]
    assert chart.taken[ROWS.index(row)] == 2
    assert Chart(ROWS).taken == [0] * len(ROWS)


def test_resumed_turn_keeps_the_given_chart(begin: "Begin") -> None:
    """Resumed or copied, it continues by the table that it was given."""
    changed_chart = Chart(
        tuple(row._replace(dest=State.FAILED) if row.trigger == Trigger.ABORT else row for row in ROWS)
    )
    facts = begin().facts
    for machine in (
        TurnMachine.resume(facts, chart=changed_chart),
        TurnMachine.resume(facts, chart=changed_chart).copy(),
    ):
        machine.feed(AbortInput())
        assert machine.state is State.FAILED


#: Enough to make every comparison true and false; larger numbers behave as 1 does.
VALUES: Final[dict[str, tuple[int, int]]] = {
    name: (False, True) if isinstance(getattr(Counters(Limits()), name), bool) else (0, 1) for name in NAMES
}


def names_in(rows: list[Row]) -> list[str]:
    words = {word for row in rows for word in re.findall(r"\w+", row.guard.expanded)}
    return [name for name in NAMES if name in words]


@pytest.mark.parametrize("state", list(State))
def test_lean_event_agrees_with_the_stock_event(state: State) -> None:
    """The same row and the same destination, over every small value of every name that the pair's guards use."""
    stock = Chart(ROWS, event=transitions.Event)
    for trigger in Trigger:
        _compare(stock, state, trigger)


def _compare(stock: Chart, state: State, trigger: Trigger) -> None:
    rows = [row for row in ROWS if (row.source, row.trigger) == (state, trigger)]
    names = names_in(rows)
    taken_rows = set()
    for values in product(*(VALUES[name] for name in names)):
        counters = Counters(Limits())
        for name, value in zip(names, values, strict=True):
            setattr(counters, name, value)
        lean_model, stock_model = Model(state), Model(state)
        if not rows:
            for chart, model in ((CHART, lean_model), (stock, stock_model)):
                with pytest.raises(IllegalInputError):
                    chart.fire(model, trigger, counters)
                assert model.state is state
            continue
        row = CHART.fire(lean_model, trigger, counters)
        assert stock.fire(stock_model, trigger, counters) is row
        assert stock.row(state, trigger, counters) is row
        assert lean_model.state is stock_model.state is row.dest
        assert row is next(row for row in rows if row.guard.holds(counters))
        taken_rows.add(row)
    assert taken_rows == set(rows)


def test_trigger_without_an_accepting_row_changes_nothing() -> None:
    """Also where the pair has rows, but none of them holds: a chart without a fallback."""
    holed = Chart(tuple(row for row in ROWS if row.guard.text))
    model = Model(State.STREAM)
    for chart in (holed, Chart(holed.rows, event=transitions.Event)):
        with pytest.raises(IllegalInputError, match="not accepted in state STREAM: nothing was changed"):
            chart.fire(model, Trigger.REPLIED, Counters(Limits()))
        assert chart.row(State.STREAM, Trigger.REPLIED, Counters(Limits())) is None
        assert model.state is State.STREAM


# Every state and every event.


def stepped(begin: "Begin", **limits: object) -> "Script":
    turn = begin(**limits)
    turn.step("look")
    return turn


def after(turn: "Script", *events: Input) -> "Script":
    for event in events:
        turn.feed(event)
    return turn


def replied(begin: "Begin", *calls: str, text: str = "", **limits: object) -> "Script":
    turn = begin(**limits)
    turn.reply(*calls, text=text)
    return turn


def looping(begin: "Begin") -> "Script":
    turn = stepped(begin, doom_threshold=2, doom_response="ask")
    turn.step("look")
    return turn


def synthesizing(begin: "Begin") -> "Script":
    turn = begin(StartedInput(prompt="x", synthesis=True))
    turn.step("look")
    return turn


_ASK: Final = CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.APPROVAL)
_STOP: Final = AnsweredInput(interrupt="doom-1", decision=Decision.STOP)
#: A turn brought to each state; TOOL_EXEC has one started and one ready call, SYNTHESIS is TOOL_EXEC without any.
BROUGHT: Final[dict[str, Callable[["Begin"], "Script"]]] = {
    "STREAM": lambda begin: begin(),
    "TOOL_EXEC": lambda begin: after(replied(begin, "look", "list"), CallStartedInput(call="call00001")),
    "SYNTHESIS": synthesizing,
    "PAUSED": lambda begin: after(replied(begin, "write"), _ASK),
    "DOOM": looping,
    "CONCLUDE": lambda begin: stepped(begin, steps=1),
    "TEXT_ONLY": lambda begin: begin(steps=0),
    "FINISHED": lambda begin: replied(begin, text="42"),
    "SYNTHESIS_DONE": lambda begin: after(synthesizing(begin), SynthesizedInput(text="x")),
    "CAP_HIT": lambda begin: after(stepped(begin, steps=1), ConcludedInput(text="x")),
    "DOOM_LOOP": lambda begin: after(looping(begin), _STOP, ConcludedInput(text="x")),
    "ABORTED": lambda begin: after(begin(), AbortInput()),
    "FAILED": lambda begin: after(begin(), FailInput(error="x")),
}


@pytest.mark.parametrize("where", BROUGHT)
def test_prepared_turns_have_the_expected_states(begin: "Begin", where: str) -> None:
    stands = {"SYNTHESIS": State.TOOL_EXEC, "DOOM": State.PAUSED}
    assert BROUGHT[where](begin).state is (stands[where] if where in stands else State[where])


#: Each input with the states that accept it.
ACCEPTED: Final[tuple[tuple[Input, set[str]], ...]] = (
    (Input(), set()),
    (StartedInput(prompt="y"), set()),
    (ModelRepliedInput(text="x"), {"STREAM", "TEXT_ONLY"}),
    (ModelRepliedInput(calls=(ToolCall(name="a", arguments={}),)), {"STREAM", "TEXT_ONLY"}),
    (ModelRepliedInput(), {"STREAM", "TEXT_ONLY"}),
    (AttemptFailedInput(cause=Cause.TIMEOUT), {"STREAM", "SYNTHESIS", "CONCLUDE", "TEXT_ONLY"}),
    (AttemptFailedInput(cause=Cause.REJECTED), {"STREAM", "SYNTHESIS", "CONCLUDE", "TEXT_ONLY"}),
    (CallStartedInput(call="call00002"), {"TOOL_EXEC"}),
    (CallStartedInput(call="call00009"), set()),
    (CallSettledInput(call="call00001"), {"TOOL_EXEC"}),
    (CallSettledInput(call="call00009"), set()),
    (CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.QUESTION), {"TOOL_EXEC"}),
    (CallWaitingInput(call="call00009", interrupt_kind=InterruptKind.QUESTION), set()),
    (SynthesizedInput(text="x"), {"SYNTHESIS"}),
    (SynthesizedInput(), {"SYNTHESIS"}),
    (AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE), {"PAUSED"}),
    (AnsweredInput(interrupt="approval-1", decision=Decision.STOP), set()),
    (AnsweredInput(interrupt="doom-1", decision=Decision.GO_ON), {"DOOM"}),
    (AnsweredInput(interrupt="doom-1", decision=Decision.APPROVE), set()),
    (AnsweredInput(interrupt="doom-2", decision=Decision.STOP), set()),
    # Before a model call that may use tools; with a batch open, before its last CallSettled (decision 21).
    (SteeredInput(text="x"), {"STREAM", "TOOL_EXEC", "PAUSED"}),
    (ConcludedInput(text="x"), {"CONCLUDE"}),
    (ConcludedInput(), {"CONCLUDE"}),
    (ExpireInput(), {"STREAM", "TOOL_EXEC", "SYNTHESIS", "TEXT_ONLY"}),
    (AbortInput(), {"STREAM", "TOOL_EXEC", "SYNTHESIS", "PAUSED", "DOOM", "CONCLUDE", "TEXT_ONLY"}),
    (FailInput(error="x"), {"STREAM", "TOOL_EXEC", "SYNTHESIS", "CONCLUDE", "TEXT_ONLY"}),
)


def named(event: Input) -> str:
    return type(event).__name__ + "".join(
        f" {getattr(event, field.name)}"
        for field in msgspec.structs.fields(event)
        if field.default_factory is msgspec.NODEFAULT and getattr(event, field.name) != field.default
    )


@pytest.mark.parametrize("where", BROUGHT)
def test_events_are_accepted_or_refused_as_the_design_says(begin: "Begin", where: str) -> None:
    """A refused event changes neither the turn nor its rank, its state, or its next action."""
    for event, accepted in ACCEPTED:
        turn = BROUGHT[where](begin)
        if where in accepted:
            assert turn.feed(event), event
        else:
            _is_refused(turn, event)


def _is_refused(turn: "Script", event: Input) -> None:

    def seen() -> tuple[object, ...]:
        machine = turn.machine
        return (machine.turn.digest(), rank_of(machine.turn), machine.turn.elapsed, machine.state, machine.action)

    before = seen()
    with pytest.raises((IllegalInputError, InvalidCallError, AnswerMismatchError)):
        turn.feed(copy.copy(event))
    assert seen() == before
