"""`turnwright explain`: every bound of a turn with its value and its formula."""

from typing import TYPE_CHECKING

from turnwright_states import REASONS

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


def test_the_bounds_of_an_agent_as_json(cli: "Cli") -> None:
    file = cli.agent("steps: 5", "concluding: within", "max_retries: 1", "budget: {tool_calls: 9, seconds: 60}")
    (said,) = cli.run("explain", "--agents", file, "--json").events
    assert said["agent"] == "Tester"
    bounds = {bound.pop("bound"): bound for bound in said["bounds"]}
    values = {
        "cap": 5,
        "steps that may call tools": 4,
        "model calls": 10,
        "tool calls": 9,
        "tokens": None,
        "seconds": 60,
    }
    assert {name: bounds[name]["value"] for name in values} == values
    assert bounds["model calls"]["formula"] == "(allowance + 1) x (1 + max_retries) = (4 + 1) x (1 + 1)"
    assert bounds["cap"] == {
        "value": 5,
        "formula": "min(steps, ceiling) = min(5, 200)",
        "exactness": "exact",
        "setting": "steps",
        "reason": "step_cap",
    }


def test_what_ends_a_turn_is_told_with_what_to_do_then(cli: "Cli") -> None:
    said = cli.run("explain", "--steps", "0")
    assert (said.code, said.err) == (0, "")
    assert "min(steps, ceiling) = min(0, 200)" in said.out
    assert "(allowance + 1) x (1 + max_retries) = (0 + 1) x (1 + 3)" in said.out
    for reason, meaning in REASONS.items():
        assert f"{reason} " in said.out
        assert f"{meaning.means} {meaning.next}" in said.out


def test_the_flag_goes_before_the_file(cli: "Cli") -> None:
    cli.agent("steps: 5")
    named, changed = cli.each(
        ["explain", "--agent", "Tester", "--json"], ["explain", "--agent", "Tester", "--steps", "7", "--json"]
    )
    assert (named.last["bounds"][0]["value"], changed.last["bounds"][0]["value"]) == (5, 7)
