"""The certificate of an agent's turns: its values are the effective bounds, each with its origin."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from turnwright import Agent, Compact, ConfigError, Engine, Limits, agent_tool
from turnwright.agents.bounds import EXACTNESS, Exactness, bounds_of
from turnwright.model.scripted import ScriptedModel
from turnwright.store import MemoryStore
from turnwright_proof import explain
from turnwright_proof.certificates.certificate import SCHEMA, Certificate, CertifiedBound, certificate
from turnwright_states import facts as f
from turnwright_states.chart import ROWS, VERSION

FROZEN: Final = json.loads((Path(__file__).parents[3] / "docs" / "certificate.schema.json").read_text("utf-8"))
BUDGET: Final = ("tool_calls", "tokens", "cost", "seconds")

Values = dict[str, Any]

#: Values of every limit that an agent can set, the default among them: who writes it down has set it.
OWN: Final[dict[str, st.SearchStrategy[Any]]] = {
    "steps": st.none() | st.integers(0, 300),
    "concluding": st.sampled_from(("after", "within", "never")),
    "tool_calls": st.none() | st.just(50) | st.integers(0, 10**6),
    "max_calls_per_step": st.integers(1, 32),
    "tokens": st.none() | st.integers(1, 10**9),
    "cost": st.none() | st.floats(0.001, 1e6),
    "seconds": st.none() | st.floats(0.001, 1e6) | st.integers(1, 3600),
    "tool_timeout": st.none() | st.just(300.0) | st.integers(1, 3600),
    "doom_threshold": st.none() | st.integers(2, 9),
    "doom_compare": st.sampled_from(("results", "calls")),
    "doom_response": st.sampled_from(("stop", "ask")),
    "nudges": st.integers(0, 3),
    "stall_errors": st.integers(2, 5) | st.none(),
    "idle_steps": st.integers(1, 5) | st.none(),
    "stall_rounds": st.integers(2, 5) | st.none(),
    "stall_response": st.sampled_from(["hint", "loop"]),
    "max_retries": st.integers(0, 9),
    "output_retries": st.integers(0, 9),
    "max_pauses": st.integers(0, 200),
    "conclude_seconds": st.floats(0.1, 600),
    "conclude_tokens": st.integers(1, 10**6),
}


def agent_of(values: Values) -> Agent:
    """An agent that sets exactly these limits."""
    budget = {name: value for name, value in values.items() if name in BUDGET}
    settings = {name: value for name, value in values.items() if name not in BUDGET}
    return Agent.model_validate({"name": "Tester", **settings} | ({"budget": budget} if budget else {}))


own: Final = st.fixed_dictionaries({}, optional=OWN)
engines: Final = st.fixed_dictionaries({}, optional=OWN | {"ceiling": st.integers(0, 200)})
flags: Final = st.none() | st.integers(0, 300)


def named(certified: Certificate) -> dict[str, CertifiedBound]:
    bounds = {bound.bound: bound for bound in certified.bounds}
    assert len(bounds) == len(certified.bounds)
    return bounds


def in_force(engine: Values, agent: Values, steps: int | None) -> Limits:
    """The limits of a turn: what is written later replaces what was written before."""
    return Limits.model_validate(engine | agent | ({} if steps is None else {"steps": steps})).for_tools("default")


def who_wrote(name: str, engine: Values, agent: Values, steps: int | None) -> str:
    """Return the last origin of a limit, without the code under test."""
    if name == "steps" and steps is not None:
        return "configuration"
    return "agent" if name in agent else "configuration" if name in engine else "default"


@given(engines, own, flags)
def test_certified_values_equal_the_bounds_of_the_turn(engine: Values, agent: Values, steps: int | None) -> None:
    """Written out from the rules, not from the code that makes the certificate."""
    bounds = named(certificate(agent_of(agent), Limits(**engine), steps=steps))
    limits = in_force(engine, agent, steps)
    cap = limits.ceiling if limits.steps is None else min(limits.steps, limits.ceiling)
    allowance = max(cap - 1, 0) if limits.concluding == "within" else cap
    assert {name: bound.value for name, bound in bounds.items()} == {
        "cap": cap,
        "steps that may call tools": allowance,
        "model calls": (allowance + 1) * (1 + limits.max_retries),
        "tool calls": limits.tool_calls,
        "tool calls per step": limits.max_calls_per_step,
        "tokens": limits.tokens,
        "cost": limits.cost,
        "seconds": limits.seconds,
        "seconds of a tool call": limits.tool_timeout,
        "rounds that repeat": limits.doom_threshold,
        "rounds of one error": limits.stall_errors,
        "rounds without news": limits.stall_rounds,
        "steps in a row without a call": limits.idle_steps,
        "nudges": limits.nudges,
        "pauses": limits.max_pauses,
        "output retries": limits.output_retries,
        "compactions": limits.max_compactions,
        "attempts a phase": 1 + limits.max_retries,
        "seconds of an attempt to conclude": limits.conclude_seconds,
        "tokens of the conclusion": limits.conclude_tokens,
    }
    assert (cap, allowance) == (limits.cap, limits.allowance)
    assert bounds["model calls"].value == limits.model_calls


@given(engines, own, flags)
def test_each_bound_names_the_deciding_setting(engine: Values, agent: Values, steps: int | None) -> None:
    limits = in_force(engine, agent, steps)
    for bound in certificate(agent_of(agent), Limits(**engine), steps=steps).bounds:
        for setting in bound.settings:
            assert setting.value == getattr(limits, setting.field)
            assert setting.set_by == who_wrote(setting.field, engine, agent, steps)
        unbound = limits.steps is None or limits.steps > limits.ceiling
        expected = "ceiling" if bound.field == "steps" and unbound else who_wrote(bound.field, engine, agent, steps)
        assert (bound.field, bound.set_by) == (bound.settings[0].field, expected)


@given(engines, own, flags)
def test_certificate_survives_serialization(engine: Values, agent: Values, steps: int | None) -> None:
    certified = certificate(agent_of(agent), Limits(**engine), steps=steps)
    text = json.dumps(certified.to_json())
    assert Certificate.from_json(json.loads(text)) == certified
    assert is_valid(json.loads(text))


def test_every_limit_is_behind_a_bound() -> None:
    """Also a limit that somebody will add: it bounds something, or says how. When notices come bounds nothing."""
    bounds = bounds_of(Limits())
    assert {name for bound in bounds for name in bound.settings} == set(Limits.model_fields) - {"step_notices"}
    assert {bound.exactness for bound in bounds} == set(Exactness) == set(EXACTNESS)


@pytest.mark.parametrize(
    ("agent", "engine", "steps", "expected"),
    [
        ({}, None, None, (200, "ceiling")),
        ({}, Limits(ceiling=10), None, (10, "ceiling")),
        ({"steps": None}, Limits(steps=7), None, (200, "ceiling")),
        ({"steps": 500}, None, None, (200, "ceiling")),
        ({"steps": 11}, Limits(ceiling=10), None, (10, "ceiling")),
        ({"steps": 10}, Limits(ceiling=10), None, (10, "agent")),
        ({"steps": 5}, Limits(steps=7), None, (5, "agent")),
        ({"steps": 0}, Limits(steps=7), None, (0, "agent")),
        ({}, Limits(steps=7), None, (7, "configuration")),
        ({}, Limits.preset("glm-cli"), None, (25, "configuration")),
        ({"steps": 5}, None, 9, (9, "configuration")),
        ({"steps": 5}, None, 0, (0, "configuration")),
        ({"steps": 5}, None, 300, (200, "ceiling")),
    ],
)
def test_cap_names_the_deciding_setting(
    agent: Values, engine: Limits | None, steps: int | None, expected: tuple[int, str]
) -> None:
    """The ceiling does where `steps` is unset or above it; 0 is a number."""
    bound = named(certificate(agent_of(agent), engine, steps=steps))["cap"]
    assert (bound.value, bound.set_by) == expected


def test_derived_bound_names_the_underlying_settings() -> None:
    certified = certificate(Agent(name="Tester", steps=5, max_retries=1), Limits(concluding="within"))
    bound = named(certified)["model calls"]
    assert (bound.value, bound.formula) == (10, "(allowance + 1) x (1 + max_retries) = (4 + 1) x (1 + 1)")
    assert [(setting.field, setting.value, setting.set_by) for setting in bound.settings] == [
        ("steps", 5, "agent"),
        ("ceiling", 200, "default"),
        ("concluding", "within", "configuration"),
        ("max_retries", 1, "agent"),
        ("max_compactions", 0, "default"),
    ]


def test_compactions_are_part_of_the_formula() -> None:
    certified = certificate(Agent(name="Tester", steps=5, compaction=Compact(at_tokens=9, max_compactions=2)))
    bound = named(certified)["model calls"]
    formula = "(allowance + 1) x (1 + max_retries) + 2 x max_compactions = (5 + 1) x (1 + 3) + 2 x 2"
    assert (bound.value, bound.formula) == (28, formula)


def test_limit_switched_off_names_the_deciding_setting() -> None:
    """Off by default and off by the agent are two things."""
    bounds = named(certificate(Agent.model_validate({"name": "Tester", "budget": None})))
    assert (bounds["tool calls"].value, bounds["tool calls"].set_by) == (None, "agent")
    assert (bounds["tokens"].value, bounds["tokens"].set_by) == (None, "default")


def test_bounds_with_overshoot_are_not_called_exact() -> None:
    exactness = {bound.bound: bound.exactness.value for bound in certificate(Agent(name="Tester")).bounds}
    assert {name: degree for name, degree in exactness.items() if degree != "exact"} == {
        "tokens": "overshot_by_one_reply",
        "cost": "overshot_by_one_reply",
        "seconds": "overshot_by_cancelling",
        "seconds of a tool call": "overshot_by_cancelling",
        "seconds of an attempt to conclude": "overshot_by_cancelling",
        "tokens of the conclusion": "provider",
    }


def test_response_to_a_doom_loop_is_certified() -> None:
    asks = named(certificate(Agent(name="Tester", doom_response="ask", doom_threshold=4)))["rounds that repeat"]
    off = named(certificate(Agent(name="Tester", doom_threshold=None)))["rounds that repeat"]
    assert (
        asks.formula == "4 rounds of identical results, or a cycle of 2 to 4 repeated as often; then a person is asked"
    )
    assert (off.value, off.formula) == (None, "doom_threshold")


def test_chart_digest_is_the_hash_of_the_rows() -> None:
    chart = certificate(Agent(name="Tester")).chart
    text = "".join(f"{row.name} {row.reason or ''}\n" for row in ROWS)
    assert (chart.version, chart.rows, chart.digest) == (VERSION, 75, hashlib.sha256(text.encode()).hexdigest())


# Its sub-agents.


def calling(**agents: tuple[str, ...]) -> Callable[[Agent], Mapping[str, Agent]]:
    """Return which agent may call which, by name. A tool has the agent's name in lower case."""

    def subagent_tools(agent: Agent) -> Mapping[str, Agent]:
        return {name.lower(): Agent(name=name, steps=len(name)) for name in agents.get(agent.name, ())}

    return subagent_tools


def below(certified: Certificate) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return the depth of each sub-agent, and the sub-agents that it may call."""
    assert certified.sub_agents is not None
    return {agent.tool: (agent.depth, agent.calls) for agent in certified.sub_agents.agents}


def test_agent_without_sub_agents_has_no_sub_agents_field() -> None:
    data = certificate(Agent(name="Tester"), subagent_tools=calling()).to_json()
    assert set(data) == {"schema", "agent", "chart", "bounds", "reply", "code"}
    assert data == certificate(Agent(name="Tester")).to_json()


def test_sub_agents_are_certified_with_the_lease_rule() -> None:
    certified = certificate(
        Agent(name="Lead"),
        Limits(nudges=2),
        steps=9,
        subagent_tools=calling(Lead=("Editor", "Reader"), Editor=("Reader",)),
    )
    assert below(certified) == {"editor": (1, ("reader",)), "reader": (1, ())}
    assert certified.sub_agents is not None
    assert certified.sub_agents.max_depth == 3
    assert "floor(rest / k)" in certified.sub_agents.leases
    editor, reader = certified.sub_agents.agents
    assert (editor.agent, reader.agent) == ("Editor", "Reader")
    alone = certificate(Agent(name="Editor", steps=6), Limits(nudges=2))
    assert editor.bounds == alone.bounds, "the flag was the lead's"
    data = json.loads(json.dumps(certified.to_json()))
    assert is_valid(data)
    assert Certificate.from_json(data) == certified


def test_cycle_of_sub_agents_is_shown_once() -> None:
    certified = certificate(Agent(name="Lead"), subagent_tools=calling(Lead=("Lead", "A"), A=("B",), B=("A", "Lead")))
    assert below(certified) == {"lead": (1, ("lead", "a")), "a": (1, ("b",)), "b": (2, ("a", "lead"))}


def test_sub_agents_are_shown_to_the_maximum_depth() -> None:
    """The calls of the third one never run."""
    certified = certificate(Agent(name="A"), subagent_tools=calling(A=("B",), B=("C",), C=("D",), D=("E",)))
    assert below(certified) == {"b": (1, ("c",)), "c": (2, ("d",)), "d": (3, ())}


def test_schema_has_a_single_optional_field() -> None:
    data = certificate(Agent(name="Tester")).to_json()
    assert FROZEN["required"] == ["schema", "agent", "chart", "bounds", "reply", "code"]
    assert set(FROZEN["properties"]) - set(FROZEN["required"]) == {"sub_agents"}
    assert Certificate.from_json(data).sub_agents is None
    assert is_valid(data)


def test_steps_out_of_range_are_refused() -> None:
    with pytest.raises(ValidationError, match="must be a whole number of at least 0, not -1"):
        certificate(Agent(name="Tester"), steps=-1)


# What an engine says of itself.


@pytest.mark.anyio
async def test_explained_bounds_equal_the_bounds_of_turns() -> None:
    store, agent = MemoryStore(), Agent(name="Tester", steps=500, max_retries=1)
    async with Engine(model=ScriptedModel("Done."), store=store, limits=Limits(ceiling=9, nudges=2)) as engine:
        turn = await engine.run(agent, "hi")
        explained = explain(engine, agent)
        (_, started), *_ = await store.facts(turn.id)
    assert isinstance(started, f.TurnStarted)
    assert started.limits.cap == 9
    assert [(bound.bound, bound.value) for bound in explained.bounds] == [
        (bound.name, bound.value) for bound in bounds_of(started.limits)
    ]
    assert {bound.bound: bound.set_by for bound in explained.bounds if bound.set_by != "default"} == {
        "cap": "ceiling",
        "steps that may call tools": "ceiling",
        "model calls": "ceiling",
        "nudges": "configuration",
        "attempts a phase": "agent",
    }


def test_printed_certificate_has_a_line_for_each_bound() -> None:
    helper = agent_tool(Agent(name="Helper", description="Helps."))
    explained = explain(Engine(model=ScriptedModel("Done."), tools=[helper]), Agent(name="Tester", steps=5))
    first, cap, *rest = str(explained).splitlines()
    assert first == "A turn of agent 'Tester' is bounded by:"
    assert cap == "  cap: 5 (set by: agent; min(steps, ceiling) = min(5, 200))"
    assert "  cost: off (set by: default; cost)" in rest
    assert rest[-1] == "  sub-agents: Helper"
    assert len(rest) == len(explained.bounds) + 1


def test_engine_explains_only_agents() -> None:
    with pytest.raises(ConfigError, match="is not an agent"):
        explain(Engine(model=ScriptedModel("Done.")), "Tester")  # type: ignore[arg-type]


# The schema.

TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}

#: The check of each keyword in our schema: (the keyword's value, the value, the surrounding schema).
ASKS: Final[dict[str, Callable[[Any, Any, Values], bool]]] = {
    "$ref": lambda says, value, _: is_valid(value, FROZEN["$defs"][says.rpartition("/")[2]]),
    "type": lambda says, value, _: type(value) in TYPES[says],
    "enum": lambda says, value, _: value in says,
    "const": lambda says, value, _: value == says,
    "pattern": lambda says, value, _: re.search(says, value) is not None,
    "anyOf": lambda says, value, _: any(is_valid(value, choice) for choice in says),
    "items": lambda says, value, _: all(is_valid(item, says) for item in value),
    "required": lambda says, value, _: set(says) <= set(value),
    "properties": lambda says, value, _: all(is_valid(value[name], says[name]) for name in says if name in value),
    "additionalProperties": lambda _, value, schema: type(value) is dict and set(value) <= set(schema["properties"]),
    **dict.fromkeys(("$defs", "$schema", "title", "description", "default"), lambda *_: True),
}


def is_valid(value: Any, schema: Values = FROZEN) -> bool:  # noqa: ANN401 (any JSON value)
    """Whether a value is what the frozen schema describes, read without pydantic. Stops at a keyword it cannot read."""
    return all(ASKS[keyword](says, value, schema) for keyword, says in schema.items())


def test_schema_is_frozen() -> None:
    """A change of the format needs another version. `turnwright explain --schema` writes the file."""
    assert Certificate.model_json_schema() == FROZEN
    assert FROZEN["properties"]["schema"]["const"] == SCHEMA == "turnwright/certificate/2"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), "turnwright/certificate/1"),
        (("chart", "digest"), "0"),
        (("chart", "rows"), "45"),
        (("bounds", 0, "set_by"), "somebody"),
        (("bounds", 0, "settings", 0, "set_by"), "ceiling"),
        (("bounds", 0, "exactness"), "roughly"),
        (("bounds", 0, "reason"), "bored"),
        (("bounds", 0, "value"), "5"),
        (("bounds", 0, "more"), 1),
        (("bounds", 0), {}),
    ],
)
def test_schema_and_reader_refuse_the_same_data(path: tuple[str | int, ...], value: object) -> None:
    data: Any = certificate(Agent(name="Tester")).to_json()
    assert is_valid(data)
    *way, last = path
    spoiled = data
    for step in way:
        spoiled = spoiled[step]
    spoiled[last] = value
    assert not is_valid(data)
    with pytest.raises(ValidationError):
        Certificate.from_json(data)
