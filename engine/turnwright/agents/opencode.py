"""opencode's own agent files: `.opencode/agent/*.md`, one agent a file, named as the file is.

    ---
    description: Reviews code, and changes nothing
    mode: subagent
    steps: 8
    tools:
      write: false
    ---
    You review code.

They mean here what they mean there, with these differences:

- What cannot be honoured (`temperature`, `permission: ask`, options of a provider) is noted in a warning that names the
  file and the key. How an agent is shown (`color`, `hidden`) is nobody's business here.
- A tool that is denied for some of its uses is denied altogether, with a warning: less is safe.
- `permission.doom_loop` is the response to a doom loop: `ask`, `deny` (the turn stops), `allow` (none is looked for).
- A key that is nearly one of opencode's is a mistake. opencode passes it to the provider, and the limit does not hold.
- An agent without `description` is nobody's sub-agent, for no model could choose it.
- `steps: 0` is a mistake, as it is there; without `steps` there is the ceiling of 200, where opencode has none.

Every mistake of all files is reported at once, each with its line.
"""

import difflib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from turnwright.agent import Agent
from turnwright_states import Limits

from .front_matter import MAX_BYTES, TOO_LARGE, FrontMatter, Loc, UnreadableFileError, in_lines, path_of, read_text
from .markdown import OLD_STEPS, OLD_STEPS_NOTE, AgentFileError, Problem, make_agent, old_steps

_LOG = logging.getLogger(__name__)
_PRESET: Final = Limits.preset("opencode")
_FOLDERS: Final = ("agent", "agents")
_MAX_FILES: Final = 256
_ACTIONS: Final = ("ask", "allow", "deny")
_LONG: Final = 120
_OF_ACTIONS: Final = "`ask`, `allow` or `deny`"
#: What opencode calls the tools that we have, or a group of tools: each name stands for itself as well.
_ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "read": ("read_file",),
    "list": ("list_files",),
    "grep": ("search_files",),
    "question": ("ask_user_input",),
    "external_directory": ("request_read_access",),
} | dict.fromkeys(("edit", "write", "patch"), ("edit", "write", "patch", "multiedit", "apply_patch"))
_SHOWN: Final = frozenset({"color", "hidden", "hidden_from_cycle"})
_NOT_HONOURED: Final = {
    "temperature": "is not honoured: the model's own setting holds",
    "top_p": "is not honoured: the model's own setting holds",
    "variant": "is not honoured: the model's own setting holds",
    "options": "are not passed on: the model's own settings hold",
}
_KEPT: Final = ("name", "description", "mode", "model", "prompt", "tools", "permission", "disable", "steps", OLD_STEPS)
_KEYS: Final = (*_KEPT, *_SHOWN, *_NOT_HONOURED)


def parse_opencode_agent(text: str, source: str, *, limits: Limits = _PRESET) -> Agent | None:
    """The agent that the text of `source` defines, a path whose last part gives its name. None if it is disabled.

    `limits` are those that it will be laid over. Raises `AgentFileError` with every mistake. Reads no file.
    """
    return next(iter(_agents([_File(source, Path(source).stem).read(text, limits)])), None)


def load_opencode_agents(*folders: str | os.PathLike[str], limits: Limits = _PRESET) -> list[Agent]:
    """The agents below `agent/` and `agents/` of these folders, such as `~/.config/opencode` and `.opencode`.

    Those that are disabled are left out. An agent in a folder below is called `folder/name`. One of a later folder
    replaces its namesake of an earlier one; a folder that is not there has none. `limits` are those that the agents
    will be laid over, an engine's. Raises `AgentFileError` with every mistake in all files.
    """
    return _agents([file for folder in folders for file in _load(Path(folder), limits)])


def _load(folder: Path, limits: Limits) -> Iterator["_File"]:
    stands: dict[str, str] = {}
    found = [(folder / name, path) for name in _FOLDERS for path in sorted((folder / name).rglob("*.md"))]
    for count, (top, path) in enumerate(found, start=1):
        file = _File(str(path), path.relative_to(top).with_suffix("").as_posix())
        if count > _MAX_FILES:
            yield file.say(f"is file {count} of its folder, and at most {_MAX_FILES} agents fit in one")
            return
        try:
            file.read(read_text(path), limits)
        except UnreadableFileError as error:
            file.say(error.why, error.line)
        if file.name in stands:
            file.matter.wrong(("name",), f"{stands[file.name]} has this name already: every agent needs one of its own")
        stands.setdefault(file.name, str(path))
        yield file


def _agents(files: Sequence["_File"]) -> list[Agent]:
    problems = [problem for file in files for problem in file.problems()]
    if problems:
        raise AgentFileError(problems)
    last = {file.name: file for file in files}
    called = [file.agent for file in last.values() if file.agent is not None and file.agent.mode != "primary"]
    agents = [agent for file in last.values() if (agent := file.with_sub_agents(called)) is not None]
    for file in last.values():
        for note in file.notes():
            _LOG.warning("%s", note)
    return agents


@dataclass
class _File:
    """One file: what is wrong with it, what is not honoured, and its agent unless it is disabled or wrong."""

    source: str
    name: str
    agent: Agent | None = None
    matter: FrontMatter = field(default_factory=lambda: FrontMatter(1, ""))
    #: Which sub-agents it may call: patterns of their names, the last one that fits holds.
    task: dict[str, bool] = field(default_factory=dict)
    _noted: list[tuple[Loc, str]] = field(default_factory=list)
    _said: list[Problem] = field(default_factory=list)

    def say(self, message: str, line: int | None = None) -> "_File":
        """Add a mistake that is no agent's."""
        self._said.append(Problem(self.source, line, None, None, message))
        return self

    def problems(self) -> list[Problem]:
        """The mistakes, in the order of their lines."""
        found = [Problem(self.source, line, self.name, path_of(loc), said) for loc, line, said in self.matter.mistakes]
        return [*self._said, *sorted(found, key=lambda one: one.line or 0)]

    def notes(self) -> list[Problem]:
        """What is not honoured."""
        line_of = self.matter.line_of
        return [Problem(self.source, line_of(loc), self.name, path_of(loc), said) for loc, said in self._noted]

    def read(self, text: str, limits: Limits) -> "_File":
        """Take in the file's text; no mistake in it is raised here."""
        if len(text) > MAX_BYTES:
            return self.say(TOO_LARGE)
        lines = in_lines(text)
        values: dict[str, object] | None = {}
        body = lines
        if lines[0].rstrip() == "---":
            end = next((at for at, line in enumerate(lines[1:], start=1) if line.rstrip() == "---"), None)
            if end is None:
                return self.say("the front matter that begins here is not closed: write a line `---` below its keys", 1)
            self.matter, body = FrontMatter(1, "\n".join(lines[1:end])), lines[end + 1 :]
            values = self.matter.read(loose=True) if self.matter.text.strip() else {}
        if values is not None:
            self._make(values, "\n".join(body).strip(), limits)
        return self

    def with_sub_agents(self, called: Sequence[Agent]) -> Agent | None:
        """The agent, which may call those of `called` that its `permission.task` allows."""
        if self.agent is None or not self.task:
            return self.agent
        rules = list(self.agent.tools or ("*",))
        for one in called:
            if one.name == self.name:
                continue
            fits = [allowed for pattern, allowed in self.task.items() if _fits(one.name, pattern)]
            rules += [one.tool_name if fits[-1] else f"!{one.tool_name}"] if fits else []
        return self.agent.model_copy(update={"tools": _last_of_each(rules)})

    def _make(self, values: dict[str, object], body: str, limits: Limits) -> None:
        wrong = self.matter.wrong
        if isinstance(name := values.get("name"), str):
            self.name = name
        self._pass_over(values)
        if values.pop("disable", False) is True:
            self.matter.mistakes.clear()
            self._noted.clear()
            return
        if old_steps(self.matter, values):
            self._note((OLD_STEPS,), OLD_STEPS_NOTE)
        steps = values.get("steps")
        if isinstance(steps, int) and not isinstance(steps, bool) and steps < 1:
            wrong(("steps",), f"must be a whole number of at least 1, not {steps}")
        if "mode" not in values and values.get("description", "") == "":
            # opencode offers such an agent to models all the same, which cannot know what it is for.
            values["mode"] = "primary"
            self._note(("description",), "is missing: no other agent can choose this one, so it is `mode: primary`")
        if isinstance(model := values.get("model"), str) and not all(
            part.strip() for part in (model + "/").split("/")[:2]
        ):
            wrong(("model",), f"must be `provider/model`, not {model!r}")
        prompt = values.pop("prompt", None)
        if prompt is not None:
            body = self._prompt(prompt, body)
        rules = [*self._tools(values.pop("tools", {})), *self._permissions(values, values.pop("permission", {}))]
        if any(rule.startswith("!") for rule in rules):
            values["tools"] = _last_of_each(["*", *rules])
        known = {"name": self.name, "mode": "all", "instructions": body}
        self.agent = make_agent(self.matter, known | values, limits)

    def _pass_over(self, values: dict[str, object]) -> None:
        """Take out the keys that mean nothing here, with what YAML had to say of their values."""
        for key in [key for key in values if key not in _KEPT]:
            values.pop(key)
            # No value is quoted, for it may be somebody's secret: neither here nor by what YAML had to say of it.
            self.matter.mistakes[:] = [one for one in self.matter.mistakes if one[0][:1] != (key,)]
            near = difflib.get_close_matches(key.lower()[:40], {one.lower(): one for one in _KEYS}, n=1)
            if key in _NOT_HONOURED:
                self._note((key,), _NOT_HONOURED[key])
            elif key in Agent.model_fields:
                self.matter.wrong((key,), "is no key of opencode's, which would not keep to it: use AGENTS.md")
            elif key not in _SHOWN and near:
                meant = next(one for one in _KEYS if one.lower() == near[0])
                self.matter.wrong((key,), f"is unknown: did you mean `{meant}`?")
            elif key not in _SHOWN:
                self._note((key,), "is not passed on: opencode gives it to the provider")

    def _prompt(self, prompt: object, body: str) -> str:
        if body:
            self._note(("prompt",), "is not used: the text below the front matter is")
        elif not isinstance(prompt, str) or prompt.lstrip().startswith("{file:"):
            self.matter.wrong(("prompt",), "must be text: write it below the front matter")
        else:
            return prompt.strip()
        return body

    def _tools(self, tools: object) -> Iterator[str]:
        if not isinstance(tools, Mapping):
            self.matter.wrong(("tools",), f"must be a mapping such as `write: false`, not {tools!r}"[:_LONG])
            return
        for name, on in tools.items():
            if not isinstance(on, bool):
                self.matter.wrong(("tools", name), f"must be true or false, not {on!r}"[:_LONG])
            elif name == "task":
                self.task["*"] = on
            else:
                yield from _rules(name, allowed=on)

    def _permissions(self, values: dict[str, object], permission: object) -> Iterator[str]:
        given: object = {"*": permission} if isinstance(permission, str) else permission
        if not isinstance(given, Mapping):
            self.matter.wrong(("permission",), f"must be {_OF_ACTIONS}, or a mapping of tools to them")
            return
        for name, rule in given.items():
            loc: Loc = ("permission",) if isinstance(permission, str) else ("permission", name)
            actions = {"*": rule} if not isinstance(rule, Mapping) else rule
            bad = [one for one in actions.values() if one not in _ACTIONS]
            if bad:
                self.matter.wrong(loc, f"must be {_OF_ACTIONS}, not {bad[0]!r}"[:_LONG])
            elif name == "doom_loop":
                values |= _doom(str(list(actions.values())[-1])) if actions else {}
            elif name == "task":
                self.task |= {pattern: action != "deny" for pattern, action in actions.items()}
                self._say_what_is_not_asked(loc, name, actions)
            else:
                self._say_what_is_not_asked(loc, name, actions)
                if len(actions) > 1 and "deny" in actions.values():
                    self._note(loc, "is denied altogether: it is denied for some uses, and they are not told apart")
                yield from _rules(name, allowed="deny" not in actions.values())

    def _say_what_is_not_asked(self, loc: Loc, name: str, actions: Mapping[str, object]) -> None:
        if "ask" in actions.values() and name != "external_directory":
            self._note(loc, "is not asked about here: a tool itself says when a person is asked (`needs_approval`)")

    def _note(self, loc: Loc, message: str) -> None:
        self._noted.append((loc, message))


def _rules(name: str, *, allowed: bool) -> Iterator[str]:
    """What `Agent.tools` says for one of opencode's names."""
    for one in dict.fromkeys((name, *_ALSO.get(name, ()))):
        yield one if allowed else f"!{one}"


def _last_of_each(rules: Sequence[str]) -> tuple[str, ...]:
    """The rules without those that a later one repeats."""
    return tuple(dict.fromkeys(reversed(rules)))[::-1]


def _doom(action: str) -> dict[str, object]:
    if action == "allow":
        return {"doom_threshold": None}
    return {"doom_response": "ask" if action == "ask" else "stop"}


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]"))
