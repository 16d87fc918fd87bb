"""The outside world of a desk, as far as it can be seen: the data of its modules, and the rows of their databases."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Final

_MOST_ROWS: Final = 1000
#: Containers whose items are counted.
_CONTAINERS: Final = (list, dict, set, Mapping)


def rows_of(database: sqlite3.Connection, most: int) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    """Return each table of a database with at most so many rows; nothing if it cannot be read here."""
    try:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            yield table, database.execute(f'SELECT * FROM "{table}" LIMIT {most}').fetchall()  # noqa: S608 (its own)
    except sqlite3.Error:
        return


def sizes_of(modules: Sequence[ModuleType]) -> dict[str, int]:
    """Return how much each container of the modules has, by its name: its items, or the rows of a table."""
    return dict(_sizes([(name, value) for module in modules for name, value in vars(module).items()]))


def _sizes(values: Sequence[tuple[str, object]]) -> Iterator[tuple[str, int]]:
    for name, value in values:
        if name.startswith("__"):
            continue
        if isinstance(value, sqlite3.Connection):
            yield from ((f"{name}.{table}", len(rows)) for table, rows in rows_of(value, _MOST_ROWS))
        elif isinstance(value, _CONTAINERS):
            yield name, len(value) + sum(len(item) for item in _items(value) if isinstance(item, list | dict | set))


def _items(value: object) -> Sequence[object]:
    return [*value.values()] if isinstance(value, Mapping) else [*value] if isinstance(value, list | set) else []


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Return the containers that have more than before, each as `ORDERS (1 to 2)`."""
    return [f"{name} ({before[name]} to {size})" for name, size in after.items() if size > before.get(name, size)]
