"""Agent files: what is an agent and what is Markdown, and every mistake with its line."""

import os
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.secrets_made import SECRETS

from turnwright.agent import Agent
from turnwright.agents.front_matter import MAX_BYTES
from turnwright.agents.markdown import MAX_AGENTS, AgentFileError, Problem, find_agent, load_agents, parse_agents
from turnwright.errors import ConfigError
from turnwright.model.model_settings import ModelSettings
from turnwright_states import Limits

EXAMPLE = Path(__file__).parents[3] / "examples" / "AGENTS.md"
FORM = "write a line `---`, then `name: ...` and other keys, then a line `---`, then the instructions"


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(AgentFileError) as raised:
        parse_agents(text)
    assert str(raised.value) == "\n".join(map(str, raised.value.problems))
    return raised.value.problems


def read(text: str) -> tuple[list[Agent], tuple[Problem, ...]]:
    try:
        return parse_agents(text), ()
    except AgentFileError as error:
        return [], error.problems


def agent(front: str, body: str = "") -> Agent:
    (parsed_agent,) = parse_agents(f"---\nname: A\n{front}\n---\n{body}")
    return parsed_agent


# What is read.


def test_file_may_hold_a_single_agent() -> None:
    text = "---\nname: Refactorer\nsteps: 5\n---\n\nYou refactor.\n\nCarefully.\n\n"
    assert parse_agents(text) == [Agent(name="Refactorer", steps=5, instructions="You refactor.\n\nCarefully.")]


def test_a_file_with_several_agents_keeps_their_order() -> None:
    text = "---\nname: B\nsteps: 5\n---\nYou are B.\n\n---\nname: A\nsteps: 20\n---\nYou are A.\n"
    assert parse_agents(text) == [
        Agent(name="B", steps=5, instructions="You are B."),
        Agent(name="A", steps=20, instructions="You are A."),
    ]


def test_every_field_can_be_written() -> None:
    front = """
description: 'Plans: carefully'
steps: 20
budget: {tool_calls: 60, tokens: 1_000, cost: 0.5, seconds: null}
tools: [read_file, list_files]
model: gpt-5-mini
repeatable_steps: true
conclude_prompt: |
  Say what you did.
  Say what is left.
concluding: within
max_calls_per_step: 4
doom_threshold: 4
doom_response: ask
nudges: 1
max_retries: 0
max_pauses: 2
conclude_seconds: 9
conclude_tokens: 99
"""
    assert agent(front, "You plan.") == Agent(
        name="A",
        description="Plans: carefully",
        instructions="You plan.",
        steps=20,
        budget=Limits(tool_calls=60, tokens=1000, cost=0.5, seconds=None),
        tools=("read_file", "list_files"),
        model="gpt-5-mini",
        repeatable_steps=True,
        conclude_prompt="Say what you did.\nSay what is left.\n",
        concluding="within",
        max_calls_per_step=4,
        doom_threshold=4,
        doom_response="ask",
        nudges=1,
        max_retries=0,
        max_pauses=2,
        conclude_seconds=9,
        conclude_tokens=99,
    )


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("steps: 0", Agent(name="A", steps=0)),
        ("steps: null", Agent(name="A", steps=None)),
        ("steps: ~", Agent(name="A", steps=None)),
        ("", Agent(name="A")),
        ("steps: +5", Agent(name="A", steps=5)),
        (
            "model_settings:\n  temperature: 0\n  thinking: off\n  cache: off\n  stop_sequences: [END]",
            Agent(
                name="A",
                model_settings=ModelSettings(temperature=0, thinking=False, cache="off", stop_sequences=("END",)),
            ),
        ),
        (
            "model_settings: {extra_body: {top_k: 5}}",
            Agent(name="A", model_settings=ModelSettings(extra_body={"top_k": 5})),
        ),
        ("budget: 50", Agent(name="A", budget=50)),
        ("budget: null", Agent(name="A", budget=None)),
        ("budget:\n  tool_calls: 0\n  tokens: null", Agent(name="A", budget=Limits(tool_calls=0, tokens=None))),
        ("budget: {}", Agent(name="A", budget=Limits())),
        ("tools: read_file, list_files", Agent(name="A", tools=("read_file", "list_files"))),
        ("tools: read_file", Agent(name="A", tools=("read_file",))),
        ("tools:\n- read_file", Agent(name="A", tools=("read_file",))),
        ("tools: []", Agent(name="A", tools=())),
        ("description: 2024-01-01", Agent(name="A", description="2024-01-01")),
        ("# a comment\nsteps: 5 # five", Agent(name="A", steps=5)),
    ],
)
def test_front_matter_sets_the_fields_of_the_agent(front: str, expected: Agent) -> None:
    assert agent(front) == expected


def test_a_byte_order_mark_and_windows_line_ends_are_accepted() -> None:
    text = "\ufeff---\r\nname: A\r\nsteps: 5\r\n---\r\nOne.\r\nTwo.\r\n\r\n---\r\nname: B\r\n---\r\n"
    assert parse_agents(text) == [Agent(name="A", steps=5, instructions="One.\nTwo."), Agent(name="B")]


def test_text_above_the_first_agent_is_for_readers() -> None:
    assert parse_agents("# Our agents\n\nRead this.\n\n---\nname: A\n---\nHi.") == [Agent(name="A", instructions="Hi.")]


def test_an_agent_without_instructions_may_be_followed_by_another() -> None:
    assert parse_agents("---\nname: A\n---\n---\nname: B\n---") == [Agent(name="A"), Agent(name="B")]


# Markdown that is not an agent.


@pytest.mark.parametrize(
    "body",
    [
        "Above.\n\n---\n\nBelow the rule.",
        "Above.\n\n---\n\n## Heading\n\nnames: many",
        "A heading\n---\nBelow the heading.",
        "Above.\n\n----\nname: B\n----\nBelow.",
        "Above.\n\n***\nname: B",
        "Above.\n\n    ---\n    name: B",
        "```\n---\nname: B\n---\n```\nBelow.",
        "```yaml\n\n---\nname: B\n---\nYou are B.\n```",
        "~~~\n```\n\n---\nname: B\n---\n~~~",
        "````\n```\n\n---\nname: B\n---\n````",
        "- In a list:\n\n    ```\n\n---\nname: B\n---\n    ```",
        "- ```\n\n---\nname: B\n---\n  ```\nBelow.",
        "A rule before code:\n\n---\n```\nname: B\n```",
        "---\n\nA rule first.",
        "Inline ``` is not a fence.\n\n---\n\nBelow.",
        "``` also ``` on a line of its own",
    ],
)
def test_rules_headings_and_code_belong_to_the_instructions(body: str) -> None:
    text = f"---\nname: A\n---\n{body}\n\n---\nname: Z\n---\nThe end."
    assert parse_agents(text) == [Agent(name="A", instructions=body), Agent(name="Z", instructions="The end.")]


LOOKS_LIKE_AN_AGENT = "this looks like an agent but is not read as one: leave a blank line above the `---`"
NOT_CLOSED = f"the front matter that starts here is not closed: {FORM}"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("---\nname: A\n---\nText.\n---\nname: B\n---\n", 5, LOOKS_LIKE_AN_AGENT),
        ("---\nname: A\n---\nText.\n\n---\n\nname: B\n---\n", 6, LOOKS_LIKE_AN_AGENT),
        ("---\nname: A\n---\nText.\n\n---\n# The second\nname: B\n---\n", 6, LOOKS_LIKE_AN_AGENT),
        ("---\nname: A\n---\nText.\n---\nsteps: 5\nname: B\n---\n", 5, LOOKS_LIKE_AN_AGENT),
        ("---\nname: A\nsteps: 5\n", 1, NOT_CLOSED),
        ("---\nname: A\n\nText.\n\n---\nname: B\n---\n", 1, NOT_CLOSED),
        ("---\nname: A\n---\nText.\n\n---\nname: B\n", 6, NOT_CLOSED),
        ("name: A\nsteps: 5\n---\nText.\n", 1, f"there is no `---` above this agent's keys: {FORM}"),
        ("---\nname: A\n---\n```\n\n---\nname: B\n---\n", 4, "this code fence has no end"),
    ],
)
def test_malformed_agent_is_an_error_and_never_becomes_text(text: str, line: int, message: str) -> None:
    (problem,) = problems(text)
    assert problem.line == line
    assert problem.message.startswith(message)


def test_rule_taken_for_an_agent_is_an_error_with_advice() -> None:
    first, second = problems("---\nname: A\n---\nText.\n\n---\nNote: be careful.\n\n---\n\nMore.")
    assert str(first) == (
        "AGENTS.md:6: name: is missing: every agent needs one; "
        "if this `---` is a rule in the text, leave a blank line below it"
    )
    assert (second.line, second.field) == (7, "Note")


# Mistakes in a file.

HOLDS = "the front matter must have keys such as `name: Refactorer`, but it has"
TAKEN = "AGENTS.md:2 has this name already: every agent needs one of its own"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"AGENTS.md: is empty: {FORM}"),
        (" \n\n", f"AGENTS.md: is empty: {FORM}"),
        ("\ufeff", f"AGENTS.md: is empty: {FORM}"),
        ("# How to work here\n\nRun the tests.\n", f"AGENTS.md: has no agent: {FORM}"),
        ("---\n---\nText.", f"AGENTS.md:1: {HOLDS} nothing"),
        ("---\n- name: A\n---\n", f"AGENTS.md:1: {HOLDS} a list"),
        ("---\nA\n---\n", f"AGENTS.md:1: {HOLDS} a single value"),
        ("---\nname: A\n---\n\n---\nname: A\n---\n", f"AGENTS.md:6: agent 'A': name: {TAKEN}"),
        ("x" * (MAX_BYTES + 1), "AGENTS.md: is larger than 1024 KiB: name an agent file, or split it"),
        (
            "---\nname: A\n---\n" * (MAX_AGENTS + 1),
            "AGENTS.md: has 257 agents, more than 256: split the file",
        ),
    ],
)
def test_file_without_usable_agents_is_refused_with_the_expected_form(text: str, message: str) -> None:
    assert [str(problem) for problem in problems(text)] == [message]


SECRET = SECRETS[0]
WHOLE = "must be a whole number of at least 0, not"
QUOTES = "(a text that contains `: ` or starts with a special character needs quotes)"
BUDGET = "tool_calls, tokens, cost, seconds"
TAGS = "YAML's tags (!) are not allowed: put a text that starts with one in quotes"
HALF = "must be text that UTF-8 can write, but its character 0 is half a surrogate pair"
RULE = "if this `---` is a rule in the text, leave a blank line below it"
ANCHORS = "YAML's anchors (&) and aliases (*) are not allowed: put a text that starts with one in quotes"


@pytest.mark.parametrize(
    ("front", "message"),
    [
        ("steps: -1", f"steps: {WHOLE} -1"),
        ("steps: true", f"steps: {WHOLE} True"),
        ("steps: 2.5", f"steps: {WHOLE} 2.5"),
        ("steps: 5.0", f"steps: {WHOLE} 5.0"),
        ("steps: many", f"steps: {WHOLE} 'many'"),
        ('steps: "5"', f"steps: {WHOLE} '5'"),
        ("steps: .nan", f"steps: {WHOLE} nan"),
        ("steps: -.inf", f"steps: {WHOLE} -inf"),
        ("steps: 1e3", f"steps: {WHOLE} '1e3'"),
        ("steps: 0o17", f"steps: {WHOLE} '0o17'"),
        ("steps: 010", "steps: must be a plain decimal number, not 010"),
        ("steps: 0x10", "steps: must be a plain decimal number, not 0x10"),
        ("steps: 0b11", "steps: must be a plain decimal number, not 0b11"),
        ("steps: 1:30", "steps: must be a plain decimal number, not 1:30"),
        ("budget: {cost: 1:30.5}", "budget.cost: must be a plain decimal number, not 1:30.5"),
        (f"steps: {'9' * 30}", f"steps: must be a number of at most 18 digits, not {'9' * 30}"),
        (f"steps: {'9' * 5000}", f"steps: must be a plain decimal number, not {'9' * 60}..."),
        ("steps: [5]", f"steps: {WHOLE} [5]"),
        ("steps:", "steps: has no value: write one, write `null`, or leave the key out"),
        ("tools:", "tools: has no value: write one, write `null`, or leave the key out"),
        ("budget: -1", f"budget: {WHOLE} -1"),
        ("budget: many", f"budget: must be a number of tool calls, or a mapping of {BUDGET}; not 'many'"),
        ("budget: {tokens: 0}", "budget.tokens: must be a whole number of at least 1, not 0"),
        ("budget: {cost: .nan}", "budget.cost: must be a number above 0, not nan"),
        ("budget: {token: 5}", "budget.token: is unknown: did you mean `tokens`?"),
        ("model_settings: {temprature: 0}", "model_settings.temprature: is unknown: did you mean `temperature`?"),
        ("compaction: {mode: summarize}", "compaction.at_tokens: is missing"),
        ("tools: {read_file: yes}", "tools: must be a list of names, not {'read_file': True}"),
        ("tools: {api_key: pony-express}", "tools: must be a list of names, not {'api_key': '***'}"),
        (f"steps: {SECRET}", f"steps: {WHOLE} '***'"),
        (f"steps:\n  api_key: {SECRET}", f"steps: {WHOLE} {{'api_key': '***'}}"),
        (f"steps: [{{notes: {SECRET}}}]", f"steps: {WHOLE} [{{'notes': '***'}}]"),
        ("steps:\n  api_key: pony-express", f"steps: {WHOLE} {{'api_key': '***'}}"),
        ("tools: 5", "tools: must be a list of names, not 5"),
        ("tools: [5]", "tools[0]: must be the name of a tool, not 5: put it in quotes"),
        ("tools: read_file,", "tools[1]: must not be blank, as '' is"),
        ("tools: [read_file, read_file]", "tools: must name each tool once, but 'read_file' is listed twice"),
        ("model: no", "model: must be text, not False: put it in quotes"),
        ("description: null", "description: must be text, not None"),
        ("mode: sub", "mode: must be 'primary', 'subagent' or 'all', not 'sub'"),
        ("mode: subagent", "mode: 'subagent' needs a `description`: models choose a sub-agent by it"),
        ("maxSteps: -1", f"steps: {WHOLE} -1"),
        ("stpes: 5", "stpes: is unknown: did you mean `steps`?"),
        ("5: x", f"5: is unknown: use one of {', '.join(Agent.model_fields)}"),
        ("ceiling: 500", "ceiling: is the engine's, not an agent's: set `steps`"),
        ("tokens: 5", "tokens: is not a field of its own: write it under `budget`, as in `budget: {tokens: ...}`"),
        ("instructions: Work.", "instructions: are the text below the front matter: write them there"),
        ("? [a]\n: b", "a key must be a word"),
        ("description: a: b", f"is not YAML: mapping values are not allowed here {QUOTES}"),
        ("description: *bold*", f"is not YAML: expected alphabetic or numeric character, but found '*' {QUOTES}"),
        ("description: *bold", ANCHORS),
        ("description: &a b", ANCHORS),
        ("description: !!python/object:os.system {}", TAGS),
        ("steps: [", f"is not YAML: expected the node content, but found '<stream end>' {QUOTES}"),
        ("description: a\x00b", "is not YAML: character U+0000 is not allowed"),
        ('description: "\\ud800"', f"description: {HALF}"),
        ("--- b", "the front matter must be one YAML document, without markers of its own"),
        (f"steps: {'[' * 50}", "is nested more than 8 deep"),
        (f"steps: [{'1, ' * 2000}]", "has more than 1000 values"),
    ],
)
def test_a_mistake_is_reported_with_file_line_agent_and_field(front: str, message: str) -> None:
    (problem,) = problems(f"---\nname: A\n{front}\n---\nText.")
    assert str(problem) == f"AGENTS.md:3: agent 'A': {message}"


@pytest.mark.parametrize(
    ("front", "line", "message"),
    [
        ("steps: 5\nsteps: 6", 4, "steps: is given twice: line 3 has it too"),
        ("budget:\n  tokens: 5\n\n  tokens: 6", 6, "budget.tokens: is given twice: line 4 has it too"),
        ("tools:\n- read_file\n- 5", 5, "tools[1]: must be the name of a tool, not 5: put it in quotes"),
        ("description: >\n  a\n  b\nsteps: x", 6, f"steps: {WHOLE} 'x'"),
        ("description: 'a\u2028b'\nsteps: x", 4, f"steps: {WHOLE} 'x'"),
        ("steps: 5\ndescription: a\x00b", 4, "is not YAML: character U+0000 is not allowed"),
        (f"steps: 5\nmaxSteps: {SECRET}", 4, "maxSteps: is '***', but `steps` is 5: leave out `maxSteps`"),
        ('description: "\\U00110000"', 1, "is not YAML: chr() arg not in range(0x110000)"),
        (f"description: {'x' * 65_536}", 1, "is a front matter of more than 64 KiB: move text below it"),
    ],
)
def test_mistake_is_reported_with_the_line_of_the_field(front: str, line: int, message: str) -> None:
    (problem,) = problems(f"---\nname: A\n{front}\n---\nText.")
    assert str(problem) == f"AGENTS.md:{line}: agent 'A': {message}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("name: 5", "AGENTS.md:2: name: must be text, not 5: put it in quotes"),
        ("name: no", "AGENTS.md:2: name: must be text, not False: put it in quotes"),
        ("name: ''", "AGENTS.md:2: name: must not be blank, as '' is"),
        ('name: "a\\nb"', "AGENTS.md:2: agent 'a\\nb': name: must be one line without control characters, not 'a\\nb'"),
        ("name: [A]", "AGENTS.md:2: name: must be text, not ['A']"),
        ("name:", "AGENTS.md:2: name: has no value: write one, write `null`, or leave the key out"),
        ("steps: 5", f"AGENTS.md:1: name: is missing: every agent needs one; {RULE}"),
    ],
)
def test_every_agent_needs_a_name(name: str, message: str) -> None:
    assert [str(problem) for problem in problems(f"---\n{name}\n---\n")] == [message]


def test_all_mistakes_of_a_file_are_reported_at_once_and_in_order() -> None:
    text = """---
name: Refactorer
steps: -1
stpes: 5
budget:
  tokens: 0
---
You refactor.

---
steps: 3
---

---
name: Architect
model: [
---

---
name: Refactorer
tools: [read_file, 5]
---
"""
    assert [str(problem).partition(" must ")[0].partition(" is ")[0] for problem in problems(text)] == [
        "AGENTS.md:3: agent 'Refactorer': steps:",
        "AGENTS.md:4: agent 'Refactorer': stpes:",
        "AGENTS.md:6: agent 'Refactorer': budget.tokens:",
        "AGENTS.md:10: name:",
        "AGENTS.md:16: agent 'Architect':",
        f"AGENTS.md:20: agent 'Refactorer': name: {TAKEN}",
        "AGENTS.md:21: agent 'Refactorer': tools[1]:",
    ]


def test_problem_has_file_line_agent_field_and_message() -> None:
    (problem,) = problems("---\nname: A\nbudget:\n  cost: 0\n---\n")
    assert problem == Problem(
        file="AGENTS.md", line=4, agent="A", field="budget.cost", message="must be a number above 0, not 0"
    )


# Files made to hurt.

LAUGHS = "a0: &a0 [x, x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        f"---\nname: A\n{LAUGHS}---\n",
        f"---\nname: A\nx: {'[' * 60_000}\n---\n",
        f"---\nname: A\nx: {'{a: ' * 15_000}\n---\n",
        "---\nname: A\n" + "".join(f"k{n}: 1\n" for n in range(7_000)) + "---\n",
        f"---\nname: A\n{'k' * 60_000}: 1\n---\n",
        f"---\nname: A{' ' * 60_000}x\nsteps: [\n---\n",
        "---\nname: A\n---\n" + "\n---\nname: B\n" * 70_000,
        "---\nname: A\n---\n" + "---\n\n" * 200_000,
        "---\nname: A\n---\n" + "`" * 900_000 + "\n",
        "---\nname: A\n---\n" + "```\n" * 200_001,
    ],
)
def test_a_hostile_file_is_refused_fast_and_briefly(text: str) -> None:
    start = time.process_time()
    agents, faults = read(text)
    assert time.process_time() - start < 5
    assert all(len(str(fault)) < 1000 for fault in faults)
    assert faults or [agent.name for agent in agents] == ["A"]


LINES = ["---", "", "name: A", "name: B", "steps: 5", "tools: [", "```", "~~~~", "...", "%TAG ! x", "x: 2024-99-99"]
SIGNS = "-:&*!?|>'\"[]{}%@#`~,=<\n\r\t \x00\x85\u2028\ufeff0123456789abxUeE._\\"
PIECES = st.sampled_from(LINES).map("{}\n".format) | st.text(SIGNS, max_size=8)


@given(st.text() | st.lists(PIECES).map("".join))
def test_any_text_is_agents_or_an_agent_file_error(text: str) -> None:
    for whole in (text, f"---\n{text}\n---\n", f"---\nname: A\n{text}\n---\n{text}"):
        agents, faults = read(whole)
        assert bool(agents) != bool(faults)
        assert len({agent.name for agent in agents}) == len(agents)
        assert not any("\n" in str(fault) for fault in faults)


WORDS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1).filter(str.strip)
BODIES = (
    st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]))
    .map(str.strip)
    .filter(lambda body: not any(mark in body for mark in ("---", "```", "~~~")))
)
COUNTS = st.integers(0, 10_000) | st.none()
AMOUNTS = st.floats(min_value=1e-9, max_value=1e12) | st.none()
BUDGETS = st.fixed_dictionaries(
    {}, optional={"tool_calls": COUNTS, "tokens": COUNTS.filter(lambda n: n != 0), "cost": AMOUNTS, "seconds": AMOUNTS}
)
AGENTS: st.SearchStrategy[Agent] = st.fixed_dictionaries(
    {"name": WORDS, "instructions": BODIES},
    optional={
        "description": st.text(),
        "steps": COUNTS,
        "budget": COUNTS | BUDGETS,
        "tools": st.lists(WORDS, unique=True) | st.none(),
        "model": WORDS | st.none(),
        "conclude_prompt": st.text().filter(str.strip) | st.none(),
        "concluding": st.sampled_from(["after", "within", "never"]),
        "doom_threshold": st.integers(2, 9) | st.none(),
        "doom_compare": st.sampled_from(["results", "calls"]),
        "doom_response": st.sampled_from(["stop", "ask"]),
        "nudges": st.integers(0, 9),
        "stall_errors": st.integers(2, 9) | st.none(),
        "idle_steps": st.integers(1, 9) | st.none(),
        "stall_rounds": st.integers(2, 9) | st.none(),
        "stall_response": st.sampled_from(["hint", "loop"]),
        "conclude_seconds": st.floats(min_value=0.1, max_value=1e6),
    },
).map(Agent.model_validate)


@given(st.lists(AGENTS, min_size=1, max_size=3, unique_by=lambda agent: agent.name))
def test_agents_survive_a_round_trip_through_front_matter(agents: list[Agent]) -> None:
    text = ""
    for agent in agents:
        front = agent.to_json()
        body = front.pop("instructions")
        # Escaped, because PyYAML writes U+0085 as it is and reads it as a line end.
        text += f"---\n{yaml.safe_dump(front, allow_unicode=False, sort_keys=False)}---\n{body}\n\n"
    assert parse_agents(text) == agents


def test_letters_of_all_languages_may_stand_unescaped() -> None:
    text = "---\nname: Архитектор\ndescription: plans 🏗️ and 設計\n---\nÜber alles nachdenken.\n"
    (parsed_agent,) = parse_agents(text)
    assert (parsed_agent.name, parsed_agent.description) == ("Архитектор", "plans 🏗️ and 設計")
    assert parsed_agent.instructions == "Über alles nachdenken."


# The old name of `steps`.


def test_max_steps_is_read_as_steps_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It is opencode's old name of it."""
    assert agent("maxSteps: 5") == Agent(name="A", steps=5)
    assert [record.getMessage() for record in caplog.records] == [
        "AGENTS.md:3: agent 'A': maxSteps: is the old name: write `steps`"
    ]


def test_both_names_of_steps_may_have_the_same_value() -> None:
    assert agent("steps: 5\nmaxSteps: 5") == Agent(name="A", steps=5)
    assert agent("steps: null\nmaxSteps: null") == Agent(name="A", steps=None)


@pytest.mark.parametrize("old", ["4", "6", "null", "'5'"])
def test_both_names_of_steps_with_two_values_are_a_mistake(old: str) -> None:
    (problem,) = problems(f"---\nname: A\nmaxSteps: {old}\nsteps: 5\n---\n")
    value = "None" if old == "null" else old
    assert str(problem) == f"AGENTS.md:3: agent 'A': maxSteps: is {value}, but `steps` is 5: leave out `maxSteps`"


def test_file_with_a_mistake_does_not_warn_of_the_old_name(caplog: pytest.LogCaptureFixture) -> None:
    problems("---\nname: A\nmaxSteps: 5\nbudget: -1\n---\n")
    assert not caplog.records


# Files on disk.


def failure(*paths: Path) -> str:
    with pytest.raises(AgentFileError) as raised:
        load_agents(*paths)
    return str(raised.value)


def test_the_example_loads() -> None:
    agents = load_agents(EXAMPLE)
    assert [(agent.name, agent.steps) for agent in agents] == [("Refactorer", 5), ("Architect", 20), ("Explorer", None)]
    assert all(agent.instructions and agent.description for agent in agents)
    offered = {"list_files", "read_file", "search_files", "ask_user_input", "request_read_access"}
    assert all(set(agent.tools or ()) <= offered for agent in agents)


def test_file_with_invalid_utf_8_is_refused_with_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_bytes(b"---\nname: A\n---\nVoil\xe0.\n")
    assert failure(path) == f"{path}:4: is not UTF-8 text (byte 20): save it as UTF-8"
    path.write_text("---\nname: A\n---\n", encoding="utf-16")
    assert failure(path) == f"{path}:1: is not UTF-8 text (byte 0): save it as UTF-8"


def test_missing_or_too_large_file_or_directory_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "agents.md"
    assert failure(missing) == f"{missing}: there is no such file: name an agent file, or create this one"
    assert failure(tmp_path) == f"{tmp_path}: is a directory: name a file in it, such as AGENTS.md"
    assert failure(EXAMPLE / "x").startswith(f"{EXAMPLE}/x: cannot be read: ")
    # What Python says of it differs between versions.
    assert failure(Path("a\0b")).startswith("a\0b: cannot be read: ")
    large = tmp_path / "large.md"
    large.write_bytes(b"\xff" * (MAX_BYTES + 1))
    assert failure(large) == f"{large}: is larger than 1024 KiB: name an agent file, or split it"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_read_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_text("---\nname: A\n---\n")
    path.chmod(0)
    assert failure(path) == f"{path}: may not be read: change its permissions"


def test_empty_file_is_refused_with_the_expected_form(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.touch()
    assert failure(path) == f"{path}: is empty: {FORM}"


def test_mistakes_and_repeated_names_are_reported_across_files(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("one.md", "two.md", "none.md"))
    first.write_text("---\nname: A\nsteps: -1\n---\n")
    second.write_text("Two.\n\n---\nname: B\n---\n\n---\nname: A\n---\n")
    assert failure(first, second, third).splitlines() == [
        f"{first}:3: agent 'A': steps: {WHOLE} -1",
        f"{second}:8: agent 'A': name: {first}:2 has this name already: every agent needs one of its own",
        f"{third}: there is no such file: name an agent file, or create this one",
    ]
    assert "has this name already" in failure(EXAMPLE, EXAMPLE)


# Finding one.

DIFFER = "the agents 'Abc', 'abc' differ only in case, and 'ABC' is none of them: write one exactly"


def test_find_agent_matches_the_name_or_the_only_similar_name() -> None:
    agents = [Agent(name="Refactorer"), Agent(name="Explorer"), Agent(name="explorer")]
    assert find_agent(agents, "Refactorer") is agents[0]
    assert find_agent(agents, "refactorer") is agents[0]
    assert find_agent(agents, "explorer") is agents[2]


@pytest.mark.parametrize(
    ("names", "requested_name", "message"),
    [
        (["A", "B"], "C", "there is no agent 'C': the agents are 'A', 'B'"),
        (["Abc", "abc", "B"], "ABC", DIFFER),
        ([], "A", "there is no agent 'A': no agent is loaded"),
    ],
)
def test_find_agent_error_lists_the_existing_agents(names: list[str], requested_name: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        find_agent([Agent(name=name) for name in names], requested_name)
    assert str(raised.value) == message
