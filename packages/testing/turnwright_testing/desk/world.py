"""The outside world of a desk, as far as it can be seen: the data, files and rows that its modules name."""

import asyncio
import queue
import sqlite3
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Final

_MOST_ROWS: Final = 1000
_MOST_FILES: Final = 100
#: How deep containers and objects are searched.
_DEEPEST: Final = 3
#: Containers whose items are counted.
_CONTAINERS: Final = (list, dict, set, deque, Mapping)
_QUEUES: Final = (asyncio.Queue, queue.Queue)
#: The beginning of a file that is a database.
_SQLITE: Final = b"SQLite format 3"
#: The ends of the names of files beside a database, which come and go.
_BESIDE: Final = ("-wal", "-shm", "-journal")


def rows_of(database: sqlite3.Connection | Path, most: int) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    """Return each table of a database with at most so many rows; nothing if it cannot be read here."""
    if isinstance(database, Path):
        if _is_database(database):
            with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                yield from rows_of(connection, most)
        return
    try:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            yield table, database.execute(f'SELECT * FROM "{table}" LIMIT {most}').fetchall()  # noqa: S608 (its own)
    except sqlite3.Error:
        return


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def sizes_of(modules: Sequence[ModuleType], is_lasting: bool = False) -> dict[str, int]:
    """Return how much each container of the modules has, by its name: its items, its rows, its files and their bytes.

    Containers are data, databases, and paths of files and folders, also as attributes of the modules' objects. With
    `is_lasting`, data in memory is left out.
    """
    names = {module.__name__ for module in modules}
    values = [item for module in modules for item in vars(module).items()]
    inner = [
        (f"{name}.{field}", item)
        for name, value in values
        if type(value).__module__ in names or (isinstance(value, type) and value.__module__ in names)
        for field, item in getattr(value, "__dict__", {}).items()
        if not field.startswith("__")
    ]
    measured_values = [
        (name, item)
        for name, item in (*values, *inner)
        if not is_lasting or not isinstance(item, (*_CONTAINERS, *_QUEUES))
    ]
    return dict(_sizes(measured_values))


def amounts_of(modules: Sequence[ModuleType]) -> dict[str, float]:
    """Return `sizes_of` the modules, and their numbers, each by its place: `BALANCES.ann`, `DATABASE.accounts.2`.

    The number of a column is the sum of its numbers.
    """
    amounts: dict[str, float] = dict(sizes_of(modules))
    for name, leaf in leaves_of(modules):
        if isinstance(leaf, int | float):
            amounts[name] = leaf
        elif isinstance(leaf, sqlite3.Connection | Path):
            for table, rows in rows_of(leaf, _MOST_ROWS):
                for place, column in enumerate(zip(*rows, strict=True), start=1):
                    amounts[f"{name}.{table}.{place}"] = sum(cell for cell in column if isinstance(cell, int | float))
    return amounts


def state_of(modules: Sequence[ModuleType]) -> dict[str, object]:
    """Return `amounts_of` the modules and their texts, each by its place."""
    texts = {name: leaf for name, leaf in leaves_of(modules) if leaf is None or isinstance(leaf, str)}
    return {**texts, **amounts_of(modules)}


def leaves_of(modules: Sequence[ModuleType]) -> Iterator[tuple[str, object]]:
    """Yield what the modules name, and what is in their containers and objects, each by its place."""
    names = {module.__name__ for module in modules}
    for module in modules:
        for name, value in vars(module).items():
            if not name.startswith("__"):
                yield from _leaves(name, value, names, 0)


def _leaves(place: str, value: object, modules: Collection[str], depth: int) -> Iterator[tuple[str, object]]:
    items: Iterable[tuple[object, object]] = ()
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple | deque):
        items = enumerate(value)
    elif type(value).__module__ in modules or (isinstance(value, type) and value.__module__ in modules):
        slots = () if isinstance(value, type) else getattr(value, "__slots__", ())
        fields = {**getattr(value, "__dict__", {}), **{slot: getattr(value, slot, None) for slot in slots}}
        items = [item for item in fields.items() if not item[0].startswith("__")]
    else:
        yield place, value
    for key, item in [*items][:_MOST_ROWS]:
        yield from _leaves(f"{place}.{key}", item, modules, depth + 1)


def _sizes(values: Sequence[tuple[str, object]]) -> Iterator[tuple[str, int]]:
    for name, value in values:
        if name.startswith("__"):
            continue
        if isinstance(value, sqlite3.Connection):
            yield from ((f"{name}.{table}", len(rows)) for table, rows in rows_of(value, _MOST_ROWS))
        elif isinstance(value, Path):
            yield from _sizes_of_files(name, value)
        elif isinstance(value, _QUEUES):
            yield name, value.qsize()
        elif isinstance(value, _CONTAINERS):
            yield name, len(value) + sum(len(item) for item in _items(value) if isinstance(item, list | dict | set))


def _sizes_of_files(name: str, path: Path) -> Iterator[tuple[str, int]]:
    """Return the bytes of a file, the rows of one that is a database, or the files of a folder and their bytes."""
    try:
        inner = [file for file in path.iterdir() if file.is_file()] if path.is_dir() else [path]
        files = sorted(file for file in inner if not file.name.endswith(_BESIDE))[:_MOST_FILES]
        if path.is_dir():
            yield name, len(files)
        for file in files:
            label = f"{name}/{file.name}" if path.is_dir() else name
            if _is_database(file):
                yield from ((f"{label}.{table}", len(rows)) for table, rows in rows_of(file, _MOST_ROWS))
            else:
                yield label, file.stat().st_size
    except (OSError, sqlite3.Error):
        return


def _items(value: object) -> Sequence[object]:
    return [*value.values()] if isinstance(value, Mapping) else [*value] if isinstance(value, list | set) else []


def list_grown(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Return the containers that have more than before, each as `ORDERS (1 to 2)`."""
    return [f"{name} ({before[name]} to {size})" for name, size in after.items() if size > before.get(name, size)]


def changes(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return by how much each amount has changed that was there before."""
    return {name: amount - before[name] for name, amount in after.items() if before.get(name, amount) != amount}


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """Return the names that were there before, and have other values now."""
    return {name for name, value in after.items() if before.get(name, value) != value}
