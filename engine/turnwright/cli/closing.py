"""The closing lines of a run: the outcome, the reason, what would have stopped the turn next, and its path."""

import shlex

from turnwright.events import Pending
from turnwright.message import Message, SentinelPart
from turnwright.result import TurnResult
from turnwright_states import REASONS, EndReason, InterruptKind, Outcome, State

from .options import DEFAULT_STORE
from .view import one_line, safe


def store_flag(store: str) -> str:
    """What a command needs to find a turn of this store; empty for the one that it looks in anyway."""
    return "" if store == DEFAULT_STORE else f" --store {shlex.quote(store)}"


def closing_lines(result: TurnResult, *, said: str = "", hints: bool = True, flags: str = "") -> list[str]:
    """What to say at the end: the turn's text, unless it is what was `said` last, the outcome, and the figures.

    `hints`: which commands go on from here, with `flags`, which begin with a space.
    """
    lines = _paused(result, flags) if result.paused else _ended(result, flags, hints=hints)
    figures = [_count(result.steps, "step"), f"{_count(result.tool_calls, 'tool call')} run"]
    if result.usage.tokens:
        figures.append(f"{result.usage.tokens} tokens")
    lines.append(f"used:  {', '.join(figures)}, {result.seconds:.1f} s of driving")
    if result.next_limit:
        lines.append(f"next:  the nearest other limit is {result.next_limit}")
    lines.append("path:  " + path_words(result.path))
    if result.outcome is not None and result.text and result.text != said:
        return [safe(result.text), "", *lines]
    return lines


def path_words(path: tuple[State, ...]) -> str:
    """The way through the chart in one line; a stretch that repeats is written once with its count."""
    words: list[str] = []
    rest = [str(state) for state in path]
    while rest:
        cycle, times = _repeated(rest)
        words.append(f"({' > '.join(cycle)}) x{times}" if times > 1 else cycle[0])
        rest = rest[len(cycle) * times :]
    return " > ".join(words)


def _repeated(states: list[str]) -> tuple[list[str], int]:
    best: tuple[list[str], int] = (states[:1], 1)
    for length in range(1, len(states) // 2 + 1):
        cycle, times = states[:length], 1
        while states[length * times : length * (times + 1)] == cycle:
            times += 1
        if times > 1 and length * times > len(best[0]) * best[1]:
            best = cycle, times
    return best


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _ended(result: TurnResult, flags: str, *, hints: bool) -> list[str]:
    if result.outcome is None or result.reason is None:
        return [f"in {result.state}: if nobody drives it, `turnwright resume {result.id}{flags}` takes it up again"]
    also = f" (also reached: {', '.join(result.also_reached)})" if result.also_reached else ""
    lines = [f"{result.outcome}: {result.reason}{also}. {_why(result.reason, result.messages)}"]
    if result.error and safe(result.error).rstrip(".") not in lines[0]:
        lines.append(f"error: {safe(result.error)}")
    if hints and result.outcome in (Outcome.CAP_HIT, Outcome.DOOM_LOOP):
        lines.append(f'go on: turnwright run --continue {result.id}{flags} "..."')
    return lines


def _why(reason: EndReason, messages: tuple[Message, ...]) -> str:
    """What the sentinel says, with its figures; of a turn that nothing stopped, what the reason means."""
    for part in messages[-1].parts if messages else ():
        if isinstance(part, SentinelPart):
            return safe(part.text)
    return f"{REASONS[reason].means} {REASONS[reason].next}"


def _paused(result: TurnResult, flags: str) -> list[str]:
    lines = [f"paused: the turn waits for {_count(len(result.pending), 'answer')}."]
    for one in result.pending:
        lines.append(f"  {one.id}: {one_line(_question(one), 600)}")
        lines.append(f"    turnwright resume {result.id}{flags} {_how(one)}")
    return lines


def _question(one: Pending) -> str:
    if one.question:
        choices = f" ({' / '.join(one.choices)})" if one.choices else ""
        return one.question + choices
    arguments = ", ".join(f"{name}={value!r}" for name, value in (one.arguments or {}).items())
    return f"may {one.tool}({arguments}) run?"


def _how(one: Pending) -> str:
    match one.kind:
        case InterruptKind.QUESTION:
            return f'--answer {one.id}="..."'
        case InterruptKind.DOOM_LOOP:
            return f"--answer {one.id}=go_on    (or {one.id}=always, {one.id}=stop)"
        case InterruptKind.UNKNOWN_OUTCOME:
            return f"--answer {one.id}=rerun    (or {one.id}=unknown)"
        case _:
            return f'--grant {one.id}    (or --deny {one.id}="why")'
