"""`docs/check_certificate.py` accepts every certificate of ours, and refuses each in which one number was changed."""

import copy
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright import Agent, Compact, Limits, ModelSettings, Tool, TurnContext, agent_tool, output_guardrail, tool
from turnwright.driver.subagents import subagent_tools
from turnwright_proof.certificates.certificate import Certificate, certificate
from turnwright_proof.certificates.code_reader import code_reader
from turnwright_states.chart import VERSION

PROGRAM: Final = Path(__file__).parents[2] / "docs" / "check_certificate.py"
Check = Callable[[object], list[str]]
Path_ = tuple[str | int, ...]
check: Final[Check] = runpy.run_path(str(PROGRAM))["check"]


@tool(read_only=False, needs_approval=True, retries=4)
def deploy() -> str:
    """Deploy."""
    return ""


@tool(read_only=True)
def look() -> str:
    """Look."""
    return ""


@output_guardrail
def polite(_ctx: TurnContext, _text: str) -> None: ...


def team(**more: object) -> Certificate:
    """A lead, an editor that it calls, a reader that both call, and a finder that only the reader calls."""
    finder = Agent(name="Finder", description="Finds.", steps=4, max_retries=0, tools=())
    reader = Agent(name="Reader", description="Reads.", steps=9, concluding="within", tools=("look", "Finder"))
    editor = Agent(
        name="Editor",
        description="Edits.",
        budget=Limits(tool_calls=11, tokens=50_000),
        compaction=Compact(at_tokens=9, max_compactions=2),
        model_settings=ModelSettings(max_tokens=700),
        tools=("deploy", "Reader"),
    )
    lead = Agent.model_validate(
        {"name": "Lead", "steps": 500, "budget": {"tool_calls": 40, "cost": 2.5, "seconds": 60}, "nudges": 1} | more
    )
    tools: dict[str, Tool] = {tool.name: tool for tool in (deploy, look, *map(agent_tool, (editor, reader, finder)))}

    def tools_for(agent: Agent) -> list[Tool]:
        return [tool for name, tool in tools.items() if agent.may_use(name, delegates=tool.delegates)]

    return certificate(
        lead,
        Limits(ceiling=90, doom_response="ask"),
        subagent_tools=lambda agent: subagent_tools(tools, agent),
        code_of=code_reader(tools_for, (), (polite,)),
    )


def alone() -> Certificate:
    """An agent whose tools are unknown."""
    return certificate(Agent(name="Tester", steps=5, max_retries=1, doom_threshold=None))


CERTIFICATES: Final = {"a team": team, "an agent alone": alone}


def numbers(data: object, path: Path_ = ()) -> Iterator[tuple[Path_, object]]:
    """Every number of a certificate, and every text with a digit, which is a number too."""
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from numbers(value, (*path, key))
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield path, data + 1
        yield path, data - 1
        yield path, data * 2 + 1
    elif isinstance(data, str):
        for match in re.finditer(r"\d+", data):
            yield path, f"{data[: match.start()]}{int(match[0]) + 1}{data[match.end() :]}"
    elif data is None:
        yield path, 7


def forged(data: Mapping[str, Any], path: Path_, value: object) -> dict[str, Any]:
    copied: Any = copy.deepcopy(data)
    *way, last = path
    node = copied
    for step in way:
        node = node[step]
    node[last] = value
    assert isinstance(copied, dict)
    return copied


def is_refused(data: object) -> bool:
    try:
        return bool(check(data))
    except ValueError:  # another format
        return True


@pytest.mark.parametrize("make", CERTIFICATES.values(), ids=CERTIFICATES)
def test_certificate_with_any_changed_number_is_refused(make: Callable[[], Certificate]) -> None:
    data = make().to_json()
    assert check(data) == []
    # No formula gives the time limit of a tool, so it is believed like its name.
    changes = [(path, value) for path, value in numbers(data) if path[-1] != "timeout"]
    assert len(changes) > 100
    assert [path for path, value in changes if not is_refused(forged(data, path, value))] == []


def parts(data: object, path: Path_ = ()) -> Iterator[Path_]:
    """Every part of a certificate, but single tools, hooks and guardrails: none of them has to be there."""
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            if not (path and path[-1] in ("tools", "hooks", "guardrails")):
                yield (*path, key)
            yield from parts(value, (*path, key))


@pytest.mark.parametrize("make", CERTIFICATES.values(), ids=CERTIFICATES)
def test_certificate_without_a_part_is_refused(make: Callable[[], Certificate]) -> None:
    data: Any = make().to_json()

    def without(path: Path_) -> object:
        copied = copy.deepcopy(data)
        node = copied
        for step in path[:-1]:
            node = node[step]
        del node[path[-1]]
        return copied

    assert [path for path in parts(data) if not is_refused(without(path))] == []


def test_certificate_with_other_forgeries_is_refused() -> None:
    data: Any = team().to_json()
    ghost = {**data["sub_agents"]["agents"][0], "tool": "Ghost", "depth": None, "calls": [], "code": None}
    for path, value in (
        (("bounds", 0, "set_by"), "agent"),
        (("bounds", 0, "settings", 0, "set_by"), "default"),
        (("bounds", 5, "exactness"), "exact"),
        (("bounds", 0, "reason"), "budget"),
        (("sub_agents", "agents", 0, "code", "tools", 0, "delegates"), True),
        (("sub_agents", "agents", 0, "calls"), []),
        (("sub_agents", "leases"), "as you like"),
        (("bounds", 9, "value"), True),
        (("agent",), 7),
        (("code", "typed"), 0),
        (("code", "tools"), {}),
        (("code", "hooks"), None),
        (("code", "hooks"), [{"name": "h", "on": "end"}]),
        (("code", "guardrails", 0, "checks"), "nothing"),
        (("code", "tools", 0, "tool"), None),
        (("code", "tools", 1), data["code"]["tools"][0]),
        (("code", "tools", 0, "read_only"), 0.0),
        (("code", "tools", 0, "delegates"), 0),
        (("code", "tools", 0, "asks"), "now and then"),
        (("code", "tools", 0, "returns_direct"), None),
        (("sub_agents", "calls"), [*data["sub_agents"]["calls"], "Reader"]),
        (("sub_agents", "agents"), [*data["sub_agents"]["agents"], ghost]),
    ):
        assert is_refused(forged(data, path, value)), path


own: Final = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.none() | st.integers(0, 300),
        "concluding": st.sampled_from(("after", "within")),
        "doom_threshold": st.none() | st.integers(2, 9),
        "doom_compare": st.sampled_from(("results", "calls")),
        "doom_response": st.sampled_from(("stop", "ask")),
        "max_retries": st.integers(0, 9),
        "max_calls_per_step": st.integers(1, 32),
        "conclude_seconds": st.floats(0.1, 600),
        "model_settings": st.builds(ModelSettings, max_tokens=st.none() | st.integers(1, 99)),
        "budget": st.none()
        | st.fixed_dictionaries(
            {}, optional={"tool_calls": st.integers(0, 99), "tokens": st.integers(1, 99), "cost": st.floats(0.1, 9)}
        ),
    },
)


@given(own)
def test_generated_certificates_are_accepted(settings: dict[str, Any]) -> None:
    data = team(**settings).to_json()
    assert check(data) == []
    assert check(json.loads(json.dumps(data))) == []


def test_program_knows_the_chart_of_the_release() -> None:
    """After a change of the rows: a line in `CHARTS` of the program, and the old one stays."""
    data = alone().to_json()
    charts = runpy.run_path(str(PROGRAM))["CHARTS"]
    chart = data["chart"]
    assert isinstance(chart, dict)
    assert charts[VERSION] == (chart["rows"], chart["digest"])
    with pytest.raises(ValueError, match="unknown here"):
        check(forged(data, ("chart",), {"version": 99, "rows": 1, "digest": "0"}))


def test_program_is_short_and_has_no_dependencies() -> None:
    text = PROGRAM.read_text("utf-8")
    assert len(text.splitlines()) <= 305
    assert re.findall(r"(?m)^\s*(?:import|from) (\w+)", text) == ["json", "sys", "pathlib"]


@pytest.mark.parametrize(
    ("text", "code", "output"),
    [
        (json.dumps(alone().to_json()), 0, "agent 'Tester': every bound follows from the settings\n"),
        (
            json.dumps(forged(alone().to_json(), ("bounds", 2, "value"), 11)),
            1,
            "agent Tester: model calls: value is 11, and the settings give 12\n",
        ),
        ("{}", 2, ""),
        ("no JSON", 2, ""),
        ('{"schema": "turnwright/certificate/2", "schema": "turnwright/certificate/2"}', 2, ""),
        ("[" * 100_000, 2, ""),
    ],
)
def test_exit_codes_equal_the_documentation(text: str, code: int, output: str) -> None:
    # Isolated: not even the packages of this environment are there.
    done = subprocess.run(
        [sys.executable, "-I", "-S", PROGRAM], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (code, output)
    assert done.stderr.startswith("cannot check: ") == (code == 2)


@pytest.mark.parametrize(
    ("field", "old", "new"), [("ceiling", 200, 201), ("max_calls_per_step", 32, 33), ("max_pauses", 100, 2**31)]
)
def test_limit_above_the_engine_maximum_is_refused(field: str, old: int, new: int) -> None:
    """Also if everything else follows from it."""
    text = json.dumps(alone().to_json())
    text = text.replace(f'"field": "{field}", "value": {old}', f'"field": "{field}", "value": {new}')
    text = text.replace(f"min(5, {old})", f"min(5, {new})") if field == "ceiling" else text
    text = re.sub(rf'"value": {old}(, "formula": "{field}")', rf'"value": {new}\1', text)
    assert check(json.loads(text)) == [f"agent Tester: {field} cannot be {new}"]
