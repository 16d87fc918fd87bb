"""The invariants of a desk, and how often their assertions are reached."""

import ast
import inspect
import sys
import textwrap
import traceback
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from hypothesis.errors import UnsatisfiedAssumption

from turnwright.model.protocol import ModelRequest
from turnwright_testing.reached import Reached

from .desk import Invariant
from .own_words import OwnWords


class Checks:
    """Evaluates invariants, and counts in `reached` how often an `assert` statement of each was executed."""

    def __init__(self, invariants: tuple[Invariant, ...], reach_counts: Reached, own_words: OwnWords) -> None:
        self._own_words = own_words
        self._reached = reach_counts
        self._invariants = [
            (invariant, frozenset(inspect.signature(invariant).parameters), _assertions_of(invariant))
            for invariant in invariants
        ]

    def broken(self, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Return the name and the fault of each broken invariant of those that take some of these values.

        Without values, those are evaluated that take none. One about requests alone is broken only if it is so, too,
        without what the model made up.
        """
        for invariant, parameters, assertions in self._invariants:
            if bool(parameters) is not bool(values) or not parameters <= values.keys():
                continue
            name = invariant.__name__
            events = self._reached.invariants[name]
            events["checked"] += 1
            execution = _Executed(assertions)
            try:
                with execution:
                    holds = invariant(**{key: values[key] for key in parameters})
            except UnsatisfiedAssumption:
                continue
            except AssertionError as error:
                events["reached"] += 1
                if parameters != {"requests"} or not self._is_about_own_words(invariant, values["requests"]):
                    yield name, str(error).partition("\n")[0] or _failed_line(error)  # pytest explains in further lines
                continue
            except Exception as error:  # noqa: BLE001 (the user's code: an invariant that fails does not hold)
                yield name, f"{type(error).__name__}: {error}"
                continue
            events["reached"] += bool(not assertions or execution.count)
            if holds is False:
                yield name, "it returned False"

    def _is_about_own_words(self, invariant: Invariant, requests: Sequence[ModelRequest]) -> bool:
        """Whether an invariant holds without what the case made up."""
        try:
            return invariant(requests=self._own_words.take_out_of(requests)) is not False
        except Exception:  # noqa: BLE001 (the user's code: it does not hold)
            return False


def _assertions_of(invariant: Invariant) -> frozenset[int]:
    """Return the lines of the assertions of a function; none where its source is not there."""
    try:
        lines, first = inspect.getsourcelines(invariant)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return frozenset()
    return frozenset(node.lineno + first - 1 for node in ast.walk(tree) if isinstance(node, ast.Assert))


def _failed_line(error: AssertionError) -> str:
    """Return the line of an assertion without a message."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"it does not hold: {frames[-1].line}" if frames and frames[-1].line else "it does not hold"


class _Executed:
    """Counts executions of these lines of the functions that are called in a block."""

    def __init__(self, lines: frozenset[int]) -> None:
        self.count = 0
        self._lines = lines
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        if self._lines:
            sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 (a trace function)
        self.count += event == "line" and frame.f_lineno in self._lines
        return self._trace
