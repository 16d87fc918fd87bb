"""The bounds of a whole tree of turns: an agent's turn, with the turns of all sub-agents below it.

Each sub-agent's turn is one counted call of its caller. The formulas are in docs/rules.md#sub-agents.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from .certified_code import Part

#: The bounds of an agent that the formulas use, by their names in the certificate.
USED: Final = ("cap", "steps that may call tools", "model calls", "tool calls", "tool calls per step")


class TreeBounds(Part):
    """The most that a turn and all turns of sub-agents below it can take together."""

    turns: int
    """Turns, the first included."""
    steps: int
    """Steps of all turns."""
    model_calls: int
    """Model calls of all turns."""
    tool_calls: int
    """Tool calls of all turns, the calls of sub-agents included."""


class OneTurn(NamedTuple):
    """The bounds of one turn alone. `tool_calls` is None without a limit."""

    cap: int
    allowance: int
    model_calls: int
    tool_calls: int | None
    calls_per_step: int

    @classmethod
    def of(cls, values: Mapping[str, float | None]) -> "OneTurn":
        """Return the bounds from the values of a certificate, by name."""
        cap, allowance, model_calls, tool_calls, calls_per_step = (values[name] for name in USED)
        limit = None if tool_calls is None else int(tool_calls)
        return cls(int(cap or 0), int(allowance or 0), int(model_calls or 0), limit, int(calls_per_step or 0))

    @property
    def calls(self) -> int:
        """The most calls that it can start itself."""
        return self.within(self.allowance * self.calls_per_step)

    def within(self, calls: int) -> int:
        """Return the number of calls, at most the limit."""
        return calls if self.tool_calls is None else min(calls, self.tool_calls)


#: A turn of the tree: its bounds, and the sub-agents that it may call.
Caller = tuple[OneTurn, Sequence[str]]


def tree_bounds(first: Caller, below: Mapping[str, Caller], max_depth: int) -> TreeBounds:
    """Return the bounds of the tree below a turn of `first`. `below` has every sub-agent, by the name of its tool.

    Turns at `max_depth` call none.
    """
    bounds_by_level: dict[tuple[str, int], TreeBounds] = {}

    def tree(caller: Caller, depth: int) -> TreeBounds:
        names = caller[1] if depth < max_depth else ()
        for name in names:
            if (name, depth + 1) not in bounds_by_level:
                bounds_by_level[name, depth + 1] = tree(below[name], depth + 1)
        under = [bounds_by_level[name, depth + 1] for name in names]
        turns_below = [below[name][0] for name in _collect_reached(names, below, max_depth - depth)]
        return _tree_of(caller[0], under, turns_below)

    return tree(first, 0)


def _tree_of(one_turn: OneTurn, under: Sequence[TreeBounds], turns_below: Sequence[OneTurn]) -> TreeBounds:
    """Return the bounds of a tree from those of the trees below it, and of all turns that it may contain."""
    if not under:
        return TreeBounds(turns=1, steps=one_turn.cap, model_calls=one_turn.model_calls, tool_calls=one_turn.calls)
    tool_calls = one_turn.within(one_turn.calls * (1 + max(tree.tool_calls for tree in under)))
    extra_calls = min(tool_calls, one_turn.calls * max(tree.turns for tree in under))
    steps = min(one_turn.calls * max(tree.steps for tree in under), extra_calls * max(turn.cap for turn in turns_below))
    calls = min(
        one_turn.calls * max(tree.model_calls for tree in under),
        extra_calls * max(turn.model_calls for turn in turns_below),
    )
    return TreeBounds(
        turns=1 + extra_calls,
        steps=one_turn.cap + steps,
        model_calls=one_turn.model_calls + calls,
        tool_calls=tool_calls,
    )


def _collect_reached(names: Sequence[str], below: Mapping[str, Caller], levels: int) -> set[str]:
    """Return the sub-agents that are reached within so many levels."""
    reached_names: set[str] = set()
    level = set(names)
    for _ in range(levels):
        reached_names |= level
        level = {name for caller in level for name in below[caller][1]} - reached_names
    return reached_names
