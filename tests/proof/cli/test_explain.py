"""`turnwright explain`: every bound of a turn with its value, its formula, who set it, and how exact it is."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from turnwright import Agent
from turnwright.agents.bounds import EXACTNESS
from turnwright.tools import builtin_tools
from turnwright_proof.certificates.certificate import Certificate, certificate
from turnwright_proof.certificates.code_reader import code_reader
from turnwright_states import REASONS

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli


def test_certificate_of_an_agent_is_printed_as_json(cli: "Cli") -> None:
    """It is the very certificate that an embedder gets, and nothing else is printed."""
    file = cli.agent("steps: 5", "concluding: within", "max_retries: 1", "budget: {tool_calls: 9, seconds: 60}")
    (data,) = cli.run("explain", "--agents", file, "--json").events
    agent = Agent.model_validate(
        {
            "name": "Tester",
            "instructions": "Test well.",
            "steps": 5,
            "concluding": "within",
            "max_retries": 1,
            "budget": {"tool_calls": 9, "seconds": 60},
        }
    )
    code = code_reader(lambda _: builtin_tools(Path()))
    assert Certificate.from_json(data) == certificate(agent, code_of=code)
    assert (data["schema"], data["agent"]) == ("turnwright/certificate/2", "Tester")
    assert data["bounds"][0] == {
        "bound": "cap",
        "value": 5,
        "formula": "min(steps, ceiling) = min(5, 200)",
        "set_by": "agent",
        "field": "steps",
        "settings": [
            {"field": "steps", "value": 5, "set_by": "agent"},
            {"field": "ceiling", "value": 200, "set_by": "default"},
        ],
        "exactness": "exact",
        "exactness_means": "never exceeded",
        "reason": "step_cap",
    }


def test_printed_columns_equal_the_certificate(cli: "Cli") -> None:
    file = cli.agent("steps: 5", "budget: {tokens: 1234567, cost: 0.5}")
    text, as_json = cli.each(["explain", "--agents", file], ["explain", "--agents", file, "--json"])
    lines, bounds = text.out.splitlines(), [*as_json.last["bounds"], as_json.last["reply"]]
    head = next(line for line in lines if line.startswith("bound"))
    assert head.split("  ")[0] == "bound"
    at = [head.index(name) for name in ("bound", "value", "set by", "exactness", "formula")]
    table = lines[lines.index(head) + 1 :][: len(bounds)]
    for line, bound in zip(table, bounds, strict=True):
        cells = [line[start:end].strip() for start, end in zip(at, [*at[1:], None], strict=True)]
        other_settings = ", ".join(f"{setting['field']}: {setting['set_by']}" for setting in bound["settings"][1:])
        value = "off" if bound["value"] is None else str(bound["value"]).removesuffix(".0")
        source = f"{bound['set_by']} ({other_settings})" if other_settings else bound["set_by"]
        assert cells == [bound["bound"], value, source, bound["exactness"], bound["formula"]]
    assert "1234567" in text.out
    assert f"Chart 4, 75 rows, SHA-256 {as_json.last['chart']['digest']}" in lines
    assert all(f"{exactness}: {means}" in lines for exactness, means in EXACTNESS.items())


def test_reasons_for_ending_are_explained_with_advice(cli: "Cli") -> None:
    result = cli.run("explain", "--steps", "0")
    assert (result.code, result.err) == (0, "")
    assert "min(steps, ceiling) = min(0, 200)" in result.out
    assert "(allowance + 1) x (1 + max_retries) = (0 + 1) x (1 + 3)" in result.out
    for reason, meaning in REASONS.items():
        assert f"{reason} " in result.out
        assert f"{meaning.means} {meaning.next}" in result.out


def test_flag_precedes_the_configuration_file(cli: "Cli") -> None:
    cli.agent("steps: 5")
    command = ["explain", "--agent", "Tester", "--json"]
    configured, changed, above = cli.each(command, [*command, "--steps", "7"], [*command, "--steps", "500"])
    caps = [
        (done.last["bounds"][0]["value"], done.last["bounds"][0]["set_by"]) for done in (configured, changed, above)
    ]
    assert caps == [(5, "agent"), (7, "configuration"), (200, "ceiling")]


def test_tool_timeout_flag_precedes_the_file(cli: "Cli") -> None:
    file = cli.agent("tool_timeout: 60")
    output = cli.run("explain", "--agents", file, "--tool-timeout", "20").out
    (line,) = (line for line in output.splitlines() if line.startswith("seconds of a tool call"))
    assert line.split()[5:7] == ["20", "flag"]


def test_printed_schema_equals_the_frozen_schema(cli: "Cli") -> None:
    assert json.loads(cli.run("explain", "--schema").out) == Certificate.model_json_schema()


def test_tools_unavailable_to_the_agent_are_named(cli: "Cli") -> None:
    cli.agent("tools: [stock, read_file]")
    result = cli.run("explain", "--agent", "Tester")
    assert result.code == 0
    assert result.err.startswith("turnwright: unknown tools: stock: name their module with --tools. ")


def test_turn_explanation_names_the_show_command(cli: "Cli") -> None:
    done = cli.run("explain", "a1b2c3")
    assert (done.code, done.out) == (2, "")
    assert "`turnwright show a1b2c3` shows a turn" in " ".join(done.err.split())
