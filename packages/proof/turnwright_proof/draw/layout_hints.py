"""Hints for the layout: which states form the main line, and how wide a card is.

Nothing here adds or hides a state or a row: without hints the picture is only wider. Graphviz does the layout, because
hand-placed coordinates would have to change with each row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from turnwright_states.state import State

S = State
Pair = tuple[State, State]


class ArrowHint(NamedTuple):
    """Hints for one arrow: characters in a line of its card (None: as the others), and its extra levels.

    `before` are those before the card, `after` those after it.
    """

    columns: int | None = None
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class LayoutHints:
    """Hints for one layout.

    `spine`: the states of the loop, in a straight line from top to bottom. `sides`: groups of states side by side, from
    left to right. `columns` and `note`: characters in a line of a card, and of the note. `arrows` has the arrows that
    differ.
    """

    spine: tuple[State, ...] = ()
    sides: tuple[tuple[State, ...], ...] = ()
    columns: int = 20
    note: int = 40
    arrows: Mapping[Pair, ArrowHint] = field(default_factory=dict)

    def straight(self, pair: Pair) -> bool:
        """Whether the two states are neighbors on the spine."""
        return pair in pairwise(self.spine)

    def looping(self, pair: Pair) -> bool:
        """Whether the two states are neighbors on the spine, or close the loop."""
        return pair in pairwise((*self.spine, *self.spine[:1]))


_LOOP: Final = (S.CHECK, S.STREAM, S.TOOL_EXEC, S.CONTINUE)
#: Of the full chart.
_SIDES: Final = (
    (S.CONTINUE, S.PAUSED),
    (S.TOOL_EXEC, S.REVIEW),
    (S.STREAM, S.COMPACT),
    (S.FINISHED, S.DOOM_LOOP, S.FAILED, S.SYNTHESIS_DONE, S.CAP_HIT, S.ABORTED),
)

#: Found by trials: of the pictures with a straight loop that fit 900 pixels at text size 11, one with few crossings.
#: After a change of the chart, look at the picture, and try again only if it is bad.
HINTS: Final = LayoutHints(
    spine=_LOOP,
    sides=_SIDES,
    columns=14,
    note=36,
    arrows={
        (S.CHECK, S.CONCLUDE): ArrowHint(28, 2, 3),
        (S.CHECK, S.STREAM): ArrowHint(18, 1, 1),
        (S.CHECK, S.PAUSED): ArrowHint(15, 0, 1),
        (S.CHECK, S.TEXT_ONLY): ArrowHint(None, 1),
        (S.STREAM, S.FAILED): ArrowHint(22, 1, 2),
        (S.STREAM, S.REVIEW): ArrowHint(11, 2, 1),
        (S.STREAM, S.FINISHED): ArrowHint(17, 3),
        (S.STREAM, S.STREAM): ArrowHint(11),
        (S.STREAM, S.COMPACT): ArrowHint(19),
        (S.STREAM, S.CONCLUDE): ArrowHint(15, 0, 2),
        (S.STREAM, S.ABORTED): ArrowHint(16, 1, 1),
        (S.COMPACT, S.ABORTED): ArrowHint(24, 1, 3),
        (S.COMPACT, S.CONCLUDE): ArrowHint(None, 3),
        (S.COMPACT, S.COMPACT): ArrowHint(None, 1, 1),
        (S.REVIEW, S.CONTINUE): ArrowHint(22),
        (S.REVIEW, S.FAILED): ArrowHint(13, 0, 2),
        (S.REVIEW, S.FINISHED): ArrowHint(17),
        (S.REVIEW, S.REVIEW): ArrowHint(16, 0, 1),
        (S.REVIEW, S.CONCLUDE): ArrowHint(18),
        (S.REVIEW, S.ABORTED): ArrowHint(28, 2),
        (S.TOOL_EXEC, S.FINISHED): ArrowHint(13),
        (S.TOOL_EXEC, S.SYNTHESIS_DONE): ArrowHint(11),
        (S.TOOL_EXEC, S.PAUSED): ArrowHint(None, 3),
        (S.TOOL_EXEC, S.FAILED): ArrowHint(None, 3),
        (S.TOOL_EXEC, S.CONCLUDE): ArrowHint(None, 1),
        (S.PAUSED, S.PAUSED): ArrowHint(15),
        (S.PAUSED, S.CONCLUDE): ArrowHint(16, 1),
        (S.PAUSED, S.ABORTED): ArrowHint(18, 1, 3),
        (S.PAUSED, S.CHECK): ArrowHint(None, 1),
        (S.PAUSED, S.TOOL_EXEC): ArrowHint(None, 0, 2),
        (S.CONCLUDE, S.CONCLUDE): ArrowHint(16),
        (S.CONCLUDE, S.DOOM_LOOP): ArrowHint(24, 1, 1),
        (S.CONCLUDE, S.CAP_HIT): ArrowHint(24),
        (S.CONCLUDE, S.FAILED): ArrowHint(16),
        (S.CONCLUDE, S.ABORTED): ArrowHint(28),
        (S.TEXT_ONLY, S.FAILED): ArrowHint(20, 1),
        (S.TEXT_ONLY, S.FINISHED): ArrowHint(16),
        (S.TEXT_ONLY, S.TEXT_ONLY): ArrowHint(16),
        (S.TEXT_ONLY, S.ABORTED): ArrowHint(20, 1),
    },
)

#: For the review drawing, which has room because common rows are folded. Found in the same way.
REVIEW: Final = LayoutHints(
    spine=_LOOP,
    sides=(
        (S.CONTINUE, S.PAUSED),
        (S.REVIEW, S.COMPACT),
        (S.FINISHED, S.ABORTED, S.FAILED, S.DOOM_LOOP, S.CAP_HIT, S.SYNTHESIS_DONE),
    ),
    columns=16,
    note=34,
    arrows={
        (S.CHECK, S.TEXT_ONLY): ArrowHint(13),
        (S.CHECK, S.CONCLUDE): ArrowHint(21, 2, 3),
        (S.CHECK, S.PAUSED): ArrowHint(20),
        (S.CHECK, S.STREAM): ArrowHint(None, 0, 1),
        (S.STREAM, S.REVIEW): ArrowHint(15, 1),
        (S.STREAM, S.TOOL_EXEC): ArrowHint(18, 1),
        (S.STREAM, S.COMPACT): ArrowHint(23, 0, 1),
        (S.STREAM, S.FINISHED): ArrowHint(None, 2, 2),
        (S.COMPACT, S.CONCLUDE): ArrowHint(14, 2, 1),
        (S.REVIEW, S.FAILED): ArrowHint(28, 0, 1),
        (S.REVIEW, S.TOOL_EXEC): ArrowHint(11),
        (S.REVIEW, S.FINISHED): ArrowHint(17, 3, 1),
        (S.TOOL_EXEC, S.PAUSED): ArrowHint(24),
        (S.TOOL_EXEC, S.FINISHED): ArrowHint(15, 2),
        (S.TOOL_EXEC, S.CONTINUE): ArrowHint(15),
        (S.TOOL_EXEC, S.SYNTHESIS_DONE): ArrowHint(None, 2),
        (S.CONTINUE, S.CHECK): ArrowHint(22),
        (S.PAUSED, S.PAUSED): ArrowHint(20),
        (S.PAUSED, S.CHECK): ArrowHint(19, 0, 3),
        (S.PAUSED, S.CONCLUDE): ArrowHint(19),
        (S.PAUSED, S.TOOL_EXEC): ArrowHint(12),
        (S.CONCLUDE, S.CONCLUDE): ArrowHint(20),
        (S.CONCLUDE, S.DOOM_LOOP): ArrowHint(12),
        (S.TEXT_ONLY, S.FINISHED): ArrowHint(13, 3, 2),
    },
)

#: For the full chart with a column of counts on each card, so its text is narrower. Found in the same way.
COUNTED: Final = LayoutHints(
    spine=_LOOP,
    sides=_SIDES,
    columns=13,
    note=43,
    arrows={
        (S.CHECK, S.TEXT_ONLY): ArrowHint(14, 1),
        (S.CHECK, S.CONCLUDE): ArrowHint(28, 2, 2),
        (S.CHECK, S.STREAM): ArrowHint(17, 1, 1),
        (S.CHECK, S.PAUSED): ArrowHint(12, 0, 2),
        (S.STREAM, S.FAILED): ArrowHint(15, 1, 2),
        (S.STREAM, S.TOOL_EXEC): ArrowHint(11),
        (S.STREAM, S.FINISHED): ArrowHint(11, 3),
        (S.STREAM, S.COMPACT): ArrowHint(24),
        (S.STREAM, S.CONCLUDE): ArrowHint(12, 2, 2),
        (S.STREAM, S.REVIEW): ArrowHint(None, 2, 1),
        (S.STREAM, S.STREAM): ArrowHint(None, 0, 2),
        (S.STREAM, S.ABORTED): ArrowHint(None, 1, 1),
        (S.COMPACT, S.COMPACT): ArrowHint(20),
        (S.COMPACT, S.ABORTED): ArrowHint(21, 1, 3),
        (S.REVIEW, S.CONTINUE): ArrowHint(23),
        (S.REVIEW, S.TOOL_EXEC): ArrowHint(11),
        (S.REVIEW, S.FINISHED): ArrowHint(21),
        (S.REVIEW, S.REVIEW): ArrowHint(15),
        (S.REVIEW, S.CONCLUDE): ArrowHint(12, 0, 1),
        (S.REVIEW, S.ABORTED): ArrowHint(25, 2),
        (S.REVIEW, S.FAILED): ArrowHint(None, 3),
        (S.TOOL_EXEC, S.FINISHED): ArrowHint(11),
        (S.TOOL_EXEC, S.SYNTHESIS_DONE): ArrowHint(15),
        (S.TOOL_EXEC, S.FAILED): ArrowHint(18, 3),
        (S.TOOL_EXEC, S.CONCLUDE): ArrowHint(15, 1),
        (S.TOOL_EXEC, S.ABORTED): ArrowHint(17),
        (S.TOOL_EXEC, S.PAUSED): ArrowHint(None, 3),
        (S.PAUSED, S.PAUSED): ArrowHint(11),
        (S.PAUSED, S.CHECK): ArrowHint(11, 1),
        (S.PAUSED, S.CONCLUDE): ArrowHint(19, 1),
        (S.PAUSED, S.TOOL_EXEC): ArrowHint(12),
        (S.PAUSED, S.ABORTED): ArrowHint(11, 1, 3),
        (S.CONCLUDE, S.CONCLUDE): ArrowHint(16),
        (S.CONCLUDE, S.CAP_HIT): ArrowHint(21),
        (S.CONCLUDE, S.FAILED): ArrowHint(15),
        (S.CONCLUDE, S.ABORTED): ArrowHint(26),
        (S.CONCLUDE, S.DOOM_LOOP): ArrowHint(None, 1, 1),
        (S.TEXT_ONLY, S.FAILED): ArrowHint(19, 1),
        (S.TEXT_ONLY, S.TEXT_ONLY): ArrowHint(11),
        (S.TEXT_ONLY, S.ABORTED): ArrowHint(17, 1),
    },
)
