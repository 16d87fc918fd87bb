"""Hooks: functions of the app that change the course of a turn by the values that they return (docs/rules.md#hooks)."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final, Generic, TypeVar, overload

from turnwright._base.words import name_of
from turnwright.context import DepsT_contra, HooksBase, MaybeAwaitable, TurnContext
from turnwright.errors import ConfigError, need_function
from turnwright.journal.result import TurnResult
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.tools.context import ToolContext
from turnwright.tools.result import ToolResult

from .asking import TIMEOUT, checked_timeout
from .decisions import CallView, ChangeRequest, ReturnResult, ToolDecision

D = TypeVar("D")

#: The names of the hooks, in the order in which a turn reaches them.
HOOKS: Final = ("on_start", "before_model", "after_model", "before_tool", "after_tool", "on_end")


class Hooks(HooksBase[DepsT_contra], Generic[DepsT_contra]):
    """Hooks of an engine or an agent: subclass it, and override the methods that you need. They may be sync or async.

    Each is asked once: what it decides is journaled with what follows, and a resumed turn does not ask again. A method
    that is not async runs in a thread. One that raises, except for `Retry` in `after_model`, or takes longer than
    `timeout` seconds ends the turn as `failed: engine_error`, and is named there. `tools` are the names of the tools
    that `before_tool` and `after_tool` are about; None means all. See docs/rules.md#hooks.
    """

    tools: Sequence[str] | None = None
    timeout: float | None = TIMEOUT

    @property
    def name(self) -> str:
        """The name in the journal and in errors: that of the class."""
        return type(self).__name__

    async def on_start(self, ctx: TurnContext[DepsT_contra]) -> None:
        """Run before the first model call of a turn; after a crash perhaps a second time."""

    async def on_end(self, ctx: TurnContext[DepsT_contra], result: TurnResult) -> None:
        """Run after the turn has ended, if its driver is still there. An error is logged."""

    async def before_model(self, ctx: TurnContext[DepsT_contra], request: ModelRequest) -> ChangeRequest | None:
        """Change the requests of a step, or return None."""

    async def after_model(self, ctx: TurnContext[DepsT_contra], response: ModelResponse) -> None:
        """Raise `Retry("why")` to refuse the reply, before anything of it runs."""

    async def before_tool(self, ctx: ToolContext[DepsT_contra], call: CallView) -> ToolDecision | None:
        """Decide about a call before it starts, or return None."""

    async def after_tool(
        self, ctx: ToolContext[DepsT_contra], call: CallView, result: ToolResult
    ) -> ReturnResult | None:
        """Replace the result of a call that ran, or return None."""


#: The arguments of each hook.
TAKES: Final = {hook: tuple(inspect.signature(getattr(Hooks, hook)).parameters)[1:] for hook in HOOKS}


class FunctionHooks(Hooks[DepsT_contra]):
    """The hooks of one function, as a decorator makes them. Calling them calls the function directly."""

    #: The hook that the function is.
    on: ClassVar[str]

    def __init__(
        self, function: Callable[..., object], tools: Sequence[str] | None = None, timeout: float | None = TIMEOUT
    ) -> None:
        if not callable(function):
            raise ConfigError(f"@{self.on} decorates a function, not {function!r:.80}")
        if isinstance(tools, str):
            raise ConfigError(f"@{self.on}: tools must be a list of tool names: [{tools!r}]")
        self._function = function
        need_function(f"@{self.on}: {self.name}", function, *TAKES[self.on])
        self.tools = None if tools is None else tuple(tools)
        self.timeout = checked_timeout(timeout, f"@{self.on}")
        self.__doc__ = inspect.getdoc(function)

    @property
    def name(self) -> str:
        """The function's name."""
        return name_of(self._function)

    def __call__(self, *args: object) -> object:
        """Call the function."""
        return self._function(*args)


def _kind(hook: str) -> type[FunctionHooks[object]]:
    """Return the class of functions that are one hook. Its method is the function itself."""
    return type(hook, (FunctionHooks,), {"on": hook, hook: property(lambda self: self._function)})


_KINDS: Final = {hook: _kind(hook) for hook in HOOKS}


def overrides(hooks: Hooks[DepsT_contra], hook: str) -> bool:
    """Return whether these hooks have this one."""
    return getattr(type(hooks), hook) is not getattr(Hooks, hook)


OnStart = Callable[[TurnContext[D]], MaybeAwaitable[None]]
OnEnd = Callable[[TurnContext[D], TurnResult], MaybeAwaitable[None]]
BeforeModel = Callable[[TurnContext[D], ModelRequest], MaybeAwaitable[ChangeRequest | None]]
AfterModel = Callable[[TurnContext[D], ModelResponse], MaybeAwaitable[None]]
BeforeTool = Callable[[ToolContext[D], CallView], MaybeAwaitable[ToolDecision | None]]
AfterTool = Callable[[ToolContext[D], CallView, ToolResult], MaybeAwaitable[ReturnResult | None]]


def _make_hook(
    on: str, hook: Callable[..., object] | None, timeout: float | None, tools: Sequence[str] | None = None
) -> object:
    """Return the hook, or the decorator that makes it."""
    make = partial(_KINDS[on], tools=tools, timeout=timeout)
    return make if hook is None else make(hook)


@overload
def on_start(hook: OnStart[D], /) -> Hooks[D]: ...
@overload
def on_start(*, timeout: float | None = TIMEOUT) -> Callable[[OnStart[D]], Hooks[D]]: ...
def on_start(hook: Callable[..., object] | None = None, /, *, timeout: float | None = TIMEOUT) -> object:
    """Make a hook that runs before the first model call of a turn, within `timeout` seconds; None is no limit."""
    return _make_hook("on_start", hook, timeout)


@overload
def on_end(hook: OnEnd[D], /) -> Hooks[D]: ...
@overload
def on_end(*, timeout: float | None = TIMEOUT) -> Callable[[OnEnd[D]], Hooks[D]]: ...
def on_end(hook: Callable[..., object] | None = None, /, *, timeout: float | None = TIMEOUT) -> object:
    """Make a hook that runs after a turn has ended. Use events for what must happen: a crash can skip it.

    It has `timeout` seconds; None is no limit. Beyond them it is canceled, and a warning is logged.
    """
    return _make_hook("on_end", hook, timeout)


@overload
def before_model(hook: BeforeModel[D], /) -> Hooks[D]: ...
@overload
def before_model(*, timeout: float | None = TIMEOUT) -> Callable[[BeforeModel[D]], Hooks[D]]: ...
def before_model(hook: Callable[..., object] | None = None, /, *, timeout: float | None = TIMEOUT) -> object:
    """Make a hook that may change the requests of each step, within `timeout` seconds: return a `ChangeRequest`."""
    return _make_hook("before_model", hook, timeout)


@overload
def after_model(hook: AfterModel[D], /) -> Hooks[D]: ...
@overload
def after_model(*, timeout: float | None = TIMEOUT) -> Callable[[AfterModel[D]], Hooks[D]]: ...
def after_model(hook: Callable[..., object] | None = None, /, *, timeout: float | None = TIMEOUT) -> object:
    """Make a hook that may refuse a reply before anything of it runs: raise `Retry("why")` within `timeout` seconds."""
    return _make_hook("after_model", hook, timeout)


@overload
def before_tool(hook: BeforeTool[D], /) -> Hooks[D]: ...
@overload
def before_tool(
    *, tools: Sequence[str] | None = None, timeout: float | None = TIMEOUT
) -> Callable[[BeforeTool[D]], Hooks[D]]: ...
def before_tool(
    hook: Callable[..., object] | None = None,
    /,
    *,
    tools: Sequence[str] | None = None,
    timeout: float | None = TIMEOUT,
) -> object:
    """Make a hook that decides about each call, or each call of these tools, before it starts.

    Return `ChangeArguments`, `Reject`, `RequireApproval`, `ReturnResult`, or None to let the call run. It has `timeout`
    seconds for each call; None is no limit.
    """
    return _make_hook("before_tool", hook, timeout, tools)


@overload
def after_tool(hook: AfterTool[D], /) -> Hooks[D]: ...
@overload
def after_tool(
    *, tools: Sequence[str] | None = None, timeout: float | None = TIMEOUT
) -> Callable[[AfterTool[D]], Hooks[D]]: ...
def after_tool(
    hook: Callable[..., object] | None = None,
    /,
    *,
    tools: Sequence[str] | None = None,
    timeout: float | None = TIMEOUT,
) -> object:
    """Make a hook that may replace the result of each call, or each call of these tools: return `ReturnResult`.

    It has `timeout` seconds for each call; None is no limit.
    """
    return _make_hook("after_tool", hook, timeout, tools)
