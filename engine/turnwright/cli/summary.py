"""The closing lines of a run: the outcome, the reason, what would have stopped the turn next, and its path."""

from datetime import datetime
from typing import Final

from turnwright._base.ids import root_of
from turnwright.agents.bounds import LIMITS
from turnwright.journal.questions import words
from turnwright.result import TurnResult
from turnwright.store import QUEUED
from turnwright.store.address import outlives_process
from turnwright_states import REASONS, EndReason, InterruptKind, Outcome, State

from .options import DEFAULT_STORE
from .process import spelled
from .screen import print_lines, print_paged
from .stores import password_hint, store_flag
from .view import one_line

#: What becomes of an interrupt that nobody answered in time, where it is not rejected.
_UNANSWERED: Final = {InterruptKind.DOOM_LOOP: "stopped", InterruptKind.UNKNOWN_OUTCOME: "left unknown"}

#: The share of a limit from which on its being the nearest is worth a line.
_NEAR: Final = 0.7

#: Reasons that a limit stops a turn for.
_OF_LIMITS: Final = frozenset(reason for _, reason in LIMITS.values())
#: Outcomes after which a command goes on, and reasons of the others after which it may help.
_GOES_ON: Final = frozenset({Outcome.CAP_HIT, Outcome.DOOM_LOOP})
_MAY_GO_ON: Final = frozenset(
    {EndReason.TRUNCATED, EndReason.ABORTED, EndReason.MODEL_ERROR, EndReason.EMPTY_REPLY, EndReason.CRASHED}
)


def closing_lines(
    result: TurnResult,
    *,
    said: str = "",
    hints: bool = True,
    store: str = DEFAULT_STORE,
    service: str = "",
    elsewhere: bool = False,
    told_to_stop: bool = False,
) -> list[str]:
    """Return what to say at the end: the turn's text, unless it is what was `said` last, the outcome, and the figures.

    `hints`: which commands go on from here, in the store of that address, with the flags of a service if one drives.
    `elsewhere`: another program began the turn, and only that program has its model and tools. `told_to_stop`: a
    request to stop is in its inbox.
    """
    flags, lost = store_flag(store) + service, not outlives_process(store)
    if result.paused:
        lines = _paused(result, flags, lost=lost, elsewhere=elsewhere)
    elif result.outcome is None:
        lines = [_live(result, flags, elsewhere=elsewhere, told_to_stop=told_to_stop)]
    else:
        lines = _ended(result, flags, hints=hints and not lost, elsewhere=elsewhere)
    if flags and any(flags in line for line in lines) and password_hint(store):
        lines.append(f"store: {password_hint(store)}")
    lines += [f"not delivered: {one_line(text, 600)}" for text in result.undelivered]
    figures = [count(result.steps, "step"), f"{count(result.tool_calls, 'tool call')} run"]
    if result.usage.tokens:
        figures.append(f"{result.usage.tokens} tokens")
    lines.append(f"used:  {', '.join(figures)}, {result.seconds:.1f} s of driving")
    if result.next_limit and (result.reason in _OF_LIMITS or result.next_limit_used > _NEAR):
        lines.append(f"next:  the nearest other limit is {result.next_limit}")
    lines.append("path:  " + path_words(result.path))
    if result.outcome is not None and result.text and result.text != said:
        return [result.text, "", *lines]
    return lines


def print_closing(result: TurnResult, lines: list[str], *, flags: str = "") -> None:
    """Print the closing lines. A question that is longer than the screen is shown one screen at a time.

    Whoever leaves before its end is shown no command that answers it.
    """
    if result.paused:
        print_paged(lines, f"not all was shown: `turnwright show {result.id}{flags}` begins again")
    else:
        print_lines(lines)


def path_words(path: tuple[State, ...]) -> str:
    """The way through the chart in one line; a part that repeats is written once with its count."""
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
    return f"{number} {what}{'' if number == 1 else 's'}"


def taken_up_by(turn: str, flags: str, *, elsewhere: bool) -> str:
    """Return who takes a turn up that nobody drives: a command, or the program that began it."""
    if elsewhere:
        return "the program that began it, with `recover()`,"
    return f"`turnwright resume {root_of(turn)}{flags}`"


def ended_by(turn: str, flags: str, *, elsewhere: bool) -> str:
    return f"`turnwright {'abort' if elsewhere else 'resume'} {root_of(turn)}{flags}`"


def _live(result: TurnResult, flags: str, *, elsewhere: bool, told_to_stop: bool) -> str:
    if told_to_stop:
        ends = ended_by(result.id, flags, elsewhere=elsewhere)
        return f"in {result.state}, and told to stop: if nobody drives it, {ends} ends it"
    again = taken_up_by(result.id, flags, elsewhere=elsewhere)
    if result.state is QUEUED:
        return f"in {result.state}: no worker has taken it up yet: start `turnwright worker`, or {again} drives it"
    return f"in {result.state}: if nobody drives it, {again} takes it up again"


def _ended(result: TurnResult, flags: str, *, hints: bool, elsewhere: bool) -> list[str]:
    if result.outcome is None or result.reason is None:
        return []
    also = f" (also reached: {', '.join(result.also_reached)})" if result.also_reached else ""
    lines = [f"{result.outcome}: {result.reason}{also}. {_why(result, result.reason)}"]
    if result.error and result.error.rstrip(".") not in lines[0]:
        lines.append(f"error: {result.error}")
    may_go_on = hints and not elsewhere and root_of(result.id) == result.id
    if may_go_on and (result.outcome in _GOES_ON or result.reason in _MAY_GO_ON):
        lines.append(f'go on: turnwright run --continue {result.id}{flags} "..."')
    return lines


def _why(result: TurnResult, reason: EndReason) -> str:
    """The sentinel with the setting to change; of a turn that nothing stopped, what the reason means."""
    if result.sentinel is not None:
        return f"{result.sentinel.text} {result.advice}"
    return f"{REASONS[reason].means} {REASONS[reason].next}"


def _paused(result: TurnResult, flags: str, *, lost: bool, elsewhere: bool) -> list[str]:
    waits = len(result.interrupts) - len(result.answered)
    lines = [f"paused: the turn waits for {count(waits, 'answer')}."]
    if not waits:
        again = taken_up_by(result.id, flags, elsewhere=elsewhere)
        lines = [f"paused: answered, and not taken up yet: {again} goes on with it."]
    if lost:
        lines.append("  Its store was in memory and is gone, so nobody can answer it: run it with another --store.")
    # What a sub-agent asks is answered in the turn that began it all.
    root, _, calls = result.id.partition(":")
    path = f"{calls.replace(':', '/')}/" if calls else ""
    for place, one in enumerate(result.interrupts):
        first, *rest = spelled(words(one)).split("\n")
        lines += [f"  {one.id}: {first}", *(f"    {line}" for line in rest)]
        if one.expires_at is not None:
            until = _date(one.expires_at)
            lines.append(f"    until {until}; after that: {_UNANSWERED.get(one.kind, 'rejected')}")
        if lost:
            continue
        if one.id in result.answered:
            lines.append("    answered")
        elif path and place:  # the turn above is asked one thing at a time
            lines.append("    will be asked after that")
        else:
            command = f"turnwright {'answer' if elsewhere else 'resume'} {root}{flags}"
            lines.append(f"    {command} {_how(one.kind, path + one.id)}")
    if elsewhere and waits and not lost:
        lines.append("  The program that began the turn goes on with it.")
    return lines


def _how(kind: InterruptKind, name: str) -> str:
    match kind:
        case InterruptKind.QUESTION:
            return f'--answer {name}="..."'
        case InterruptKind.DOOM_LOOP:
            return f"--answer {name}=go_on    (or {name}=always, {name}=stop)"
        case InterruptKind.UNKNOWN_OUTCOME:
            return f"--answer {name}=rerun    (or {name}=unknown)"
        case _:
            return f'--approve {name}    (or --reject {name}="why")'


def _date(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    except (OverflowError, OSError, ValueError):  # later than any calendar goes
        return f"{seconds:g} s since 1970"
