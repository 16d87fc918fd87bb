"""opencode's agent files: `.opencode/agent/*.md`, one agent per file, with the file's name.

    ---
    description: Reviews code, and changes nothing
    mode: subagent
    steps: 8
    tools:
      write: false
    ---
    You review code.

They mean the same as in opencode, with these differences:

- Unsupported keys (`temperature`, `permission: ask`, options of a provider) cause a warning that names the file and the
  key. The appearance of an agent (`color`, `hidden`) is ignored.
- A tool that is denied for some of its uses is denied completely, with a warning.
- `permission.doom_loop` is the response to a doom loop: `ask`, `deny` (the turn stops), `allow` (no detection).
- A misspelled key is a mistake. opencode passes it to the provider, so that a limit has no effect.
- An agent without `description` is not offered as a sub-agent, because no model could choose it.
- `steps: 0` is a mistake, as in opencode. Without `steps` the ceiling of 200 applies; opencode has none.

All mistakes of all files are reported at once, each with its line.
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
from turnwright.agent.fields import shorten
from turnwright_states import Limits

from .front_matter import MAX_BYTES, TOO_LARGE, FrontMatter, Loc, UnreadableFileError, in_lines, read_text
from .markdown import OLD_STEPS, AgentFileError, Problem, list_problems, make_agent, rename_old_steps

_LOG = logging.getLogger(__name__)
_PRESET: Final = Limits.preset("opencode")
#: The folders with agents in a folder like `.opencode`.
AGENT_FOLDERS: Final = ("agent", "agents")
_MAX_FILES: Final = 256
_ACTIONS: Final = ("ask", "allow", "deny")
_OF_ACTIONS: Final = "`ask`, `allow` or `deny`"
#: opencode's names of our tools, or of a group of tools. Each name also means itself.
_ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "read": ("read_file",),
    "list": ("list_files",),
    "grep": ("search_files",),
    "question": ("ask_user_input",),
    "external_directory": ("request_read_access",),
} | dict.fromkeys(("edit", "write", "patch"), ("edit", "write", "patch", "multiedit", "apply_patch"))
_SHOWN: Final = frozenset({"color", "hidden", "hidden_from_cycle"})
_IGNORED: Final = {
    "variant": "is ignored: the model's own setting applies",
    "options": "are ignored: the model's own settings apply",
}
#: The keys that are model settings of ours.
_SETTINGS: Final = ("temperature", "top_p")
_USED_KEYS: Final = (
    *("name", "description", "mode", "model", "prompt", "tools", "permission", "disable", "steps", OLD_STEPS),
    *_SETTINGS,
)
_KEYS: Final = (*_USED_KEYS, *_SHOWN, *_IGNORED)


def parse_opencode_agent(text: str, source: str, *, limits: Limits = _PRESET) -> Agent | None:
    """Return the agent that `text` defines, or None if it is disabled. Reads no file.

    The last part of the path `source` is the agent's name. `limits` are the engine's, which the agent must fit. Raises
    `AgentFileError` with every mistake.
    """
    return next(iter(_collect_agents([_OpencodeFile(source, Path(source).stem).read(text, limits)])), None)


def load_opencode_agents(*folders: str | os.PathLike[str], limits: Limits = _PRESET) -> list[Agent]:
    """Load the agents below `agent/` and `agents/` of these folders, such as `~/.config/opencode` and `.opencode`.

    Disabled agents are left out. An agent in a subfolder is named `folder/name`. An agent of a later folder replaces
    one with the same name of an earlier folder. A missing folder has no agents. `limits` are the engine's; agents must
    fit them. Raises `AgentFileError` with every mistake in all files.
    """
    return _collect_agents([file for folder in folders for file in _load(Path(folder), limits)])


def _load(folder: Path, limits: Limits) -> Iterator["_OpencodeFile"]:
    places: dict[str, str] = {}
    paths = [(folder / name, path) for name in AGENT_FOLDERS for path in sorted((folder / name).rglob("*.md"))]
    for count, (top, path) in enumerate(paths, start=1):
        file = _OpencodeFile(str(path), path.relative_to(top).with_suffix("").as_posix())
        if count > _MAX_FILES:
            yield file.say(f"is file {count} of its folder: a folder may have at most {_MAX_FILES} agents")
            return
        try:
            file.read(read_text(path), limits)
        except UnreadableFileError as error:
            file.say(error.why, error.line)
        if file.name in places:
            file.matter.wrong(("name",), f"{places[file.name]} has this name already: every agent needs one of its own")
        places.setdefault(file.name, str(path))
        yield file


def _collect_agents(files: Sequence["_OpencodeFile"]) -> list[Agent]:
    problems = [problem for file in files for problem in file.problems()]
    if problems:
        raise AgentFileError(problems)
    last = {file.name: file for file in files}
    sub_agents = [file.agent for file in last.values() if file.agent is not None and file.agent.mode != "primary"]
    agents = [agent for file in last.values() if (agent := file.with_sub_agents(sub_agents)) is not None]
    for file in last.values():
        for note in list_problems(file.source, file.name, file.matter.notes):
            _LOG.warning("%s", note)
    return agents


@dataclass
class _OpencodeFile:
    """One file: its mistakes, its ignored keys, and its agent unless it is disabled or has mistakes."""

    source: str
    name: str
    agent: Agent | None = None
    matter: FrontMatter = field(default_factory=lambda: FrontMatter(1, ""))
    #: The sub-agents that it may call: patterns of their names. The last matching pattern decides.
    task: dict[str, bool] = field(default_factory=dict)
    _problems: list[Problem] = field(default_factory=list)

    def say(self, message: str, line: int | None = None) -> "_OpencodeFile":
        """Add a mistake that belongs to no agent."""
        self._problems.append(Problem(self.source, line, None, None, message))
        return self

    def problems(self) -> list[Problem]:
        """Return the mistakes, in the order of their lines."""
        problems = list_problems(self.source, self.name, self.matter.mistakes)
        return [*self._problems, *sorted(problems, key=lambda problem: problem.line or 0)]

    def read(self, text: str, limits: Limits) -> "_OpencodeFile":
        """Parse the file's text, and note its mistakes."""
        if len(text) > MAX_BYTES:
            return self.say(TOO_LARGE)
        lines = in_lines(text)
        values: dict[str, object] | None = {}
        body = lines
        if lines[0].rstrip() == "---":
            end = next((at for at, line in enumerate(lines[1:], start=1) if line.rstrip() == "---"), None)
            if end is None:
                return self.say("the front matter that starts here is not closed: write a line `---` below its keys", 1)
            self.matter, body = FrontMatter(1, "\n".join(lines[1:end])), lines[end + 1 :]
            values = self.matter.read(loose=True) if self.matter.text.strip() else {}
        if values is not None:
            self._make(values, "\n".join(body).strip(), limits)
        return self

    def with_sub_agents(self, sub_agents: Sequence[Agent]) -> Agent | None:
        """Return the agent, with the sub-agents among `sub_agents` that its `permission.task` allows."""
        if self.agent is None or not self.task:
            return self.agent
        rules = list(self.agent.tools or ("*",))
        for agent in sub_agents:
            if agent.name == self.name or not agent.tool_name:
                continue
            fits = [is_allowed for pattern, is_allowed in self.task.items() if _fits(agent.name, pattern)]
            rules += [agent.tool_name if fits[-1] else f"!{agent.tool_name}"] if fits else []
        return self.agent.model_copy(update={"tools": _last_of_each(rules)})

    def _make(self, values: dict[str, object], body: str, limits: Limits) -> None:
        wrong, note = self.matter.wrong, self.matter.note
        if isinstance(name := values.get("name"), str):
            self.name = name
        self._drop_ignored(values)
        if values.pop("disable", False) is True:
            self.matter.mistakes.clear()
            self.matter.notes.clear()
            return
        rename_old_steps(self.matter, values)
        steps = values.get("steps")
        if isinstance(steps, int) and not isinstance(steps, bool) and steps < 1:
            wrong(("steps",), f"must be a whole number of at least 1, not {steps}")
        if "mode" not in values and values.get("description", "") == "":
            # opencode offers such an agent to models, which cannot know its purpose.
            values["mode"] = "primary"
            note(("description",), "is missing: no other agent can choose this one, so it is `mode: primary`")
        if isinstance(model := values.get("model"), str) and not all(
            part.strip() for part in (model + "/").split("/")[:2]
        ):
            wrong(("model",), f"must be `provider/model`, not {shorten(model)}")
        self._collect_settings(values)
        prompt = values.pop("prompt", None)
        if prompt is not None:
            body = self._read_prompt(prompt, body)
        rules = [
            *self._list_tool_rules(values.pop("tools", {})),
            *self._list_permission_rules(values, values.pop("permission", {})),
        ]
        if any(rule.startswith("!") for rule in rules):
            values["tools"] = _last_of_each(["*", *rules])
        defaults = {"name": self.name, "mode": "all", "instructions": body}
        self.agent = make_agent(self.matter, defaults | values, limits)

    def _drop_ignored(self, values: dict[str, object]) -> None:
        """Remove the ignored keys, and the mistakes in their values."""
        for key in [key for key in values if key not in _USED_KEYS]:
            values.pop(key)
            # A value may be a secret, so neither this message nor YAML's may quote it.
            self.matter.mistakes[:] = [mistake for mistake in self.matter.mistakes if mistake[0][:1] != (key,)]
            near = difflib.get_close_matches(
                key.lower()[:40], {known_key.lower(): known_key for known_key in _KEYS}, n=1
            )
            if key in _IGNORED:
                self.matter.note((key,), _IGNORED[key])
            elif key in Agent.model_fields:
                self.matter.wrong((key,), "is not a key of opencode, which would ignore it: use AGENTS.md")
            elif key not in _SHOWN and near:
                suggestion = next(known_key for known_key in _KEYS if known_key.lower() == near[0])
                self.matter.wrong((key,), f"is unknown: did you mean `{suggestion}`?")
            elif key not in _SHOWN:
                self.matter.note((key,), "is ignored: opencode passes it to the provider")

    def _collect_settings(self, values: dict[str, object]) -> None:
        """Move the model settings among the keys to where ours are."""
        for key in [key for key in _SETTINGS if key in values]:
            self.matter.lines["model_settings", key] = self.matter.line_of((key,))
            settings = values.setdefault("model_settings", {})
            if isinstance(settings, dict):
                settings[key] = values.pop(key)

    def _read_prompt(self, prompt: object, body: str) -> str:
        if body:
            self.matter.note(("prompt",), "is ignored: the text below the front matter is used")
        elif not isinstance(prompt, str) or prompt.lstrip().startswith("{file:"):
            self.matter.wrong(("prompt",), "must be text: write it below the front matter")
        else:
            return prompt.strip()
        return body

    def _list_tool_rules(self, tools: object) -> Iterator[str]:
        if not isinstance(tools, Mapping):
            self.matter.wrong(("tools",), f"must be a mapping such as `write: false`, not {shorten(tools)}")
            return
        for name, on in tools.items():
            if not isinstance(on, bool):
                self.matter.wrong(("tools", name), f"must be true or false, not {shorten(on)}")
            elif name == "task":
                self.task["*"] = on
            else:
                yield from _list_rules(name, allowed=on)

    def _list_permission_rules(self, values: dict[str, object], permission: object) -> Iterator[str]:
        rules: object = {"*": permission} if isinstance(permission, str) else permission
        if not isinstance(rules, Mapping):
            self.matter.wrong(("permission",), f"must be {_OF_ACTIONS}, or a mapping of tools to them")
            return
        for name, rule in rules.items():
            loc: Loc = ("permission",) if isinstance(permission, str) else ("permission", name)
            actions = {"*": rule} if not isinstance(rule, Mapping) else rule
            bad = [action for action in actions.values() if action not in _ACTIONS]
            if bad:
                self.matter.wrong(loc, f"must be {_OF_ACTIONS}, not {shorten(bad[0])}")
            elif name == "doom_loop":
                values |= _doom(str(list(actions.values())[-1])) if actions else {}
            elif name == "task":
                self.task |= {pattern: action != "deny" for pattern, action in actions.items()}
                self._note_ignored_ask(loc, name, actions)
            else:
                self._note_ignored_ask(loc, name, actions)
                if len(actions) > 1 and "deny" in actions.values():
                    self.matter.note(loc, "is denied for all uses: rules for single uses are not supported")
                yield from _list_rules(name, allowed="deny" not in actions.values())

    def _note_ignored_ask(self, loc: Loc, name: str, actions: Mapping[str, object]) -> None:
        if "ask" in actions.values() and name != "external_directory":
            self.matter.note(
                loc, "`ask` is ignored: a tool itself decides whether it needs approval (`needs_approval`)"
            )


def _list_rules(name: str, *, allowed: bool) -> Iterator[str]:
    """Yield the rules of `Agent.tools` for one of opencode's names."""
    for tool_name in dict.fromkeys((name, *_ALSO.get(name, ()))):
        yield tool_name if allowed else f"!{tool_name}"


def _last_of_each(rules: Sequence[str]) -> tuple[str, ...]:
    """Return the rules without the ones that a later rule repeats."""
    return tuple(dict.fromkeys(reversed(rules)))[::-1]


def _doom(action: str) -> dict[str, object]:
    if action == "allow":
        return {"doom_threshold": None}
    return {"doom_response": "ask" if action == "ask" else "stop"}


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]"))
