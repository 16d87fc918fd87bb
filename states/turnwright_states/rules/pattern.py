"""Patterns of calls: names of tools, globs and groups, each with a condition or none."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from turnwright_states.suggestions import find_similar_name

from .condition import Condition, InvalidRuleError, Scene, Truth, combine_truths
from .remembered import Memory

#: A message of the user, and the answer of the turn.
USER: Final = "@user"
ANSWER: Final = "@answer"


class PatternPart(NamedTuple):
    """One tool of a pattern, or a glob, and the condition on its calls."""

    tool: str
    condition: Condition | None

    def __str__(self) -> str:
        name = "message of the user" if self.tool == USER else self.tool
        return name if self.condition is None else f"{name} if {self.condition.text}"


class ToolPattern:
    """The parts of a pattern that name one tool."""

    __slots__ = ("_conditions", "_paths", "memory")

    def __init__(self, conditions: Sequence[Condition | None]) -> None:
        #: Empty if the pattern has a part without a condition, so that each call matches.
        self._conditions = () if None in conditions else tuple(part for part in conditions if part is not None)
        self._paths = [path for condition in self._conditions for path in condition.paths]
        #: Keeps what a condition reads beside `this`; None if no condition reads `this`.
        self.memory = Memory(self._paths) if self.reads("this") else None

    def __call__(self, scene: Scene) -> Truth:
        """Return whether a call of the tool matches, or `UNKNOWN`."""
        conditions = self._conditions
        if len(conditions) == 1:
            return conditions[0](scene)
        return combine_truths([condition(scene) for condition in conditions], decisive=True) if conditions else True

    def reads(self, *names: str) -> bool:
        """Return whether a condition reads one of these names."""
        return any(path[0] in names for path in self._paths)


class CallPattern:
    """A pattern of calls. Raises `InvalidRuleError` for a text that is none, or an unknown group.

    Without `groups`, each `$GROUP` is allowed, and is a tool of this name.
    """

    def __init__(self, texts: Sequence[str], groups: Mapping[str, Sequence[str]] | None) -> None:
        self.parts: tuple[PatternPart, ...] = tuple(part for text in texts for part in _parts(text, groups))

    def __str__(self) -> str:
        words = " or ".join(str(part) for part in self.parts[:4])
        return f"{words} or another" if len(self.parts) > 4 else words  # noqa: PLR2004 (a line of a refusal)

    def bind(self, tool: str) -> ToolPattern | None:
        """Return the parts that name this tool; None if none does."""
        conditions = [part.condition for part in self.parts if names_tool(part.tool, tool)]
        return ToolPattern(conditions) if conditions else None

    def reads(self, *names: str) -> bool:
        """Return whether a condition reads one of these names."""
        return any(part.condition is not None and part.condition.reads(*names) for part in self.parts)

    def names(self, tool: str) -> bool:
        """Return whether a part names this tool."""
        return any(names_tool(part.tool, tool) for part in self.parts)

    def covers(self, pattern: "CallPattern") -> bool:
        """Return whether each call that matches another pattern surely matches this one too."""
        return all(any(_covers(whole, part) for whole in self.parts) for part in pattern.parts)


def names_tool(name: str, tool: str) -> bool:
    """Return whether the name of a pattern, perhaps with `*`, names a tool. Code points are compared."""
    if "*" not in name:
        return name == tool
    first, *middle, last = name.split("*")
    if tool.startswith("@") or len(tool) < len(first) + len(last):
        return False
    if not tool.startswith(first) or not tool.endswith(last):
        return False
    place, end = len(first), len(tool) - len(last)
    for piece in middle:
        at = tool.find(piece, place, end)
        if at < 0:
            return False
        place = at + len(piece)
    return True


def _covers(whole: PatternPart, part: PatternPart) -> bool:
    is_wider = whole.condition is None or (part.condition is not None and whole.condition.text == part.condition.text)
    is_group = part.tool.startswith("$")  # of tools that are not known yet
    return is_wider and (whole.tool == part.tool if is_group else names_tool(whole.tool, part.tool))


def _parts(text: str, groups: Mapping[str, Sequence[str]] | None) -> list[PatternPart]:
    name, separator, words = text.partition(" if ")
    name = name.strip()
    if not name or any(letter.isspace() for letter in name):
        raise InvalidRuleError(f"{text!r} is not a call: write TOOL or TOOL if CONDITION")
    condition = Condition(words.strip()) if separator else None
    if name.startswith("@") and name not in (USER, ANSWER):
        raise InvalidRuleError(f"{name!r} is not a call: write {USER} or {ANSWER}")
    if groups is None or not name.startswith("$"):
        return [PatternPart(name, condition)]
    if name[1:] not in groups:
        similar = find_similar_name(name[1:], groups)
        hint = f"did you mean '${similar}'?" if similar else f"the groups are {', '.join(groups)}"
        if not groups:
            hint = f"there are no groups: write groups: {{{name[1:]}: [TOOL, ...]}}, or the tools in its place"
        raise InvalidRuleError(f"no group is named {name!r}: {hint}")
    return [PatternPart(tool, condition) for tool in groups[name[1:]]]
