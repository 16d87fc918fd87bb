"""opencode's agent files: what is read as it is meant there, what is noted, and every mistake with its line."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.agent import Agent
from turnwright.agents.markdown import AgentFileError, Problem
from turnwright.agents.opencode import load_opencode_agents, parse_opencode_agent
from turnwright.model.model_settings import ModelSettings
from turnwright_states import Limits

PATH = ".opencode/agent/review.md"


def read(front: str, body: str = "You review.") -> Agent:
    agent = parse_opencode_agent(f"---\ndescription: Reviews.\n{front}\n---\n\n{body}\n", PATH)
    assert agent is not None
    return agent


def mistakes(text: str) -> list[str]:
    with pytest.raises(AgentFileError) as raised:
        parse_opencode_agent(text, PATH)
    return [str(problem).removeprefix(PATH) for problem in raised.value.problems]


def notes(front: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.WARNING):
        read(front)
    return [record.getMessage().removeprefix(f"{PATH}:3: agent 'review': ") for record in caplog.records]


def may(agent: Agent, *tools: str) -> list[str]:
    return [tool for tool in tools if agent.may_use(tool)]


# What is read.


def test_file_name_names_the_agent_and_text_is_the_instructions() -> None:
    agent = read("mode: subagent\nmodel: anthropic/claude-x\nsteps: 5")
    assert agent == Agent(
        name="review",
        description="Reviews.",
        instructions="You review.",
        mode="subagent",
        model="anthropic/claude-x",
        steps=5,
    )


def test_written_name_goes_before_the_file_name() -> None:
    assert read("name: Reviewer").name == "Reviewer"


def test_agent_without_a_mode_is_primary_and_sub_agent() -> None:
    assert read("steps: 5").mode == "all"


def test_agent_without_description_is_no_sub_agent(caplog: pytest.LogCaptureFixture) -> None:
    agent = parse_opencode_agent("You review.", PATH)
    assert agent is not None
    assert (agent.mode, agent.instructions) == ("primary", "You review.")
    (record,) = caplog.records
    message = "description: is missing: no other agent can choose this one, so it is `mode: primary`"
    assert record.getMessage() == f"{PATH}:1: agent 'review': {message}"


def test_a_text_with_a_colon_needs_no_quotes() -> None:
    """opencode takes it so, and others write it so; the lines of what follows stay right."""
    agent = read("prompt: ''\nmodel: a/b:it's", "Text.")
    assert agent.model == "a/b:it's"
    text = "---\ndescription: Use this: it's good\nmode: all\nsteps: x\n---\n"
    assert mistakes(text) == [":4: agent 'review': steps: must be a whole number of at least 0, not 'x'"]


def test_windows_line_ends_and_a_byte_order_mark_are_accepted() -> None:
    agent = parse_opencode_agent("\ufeff---\r\ndescription: A\r\nsteps: 2\r\n---\r\nText.\r\n", PATH)
    assert agent == Agent(name="review", description="A", mode="all", steps=2, instructions="Text.")


def test_disabled_agent_is_left_out_despite_other_mistakes() -> None:
    assert parse_opencode_agent("---\ndisable: true\nsteps: many\ntemperature: 1\n---\n", PATH) is None
    assert read("disable: false").name == "review"


def test_a_prompt_in_the_front_matter_is_used_if_there_is_no_text(caplog: pytest.LogCaptureFixture) -> None:
    assert read("prompt: Look closely.", "").instructions == "Look closely."
    assert not caplog.records
    assert notes("prompt: Look closely.", caplog) == ["prompt: is ignored: the text below the front matter is used"]


# Tools.


def test_false_tool_is_taken_away_and_other_tools_stay() -> None:
    agent = read("tools:\n  bash: false\n  'mcp_*': false\n  mcp_ok: true")
    assert may(agent, "bash", "look", "mcp_a", "mcp_ok") == ["look", "mcp_ok"]


def test_false_star_leaves_only_named_tools() -> None:
    agent = read("tools:\n  '*': false\n  look: true\n  webfetch: true")
    assert may(agent, "bash", "look", "webfetch") == ["look", "webfetch"]
    assert agent.tools_needed == ()


def test_true_tools_change_nothing() -> None:
    assert read("tools:\n  bash: true\n  write: true").tools is None


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("read", "read_file"), ("list", "list_files"), ("grep", "search_files"), ("question", "ask_user_input")],
)
def test_opencode_tool_names_stand_for_our_tools(theirs: str, ours: str) -> None:
    assert may(read(f"tools: {{{theirs}: false}}"), theirs, ours, "look") == ["look"]


@pytest.mark.parametrize("front", ["tools: {write: false}", "permission: {edit: deny}"])
def test_edit_rule_covers_all_editing_tools(front: str) -> None:
    assert may(read(front), "edit", "write", "patch", "multiedit", "look") == ["look"]


def test_permission_goes_before_tools_and_the_last_rule_holds() -> None:
    agent = read("permission: {'*': deny, look: allow}\ntools: {bash: true, look: false}")
    assert may(agent, "bash", "look") == ["look"]


def test_permission_deny_alone_leaves_no_tool() -> None:
    assert may(read("permission: deny"), "bash", "read_file") == []


def test_tool_denied_for_some_uses_is_denied_for_all(caplog: pytest.LogCaptureFixture) -> None:
    front = "permission: {bash: {'*': allow, 'git push *': deny}}"
    assert notes(front, caplog) == ["permission.bash: is denied for all uses: rules for single uses are not supported"]
    assert may(read(front), "bash", "look") == ["look"]


@pytest.mark.parametrize("front", ["permission: {bash: ask}", "permission: {bash: {'*': ask, ls: allow}}"])
def test_permission_ask_is_ignored_with_a_note(front: str, caplog: pytest.LogCaptureFixture) -> None:
    assert notes(front, caplog) == [
        "permission.bash: `ask` is ignored: a tool itself decides whether it needs approval (`needs_approval`)"
    ]


@pytest.mark.parametrize(
    ("action", "changed"),
    [("ask", {"doom_response": "ask"}), ("deny", {"doom_response": "stop"}), ("allow", {"doom_threshold": None})],
)
def test_permission_doom_loop_sets_the_doom_loop_response(action: str, changed: dict[str, object]) -> None:
    agent = read(f"permission: {{doom_loop: {action}}}")
    assert (agent.overrides, agent.tools) == (changed, None)


# Sub-agents.


def write(folder: Path, **agents: str) -> Path:
    (folder / "agent").mkdir(parents=True, exist_ok=True)
    for name, front in agents.items():
        (folder / "agent" / f"{name}.md").write_text(f"---\ndescription: {name}.\n{front}\n---\n", encoding="utf-8")
    return folder


def calls(agent: Agent, *names: str) -> list[str]:
    return [name for name in names if agent.may_use(name, delegates=True)]


def test_permission_task_limits_the_callable_sub_agents(tmp_path: Path) -> None:
    front = "mode: primary\npermission: {task: {'*': deny, 'do-*': allow, do-harm: deny}}"
    write(tmp_path, build=front, **{"do-good": "mode: subagent", "do-harm": "mode: subagent", "look": "mode: subagent"})
    build = next(agent for agent in load_opencode_agents(tmp_path) if agent.name == "build")
    assert calls(build, "do-good", "do-harm", "look") == ["do-good"]
    assert may(build, "bash") == ["bash"]


def test_sub_agent_without_a_tool_name_is_not_listed(tmp_path: Path) -> None:
    write(tmp_path, lead="mode: primary\npermission: {task: allow}", look="mode: subagent", 日本="mode: subagent")
    lead = next(agent for agent in load_opencode_agents(tmp_path) if agent.name == "lead")
    assert lead.tools == ("*", "look")


@pytest.mark.parametrize("front", ["permission: {task: deny}", "tools: {task: false}"])
def test_task_denied_leaves_no_sub_agents(front: str, tmp_path: Path) -> None:
    write(tmp_path, build=f"mode: primary\n{front}", look="mode: subagent")
    build = next(agent for agent in load_opencode_agents(tmp_path) if agent.name == "build")
    assert (calls(build, "look"), may(build, "bash")) == ([], ["bash"])


def test_sub_agent_calls_only_other_allowed_agents(tmp_path: Path) -> None:
    write(tmp_path, plan="permission: {task: allow}\nmode: subagent", look="mode: subagent", build="mode: primary")
    agents = {agent.name: agent for agent in load_opencode_agents(tmp_path)}
    assert [calls(agents[name], "plan", "look") for name in ("plan", "look", "build")] == [
        ["look"],
        [],
        ["plan", "look"],
    ]


def test_opencode_model_settings_become_our_model_settings() -> None:
    agent = parse_opencode_agent("---\ndescription: d\ntemperature: 0.1\ntop_p: 1\n---\n", PATH)
    assert agent is not None
    assert agent.model_settings == ModelSettings(temperature=0.1, top_p=1)


def test_mistake_in_a_model_setting_has_a_line() -> None:
    with pytest.raises(AgentFileError, match=r":3: .*model_settings.temperature: must be greater than or equal to 0"):
        parse_opencode_agent("---\ndescription: d\ntemperature: -1\n---\n", PATH)


# What is noted.


@pytest.mark.parametrize(
    ("front", "note"),
    [
        ("variant: max", "variant: is ignored: the model's own setting applies"),
        ("options: {a: 1}", "options: are ignored: the model's own settings apply"),
        ("reasoningEffort: high", "reasoningEffort: is ignored: opencode passes it to the provider"),
    ],
)
def test_unsupported_key_is_noted_with_file_and_key(front: str, note: str, caplog: pytest.LogCaptureFixture) -> None:
    assert notes(front, caplog) == [note]


@pytest.mark.parametrize(
    "front",
    ["apiKey: sk-live-123", "headers: {Authorization: Bearer sk-live-123}", "seed: 0123", "headers: [1, {a: 0x123}]"],
)
def test_note_on_an_unsupported_key_leaves_out_the_value(front: str, caplog: pytest.LogCaptureFixture) -> None:
    """It may be somebody's secret, and it need not make sense."""
    key = front.partition(":")[0]
    assert notes(front, caplog) == [f"{key}: is ignored: opencode passes it to the provider"]
    assert not [record for record in caplog.records if "123" in record.getMessage()]


def test_display_keys_are_ignored_silently(caplog: pytest.LogCaptureFixture) -> None:
    """`color: #FF5733` without quotes is a comment, and says nothing."""
    assert notes("color: #FF5733\nhidden: true", caplog) == []


# What is wrong.


@pytest.mark.parametrize(
    ("front", "message"),
    [
        ("steps: 0", "steps: must be a whole number of at least 1, not 0"),
        ("steps: -1", "steps: must be a whole number of at least 1, not -1"),
        ("steps: true", "steps: must be a whole number of at least 0, not True"),
        ("steps: 2.5", "steps: must be a whole number of at least 0, not 2.5"),
        ("maxSteps: 0", "steps: must be a whole number of at least 1, not 0"),
        ("mode: sub", "mode: must be 'primary', 'subagent' or 'all', not 'sub'"),
        ("model: gpt", "model: must be `provider/model`, not 'gpt'"),
        ("model: /gpt", "model: must be `provider/model`, not '/gpt'"),
        ("model: 5", "model: must be text, not 5: put it in quotes"),
        ("tools: Read, Grep", "tools: must be a mapping such as `write: false`, not 'Read, Grep'"),
        ("tools: [{api_key: pony}]", "tools: must be a mapping such as `write: false`, not [{'api_key': '***'}]"),
        ("tools: {bash: no way}", "tools.bash: must be true or false, not 'no way'"),
        ("permission: never", "permission: must be `ask`, `allow` or `deny`, not 'never'"),
        ("permission: 5", "permission: must be `ask`, `allow` or `deny`, or a mapping of tools to them"),
        ("permission: {bash: {ls: yes}}", "permission.bash: must be `ask`, `allow` or `deny`, not True"),
        ("stpes: 5", "stpes: is unknown: did you mean `steps`?"),
        ("max_steps: 5", "max_steps: is unknown: did you mean `maxSteps`?"),
        ("temprature: 1", "temprature: is unknown: did you mean `temperature`?"),
        ("budget: 5", "budget: is not a key of opencode, which would ignore it: use AGENTS.md"),
        ("name: ''", "name: must not be blank, as '' is"),
        ("steps: 1\nsteps: 2", "steps: is given twice: line 3 has it too"),
        ("steps: [", "is not YAML: expected the node content, but found '<stream end>'"),
    ],
)
def test_a_mistake_is_reported_with_file_line_agent_and_field(front: str, message: str) -> None:
    (mistake,) = mistakes(f"---\ndescription: Reviews.\n{front}\n---\n")
    assert mistake.startswith(f":{3 + front.count(chr(10))}: agent '")
    assert message in mistake


def test_note_on_a_misspelled_key_leaves_out_the_value() -> None:
    """A value may be a secret, so YAML's message about it is dropped."""
    (mistake,) = mistakes("---\ndescription: Reviews.\noption: {apiKey: 0x123}\n---\n")
    assert mistake == ":3: agent 'review': option: is unknown: did you mean `options`?"


def test_a_sub_agent_without_a_description_is_a_mistake() -> None:
    (mistake,) = mistakes("---\nmode: subagent\n---\n")
    assert mistake == ":2: agent 'review': mode: 'subagent' needs a `description`: models choose a sub-agent by it"


def test_prompt_with_a_file_reference_is_refused() -> None:
    (mistake,) = mistakes("---\ndescription: A.\nprompt: '{file:./a.txt}'\n---\n")
    assert mistake == ":3: agent 'review': prompt: must be text: write it below the front matter"


def test_unclosed_front_matter_is_a_mistake() -> None:
    (mistake,) = mistakes("---\ndescription: A.\n")
    assert mistake == ":1: the front matter that starts here is not closed: write a line `---` below its keys"


def test_steps_above_the_ceiling_are_capped() -> None:
    """With a lower ceiling an agent's steps are cut, as everywhere."""
    agent = parse_opencode_agent("---\nsteps: 500\n---\n", PATH, limits=Limits.preset("opencode", ceiling=10))
    assert agent is not None
    assert agent.limits_for(Limits.preset("opencode", ceiling=10)).cap == 10


@given(st.text() | st.lists(st.sampled_from(["---\n", "steps: 1\n", "a: b: c\n", "tools:\n", " x: no\n"])).map("".join))
def test_any_text_is_an_agent_or_an_agent_file_error(text: str) -> None:
    for whole in (text, f"---\n{text}\n---\n"):
        problems: tuple[Problem, ...] | None = None
        try:
            parse_opencode_agent(whole, PATH)
        except AgentFileError as error:
            problems = error.problems
        assert problems is None or problems
        assert not any("\n" in str(problem) for problem in problems or ())


# Folders.


def test_later_folder_replaces_an_agent_of_the_same_name(tmp_path: Path) -> None:
    """So does one that disables it."""
    home = write(tmp_path / "home", a="steps: 1", b="steps: 1", c="steps: 1")
    project = write(tmp_path / "project", a="steps: 2", b="disable: true")
    agents = load_opencode_agents(home, project)
    assert {agent.name: agent.steps for agent in agents} == {"a": 2, "c": 1}


def test_agents_in_folders_below_are_called_by_their_path(tmp_path: Path) -> None:
    deep = tmp_path / "agents" / "team"
    deep.mkdir(parents=True)
    (deep / "look.md").write_text("---\ndescription: Looks.\n---\n", encoding="utf-8")
    (agent,) = load_opencode_agents(tmp_path)
    assert (agent.name, agent.tool_name) == ("team/look", "team_look")


def test_a_folder_without_agents_has_none(tmp_path: Path) -> None:
    assert load_opencode_agents(tmp_path, tmp_path / "missing") == []


def test_mistakes_of_all_files_are_reported(tmp_path: Path) -> None:
    write(tmp_path, a="steps: 0", b="mode: no", c="name: d", d="steps: 1")
    (tmp_path / "agent" / "e.md").write_bytes(b"---\n\xff")
    with pytest.raises(AgentFileError) as raised:
        load_opencode_agents(tmp_path)
    messages = [str(problem).removeprefix(f"{tmp_path / 'agent'}/") for problem in raised.value.problems]
    assert [message.split(": must")[0].split(": is not")[0].split(" has this")[0] for message in messages] == [
        "a.md:3: agent 'a': steps",
        "b.md:3: agent 'b': mode",
        f"d.md:1: agent 'd': name: {tmp_path / 'agent' / 'c.md'}",
        "e.md:2",
    ]


@pytest.mark.parametrize("deep", ["[" * 60_000, "{" * 60_000, "[{" * 30_000, "- " * 30_000, "a: b: " + "[" * 60_000])
def test_deep_nesting_is_refused_before_parsing(deep: str) -> None:
    """PyYAML's time grows with the square of the depth: 4 KB took two seconds, and this would take minutes."""
    (problem,) = mistakes(f"---\noptions: {deep}\n---\nYou review.")
    assert "is nested more than 8 deep" in problem or "is not YAML" in problem


def test_brackets_in_a_text_are_letters() -> None:
    assert read("color: '[[[[[[[[[['", body="[" * 1000).instructions == "[" * 1000
