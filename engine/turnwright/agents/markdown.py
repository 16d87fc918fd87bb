"""Agent files: Markdown with YAML front matter, one agent a file or several in one `AGENTS.md`.

    ---
    name: Refactorer
    steps: 5
    ---
    You refactor code in small steps.

The keys are the fields of `Agent`; the text below the front matter is the agent's instructions. Text above the first
agent is for human readers. Markdown uses `---` for rules and headings too. These rules decide:

1. The first line of the file that is not blank opens an agent if it is `---`.
2. Below that, a line `---` opens an agent if the line above it is blank, or closes a front matter, and the line
   below it starts with a key (`word:`). So a rule in the instructions needs a blank line below it.
3. The next line `---` closes the front matter. The text up to the next agent is the instructions.
4. Lines inside a fenced code block (``` or ~~~) open nothing.
5. Text that looks like an agent but breaks these rules is an error, and never becomes instructions: `---` with a
   `name:` in the paragraph below it that rule 2 does not accept, a front matter without its first or last `---`, and a
   code fence without an end, which would hide the agents below it.

All mistakes of a file are reported at once, each with its line. opencode's `maxSteps` is read as `steps`, with a
warning.

`AGENTS.md` is also an open standard: instructions for the agent that works in its folder. Such a file without a front
matter of ours is the text of a plain assistant.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Final, Self

from pydantic import ValidationError

from turnwright.agent import AGENTS_FILE, Agent, MisfitLimitError
from turnwright.agent.fields import shorten
from turnwright.errors import ConfigError
from turnwright_states import MAX_STEPS, Limits

from .bounds import WARNED_STEPS, steps_above
from .front_matter import MAX_BYTES, TOO_LARGE, FrontMatter, Loc, UnreadableFileError, in_lines, path_of, read_text
from .named_code import resolve_code
from .template import is_template
from .template import mistakes as template_mistakes

MAX_AGENTS: Final = 256
#: The old name of `steps` in opencode.
OLD_STEPS: Final = "maxSteps"

_LOG = logging.getLogger(__name__)
_DEFAULTS: Final = Limits()
_PLAIN: Final = "Use the tools where they help. Answer briefly."
_SHOWN: Final = 60
_FORM: Final = "write a line `---`, then `name: ...` and other keys, then a line `---`, then the instructions"
_RULE: Final = "if this `---` is a rule in the text, leave a blank line below it"
_OPENER: Final = (
    "leave a blank line above the `---` and start the keys right below it, "
    "or put all of it in a code fence if it belongs to the instructions"
)
_KEY: Final = re.compile(r"""["']?([A-Za-z_][\w-]*)["']?[ \t]*:(?:[ \t]|$)""")
_NAME: Final = re.compile(r"""\s{0,3}["']?name["']?[ \t]*:(?:[ \t]|$)""")
#: The keys of our front matters, but for `description`, which front matters of other programs have too.
_OURS: Final = (Agent.model_fields.keys() | {OLD_STEPS, "groups"}) - {"description"}
_NAME_LINE: Final = re.compile(r"""(?m)^name[ \t]*:[ \t]*(\S.{0,99})""")
# Wider than CommonMark, which does not accept a fence that is indented by four, as in lists.
_CODE: Final = re.compile(r"\s*(?:(?:[-*+]|\d{1,9}[.)])\s+)?(?P<fence>`{3,}(?=[^`]*$)|~{3,})")


@dataclass(frozen=True)
class Problem:
    """One mistake in an agent file. `line` counts from 1; `agent` and `field` are None if they do not apply."""

    file: str
    line: int | None
    agent: str | None
    field: str | None
    message: str

    def __str__(self) -> str:
        """Format it as a compiler does: `AGENTS.md:12: agent 'Refactorer': steps: must be ...`."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        agent = None if self.agent is None else f"agent {self.agent[:_SHOWN]!r}"
        return ": ".join(part for part in (where, agent, self.field, self.message) if part is not None)


def list_problems(file: str, agent: str | None, mistakes: Iterable[tuple[Loc, int, str]]) -> list[Problem]:
    """Return the mistakes or the warnings of an agent's front matter."""
    return [Problem(file, line, agent, path_of(loc), message) for loc, line, message in mistakes]


class AgentFileError(ConfigError):
    """Mistakes in agent files. `problems` has all of them in order; the message has one per line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def parse_agents(text: str, source: str = "AGENTS.md", *, limits: Limits = _DEFAULTS) -> list[Agent]:
    """Return the agents that `text` defines, in order, without reading a file. `source` names it in errors.

    `limits` are the engine's; agents must fit them. Raises `AgentFileError` with every mistake in the text, or if it
    has no agent.
    """
    return _collect_agents([_MarkdownFile(source, limits).read(text)])


def load_agents(*paths: str | os.PathLike[str], limits: Limits = _DEFAULTS) -> list[Agent]:
    """Load the agents of these files, in order. Each name must be unique over all files.

    `limits` are the engine's; agents must fit them. An `AGENTS.md` of the open standard is one plain assistant. Raises
    `AgentFileError` with every mistake in all files, including files that cannot be read, are larger than 1 MiB or are
    not UTF-8.
    """
    return _collect_agents([_load(Path(path), limits) for path in paths])


def plain_agent(instructions: str = "") -> Agent:
    """Return the agent of commands that name none, with the instructions of the folder in which it works."""
    suffix = f"\n\nThe instructions of this folder, from {AGENTS_FILE}:\n\n{instructions}" if instructions else ""
    return Agent(name="assistant", instructions=f"{_PLAIN}{suffix}")


def defines_agents(text: str) -> bool:
    """Return whether the text of a file has a front matter of ours, complete or not."""
    return _MarkdownFile(AGENTS_FILE, _DEFAULTS).split(in_lines(text)).defines_agents


def read_instructions(text: str) -> str:
    """Return the instructions in the text of an `AGENTS.md`; an empty text if it defines agents."""
    return "" if defines_agents(text) else _instructions(in_lines(text))


def names_in(text: str) -> list[str]:
    """Return the names of the agents that a file defines. Neither their values nor their code are loaded."""
    blocks = _MarkdownFile(AGENTS_FILE, _DEFAULTS).split(in_lines(text)).blocks
    return [name for name in (block.guessed_name for block in blocks) if name is not None]


def find_agent(agents: Sequence[Agent], name: str) -> Agent:
    """Return the agent with this name, or else the only one whose name differs only in case.

    Raises `ConfigError`, which lists the names, if there is no such agent or more than one.
    """
    for agent in agents:
        if agent.name == name:
            return agent
    alike = [agent for agent in agents if agent.name.casefold() == name.strip().casefold()]
    if len(alike) == 1:
        return alike[0]
    names = ", ".join(repr(agent.name) for agent in alike or agents)
    if alike:
        raise ConfigError(f"the agents {names} differ only in case, and {name!r} is none of them: write one exactly")
    raise ConfigError(f"there is no agent {name!r}: " + (f"the agents are {names}" if names else "no agent is loaded"))


def _collect_agents(files: Sequence["_MarkdownFile"]) -> list[Agent]:
    places: dict[str, str] = {}
    for file in files:
        for block in file.blocks:
            if block.name is None:
                continue
            line = block.matter.line_of(("name",))
            if block.name in places:
                message = f"{places[block.name]} has this name already: every agent needs one of its own"
                file.problems.append(Problem(file.source, line, block.name, "name", message))
            places.setdefault(block.name, f"{file.source}:{line}")
    problems = [problem for file in files for problem in sorted(file.problems, key=lambda problem: problem.line or 0)]
    if problems:
        raise AgentFileError(problems)
    for file in files:
        for note in file.notes:
            _LOG.warning("%s", note)
    agents = (agent for file in files for agent in (file.plain, *(block.agent for block in file.blocks)))
    return [agent for agent in agents if agent is not None]


def _load(path: Path, limits: Limits) -> "_MarkdownFile":
    file = _MarkdownFile(str(path), limits, may_be_plain=path.name.casefold() == AGENTS_FILE.casefold())
    try:
        return file.read(read_text(path))
    except UnreadableFileError as error:
        return file.say(error.why, error.line)


@dataclass
class _MarkdownFile:
    """The agents and the mistakes of one file."""

    source: str
    limits: Limits
    #: Whether it is instructions for a plain assistant unless it defines agents.
    may_be_plain: bool = False
    #: Whether it has a front matter of ours, complete or not.
    defines_agents: bool = False
    plain: Agent | None = None
    blocks: list["_AgentBlock"] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def read(self, text: str) -> Self:
        """Parse the file's text, and note its mistakes."""
        if len(text) > MAX_BYTES:
            return self.say(TOO_LARGE)
        lines = in_lines(text)
        self.split(lines)
        if self.may_be_plain and not self.defines_agents and (text := _instructions(lines)):
            self.blocks, self.problems = [], []
            self.plain = plain_agent(text)
            return self
        if not self.blocks and not self.problems:
            self.say(f"{'has no agent' if any(map(str.strip, lines)) else 'is empty'}: {_FORM}")
        if len(self.blocks) > MAX_AGENTS:
            return self.say(f"has {len(self.blocks)} agents, more than {MAX_AGENTS}: split the file")
        for block in self.blocks:
            block.read(self.limits, self.source)
            self.problems += list_problems(self.source, block.name, block.matter.mistakes)
            self.notes += list_problems(self.source, block.name, block.matter.notes)
        return self

    def say(self, message: str, line: int | None = None) -> Self:
        """Add a mistake that belongs to no agent."""
        self.problems.append(Problem(self.source, line, None, None, message))
        return self

    def split(self, lines: list[str]) -> Self:
        """Find the agents, and note what looks like one but is not. No values are read."""
        at = top = next((index for index, line in enumerate(lines) if line.strip()), len(lines))
        if not _is_rule(lines, top) and _names_an_agent(lines, top):
            self.defines_agents = True
            self.say(f"there is no `---` above this agent's keys: {_FORM}", top + 1)
        body = top  # the first line of the text that contains line `at`
        code: tuple[str, int] | None = None
        while at < len(lines):
            fence = _CODE.match(lines[at])
            if code is not None:
                code = None if _closes(lines[at], code[0]) else code
            elif fence is not None:
                code = fence["fence"], at
            elif _opens(lines, at, body) or (at == top and _is_rule(lines, at)):
                self._end_body(lines[body:at])
                body = at = self._open(lines, at)
                continue
            elif _is_rule(lines, at) and _names_an_agent(lines, at + 1):
                self.say(f"this looks like an agent but is not read as one: {_OPENER}", at + 1)
            at += 1
        self._end_body(lines[body:])
        if code is not None:
            self.say("this code fence has no end and would hide every agent below it: close it", code[1] + 1)
        return self

    def _open(self, lines: list[str], at: int) -> int:
        """Read the front matter that line `at` opens. Returns the index of the line below it."""
        end = next((index for index in range(at + 1, len(lines)) if _is_rule(lines, index)), len(lines))
        self.defines_agents = self.defines_agents or _is_ours(lines[at + 1 : end])
        if end == len(lines) or (not lines[end - 1].strip() and _names_an_agent(lines, end + 1)):
            self.say(f"the front matter that starts here is not closed: {_FORM}; {_RULE}", at + 1)
            return end
        self.blocks.append(_AgentBlock(FrontMatter(at + 1, "\n".join(lines[at + 1 : end]))))
        return end + 1

    def _end_body(self, lines: list[str]) -> None:
        if self.blocks:
            block = self.blocks[-1]
            block.body = block.body or "\n".join(lines).strip()
            block.blank = next((at for at, line in enumerate(lines) if line.strip()), 0)


@dataclass
class _AgentBlock:
    """One agent's text: its front matter, its body, and the results of parsing them."""

    matter: FrontMatter
    body: str = ""
    #: The blank lines above the body.
    blank: int = 0
    name: str | None = None
    agent: Agent | None = None

    @property
    def guessed_name(self) -> str | None:
        """The name without reading the YAML, which it may not be."""
        guess = _NAME_LINE.search(self.matter.text)
        return guess and guess[1].strip(" \t\"'")

    def read(self, limits: Limits, source: str) -> None:
        """Set `agent`, or add to the front matter's mistakes. `source` is the file."""
        self.name = self.guessed_name  # names the agent in errors
        values = self.matter.read()
        if values is None:
            return
        if isinstance(values.get("tools"), str):
            values["tools"] = [name.strip() for name in str(values["tools"]).split(",")]
        self.name = name if isinstance(name := values.get("name"), str) and name.strip() else None
        if "instructions" in values:
            self.matter.wrong(("instructions",), "are the text below the front matter: write them there")
        rename_old_steps(self.matter, values)
        resolve_code(self.matter, values)
        if "rules" in values or "groups" in values:
            from .rules import resolve_rules  # noqa: PLC0415 (few agents have rules)

            resolve_rules(self.matter, values, source)
        instructions: dict[str, object] = {"instructions": self.body}
        if is_template(self.body) and values.get("template", True):
            instructions["template"] = True
            self._check_template()
        self.agent = make_agent(self.matter, values | instructions, limits)
        if self.agent is not None and self.agent.steps is not None and self.agent.steps > MAX_STEPS:
            WARNED_STEPS.add((self.agent.name, self.agent.steps))
            self.matter.note(("steps",), steps_above(self.agent.steps))

    def _check_template(self) -> None:
        matter = self.matter
        first = matter.line + len(matter.text.splitlines()) + 2 + self.blank
        for line, problem in template_mistakes(self.body):
            matter.mistakes.append((("instructions",), first + line, problem))


def rename_old_steps(matter: FrontMatter, values: dict[str, object]) -> None:
    """Replace opencode's old name of `steps`, with a warning. Both names with two values are a mistake."""
    if OLD_STEPS not in values:
        return
    matter.note((OLD_STEPS,), "is the old name: write `steps`")
    old = values.pop(OLD_STEPS)
    if "steps" in values and (type(old), old) != (type(values["steps"]), values["steps"]):
        matter.wrong(
            (OLD_STEPS,), f"is {shorten(old)}, but `steps` is {shorten(values['steps'])}: leave out `{OLD_STEPS}`"
        )
    elif "steps" not in values:
        matter.lines[("steps",)] = matter.line_of((OLD_STEPS,))
        values["steps"] = old


def make_agent(matter: FrontMatter, values: Mapping[str, object], limits: Limits) -> Agent | None:
    """Return the agent with these values, or None after adding its mistakes to `matter`."""
    mistaken_locs = {loc for loc, _, _ in matter.mistakes}
    try:
        agent = Agent.model_validate(values)
        agent.limits_for(limits)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            loc, problem = details["loc"], str(details.get("ctx", {}).get("problem", details["msg"]))
            if problem == "is missing" and loc == ("name",):
                problem = f"is missing: every agent needs one; {_RULE}"
            elif problem.startswith(("must be text", "must be the name")) and isinstance(details["input"], int | float):
                problem += ": put it in quotes"
            if loc not in mistaken_locs:
                matter.wrong(loc, problem)
    except MisfitLimitError as error:
        if (error.field,) not in mistaken_locs:
            matter.wrong((error.field,), error.why)
    else:
        return agent
    return None


def _is_rule(lines: Sequence[str], at: int) -> bool:
    return at < len(lines) and lines[at].rstrip() == "---"


def _opens(lines: Sequence[str], at: int, body: int) -> bool:
    """Whether line `at` opens an agent (rule 2). `body` is the line below the last front matter."""
    begins = at == body or not lines[at - 1].strip()
    return _is_rule(lines, at) and begins and at + 1 < len(lines) and _KEY.match(lines[at + 1]) is not None


def _is_ours(matter: Sequence[str]) -> bool:
    """Whether a front matter is ours: it has a `name`, or in its first paragraph another key that only we have."""
    text = dedent("\n".join(matter)).strip()
    first = text.partition("\n\n")[0]
    return text.startswith("{") or "name" in _keys(text) or not _OURS.isdisjoint(_keys(first))


def _keys(text: str) -> set[str]:
    return {key[1] for key in map(_KEY.match, text.split("\n")) if key is not None}


def _instructions(lines: Sequence[str]) -> str:
    """Return the text of a file without agents, without the front matter that another program wrote at its top."""
    top = next((index for index, line in enumerate(lines) if line.strip()), len(lines))
    if _opens(lines, top, top):
        end = next((index for index in range(top + 1, len(lines)) if _is_rule(lines, index)), None)
        top = top if end is None else end + 1
    return "\n".join(lines[top:]).strip()


def _names_an_agent(lines: Sequence[str], at: int) -> bool:
    """Whether the first paragraph from line `at` on has a `name:` (rule 5)."""
    while at < len(lines) and not lines[at].strip():
        at += 1
    while at < len(lines) and lines[at].strip() and not _is_rule(lines, at) and not _CODE.match(lines[at]):
        if _NAME.match(lines[at]):
            return True
        at += 1
    return False


def _closes(line: str, fence: str) -> bool:
    return set(line.strip()) == {fence[0]} and len(line.strip()) >= len(fence)
