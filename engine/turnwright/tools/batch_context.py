"""The context of a batch of calls: what the calls need to know of their turn."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from turnwright_states import Call, CallSettledInput, CallWaitingInput

from .context import AbortSignal
from .tool import Tool

#: Hears how far a call is: its progress, of how much, and a message.
Progress = Callable[[Call, float, float | None, str], None]
#: Drives the sub-agent of a started call, until it has ended or waits for a person.
Delegate = Callable[[Call], Awaitable[CallSettledInput | CallWaitingInput]]
#: Told the error that a tool raised.
Failed = Callable[[BaseException], None]
#: Does what a started call asks for, and says what came of it.
Execution = Callable[[Failed | None], Awaitable[CallSettledInput | CallWaitingInput]]
#: Executes a call of a tool around its execution.
Execute = Callable[[Call, Tool, Execution], Awaitable[CallSettledInput | CallWaitingInput]]


def nobody_listens(call: Call, progress: float, total: float | None, message: str) -> None:
    """Where nobody listens to a turn, the progress of its calls is told to nobody."""


async def nobody_delegates(call: Call) -> CallSettledInput | CallWaitingInput:
    """Where nobody drives turns, no sub-agent can run."""
    raise TypeError(f"{call.name} is a sub-agent, and nobody here drives one")


#: What `Tool.parse` made of the arguments of a call.
Values = Mapping[str, object]


@dataclass(slots=True)
class BatchContext:
    """The turn of a batch, as its calls need it.

    `checked` are the arguments, by call, that were checked when the reply arrived, which is just now: they are not
    checked again. Each is used once, for a tool may change what it is given.
    """

    turn: str
    tools: Mapping[str, Tool]
    grants: tuple[str, ...]
    #: Seconds of driving so far.
    elapsed: Callable[[], float]
    #: Seconds since the epoch of Unix.
    now: Callable[[], float] = time.time
    #: Whether the turn is about to be stopped, so that no further call may start.
    stopping: Callable[[], bool] = lambda: False
    #: Set when the turn is about to be stopped, for the calls that run.
    abort: AbortSignal = field(default_factory=AbortSignal)
    progress: Progress = nobody_listens
    delegate: Delegate = nobody_delegates
    #: What executes a started call around what its tool does, if anything does.
    execute: Execute | None = None
    checked: dict[str, Values] = field(default_factory=dict)
    #: Seconds that a call may go on after it was cancelled; then it is abandoned.
    grace: float = 1.0
