"""Hooks and guardrails that an agent file names."""

import sys
from pathlib import Path

import pytest

from turnwright import Engine, Outcome
from turnwright.agents.markdown import AgentFileError, parse_agents
from turnwright.model import ScriptedModel

POLICY = """
from turnwright import Hooks, Trip, after_model, input_guardrail

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


def test_names_are_imported(policy: str) -> None:
    (agent,) = parse_agents(text(f"[{policy}:strict, {policy}:Audit]", f"[{policy}:on_topic]"))
    assert [type(one).__name__ for one in agent.hooks] == ["after_model", "Audit"]
    assert len(agent.guardrails) == 1
    assert agent.to_journal(deps=False)["needs"] == ["guardrails", "hooks"]


def test_the_function_that_chooses_tools_is_imported(policy: str) -> None:
    (agent,) = parse_agents(f"---\nname: Clerk\nprepare_tools: {policy}:choose\n---\nBe kind.\n")
    assert agent.to_journal(deps=False)["needs"] == ["prepare_tools"]
    for spec, problem in (
        (f"{policy}:nothing", "is no function, but 3"),
        ("3", "must be a name"),
        ("no:x", "imported"),
    ):
        with pytest.raises(AgentFileError, match=problem):
            parse_agents(f"---\nname: Clerk\nprepare_tools: {spec}\n---\nBe kind.\n")


@pytest.mark.anyio
async def test_they_act(policy: str) -> None:
    (agent,) = parse_agents(text("[]", f"{policy}:on_topic"))
    turn = await Engine(model=ScriptedModel("Sunny.")).run(agent, "How is the weather?")
    assert (turn.outcome, turn.error) == (Outcome.FAILED, "on_topic: off topic")


@pytest.mark.parametrize(
    ("hooks", "problem"),
    [
        ("[nowhere_at_all:x]", "cannot be imported: there is no module 'nowhere_at_all'"),
        ("[named_policy:other]", "cannot be imported: AttributeError"),
        ("[named_policy:nothing]", "is no hook, but 3"),
        ("[named_policy:on_topic]", "is no hook, but "),
        ("[named_policy]", "must be a name such as myapp.policy:cap"),
        ("[3]", "must be a name such as myapp.policy:cap"),
        ("{a: b}", "must be a list of names such as"),
    ],
)
def test_mistakes_are_errors_with_their_line(policy: str, hooks: str, problem: str) -> None:
    with pytest.raises(AgentFileError) as raised:
        parse_agents(text(hooks.replace("named_policy", policy)))
    (found,) = raised.value.problems
    assert found.line == 3
    assert problem in str(found)
