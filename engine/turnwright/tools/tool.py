"""A tool: what a model may call, what it may ask of a person first, and how one call of it runs."""

import copy
import inspect
import logging
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, TypedDict, Unpack, overload

import anyio
import anyio.to_thread
from pydantic import JsonValue
from typing_extensions import TypeVar

from turnwright.errors import ConfigError, known_options
from turnwright.message import ToolSpec
from turnwright_states import Decision, InterruptKind
from turnwright_states.payload import frozen, thawed

from .context import Ask, NeedsPersonError, ToolContext
from .docstring import parse_docstring
from .errors import ToolError, ToolFailedError, ToolInputError, ToolTimeoutError, describe, found, holds
from .loop_handle import in_event_loop
from .rate_limiter import Pace, Rate
from .result import NotJsonError, ToolResult, to_result
from .schema import Arguments
from .text import clean
from .timing import limited

if TYPE_CHECKING:
    from .approval import ApprovalCheck

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
#: The function of a tool. Any by default, so that type checkers take a list of tools of any functions for `list[Tool]`.
F_co = TypeVar("F_co", covariant=True, default=Any)

#: What happens to a call that had started when the process died (DESIGN 4.13).
OnCrash = Literal["rerun", "unknown", "ask"]
#: Whether a person is asked before a call: always, never, or where a function of the call's arguments says so.
Approval = bool | Callable[..., bool | Awaitable[bool]]
LoopKey = Callable[[Mapping[str, JsonValue]], str]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LOG: Final = logging.getLogger(__name__)


class ToolOptions(TypedDict, total=False):
    """What `@tool` takes beside the name and the description: see `Tool`."""

    needs_approval: Approval
    timeout: float | None
    idempotent: bool
    on_crash: OnCrash | None
    loop_key: LoopKey | None
    ignore_in_loop_detection: bool
    expires_in: float | None
    read_only: bool | None
    sequential: bool
    concurrency: int | None
    rate: Rate | None


class Tool(ABC, Generic[F_co]):
    """What a model may call. `@tool` makes one of a function; subclass this for one that is no function.

    `parameters` is a JSON Schema of type object. `timeout` is in seconds, None is for ever. `idempotent` says that
    running a call twice does what running it once does; a `read_only` tool is idempotent. `on_crash` says what to do
    with a call that had started when the process died. Its default is `rerun` for an idempotent or read-only tool, and
    `unknown` for any other. The doom-loop detector does not see an `ignore_in_loop_detection` tool (one that polls),
    and compares `loop_key(arguments)` where given. With `needs_approval` a person is asked before a call runs: always,
    or where a function returns True that is called with the arguments of the call by keyword (`ApprovalCheck`).
    `expires_in` is the time to answer in seconds. `read_only` says that no call changes anything, or (False) that a
    call may; None that it is not known. An agent's tool-call limit is chosen by it (`ToolCallLimits`).

    The calls of a step run side by side, but a `sequential` one only when those before it are settled or wait for a
    person, and those after it only when it is or does. At most `concurrency` calls of the tool run at once in an event
    loop, over all its turns; `rate` bounds how often one starts in this process. A call that has to wait for either
    has not started: its time-out does not run yet, and the other calls of its step go on.

    Raises `ConfigError` for a name that providers refuse, a time that is not above 0, a `concurrency` below 1, an
    `needs_approval` that cannot be called with the tool's arguments, and `rerun` for a tool that is neither idempotent
    nor read-only. Source: DESIGN 4.5, 4.6, 4.12, 4.13.
    """

    #: Whether a call drives a turn of its own, with a share of what is left to the calling turn (DESIGN 4.14).
    delegates = False
    #: Whether `execute` looks at what it is told of its call. It is not made where nobody looks.
    takes_context = True

    if TYPE_CHECKING:
        #: Calling the tool of a function calls the function. Another tool cannot be called.
        __call__: F_co

    @known_options("tool")
    def __init__(
        self,
        *,
        name: str,
        description: str,
        parameters: Mapping[str, JsonValue],
        needs_approval: Approval = False,
        timeout: float | None = None,
        idempotent: bool = False,
        on_crash: OnCrash | None = None,
        loop_key: LoopKey | None = None,
        ignore_in_loop_detection: bool = False,
        expires_in: float | None = None,
        read_only: bool | None = None,
        sequential: bool = False,
        concurrency: int | None = None,
        rate: Rate | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"tool {name!r}: a name has 1 to 64 of a-z, A-Z, 0-9, '_' and '-': give one with @tool(name=...)"
            )
        if on_crash not in ("rerun", "unknown", "ask", None):
            raise ConfigError(f"tool {name}: on_crash is 'rerun', 'unknown' or 'ask', not {on_crash!r}")
        # What only reads does the same when it is done twice.
        idempotent = idempotent or read_only is True
        if on_crash == "rerun" and not idempotent:
            raise ConfigError(
                f"tool {name}: on_crash='rerun' needs idempotent=True or read_only=True, for a call may then run twice:"
                " say so if that does no harm, else use 'unknown' or 'ask'"
            )
        if not (isinstance(needs_approval, bool) or callable(needs_approval)):
            raise ConfigError(
                f"tool {name}: approval is True, False or a function of the arguments, not {needs_approval!r}"
            )
        if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
            raise ConfigError(f"tool {name}: concurrency is a whole number of calls, at least 1, not {concurrency!r}")
        if not (rate is None or isinstance(rate, Rate)):
            raise ConfigError(f"tool {name}: rate is a Rate(calls=..., per=...), not {rate!r}")
        self.name = name
        self.description = description
        self.parameters = frozen(parameters)
        self.timeout = _seconds(name, "timeout", timeout)
        self.idempotent = idempotent
        self.on_crash: OnCrash = on_crash or ("rerun" if idempotent else "unknown")
        self.ignore_in_loop_detection = ignore_in_loop_detection
        self.expires_in = _seconds(name, "expires_in", expires_in)
        self.read_only = read_only
        self.sequential = sequential
        self.concurrency = concurrency
        self.rate = rate
        #: Where its calls wait for each other; None for a tool whose calls need not.
        self.pace = None if concurrency is None and rate is None else Pace(concurrency, rate)
        self.spec = ToolSpec(name=name, description=description, parameters=self.parameters)
        self._always_asks = needs_approval is True
        self._check: ApprovalCheck | None = None
        if not isinstance(needs_approval, bool):
            from . import approval as checks  # noqa: PLC0415 (few tools have a function for it)

            self._check = checks.ApprovalCheck(name, needs_approval, self._offered(), self.timeout)
        self._loop_key = loop_key
        #: Whether no call of the tool wants a person before it runs.
        self.asks_nobody = (
            needs_approval is False and type(self).asks is Tool.asks and type(self).asks_first is Tool.asks_first
        )
        #: Whether code of somebody else's says so, which may take its time, and ignore its cancellation.
        self.asks_by_code = self._check is not None or type(self).asks_first is not Tool.asks_first
        #: Whether `run` is nothing but a check and `run_checked`.
        self.runs_plainly = type(self).run is Tool.run

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Check the arguments of a call and give what `execute` takes; raises `ToolInputError`.

        Here they are taken as they are, for a tool whose arguments are checked elsewhere.
        """
        return {**thawed(arguments)}

    def plain(self, arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Give the arguments that `loop_key` is asked about, which it may change; raises `ToolInputError`."""
        return copy.deepcopy(dict(arguments))

    def complete(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Give the arguments that `needs_approval` is asked about: what `execute` will have, and none of it shared.

        Raises `ToolInputError`.
        """
        return copy.deepcopy(self.parse(arguments))

    def loop_key(self, arguments: Mapping[str, JsonValue]) -> str | None:
        """Give what the doom-loop detector compares instead of the arguments; None means the arguments.

        It is None too where the arguments do not fit, or where the tool's own function raises, which is logged.
        """
        if self._loop_key is None:
            return None
        try:
            return clean(str(self._loop_key(self.plain(arguments))))
        except ToolInputError:
            return None
        except BaseException as error:
            if holds(error, KeyboardInterrupt):  # the detector can do without an embedder's function
                raise
            message, about = "loop_key of tool %s raised; its arguments are compared instead", {"tool": self.name}
            _LOG.warning(message, self.name, exc_info=True, extra=about)
            return None

    def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
        """Say what this call wants of a person before it runs, or None; raises `ToolInputError`.

        None as well when `context` already holds the answer. A rejected call is not asked about again: the batch
        settles it. A function given as `needs_approval` is asked after this (`asks_first`).
        """
        if not self._always_asks or _is_granted(context):
            return None
        self.plain(arguments)
        return Ask(kind=InterruptKind.APPROVAL, expires_in=self.expires_in)

    async def asks_first(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
        """Say all that this call wants of a person before it runs: what `asks` says, and the function `needs_approval`.

        Raises `ToolInputError`, and `ToolError` where that function fails: the call is refused then.
        An approval function may ignore its cancellation: see `tool_work.Inquiry`.
        """
        ask = self.asks(arguments, context)
        if ask is not None or self._check is None or _is_granted(context):
            return ask
        if not await self._check(self.complete(arguments), context):
            return None
        return Ask(kind=InterruptKind.APPROVAL, expires_in=self.expires_in)

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        """Check the arguments, run the call within the tool's time, and give its result, of any size.

        Raises `ToolInputError`, and what `run_checked` raises.
        """
        return await self.run_checked(self.parse(arguments), context)

    async def run_checked(self, values: Mapping[str, object], context: ToolContext) -> ToolResult:
        """Run a call whose arguments were checked: `values` is what `parse` gave.

        Raises `ToolTimeoutError`, or `ToolFailedError` for whatever the tool itself raises, also for `SystemExit` and
        others that are no `Exception`: a tool must not end the process, nor the turn; and for data that is not JSON.
        Raises `NeedsPersonError` where the tool asks a person, also from within a group. Ctrl-C passes through, for it
        is a person who wants all of this to stop; so does a cancellation, for whoever runs the call knows whether
        somebody asked for it. `context.abort_signal` is set then, and when the time is over.
        """
        with limited(self.timeout):
            try:
                return to_result(await self.execute(values, context))
            except (ToolError, NeedsPersonError):
                raise
            except NotJsonError as error:
                raise ToolFailedError(f"{self.name}: {error}") from None
            except BaseException as error:
                if holds(error, KeyboardInterrupt) or (isinstance(error, GeneratorExit) and not in_event_loop()):
                    raise
                if holds(error, anyio.get_cancelled_exc_class()):
                    context.abort_signal.set()
                    raise
                asked = found(error, NeedsPersonError)
                if asked is not None:
                    raise NeedsPersonError(asked.ask) from error
                raise ToolFailedError(describe(error)) from error
        context.abort_signal.set()
        raise ToolTimeoutError(f"{self.name} did not finish within {self.timeout:g} s; a part of its work may be done")

    @abstractmethod
    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        """Do the work of one call, with what `parse` gave. What is returned becomes a `ToolResult`, mostly text."""

    def _offered(self) -> Mapping[str, bool]:
        """The names of the arguments, and whether each call has a value for it."""
        properties, required = self.parameters.get("properties"), self.parameters.get("required")
        names = properties if isinstance(properties, Mapping) else {}
        return {name: isinstance(required, list) and name in required for name in names}


class FunctionTool(Tool[Callable[P, R_co]], Generic[P, R_co]):
    """A function that a model may call: what `@tool` makes. Calling it calls the function, unchanged."""

    def __init__(
        self,
        function: Callable[P, R_co],
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        if not inspect.isroutine(function):
            raise ConfigError(f"@tool takes a function or a bound method, not {function!r}: wrap it in a function")
        label = getattr(function, "__qualname__", repr(function))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"tool {label}: it is a generator, but a call has one result: return it")
        docstring = parse_docstring(function.__doc__)
        self._function: Callable[..., object] = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._arguments = Arguments(function, docstring.arguments)
        # Before our own attributes are set: the function's may have the same names.
        update_wrapper(self, function, updated=())
        super().__init__(
            name=function.__name__ if name is None else name,
            description=docstring.description if description is None else description,
            parameters=self._arguments.schema,
            **options,
        )
        if type(self).execute is FunctionTool.execute:
            self.takes_context = bool(self._arguments.contexts)

    if not TYPE_CHECKING:

        def __call__(self, *args, **kwargs):  # noqa: ANN002, ANN003, ANN204 (`Tool` says to type checkers what it takes)
            """Call the function, unchanged: no check, no time-out, and nothing made of what it returns."""
            return self._function(*args, **kwargs)

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Check the arguments against the function's annotations; raises `ToolInputError`."""
        return self._arguments.parse(arguments)

    def complete(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Give every argument that the function will have, defaults among them; raises `ToolInputError`."""
        return self._arguments.complete(arguments)

    def plain(self, arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Give the arguments after coercion, with the defaults, as JSON values; raises `ToolInputError`."""
        return self._arguments.plain(arguments)

    def _offered(self) -> Mapping[str, bool]:
        return dict.fromkeys(super()._offered(), True)  # `complete` fills in the defaults

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        """Call the function; one that is not async runs in a thread, which a time-out leaves behind."""
        if self._arguments.contexts:
            values = {**values, **dict.fromkeys(self._arguments.contexts, context)}
        if self._is_async:
            return await self._function(**values)  # type: ignore[misc]  # what an async function returns
        call = partial(_caught, self._function, values)
        result, error = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        if error is not None:
            raise error
        return await result if inspect.isawaitable(result) else result


@overload
def tool(function: Callable[P, R_co], /) -> Tool[Callable[P, R_co]]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R_co]], Tool[Callable[P, R_co]]]: ...
def tool(
    function: Callable[P, R_co] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Tool[Callable[P, R_co]] | Callable[[Callable[P, R_co]], Tool[Callable[P, R_co]]]:
    """Make a tool of a function, async or not: bare as `@tool`, or with keywords.

    The model sees the function's name, the docstring before its first section, and a JSON Schema made of the
    annotations; arguments are described by `Annotated[..., Field(description=...)]`, or else by the docstring.
    A parameter without annotation takes any JSON value. The options are those of `Tool`.

    A function given as `needs_approval` is called with the arguments of the call by keyword, as the tool's function
    gets them, defaults filled in: `needs_approval=lambda amount: amount > 100`. It takes those that it has parameters
    for, may be async, and returns True (ask a person) or False. If it raises or returns anything else, the call is
    refused. One that is not async must be quick: it is called in the event loop. `loop_key` is called with one mapping:
    the arguments as JSON values after coercion, defaults filled in.

    Raises `ConfigError` for what `Tool` refuses, and for a function that cannot be called by names or has an
    annotation without a JSON Schema; the message names the function and the parameter. Source: DESIGN 8.
    """

    def make(function: Callable[P, R_co]) -> Tool[Callable[P, R_co]]:
        return FunctionTool(function, name=name, description=description, **options)

    return make if function is None else make(function)


def _caught(function: Callable[..., object], values: Mapping[str, object]) -> tuple[object, BaseException | None]:
    """Call a function, and return what it returns or raises: a future that is to raise `GeneratorExit` never does."""
    try:
        return function(**values), None
    except BaseException as error:  # noqa: BLE001 (raised by whoever waits)
        return None, error


def _seconds(name: str, field: str, value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ConfigError(f"tool {name}: {field} is a number of seconds above 0, or None, not {value!r}")
    return float(value)


def _is_granted(context: ToolContext) -> bool:
    return any(answer.decision == Decision.APPROVE for answer in context.answers)
