"""Templates in the instructions of Markdown agents: their names, their mistakes, and the text that is sent."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright import Agent, ConfigError, Engine, Outcome, TurnContext, agent_tool
from turnwright.agents.markdown import AgentFileError, parse_agents
from turnwright.agents.opencode import load_opencode_agents
from turnwright.agents.template import mistakes, render_template
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_states import facts as f

CONTEXT = TurnContext(
    turn_id="t1", agent="Clerk", session="s", step=2, metadata={"user": "Ann", "org": {"name": "ACME", "n": [1]}}
)


def agent(body: str, front: str = "") -> Agent:
    (agent,) = parse_agents(f"---\nname: Clerk\n{front}---\n\n{body}")
    return agent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You serve {{ metadata.user }}.", "You serve Ann."),
        ("{{metadata.org.name}} {{ metadata.org.n }}", "ACME [1]"),
        ("{{ agent }} {{ session }} {{ turn_id }} {{ step }}", "Clerk s t1 2"),
        (r"a \{{ b }} {{ step }}", "a {{ b }} 2"),
        ("no braces", "no braces"),
    ],
)
def test_names_stand_for_values_of_the_turn(text: str, expected: str) -> None:
    assert render_template(text, CONTEXT) == expected


def test_mistakes_are_errors_with_their_line() -> None:
    with pytest.raises(AgentFileError) as raised:
        parse_agents("---\nname: Clerk\nsteps: 3\n---\n\n\nYou serve\n{{ user }} and\n{{ metadata.user\n")
    assert [(problem.line, problem.field) for problem in raised.value.problems] == [
        (8, "instructions"),
        (9, "instructions"),
    ]
    assert "`{{ user }}` is unknown: write one of metadata.KEY, session, agent, turn_id, step" in str(raised.value)
    assert "`{{` has no `}}` in its line" in str(raised.value)


def test_agent_of_a_file_is_a_template_only_with_braces() -> None:
    assert agent("You serve {{ agent }}.").template
    assert not agent("You serve.").template
    assert agent("Write {{ jinja }}.", "template: false\n").instructions == "Write {{ jinja }}."
    assert not Agent(name="Clerk", instructions="{{ agent }}").template, "code writes template=True"


def test_the_files_of_opencode_have_no_templates(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "clerk.md").write_text("---\ndescription: d\n---\nWrite {{ jinja }}.")
    (agent,) = load_opencode_agents(tmp_path)
    assert (agent.template, agent.instructions) == (False, "Write {{ jinja }}.")


@pytest.mark.anyio
async def test_the_text_is_journaled_once_and_sent_again_after_a_crash() -> None:
    store, model = MemoryStore(), ScriptedModel(asks_for(("look", {})), "Done.")
    engine = Engine(model=model, store=store)
    clerk = agent("You serve {{ metadata.user }}.")
    turn = await engine.run(clerk, "hi", metadata={"user": "Ann"})
    assert turn.outcome is Outcome.FINISHED
    assert {request.messages[0].text for request in model.requests} == {"You serve Ann."}
    prepared = [fact for _, fact in await store.facts(turn.id) if isinstance(fact, f.RequestPrepared)]
    assert [fact.instructions for fact in prepared] == ["You serve Ann."]
    assert clerk.to_journal(deps=False)["template"] is True, "another process renders the same"


@pytest.mark.anyio
async def test_a_turn_does_not_start_without_the_metadata() -> None:
    engine = Engine(model=ScriptedModel("Done."))
    with pytest.raises(ConfigError, match=r"the turn's metadata have no 'user': give it with run\(\.\.\., metadata"):
        await engine.run(agent("You serve {{ metadata.user }}."), "hi")
    assert await engine.turns() == []


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["deps", "usage", "__class__", "nope"])
async def test_a_template_in_code_has_the_same_names(name: str) -> None:
    engine = Engine(model=ScriptedModel("Done."))
    clerk = Agent(name="Clerk", template=True, instructions=f"Hello.\nYou serve {{{{ {name} }}}}.")
    with pytest.raises(ConfigError, match=rf"the instructions: line 2: `{{{{ {name} }}}}` is unknown: write one of"):
        await engine.run(clerk, "hi")
    with pytest.raises(ConfigError, match="is unknown"):
        render_template(clerk.fixed_instructions or str(clerk.instructions), CONTEXT)


@pytest.mark.anyio
async def test_sub_agent_has_the_metadata_of_the_caller() -> None:
    (helper,) = parse_agents(
        "---\nname: Helper\ndescription: helps\nmode: subagent\n---\nYou help {{ metadata.user }}."
    )
    model = ScriptedModel(asks_for(("Helper", {"prompt": "go"})), "I help.", "Done.")
    engine = Engine(model=model, tools=[agent_tool(helper)])
    turn = await engine.run(Agent(name="Lead"), "hi", metadata={"user": "Ann"})
    assert turn.text == "Done."
    assert model.requests[1].messages[0].text == "You help Ann."


@given(st.text(alphabet="{}\\ \nam.x", max_size=30))
def test_a_text_without_mistakes_can_be_rendered(text: str) -> None:
    if not list(mistakes(text)):
        assert isinstance(render_template(text, TurnContext(turn_id="t", metadata={"m": 1})), str)
