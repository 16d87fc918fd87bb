"""Reads the file of row counts that the pytest plugin and `turnwright fuzz` write (`turnwright_states.row_counts`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from turnwright._base.regular_files import read_regular
from turnwright.errors import ConfigError
from turnwright_states.chart import CHART, VERSION
from turnwright_states.row_counts import SCHEMA, RowCounts

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


def read_row_counts(path: Path) -> RowCounts:
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
    return RowCounts(tuple(entry.taken for entry in file.rows))


def _check(path: Path, version: int, rows: Sequence[tuple[int, str]]) -> None:
    """Raise `ConfigError` unless the rows are those of this release's chart."""
    again = "record the rows again with this release"
    if version != VERSION:
        raise ConfigError(f"{path}: was written under chart {version}, and this release has chart {VERSION}: {again}")
    own_rows = [(number, row.name) for number, row in enumerate(CHART.rows, start=1)]
    if len(rows) != len(own_rows):
        raise ConfigError(f"{path}: has {len(rows)} rows, and the chart has {len(own_rows)}: {again}")
    for (number, name), (our_number, our_name) in zip(rows, own_rows, strict=True):
        if (number, name) != (our_number, our_name):
            raise ConfigError(f"{path}: row {number} is {name}, where the chart has {our_number}: {our_name}: {again}")
