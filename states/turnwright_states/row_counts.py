"""Counts of the rows that were taken, and the text of their file.

The pytest plugin and `turnwright fuzz` write the file, `turnwright diagram --coverage` draws it. It is JSON:

    {"schema": "turnwright/rows/1", "chart": 1, "rows": [{"number": 1, "row": "CHECK --proceed...", "taken": 12}, ...]}

`chart` is the version of the chart, and `rows` holds every row in the chart's order, so that a file of another chart
is detected.
"""

import json
from dataclasses import dataclass
from typing import Final

from .chart import CHART, VERSION

SCHEMA: Final = "turnwright/rows/1"


@dataclass(frozen=True, slots=True)
class RowCounts:
    """One count for each row of the chart, in its order. Raises `ValueError` for another number of counts."""

    taken: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.taken) != len(CHART.rows):
            raise ValueError(f"{len(self.taken)} counts for the {len(CHART.rows)} rows of the chart")

    @classmethod
    def now(cls) -> "RowCounts":
        """Return the counts of this process so far."""
        return cls(tuple(CHART.taken))

    @classmethod
    def zeros(cls) -> "RowCounts":
        """Return zero for every row: the start of a sum."""
        return cls((0,) * len(CHART.rows))

    def __add__(self, other: "RowCounts") -> "RowCounts":
        return RowCounts(tuple(count + other_count for count, other_count in zip(self.taken, other.taken, strict=True)))

    def __sub__(self, before: "RowCounts") -> "RowCounts":
        return RowCounts(
            tuple(count - count_before for count, count_before in zip(self.taken, before.taken, strict=True))
        )

    @property
    def covered(self) -> int:
        """The number of rows that were taken at least once."""
        return sum(count > 0 for count in self.taken)

    @property
    def untaken(self) -> tuple[tuple[int, str], ...]:
        """The number and the name of each row that was never taken, in the chart's order."""
        numbered_rows = enumerate(zip(CHART.rows, self.taken, strict=True), start=1)
        return tuple((number, row.name) for number, (row, count) in numbered_rows if not count)

    def to_json(self) -> str:
        """The text of the file."""
        rows = [
            {"number": number, "row": row.name, "taken": count}
            for number, (row, count) in enumerate(zip(CHART.rows, self.taken, strict=True), start=1)
        ]
        return json.dumps({"schema": SCHEMA, "chart": VERSION, "rows": rows}, indent=1) + "\n"
