"""Rules over the history of calls, from code or from files (docs/rules.md#rules-over-calls)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from turnwright_states.rules import Broken, History, InvalidRuleError, Rule, RuleList, parse_rule
from turnwright_states.rules.pattern import ANSWER, USER, names_tool
from turnwright_states.suggestions import find_similar_name

from .errors import ConfigError

#: The longest file of rules, in characters, and its deepest nesting.
_MOST_LENGTH: Final = 1_000_000
_DEEPEST: Final = 20


class RuleError(ConfigError, InvalidRuleError):
    """A rule, or a file of rules, that cannot be used. The message has the file and the line."""


class RuleSet(RuleList):
    """Rules with groups of tools, as one file has them. Raises `RuleError`.

    `file` and `lines`, those of the rules by their names, are for errors.
    """

    __slots__ = ("file", "lines")

    def __init__(
        self,
        rules: Iterable[Rule],
        groups: Mapping[str, Sequence[str]] | None = None,
        *,
        file: str | None = None,
        lines: Mapping[str, int] | None = None,
    ) -> None:
        self.file = file
        self.lines = dict(lines or {})
        try:
            super().__init__(rules, groups)
        except InvalidRuleError as error:
            raise self._error(error.why, error.rule) from None

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.rules, dict(self.groups), self.file, self.lines)

    def check_tools(self, tools: Collection[str]) -> tuple[str, ...]:
        """Check the names of tools in the rules against those of an agent.

        Raises `RuleError` for a name that no tool has. Returns a warning for each glob that names none. Names are
        compared code point by code point.
        """
        warnings = []
        for rule, patterns in zip(self.rules, self.patterns, strict=True):
            names = {part.tool: None for calls in patterns.values() for call in calls for part in call.parts}
            for name in names:
                if name in (USER, ANSWER) or any(names_tool(name, tool) for tool in tools):
                    continue
                if "*" not in name:
                    similar = find_similar_name(name, tools)
                    hint = f"did you mean {similar!r}?" if similar else f"the tools are {', '.join(tools) or 'none'}"
                    raise self._error(f"no tool is named {name!r}: {hint}", rule.name)
                warnings.append(str(self._error(f"{name!r} names no tool", rule.name)))
        return tuple(warnings)

    def _error(self, why: str, rule: str) -> RuleError:
        return RuleError(why, rule=rule, file=self.file, line=self.lines.get(rule))

    @classmethod
    def load(cls, path: str | Path) -> "RuleSet":
        """Read a YAML file with `rules` and, perhaps, `groups`. Raises `RuleError` with the file and the line."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise RuleError(error.strerror or str(error), file=str(path)) from None
        except UnicodeDecodeError:
            raise RuleError("it is not UTF-8", file=str(path)) from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, file: str) -> "RuleSet":
        """Return the rules of a YAML text. `file` is its name in errors."""
        lines: dict[str, int] = {}
        try:
            rules, groups = _parse_rules(text, lines)
            return cls(rules, groups, file=file, lines=lines)
        except RuleError:
            raise
        except InvalidRuleError as error:
            raise RuleError(error.why, rule=error.rule, file=file, line=error.line or lines.get(error.rule)) from None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else None
            raise RuleError(f"it is not YAML: {error.problem}", file=file, line=line) from None
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            raise RuleError(f"it is not YAML: {error}", file=file) from None


def _restored(
    rules: Iterable[Rule], groups: Mapping[str, Sequence[str]], file: str | None, lines: Mapping[str, int]
) -> RuleSet:
    return RuleSet(rules, groups, file=file, lines=lines)


def _parse_rules(text: str, lines: dict[str, int]) -> tuple[list[Rule], dict[str, Sequence[str]]]:
    """Return the rules and the groups of a file. `lines` gets the line of each rule by its name."""
    if len(text) > _MOST_LENGTH:
        raise InvalidRuleError(f"it has {len(text)} characters; at most {_MOST_LENGTH}")
    _check_events(text)
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise InvalidRuleError("a file of rules has rules, and perhaps groups", line=1)
    rules: list[Rule] = []
    groups: dict[str, Sequence[str]] = {}
    for key, node in root.value:
        if key.value == "rules" and isinstance(node, yaml.SequenceNode):
            rules = [_rule(item, lines) for item in node.value]
        elif key.value == "groups" and isinstance(node, yaml.MappingNode):
            groups = _value(node)  # type: ignore[assignment]  # `RuleSet` checks it
        elif key.value in ("rules", "groups"):
            kind = "a list" if key.value == "rules" else "a list of tools for each name"
            raise InvalidRuleError(f"{key.value} is {kind}", line=_line(node))
        else:
            raise InvalidRuleError(f"{key.value} is unknown: a file of rules has rules and groups", line=_line(key))
    return rules, groups


def _rule(node: yaml.Node, lines: dict[str, int]) -> Rule:
    words = _value(node)
    if not isinstance(words, dict):
        raise InvalidRuleError("a rule has a name and the words of a form", line=_line(node))
    try:
        rule = parse_rule(words)
    except InvalidRuleError as error:
        raise error.at(line=_line(node)) from None
    lines.setdefault(rule.name, _line(node))
    return rule


def _line(node: yaml.Node | yaml.Event) -> int:
    return node.start_mark.line + 1 if node.start_mark else 1


def _check_events(text: str) -> None:
    """Raise `RuleError` for what a file of rules does not need, and what can make a small file large."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = _line(event)
        if depth > _DEEPEST:
            raise InvalidRuleError(f"it nests more than {_DEEPEST} levels", line=line)
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            raise InvalidRuleError("anchors and aliases are not allowed: write the value again", line=line)
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            raise InvalidRuleError("tags are not allowed", line=line)


def _value(node: yaml.Node) -> object:
    """Return a node's value, with each key once."""
    if isinstance(node, yaml.MappingNode):
        values: dict[object, object] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key in values:
                raise InvalidRuleError(f"the key {key!r} is there twice, or is not a text", line=_line(key_node))
            values[key] = _value(value_node)
        return values
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    return yaml.SafeLoader("").construct_object(node)


__all__ = ["Broken", "History", "Rule", "RuleError", "RuleSet"]
