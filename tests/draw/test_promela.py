"""The Promela model: the chart's rows in their order, and nothing of the chart missing."""

import re
from dataclasses import fields
from itertools import groupby

import pytest

from turnwright.draw.promela import CLAIMS, Bounds, rows_by_line, to_promela
from turnwright.errors import ConfigError
from turnwright_states.chart import CHART, ROWS, Chart, Row
from turnwright_states.counters import NAMES
from turnwright_states.guards import Guard
from turnwright_states.reasons import EndReason
from turnwright_states.state import FINAL, State, Trigger

MODEL = to_promela()


def test_the_text_is_the_same_each_time() -> None:
    assert to_promela(CHART) == to_promela(Chart(ROWS)) == MODEL


def test_every_row_stands_in_it_with_its_number_and_its_name() -> None:
    """The line below has its guard and its destination."""
    lines = MODEL.splitlines()
    for number, row in enumerate(ROWS, start=1):
        at = lines.index(f"     /* {number}. {row.name} */")
        assert f"if :: {row.guard.promela} -> row = {number}; state = {row.dest}" in lines[at + 1]
        assert rows_by_line(MODEL)[at + 2] == number
    assert sorted(rows_by_line(MODEL).values()) == list(range(1, len(ROWS) + 1))


def test_the_rows_of_a_state_and_an_event_are_one_ladder_in_the_charts_order() -> None:
    """Each rung after the first is tried when those before it do not hold, and each ladder has an end."""
    machine = MODEL[MODEL.index("inline take_the_first_row") :]
    ladders = re.findall(
        r"^  :: state == (\w+) && event == (\w+) ->\n(.*?)^     :: else\n     ((?:fi ?)+)\n",
        machine,
        re.DOTALL | re.MULTILINE,
    )
    expected = {
        pair: [ROWS.index(row) + 1 for row in rows]
        for pair, rows in groupby(sorted(ROWS, key=lambda row: row[:2]), key=lambda row: (row.source, row.trigger))
    }
    found = {}
    for state, event, body, ends in ladders:
        rungs = re.findall(r"^     (:: else -> )?if :: .* -> row = (\d+);", body, re.MULTILINE)
        assert [bool(otherwise) for otherwise, _ in rungs] == [False] + [True] * (len(rungs) - 1)
        assert ends.split() == ["fi"] * len(rungs)
        found[State(state), Trigger(event)] = [int(number) for _, number in rungs]
    assert found == expected


def test_a_row_that_stands_apart_from_its_like_is_tried_with_them() -> None:
    """The machine tries the rows of one state and event together, wherever they stand."""
    apart = (*ROWS, Row(State.STREAM, Trigger.REPLIED, Guard("doom_asked and go_on"), State.FINISHED))
    model = to_promela(Chart(tuple(row._replace(guard=Guard("")) for row in apart)))
    ladder = model[
        model.index("state == STREAM && event == replied") : model.index("state == STREAM && event == attempt")
    ]
    assert re.findall(r"row = (\d+)", ladder) == ["12", "13", "14", "15", "16", str(len(apart))]


def test_every_name_of_the_chart_is_declared() -> None:
    """States, events, reasons (set apart by a prefix), and each name that a guard may use."""
    declared = [
        name for names in re.findall(r"^mtype = \{ (.*) \};$", MODEL, re.MULTILINE) for name in names.split(", ")
    ]
    assert {*State, *Trigger, *(f"why_{reason}" for reason in EndReason)} <= set(declared)
    assert len(declared) == len(set(declared))
    counters = ", ".join(re.findall(r"^(?:byte|bool) ([\w, ]+);", MODEL, re.MULTILINE)).split(", ")
    assert sorted(set(NAMES) - set(counters)) == []
    assert len(counters) == len(set(counters))


def test_the_reason_of_a_row_is_set_where_the_row_has_one() -> None:
    lines = MODEL.splitlines()
    for number, row in enumerate(ROWS, start=1):
        line = lines[lines.index(f"     /* {number}. {row.name} */") + 1]
        reason = re.search(r"reason = (\w+)$", line)
        if isinstance(row.reason, EndReason):
            assert reason is not None
            assert reason[1] == f"why_{row.reason}"
        elif row.reason in ("the cause", "aborted or superseded"):
            assert reason is not None
            assert reason[1] == "given"
        else:
            assert reason is None


def test_every_claim_says_in_words_what_its_formula_claims() -> None:
    formulas = dict(re.findall(r"^ltl (\w+) +\{ (.*?) \}$", MODEL, re.MULTILINE | re.DOTALL))
    assert list(formulas) == list(CLAIMS)
    for state in FINAL:
        assert f"[] (state == {state} -> [] (state == {state}))" in formulas["stays_ended"]
        assert f"(state == {state} -> reason == " in formulas["reasons_fit_their_outcomes"]


def test_the_bounds_stand_at_the_top() -> None:
    model = to_promela(bounds=Bounds(*range(1, 9)))
    assert re.findall(r"^#define [MW][A-Z_]+ +(\d+)$", model, re.MULTILINE) == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert re.findall(r"^#define HOOKED_[A-Z]+ +(\d+)$", model, re.MULTILINE) == ["1", "2", "1", "2"]
    assert model.index("#define MAX_ALLOWANCE") < model.index("mtype")


@pytest.mark.parametrize("name", [field.name for field in fields(Bounds)])
@pytest.mark.parametrize("value", [-1, 16, True, 1.5, "2"])
def test_a_bound_that_no_model_can_have_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a whole number from [01] to 15, not "):
        Bounds(**{name: value})  # type: ignore[arg-type]


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch must be a whole number from 1 to 15, not 0"):
        Bounds(batch=0)


@pytest.mark.parametrize(
    ("source", "trigger", "guard", "name"),
    [
        (State.STREAM, Trigger.REPLIED, "tokens_spent", "tokens_spent"),
        (State.TOOL_EXEC, Trigger.SETTLED, "not spent", "tokens_spent"),
        (State.TOOL_EXEC, Trigger.SETTLED, "doom and waiting > 0", "doom"),
        (State.PAUSED, Trigger.ANSWERED, "retries_left > 0", "retries_left"),
        (State.CHECK, Trigger.PROCEED, "made > 0", "made"),
    ],
)
def test_a_guard_that_the_model_has_no_value_for_is_refused(
    source: State, trigger: Trigger, guard: str, name: str
) -> None:
    """Else SPIN would prove something about a value that was never set."""
    row = Row(source, trigger, Guard(guard), State.FAILED)
    with pytest.raises(ConfigError, match=f"^row 1 .* reads `{name}`, which the model keeps only in "):
        to_promela(Chart((row, *ROWS)))
