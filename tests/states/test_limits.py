"""Limits: ranges, ceilings, presets and the sums that follow from them (docs/rules.md#bounds, #steps, #zero)."""

import math
from collections.abc import Callable
from typing import get_args

import pytest
from pydantic import ValidationError

from turnwright_states import Limits, StartedInput, ToolCallLimits, TurnMachine
from turnwright_states.facts import TurnStarted
from turnwright_states.limits import COUNTS_BELOW, MAX_CALLS_PER_STEP, PresetName, ToolClass

COUNTS = ("steps", "ceiling", "tool_calls", "nudges", "max_retries", "max_pauses")
POSITIVE_COUNTS = ("tokens", "conclude_tokens", "max_calls_per_step")
AMOUNTS = ("cost", "seconds", "conclude_seconds")


def test_default_limits_equal_the_design() -> None:
    limits = Limits()
    assert (limits.steps, limits.ceiling, limits.concluding) == (None, 200, "after")
    assert (limits.tool_calls, limits.max_calls_per_step) == (ToolCallLimits(), 32)
    assert limits.call_limit == 50
    assert (limits.tokens, limits.cost, limits.seconds) == (None, None, None)
    assert (limits.doom_threshold, limits.doom_compare, limits.doom_response, limits.nudges) == (
        3,
        "results",
        "stop",
        0,
    )
    assert (limits.max_retries, limits.max_pauses) == (3, 100)
    assert (limits.conclude_seconds, limits.conclude_tokens) == (30.0, 1024)


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize("value", [-1, True, False, 0.5, 2.0, math.nan, "3", [1]])
def test_count_is_a_whole_number_of_at_least_0(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate({field: value})
    assert field in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("field", POSITIVE_COUNTS)
@pytest.mark.parametrize("value", [0, -1, True, 1.5, math.nan])
def test_tokens_and_calls_a_step_are_at_least_1(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate({field: value})
    assert field in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("field", AMOUNTS)
@pytest.mark.parametrize("value", [0, 0.0, -1, -0.5, True, math.nan, math.inf, "1"])
def test_amount_is_a_finite_number_above_0(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate({field: value})
    assert field in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "field", ["ceiling", "max_calls_per_step", "nudges", "max_retries", "max_pauses", "conclude_tokens"]
)
def test_required_limits_refuse_none(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        Limits.model_validate({field: None})


@pytest.mark.parametrize("value", [0, 1, -3])
def test_threshold_below_2_is_refused(value: int) -> None:
    """One round is not a repetition."""
    with pytest.raises(ValidationError, match="doom_threshold"):
        Limits(doom_threshold=value)


def test_ceiling_cannot_be_raised() -> None:
    assert Limits(ceiling=200).cap == 200
    with pytest.raises(ValidationError, match="ceiling must be at most 200, not 201"):
        Limits(ceiling=201)


def test_step_runs_at_most_32_calls() -> None:
    assert Limits(max_calls_per_step=MAX_CALLS_PER_STEP).max_calls_per_step == 32
    with pytest.raises(ValidationError, match="max_calls_per_step must be at most 32, not 33"):
        Limits(max_calls_per_step=MAX_CALLS_PER_STEP + 1)


def test_count_too_large_for_a_store_is_refused() -> None:
    assert Limits(tool_calls=COUNTS_BELOW - 1).tool_calls == COUNTS_BELOW - 1
    with pytest.raises(ValidationError, match="use None for no limit"):
        Limits(tool_calls=COUNTS_BELOW)


def test_unknown_fields_and_changes_are_refused() -> None:
    with pytest.raises(ValidationError, match="max_steps"):
        Limits.model_validate({"max_steps": 3})
    with pytest.raises(ValidationError, match="frozen"):
        Limits().steps = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("max_turns", "steps"),
        ("max_iterations", "steps"),
        ("recursion_limit", "steps"),
        ("max_tool_calls", "tool_calls"),
        ("max_tokens", "tokens"),
        ("timeout", "seconds"),
        ("Retries", "max_retries"),
        ("ceilling", "ceiling"),
    ],
)
def test_limit_by_another_name_is_recognized(name: str, ours: str) -> None:
    def preset(fields: dict[str, int]) -> Limits:
        return Limits.preset("opencode", **fields)

    makers: list[Callable[[dict[str, int]], Limits]] = [Limits.model_validate, preset]
    for make in makers:
        with pytest.raises(ValidationError, match=f"is unknown: did you mean `{ours}`") as caught:
            make({name: 3})
        (error,) = caught.value.errors()
        assert (error["type"], error["loc"]) == ("extra_forbidden", (name,))


def test_unknown_limit_without_a_similar_name_lists_all_limits() -> None:
    with pytest.raises(ValidationError, match=r"is unknown: use one of steps, ceiling, .*conclude_tokens"):
        Limits.model_validate({"zzz": 3})


@pytest.mark.parametrize(
    ("steps", "cap"), [(None, 200), (0, 0), (1, 1), (199, 199), (200, 200), (201, 200), (10**6, 200)]
)
def test_cap_is_the_smaller_of_steps_and_ceiling(steps: int | None, cap: int) -> None:
    assert Limits(steps=steps).cap == cap


def test_engine_may_lower_the_ceiling() -> None:
    assert Limits(ceiling=7).cap == 7
    assert Limits(steps=9, ceiling=7).cap == 7
    assert Limits(steps=5, ceiling=7).cap == 5
    assert Limits(ceiling=0).cap == 0


@pytest.mark.parametrize(("cap", "after", "within"), [(0, 0, 0), (1, 1, 0), (2, 2, 1), (5, 5, 4), (200, 200, 199)])
def test_allowance_leaves_room_for_a_counted_concluding_call(cap: int, after: int, within: int) -> None:
    assert Limits(steps=cap, concluding="after").allowance == after
    assert Limits(steps=cap, concluding="within").allowance == within


@pytest.mark.parametrize(("steps", "retries", "calls"), [(0, 0, 1), (0, 3, 4), (1, 0, 2), (5, 3, 24), (None, 3, 804)])
def test_model_calls_follow_the_formula(steps: int | None, retries: int, calls: int) -> None:
    """Model calls <= (allowance + 1) x (1 + max_retries)."""
    assert Limits(steps=steps, max_retries=retries).model_calls == calls


def test_presets_equal_the_documented_limits() -> None:
    assert Limits.preset("default") == Limits()
    assert Limits.preset("coding") == Limits(tool_calls=200)
    assert Limits.preset("boocode") == Limits(
        doom_compare="calls", stall_errors=None, stall_rounds=None, idle_steps=None
    )
    assert Limits.preset("opencode").concluding == "within"
    assert Limits.preset("opencode", steps=1).allowance == 0
    assert Limits.preset("glm-cli").concluding == "within"
    assert Limits.preset("glm-cli", steps=4).cap == 4


def test_opencode_has_no_step_limit_of_0() -> None:
    with pytest.raises(ValueError, match="steps must be at least 1 under the preset opencode, not 0"):
        Limits.preset("opencode", steps=0)


def test_preset_distinguishes_set_fields_from_defaults() -> None:
    """The certificate distinguishes the two."""
    set_fields = {name: Limits.preset(name, tokens=9).model_fields_set for name in get_args(PresetName)}
    stalls = {"stall_errors", "stall_rounds", "idle_steps"}
    assert set_fields == {
        "default": {"tokens"},
        "coding": {"tokens", "tool_calls"},
        "boocode": {"tokens", "concluding", "doom_threshold", "doom_compare", "doom_response", "tool_calls"} | stalls,
        "opencode": {"tokens", "concluding", "doom_compare", "doom_response"} | stalls,
        "glm-cli": {"tokens", "concluding", "steps", "step_notices", "doom_compare"} | stalls,
    }


@pytest.mark.parametrize("name", ["default", "coding", "boocode", "glm-cli"])
def test_other_presets_take_0(name: PresetName) -> None:
    assert Limits.preset(name, steps=0).allowance == 0


def test_preset_validates_changes() -> None:
    with pytest.raises(ValidationError, match="seconds"):
        Limits.preset("boocode", seconds=0)
    with pytest.raises(
        ValueError, match="preset must be one of default, coding, boocode, opencode, glm-cli, not 'cursor'"
    ):
        Limits.preset("cursor")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (-3, "must be a whole number of at least 0, not -3"),
        (-200, "must be a whole number of at least 0, not -200"),
        (10**18 - 1, f"must be below {COUNTS_BELOW}, not 999999999999999999: use None for no limit"),
        (10**18, f"must be below {COUNTS_BELOW}, not a number of many digits: use None for no limit"),
        (10**4000, f"must be below {COUNTS_BELOW}, not a number of many digits: use None for no limit"),
        ("5", "must be a whole number of at least 0, not '5'"),
    ],
)
def test_number_out_of_range_is_shown_unless_too_long(steps: object, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate({"steps": steps})
    assert caught.value.errors()[0]["msg"] == f"Value error, {says}"


def test_preset_names_the_forbidden_value() -> None:
    with pytest.raises(ValueError, match=r"^steps must be at least 1 under the preset opencode, not 0$"):
        Limits.preset("opencode", steps=0)


@pytest.mark.parametrize("changes", [{"steps": 0}, {"ceiling": 0}])
def test_limits_over_the_opencode_preset_keep_the_preset_type(changes: dict[str, int]) -> None:
    """Its type is what checks an agent's own limits over the engine's."""
    preset_type = type(Limits.preset("opencode"))
    assert preset_type.model_validate({"steps": 1}).cap == 1
    with pytest.raises(ValueError, match="steps must be at least 1 under the preset opencode, not 0"):
        preset_type.model_validate(changes)


# Tool calls by what an agent's tools do.


def test_each_class_of_tools_has_a_limit() -> None:
    classes = get_args(ToolClass)
    assert {tool_class: ToolCallLimits().of(tool_class) for tool_class in classes} == {
        "read_only": 50,
        "writing": 10,
        "default": 50,
    }
    assert set(ToolCallLimits.model_fields) == set(classes)
    assert ToolCallLimits(writing=None).of("writing") is None


@pytest.mark.parametrize("value", [-1, True, 1.5, "10", float("nan"), 2**31])
def test_invalid_number_of_calls_is_refused_with_field_and_value(value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate({"tool_calls": {"writing": value}})
    (error,) = caught.value.errors()
    assert error["loc"] == ("tool_calls", "writing")
    assert "must be" in error["msg"]
    assert str(value) in error["msg"]


def test_unknown_class_is_refused() -> None:
    with pytest.raises(ValidationError, match="reading"):
        Limits.model_validate({"tool_calls": {"reading": 5}})


def test_mapping_is_shorthand_for_limits_by_class() -> None:
    """An omitted class keeps its default, so setting all defaults equals setting none."""
    limits = Limits.model_validate({"tool_calls": {"writing": 3}})
    assert limits == Limits(tool_calls=ToolCallLimits(writing=3))
    assert limits.tool_calls == ToolCallLimits(read_only=50, writing=3, default=50)


@pytest.mark.parametrize(("tools", "calls"), [("read_only", 7), ("writing", 0), ("default", None)])
def test_tool_class_of_an_agent_selects_the_call_limit(tools: ToolClass, calls: int | None) -> None:
    """None is no limit and 0 is a number, as where one number is given."""
    limits = Limits(steps=4, tool_calls=ToolCallLimits(read_only=7, writing=0, default=None))
    assert limits.for_tools(tools) == Limits(steps=4, tool_calls=calls)


@pytest.mark.parametrize("calls", [0, 30, None])
def test_single_call_limit_applies_to_every_tool_class(calls: int | None) -> None:
    limits = Limits(tool_calls=calls)
    assert [limits.for_tools(arg).tool_calls for arg in get_args(ToolClass)] == [calls] * 3
    assert limits.call_limit == calls


def test_machine_without_tools_uses_the_default_class_limit() -> None:
    limits = Limits(tool_calls=ToolCallLimits(read_only=7, writing=0, default=3))
    machine, facts = TurnMachine.start(StartedInput(prompt="x", limits=limits))
    assert limits.call_limit == machine.turn.counters.budget == 3
    assert isinstance(facts[0], TurnStarted)
    assert facts[0].limits == Limits(tool_calls=3)
