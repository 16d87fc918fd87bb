"""Rules over the history of calls, from code or from files (docs/rules.md#rules-over-calls)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from msgspec import to_builtins

from turnwright_states import rules as states
from turnwright_states.rules import Broken, History, InvalidRuleError, RuleList
from turnwright_states.rules.arguments import Arguments, check_arguments
from turnwright_states.rules.pattern import ANSWER, USER, names_tool
from turnwright_states.suggestions import find_similar_name

from ._base.regular_files import read_regular
from .errors import ConfigError

#: The longest file of rules, in characters, and its deepest nesting.
_MOST_LENGTH: Final = 1_000_000
_DEEPEST: Final = 20


class RuleError(ConfigError, InvalidRuleError):
    """A rule, or a file of rules, that cannot be used. The message has the file and the line."""


if TYPE_CHECKING:  # a subclass would lose the overloads of its forms
    from turnwright_states.rules import Rule
else:

    class _RuleType(type(states.Rule)):
        """The type of rules, which raise `RuleError`."""

        def __call__(cls, *values: object, **words: object) -> object:
            try:
                return super().__call__(*values, **words)
            except InvalidRuleError as error:
                raise RuleError(error.why, rule=error.rule) from None

    class Rule(
        states.Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, metaclass=_RuleType
    ):
        """See `turnwright_states.rules.Rule`. Raises `RuleError`."""


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
            raise self.error(error.why, error.rule) from None

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.rules, dict(self.groups), self.file, self.lines)

    def check_tools(self, tools: Arguments, hosted_tools: Collection[str] = ()) -> tuple[str, ...]:
        """Check the names of tools and arguments in the rules against those of an agent.

        `tools` have the names of their arguments, or None if they may take others. `hosted_tools` are run by the
        agent's provider.

        Raises `RuleError` for a name that no tool has, a hosted tool, and an argument that none of its tools has.
        Returns a warning for each glob that names no tool, and for each argument that some of its tools lack. Names are
        compared code point by code point.
        """
        warnings = []
        for rule, patterns in zip(self.rules, self.patterns, strict=True):
            names = {part.tool: None for calls in patterns.values() for call in calls for part in call.parts}
            for name in names:
                if name in (USER, ANSWER) or any(names_tool(name, tool) for tool in tools):
                    continue
                if name in hosted_tools:
                    why = f"{name} is a hosted tool: its provider runs it, and no rule can hold it"
                    raise self.error(why, rule.name)
                if "*" not in name:
                    similar = find_similar_name(name, tools)
                    hint = f"did you mean {similar!r}?" if similar else f"the tools are {', '.join(tools)}"
                    hint = hint if tools else "the agent has no tools"
                    raise self.error(f"no tool is named {name!r}: {hint}", rule.name)
                warnings.append(str(self.error(f"{name!r} names no tool", rule.name)))
        for fault in check_arguments(self, tools):
            error = self.error(fault.why, fault.rule)
            if fault.is_error:
                raise error
            warnings.append(str(error))
        return tuple(warnings)

    def error(self, why: str, rule: str) -> RuleError:
        """Return an error about a rule, with its file and its line."""
        return RuleError(why, rule=rule, file=self.file, line=self.lines.get(rule))

    @classmethod
    def load(cls, path: str | Path) -> "RuleSet":
        """Read a YAML file with `rules` and, perhaps, `groups`. Raises `RuleError` with the file and the line."""
        try:
            text = read_regular(path, 4 * _MOST_LENGTH).decode("utf-8-sig")
        except OSError as error:
            raise RuleError(error.strerror or str(error), file=str(path)) from None
        except UnicodeDecodeError:
            raise RuleError("it is not UTF-8", file=str(path)) from None
        except ValueError as error:  # a path with a null character in it
            raise RuleError(str(error), file=repr(str(path))) from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, file: str) -> "RuleSet":
        """Return the rules of a YAML text. `file` is its name in errors."""
        lines: dict[str, int] = {}
        try:
            rules, groups = _parse_rules(text, lines)
            return cls(rules, groups, file=file, lines=lines)
        except InvalidRuleError as error:
            if error.file is not None:
                raise
            raise RuleError(error.why, rule=error.rule, file=file, line=error.line or lines.get(error.rule)) from None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else None
            raise RuleError(f"it is not YAML: {error.problem}", file=file, line=line) from None
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            raise RuleError(f"it is not YAML: {error}", file=file) from None


#: The rules of an agent, or of an engine: rules, and sets of them.
Rules = Sequence["Rule | RuleSet"]


def make_rule_sets(rules: Iterable["Rule | RuleSet"], where: str) -> tuple[RuleSet, ...]:
    """Return rules as sets; those that stand alone are one set. Raises `ConfigError` for another object.

    `where` names their owner in errors.
    """
    items = list(rules)
    for item in items:
        if not isinstance(item, Rule | RuleSet):
            raise ConfigError(f"{where}: {item!r:.80} is not a rule: write Rule(NAME, ...), or RuleSet.load(FILE)")
    alone = [item for item in items if isinstance(item, Rule)]
    return (*([RuleSet(alone)] if alone else ()), *(item for item in items if isinstance(item, RuleSet)))


def argument_names(schema: Mapping[str, Any]) -> Collection[str] | None:
    """Return the names of a tool's arguments by its JSON Schema; None if it may take others."""
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    return tuple(schema.get("properties", ())) if is_closed else None


def read_rules(value: object) -> tuple["Rule | RuleSet", ...]:
    """Return the rules of an agent's field, from code or from JSON. Raises `ValueError`."""
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise ValueError(f"must be a list of rules, not {value!r:.80}")  # noqa: TRY004 (pydantic reports it)
    rules = tuple(_read_item(item) for item in value)
    try:
        make_rule_sets(rules, "rules")
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return rules


def _read_item(item: object) -> Any:  # noqa: ANN401 (checked by `make_rule_sets`)
    if not isinstance(item, Mapping):
        return item
    if "name" in item or not isinstance(item.get("rules"), Sequence):
        return states.parse_rule(item, Rule)
    return RuleSet([states.parse_rule(words, Rule) for words in item["rules"]], item.get("groups"))


def write_rules(value: Iterable["Rule | RuleSet"]) -> list[object]:
    """Return rules as JSON values, which `read_rules` reads."""
    return [
        to_builtins(item)
        if isinstance(item, Rule)
        else {"rules": to_builtins(item.rules), "groups": {name: list(tools) for name, tools in item.groups.items()}}
        for item in value
    ]


def _restore(
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
        raise InvalidRuleError("a file of rules has rules: write `rules:`, and the list below it", line=1)
    rules: list[Rule] = []
    groups: dict[str, Sequence[str]] = {}
    keys: set[str] = set()
    for key_node, node in root.value:
        key = _key(key_node, keys)
        keys.add(key)
        if key == "rules" and isinstance(node, yaml.SequenceNode):
            rules = [_rule(item, lines) for item in node.value]
        elif key == "groups" and isinstance(node, yaml.MappingNode):
            groups = _value(node)  # type: ignore[assignment]  # `RuleSet` checks it
        elif key in ("rules", "groups"):
            kind = "a list" if key == "rules" else "a list of tools for each name"
            raise InvalidRuleError(f"{key} is {kind}", line=_line(node))
        else:
            raise InvalidRuleError(f"{key} is unknown: a file of rules has rules and groups", line=_line(key_node))
    return rules, groups


def _rule(node: yaml.Node, lines: dict[str, int]) -> Rule:
    words = _value(node)
    if not isinstance(words, dict):
        example = "{name: check-first, before: refund, need: verify}"
        raise InvalidRuleError(f"a rule has a name and the words of a form, such as {example}", line=_line(node))
    try:
        rule = states.parse_rule(words, Rule)
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


def _key(node: yaml.Node, known_keys: Collection[str]) -> str:
    """Return a key of a mapping. Raises `InvalidRuleError` for one that the mapping has already."""
    key: str | None = node.value if isinstance(node, yaml.ScalarNode) else None
    if key is None or key in known_keys:
        raise InvalidRuleError(f"the key {key!r} is there twice, or is not a text", line=_line(node))
    return key


def _value(node: yaml.Node) -> object:
    """Return a node's value, with each key once."""
    if isinstance(node, yaml.MappingNode):
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            values[_key(key_node, values)] = _value(value_node)
        return values
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    value = yaml.SafeLoader("").construct_object(node)
    # YAML 1.1 reads 010 as eight, and 1:30 as ninety.
    if isinstance(value, int) and not isinstance(value, bool) and str(value) != node.value.replace("_", "").lstrip("+"):
        raise InvalidRuleError(f"{node.value} is {value} in YAML: write {value}", line=_line(node))
    return value


__all__ = ["Broken", "History", "Rule", "RuleError", "RuleSet"]
