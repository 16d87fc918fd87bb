"""The effect of a limit on a recorded turn is that of the machine."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from tests.audit.recorded import call, run_of

from turnwright_audit.measure import TurnMeasure, measure
from turnwright_audit.trials import TOGETHER, TRIALS, Effect, Trial, effect, may_matter
from turnwright_states import CallStatus, LoopGuard, Proceed, ToolCall, Usage

#: The text of the results that are errors.
ERROR: Final = "no such file"
STALLS: Final = (("errors:4",), ("nothing:6",), ("errors:4", "nothing:6"), TOGETHER)


def the_machine_s(turn: TurnMeasure, names: list[list[str]], results: list[list[str]], trial: Trial) -> Effect:
    """The effect of the machine: its guard is asked before each recorded step, and about each recorded call."""
    guard = LoopGuard(trial.limits().model_copy(update={"output_retries": 200}))
    refused = 0
    for place, tools in enumerate(names):
        if not isinstance(guard.may_call_model(), Proceed):
            return Effect(place, refused)
        tokens, cost = turn.tokens[place], turn.cost[place]
        decisions = guard.replied(
            "text",
            [ToolCall(name=tool, arguments={}) for tool in tools],
            usage=Usage(input_tokens=tokens, output_tokens=0, cost=cost),
            review=not tools,
        )
        if not tools and place + 1 < len(names):
            guard.reviewed("Call a tool.")  # a reply without a call was not the end of the recorded turn
        for number, decision in enumerate(decisions):
            if not decision.runs:
                refused += 1
            elif number >= turn.ran[place]:
                guard.result(decision.id, CallStatus.REJECTED, "no")
            else:
                guard.started(decision.id)
                text = results[place][number]
                guard.result(decision.id, CallStatus.ERROR if text == ERROR else CallStatus.OK, text)
    return Effect(len(names), refused)


Recorded = tuple[TurnMeasure, list[list[str]], list[list[str]]]


@st.composite
def recorded(draw: st.DrawFn) -> Recorded:
    names = draw(st.lists(st.lists(st.sampled_from("abc"), max_size=4), min_size=1, max_size=24))
    results = [[draw(st.sampled_from(("fine", ERROR, "page 2", "done in 3 s"))) for _ in tools] for tools in names]
    if draw(st.booleans()):  # some errors in a row
        first = draw(st.integers(0, len(names) - 1))
        results[first : first + 6] = [[ERROR] * len(tools) for tools in names[first : first + 6]]
    steps = [
        [(tool, "", result) for tool, result in zip(tools, texts, strict=True)] or "text"
        for tools, texts in zip(names, results, strict=True)
    ]
    [turn] = measure(run_of(*steps, statuses={ERROR: "error"}), "-").measured
    if draw(st.booleans()):
        turn.ran = [draw(st.integers(0, len(tools))) for tools in names]
    turn.tokens = draw(st.lists(st.integers(0, 50), min_size=len(names), max_size=len(names)))
    turn.cost = draw(st.lists(st.sampled_from((0.0, 0.1, 0.25, 1.0)), min_size=len(names), max_size=len(names)))
    return turn, names, results


def some(values: st.SearchStrategy[int]) -> st.SearchStrategy[int | None]:
    return st.none() | values


trials = st.builds(
    Trial,
    steps=some(st.integers(1, 30)),
    tool_calls=some(st.integers(1, 30)),
    max_calls_per_step=some(st.integers(1, 4)),
    tokens=some(st.integers(1, 400)),
    cost=st.none() | st.sampled_from((0.25, 0.8, 1.0, 5.0)),
    loops=st.just(()) | st.sampled_from((("calls:2",), ("calls:3",), ("results:2",), ("results:3",), *STALLS)),
    nudges=st.sampled_from((0, 1)),
)


@given(recorded(), trials)
def test_trial_effect_matches_the_machine(case: Recorded, trial: Trial) -> None:
    """A call that is refused has no result, so the recorded loops with results need every call to run."""
    turn, names, results = case
    if trial.loops and not trial.loops[0].startswith("calls"):
        turn.ran = list(map(len, names))
        trial = trial._replace(tool_calls=None, max_calls_per_step=None)
    assert effect(turn, trial) == the_machine_s(turn, names, results, trial)


@given(recorded())
def test_skipped_trial_would_have_no_effect(case: Recorded) -> None:
    turn, _, _ = case
    for trial in TRIALS.values():
        assert may_matter([turn], trial) or effect(turn, trial) == Effect(turn.steps, 0)


def test_limit_reached_by_the_last_step_has_no_effect() -> None:
    [turn] = measure(run_of(call("read"), call("list"), "Done."), "-").measured
    assert effect(turn, Trial(steps=3)) == Effect(3, 0)
    assert effect(turn, Trial(steps=2)) == Effect(2, 0)
    assert effect(turn, Trial(tool_calls=2)) == Effect(2, 0)
    assert effect(turn, Trial(tool_calls=3, tokens=300)) == Effect(3, 0)


def test_cost_limit_is_reached_as_in_the_machine() -> None:
    """The sum of 0.1 eight times is a little less than 0.8."""
    [turn] = measure(run_of(*[call("read")] * 9, "Done."), "-").measured
    turn.cost = [0.1] * 10
    assert effect(turn, Trial(cost=0.8)) == Effect(8, 0)
    assert may_matter([turn], Trial(cost=1.0))
