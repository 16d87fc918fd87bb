"""Counts of the rows that were taken, and their file.

The pytest plugin and `turnwright fuzz` write the file, `turnwright diagram --coverage` draws it. It is JSON:

    {"schema": "turnwright/rows/1", "chart": 1, "rows": [{"number": 1, "row": "CHECK --proceed...", "taken": 12}, ...]}

`chart` is the version of the chart, and `rows` holds every row in the chart's order, so that a file of another chart
is detected.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from turnwright._base.regular_files import read_regular, write_regular
from turnwright.errors import ConfigError
from turnwright_states.chart import CHART, VERSION

SCHEMA: Final = "turnwright/rows/1"
_MAX_BYTES: Final = 16 * 1024 * 1024


class _RowEntry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    number: int
    row: str
    taken: Annotated[int, Field(ge=0)]


class _RowFile(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    # pydantic's models have a method `schema`
    named: Annotated[Literal["turnwright/rows/1"], Field(alias="schema")]
    chart: int
    rows: tuple[_RowEntry, ...]


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
    def none(cls) -> "RowCounts":
        """Return zero for every row: the start of a sum."""
        return cls((0,) * len(CHART.rows))

    def __add__(self, other: "RowCounts") -> "RowCounts":
        return RowCounts(tuple(count + more for count, more in zip(self.taken, other.taken, strict=True)))

    def __sub__(self, before: "RowCounts") -> "RowCounts":
        return RowCounts(tuple(count - less for count, less in zip(self.taken, before.taken, strict=True)))

    @property
    def covered(self) -> int:
        """The number of rows that were taken at least once."""
        return sum(count > 0 for count in self.taken)

    @property
    def untaken(self) -> tuple[tuple[int, str], ...]:
        """The number and the name of each row that was never taken, in the chart's order."""
        numbered = enumerate(zip(CHART.rows, self.taken, strict=True), start=1)
        return tuple((number, row.name) for number, (row, count) in numbered if not count)

    def to_json(self) -> str:
        """The text of the file."""
        rows = [
            {"number": number, "row": row.name, "taken": count}
            for number, (row, count) in enumerate(zip(CHART.rows, self.taken, strict=True), start=1)
        ]
        return json.dumps({"schema": SCHEMA, "chart": VERSION, "rows": rows}, indent=1) + "\n"

    def write(self, path: Path) -> None:
        """Write the file. Raises `OSError` when it cannot be written."""
        write_regular(path, self.to_json().encode())

    @classmethod
    def read(cls, path: Path) -> "RowCounts":
        """Read a file. Raises `ConfigError` when it cannot be read, has another format, or is of another chart."""
        try:
            text = read_regular(path, _MAX_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        try:
            file = _RowFile.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise ConfigError(
                f"{path}: is not a file of row counts ({SCHEMA}): {f'{field}: ' if field else ''}{first['msg']}"
            ) from None
        _check(path, file.chart, [(entry.number, entry.row) for entry in file.rows])
        return cls(tuple(entry.taken for entry in file.rows))


def _check(path: Path, version: int, rows: Sequence[tuple[int, str]]) -> None:
    """Raise `ConfigError` unless the rows are those of this release's chart."""
    again = "record the rows again with this release"
    if version != VERSION:
        raise ConfigError(f"{path}: was written under chart {version}, and this release has chart {VERSION}: {again}")
    ours = [(number, row.name) for number, row in enumerate(CHART.rows, start=1)]
    if len(rows) != len(ours):
        raise ConfigError(f"{path}: has {len(rows)} rows, and the chart has {len(ours)}: {again}")
    for (number, name), (our_number, our_name) in zip(rows, ours, strict=True):
        if (number, name) != (our_number, our_name):
            raise ConfigError(f"{path}: row {number} is {name}, where the chart has {our_number}: {our_name}: {again}")
