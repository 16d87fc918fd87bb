"""Labels of runs from a file: which runs succeeded. Weak as they are, they show what a limit would have cost."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final, TypeVar

import msgspec
from pydantic import JsonValue

from .measure import RunMeasure

_KindT = TypeVar("_KindT")
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
        #: The rows that were left out, each with its line and what is wrong.
        self.unusable: list[str] = []

    def __len__(self) -> int:
        return len(self._runs) + sum(len(runs) for runs in self._files.values())

    @classmethod
    def parse(cls, text: str) -> "Outcomes":
        """Parse CSV with a head, JSON lines, or a list of JSON objects. Each row has a run or a file, and a success.

        Rows without a usable label are left out, and named in `unusable`. Raises `InvalidOutcomesError` if none is
        left, and for a run with two different labels.
        """
        outcomes = cls()
        for line, row in _rows(text):
            label = _label(row)
            run, file = _text(row, _RUNS), _text(row, _FILES)
            if label is None or not (run or file):
                value = _text(row, _LABELS)
                no_label = f"{value!r} is not true or false" if value else "it has no success"
                outcomes.unusable.append(f"{line}: {'it has no run and no file' if label is not None else no_label}")
                continue
            labels = outcomes._files.setdefault(PurePath(file).name, {}) if file else outcomes._runs
            if labels.setdefault(_key(file, run) if file else run, label) is not label:
                name = " of ".join(filter(None, (run, file)))
                raise InvalidOutcomesError(f"{line}: {name} has the other label in an earlier row: name each run once")
        if not len(outcomes):
            first = f"; {outcomes.unusable[0]}" if outcomes.unusable else ""
            raise InvalidOutcomesError(
                f"no row has a run ({', '.join(_RUNS)}) or a file ({', '.join(_FILES)}), and a success"
                f" ({', '.join(_LABELS)}: true or false){first}"
            )
        return outcomes

    def of(self, run: RunMeasure, place: int) -> bool | None:
        """Return the label of a run, which is number `place` of its file, from 0; None if it has none.

        A path in the outcomes may begin anywhere in the run's. A run of a file may be named `NAME#RUN`, or `NAME#PLACE`
        unless its own name is a number, which is another place perhaps.
        """
        path = PurePath(run.file.replace(":", "/"))
        rows = self._files.get(path.name)
        own_names = (run.run, f"{path.name}#{run.run}")
        placed_names = () if run.run.isdecimal() else (f"{path.name}#{place}",)
        if rows:
            files = ["/".join(path.parts[-count:]) for count in range(len(path.parts), 0, -1)]
            names = (*own_names, *placed_names, *((f"{run.run}#{place}", str(place)) if placed_names else ()))
            for file in files:
                for name in names:
                    if (label := rows.get(_key(file, name))) is not None:
                        return label
            alone = [label for key, label in rows.items() if key.partition("\x1f")[0] in files]
            if len(alone) == 1 and not place:
                return alone[0]
        for name in (*own_names, *placed_names, run.file, path.name, path.stem, path.parent.name):
            if (label := self._runs.get(name)) is not None:
                return label
        return None


def _key(file: str, run: str) -> str:
    return f"{PurePath(file).as_posix()}\x1f{run}"


def _rows(text: str) -> Iterator[tuple[str, Mapping[str, JsonValue]]]:
    """Yield each row with its place. Names of columns are read as if in lower case."""
    match text.lstrip()[:1]:
        case "{":
            for number, line in enumerate(text.split("\n"), start=1):
                if line.strip():
                    yield f"line {number}", _decode(line, dict[str, Any], f"line {number}")
        case "[":
            for number, row in enumerate(_decode(text, list[dict[str, Any]], "the list"), start=1):
                yield f"entry {number}", row
        case _:
            reader = csv.DictReader(io.StringIO(text))
            reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
            for row in reader:
                yield f"line {reader.line_num}", row


def _decode(text: str, kind: type[_KindT], place: str) -> _KindT:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidOutcomesError(f"{place}: {error}") from None


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
