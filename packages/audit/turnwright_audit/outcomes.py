"""Labels of runs from a file: which runs succeeded. Weak as they are, they show what a limit would have cost."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final

import msgspec
from pydantic import JsonValue

from .measure import RunMeasure

#: The names of columns, in the order in which they are tried.
_RUNS: Final = ("run", "run_id", "id", "instance_id", "session", "session_id", "trajectory_id", "task_id")
_FILES: Final = ("file", "path", "filename")
_LABELS: Final = ("success", "succeeded", "resolved", "passed", "solved", "correct", "outcome", "label", "reward")
_YES: Final = (
    "1",
    "true",
    "yes",
    "y",
    "success",
    "succeeded",
    "resolved",
    "passed",
    "pass",
    "solved",
    "ok",
    "finished",
)
_NO: Final = ("0", "false", "no", "n", "failure", "failed", "fail", "unresolved", "unsolved", "error", "wrong")


class InvalidOutcomesError(ValueError):
    """A file of outcomes that cannot be used. The message says why."""


class Outcomes:
    """Labels by run, by file, or by both."""

    def __init__(self) -> None:
        self._runs: dict[str, bool] = {}
        self._files: dict[str, dict[str, bool]] = {}

    def __len__(self) -> int:
        return len(self._runs) + sum(len(runs) for runs in self._files.values())

    @classmethod
    def parse(cls, text: str) -> "Outcomes":
        """Parse CSV with a head, or JSON lines. Each row has a run or a file, and a success.

        Rows without a usable label are left out. Raises `InvalidOutcomesError` if none is left.
        """
        outcomes = cls()
        for row in _rows(text):
            label = _label(row)
            run, file = _text(row, _RUNS), _text(row, _FILES)
            if label is None or not (run or file):
                continue
            if file:
                outcomes._files.setdefault(PurePath(file).name, {})[_key(file, run)] = label
            else:
                outcomes._runs[run] = label
        if not len(outcomes):
            raise InvalidOutcomesError(
                f"no row has a run ({', '.join(_RUNS)}) or a file ({', '.join(_FILES)}), and a success"
                f" ({', '.join(_LABELS)}: true or false)"
            )
        return outcomes

    def of(self, run: RunMeasure, place: int) -> bool | None:
        """Return the label of a run, which is number `place` of its file, from 0; None if it has none.

        A path in the outcomes may begin anywhere in the run's. A run of a file may be named `NAME#RUN`, or `NAME#PLACE`
        unless its own name is a number, which is another place perhaps.
        """
        path = PurePath(run.file.replace(":", "/"))
        rows = self._files.get(path.name)
        own = (run.run, f"{path.name}#{run.run}")
        placed = () if run.run.isdecimal() else (f"{path.name}#{place}",)
        if rows:
            files = ["/".join(path.parts[-count:]) for count in range(len(path.parts), 0, -1)]
            names = (*own, *placed, *((f"{run.run}#{place}", str(place)) if placed else ()))
            for file in files:
                for name in names:
                    if (label := rows.get(_key(file, name))) is not None:
                        return label
            alone = [label for key, label in rows.items() if key.partition("\x1f")[0] in files]
            if len(alone) == 1 and not place:
                return alone[0]
        for name in (*own, *placed, run.file, path.name, path.stem, path.parent.name):
            if (label := self._runs.get(name)) is not None:
                return label
        return None


def _key(file: str, run: str) -> str:
    return f"{PurePath(file).as_posix()}\x1f{run}"


def _rows(text: str) -> Iterator[Mapping[str, JsonValue]]:
    if not text.lstrip().startswith("{"):
        yield from csv.DictReader(io.StringIO(text))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield msgspec.json.decode(line, type=dict)
            except (msgspec.DecodeError, UnicodeError) as error:
                raise InvalidOutcomesError(f"line {number}: {error}") from None


def _text(row: Mapping[str, JsonValue], names: tuple[str, ...]) -> str:
    return next((str(row[name]) for name in names if row.get(name) not in (None, "")), "")


def _label(row: Mapping[str, JsonValue]) -> bool | None:
    value = next((row[name] for name in _LABELS if row.get(name) not in (None, "")), None)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value > 0
    word = str(value).strip().lower()
    if word in _YES or word in _NO:
        return word in _YES
    try:
        return float(word) > 0
    except ValueError:
        return None
