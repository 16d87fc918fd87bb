"""The state of the turn on a display, updated by each event, and the lines of an event as plain text."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from turnwright._base.words import count, cut_line
from turnwright.journal.driving_status import by_command_line
from turnwright.transcript.events import (
    FactEvent,
    Interrupt,
    ResponseRestartedEvent,
    ResponseWithdrawnEvent,
    TextDeltaEvent,
    ToolCallDeltaEvent,
    ToolProgressEvent,
    TurnEndedEvent,
    TurnEvent,
    TurnPausedEvent,
    without_content,
)
from turnwright_states import CallStatus, Limits, State
from turnwright_states import facts as f
from turnwright_states.amounts import format_number

#: The status of a call that the model is writing.
WRITING: Final = "writing"
#: The most characters of a call's arguments in its line.
_SHOWN: Final = 120
#: Seconds of waiting below which a wait is not mentioned.
_WORTH_SHOWING: Final = 0.05


@dataclass(slots=True)
class CallLine:
    """A tool call on the screen."""

    name: str
    arguments: str
    #: Whether a sub-agent runs it.
    delegated: bool = False
    status: str = ""
    #: The first line of the error that has words.
    error: str = ""
    #: The progress that the tool reports.
    progress: str = ""
    seconds: float | None = None
    started: float | None = None

    def settle(self, fact: f.CallSettled, start_time: float | None) -> None:
        """Set the result. `start_time` is in active seconds of the turn; None for a call that never ran."""
        self.status = str(fact.status)
        if fact.status is not CallStatus.OK:
            self.error = cut_line(_first_line(fact.result), 400)
        if start_time is not None:
            self.seconds = fact.elapsed - start_time

    @property
    def took(self) -> str:
        """The time of the call, or its time so far; empty for a call that never ran."""
        if self.seconds is not None:
            return f"{self.seconds:.2f} s"
        return "" if self.started is None else f"{time.monotonic() - self.started:.1f} s"


@dataclass(slots=True)
class TurnView:
    """A turn on the screen. `below` has the turns of all its sub-agents by their ids."""

    turn: str = ""
    #: The calls that lead from the shown turn to this one, as in the ids of interrupts; empty for the shown turn.
    path: str = ""
    agent: str = ""
    model: str = ""
    #: Whether another program began it. Only that program has its model and tools.
    begun_elsewhere: bool = False
    #: Whether this process has asked it to stop. The request is in its inbox until the turn has ended.
    told_to_stop: bool = False
    limits: Limits = field(default_factory=Limits)
    state: State = State.CHECK
    step: int = 0
    calls_run: int = 0
    tokens: int = 0
    text: str = ""
    #: The last text that was printed for good.
    printed_text: str = ""
    calls: dict[str, CallLine] = field(default_factory=dict)
    pending: tuple[Interrupt, ...] = ()
    below: "dict[str, TurnView]" = field(default_factory=dict)
    _started_at: dict[str, float] = field(default_factory=dict)
    #: The calls that wait for a person, by interrupt.
    _questions: dict[str, str] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return len(self.path.split("/")) if self.path else 0

    @property
    def label(self) -> str:
        """The calls that lead to a sub-agent's turn, and the sub-agent; empty for the shown turn."""
        return f"{self.path} {cut_line(self.agent, 24)}" if self.path else ""

    @property
    def in_tool(self) -> bool:
        """Whether a tool of the turn, or of a sub-agent, may be running."""
        return any(
            view.state is State.TOOL_EXEC and not all(call.delegated or call.status for call in view.calls.values())
            for view in (self, *self.below.values())
        )

    def recall(self, turn: str, facts: Iterable[f.Fact]) -> None:
        """Add the facts from before this process drove the turn: those of the turn first, then of its sub-agents."""
        self.turn = self.turn or turn
        view = self._of(turn)
        for fact in facts:
            view.add_fact(fact)

    def take(self, event: TurnEvent) -> "TurnView | None":
        """Add an event. Returns the view of its turn; None for a turn that is not shown.

        The shown turn is the first one that starts. Before that, another turn of the session may end.
        """
        if not self.turn and isinstance(event, FactEvent) and isinstance(event.fact, f.TurnStarted):
            self.turn = event.turn
        if not self.turn or not f"{event.turn}:".startswith(f"{self.turn}:"):
            return None
        view = self._of(event.turn)
        view.add(event)
        return view

    def above(self, view: "TurnView") -> "TurnView":
        return self._of(view.turn.rpartition(":")[0])

    def _of(self, turn: str) -> "TurnView":
        if turn == self.turn:
            return self
        path = turn.removeprefix(f"{self.turn}:").replace(":", "/")
        return self.below.setdefault(turn, TurnView(turn=turn, path=path))

    def add(self, event: TurnEvent) -> None:
        match event:
            case FactEvent(fact=fact):
                self.add_fact(fact)
            case TextDeltaEvent():
                self.text += event.text
            case ToolCallDeltaEvent():
                self._write_call(event)
            case ResponseRestartedEvent() | ResponseWithdrawnEvent():
                self.text, self.calls = "", {}
            case ToolProgressEvent() if event.call in self.calls:
                self.calls[event.call].progress = _progress(event)
            case TurnPausedEvent():
                self.state, self.pending = State.PAUSED, event.interrupts
            case TurnEndedEvent():
                self.state = State[event.outcome.name]
            case _:
                pass

    def _write_call(self, piece: ToolCallDeltaEvent) -> None:
        """Add to a call that the model is writing. The reply replaces it."""
        call = self.calls.setdefault(
            f"{WRITING} {piece.call_index}", CallLine(cut_line(piece.tool), "", status=WRITING)
        )
        if len(call.arguments) < _SHOWN:
            call.arguments = cut_line(call.arguments + piece.arguments_delta, _SHOWN)

    def add_fact(self, fact: f.Fact) -> None:
        self.state = fact.state
        match fact:
            case f.TurnStarted():
                self.limits, self.model = fact.limits, fact.model
                self.agent = str(fact.agent.get("name", ""))
                self.begun_elsewhere = not by_command_line(fact.metadata)
            case f.StepStarted():
                self.step, self.text, self.calls = fact.number, "", {}
            case f.ModelReplied():
                self.text = fact.text
                self.tokens += fact.usage.tokens if fact.usage else 0
                self.calls = {
                    call.id: CallLine(cut_line(call.name), shown_arguments(call), delegated=call.lease is not None)
                    for call in fact.calls
                }
            case f.CallStarted():
                self._change(fact.call, fact.arguments)
                self.calls_run += 1
                self._started_at[fact.call] = fact.elapsed
                if fact.call in self.calls:
                    self.calls[fact.call].started = time.monotonic()
                    self.calls[fact.call].status = self.calls[fact.call].progress = self.calls[fact.call].error = ""
            case f.CallSettled() if fact.call in self.calls:
                self.calls[fact.call].settle(fact, self._started_at.get(fact.call))
            case f.Answered() if fact.interrupt in self._questions and "/" not in fact.interrupt:
                self._change(self._questions[fact.interrupt], fact.arguments)
            case f.CallWaiting() if fact.call in self.calls:
                self._questions |= {interrupt.id: fact.call for interrupt in fact.interrupts}
                self._change(fact.call, fact.changed)
                names = ", ".join(self.answered_as(interrupt.id) for interrupt in fact.interrupts)
                self.calls[fact.call].status = f"waits for {names}"
            case f.Stopping():
                self.text, self.calls = "", {}
            case _:
                pass

    def _change(self, call: str, arguments: Mapping[str, JsonValue] | None) -> None:
        """Show the arguments that a call runs with, where a person or a hook changed them."""
        if arguments is not None and call in self.calls:
            self.calls[call].arguments = _in_line(arguments)

    def answered_as(self, interrupt: str) -> str:
        """Return the id with which people answer an interrupt, in the shown turn."""
        return f"{self.path}/{interrupt}" if self.path else interrupt


def shown_arguments(call: f.CallMade) -> str:
    """Return the arguments of a call in one line of at most `_SHOWN` characters."""
    return cut_line(call.raw, _SHOWN) if call.arguments is None else _in_line(call.arguments)


def _in_line(arguments: Mapping[str, JsonValue]) -> str:
    return cut_line(", ".join(f"{name}={value!r}" for name, value in arguments.items()), _SHOWN)


def file_line(file: Mapping[str, JsonValue]) -> str:
    """Return one line for a picture or a document: its name and type, and its size or its address."""
    fields = without_content(dict(file))
    fields = fields if isinstance(fields, dict) else {}
    size = fields.get("size")
    place = f"{size:,} bytes" if isinstance(size, int) else str(fields.get("url", ""))
    words = (str(fields.get("name", "")), str(fields.get("media_type", "")), place)
    return f"[file: {cut_line(', '.join(word for word in words if word))}]"


def with_status(status: str, result: str) -> str:
    """Return a call's status and result. The result of a rejected call begins with that word already."""
    begins = result == status or result.startswith((f"{status}:", f"{status} by "))
    return result if begins else f"{status}: {result}"


def _first_line(text: str) -> str:
    """Return the first line with words. If that is only an error's type, add the next line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:2]) if lines and lines[0].endswith(":") else "".join(lines[:1])


def _progress(event: ToolProgressEvent) -> str:
    of = "" if event.total is None else f" of {format_number(event.total)}"
    return cut_line(f"{format_number(event.progress)}{of} {event.message}", 60)


def plain_lines(view: TurnView, event: TurnEvent) -> list[str]:
    """Return the lines of an event; none for an event that is not shown."""
    if isinstance(event, TurnPausedEvent):
        return [f"PAUSED       {len(event.interrupts)} to answer"]
    if isinstance(event, TurnEndedEvent) and view.path:
        last = event.text if event.text != view.printed_text else ""
        return [*_indent(last), f"{view.state:<12} {event.reason}"]
    return _fact_lines(view, event) if isinstance(event, FactEvent) else []


def _fact_lines(view: TurnView, event: FactEvent) -> list[str]:  # noqa: PLR0911 (one case a fact: flat)
    match event.fact:
        case f.TurnStarted():
            # The prompt of a sub-agent is an argument of its call, which is shown already.
            turn_start = event.fact
            lines = (
                []
                if view.path
                else [*describe_fork(turn_start), cut_line(turn_start.prompt), *map(file_line, turn_start.files)]
            )
            return [headline(view), *(f"             {line}" for line in lines)]
        case f.StepStarted(number=number, nudge=nudge, stall=stall):
            hint = "  (nudged)" if nudge else "  (hinted)" if stall else ""
            return [f"STREAM       step {number} of {view.limits.cap}{hint}"]
        case f.ModelReplied(text=text, calls=calls):
            view.printed_text = text or view.printed_text
            return [
                *_indent(text),
                *(f"TOOL_EXEC    {name_call(view, call.id)}({shown_arguments(call)})" for call in calls),
            ]
        case f.CallSettled(call=call, result=result, files=files) if call in view.calls:
            call_line = view.calls[call]
            status = f"{call_line.status} {call_line.took}" if call_line.took else call_line.status
            lines = [f"{name_call(view, call)}: {with_status(status, cut_line(result))}", *map(file_line, files)]
            return [f"             {line}" for line in lines]
        case f.CallWaiting(interrupts=interrupts):
            return [
                f"             {interrupt.tool} waits: {view.answered_as(interrupt.id)}" for interrupt in interrupts
            ]
        case f.Stopping(reason=reason):
            return [f"CONCLUDE     {reason}"]
        case _:
            return [f"             {line}" for line in note(event)]


def note(event: FactEvent) -> list[str]:
    """Return the line of a fact that belongs to no step and no call; nothing for any other fact."""
    match event.fact:
        case f.AttemptFailed() as failure:
            return [failed_attempt(failure)]
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


def name_call(view: TurnView, call: str) -> str:
    """Return the tool of a call. A sub-agent's comes with the call's id, which its own lines begin with."""
    call_line = view.calls[call]
    return f"{call} {call_line.name}" if call_line.delegated else call_line.name


def _indent(text: str) -> list[str]:
    return [f"             {line}" for line in text.splitlines()]


def headline(view: TurnView, *, limits: bool = True) -> str:
    calls = "unlimited" if view.limits.call_limit is None else f"{view.limits.call_limit}"
    agent, model = cut_line(view.agent), cut_line(view.model)
    if not limits:
        return f"turn {view.turn}  agent {agent}  model {model}"
    most = f"{count(view.limits.cap, 'step')}, {calls} tool call{'' if calls == '1' else 's'}"
    return f"turn {view.turn}  agent {agent}  model {model}  limits: {most}"


def failed_attempt(fact: f.AttemptFailed) -> str:
    """Return the line about a failed attempt: whether another one follows, and when."""
    wait = f" in {fact.wait:.1f} s" if fact.wait >= _WORTH_SHOWING else ""
    again = f", trying again{wait}" if fact.retry else ""
    return f"attempt failed{again}: {cut_line(fact.message, 400)}"


def describe_fork(turn_start: f.TurnStarted) -> list[str]:
    """Return the line that names the turn this one was copied from; nothing for a turn that is not a copy."""
    if turn_start.forked_from is None:
        return []
    changes = f", with another {', '.join(map(cut_line, turn_start.forked_with))}" if turn_start.forked_with else ""
    return [f"forked from {turn_start.forked_from} at fact {turn_start.forked_at}{changes}"]
