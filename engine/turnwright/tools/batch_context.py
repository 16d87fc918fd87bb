"""The turn as the calls of a batch need it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from pydantic import JsonValue

from turnwright.context import TurnContext
from turnwright_states import Call, CallSettledInput, CallWaitingInput
from turnwright_states.limits import TOOL_TIMEOUT

from .context import AbortSignal, Ask, Callback
from .result import ToolResult
from .tool import Tool

#: Receives the progress of a call: the amount, the total, and a message.
Progress = Callable[[Call, float, float | None, str], None]
#: Drives the sub-agent of a started call until it has ended or waits for a person.
Delegate = Callable[[Call], Awaitable[CallSettledInput | CallWaitingInput]]
#: Receives the error that a tool raised.
Failed = Callable[[BaseException], None]
#: Runs a started call and returns its outcome.
Execution = Callable[[Failed | None], Awaitable[CallSettledInput | CallWaitingInput]]
#: Finds the approval of an equal call, by its tool and its arguments.
CoveringApproval = Callable[[str, Mapping[str, JsonValue]], Awaitable[str]]
#: Wraps the execution of a call.
Execute = Callable[[Call, Tool, Execution], Awaitable[CallSettledInput | CallWaitingInput]]
#: The arguments of a call, as `Tool.parse` returns them.
Values = Mapping[str, object]


@dataclass(slots=True)
class BeforeCall:
    """The hooks' decision about a call that is about to start: its final arguments, and its effect.

    `values` are changed arguments as `Tool.parse` returns them. `rejected` is the result of a call that may not run,
    and `result` the one of a call that need not. `ask` is a question to a person.
    """

    arguments: Mapping[str, JsonValue]
    changed: bool = False
    values: Values | None = None
    ask: Ask | None = None
    rejected: str | None = None
    result: ToolResult | None = None
    decisions: list[Mapping[str, JsonValue]] = field(default_factory=list)


class CallJudge(Protocol):
    """Asks the hooks and guardrails of the app about the calls of a batch."""

    @property
    def judges_before(self) -> bool:
        """Whether something is asked before a call starts."""
        ...

    @property
    def judges_after(self) -> bool:
        """Whether something is asked after a call ran."""
        ...

    async def before(self, call: Call, tool: Tool, batch: "BatchContext") -> BeforeCall:
        """Return what was decided about a call before it starts. Raises `ToolError`, which refuses the call."""
        ...

    async def after(self, call: Call, batch: "BatchContext", event: CallSettledInput) -> CallSettledInput:
        """Return the result of a call that ran, as the hooks leave it."""
        ...


#: Shared by all batches without hooks.
NOTHING_DECIDED: Final[dict[str, BeforeCall]] = {}


@dataclass(slots=True)
class BatchContext:
    """The turn of a batch, as its calls need it.

    `checked_values` has the arguments of calls that were validated when the reply arrived, just before. They are not
    validated again. Each is used once, because a tool may change its arguments.
    """

    turn: str
    tools: Mapping[str, Tool]
    grants: tuple[str, ...]
    #: Seconds of driving so far.
    elapsed: Callable[[], float]
    #: Seconds since the Unix epoch.
    now: Callable[[], float]
    #: Whether the turn is being stopped, so that no further call may start.
    stopping: Callable[[], bool]
    #: Set when the turn is being stopped, for the running calls.
    abort: AbortSignal
    progress: Progress
    delegate: Delegate
    #: Wraps the execution of each call, if given.
    execute: Execute | None
    checked_values: dict[str, Values]
    #: Seconds that a canceled call may go on before it is abandoned.
    cancel_grace: float
    #: Asks the hooks and guardrails of the app about each call, if there are any.
    judge: CallJudge | None
    #: The decisions about calls that have not started, by call id.
    decisions: dict[str, BeforeCall]
    #: Makes the context of the turn as it is now, for the tools that take one.
    context: Callable[[], TurnContext]
    #: Seconds of a call of a tool that sets no timeout of its own.
    tool_timeout: float | None = TOOL_TIMEOUT
    #: Whether the app must authorize each answer to a question of these calls.
    restricted: bool = False
    #: Makes the addresses of callbacks, if the engine has links.
    callback: Callback | None = None
    #: Returns the approval that covers equal calls to a call with these arguments: empty without one.
    covering_approval: CoveringApproval | None = None
    #: Writes the reply, if it still waits for the starts of its calls.
    write: Callable[[], Awaitable[None]] | None = None
