"""Explain why a turn stopped, what it waits for, or which limit stops it next."""

from dataclasses import dataclass, replace
from typing import Final, TypedDict

from turnwright._base.words import count
from turnwright.journal.inbox import answers_in
from turnwright.journal.result import TurnResult
from turnwright.status import (
    LIMIT_REASONS,
    describe_activity,
    describe_lost_driver,
    describe_nearest_limit,
    describe_pause,
    describe_work,
    find_nearest_limit,
    limit_reached,
    list_names,
    name_limit,
)
from turnwright.store import InboxKind
from turnwright.transcript.interrupt import Interrupt
from turnwright.transcript.transcript import Transcript
from turnwright_inspector.http.render import seconds
from turnwright_states import REASONS, EndReason, InterruptKind, State, Turn

from .cli_commands import NO_ADDRESS, begun_elsewhere, resume_command
from .steps import name_tools
from .turn_record import TabContext, TurnRecord

#: The share of a limit from which it is shown.
SHOWN_FROM: Final = 0.7
#: Endings that need no explanation and no advice: the answer is the result.
_DONE: Final = frozenset({EndReason.ANSWERED, EndReason.TEXT_ONLY, EndReason.SYNTHESIZED})
_ASKED: Final = {
    InterruptKind.QUESTION: "A question",
    InterruptKind.DOOM_LOOP: "It repeats itself: go on, or stop?",
    InterruptKind.UNKNOWN_OUTCOME: "A crash left it open whether this was done",
    InterruptKind.RESULT: "A result from outside",
    InterruptKind.GRANT: "A grant",
    InterruptKind.APPROVAL: "An approval",
}
_REQUESTED: Final = {
    InboxKind.ABORT: "an abort",
    InboxKind.ANSWER: "an answer",
    InboxKind.STEER: "a message to it",
}


class _Limit(TypedDict):
    """The fields of a `StopReason` about the nearest limit."""

    limit: str
    limit_share: float


@dataclass(frozen=True, slots=True)
class StopReason:
    """The explanation of a turn's state.

    `what` is an outcome, `paused`, `running`, or `past` where an earlier place is shown. A turn without a driver is
    `waiting` (for its first), `crashed` or `left`.
    `title` is a line, `means` a sentence, and `next_step` the advice. `further` has a line for each of the
    further facts; `interrupts` are a paused turn's questions; `command` resumes a turn without a driver, and `how` is a
    sentence about that.
    `fault` is what is wrong with the journal, `error` what failed. `answer` is what the turn gave, as far as it came.
    `limit` is a sentence about the limit that is nearest, from 70 % of it on, and `limit_share` the used share of it.
    `since` is when what runs now began, in seconds since the Unix epoch.
    """

    what: str
    title: str
    means: str = ""
    next_step: str = ""
    further: tuple[str, ...] = ()
    interrupts: tuple[Interrupt, ...] = ()
    command: str = ""
    how: str = ""
    fault: str = ""
    error: str = ""
    answer: str = ""
    limit: str = ""
    limit_share: float = 0.0
    since: float | None = None


def stop_of(tab_context: TabContext) -> StopReason:
    """Explain the turn at the shown place: why it stopped, or what it does or waits for."""
    turn = tab_context.turn
    turn_state = Transcript.of(turn.facts).turn
    if turn.cut:
        return _past(tab_context, turn_state)
    if turn_state.state.outcome is not None:
        return _over(tab_context, turn_state)
    waiting = tuple(_REQUESTED[item.kind] for item in turn.inbox if item.kind in _REQUESTED)
    requests = (f"Requested, and not read yet: {', '.join(waiting)}.",) if waiting else ()
    stop = _at_work(tab_context, turn_state, requests)
    near, share = find_nearest_limit(turn_state)
    return replace(stop, **_limit(describe_nearest_limit(near), share))


def _at_work(tab_context: TabContext, turn_state: Turn, further: tuple[str, ...]) -> StopReason:
    turn = tab_context.turn
    if turn_state.state is State.PAUSED:
        answers = answers_in(turn.inbox, turn.result.interrupts)
        waits = sum(interrupt.id not in answers for interrupt in turn.result.interrupts)
        title = describe_pause(waits)
        text = "Nothing runs, and no time is counted, until a person has answered."
        if not waits:
            text = "Nothing runs, and no time is counted, until it is resumed."
        return StopReason("paused", title, text, "", further, turn.result.interrupts, fault=turn.fault)
    if turn.driven:
        title, now, since = describe_activity(turn_state.state), *_now(turn)
        return StopReason("running", title, now, "", further, fault=turn.fault, since=since)
    return _undriven(tab_context, turn_state.state, further)


def _now(turn: TurnRecord) -> tuple[str, float]:
    """Return the step that runs with the tools that run in it, and since when."""
    if not turn.steps:
        return "", turn.row.updated_at
    step, elapsed = turn.steps[-1], turn.facts[-1][1].elapsed
    running = [call for call in step.calls if call.status == "running" and call.attempts]
    start = min((call.attempts[-1][0] for call in running), default=elapsed)
    tools = f": {name_tools(call.made.name for call in running)}" if running else ""
    return f"{step.title}{tools}", turn.row.updated_at - (elapsed - start)


def kind_of_question(interrupt: Interrupt) -> str:
    return _ASKED.get(interrupt.kind, str(interrupt.kind))


def _limit(words: str, share: float) -> _Limit:
    near = share >= SHOWN_FROM
    return _Limit(limit=words if near else "", limit_share=share if near else 0.0)


def _over(tab_context: TabContext, turn_state: Turn) -> StopReason:
    turn, result = tab_context.turn, tab_context.turn.result
    reason, outcome = result.reason, result.outcome
    if reason is None or outcome is None:
        return StopReason("failed", "It ended, and its journal does not say why", fault=turn.fault)
    further: list[str] = []
    is_done = reason in _DONE
    near = describe_nearest_limit(result.next_limit, is_reached=reason in LIMIT_REASONS)
    if result.also_reached:
        further.append(f"Also reached: {', '.join(map(name_limit, result.also_reached))}.")
    further += [result.advice] if is_done and result.advice else []
    further += [f"Owed by rules when it ended: {list_names(result.unmet)}."] if result.unmet else []
    further += [f"Not delivered: {text}" for text in result.undelivered]
    meaning = REASONS[reason]
    error = result.error if result.error.rstrip(".") not in meaning.means else ""
    return StopReason(
        str(outcome),
        f"Done in {_work_of(result)}" if is_done else limit_reached(turn_state, reason),
        "" if reason is EndReason.ANSWERED else meaning.means,
        "" if is_done else result.advice or meaning.next,
        tuple(further),
        fault=turn.fault,
        error=error,
        answer=result.text,
        **_limit(near, result.next_limit_used),
    )


def _work_of(result: TurnResult) -> str:
    tokens = [count(result.usage.tokens, "token")] if result.usage.tokens else []
    return describe_work(result.steps, result.tool_calls, [*tokens, seconds(result.seconds)])


def _past(tab_context: TabContext, turn_state: Turn) -> StopReason:
    turn = tab_context.turn
    near, share = find_nearest_limit(turn_state)
    title = f"After fact {turn.at:,} of {turn.length:,}"
    limit = _limit(describe_nearest_limit(near), share)
    return StopReason(
        "past",
        title,
        f"{describe_activity(turn_state.state)}.",
        "",
        (),
        turn.result.interrupts,
        fault=turn.fault,
        **limit,
    )


def _undriven(tab_context: TabContext, state: State, further: tuple[str, ...]) -> StopReason:
    turn, row = tab_context.turn, tab_context.turn.row
    elsewhere = begun_elsewhere(turn)
    command = resume_command(row.id, tab_context.store, elsewhere=elsewhere)
    hint = "" if tab_context.store else f" {NO_ADDRESS}"
    if elsewhere:
        hint += " Add the program's model and tools to the command."
    if row.epoch == 0:
        how = f"A worker on this store runs it, or `turnwright resume` does.{hint}"
        title = "Queued: no worker has started it yet"
        return StopReason(
            "waiting", title, "It was submitted.", further=further, command=command, how=how, fault=turn.fault
        )
    has_crashed = row.owner is not None
    loss = f"Its driver is gone{f' ({row.owner})' if row.owner else ''}." if has_crashed else "Its driver released it."
    text = f"{loss} Finished calls never run again."
    how = f"`Engine.recover()` or `turnwright resume` resumes it.{hint}"
    state_name = "crashed" if has_crashed else "left"
    title = describe_lost_driver(state, crashed=has_crashed)
    return StopReason(state_name, title, text, further=further, command=command, how=how, fault=turn.fault)
