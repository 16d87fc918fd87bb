"""Agent files: Markdown with YAML front matter, one agent a file or several in one `AGENTS.md`.

    ---
    name: Refactorer
    steps: 5
    ---
    You refactor code in small steps.

The keys are the fields of `Agent`; the text below the front matter is the agent's instructions. A file's agents
follow one another, and text above the first is for human readers. Markdown uses `---` for rules and headings too.
These rules tell them apart:

1. The first line of the file that is not blank opens an agent if it is `---`.
2. Below that, a line `---` opens an agent if the line above it is blank, or closes a front matter, and the line
   below it begins with a key (`word:`). A rule in the instructions therefore wants a blank line below it.
3. The next line `---` closes the front matter. What follows, up to the next agent, is the instructions.
4. Lines inside a fenced code block (``` or ~~~) open nothing.
5. What only looks like an agent is an error, never a part of somebody's instructions: `---` with a `name:` in the
   paragraph below it that rule 2 does not accept, a front matter without its first or last `---`, and a code fence
   that is never closed, for it would hide the agents below it.

Every mistake of a file is reported at once, each with its line.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import yaml
from pydantic import ValidationError

from turnwright.agent import Agent
from turnwright.errors import ConfigError

MAX_BYTES: Final = 1024 * 1024
MAX_AGENTS: Final = 256
#: What one front matter may hold. PyYAML is slow and the longest honest one is a few dozen lines.
MAX_FRONT_MATTER: Final = 64 * 1024
MAX_VALUES: Final = 1000
MAX_NESTING: Final = 8

_SHOWN: Final = 60
_FORM: Final = "write a line `---`, then `name: ...` and other keys, then a line `---`, then the instructions"
_RULE: Final = "if this `---` is a rule in the text, leave a blank line below it"
_QUOTES: Final = "a text that has `: ` in it or begins with a sign needs quotes"
_OPENER: Final = (
    "leave a blank line above the `---` and begin the keys right below it, "
    "or put all of it in a code fence if it belongs to the instructions"
)
_KEY: Final = re.compile(r"""["']?[A-Za-z_][\w-]*["']?[ \t]*:(?:[ \t]|$)""")
_NAME: Final = re.compile(r"""\s{0,3}["']?name["']?[ \t]*:(?:[ \t]|$)""")
_NAMED: Final = re.compile(r"""(?m)^name[ \t]*:[ \t]*(\S.{0,99})""")
# Wider than CommonMark, which reads a fence that is indented by four as code: that is how fences in lists look.
_CODE: Final = re.compile(r"\s*(?:(?:[-*+]|\d{1,9}[.)])\s+)?(?P<fence>`{3,}(?=[^`]*$)|~{3,})")
# PyYAML follows YAML 1.1, where 010 is eight and 1:30 is ninety.
_WHOLE: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,999})")
_FRACTION: Final = re.compile(r"[-+]?(?:[0-9_.]+(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))")
_TAG: Final = "tag:yaml.org,2002:"

_Loc = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One mistake in an agent file. `line` counts from 1; `agent` and `field` are None where there is none."""

    file: str
    line: int | None
    agent: str | None
    field: str | None
    message: str

    def __str__(self) -> str:
        """In one line, as compilers write it: `AGENTS.md:12: agent 'Refactorer': steps: must be ...`."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        agent = None if self.agent is None else f"agent {self.agent[:_SHOWN]!r}"
        return ": ".join(part for part in (where, agent, self.field, self.message) if part is not None)


class AgentFileError(ConfigError):
    """Agent files that cannot be used. `problems` are all their mistakes in order; the message has one a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def parse_agents(text: str, source: str = "AGENTS.md") -> list[Agent]:
    """The agents that `text` defines, in its order. `source` is what the errors call the file.

    Raises `AgentFileError` with every mistake in the text, or if there is no agent in it. Reads no file.
    """
    return _agents([_File(source).read(text)])


def load_agents(*paths: str | os.PathLike[str]) -> list[Agent]:
    """The agents of these files, in order. No two agents may have one name, in one file or in two.

    Raises `AgentFileError` with every mistake in all files; one that cannot be read, is larger than 1 MiB or is not
    UTF-8 is such a mistake.
    """
    return _agents([_load(Path(path)) for path in paths])


def find_agent(agents: Sequence[Agent], name: str) -> Agent:
    """The agent with this name; if none has it, the only one whose name differs in nothing but case.

    Raises `ConfigError`, which lists the names, if there is no such agent or more than one.
    """
    for agent in agents:
        if agent.name == name:
            return agent
    alike = [agent for agent in agents if agent.name.casefold() == name.strip().casefold()]
    if len(alike) == 1:
        return alike[0]
    known = ", ".join(repr(agent.name) for agent in alike or agents)
    if alike:
        raise ConfigError(f"the agents {known} differ only in case: {name!r} is none of them, write one as it stands")
    raise ConfigError(f"there is no agent {name!r}: " + (f"the agents are {known}" if known else "no agent is loaded"))


def _agents(files: Sequence["_File"]) -> list[Agent]:
    stands: dict[str, str] = {}
    for file in files:
        for block in file.blocks:
            if block.name is None:
                continue
            line = block.lines.get(("name",), block.line)
            if block.name in stands:
                message = f"{stands[block.name]} has this name already: every agent needs one of its own"
                file.problems.append(Problem(file.source, line, block.name, "name", message))
            stands.setdefault(block.name, f"{file.source}:{line}")
    problems = [problem for file in files for problem in sorted(file.problems, key=lambda one: one.line or 0)]
    if problems:
        raise AgentFileError(problems)
    return [block.agent for file in files for block in file.blocks if block.agent is not None]


def _load(path: Path) -> "_File":
    file = _File(str(path))
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        return file.read(data.decode()) if len(data) <= MAX_BYTES else file.say(_TOO_LARGE)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        return file.say(f"is not UTF-8 text (byte {error.start}): save it as UTF-8", line)
    except FileNotFoundError:
        return file.say("there is no such file: name an agent file, or write this one")
    except IsADirectoryError:
        return file.say("is a directory: name a file in it, such as AGENTS.md")
    except PermissionError:
        return file.say("may not be read: change its permissions")
    except (OSError, ValueError) as error:  # ValueError: a path with a null character in it
        return file.say(f"cannot be read: {getattr(error, 'strerror', None) or error}")


_TOO_LARGE: Final = f"is larger than {MAX_BYTES // 1024} KiB: this is no agent file, or split it"


@dataclass
class _File:
    """The agents and the mistakes of one file."""

    source: str
    blocks: list["_Block"] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def read(self, text: str) -> Self:
        """Take in the file's text; no mistake in it is raised here."""
        if len(text) > MAX_BYTES:
            return self.say(_TOO_LARGE)
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        self._split(text.split("\n"))
        if not self.blocks and not self.problems:
            self.say(f"{'holds no agent' if text.strip() else 'is empty'}: {_FORM}")
        if len(self.blocks) > MAX_AGENTS:
            return self.say(f"holds {len(self.blocks)} agents, and at most {MAX_AGENTS} fit in one file: split it")
        for block in self.blocks:
            block.read()
            for loc, line, message in block.mistakes:
                self.problems.append(Problem(self.source, line, block.name, _path(loc), message))
        return self

    def say(self, message: str, line: int | None = None) -> Self:
        """Add a mistake that is no agent's."""
        self.problems.append(Problem(self.source, line, None, None, message))
        return self

    def _split(self, lines: list[str]) -> None:
        at = top = next((index for index, line in enumerate(lines) if line.strip()), len(lines))
        if not _is_rule(lines, top) and _names_an_agent(lines, top):
            self.say(f"there is no `---` above this agent's keys: {_FORM}", top + 1)
        body = top  # where the text begins that `at` is in
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
                self.say(f"what follows looks like an agent but is not read as one: {_OPENER}", at + 1)
            at += 1
        self._end_body(lines[body:])
        if code is not None:
            self.say("this code fence is never closed, and would hide every agent below it: close it", code[1] + 1)

    def _open(self, lines: list[str], at: int) -> int:
        """Read the front matter that line `at` opens. Returns the index of the line below it."""
        end = next((index for index in range(at + 1, len(lines)) if _is_rule(lines, index)), len(lines))
        if end == len(lines) or (not lines[end - 1].strip() and _names_an_agent(lines, end + 1)):
            self.say(f"the front matter that begins here is not closed: {_FORM}; {_RULE}", at + 1)
            return end
        self.blocks.append(_Block(at + 1, "\n".join(lines[at + 1 : end])))
        return end + 1

    def _end_body(self, lines: list[str]) -> None:
        if self.blocks:
            self.blocks[-1].body = self.blocks[-1].body or "\n".join(lines).strip()


@dataclass
class _Block:
    """One agent's text: its front matter, its body, and what was found in them."""

    line: int
    front: str
    body: str = ""
    name: str | None = None
    agent: Agent | None = None
    lines: dict[_Loc, int] = field(default_factory=dict)
    mistakes: list[tuple[_Loc, int, str]] = field(default_factory=list)

    def read(self) -> None:
        """Set `agent`, or add to `mistakes`."""
        guess = _NAMED.search(self.front)  # tells whose front matter it is, should YAML not understand it
        self.name = guess and guess[1].strip(" \t\"'")
        try:
            values = self._values()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._wrong((), f"is not YAML: {_short(str(error.problem))} ({_QUOTES})", mark.index if mark else None)
            return
        except yaml.reader.ReaderError as error:
            self._wrong((), f"is not YAML: character U+{error.character:04X} is not allowed", error.position)
            return
        except (yaml.YAMLError, ValueError, OverflowError) as error:  # such as an escape beyond the last character
            self._wrong((), f"is not YAML: {_short(str(error))}")
            return
        if values is None:
            return
        if isinstance(values.get("tools"), str):
            values["tools"] = [name.strip() for name in str(values["tools"]).split(",")]
        self.name = name if isinstance(name := values.get("name"), str) and name.strip() else None
        if "instructions" in values:
            self._wrong(("instructions",), "are the text below the front matter: write them there")
        self._make(values)

    def _values(self) -> dict[str, object] | None:
        """The front matter as a mapping, or None after a mistake that leaves nothing to look at."""
        if len(self.front) > MAX_FRONT_MATTER:
            self._wrong((), f"is a front matter of more than {MAX_FRONT_MATTER // 1024} KiB: move text below it")
            return None
        if not self._is_tame():
            return None
        root = yaml.compose(self.front, Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.MappingNode):
            what = "nothing" if root is None else "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
            self._wrong((), f"the front matter must hold keys such as `name: Refactorer`, but it holds {what}")
            return None
        return self._mapping(root, ())

    def _is_tame(self) -> bool:
        """Whether the YAML is plain: checked on the stream of events, before anything is built from it."""
        depth = 0
        for count, event in enumerate(yaml.parse(self.front, Loader=yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            why = None
            if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
                why = "YAML's anchors (&) and aliases (*) are not allowed: put a text that begins with one in quotes"
            elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
                why = "YAML's tags (!) are not allowed: put a text that begins with one in quotes"
            elif isinstance(event, yaml.DocumentStartEvent) and (event.explicit or count > 1):
                why = "the front matter must be one YAML document, without markers of its own"
            elif depth > MAX_NESTING:
                why = f"is nested more than {MAX_NESTING} deep"
            elif count > MAX_VALUES:
                why = f"holds more than {MAX_VALUES} values"
            if why is not None:
                self._wrong((), why, event.start_mark.index if event.start_mark else None)
                return False
        return True

    def _mapping(self, node: yaml.MappingNode, loc: _Loc) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, value in node.value:
            here = (*loc, str(key.value))
            if not isinstance(key, yaml.ScalarNode):
                self._wrong(loc, "a key must be a word", key.start_mark.index)
            elif key.value in values:
                self._wrong(here, f"is given twice: line {self.lines[here]} has it too", key.start_mark.index)
            else:
                self.lines[here] = self._line(key.start_mark.index)
                values[key.value] = self._value(value, here)
        return values

    def _value(self, node: yaml.Node, loc: _Loc) -> object:
        self.lines.setdefault(loc, self._line(node.start_mark.index))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*loc, index)) for index, item in enumerate(node.value)]
        return self._scalar(str(node.value), node.tag.removeprefix(_TAG), loc)

    def _scalar(self, text: str, kind: str, loc: _Loc) -> object:
        match kind:
            case "null" if not text:
                self._wrong(loc, "has no value: write one, or `null` for none, or leave it out")
            case "null":
                return None
            case "bool":
                return text.lower() in {"true", "yes", "on"}
            case "int" if _WHOLE.fullmatch(text):
                return int(text.replace("_", ""))
            case "float" if _FRACTION.fullmatch(text):
                return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
            case "int" | "float":
                self._wrong(loc, f"must be a plain decimal number, not {_short(text)}")
            case _:  # text, and what YAML takes for dates and merge keys
                return text
        return None

    def _make(self, values: dict[str, object]) -> None:
        try:
            agent = Agent.model_validate(values | {"instructions": self.body})
        except ValidationError as error:
            seen = {loc for loc, _, _ in self.mistakes}
            for details in error.errors(include_url=False):
                loc, problem = details["loc"], str(details.get("ctx", {}).get("problem", details["msg"]))
                if problem == "is missing":
                    problem = f"is missing: every agent needs one; {_RULE}"
                elif problem.startswith("must be text") and isinstance(details["input"], int | float):
                    problem += ": put it in quotes"
                if loc not in seen:
                    self._wrong(loc, problem)
        else:
            self.agent = agent

    def _wrong(self, loc: _Loc, message: str, index: int | None = None) -> None:
        known = (self.lines[loc[:end]] for end in range(len(loc), 0, -1) if loc[:end] in self.lines)
        self.mistakes.append((loc, next(known, self.line) if index is None else self._line(index), message))

    def _line(self, index: int) -> int:
        """The file's line of a place in the front matter. PyYAML's own count has more line ends than Markdown."""
        return self.line + 1 + self.front.count("\n", 0, index)


def _is_rule(lines: Sequence[str], at: int) -> bool:
    return at < len(lines) and lines[at].rstrip() == "---"


def _opens(lines: Sequence[str], at: int, body: int) -> bool:
    """Whether line `at` opens an agent (rule 2), where `body` is the line below the last front matter."""
    begins = at == body or not lines[at - 1].strip()
    return _is_rule(lines, at) and begins and at + 1 < len(lines) and _KEY.match(lines[at + 1]) is not None


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


def _path(loc: _Loc) -> str | None:
    """`budget.tokens`, `tools[0]`: a place in the front matter in one short line."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{_short(part)}" for part in loc)
    return "".join(parts).removeprefix(".") or None


def _short(text: str) -> str:
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return cut if cut.isprintable() else repr(cut)
