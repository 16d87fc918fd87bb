"""The check of a trace: reads its lines, groups them by turn, and gives one verdict a claim."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from turnwright_states.verdict import Check, Verdict

from .events import TraceEvent, read_event
from .history import Fault, History, TraceClaim


class TurnCheck(NamedTuple):
    """The check of one turn: its faults, oldest first, and the claims that cannot be decided, each with the reason.

    A claim that has neither holds.
    """

    turn: str
    faults: Sequence[Fault]
    unknown: Mapping[TraceClaim, str]


def check_turns(events: Iterable[tuple[int, TraceEvent]], place: str = "line") -> Iterator[TurnCheck]:
    """Yield the check of each turn of a trace, in the order of their beginnings.

    Each event comes with the number of its `place`, such as a line. A claim that a turn breaks is not unknown.
    """
    for history in _read_histories(events, place):
        faults = history.found()
        broken_claims = {fault.claim for fault in faults}
        yield TurnCheck(
            history.turn, faults, {claim: why for claim, why in history.unknown().items() if claim not in broken_claims}
        )


def check_trace(lines: Iterable[str]) -> tuple[Check, ...]:
    """Check the lines of a trace: one `Check` for each `TraceClaim`, over all its turns. Empty lines are skipped.

    A claim is violated if one turn breaks it: `detail` names the first such line, and `witness` has the lines of that
    turn that led there. It is inconclusive if no turn breaks it and one lacks the events that the claim needs, or if
    there is no turn. Raises `InvalidTraceError` for the first line that cannot be read.
    """
    return _check((number, read_event(text, number)) for number, text in enumerate(lines, start=1) if text.strip())


def check_events(events: Iterable[TraceEvent]) -> tuple[Check, ...]:
    """Check events as `check_trace` checks lines; the first event is line 1."""
    return _check(enumerate(events, start=1))


def _check(events: Iterable[tuple[int, TraceEvent]]) -> tuple[Check, ...]:
    histories = _read_histories(events, "line")
    faults = [(fault, history) for history in histories for fault in history.found()]
    unknown = [(history.unknown(), history) for history in histories]
    return tuple(
        _judge_claim(
            claim,
            [(fault, history.turn) for fault, history in faults if fault.claim is claim],
            [(gaps[claim], history.turn) for gaps, history in unknown if claim in gaps],
            len(histories),
        )
        for claim in TraceClaim
    )


def _read_histories(events: Iterable[tuple[int, TraceEvent]], place: str) -> tuple[History, ...]:
    turns: dict[str, History] = {}
    for line, event in events:
        turns.setdefault(event.turn, History(event.turn, place)).take(line, event)
    return tuple(turns.values())


def _judge_claim(
    claim: TraceClaim, faults: Sequence[tuple[Fault, str]], gaps: Sequence[tuple[str, str]], turns: int
) -> Check:
    if faults:
        first, turn = min(faults, key=lambda pair: pair[0].line)
        suffix = f" ({len(faults) - 1} more like it)" if len(faults) > 1 else ""
        return Check(claim, Verdict.VIOLATED, f"line {first.line}{_of(turn)}: {first.why}{suffix}", first.witness)
    if gaps:
        why, turn = gaps[0]
        other_turns = {turn for _, turn in gaps[1:]}
        suffix = f" (and {len(other_turns)} more of {turns} turns)" if other_turns else ""
        return Check(claim, Verdict.INCONCLUSIVE, f"{why}{_of(turn)}{suffix}")
    if not turns:
        return Check(claim, Verdict.INCONCLUSIVE, "there is no turn in the trace")
    return Check(claim, Verdict.HOLDS, f"over {turns} turn{'s' * (turns != 1)}")


def _of(turn: str) -> str:
    return f", turn {turn}" if turn else ""
