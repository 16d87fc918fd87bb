"""The closing lines of a run: the outcome, the reason, what would have stopped the turn next, and its path."""

from datetime import datetime
from typing import Final

from turnwright.events import Pending
from turnwright.ids import root_of
from turnwright.message import Message, SentinelPart
from turnwright.result import TurnResult
from turnwright_states import REASONS, EndReason, InterruptKind, Outcome, State

from .options import DEFAULT_STORE
from .stores import password_hint, store_flag
from .view import one_line, safe

#: What becomes of an interrupt that nobody answered in time, where it is not denied.
_UNANSWERED: Final = {InterruptKind.DOOM_LOOP: "stopped", InterruptKind.UNKNOWN_OUTCOME: "left unknown"}

#: How much of a question is shown: characters of a line, and lines behind the first.
_LONGEST_LINE: Final = 600
_MOST_LINES: Final = 40

#: Outcomes after which a command goes on, and reasons of the others after which it may help.
_GOES_ON: Final = frozenset({Outcome.CAP_HIT, Outcome.DOOM_LOOP})
_MAY_GO_ON: Final = frozenset(
    {EndReason.TRUNCATED, EndReason.ABORTED, EndReason.MODEL_ERROR, EndReason.EMPTY_REPLY, EndReason.CRASHED}
)


def closing_lines(
    result: TurnResult, *, said: str = "", hints: bool = True, store: str = DEFAULT_STORE, service: str = ""
) -> list[str]:
    """What to say at the end: the turn's text, unless it is what was `said` last, the outcome, and the figures.

    `hints`: which commands go on from here, in the store of that address, with the flags of a service if one drives.
    """
    flags = store_flag(store) + service
    lines = (
        _paused(result, flags, lost=store.startswith("memory:"))
        if result.paused
        else _ended(result, flags, hints=hints)
    )
    if flags and any(flags in line for line in lines) and password_hint(store):
        lines.append(f"store: {password_hint(store)}")
    lines += [f"not delivered: {one_line(text, 600)}" for text in result.undelivered]
    figures = [count(result.steps, "step"), f"{count(result.tool_calls, 'tool call')} run"]
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


def count(number: int, what: str) -> str:
    """The number and what it counts, in the plural where that is due."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _ended(result: TurnResult, flags: str, *, hints: bool) -> list[str]:
    if result.outcome is None or result.reason is None:
        again = f"`turnwright resume {root_of(result.id)}{flags}`"
        return [f"in {result.state}: if nobody drives it, {again} takes it up again, or `recover()` where it was begun"]
    also = f" (also reached: {', '.join(result.also_reached)})" if result.also_reached else ""
    lines = [f"{result.outcome}: {result.reason}{also}. {_why(result.reason, result.messages)}"]
    if result.error and safe(result.error).rstrip(".") not in lines[0]:
        lines.append(f"error: {safe(result.error)}")
    is_its_own = root_of(result.id) == result.id
    if hints and is_its_own and (result.outcome in _GOES_ON or result.reason in _MAY_GO_ON):
        lines.append(f'go on: turnwright run --continue {result.id}{flags} "..."')
    return lines


def _why(reason: EndReason, messages: tuple[Message, ...]) -> str:
    """What the sentinel says, with its figures; of a turn that nothing stopped, what the reason means."""
    for part in messages[-1].parts if messages else ():
        if isinstance(part, SentinelPart):
            return safe(part.text)
    return f"{REASONS[reason].means} {REASONS[reason].next}"


def _paused(result: TurnResult, flags: str, *, lost: bool) -> list[str]:
    waits = len(result.pending) - len(result.answered)
    lines = [f"paused: the turn waits for {count(waits, 'answer')}."]
    if not waits:
        again = f"`turnwright resume {root_of(result.id)}{flags}`"
        lines = [f"paused: answered, and not taken up yet: {again} or `recover()` goes on with it."]
    if lost:
        lines.append("  Its store was in memory and is gone, so nobody can answer it: run it with another --store.")
    # What a sub-agent asks is answered in the turn that began it all.
    root, _, calls = result.id.partition(":")
    path = f"{calls.replace(':', '/')}/" if calls else ""
    for place, one in enumerate(result.pending):
        lines += _asked(one)
        if one.expires_at is not None:
            until = datetime.fromtimestamp(one.expires_at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
            lines.append(f"    until {until}; after that: {_UNANSWERED.get(one.kind, 'denied')}")
        if lost:
            continue
        if one.id in result.answered:
            lines.append("    answered")
            continue
        asked = not path or place == 0  # the turn above is asked one thing at a time
        how = f"turnwright resume {root}{flags} {_how(one.kind, path + one.id)}"
        lines.append(f"    {how if asked else 'will be asked after that'}")
    return lines


def _asked(one: Pending) -> list[str]:
    """What a person is asked. Further lines of a question are marked as its own: they must not pass for ours."""
    first, *rest = [one_line(line, _LONGEST_LINE) for line in _question(one).strip().split("\n")]
    left_out = [f"... ({len(rest) - _MOST_LINES} more lines: --json shows all)"] if len(rest) > _MOST_LINES else []
    return [f"  {one.id}: {first}", *(f"    | {line}" for line in [*rest[:_MOST_LINES], *left_out])]


def _question(one: Pending) -> str:
    if one.question:
        choices = f" ({' / '.join(one.choices)})" if one.choices else ""
        return one.question + choices
    arguments = ", ".join(f"{name}={value!r}" for name, value in (one.arguments or {}).items())
    return f"may {one.tool}({arguments}) run?"


def _how(kind: InterruptKind, name: str) -> str:
    match kind:
        case InterruptKind.QUESTION:
            return f'--answer {name}="..."'
        case InterruptKind.DOOM_LOOP:
            return f"--answer {name}=go_on    (or {name}=always, {name}=stop)"
        case InterruptKind.UNKNOWN_OUTCOME:
            return f"--answer {name}=rerun    (or {name}=unknown)"
        case _:
            return f'--grant {name}    (or --deny {name}="why")'
