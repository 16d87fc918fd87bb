"""Guardrails: checks that end a turn when they trip (docs/rules.md#guardrails)."""

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Final, Generic, TypeVar, overload

from turnwright._base.words import name_of
from turnwright.context import DepsT_contra, GuardrailBase, MaybeAwaitable, TurnContext
from turnwright.errors import ConfigError, need_function
from turnwright.tools.context import ToolContext
from turnwright.tools.result import ToolResult

from .asking import TIMEOUT, checked_timeout
from .decisions import CallView, Trip

D = TypeVar("D")


class GuardrailKind(StrEnum):
    """The object of a guardrail's check."""

    INPUT = "input"
    OUTPUT = "output"
    TOOL_INPUT = "tool_input"
    TOOL_OUTPUT = "tool_output"


_TAKES: Final = {
    GuardrailKind.INPUT: ("ctx", "prompt"),
    GuardrailKind.OUTPUT: ("ctx", "text"),
    GuardrailKind.TOOL_INPUT: ("ctx", "call"),
    GuardrailKind.TOOL_OUTPUT: ("ctx", "call", "result"),
}


class Guardrail(GuardrailBase[DepsT_contra], Generic[DepsT_contra]):
    """A check that ends the turn as `failed: guardrail` when it returns a `Trip`. The decorators make it.

    `run_in_parallel`: an input guardrail runs beside the first model call, whose pieces and calls wait for it; else
    before it. `hold_stream`: an output guardrail holds the text of a reply back until its verdict. A check that is not
    async runs in a thread. One that raises, or takes longer than `timeout` seconds, ends the turn as
    `failed: engine_error`. A `ModelError` of its own model is retried before. See docs/rules.md#guardrails.
    """

    def __init__(
        self,
        kind: GuardrailKind,
        check: Callable[..., object],
        *,
        run_in_parallel: bool = False,
        hold_stream: bool = True,
        timeout: float | None = TIMEOUT,
    ) -> None:
        if not callable(check):
            raise ConfigError(f"@{kind}_guardrail decorates a function, not {check!r:.80}")
        self.kind = kind
        self.check = check
        self.run_in_parallel = run_in_parallel
        self.hold_stream = hold_stream
        self.timeout = checked_timeout(timeout, f"@{kind}_guardrail")
        #: The name in the journal and in errors: that of the function.
        self.name = name_of(check)
        need_function(f"@{kind}_guardrail: {self.name}", check, *_TAKES[kind])
        self.__doc__ = inspect.getdoc(check)

    def __call__(self, *args: object) -> object:
        """Call the function."""
        return self.check(*args)


ChecksText = Callable[[TurnContext[D], str], MaybeAwaitable[Trip | None]]
ChecksCall = Callable[[ToolContext[D], CallView], MaybeAwaitable[Trip | None]]
ChecksResult = Callable[[ToolContext[D], CallView, ToolResult], MaybeAwaitable[Trip | None]]


@overload
def input_guardrail(check: ChecksText[D], /) -> Guardrail[D]: ...
@overload
def input_guardrail(
    *, run_in_parallel: bool = True, timeout: float | None = TIMEOUT
) -> Callable[[ChecksText[D]], Guardrail[D]]: ...
def input_guardrail(
    check: Callable[..., object] | None = None, /, *, run_in_parallel: bool = True, timeout: float | None = TIMEOUT
) -> object:
    """Make a guardrail that checks the prompt of a turn, beside its first model call or before it.

    It also checks all text that a person adds, before that enters: messages, answers, imported history.
    It has `timeout` seconds; None is no limit.
    """
    make = partial(Guardrail[object], GuardrailKind.INPUT, run_in_parallel=run_in_parallel, timeout=timeout)
    return make if check is None else make(check)


@overload
def output_guardrail(check: ChecksText[D], /) -> Guardrail[D]: ...
@overload
def output_guardrail(
    *, hold_stream: bool = True, timeout: float | None = TIMEOUT
) -> Callable[[ChecksText[D]], Guardrail[D]]: ...
def output_guardrail(
    check: Callable[..., object] | None = None, /, *, hold_stream: bool = True, timeout: float | None = TIMEOUT
) -> object:
    """Make a guardrail that checks the text of each reply, and a typed answer as JSON.

    Followers receive the text after the verdict. With `hold_stream=False` it streams at once, and a trip publishes
    `ResponseWithdrawnEvent`: remove what was shown. The check has `timeout` seconds; None is no limit.
    """
    make = partial(Guardrail[object], GuardrailKind.OUTPUT, hold_stream=hold_stream, timeout=timeout)
    return make if check is None else make(check)


@overload
def tool_input_guardrail(check: ChecksCall[D], /) -> Guardrail[D]: ...
@overload
def tool_input_guardrail(*, timeout: float | None = TIMEOUT) -> Callable[[ChecksCall[D]], Guardrail[D]]: ...
def tool_input_guardrail(check: Callable[..., object] | None = None, /, *, timeout: float | None = TIMEOUT) -> object:
    """Make a guardrail that checks each tool call, with its final arguments, before it starts.

    It has `timeout` seconds; None is no limit.
    """
    make = partial(Guardrail[object], GuardrailKind.TOOL_INPUT, timeout=timeout)
    return make if check is None else make(check)


@overload
def tool_output_guardrail(check: ChecksResult[D], /) -> Guardrail[D]: ...
@overload
def tool_output_guardrail(*, timeout: float | None = TIMEOUT) -> Callable[[ChecksResult[D]], Guardrail[D]]: ...
def tool_output_guardrail(check: Callable[..., object] | None = None, /, *, timeout: float | None = TIMEOUT) -> object:
    """Make a guardrail that checks the result of each tool call before anybody reads it.

    It has `timeout` seconds; None is no limit.
    """
    make = partial(Guardrail[object], GuardrailKind.TOOL_OUTPUT, timeout=timeout)
    return make if check is None else make(check)
