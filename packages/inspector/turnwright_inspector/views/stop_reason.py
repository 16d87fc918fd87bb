"""Explain why a turn stopped, what it waits for, or which limit stops it next."""

from dataclasses import dataclass, replace
from typing import Final, TypedDict

from turnwright._base.words import count
from turnwright.agents.bounds import LIMITS, figures, nearest
from turnwright.journal.inbox import answers_in
from turnwright.result import TurnResult
from turnwright.store import InboxKind
from turnwright.transcript.interrupt import Interrupt
from turnwright.transcript.transcript import Transcript
from turnwright_inspector.http.render import seconds
from turnwright_states import REASONS, EndReason, InterruptKind, State, Turn

from .cli_commands import NO_ADDRESS, begun_elsewhere, resume_command
from .step_summary import named
from .tab_context import TabContext
from .turn_record import TurnRecord

#: The share of a limit from which it is shown, and from which the page warns of it.
SHOWN_FROM: Final = 0.7
WARNED_FROM: Final = 0.9
#: Endings that need no explanation and no advice: the answer is the result.
_DONE: Final = frozenset({EndReason.ANSWERED, EndReason.TEXT_ONLY, EndReason.SYNTHESIZED})
#: The names of the limits by the reasons that they give, and what `Turn.use` calls them.
_LIMITS: Final = {reason: (words, name) for name, (words, reason) in LIMITS.items()}
#: The meaning of each state before the end, for a person who watches.
_AT_WORK: Final = {
    State.CHECK: "It asks whether another step may start.",
    State.STREAM: "The model is writing.",
    State.COMPACT: "The conversation is being made shorter.",
    State.REVIEW: "The model's reply is being checked.",
    State.TOOL_EXEC: "Its tools are running.",
    State.CONTINUE: "A step has just ended.",
    State.CONCLUDE: "A limit was reached: the model says what was done and what is left.",
    State.TEXT_ONLY: "It was allowed no step: the model answers in text.",
}
#: The work of a turn when its driver left.
_WHILE: Final = {
    State.STREAM: "while the model was writing",
    State.COMPACT: "while the conversation was being made shorter",
    State.REVIEW: "while the model's reply was being checked",
    State.TOOL_EXEC: "while its tools were running",
    State.CONCLUDE: "while the model was writing its conclusion",
    State.TEXT_ONLY: "while the model was writing",
}
_ASKED: Final = {
    InterruptKind.QUESTION: "A question",
    InterruptKind.DOOM_LOOP: "It repeats itself: go on, or stop?",
    InterruptKind.UNKNOWN_OUTCOME: "A crash left it open whether this was done",
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
    folded = Transcript.of(turn.facts).turn
    if turn.cut:
        return _past(tab_context, folded)
    if folded.state.outcome is not None:
        return _over(tab_context, folded)
    waiting = tuple(_REQUESTED[item.kind] for item in turn.inbox)
    asked = (f"Requested, and not read yet: {', '.join(waiting)}.",) if waiting else ()
    stop = _at_work(tab_context, folded, asked)
    near, share = nearest(folded)
    return replace(stop, **_limit(f"The nearest limit is {near}.", share))


def _at_work(tab_context: TabContext, folded: Turn, further: tuple[str, ...]) -> StopReason:
    turn = tab_context.turn
    if folded.state is State.PAUSED:
        given = answers_in(turn.inbox)
        waits = sum(one.id not in given for one in turn.result.interrupts)
        title = f"Paused: it waits for {count(waits, 'answer')}"
        told = "Nothing runs, and no time is counted, until a person has answered."
        if not waits:
            title = "Answered, and not resumed yet"
            told = "Nothing runs, and no time is counted, until it is resumed."
        return StopReason("paused", title, told, "", further, turn.result.interrupts, fault=turn.fault)
    if turn.driven:
        title, now, since = _AT_WORK[folded.state].rstrip("."), *_now(turn)
        return StopReason("running", title, now, "", further, fault=turn.fault, since=since)
    return _undriven(tab_context, folded.state, further)


def _now(turn: TurnRecord) -> tuple[str, float]:
    """Return the step that runs with the tools that run in it, and since when."""
    if not turn.steps:
        return "", turn.row.updated_at
    step, elapsed = turn.steps[-1], turn.facts[-1][1].elapsed
    running = [call for call in step.calls if call.status == "running" and call.attempts]
    began = min((call.attempts[-1][0] for call in running), default=elapsed)
    tools = f": {named(call.made.name for call in running)}" if running else ""
    return f"{step.title}{tools}", turn.row.updated_at - (elapsed - began)


def kind_of_question(pending: Interrupt) -> str:
    return _ASKED.get(pending.kind, str(pending.kind))


def _limit(words: str, share: float) -> _Limit:
    near = share >= SHOWN_FROM
    return _Limit(limit=words if near else "", limit_share=share if near else 0.0)


def _over(tab_context: TabContext, folded: Turn) -> StopReason:
    turn, result = tab_context.turn, tab_context.turn.result
    reason, outcome = result.reason, result.outcome
    if reason is None or outcome is None:
        return StopReason("failed", "It ended, and its journal does not say why", fault=turn.fault)
    further: list[str] = []
    done = reason in _DONE
    near = _would(result.next_limit) if reason in _LIMITS else f"The nearest limit was {result.next_limit}."
    others = [_LIMITS[one][0] if one in _LIMITS else _words(one) for one in result.also_reached]
    if others:
        further.append(f"Also reached: {', '.join(others)}.")
    further += [result.advice] if done and result.advice else []
    further += [f"Not delivered: {text}" for text in result.undelivered]
    meaning = REASONS[reason]
    error = result.error if result.error.rstrip(".") not in meaning.means else ""
    return StopReason(
        str(outcome),
        f"Done in {_used(result)}" if done else _title(reason, folded),
        "" if reason is EndReason.ANSWERED else meaning.means,
        "" if done else result.advice or meaning.next,
        tuple(further),
        fault=turn.fault,
        error=error,
        answer=result.text,
        **_limit(near, result.next_limit_used),
    )


def _used(result: TurnResult) -> str:
    """`2 steps (1 tool call, 283 tokens, 2.9 s)`."""
    figures = [count(result.tool_calls, "tool call")] if result.tool_calls else []
    figures += [count(result.usage.tokens, "token")] if result.usage.tokens else []
    return f"{count(result.steps, 'step')} ({', '.join([*figures, seconds(result.seconds)])})"


def _title(reason: EndReason, folded: Turn) -> str:
    if reason in _LIMITS:
        name, used = _LIMITS[reason]
        return f"Stopped by {name}{_figures(used, folded)}"
    if reason is EndReason.DOOM_LOOP:
        return "Stopped because it repeated itself"
    return REASONS[reason].means.rstrip(".")


def _figures(name: str, folded: Turn) -> str:
    """`: 5 of 5`, where the limit has figures."""
    for limit, used, most in folded.use():
        if limit == name:
            return f": {figures(name, used, most)}"
    return ""


def _would(limit: str) -> str:
    """`the tool-call limit (48 of 50)` as a sentence."""
    if not limit:
        return ""
    name, _, figures = limit.removesuffix(")").partition(" (")
    return f"{name[0].upper()}{name[1:]} would have stopped it next: {figures}."


def _past(tab_context: TabContext, folded: Turn) -> StopReason:
    turn = tab_context.turn
    near, share = nearest(folded)
    at_work = _AT_WORK.get(folded.state, "It waits for a person.")
    title = f"After fact {turn.at:,} of {turn.length:,}"
    limit = _limit(f"The nearest limit was {near}.", share)
    return StopReason("past", title, at_work, "", (), turn.result.interrupts, fault=turn.fault, **limit)


def _undriven(tab_context: TabContext, state: State, further: tuple[str, ...]) -> StopReason:
    turn, row = tab_context.turn, tab_context.turn.row
    elsewhere = begun_elsewhere(turn)
    command = resume_command(row.id, tab_context.store, elsewhere=elsewhere)
    added = "" if tab_context.store else f" {NO_ADDRESS}"
    if elsewhere:
        added += " Add the program's model and tools to the command."
    if row.epoch == 0:
        how = f"A worker on this store runs it, or `turnwright resume` does.{added}"
        title = "Queued: no worker has started it yet"
        return StopReason(
            "waiting", title, "It was submitted.", further=further, command=command, how=how, fault=turn.fault
        )
    crashed = row.owner is not None
    gone = f"Its driver is gone{f' ({row.owner})' if row.owner else ''}." if crashed else "Its driver released it."
    told = f"{gone} Finished calls never run again."
    how = f"`Engine.recover()` or `turnwright resume` resumes it.{added}"
    what = "crashed" if crashed else "left"
    title = f"{'Crashed' if crashed else 'Released'} {_WHILE.get(state, 'between two steps')}"
    return StopReason(what, title, told, further=further, command=command, how=how, fault=turn.fault)


def _words(reason: EndReason) -> str:
    return str(reason).replace("_", " ")
