"""Hints for the layout: which states form the main line, and how wide a card is.

Nothing here adds or hides a state or a row: without hints the picture is only wider. Graphviz does the layout, because
hand-placed coordinates would have to change with each row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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


#: Found by trials: of the pictures with a straight loop that fit 900 pixels at text size 11, the one with the fewest
#: crossings. After a change of the chart, look at the picture, and try again only if it is bad.
HINTS: Final = LayoutHints(
    spine=(State.CHECK, State.STREAM, State.TOOL_EXEC, State.CONTINUE),
    sides=(
        (State.CONTINUE, State.PAUSED),
        (State.FINISHED, State.FAILED, State.CAP_HIT, State.DOOM_LOOP, State.SYNTHESIS_DONE, State.ABORTED),
    ),
    columns=18,
    wide={
        (State.CHECK, State.CONCLUDE): 28,
        (State.CHECK, State.TEXT_ONLY): 20,
        (State.CONCLUDE, State.DOOM_LOOP): 28,
    },
    stretch={
        (State.STREAM, State.FAILED): (1, 2),
        (State.PAUSED, State.CHECK): (1, 0),
        (State.PAUSED, State.CONCLUDE): (1, 0),
        (State.CONCLUDE, State.CAP_HIT): (1, 0),
        (State.CONCLUDE, State.DOOM_LOOP): (1, 1),
        (State.TEXT_ONLY, State.FAILED): (1, 0),
        (State.TEXT_ONLY, State.ABORTED): (1, 0),
    },
)

#: For the main way, which has room because the stops are folded.
MAIN_WAY: Final = replace(
    HINTS,
    sides=(
        HINTS.sides[0],
        (State.FINISHED, State.FAILED, State.ABORTED, State.CAP_HIT, State.DOOM_LOOP, State.SYNTHESIS_DONE),
    ),
    note=36,
    stretch={(State.TOOL_EXEC, State.SYNTHESIS_DONE): (2, 0)},
)

#: For the full chart with a column of counts on each card, so its text is narrower. Found in the same way.
COUNTED: Final = replace(
    HINTS,
    columns=14,
    wide={
        **HINTS.wide,
        (State.CHECK, State.STREAM): 22,
        (State.CHECK, State.PAUSED): 19,
        (State.STREAM, State.STREAM): 17,
        (State.STREAM, State.TOOL_EXEC): 22,
        (State.STREAM, State.CONCLUDE): 17,
        (State.STREAM, State.FINISHED): 13,
        (State.STREAM, State.FAILED): 19,
        (State.TOOL_EXEC, State.PAUSED): 22,
        (State.TOOL_EXEC, State.CONTINUE): 19,
        (State.CONCLUDE, State.CONCLUDE): 17,
        (State.TEXT_ONLY, State.FAILED): 17,
    },
)
