"""Finds the loops of a turn, and the step at which each detector would have acted.

The detector of the machine compares rounds, the calls of one step (`turnwright_states.doom`). Here it is asked twice:
about the calls alone, and about the calls with their results. Two more look for an error that comes again, and for
rounds that bring nothing new.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain, groupby
from typing import Final, NamedTuple

from msgspec import Struct

from turnwright_states.doom import LONGEST_PERIOD, Round, looping, make_round

from .rounds import AuditCall, AuditStep

#: The thresholds of the doom-loop detector that are tried.
THRESHOLDS: Final = (2, 3, 4, 5)
#: The threshold of the loops that are reported.
REPORTED: Final = 3
#: Equal errors in a row, and rounds in a row that bring nothing new, which count as a loop.
SAME_ERRORS: Final = 4
NOTHING_NEW: Final = 6
#: How many times each detector's action is recorded: the first stop, and the stop after one nudge.
_KEPT: Final = 2


class LoopKind(StrEnum):
    """The kind of a loop. The value is how JSON names it, `words` how people read it."""

    SAME_RESULT = "same result"
    RESULTS_DIFFER = "results differ (paging, polling)"
    DENIED = "denied again and again"
    SAME_ERROR = "same error"
    NOTHING_NEW = "nothing new"

    @property
    def words(self) -> str:
        """The kind without examples."""
        return self.partition(" (")[0]


class Loop(Struct):
    """A loop: its tools, its first step in the run, and its length in rounds.

    `tokens_after` are those of the turn after the step at which the loop was detected.
    """

    tool: str
    step: int
    length: int
    tokens_after: int
    kind: LoopKind


class TurnLoops(NamedTuple):
    """The loops of a turn, and the places of its steps at which each detector acts, first and second time.

    A detector is named `calls:3` or `results:3` with its threshold, `errors:4` or `nothing:6`.
    """

    loops: list[Loop]
    acts: dict[str, list[int]]


class _Stretch(NamedTuple):
    """Rounds that loop: the first and the last one, and the one that was detected. All are places in the list."""

    first: int
    last: int
    detected: int
    kind: LoopKind

    def overlaps(self, stretch: "_Stretch") -> bool:
        return self.first <= stretch.last and stretch.first <= self.last


def loops_of(turn: Sequence[AuditStep]) -> TurnLoops:
    """Return the loops of one turn."""
    places = [place for place, step in enumerate(turn) if step.calls]
    rounds = [turn[place].calls for place in places]
    if len(rounds) < min(THRESHOLDS):
        return TurnLoops([], {})
    detector = _Detector(rounds)
    acts = detector.acts
    stretches = list(_find_repeats(rounds, detector))
    errors, idle = list(_errors(rounds)), list(_idle(rounds))
    _add(acts, f"errors:{SAME_ERRORS}", errors)
    _add(acts, f"nothing:{NOTHING_NEW}", idle)
    for more_stretches in (errors, idle):
        stretches += [stretch for stretch in more_stretches if not any(map(stretch.overlaps, stretches))]
    return TurnLoops(
        [_loop(turn, places, rounds, stretch) for stretch in sorted(stretches)],
        {name: [places[at] for at in where[:_KEPT]] for name, where in acts.items()},
    )


class _Detector:
    """The machine's detector at every threshold, about the calls, and about the calls with their results."""

    def __init__(self, rounds: Sequence[list[AuditCall]]) -> None:
        self.acts: dict[str, list[int]] = {}
        self.periods: dict[int, int] = {}
        self.with_results: set[int] = set()
        self._take(rounds)

    def _take(self, rounds: Sequence[list[AuditCall]]) -> None:
        calls: list[Round] = []
        earlier_rounds: set[Round] = set()
        exact = _Results()
        for at, batch in enumerate(rounds):
            current_round = make_round([(call.name, call.key) for call in batch])
            if current_round is None:
                continue
            calls.append(current_round)
            if current_round in earlier_rounds:
                for threshold in THRESHOLDS:
                    if looping(tuple(calls[-LONGEST_PERIOD * threshold :]), threshold):
                        self._act("calls", threshold, at)
                        if threshold == REPORTED:
                            self.periods[at] = _period(calls, threshold)
            earlier_rounds.add(current_round)
            for threshold in exact.take(batch):
                self._act("results", threshold, at)
                if threshold == REPORTED:
                    self.with_results.add(at)

    def _act(self, compare: str, threshold: int, at: int) -> None:
        self.acts.setdefault(f"{compare}:{threshold}", []).append(at)


class _Results:
    """Compares rounds by their calls and results, without denied calls. Results are looked at only if calls repeat."""

    def __init__(self) -> None:
        self._batches: list[list[AuditCall]] = []
        self._rounds: list[Round | None] = []
        self._earlier_rounds: set[Round] = set()

    def take(self, batch: list[AuditCall]) -> Iterator[int]:
        """Yield the thresholds at which this round closes a loop."""
        batch = [call for call in batch if call.status != "denied"]
        current_round = make_round([(call.name, call.key) for call in batch])
        if current_round is None:
            return
        self._batches.append(batch)
        self._rounds.append(None)
        if current_round in self._earlier_rounds:
            for threshold in THRESHOLDS:
                if looping(self._latest(LONGEST_PERIOD * threshold), threshold):
                    yield threshold
        self._earlier_rounds.add(current_round)

    def _latest(self, count: int) -> tuple[Round, ...]:
        begin = max(len(self._rounds) - count, 0)
        return tuple(self._round(at) for at in range(begin, len(self._rounds)))

    def _round(self, at: int) -> Round:
        current_round = self._rounds[at]
        if current_round is None:
            current_round = make_round([(call.name, call.key + call.result) for call in self._batches[at]])
            assert current_round is not None  # noqa: S101 (the batch has calls)
            self._rounds[at] = current_round
        return current_round


def _period(rounds: list[Round], threshold: int) -> int:
    return next(
        period
        for period in range(1, LONGEST_PERIOD + 1)
        if rounds[-period * threshold :] == rounds[-period:] * threshold
    )


def _find_repeats(rounds: Sequence[list[AuditCall]], detector: _Detector) -> Iterator[_Stretch]:
    """Yield the loops of equal calls."""
    for numbers in _rows(sorted(detector.periods)):
        first = numbers[0] - detector.periods[numbers[0]] * REPORTED + 1
        until_detected = rounds[first : numbers[0] + 1]
        if all(call.status == "denied" for batch in until_detected for call in batch):
            kind = LoopKind.DENIED
        elif any(number in detector.with_results for number in numbers):
            kind = LoopKind.SAME_RESULT
        else:
            kind = LoopKind.RESULTS_DIFFER
        yield _Stretch(first, numbers[-1], numbers[0], kind)


def _errors(rounds: Sequence[list[AuditCall]]) -> Iterator[_Stretch]:
    """Yield the rows of rounds in which every call has the same error."""
    failed_rounds = [at for at, batch in enumerate(rounds) if all(call.failed for call in batch)]
    # Results are compared only where enough of them failed in a row.
    equal = (groupby(row, key=lambda at: _error(rounds[at])) for row in _rows(failed_rounds) if len(row) >= SAME_ERRORS)
    for error, numbers in chain.from_iterable(equal):
        row = list(numbers)
        if error is not None and len(row) >= SAME_ERRORS:
            is_denied = all(call.status == "denied" for at in row for call in rounds[at])
            kind = LoopKind.DENIED if is_denied else LoopKind.SAME_ERROR
            yield _Stretch(row[0], row[-1], row[SAME_ERRORS - 1], kind)


def _error(batch: list[AuditCall]) -> str | None:
    """Return the key of the error that all calls of a round have."""
    texts = {call.result for call in batch}
    return texts.pop() if len(texts) == 1 else None


def _idle(rounds: Sequence[list[AuditCall]]) -> Iterator[_Stretch]:
    """Yield the rows of rounds whose calls were all made before, each with the same result."""
    earlier: dict[str, list[AuditCall]] = {}
    idle: list[int] = []
    for at, batch in enumerate(rounds):
        # A loop, and no generator: it runs for each round.
        new = False
        for call in batch:
            if not any(
                earlier_call.exact == call.exact or earlier_call.result == call.result
                for earlier_call in earlier.get(call.key, ())
            ):
                new = True
        for call in batch:
            same_calls = earlier.setdefault(call.key, [])
            if all(same_call.exact != call.exact for same_call in same_calls):
                same_calls.append(call)
        if not new:
            idle.append(at)
    for row in _rows(idle):
        if len(row) >= NOTHING_NEW:
            yield _Stretch(row[0], row[-1], row[NOTHING_NEW - 1], LoopKind.NOTHING_NEW)


def _rows(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yield the rows of numbers that follow each other."""
    for _, row in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        yield [number for _, number in row]


def _add(acts: dict[str, list[int]], name: str, stretches: Sequence[_Stretch]) -> None:
    """Record each round of the stretches from the detected one on."""
    if stretches:
        acts[name] = [at for stretch in stretches for at in range(stretch.detected, stretch.last + 1)]


def _loop(
    turn: Sequence[AuditStep], places: Sequence[int], rounds: Sequence[list[AuditCall]], stretch: _Stretch
) -> Loop:
    tools = sorted({call.name for batch in rounds[stretch.first : stretch.last + 1] for call in batch})
    return Loop(
        ", ".join(tools),
        turn[places[stretch.first]].number,
        stretch.last - stretch.first + 1,
        sum(step.tokens for step in turn[places[stretch.detected] + 1 :]),
        stretch.kind,
    )
