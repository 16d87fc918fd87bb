"""The last lines of a run: how the turn ended in one sentence, what to do next, and with `--verbose` the details."""

from collections.abc import Sequence
from typing import Final

from turnwright._base.ids import root_of
from turnwright._base.words import count, cut_line, local_time
from turnwright.journal.driving_status import DriverStatus
from turnwright.journal.questions import describe_approvals, words
from turnwright.journal.result import TurnResult
from turnwright.privacy.invisible import exact
from turnwright.status import (
    LIMIT_REASONS,
    RuleStatus,
    describe_ending,
    describe_lost_driver,
    describe_nearest_limit,
    describe_pause,
    describe_work,
)
from turnwright.store import QUEUED
from turnwright.store.address import outlives_process
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import MAX_STEPS, REASONS, EndReason, InterruptKind, Outcome, State

from .options import DEFAULT_STORE
from .process import echo, spell
from .screen import print_lines, print_to_the_end
from .stores import password_hint, store_flag

#: The decision on an interrupt that is not answered in time. Any other kind is rejected.
_UNANSWERED: Final = {InterruptKind.DOOM_LOOP: "stopped", InterruptKind.UNKNOWN_OUTCOME: "left unknown"}

#: The share of a limit above which it is mentioned, although it did not stop the turn.
_NEAR: Final = 0.7

#: Outcomes after which the user can continue in a new turn, and other reasons after which that may help.
_CONTINUED: Final = frozenset({Outcome.CAP_HIT, Outcome.DOOM_LOOP})
_MAY_CONTINUE: Final = frozenset(
    {EndReason.TRUNCATED, EndReason.ABORTED, EndReason.MODEL_ERROR, EndReason.EMPTY_REPLY, EndReason.CRASHED}
)


def final_text(result: TurnResult, printed_text: str = "") -> str:
    """Return the text of a turn that has ended; empty if it is `printed_text`, which is on the screen."""
    return result.text if result.outcome is not None and result.text != printed_text else ""


def closing_lines(
    result: TurnResult,
    *,
    hints: bool = True,
    store: str = DEFAULT_STORE,
    service: str = "",
    elsewhere: bool = False,
    told_to_stop: bool = False,
    verbose: bool = False,
    above: str = "",
    driver: DriverStatus | None = None,
) -> list[str]:
    """Return how the turn ended or why it is paused, and what to do next.

    `hints` adds the commands that continue it, with flags for the store at that address and for a `service`.
    `elsewhere`: another program began the turn, and only that program has its model and tools. `told_to_stop`: a
    request to stop is in its inbox. `verbose` adds the outcome, the figures and the path through the chart. `above` is
    the text on the screen above the lines: a limit that it names first is not named again. `driver` is the turn's, if
    it is known.
    """
    flags, is_lost = store_flag(store) + service, not outlives_process(store)
    if result.paused:
        lines = _describe_pause(result, flags, is_lost=is_lost, elsewhere=elsewhere)
    elif result.outcome is None:
        lines = [_describe_unfinished(result, flags, elsewhere=elsewhere, told_to_stop=told_to_stop, driver=driver)]
    else:
        lines = _describe_ending(
            result, flags, hints=hints and not is_lost, elsewhere=elsewhere, verbose=verbose, above=above
        )
    if flags and any(flags in line for line in lines) and password_hint(store):
        lines.append(f"Store: {password_hint(store)}.")
    lines += [f"Not delivered: {cut_line(text, 600)}" for text in result.undelivered]
    return lines + (detail_lines(result) if verbose else [])


def detail_lines(result: TurnResult) -> list[str]:
    """Return the outcome, what was used, the next limit and the path through the chart, a line each."""
    lines = []
    if result.outcome is not None:
        also = f" (also reached: {', '.join(result.also_reached)})" if result.also_reached else ""
        lines.append(f"outcome:  {result.outcome}: {result.reason}{also}")
    lines.append(f"used:     {count(result.steps, 'step')}, {', '.join(_figures(result))}")
    if result.next_limit:
        lines.append(f"nearest:  {result.next_limit}")
    return [*lines, f"path:     {path_words(result.path)}"]


def rule_lines(rules: Sequence[RuleStatus]) -> list[str]:
    """Return the status of each rule, a line each: its state, the calls that it judged, and what is owed."""
    return [f"rule:     {cut_line(str(status), 600)}" for status in rules]


def print_closing(result: TurnResult, lines: list[str], *, flags: str = "") -> None:
    """Print the closing lines. A question that is longer than the screen is shown one screen at a time.

    If the person leaves before its end, no command that answers it is shown.
    """
    if not result.paused:
        print_lines(lines)
    elif not print_to_the_end(lines):
        echo(f"Not everything was shown: `turnwright show {result.id}{flags}` shows it again.")


def path_words(path: tuple[State, ...]) -> str:
    """Return the path through the chart in one line. A part that repeats is written once, with its count."""
    words: list[str] = []
    states = [str(state) for state in path]
    while states:
        cycle, times = _find_cycle(states)
        words.append(f"({' > '.join(cycle)}) x{times}" if times > 1 else cycle[0])
        states = states[len(cycle) * times :]
    return " > ".join(words)


def _find_cycle(states: list[str]) -> tuple[list[str], int]:
    best: tuple[list[str], int] = (states[:1], 1)
    for length in range(1, len(states) // 2 + 1):
        cycle, times = states[:length], 1
        while states[length * times : length * (times + 1)] == cycle:
            times += 1
        if times > 1 and length * times > len(best[0]) * best[1]:
            best = cycle, times
    return best


def resumed_by(turn: str, flags: str, *, elsewhere: bool) -> str:
    """Return what resumes a turn whose driver is gone: a command, or the program that began the turn."""
    if elsewhere:
        return "`Engine.recover()` or a worker of the program that began it"
    return f"`turnwright resume {root_of(turn)}{flags}`"


def ended_by(turn: str, flags: str, *, elsewhere: bool) -> str:
    return f"`turnwright {'abort' if elsewhere else 'resume'} {root_of(turn)}{flags}`"


def _figures(result: TurnResult) -> list[str]:
    calls = [count(result.tool_calls, "tool call")] if result.tool_calls else []
    return [*calls, *_tokens(result), _time(result)]


def _time(result: TurnResult) -> str:
    return f"{result.seconds:.1f} s"


def _tokens(result: TurnResult) -> list[str]:
    usage = result.usage
    parts = [(usage.cached_tokens, "cached"), (usage.reasoning_tokens, "reasoning")]
    of_which = " and ".join(f"{tokens:,} {kind}" for tokens, kind in parts if tokens)
    tokens = [f"{usage.tokens:,} tokens{f' with {of_which}' if of_which else ''}"] if usage.tokens else []
    return [*tokens, *([f"cost {usage.cost:.4g}"] if usage.cost else [])]


def _describe_unfinished(
    result: TurnResult, flags: str, *, elsewhere: bool, told_to_stop: bool, driver: DriverStatus | None
) -> str:
    is_driverless = driver in (DriverStatus.CRASHED, DriverStatus.LEFT)
    begins = f"In {result.state}"
    if is_driverless and isinstance(result.state, State):
        begins = describe_lost_driver(result.state, crashed=driver is DriverStatus.CRASHED)
    if_gone = "" if is_driverless else "If its driver is gone, "
    if told_to_stop:
        ends = ended_by(result.id, flags, elsewhere=elsewhere)
        return f"{begins}, and asked to stop. {if_gone}{ends} ends it."
    again = resumed_by(result.id, flags, elsewhere=elsewhere)
    if result.state is QUEUED:
        return f"In {result.state}: no worker has claimed it yet. Start `turnwright worker`, or {again} drives it."
    return f"{begins}{': ' if is_driverless else f'. {if_gone}'}{again} resumes it."


def _describe_ending(
    result: TurnResult, flags: str, *, hints: bool, elsewhere: bool, verbose: bool, above: str
) -> list[str]:
    if result.outcome is None or result.reason is None:
        return []
    meaning = REASONS[result.reason]
    usage = describe_work(result.steps, result.tool_calls, [*_tokens(result), _time(result)])
    if result.outcome in (Outcome.FINISHED, Outcome.SYNTHESIS_DONE):
        lines = [f"Done in {usage}."]
        if result.sentinel is not None:
            lines += [result.sentinel.text, result.advice]
        elif result.reason is EndReason.TRUNCATED:
            lines += [meaning.means, meaning.next]
    elif result.outcome is Outcome.ABORTED:
        lines = [f"Stopped after {usage}. {meaning.means}"]
    elif result.outcome is Outcome.FAILED:
        lines = [f"Failed after {usage}. {meaning.means}"]
        lines += [f"Error: {result.error}"] if result.error and result.error.rstrip(".") not in lines[0] else []
        lines.append(meaning.next)
    else:
        ending = describe_ending(result.reason, "" if result.sentinel is None else result.sentinel.text)
        ending = "" if above.startswith(ending) else ending
        lines = [ending, result.advice or meaning.next, "" if verbose else f"Used {usage}."]
    if not verbose and result.next_limit and (result.reason in LIMIT_REASONS or result.next_limit_used > _NEAR):
        lines.append(describe_nearest_limit(result.next_limit, is_reached=result.reason in LIMIT_REASONS))
    may_continue = hints and not elsewhere and root_of(result.id) == result.id
    if may_continue and (result.outcome in _CONTINUED or result.reason in _MAY_CONTINUE):
        steps_flag = f" --steps {min(2 * result.steps, MAX_STEPS)}" if result.reason is EndReason.STEP_CAP else ""
        lines += ["To continue in a new turn:", f'  turnwright run --continue {result.id}{flags}{steps_flag} "..."']
    return [line for line in lines if line]


def _describe_pause(result: TurnResult, flags: str, *, is_lost: bool, elsewhere: bool) -> list[str]:
    waits = len(result.interrupts) - len(result.answered)
    lines = [f"{describe_pause(waits)}."]
    if not waits:
        again = resumed_by(result.id, flags, elsewhere=elsewhere)
        lines = [f"{describe_pause(waits)}; {again} resumes it."]
    if is_lost:
        lines.append("  Nobody can answer it: its store was in memory and is gone. Use another --store.")
    # An interrupt of a sub-agent is answered in the root turn.
    root, _, calls = result.id.partition(":")
    path = f"{calls.replace(':', '/')}/" if calls else ""
    for interrupt in result.interrupts:
        first, *more_lines = spell(words(interrupt)).split("\n")
        lines += [f"  {interrupt.id}: {first}", *(f"    {line}" for line in more_lines)]
        lines += _about(interrupt)
        if is_lost:
            continue
        if interrupt.id in result.answered:
            lines.append("    answered")
        else:
            command = f"turnwright {'answer' if elsewhere else 'resume'} {root}{flags}"
            by = " --by NAME" if interrupt.is_shared else ""
            if interrupt.kind is InterruptKind.RESULT:
                lines.append(f'    turnwright settle {interrupt.key}{flags} --result "..."')
            lines.append(f"    {command} {_how(interrupt.kind, path + interrupt.id)}{by}")
    if elsewhere and waits and not is_lost:
        lines.append(f"  Then {resumed_by(result.id, flags, elsewhere=True)} resumes the turn.")
    return lines


def _about(interrupt: Interrupt) -> list[str]:
    """Return who has approved so far, since when it waits, how far the work is, and when the interrupt expires."""
    lines = [f"    approved by {describe_approvals(interrupt)}"] if interrupt.is_shared else []
    if interrupt.asked_at is not None:
        lines.append(f"    since {local_time(interrupt.asked_at, '%Y-%m-%d %H:%M:%S %z')}")
    if interrupt.rules:
        lines.append(f"    asked by {exact(cut_line(', '.join(interrupt.rules), 600))}")
    if interrupt.progress is not None:
        lines.append(f"    progress: {exact(str(interrupt.progress))}")
    if interrupt.expires_at is not None:
        until = local_time(interrupt.expires_at, "%Y-%m-%d %H:%M:%S %z")
        after = _UNANSWERED.get(interrupt.kind, "rejected")
        if interrupt.kind is InterruptKind.RESULT:
            otherwise = interrupt.otherwise
            after = "an error" if otherwise is None else f"the result {exact(cut_line(otherwise.text, 80))}"
        lines.append(f"    until {until}; after that: {after}")
    return lines


def _how(kind: InterruptKind, name: str) -> str:
    match kind:
        case InterruptKind.QUESTION:
            return f'--answer {name}="..."'
        case InterruptKind.DOOM_LOOP:
            return f"--answer {name}=go_on    (or {name}=always, {name}=stop)"
        case InterruptKind.UNKNOWN_OUTCOME:
            return f'--answer {name}=rerun    (or {name}=unknown, or --settle {name}="...")'
        case InterruptKind.RESULT:
            return f'--answer {name}=rerun    (or --reject {name}="why")'
        case _:
            return f'--approve {name}    (or --reject {name}="why")'
