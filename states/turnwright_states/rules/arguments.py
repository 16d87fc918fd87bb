"""The arguments that rules read, compared with those that tools have."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from turnwright_states.suggestions import find_similar_name

from .condition import parse_path
from .pattern import CallPattern, names_tool
from .rule import Rule, RuleList

#: The tools of an agent with the names of their arguments; None for a tool that may take others.
Arguments: TypeAlias = Mapping[str, Collection[str] | None]
#: The words of a form whose calls have the compared fields: the judged call's, and the other call's.
_COMPARED: Final[Mapping[tuple[str, ...], tuple[str, str]]] = {
    ("before", "need"): ("before", "need"),
    ("after", "never"): ("never", "after"),
    ("after", "then"): ("after", "then"),
    ("at_most", "of"): ("of", "of"),
    ("not_both",): ("not_both", "not_both"),
}


class ArgumentFault(NamedTuple):
    """An argument that a rule reads, and that tools do not have.

    It is an error if no tool that the rule names there has it: the rule cannot mean what it says.
    """

    rule: str
    why: str
    is_error: bool


class _Read(NamedTuple):
    """An argument that a rule reads of the calls of tools and globs. Where it `may_lack`, only some may have it."""

    argument: str | int
    names: tuple[str, ...]
    may_lack: bool = False


def check_arguments(rules: RuleList, arguments: Arguments) -> Iterator[ArgumentFault]:
    """Yield the arguments that rules read and that tools do not have."""
    for rule, patterns in zip(rules.rules, rules.patterns, strict=True):
        for read_argument in dict.fromkeys(_list_read(rule, patterns)):
            tools = [tool for tool in arguments if any(names_tool(name, tool) for name in read_argument.names)]
            lacking = {
                tool: names
                for tool in tools
                if (names := arguments[tool]) is not None and read_argument.argument not in names
            }
            is_error = len(lacking) == len(tools)
            if lacking and (is_error or not read_argument.may_lack):
                yield ArgumentFault(rule.name, _describe(str(read_argument.argument), lacking), is_error)


def _describe(argument: str, lacking: Mapping[str, Collection[str]]) -> str:
    names = list(dict.fromkeys(name for names in lacking.values() for name in names))
    similar = find_similar_name(argument, names)
    hint = f"did you mean {similar!r}?" if similar else f"the arguments are {', '.join(names)}"
    *first, last = lacking
    tools = f"{', '.join(first)} and {last} have" if first else f"{last} has"
    return f"{tools} no argument {argument!r}{f': {hint}' if names else ''}"


def _list_read(rule: Rule, patterns: Mapping[str, Sequence[CallPattern]]) -> Iterator[_Read]:
    for calls in patterns.values():
        for call in calls:
            conditions = {part.condition.text: part.condition for part in call.parts if part.condition is not None}
            for text, condition in conditions.items():
                # The tools of a group are parts with one condition.
                names = tuple(part.tool for part in call.parts if part.condition and part.condition.text == text)
                for root, *keys in condition.paths:
                    if root == "args" and keys:
                        yield _Read(keys[0], names)
                    elif root == "this" and len(keys) > 1 and keys[0] == "args":
                        yield _Read(keys[1], _names(patterns["before"]))
    if rule.form in _COMPARED:
        judged_names, compared_names = (_names(patterns[word]) for word in _COMPARED[rule.form])
        for field, path in rule.pairs().items():
            yield from _list_compared(field, judged_names, may_lack=False)
            # A call without the field equals every call.
            yield from _list_compared(path, compared_names, may_lack=rule.form == ("after", "never"))
        if rule.sum:
            yield from _list_compared(rule.sum, judged_names, may_lack=False)


def _list_compared(path: str, names: tuple[str, ...], *, may_lack: bool) -> Iterator[_Read]:
    root, *keys = parse_path(path).path
    if root == "args" and keys:
        yield _Read(keys[0], names, may_lack)


def _names(calls: Sequence[CallPattern]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.tool for call in calls for part in call.parts))
