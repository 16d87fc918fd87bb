"""The turn as the calls of a batch need it."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from turnwright.context import TurnContext
from turnwright_states import Call, CallSettledInput, CallWaitingInput

from .context import AbortSignal
from .tool import Tool

#: Receives the progress of a call: the amount, the total, and a message.
Progress = Callable[[Call, float, float | None, str], None]
#: Drives the sub-agent of a started call until it has ended or waits for a person.
Delegate = Callable[[Call], Awaitable[CallSettledInput | CallWaitingInput]]
#: Receives the error that a tool raised.
Failed = Callable[[BaseException], None]
#: Runs a started call and returns its outcome.
Execution = Callable[[Failed | None], Awaitable[CallSettledInput | CallWaitingInput]]
#: Wraps the execution of a call.
Execute = Callable[[Call, Tool, Execution], Awaitable[CallSettledInput | CallWaitingInput]]


def discard_progress(call: Call, progress: float, total: float | None, message: str) -> None:
    """Ignore the progress of a call, for a turn without listeners."""


async def refuse_subagent(call: Call) -> CallSettledInput | CallWaitingInput:
    """Raise `TypeError`, for a batch without a driver of sub-agents."""
    raise TypeError(f"{call.name} is a sub-agent, and this batch cannot drive one")


#: The arguments of a call, as `Tool.parse` returns them.
Values = Mapping[str, object]


@dataclass(slots=True)
class BatchContext:
    """The turn of a batch, as its calls need it.

    `checked` has the arguments of calls that were validated when the reply arrived, just before. They are not validated
    again. Each is used once, because a tool may change its arguments.
    """

    turn: str
    tools: Mapping[str, Tool]
    grants: tuple[str, ...]
    #: Seconds of driving so far.
    elapsed: Callable[[], float]
    #: Seconds since the Unix epoch.
    now: Callable[[], float] = time.time
    #: Whether the turn is being stopped, so that no further call may start.
    stopping: Callable[[], bool] = lambda: False
    #: Set when the turn is being stopped, for the running calls.
    abort: AbortSignal = field(default_factory=AbortSignal)
    progress: Progress = discard_progress
    delegate: Delegate = refuse_subagent
    #: Wraps the execution of each call, if given.
    execute: Execute | None = None
    checked: dict[str, Values] = field(default_factory=dict)
    #: Seconds that a canceled call may go on before it is abandoned.
    cancel_grace: float = 1.0
    #: Makes the context of the turn as it is now, for the tools that take one.
    context: Callable[[], TurnContext] | None = None
