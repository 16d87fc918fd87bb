"""The strategies draw what they say: what fits a schema, what does not, and every misdeed of a model."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, JsonValue
from tests.hypothesis_examples import percent_of_examples

from turnwright import Agent, tool
from turnwright.model.protocol import ModelError, ModelResponse, ResponseToolCall
from turnwright.tools import Tool, ToolInputError, builtin_tools
from turnwright_states import Cause, Finish, Limits
from turnwright_states.limits import MAX_CALLS_PER_STEP
from turnwright_testing.behavior import Asks, Floods, Hangs, Raises, Returns, Runs
from turnwright_testing.flaky import Cut, Line, Stalls
from turnwright_testing.json_values import arguments_of, misfits_of, values_of
from turnwright_testing.scenario import Answers, Crash, Leaves, Person, Scenario
from turnwright_testing.strategies import (
    bad_calls,
    behaviours,
    crashes,
    disobedient_replies,
    limits,
    model_errors,
    obedient_replies,
    people,
    scenarios,
    scripts,
    tool_calls,
)


class Place(BaseModel):
    line: Annotated[int, Field(ge=1, le=3)]
    label: str | None = None
    inside: list["Place"] = []


@tool
def everything(  # noqa: PLR0917 (a model calls it by names)
    text: Annotated[str, Field(min_length=1, max_length=3)],
    number: Annotated[float, Field(gt=0, lt=1)],
    count: Annotated[int, Field(gt=5)],
    flag: bool,
    choice: Literal["a", "b", 3],
    place: Place,
    names: Annotated[list[str], Field(min_length=1, max_length=2)],
    table: dict[str, int],
    pair: tuple[int, str],
    code: Annotated[str, Field(pattern="^[a-c]{2}$")],
    either: int | str | None = None,
    anything: JsonValue = None,
) -> str:
    """Has an argument of every kind."""
    raise AssertionError(f"it ran, with {locals()}, though only its schema is drawn from")


@tool
def nothing() -> str:
    """Has none."""
    raise AssertionError(f"it ran, with {locals()}, though only its schema is drawn from")


TOOLS: list[Tool] = [everything, nothing]
NAMES = [tool.name for tool in TOOLS]
LARGE = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
T = TypeVar("T")


def sample(strategy: st.SearchStrategy[T], rounds: int = 30) -> list[T]:
    """The same few hundred examples each time. After ten, Hypothesis would mostly vary those that it has."""
    drawn: list[T] = []
    for number in range(rounds):

        @seed(number)
        @settings(max_examples=10, phases=[Phase.generate], database=None, suppress_health_check=LARGE)
        @given(strategy)
        def take(example: T) -> None:
            drawn.append(example)

        take()
    return drawn


@pytest.fixture(scope="module")
def disobedient() -> list[ModelResponse]:
    return sample(disobedient_replies(TOOLS), 25)


@pytest.fixture(scope="module")
def sampled_scripts() -> list[tuple[Line, ...]]:
    return sample(scripts([nothing]), 15)


def fits(tool: Tool, arguments: Mapping[str, JsonValue]) -> bool:
    try:
        tool.parse(arguments)
    except ToolInputError:
        return False
    return True


@given(arguments=arguments_of(everything.parameters))
def test_drawn_arguments_fit_the_schema(arguments: dict[str, JsonValue]) -> None:
    everything.parse(arguments)


@pytest.mark.parametrize("built_in", builtin_tools(Path()), ids=lambda tool: tool.name)
def test_arguments_of_the_built_in_tools_fit(built_in: Tool) -> None:
    @settings(max_examples=percent_of_examples(20))
    @given(arguments=arguments_of(built_in.parameters))
    def fit(arguments: dict[str, JsonValue]) -> None:
        built_in.parse(arguments)

    fit()


@pytest.mark.parametrize("tool", [everything, nothing], ids=lambda tool: tool.name)
def test_misfits_are_refused_by_the_tool(tool: Tool) -> None:
    """Not all: another value for an argument of many types may fit by chance."""
    drawn = sample(misfits_of(tool.parameters), 5)
    assert sum(not fits(tool, arguments) for arguments in drawn) > len(drawn) / 2


@given(
    value=values_of(
        {"$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}}}, "$ref": "#/$defs/T"}
    )
)
def test_recursive_schema_is_drawn(value: JsonValue) -> None:
    while value:
        assert isinstance(value, dict)
        assert list(value) == ["t"]
        value = value["t"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": ["string", "null"]},
        {"type": "integer", "maximum": -5},
        {"type": "number", "minimum": 7.25, "maximum": 7.5},
        {"type": "array"},
        {"type": "array", "uniqueItems": True, "items": {"type": "boolean"}, "maxItems": 2},
        {"type": "string", "format": "date"},
        {"type": "string", "minLength": 40},
        {"allOf": [{"type": "boolean"}]},
        {"$ref": "#/nowhere"},
        {"type": "file"},
        {"enum": [1, "one"]},
        {"const": None},
    ],
)
def test_schema_of_any_form_gives_values(schema: dict[str, JsonValue]) -> None:
    kinds = {"boolean": bool, "integer": int, "string": str, "array": list}

    @settings(max_examples=percent_of_examples(20))
    @given(value=values_of(schema))
    def draw(value: JsonValue) -> None:
        kind = schema.get("type")
        if isinstance(kind, str) and kind in kinds:
            assert isinstance(value, kinds[kind])
        if kind == "integer":
            assert isinstance(value, int)
            assert value <= -5

    draw()


@given(bounds=limits(steps=3, tokens=st.integers(1, 2)))
def test_fixed_limits_are_kept(bounds: Limits) -> None:
    assert bounds.steps == 3
    assert bounds.tokens in (1, 2)


def test_simplest_limits_are_the_defaults() -> None:
    assert sample(limits(), 1)[0] == Limits()


@given(call=tool_calls(TOOLS))
def test_drawn_call_fits_the_tool(call: ResponseToolCall) -> None:
    tool = {candidate.name: candidate for candidate in (everything, nothing)}[call.name]
    assert call.arguments is not None
    assert fits(tool, call.arguments)


@given(reply=obedient_replies(TOOLS))
def test_obedient_reply_answers_or_requests_runnable_calls(reply: ModelResponse) -> None:
    assert reply.text or reply.calls
    assert all(call.arguments is not None for call in reply.calls)


REPLIES: dict[str, Callable[[ModelResponse], object]] = {
    "nothing at all": lambda reply: reply == ModelResponse(),
    "only reasoning": lambda reply: reply.reasoning and not reply.text and not reply.calls,
    "a very long text": lambda reply: len(reply.text) > 2_000,
    "cut-off arguments": lambda reply: any(call.arguments is None and call.raw for call in reply.calls),
    "a tool that is not there": lambda reply: any(call.name not in NAMES for call in reply.calls),
    "one provider id twice": lambda reply: sum(call.id == "id" for call in reply.calls) > 1,
    "more calls than run": lambda reply: len(reply.calls) > MAX_CALLS_PER_STEP,
    "arguments that do not fit": lambda reply: any(call.name == "nothing" and call.arguments for call in reply.calls),
    "a reply cut off by length": lambda reply: reply.finish is Finish.LENGTH,
    "a filtered reply": lambda reply: reply.finish is Finish.CONTENT_FILTER,
    "no usage": lambda reply: reply.usage is None,
}


@pytest.mark.slow
@pytest.mark.parametrize("misdeed", REPLIES)
def test_disobedient_replies_show_every_misbehavior(disobedient: list[ModelResponse], misdeed: str) -> None:
    assert any(REPLIES[misdeed](reply) for reply in disobedient)


def test_model_calls_fail_for_every_cause() -> None:
    assert {error.cause for error in sample(model_errors())} == set(Cause)


def repeats(script: Sequence[Line], period: int) -> bool:
    """Whether the script says the same cycle twice, and not one shorter."""
    pairs = [script[n : n + period] for n in range(len(script) - 2 * period + 1) if asks(script[n : n + 2 * period])]
    return any(
        cycle == script[n + period : n + 2 * period] and len({str(line) for line in cycle}) == period
        for n, cycle in enumerate(pairs)
    )


def asks(lines: Sequence[Line]) -> bool:
    return all(isinstance(line, ModelResponse) and line.calls for line in lines)


SCRIPTS: dict[str, Callable[[tuple[Line, ...]], object]] = {
    "the same again and again": lambda script: repeats(script, 1),
    "a cycle of two": lambda script: repeats(script, 2),
    "asking for tools for ever": lambda script: asks(script[-1:]),
    "failing in the end": lambda script: isinstance(script[-1], ModelError),
    "a broken stream": lambda script: any(isinstance(line, Cut) and not line.silently for line in script),
    "a stream that just ends": lambda script: any(isinstance(line, Cut) and line.silently for line in script),
    "silence": lambda script: any(isinstance(line, Stalls) for line in script),
}


@pytest.mark.slow
@pytest.mark.parametrize("habit", SCRIPTS)
def test_scripts_show_every_habit(sampled_scripts: list[tuple[Line, ...]], habit: str) -> None:
    assert any(SCRIPTS[habit](script) for script in sampled_scripts)


def test_drawn_tools_have_every_behavior() -> None:
    assert {type(behaviour) for behaviour in sample(behaviours())} == {Returns, Raises, Hangs, Floods, Asks}


def test_real_tools_usually_run_and_never_hang_for_long() -> None:
    drawn = sample(behaviours(run_tools=True))
    assert drawn[0] == Runs()
    assert not any(isinstance(behaviour, Hangs) and behaviour.seconds > 1 for behaviour in drawn)
    assert sum(isinstance(behaviour, Runs) for behaviour in drawn) > len(drawn) / 4


@pytest.mark.parametrize("person", [Answers(), Answers(1), Answers(first=0), Leaves(), Leaves("message")], ids=str)
def test_people_answer_or_leave(person: Person) -> None:
    assert person in sample(people(), 20)


@given(crash=crashes(3))
def test_crash_is_drawn_at_an_append(crash: Crash) -> None:
    assert 1 <= crash.at <= 3


@given(scenario=scenarios(TOOLS, agent=Agent(name="One", tools=("nothing",))))
def test_agent_is_asked_to_use_own_tools(scenario: Scenario) -> None:
    """Arguments of the other tool need its schema, which is none of this agent's."""
    calls = [call for line in scenario.script if isinstance(line, ModelResponse) for call in line.calls]
    assert "everything" not in {call.name for call in calls}


def test_simplest_scenario_is_an_answer() -> None:
    assert sample(scenarios(TOOLS), 1)[0] == Scenario()


@given(call=bad_calls([]))
def test_calls_are_drawn_without_any_tool(call: ResponseToolCall) -> None:
    assert call.name not in NAMES


@pytest.mark.slow
def test_importing_the_package_does_not_import_hypothesis() -> None:
    """It is optional; only the strategies and the runner need it."""
    rooms = ("", ".behavior", ".failing_test", ".invariants", ".play", ".scenario", ".flaky")
    code = (
        f"import sys\nfor room in {rooms}: __import__('turnwright_testing' + room)\nprint('hypothesis' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


@given(values_of({"type": "string", "pattern": r"^\p{L}+$"}))
def test_pattern_that_python_cannot_read_is_left_out(value: JsonValue) -> None:
    """A server writes the patterns of its language. A value may then be refused, as a model's may be."""
    assert isinstance(value, str)
