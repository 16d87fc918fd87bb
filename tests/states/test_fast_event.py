"""FastEvent does the same as the stock event: for every trigger in every state, over all small values of guards."""

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from operator import attrgetter
from typing import Any, Final

import pytest
import transitions

from turnwright_proof.verify.cycles import Placed
from turnwright_proof.verify.guard_cases import guard_cases
from turnwright_states import (
    AbortInput,
    CallSettledInput,
    CallStatus,
    EndReason,
    Halt,
    IllegalInputError,
    Limits,
    ModelRepliedInput,
    Outcome,
    StartedInput,
    State,
    ToolCall,
    Trigger,
    TurnMachine,
)
from turnwright_states.chart import CHART, ROWS, Chart, Row
from turnwright_states.counters import NAMES, Counters
from turnwright_states.fast_event import FastEvent
from turnwright_states.guards import Guard

STOCK: Final = Chart(ROWS, event=transitions.Event)
#: Not `CHART`, which counts the rows that turns take.
FAST: Final = Chart(ROWS)
Values = tuple[int | bool, ...]
VALUES: Final[Callable[[Counters], Values]] = attrgetter(*NAMES)


class Model:
    """The model that the machine moves."""

    def __init__(self, state: State) -> None:
        self.state = state


def fired(chart: Chart, state: State, trigger: Trigger, counters: Counters) -> tuple[Row | str, State]:
    """The row that is taken, or the words of the refusal; and where the model stands then."""
    model = Model(state)
    try:
        return chart.fire(model, trigger, counters), model.state
    except IllegalInputError as refused:
        return str(refused), model.state


@pytest.mark.parametrize("state", State)
def test_fast_and_stock_events_take_the_same_row(state: State) -> None:
    """Every trigger, in every small configuration of what its guards read: a result for these holds for all values."""
    rows_taken = set()
    for trigger in Trigger:
        group = [Placed(place, row) for place, row in enumerate(ROWS) if (row.source, row.trigger) == (state, trigger)]
        if not group:
            assert fired(FAST, state, trigger, Counters(Limits())) == fired(STOCK, state, trigger, Counters(Limits()))
            continue
        for choice in guard_cases(group, (), ()):
            values = VALUES(choice.counters)
            row = fired(FAST, state, trigger, choice.counters)
            assert row == fired(STOCK, state, trigger, choice.counters)
            assert choice.taken is not None
            assert row == (choice.taken.row, choice.taken.row.dest)
            assert VALUES(choice.counters) == values
            rows_taken.add(row[0])
    assert rows_taken == {row for row in ROWS if row.source is state}


# What `add_transition` takes, over every small value of what is asked.

Told = list[tuple[str, State]]


class Machines:
    """Two machines with the same transitions, one for each event class, and the words of their callbacks."""

    def __init__(self) -> None:
        self.machines = [
            type("Machine", (transitions.Machine,), {"event_cls": event})(
                model=None, states=list(State), initial=State.CHECK, auto_transitions=False
            )
            for event in (FastEvent, transitions.Event)
        ]
        self.reports: list[Told] = [[], []]
        self.models = [Model(State.STREAM), Model(State.STREAM)]

    def add(self, dest: State | None, tells: Iterable[str] = (), **conditions: Any) -> None:  # noqa: ANN401 (as stock)
        """Add a transition from STREAM on `replied`, whose callbacks record the words of `tells`."""
        for place, machine in enumerate(self.machines):
            callbacks = {
                when: [self.telling(place, f"{when} {word}") for word in tells] for when in ("before", "after")
            }
            machine.add_transition(Trigger.REPLIED, State.STREAM, dest, **callbacks, **conditions)

    def telling(self, place: int, words: str) -> Callable[[Counters], None]:
        def tell(counters: Counters) -> None:
            assert isinstance(counters, Counters)
            self.reports[place].append((words, self.models[place].state))

        return tell

    def fire(self, counters: Counters) -> list[tuple[bool, State, Told]]:
        """Fire the trigger in each machine. Return whether it was taken, the state, and the recorded words."""
        self.models, self.reports = [Model(State.STREAM), Model(State.STREAM)], [[], []]
        are_taken = [
            machine.events[Trigger.REPLIED].trigger(model, counters)
            for machine, model in zip(self.machines, self.models, strict=True)
        ]
        return [(took, m.state, report) for took, m, report in zip(are_taken, self.models, self.reports, strict=True)]


def configurations() -> Iterator[Counters]:
    for doom, filtered, call_count, waiting in product((False, True), (False, True), (0, 1), (0, 1)):
        counters = Counters(Limits())
        counters.doom, counters.filtered, counters.made, counters.waiting = doom, filtered, call_count, waiting
        yield counters


def test_conditions_refusals_and_callbacks_match_the_stock_event() -> None:
    machines = Machines()
    machines.add(State.FAILED, conditions=[Guard("filtered"), Guard("not doom")], tells=["a"])
    machines.add(State.TOOL_EXEC, conditions=Guard("made > 0"), unless=[Guard("doom"), Guard("waiting > 0")])
    machines.add(State.FINISHED, unless=Guard("filtered"), tells=["b", "c"])
    machines.add(None, conditions=Guard("waiting > 0"), tells=["inside"])
    ends = set()
    for counters in configurations():
        lean, stock = machines.fire(counters)
        assert lean == stock
        ends.add(lean[:2])
    expected_ends = {(True, state) for state in (State.FINISHED, State.TOOL_EXEC, State.FAILED, State.STREAM)}
    assert ends == expected_ends | {(False, State.STREAM)}


def test_callbacks_run_in_order_around_the_move() -> None:
    machines = Machines()
    machines.add(State.FINISHED, tells=["a", "b"])
    lean, stock = machines.fire(Counters(Limits()))
    reports = [("before a", State.STREAM), ("before b", State.STREAM), ("after a", State.FINISHED)]
    assert lean == stock == (True, State.FINISHED, [*reports, ("after b", State.FINISHED)])


def test_transition_added_later_is_considered() -> None:
    machines = Machines()
    machines.add(State.FAILED, conditions=Guard("doom"))
    counters = Counters(Limits())
    assert [is_taken for is_taken, _, _ in machines.fire(counters)] == [False, False]
    machines.add(State.FINISHED)
    assert [(is_taken, state) for is_taken, state, _ in machines.fire(counters)] == [(True, State.FINISHED)] * 2


def test_state_without_rows_takes_no_transition() -> None:
    machines = Machines()
    machines.add(State.FINISHED)
    model = Model(State.PAUSED)
    assert machines.machines[0].events[Trigger.REPLIED].trigger(model, Counters(Limits())) is False
    assert model.state is State.PAUSED


# The machine that runs is the one that is asked.

EVENTS: Final = pytest.mark.parametrize("event", [FastEvent, transitions.Event], ids=lambda kind: kind.__name__)


def begun(chart: Chart) -> TurnMachine:
    machine, _ = TurnMachine.start(StartedInput(prompt="x"), chart=chart)
    return machine


@EVENTS
@pytest.mark.parametrize("wildcard", [False, True])
def test_turn_follows_changes_of_the_running_machine(event: type[transitions.Event], wildcard: bool) -> None:
    """The chart's own table is not asked again: `wildcard` takes the whole trigger away, which then is not an event."""
    chart = Chart(ROWS, event=event)
    turn, second = begun(chart), begun(Chart(ROWS, event=event))
    answer = ModelRepliedInput(text="x")
    assert [fact.state for fact in turn.copy().feed(answer)][-1] is State.FINISHED
    chart.machine.remove_transition(Trigger.REPLIED, *(() if wildcard else (State.STREAM, State.FINISHED)))
    digest = turn.turn.digest()
    with pytest.raises(IllegalInputError, match="is not accepted in state STREAM: nothing was changed"):
        turn.feed(answer)
    assert (turn.state, turn.turn.state, turn.turn.digest()) == (State.STREAM, State.STREAM, digest)
    assert chart.accepts(State.STREAM, Trigger.REPLIED) is not wildcard
    assert second.feed(answer)[-1].state is State.FINISHED
    chart.machine.add_transition(Trigger.REPLIED, State.STREAM, State.FINISHED)
    assert chart.accepts(State.STREAM, Trigger.REPLIED)
    turn.feed(answer)
    assert turn.action == Halt(Outcome.FINISHED, EndReason.ANSWERED)


@EVENTS
def test_row_missing_inside_an_event_is_reported_and_facts_are_kept(event: type[transitions.Event]) -> None:
    """No chart that lint accepts lacks one. The facts and the turn agree all the same."""
    chart = Chart(ROWS, event=event)
    turn = begun(chart)
    turn.feed(ModelRepliedInput(calls=(ToolCall(name="a", arguments={}),)))
    (call,) = turn.turn.batch
    chart.machine.remove_transition(Trigger.SETTLED, State.TOOL_EXEC)
    with pytest.raises(
        IllegalInputError, match="the chart lacks a row, and 1 facts of the input were made before"
    ) as caught:
        turn.feed(CallSettledInput(call=call, status=CallStatus.ERROR, result="x"))
    assert (caught.value.event, caught.value.state, caught.value.made) == (Trigger.SETTLED, State.TOOL_EXEC, 1)
    assert [fact.kind for fact in turn.feed(AbortInput())] == ["call_settled", "step_finished", "turn_ended"]


@EVENTS
def test_transition_outside_the_rows_has_no_reason(event: type[transitions.Event]) -> None:
    """It is taken all the same, and the row of the call before is not taken for it."""
    chart = Chart(ROWS, event=event)
    chart.machine.remove_transition(Trigger.PROCEED, State.CHECK)
    chart.machine.add_transition(Trigger.PROCEED, State.CHECK, State.PAUSED, conditions=Guard("doom"))
    model, counters = Model(State.CONTINUE), Counters(Limits())
    counters.doom = True
    chart.fire(model, Trigger.PROCEED, counters)
    assert chart.fire(model, Trigger.PROCEED, counters) == ROWS[9]
    model.state = State.STREAM
    chart.machine.add_transition(Trigger.PROCEED, State.STREAM, State.FAILED)
    assert chart.fire(model, Trigger.PROCEED, counters) == Row(State.STREAM, Trigger.PROCEED, Guard(""), State.FAILED)


def edited(machine: transitions.Machine, edit: str) -> None:
    """Change the machine behind the back of its own methods."""
    ways = machine.events[Trigger.REPLIED].transitions["STREAM"]
    match edit:
        case "a transition is taken out of the list":
            del ways[0]
        case "two change places":
            ways.reverse()
        case "another list":
            machine.events[Trigger.REPLIED].transitions["STREAM"] = ways[1:]
        case "a condition more":
            ways[0].conditions.append(transitions.core.Condition(Guard("doom")))
        case "no condition":
            ways[0].conditions.clear()
        case "other conditions":
            ways[0].conditions = ways[1].conditions
        case "another end":
            ways[0].dest = "CAP_HIT"
        case "nowhere else":
            ways[0].dest = None
        case "none is left":
            ways.clear()


@pytest.mark.parametrize(
    "edit",
    [
        *("a transition is taken out of the list", "two change places", "another list", "a condition more"),
        *("no condition", "other conditions", "another end", "nowhere else", "none is left"),
    ],
)
def test_transition_changed_by_hand_takes_effect(edit: str) -> None:
    """Also after the one before it was compiled."""
    machines = Machines()
    machines.add(State.FAILED, conditions=Guard("filtered"), tells=["a"])
    machines.add(State.TOOL_EXEC, conditions=Guard("made > 0"), tells=["b"])
    machines.add(State.FINISHED, tells=["c"])
    before = [machines.fire(counters)[0] for counters in configurations()]
    for machine in machines.machines:
        edited(machine, edit)
    after = [machines.fire(counters) for counters in configurations()]
    assert all(lean == stock for lean, stock in after)
    assert [lean for lean, _ in after] != before


def test_callback_added_later_is_called() -> None:
    machines = Machines()
    machines.add(State.FINISHED, tells=["a"])
    counters = Counters(Limits())
    machines.fire(counters)
    for place, machine in enumerate(machines.machines):
        machine.events[Trigger.REPLIED].add_callback("after", machines.telling(place, "later"))
    lean, stock = machines.fire(counters)
    assert lean == stock
    assert lean[2][-1] == ("later", State.FINISHED)


def test_condition_added_by_hand_must_be_a_guard() -> None:
    machines = Machines()
    machines.add(State.FINISHED)
    (way,) = machines.machines[0].events[Trigger.REPLIED].transitions["STREAM"]
    way.conditions.append(transitions.core.Condition(lambda _counters: True))
    with pytest.raises(TypeError, match="conditions of a FastEvent must be guards"):
        machines.machines[0].events[Trigger.REPLIED].trigger(Model(State.STREAM), Counters(Limits()))


@pytest.mark.parametrize("when", ["before", "after"])
def test_callback_by_name_is_refused(when: str) -> None:
    """There is no model to look it up in."""
    event, transition = FastEvent("replied", CHART.machine), transitions.Transition("STREAM", "FAILED")
    transition.add_callback(when, "note")
    with pytest.raises(TypeError, match="callbacks of a FastEvent must be functions, and 'note' is none"):
        event.add_transition(transition)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"conditions": lambda _counters: True},
            "the conditions of a FastEvent must be guards, and <.* is none",
        ),
        ({"unless": "is_doomed"}, "the conditions of a FastEvent must be guards, and 'is_doomed' is none"),
        ({"prepare": lambda _counters: None}, "a FastEvent has no `prepare`"),
    ],
    ids=["conditions", "unless", "prepare"],
)
def test_unsupported_transition_options_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(TypeError, match=f"^{says}$"):
        Machines().add(State.FAILED, (), **options)
