"""What a layout cannot know from the chart: where the eye should go.

Nothing here adds or hides a state or a row; without hints the picture is as complete, and only wider. Graphviz does
the layout. A picture with hand-placed coordinates was the alternative: it would have to be placed anew with each row.
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

    `spine`: the states of the loop, which stand below each other in a straight line. `sides`: states that stand side
    by side, from left to right. `columns`: how many characters a line of a card takes, and `wide` for the cards that
    differ. `note`: the same for the note. `stretch`: by how many levels an arrow is longer than usual, before its card
    and after it.
    """

    spine: tuple[State, ...] = ()
    sides: tuple[tuple[State, ...], ...] = ()
    columns: int = 20
    note: int = 40
    wide: Mapping[Pair, int] = field(default_factory=dict)
    stretch: Mapping[Pair, tuple[int, int]] = field(default_factory=dict)

    def straight(self, pair: Pair) -> bool:
        """Whether the pair follows each other on the spine."""
        return pair in pairwise(self.spine)

    def looping(self, pair: Pair) -> bool:
        """Whether the pair follows each other on the spine, or closes the loop."""
        return pair in pairwise((*self.spine, *self.spine[:1]))


#: Found by trying: among the pictures that fit 900 pixels with text of 11, the one with the fewest crossings, where the
#: loop runs straight. Whoever changes the chart looks at the picture, and tries again only if it is bad.
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

#: For the main way: without the stops there is room.
MAIN_WAY: Final = replace(
    HINTS,
    sides=(
        HINTS.sides[0],
        (State.FINISHED, State.FAILED, State.ABORTED, State.CAP_HIT, State.DOOM_LOOP, State.SYNTHESIS_DONE),
    ),
    note=36,
    stretch={(State.TOOL_EXEC, State.SYNTHESIS_DONE): (2, 0)},
)

#: The full chart's with a column for counts on each card: the text leaves the room for it. Found in the same way.
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
