"""Hooks and guardrails that an agent file names."""

import sys
from pathlib import Path

import pytest

from turnwright import Engine, Outcome
from turnwright.agents.markdown import AgentFileError, parse_agents
from turnwright.model import ScriptedModel

POLICY = """
from dataclasses import dataclass

from turnwright import Hooks, Retry, Trip, after_model, input_guardrail

@after_model
async def strict(ctx, response):
    pass

class Audit(Hooks):
    async def on_start(self, ctx):
        pass

@input_guardrail(run_in_parallel=False)
async def on_topic(ctx, prompt):
    return Trip("off topic") if "weather" in prompt else None

def choose(ctx, tools):
    return tools[:1]

@dataclass
class Invoice:
    total: int

def positive(ctx, invoice):
    if invoice.total < 1:
        raise Retry("must be positive")
    return invoice

class Odd:
    def __init__(self, value):
        self.value = value

nothing = 3
"""


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "named_policy.py").write_text(POLICY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "named_policy", raising=False)
    return "named_policy"


def text(hooks: str, guardrails: str = "[]") -> str:
    return f"---\nname: Clerk\nhooks: {hooks}\nguardrails: {guardrails}\n---\nBe kind.\n"


def test_named_hooks_and_guardrails_are_imported(policy: str) -> None:
    (agent,) = parse_agents(text(f"[{policy}:strict, {policy}:Audit]", f"[{policy}:on_topic]"))
    assert [type(hook).__name__ for hook in agent.hooks] == ["after_model", "Audit"]
    assert len(agent.guardrails) == 1
    assert agent.to_journal(deps=False)["needs"] == ["guardrails", "hooks"]


def test_prepare_tools_function_is_imported(policy: str) -> None:
    (agent,) = parse_agents(f"---\nname: Clerk\nprepare_tools: {policy}:choose\n---\nBe kind.\n")
    assert agent.to_journal(deps=False)["needs"] == ["prepare_tools"]
    for spec, problem in (
        (f"{policy}:nothing", "is not a function, but 3"),
        ("3", "must be a name"),
        ("no:x", "imported"),
    ):
        with pytest.raises(AgentFileError, match=problem):
            parse_agents(f"---\nname: Clerk\nprepare_tools: {spec}\n---\nBe kind.\n")


@pytest.mark.anyio
async def test_output_type_and_validators_are_imported(policy: str) -> None:
    keys = f"output_type: {policy}:Invoice\noutput_validators: [{policy}:positive]\noutput_mode: prompt"
    (agent,) = parse_agents(f"---\nname: Clerk\n{keys}\n---\nBe kind.\n")
    assert agent.to_journal(deps=False)["needs"] == ["output_type", "output_validators"]
    model = ScriptedModel('{"total": 0}', '{"total": 4}')
    turn = await Engine(model=model).run(agent, "What do I owe?")
    assert (repr(turn.output), turn.steps) == ("Invoice(total=4)", 2)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("output_type: named_policy:nothing", "is not a type of answers: Unable to generate"),
        ("output_type: named_policy:Odd", "is not a type of answers: Unable to generate"),
        ("output_type: named_policy:positive", "is not a type, but <function positive"),
        ("output_type: named_policy:Missing", "cannot be imported: AttributeError"),
        ("output_type: Invoice", "must be a name such as"),
        ("output_type: [named_policy:Invoice]", "must be a name such as"),
        ("output_validators: [named_policy:nothing]", "is not a function, but 3"),
    ],
)
def test_wrong_output_type_is_an_error_with_a_line(policy: str, keys: str, problem: str) -> None:
    with pytest.raises(AgentFileError) as raised:
        parse_agents(f"---\nname: Clerk\n{keys.replace('named_policy', policy)}\n---\nBe kind.\n")
    (reported_problem,) = raised.value.problems
    assert (reported_problem.line, problem in reported_problem.message) == (3, True), reported_problem.message


@pytest.mark.anyio
async def test_imported_hooks_and_guardrails_act(policy: str) -> None:
    (agent,) = parse_agents(text("[]", f"{policy}:on_topic"))
    turn = await Engine(model=ScriptedModel("Sunny.")).run(agent, "How is the weather?")
    assert (turn.outcome, turn.error) == (Outcome.FAILED, "on_topic: off topic")


@pytest.mark.parametrize(
    ("hooks", "problem"),
    [
        ("[nowhere_at_all:x]", "cannot be imported: there is no module 'nowhere_at_all'"),
        ("[named_policy:other]", "cannot be imported: AttributeError"),
        ("[named_policy:nothing]", "is not a hook, but 3"),
        ("[named_policy:on_topic]", "is not a hook, but "),
        ("[named_policy]", "must be a name such as myapp.policy:cap"),
        ("[3]", "must be a name such as myapp.policy:cap"),
        ("{a: b}", "must be a list of names such as"),
    ],
)
def test_mistakes_are_errors_with_their_line(policy: str, hooks: str, problem: str) -> None:
    with pytest.raises(AgentFileError) as raised:
        parse_agents(text(hooks.replace("named_policy", policy)))
    (reported_problem,) = raised.value.problems
    assert reported_problem.line == 3
    assert problem in str(reported_problem)
