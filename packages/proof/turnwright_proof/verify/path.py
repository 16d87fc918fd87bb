"""The path of a turn through the chart in plain words: its inputs, and the rows that they took."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from turnwright_states.call import CallState
from turnwright_states.chart import Row
from turnwright_states.inputs import (
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    CallSettledInput,
    CallStartedInput,
    CallWaitingInput,
    CompactedInput,
    ConcludedInput,
    ExpireInput,
    Finish,
    Input,
    ModelRepliedInput,
    OversizedInput,
    RequestPreparedInput,
    ReviewedInput,
    Spent,
    SteeredInput,
    StopInput,
    SynthesizedInput,
    ToolCall,
    TrippedInput,
    Usage,
    is_blank,
)
from turnwright_states.reasons import Cause, EndReason
from turnwright_states.state import State
from turnwright_states.turn import Turn

from .case import Case
from .configuration import WalkedMachine


class Edge(NamedTuple):
    """One input on the path.

    `happened` describes it in words, and `event` is its name. `source` and `dest` are the states before and after it,
    and `rows` are the rows that it took: none while the calls of a batch run.
    """

    happened: str
    event: str
    source: State
    rows: tuple[Row, ...]
    dest: State

    def __str__(self) -> str:
        return "; ".join((self.happened, *(row.name for row in self.rows)))


Path = tuple[Edge, ...]


def retrace(case: Case, events: Iterable[Input]) -> tuple[Path, WalkedMachine]:
    """Feed the inputs to a new turn. Return its path, with its beginning, and its machine at the end.

    Raises `MachineError` if the chart has no row for an input.
    """
    machine, _ = WalkedMachine.start(case.started)
    path = [Edge("the turn begins", "Started", State.CHECK, tuple(machine.rows), machine.state)]
    for event in events:
        event_words, source = describe_path(event, machine.turn), machine.state
        machine.rows = []
        machine.feed(event)
        path.append(Edge(event_words, event.title(), source, tuple(machine.rows), machine.state))
    return tuple(path), machine


def describe_path(event: Input, turn: Turn) -> str:  # noqa: C901, PLR0911, PLR0912 (one case an event: flat)
    """Describe an input in words. `turn` is the turn before it."""
    match event:
        case ModelRepliedInput():
            return _reply(event) + _spending(event.usage) + _timely(event, turn)
        case AttemptFailedInput(cause=Cause.CRASH):
            return "the process dies"
        case AttemptFailedInput():
            return f"the attempt fails ({event.cause.replace('_', ' ')})" + _spending(event.usage)
        case CallStartedInput():
            return f"{_name(turn, event.call)} {_start(turn, event.call)}"
        case CallSettledInput():
            inside = _used_inside({} if event.spent is None else {event.call: event.spent})
            status = f"{event.status}, with the turn's answer" if event.final else event.status
            return f"{_name(turn, event.call)} ends: {status}{inside}" + _timely(event, turn)
        case CallWaitingInput():
            owner = "'s sub-agent" if event.forwarded else ""
            return f"{_name(turn, event.call)}{owner} waits for a person ({event.interrupt_kind.replace('_', ' ')})"
        case SynthesizedInput():
            return "the synthesis " + ("gives no answer" if is_blank(event.text or "") else "gives the answer")
        case AnsweredInput():
            return f"a person answers {event.interrupt}: {event.decision.replace('_', ' ')}"
        case SteeredInput():
            return "a message arrives"
        case ConcludedInput():
            if not is_blank(event.text or ""):
                return "the model concludes"
            return f"the model concludes {'with calls only' if event.calls else 'without text'}"
        case StopInput():
            return _stop(event) + _used_inside(event.spent)
        case _:
            return _beside(event, turn)


def _beside(event: Input, turn: Turn) -> str:
    """Describe an input of hooks, of a review or of a compaction."""
    match event:
        case RequestPreparedInput():
            return "the request is prepared"
        case ReviewedInput(answer=str() as call):
            return f"the reply is accepted, and {_name(turn, call)} is the turn's answer"
        case ReviewedInput():
            return f"the reply is {'refused' if event.refused else 'accepted'}"
        case OversizedInput():
            return "the request is too long"
        case CompactedInput():
            return "the conversation is compacted" + _spending(event.usage)
        case _:
            return event.title()


def _stop(event: StopInput) -> str:
    match event:
        case ExpireInput():
            return "the time is up"
        case AbortInput(reason=EndReason.SUPERSEDED):
            return "a new message replaces the turn"
        case AbortInput():
            return "somebody aborts the turn"
        case TrippedInput():
            return "a guardrail trips"
        case _:
            return "the engine fails"


def _used_inside(spending_by_call: Mapping[str, Spent]) -> str:
    call_count = sum(spending.calls for spending in spending_by_call.values())
    sub_agents = "its sub-agents" if len(spending_by_call) > 1 else "its sub-agent"
    return f", {sub_agents} made {call_count} call{'s' * (call_count > 1)}" if call_count else ""


def _reply(event: ModelRepliedInput) -> str:
    if event.calls:
        text = f"the model asks for {', '.join(map(_describe_call, event.calls))}"
    elif not is_blank(event.text):
        text = "the model answers"
    else:
        text = "the model replies" if event.finish is Finish.CONTENT_FILTER else "the model sends an empty reply"
    review_words = ", to be reviewed" if event.review else ""
    return (
        text
        + review_words
        + {
            Finish.STOP: "",
            Finish.LENGTH: ", cut off at its length",
            Finish.CONTENT_FILTER: ", stopped by a content filter",
        }.get(event.finish, "")
    )


def _describe_call(call: ToolCall) -> str:
    return f"{call.name} ({call.problem})" if call.problem else call.name


def _start(turn: Turn, call: str) -> str:
    state = turn.batch[call]
    if state.state is CallState.STARTED:
        return (
            "runs again after a crash, for which another call has paid"
            if state.crash_paid
            else "runs again after a crash"
        )
    return "continues" if state.counted else "starts"


def _name(turn: Turn, call: str) -> str:
    """Return the tool's name, with the call's number if the batch has several calls of the tool."""
    name = turn.batch[call].name
    alike = [state.id for state in turn.batch.values() if state.name == name]
    return f"{name} (the {alike.index(call) + 1}. of {len(alike)})" if len(alike) > 1 else name


def _spending(usage: Usage | None) -> str:
    usage = usage or Usage()
    spent_kinds = [name for name, amount in (("tokens", usage.tokens), ("money", usage.cost)) if amount]
    return (
        f", and the {' and '.join(spent_kinds)} {'is' if spent_kinds == ['money'] else 'are'} spent"
        if spent_kinds
        else ""
    )


def _timely(event: Input, turn: Turn) -> str:
    late = turn.limits.seconds is not None and event.elapsed >= turn.limits.seconds
    return ", and the time is up" if late else ""
