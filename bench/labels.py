"""The positions of the lines' labels."""

from collections.abc import Sequence
from itertools import pairwise


def spread(heights: Sequence[float], room: float, low: float, high: float) -> list[float]:
    """Heights, ascending, pushed apart until there is `room` between each two, and kept within the bounds.

    Where there is not room enough for all they are spread evenly.
    """
    if len(heights) * room > high - low:
        room = (high - low) / max(len(heights), 1)
    placed = list(heights)
    for _ in range(500):
        moved = 0.0
        for below, above in pairwise(range(len(placed))):
            lacking = room - (placed[above] - placed[below])
            if lacking > 0:
                placed[below] -= lacking / 2
                placed[above] += lacking / 2
                moved = max(moved, lacking)
        inside = [min(max(height, low), high) for height in placed]
        if moved <= room / 100 and inside == placed:
            break
        placed = inside
    return placed
