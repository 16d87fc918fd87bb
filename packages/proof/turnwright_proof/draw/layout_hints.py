"""Hints for the layout: which states form the main line, and how wide a card is.

Nothing here adds or hides a state or a row: without hints the picture is only wider. Graphviz does the layout, because
hand-placed coordinates would have to change with each row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from turnwright_states.state import State

Pair = tuple[State, State]


@dataclass(frozen=True, slots=True)
class LayoutHints:
    """Hints for one layout.

    `spine`: the states of the loop, in a straight line from top to bottom. `sides`: groups of states side by side, from
    left to right. `columns`: characters in a line of a card; `wide` has the cards that differ, and `note` the note.
    `stretch`: the extra levels of an arrow before its card and after it.
    """

    spine: tuple[State, ...] = ()
    sides: tuple[tuple[State, ...], ...] = ()
    columns: int = 20
    note: int = 40
    wide: Mapping[Pair, int] = field(default_factory=dict)
    stretch: Mapping[Pair, tuple[int, int]] = field(default_factory=dict)

    def straight(self, pair: Pair) -> bool:
        """Whether the two states are neighbors on the spine."""
        return pair in pairwise(self.spine)

    def looping(self, pair: Pair) -> bool:
        """Whether the two states are neighbors on the spine, or close the loop."""
        return pair in pairwise((*self.spine, *self.spine[:1]))


_LOOP: Final = (State.CHECK, State.STREAM, State.TOOL_EXEC, State.CONTINUE)

#: Found by trials: of the pictures with a straight loop that fit 900 pixels at text size 11, one with few crossings.
#: After a change of the chart, look at the picture, and try again only if it is bad.
HINTS: Final = LayoutHints(
    spine=_LOOP,
    sides=(
        (State.CONTINUE, State.PAUSED),
        (State.TOOL_EXEC, State.REVIEW),
        (State.STREAM, State.COMPACT),
        (State.FINISHED, State.DOOM_LOOP, State.FAILED, State.SYNTHESIS_DONE, State.CAP_HIT, State.ABORTED),
    ),
    columns=14,
    note=36,
    wide={
        (State.CHECK, State.CONCLUDE): 28,
        (State.CHECK, State.STREAM): 18,
        (State.CHECK, State.PAUSED): 15,
        (State.STREAM, State.FAILED): 22,
        (State.STREAM, State.REVIEW): 11,
        (State.STREAM, State.FINISHED): 17,
        (State.STREAM, State.STREAM): 11,
        (State.STREAM, State.COMPACT): 19,
        (State.STREAM, State.CONCLUDE): 15,
        (State.STREAM, State.ABORTED): 16,
        (State.COMPACT, State.ABORTED): 24,
        (State.REVIEW, State.CONTINUE): 22,
        (State.REVIEW, State.FAILED): 13,
        (State.REVIEW, State.FINISHED): 17,
        (State.REVIEW, State.REVIEW): 16,
        (State.REVIEW, State.CONCLUDE): 18,
        (State.REVIEW, State.ABORTED): 28,
        (State.TOOL_EXEC, State.FINISHED): 13,
        (State.TOOL_EXEC, State.SYNTHESIS_DONE): 11,
        (State.PAUSED, State.PAUSED): 15,
        (State.PAUSED, State.CONCLUDE): 16,
        (State.PAUSED, State.ABORTED): 18,
        (State.CONCLUDE, State.CONCLUDE): 16,
        (State.CONCLUDE, State.DOOM_LOOP): 24,
        (State.CONCLUDE, State.CAP_HIT): 24,
        (State.CONCLUDE, State.FAILED): 16,
        (State.CONCLUDE, State.ABORTED): 28,
        (State.TEXT_ONLY, State.FAILED): 20,
        (State.TEXT_ONLY, State.FINISHED): 16,
        (State.TEXT_ONLY, State.TEXT_ONLY): 16,
        (State.TEXT_ONLY, State.ABORTED): 20,
    },
    stretch={
        (State.CHECK, State.TEXT_ONLY): (1, 0),
        (State.CHECK, State.CONCLUDE): (2, 3),
        (State.CHECK, State.STREAM): (1, 1),
        (State.CHECK, State.PAUSED): (0, 1),
        (State.STREAM, State.FAILED): (1, 2),
        (State.STREAM, State.REVIEW): (2, 1),
        (State.STREAM, State.FINISHED): (3, 0),
        (State.STREAM, State.CONCLUDE): (0, 2),
        (State.STREAM, State.ABORTED): (1, 1),
        (State.COMPACT, State.CONCLUDE): (3, 0),
        (State.COMPACT, State.COMPACT): (1, 1),
        (State.COMPACT, State.ABORTED): (1, 3),
        (State.REVIEW, State.FAILED): (0, 2),
        (State.REVIEW, State.REVIEW): (0, 1),
        (State.REVIEW, State.ABORTED): (2, 0),
        (State.TOOL_EXEC, State.PAUSED): (3, 0),
        (State.TOOL_EXEC, State.FAILED): (3, 0),
        (State.TOOL_EXEC, State.CONCLUDE): (1, 0),
        (State.PAUSED, State.CHECK): (1, 0),
        (State.PAUSED, State.CONCLUDE): (1, 0),
        (State.PAUSED, State.TOOL_EXEC): (0, 2),
        (State.PAUSED, State.ABORTED): (1, 3),
        (State.CONCLUDE, State.DOOM_LOOP): (1, 1),
        (State.TEXT_ONLY, State.FAILED): (1, 0),
        (State.TEXT_ONLY, State.ABORTED): (1, 0),
    },
)

#: For the review drawing, which has room because common rows are folded. Found in the same way.
REVIEW: Final = LayoutHints(
    spine=_LOOP,
    sides=(
        (State.CONTINUE, State.PAUSED),
        (State.REVIEW, State.COMPACT),
        (State.FINISHED, State.ABORTED, State.FAILED, State.DOOM_LOOP, State.CAP_HIT, State.SYNTHESIS_DONE),
    ),
    columns=16,
    note=34,
    wide={
        (State.CHECK, State.TEXT_ONLY): 13,
        (State.CHECK, State.CONCLUDE): 21,
        (State.CHECK, State.PAUSED): 20,
        (State.STREAM, State.REVIEW): 15,
        (State.STREAM, State.TOOL_EXEC): 18,
        (State.STREAM, State.COMPACT): 23,
        (State.COMPACT, State.CONCLUDE): 14,
        (State.REVIEW, State.FAILED): 28,
        (State.REVIEW, State.TOOL_EXEC): 11,
        (State.REVIEW, State.FINISHED): 17,
        (State.TOOL_EXEC, State.PAUSED): 24,
        (State.TOOL_EXEC, State.FINISHED): 15,
        (State.TOOL_EXEC, State.CONTINUE): 15,
        (State.CONTINUE, State.CHECK): 22,
        (State.PAUSED, State.PAUSED): 20,
        (State.PAUSED, State.CHECK): 19,
        (State.PAUSED, State.CONCLUDE): 19,
        (State.PAUSED, State.TOOL_EXEC): 12,
        (State.CONCLUDE, State.CONCLUDE): 20,
        (State.CONCLUDE, State.DOOM_LOOP): 12,
        (State.TEXT_ONLY, State.FINISHED): 13,
    },
    stretch={
        (State.CHECK, State.CONCLUDE): (2, 3),
        (State.CHECK, State.STREAM): (0, 1),
        (State.STREAM, State.REVIEW): (1, 0),
        (State.STREAM, State.TOOL_EXEC): (1, 0),
        (State.STREAM, State.FINISHED): (2, 2),
        (State.STREAM, State.COMPACT): (0, 1),
        (State.COMPACT, State.CONCLUDE): (2, 1),
        (State.REVIEW, State.FAILED): (0, 1),
        (State.REVIEW, State.FINISHED): (3, 1),
        (State.TOOL_EXEC, State.FINISHED): (2, 0),
        (State.TOOL_EXEC, State.SYNTHESIS_DONE): (2, 0),
        (State.PAUSED, State.CHECK): (0, 3),
        (State.TEXT_ONLY, State.FINISHED): (3, 2),
    },
)

#: For the full chart with a column of counts on each card, so its text is narrower. Found in the same way.
COUNTED: Final = LayoutHints(
    spine=_LOOP,
    sides=(
        (State.CONTINUE, State.PAUSED),
        (State.TOOL_EXEC, State.REVIEW),
        (State.STREAM, State.COMPACT),
        (State.FINISHED, State.DOOM_LOOP, State.FAILED, State.SYNTHESIS_DONE, State.CAP_HIT, State.ABORTED),
    ),
    columns=13,
    note=43,
    wide={
        (State.CHECK, State.TEXT_ONLY): 14,
        (State.CHECK, State.CONCLUDE): 28,
        (State.CHECK, State.STREAM): 17,
        (State.CHECK, State.PAUSED): 12,
        (State.STREAM, State.FAILED): 15,
        (State.STREAM, State.TOOL_EXEC): 11,
        (State.STREAM, State.FINISHED): 11,
        (State.STREAM, State.COMPACT): 24,
        (State.STREAM, State.CONCLUDE): 12,
        (State.COMPACT, State.COMPACT): 20,
        (State.COMPACT, State.ABORTED): 21,
        (State.REVIEW, State.CONTINUE): 23,
        (State.REVIEW, State.TOOL_EXEC): 11,
        (State.REVIEW, State.FINISHED): 21,
        (State.REVIEW, State.REVIEW): 15,
        (State.REVIEW, State.CONCLUDE): 12,
        (State.REVIEW, State.ABORTED): 25,
        (State.TOOL_EXEC, State.FINISHED): 11,
        (State.TOOL_EXEC, State.SYNTHESIS_DONE): 15,
        (State.TOOL_EXEC, State.FAILED): 18,
        (State.TOOL_EXEC, State.CONCLUDE): 15,
        (State.TOOL_EXEC, State.ABORTED): 17,
        (State.PAUSED, State.PAUSED): 11,
        (State.PAUSED, State.CHECK): 11,
        (State.PAUSED, State.CONCLUDE): 19,
        (State.PAUSED, State.TOOL_EXEC): 12,
        (State.PAUSED, State.ABORTED): 11,
        (State.CONCLUDE, State.CONCLUDE): 16,
        (State.CONCLUDE, State.CAP_HIT): 21,
        (State.CONCLUDE, State.FAILED): 15,
        (State.CONCLUDE, State.ABORTED): 26,
        (State.TEXT_ONLY, State.FAILED): 19,
        (State.TEXT_ONLY, State.TEXT_ONLY): 11,
        (State.TEXT_ONLY, State.ABORTED): 17,
    },
    stretch={
        (State.CHECK, State.TEXT_ONLY): (1, 0),
        (State.CHECK, State.CONCLUDE): (2, 2),
        (State.CHECK, State.STREAM): (1, 1),
        (State.CHECK, State.PAUSED): (0, 2),
        (State.STREAM, State.FAILED): (1, 2),
        (State.STREAM, State.REVIEW): (2, 1),
        (State.STREAM, State.FINISHED): (3, 0),
        (State.STREAM, State.STREAM): (0, 2),
        (State.STREAM, State.CONCLUDE): (2, 2),
        (State.STREAM, State.ABORTED): (1, 1),
        (State.COMPACT, State.ABORTED): (1, 3),
        (State.REVIEW, State.FAILED): (3, 0),
        (State.REVIEW, State.CONCLUDE): (0, 1),
        (State.REVIEW, State.ABORTED): (2, 0),
        (State.TOOL_EXEC, State.PAUSED): (3, 0),
        (State.TOOL_EXEC, State.FAILED): (3, 0),
        (State.TOOL_EXEC, State.CONCLUDE): (1, 0),
        (State.PAUSED, State.CHECK): (1, 0),
        (State.PAUSED, State.CONCLUDE): (1, 0),
        (State.PAUSED, State.ABORTED): (1, 3),
        (State.CONCLUDE, State.DOOM_LOOP): (1, 1),
        (State.TEXT_ONLY, State.FAILED): (1, 0),
        (State.TEXT_ONLY, State.ABORTED): (1, 0),
    },
)
