"""The lines of a turn's events as plain text."""

from typing import Final

from turnwright._base.words import count, cut_line
from turnwright.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent
from turnwright_states import facts as f

from .view import TurnView, file_line, shown_arguments, with_status

#: Seconds of waiting below which a wait is not mentioned.
_WORTH_SHOWING: Final = 0.05


def plain_lines(view: TurnView, event: TurnEvent) -> list[str]:
    """Return the lines of an event; none for an event that is not shown."""
    if isinstance(event, TurnPausedEvent):
        return [f"PAUSED       {len(event.interrupts)} to answer"]
    if isinstance(event, TurnEndedEvent) and view.path:
        last = event.text if event.text != view.said else ""
        return [*_indented(last), f"{view.state:<12} {event.reason}"]
    return _fact_lines(view, event) if isinstance(event, FactEvent) else []


def _fact_lines(view: TurnView, event: FactEvent) -> list[str]:  # noqa: PLR0911 (one case a fact: flat)
    match event.fact:
        case f.TurnStarted():
            # The prompt of a sub-agent is an argument of its call, which is shown already.
            started = event.fact
            said = [] if view.path else [*forked(started), cut_line(started.prompt), *map(file_line, started.files)]
            return [headline(view), *(f"             {line}" for line in said)]
        case f.StepStarted(number=number, nudge=nudge, stall=stall):
            hint = "  (nudged)" if nudge else "  (hinted)" if stall else ""
            return [f"STREAM       step {number} of {view.limits.cap}{hint}"]
        case f.ModelReplied(text=text, calls=calls):
            view.said = text or view.said
            return [
                *_indented(text),
                *(f"TOOL_EXEC    {named(view, call.id)}({shown_arguments(call)})" for call in calls),
            ]
        case f.CallSettled(call=call, result=result, files=files) if call in view.calls:
            one = view.calls[call]
            status = f"{one.status} {one.took}" if one.took else one.status
            lines = [f"{named(view, call)}: {with_status(status, cut_line(result))}", *map(file_line, files)]
            return [f"             {line}" for line in lines]
        case f.CallWaiting(interrupt=interrupt):
            return [f"             {interrupt.tool} waits: {view.answered_as(interrupt.id)}"]
        case f.Stopping(reason=reason):
            return [f"CONCLUDE     {reason}"]
        case _:
            return [f"             {line}" for line in note(event)]


def note(event: FactEvent) -> list[str]:
    """Return the line of a fact that belongs to no step and no call; nothing for any other fact."""
    match event.fact:
        case f.AttemptFailed() as failed:
            return [failed_attempt(failed)]
        case f.Concluded(retry=True):
            return ["the conclusion had no text, asking once more"]
        case f.MessageAdded(text=text):
            return [f"message: {cut_line(text, 400)}"]
        case f.Notice():
            return [f"notice: {event.text}"]
        case f.Reviewed(refused=False):
            pass  # an agent whose replies are reviewed has one in each step
        case fact if fact.noteworthy:
            return [cut_line(f"{fact.title}: {fact.summary()}", 400)]
        case _:
            pass
    return []


def named(view: TurnView, call: str) -> str:
    """Return the tool of a call. A sub-agent's comes with the call's id, which its own lines begin with."""
    one = view.calls[call]
    return f"{call} {one.name}" if one.delegated else one.name


def _indented(text: str) -> list[str]:
    return [f"             {line}" for line in text.splitlines()]


def headline(view: TurnView, *, limits: bool = True) -> str:
    calls = "unlimited" if view.limits.call_limit is None else f"{view.limits.call_limit}"
    agent, model = cut_line(view.agent), cut_line(view.model)
    if not limits:
        return f"turn {view.turn}  agent {agent}  model {model}"
    most = f"{count(view.limits.cap, 'step')}, {calls} tool call{'' if calls == '1' else 's'}"
    return f"turn {view.turn}  agent {agent}  model {model}  limits: {most}"


def failed_attempt(failed: f.AttemptFailed) -> str:
    """Return the line about a failed attempt: whether another one follows, and when."""
    wait = f" in {failed.wait:.1f} s" if failed.wait >= _WORTH_SHOWING else ""
    again = f", trying again{wait}" if failed.retry else ""
    return f"attempt failed{again}: {cut_line(failed.message, 400)}"


def forked(started: f.TurnStarted) -> list[str]:
    """Return the line that names the turn this one was copied from; nothing for a turn that is not a copy."""
    if started.forked_from is None:
        return []
    changed = f", with another {', '.join(map(cut_line, started.forked_with))}" if started.forked_with else ""
    return [f"forked from {started.forked_from} at fact {started.forked_at}{changed}"]
