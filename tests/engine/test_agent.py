"""An agent keeps what was written, refuses what `Limits` refuses, and lays its limits over the engine's."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from turnwright import tool
from turnwright.agent import BUDGET_FIELDS, Agent
from turnwright.errors import ConfigError
from turnwright.model import ScriptedModel
from turnwright_states import Limits

#: Uses every kind of deferred model for the first time in many threads at once, and prints what they raised.
IN_MANY_THREADS = """
import sys, threading
from turnwright import Agent, Limits, ToolCallLimits
sys.setswitchinterval(1e-6)
uses = [
    lambda: Agent(name="A", steps=3, budget={"tool_calls": 3}),
    lambda: Agent.model_validate({"name": "A", "tools": ["read_file"]}).to_json(),
    lambda: Limits(tokens=3).model_dump(),
    lambda: (Limits(steps=4), ToolCallLimits(writing=2)),
] * 4
together, raised = threading.Barrier(len(uses)), []
def use(one):
    together.wait()
    try:
        one()
    except BaseException as error:
        raised.append(error)
threads = [threading.Thread(target=use, args=(one,)) for one in uses]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(raised)
"""

COUNTS = st.integers(0, 10_000) | st.none()
AMOUNTS = st.floats(min_value=1e-6, max_value=1e9) | st.none()
AGENTS: st.SearchStrategy[Agent] = st.fixed_dictionaries(
    {"name": st.sampled_from(["Refactorer", "Архитектор", "a b"])},
    optional={
        "description": st.text(max_size=20),
        "steps": COUNTS,
        "budget": COUNTS
        | st.fixed_dictionaries(
            {},
            optional={
                "tool_calls": COUNTS,
                "tokens": st.integers(1, 10_000) | st.none(),
                "cost": AMOUNTS,
                "seconds": AMOUNTS,
            },
        ),
        "tools": st.lists(st.sampled_from(["read_file", "list_files"]), unique=True) | st.none(),
        "mode": st.just("primary"),
        "doom_threshold": st.integers(2, 10) | st.none(),
        "nudges": st.integers(0, 3),
        "concluding": st.sampled_from(["after", "within"]),
    },
).map(Agent.model_validate)


def problem(values: dict[str, object]) -> str:
    with pytest.raises(ValidationError) as raised:
        Agent.model_validate(values)
    return str(raised.value)


def test_every_limit_but_the_ceiling_can_be_set_on_an_agent() -> None:
    """The interval of notices is not a limit: the engine's preset decides."""
    own = set(Agent.model_fields) & set(Limits.model_fields)
    assert own | set(BUDGET_FIELDS) == set(Limits.model_fields) - {"ceiling", "step_notices", "max_compactions"}
    assert not own & set(BUDGET_FIELDS)


def test_agent_without_limits_keeps_the_engine_limits() -> None:
    base = Limits(steps=25, tool_calls=7, doom_threshold=None, ceiling=30)
    assert Agent(name="Explorer").limits_for(base) == base
    assert Agent(name="Explorer").limits_for() == Limits()


def test_agent_value_replaces_the_engine_value() -> None:
    agent = Agent(
        name="Architect", steps=20, budget=Limits(tokens=100, cost=1.5), doom_threshold=4, concluding="within"
    )
    base = Limits(steps=3, tool_calls=7)
    assert agent.limits_for(base) == Limits(
        steps=20, tool_calls=7, tokens=100, cost=1.5, doom_threshold=4, concluding="within"
    )


def test_ceiling_of_the_engine_is_kept() -> None:
    limits = Agent(name="Architect", steps=500).limits_for(Limits(ceiling=10))
    assert (limits.steps, limits.cap) == (500, 10)


@pytest.mark.parametrize(
    ("settings", "steps", "cap"),
    [({"steps": 0}, 0, 0), ({"steps": None}, None, 200), ({}, 25, 25), ({"steps": 1}, 1, 1)],
)
def test_zero_steps_unset_steps_and_unlimited_steps_differ(settings: dict[str, int], steps: int, cap: int) -> None:
    limits = Agent.model_validate({"name": "Explorer", **settings}).limits_for(Limits(steps=25))
    assert (limits.steps, limits.cap) == (steps, cap)


@pytest.mark.parametrize(
    ("budget", "tool_calls", "tokens"),
    [
        (3, 3, 1000),
        (0, 0, 1000),
        (None, None, 1000),
        ({}, 50, 1000),
        ({"tool_calls": 4}, 4, 1000),
        ({"tokens": None}, 50, None),
        ({"tool_calls": None, "tokens": 5}, None, 5),
    ],
)
def test_budget_null_is_off_and_absent_is_the_engine_value(
    budget: object, tool_calls: int | None, tokens: int | None
) -> None:
    limits = Agent.model_validate({"name": "Explorer", "budget": budget}).limits_for(Limits(tokens=1000))
    assert (limits.call_limit, limits.tokens) == (tool_calls, tokens)


def test_explicit_none_differs_from_an_absent_limit() -> None:
    off = Agent(name="Explorer", doom_threshold=None)
    absent = Agent(name="Explorer")
    assert off != absent
    assert off.limits_for().doom_threshold is None
    assert absent.limits_for().doom_threshold == Limits().doom_threshold
    assert Agent(name="Explorer", budget=Limits(tokens=None)) != Agent(name="Explorer", budget=Limits())


def test_other_fields_compare_by_value_alone() -> None:
    assert Agent(name="Explorer", description="") == Agent(name="Explorer")
    assert hash(Agent(name="Explorer", description="")) == hash(Agent(name="Explorer"))
    assert Agent(name="Explorer") != "Explorer"


def test_repr_shows_only_set_fields() -> None:
    agent = Agent(name="Refactorer", steps=0, budget=Limits(tokens=None))
    assert repr(agent) == "Agent(name='Refactorer', steps=0, budget={'tokens': None})"


@given(AGENTS)
def test_agent_survives_a_json_round_trip(agent: Agent) -> None:
    back = Agent.from_json(json.loads(json.dumps(agent.to_json())))
    assert back == agent
    assert hash(back) == hash(agent)
    assert back.limits_for(Limits(steps=9, tokens=9)) == agent.limits_for(Limits(steps=9, tokens=9))
    assert back.to_json() == agent.to_json()
    assert Agent.model_validate(agent.model_dump(mode="json")) == agent
    assert Agent.model_validate_json(agent.model_dump_json()) == agent


@given(AGENTS, st.booleans())
def test_changed_copy_equals_a_new_agent(agent: Agent, deep: bool) -> None:
    copy = agent.model_copy(update={"nudges": 2}, deep=deep)
    assert copy == Agent.model_validate(agent.model_dump() | {"nudges": 2})
    assert copy.model_fields_set == agent.model_fields_set | {"nudges"}
    assert agent.model_copy(deep=deep) == agent


def test_agent_inside_another_model_keeps_the_difference() -> None:
    class Fact(BaseModel):
        agent: Agent

    fact = Fact(agent=Agent(name="Explorer", steps=None, budget=Limits(cost=None)))
    assert fact.model_dump_json() == '{"agent":{"name":"Explorer","steps":null,"budget":{"cost":null}}}'
    assert Fact.model_validate_json(fact.model_dump_json()) == fact


MEASURES = "tool_calls, tokens, cost, seconds"


@tool
def look() -> None: ...


WRONG: list[tuple[dict[str, object], str]] = [
    ({"steps": -1}, "must be a whole number of at least 0, not -1"),
    ({"steps": True}, "must be a whole number of at least 0, not True"),
    ({"steps": 2.5}, "must be a whole number of at least 0, not 2.5"),
    ({"steps": 5.0}, "must be a whole number of at least 0, not 5.0"),
    ({"steps": float("nan")}, "must be a whole number of at least 0, not nan"),
    ({"steps": "5"}, "must be a whole number of at least 0, not '5'"),
    ({"steps": [5]}, "must be a whole number of at least 0, not [5]"),
    ({"steps": 10**5000}, "must be a number of at most 18 digits, not a value too long to show (int)"),
    ({"steps": 2**31}, "must be below 2147483647, not 2147483648: use None for no limit"),
    ({"steps": "x" * 5000}, "must be a whole number of at least 0, not 'xxx"),
    ({"budget": -1}, "must be a whole number of at least 0, not -1"),
    ({"budget": False}, "must be a whole number of at least 0, not False"),
    ({"budget": 0.5}, "must be a whole number of at least 0, not 0.5"),
    ({"budget": "many"}, f"must be a number of tool calls, or a mapping of {MEASURES}; not 'many'"),
    ({"budget": [10**5000]}, f"must be a number of tool calls, or a mapping of {MEASURES}; not [a value too long to"),
    ({"budget": {"tokens": 0}}, "must be a whole number of at least 1, not 0"),
    ({"budget": {"cost": 0}}, "must be a number above 0, not 0"),
    ({"budget": {"cost": float("inf")}}, "must be a number above 0, not inf"),
    ({"budget": {"cost": 10**400}}, "must be a number of at most 18 digits, not 1"),
    ({"budget": {"seconds": -2}}, "must be a number above 0, not -2"),
    ({"budget": {"calls": 3}}, "is unknown: did you mean `tool_calls`?"),
    ({"concluding": "before"}, "must be 'after', 'within' or 'never', not 'before'"),
    ({"doom_threshold": 1}, "must be a whole number of at least 2, not 1"),
    ({"doom_response": "shout"}, "must be 'stop' or 'ask', not 'shout'"),
    ({"nudges": None}, "cannot be switched off: leave it out to keep the engine's value"),
    ({"concluding": None}, "cannot be switched off: leave it out to keep the engine's value"),
    ({"max_calls_per_step": 33}, "must be at most 32, not 33"),
    ({"conclude_seconds": 0}, "must be a number above 0, not 0"),
    ({"tools": "read_file"}, "must be a list of names, not 'read_file'"),
    ({"instructions": lambda: ""}, "is called with (context), and takes ()"),
    ({"prepare_tools": lambda: ()}, "is called with (context, tools), and takes ()"),
    ({"output_validators": [lambda context, answer: answer]}, "check typed answers: give an output_type, or"),  # noqa: ARG005 (as a validator)
    ({"output_validators": [lambda answer: answer]}, "is called with (context, answer), and takes (answer)"),
    ({"tools": ["read_file", "read_file"]}, "must name each tool once, but 'read_file' is listed twice"),
    ({"tools": [""]}, "must not be blank, as '' is"),
    ({"model": " "}, "must not be blank, as ' ' is"),
    ({"conclude_prompt": "\n"}, "must not be blank: leave it out for the standard prompt"),
    ({"description": None}, "must be text, not None"),
    ({"instructions": "\ud800"}, "must be text that UTF-8 can write, but its character 0 is half a surrogate pair"),
    ({"stpes": 5}, "is unknown: did you mean `steps`?"),
    ({"max_turns": 3}, "is unknown: did you mean `steps`?"),
    ({"limits": Limits(steps=3)}, "is unknown: did you mean `budget`?"),
    ({"system_prompt": "Be brief."}, "is unknown: did you mean `instructions`?"),
    ({"max_tool_calls": 3}, "is not a field of its own: write it under `budget`, as in `budget: {tool_calls: ...}`"),
    ({"budget": {"max_tokens": 3}}, "is unknown: did you mean `tokens`?"),
    ({"model_settings": {"temprature": 0}}, "is unknown: did you mean `temperature`?"),
    ({"model_settings": {"a": 1}}, "is unknown: use one of temperature, top_p, max_tokens"),
    ({"compaction": {"at_tokens": 9, "token": 5}}, "is unknown: did you mean `at_tokens`?"),
    ({"tools": [print]}, "must be the name of a tool, not <built-in function print>: write `@tool` above a function"),
    ({"tools": print}, "must be a list of names, not <built-in function print>: write `@tool` above a function"),
    (
        {"tools": [look]},
        "must be the name of a tool, not <FunctionTool look>: give tools to the engine, as in `Engine(tools=[look])`",
    ),
    (
        {"model": ScriptedModel},
        "must be text, not <class 'turnwright.model.scripted.ScriptedModel'>: give the model to",
    ),
    ({"hooks": [print]}, "must be a hook: a function below @before_tool or another such decorator"),
    ({"tools": [7]}, "must be the name of a tool, not 7"),
    ({"colour": 5}, "is unknown: use one of name, description, mode, instructions, template, steps, budget"),
    ({"mode": "sub"}, "must be 'primary', 'subagent' or 'all', not 'sub'"),
    ({"mode": None}, "must be 'primary', 'subagent' or 'all', not None"),
    ({"mode": "all"}, "'all' needs a `description`: models choose a sub-agent by it"),
    ({"mode": "subagent", "description": " "}, "'subagent' needs a `description`: models choose a sub-agent by it"),
    ({"ceiling": 500}, "is the engine's, not an agent's: set `steps`"),
    ({"tokens": 500}, "is not a field of its own: write it under `budget`, as in `budget: {tokens: ...}`"),
]


def test_function_as_a_tool_name_is_refused_with_advice() -> None:
    text = problem({"name": "Refactorer", "tools": [print]})
    assert "as in `Engine(tools=[my_function])`. An agent without `tools` may use all of the engine's" in text
    assert "tool(print)" not in text, "which the engine would refuse"


@pytest.mark.parametrize(("values", "message"), WRONG)
def test_wrong_value_names_the_agent_the_field_and_the_value(values: dict[str, object], message: str) -> None:
    text = problem({"name": "Refactorer", **values})
    assert f"agent 'Refactorer': {message}" in text
    assert next(iter(values)) in text
    assert len(text) < 1000
    with pytest.raises(ValidationError) as raised:
        Agent(name="Refactorer", steps=3).model_copy(update=values)
    assert str(raised.value) == text, "a copy is checked as a new agent"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "must not be blank, as '' is"),
        ("  ", "must not be blank, as '  ' is"),
        (5, "must be text, not 5"),
        (None, "must be text, not None"),
        ("a\nb", "must be one line without control characters, not 'a\\nb'"),
        ("a\x1b[2J", "must be one line without control characters, not 'a\\x1b[2J'"),
    ],
)
def test_invalid_name_is_refused(name: object, message: str) -> None:
    assert message in problem({"name": name})


def test_agent_without_a_name_is_refused() -> None:
    assert "name\n  is missing" in problem({"steps": 5})


def test_all_mistakes_are_reported_at_once() -> None:
    text = problem({"name": "Refactorer", "steps": -1, "budget": {"tokens": 0, "cost": 0}, "stpes": 5})
    for field in ("steps", "budget.tokens", "budget.cost", "stpes"):
        assert f"\n{field}\n" in text


def test_agent_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Agent(name="Explorer").steps = 5  # type: ignore[misc]


# Who runs it.


def test_agent_is_primary_by_default() -> None:
    assert Agent(name="Tidier").mode == "primary"
    assert Agent(name="Tidier", description="Tidies.", mode="subagent").mode == "subagent"


def test_tool_name_is_valid_for_providers() -> None:
    assert [Agent(name=name).tool_name for name in ("Tidier", "Code Reviewer!", "team/look")] == [
        "Tidier",
        "Code_Reviewer",
        "team_look",
    ]


# Which tools it may use.

OFFERED = ("read", "write", "mcp_a", "mcp_b")


def may(tools: tuple[str, ...] | None, *offered: str) -> list[str]:
    agent = Agent(name="Tidier", tools=tools)
    return [tool for tool in offered or OFFERED if agent.may_use(tool)]


@pytest.mark.parametrize(
    ("tools", "allowed"),
    [
        (None, OFFERED),
        ((), ()),
        (("read", "mcp_b"), ("read", "mcp_b")),
        (("mcp_?",), ("mcp_a", "mcp_b")),
        (("*", "!write"), ("read", "mcp_a", "mcp_b")),
        (("!write",), ("read", "mcp_a", "mcp_b")),
        (("!mcp_*", "mcp_b"), ("read", "write", "mcp_b")),
        (("mcp_*", "!mcp_b"), ("mcp_a",)),
        (("!*", "read"), ("read",)),
        (("!read", "*"), OFFERED),
    ],
)
def test_last_matching_tool_rule_wins(tools: tuple[str, ...] | None, allowed: tuple[str, ...]) -> None:
    assert may(tools) == list(allowed)


def test_bracket_in_a_rule_is_literal() -> None:
    assert may(("r[e]*",), "read", "r[e]ad") == ["r[e]ad"]


def test_named_tools_must_exist_and_tools_in_rules_need_not() -> None:
    assert Agent(name="A", tools=("read",)).tools_needed == ("read",)
    for rules in (("!read",), ("*",), ("read", "mcp_?"), ()):
        assert Agent(name="A", tools=rules).tools_needed == ()


@pytest.mark.parametrize(
    ("tools", "primary", "sub"),
    [(None, True, False), (("*",), True, False), (("!x",), True, False), (("look",), True, True), ((), False, False)],
)
def test_sub_agent_calls_others_only_by_name(tools: tuple[str, ...] | None, *, primary: bool, sub: bool) -> None:
    """A sub-agent rarely means to call itself or its like by leaving `tools` out."""
    first = Agent(name="A", tools=tools)
    second = Agent(name="A", tools=tools, description="Works.", mode="subagent")
    assert [agent.may_use("look", delegates=True) for agent in (first, second)] == [primary, sub]


def test_concurrent_threads_may_create_the_first_agents() -> None:
    ran = subprocess.run([sys.executable, "-c", IN_MANY_THREADS], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_positional_name_is_refused_with_the_correct_form() -> None:
    with pytest.raises(ConfigError, match=r"named fields only: write Agent\(name='Buyer'\)"):
        Agent("Buyer")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
