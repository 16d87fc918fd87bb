"""A tool: what a model may call, what it may ask of a person first, and how one call of it runs.

The errors of this room become the results of calls; the model reads their messages.

    TurnwrightError
    └── ToolError           the call went wrong; the batch answers it with the message
        ├── ToolInputError  the model's: the arguments do not fit
        ├── ToolTimeout     the tool took longer than it may
        └── ToolFailed      the tool's own: it raised
"""

import inspect
import logging
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Final, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

import anyio
import anyio.to_thread
from pydantic import JsonValue

from turnwright.errors import ConfigError, TurnwrightError
from turnwright.model.protocol import ToolSpec
from turnwright_states import Decision, InterruptKind

from .context import Ask, NeedsPerson, ToolContext
from .docstring import parse_docstring
from .pace import Pace, Rate
from .result import NotJson, ToolResult, to_result
from .schema import Arguments, InvalidArguments
from .text import clean, shorten
from .timing import limited

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
E = TypeVar("E", bound=BaseException)

#: What happens to a call that had started when the process died (DESIGN 4.13).
OnCrash = Literal["rerun", "unknown", "ask"]
Approval = bool | Callable[[Mapping[str, JsonValue]], bool]
LoopKey = Callable[[Mapping[str, JsonValue]], str]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ERROR_LIMIT: Final = 2_000
_LOG: Final = logging.getLogger(__name__)


class ToolOptions(TypedDict, total=False):
    """What `@tool` takes beside the name and the description: see `Tool`."""

    approval: Approval
    timeout: float | None
    idempotent: bool
    on_crash: OnCrash | None
    loop_key: LoopKey | None
    exempt: bool
    expires_in: float | None
    read_only: bool | None
    sequential: bool
    concurrency: int | None
    rate: Rate | None


class ToolError(TurnwrightError):
    """A call went wrong in a way that the model is told of. A tool may raise one to choose the words itself."""

    def __init__(self, message: str) -> None:
        super().__init__(clean(message))


class ToolInputError(ToolError):
    """The arguments do not fit. The message says which, what is wrong with it, and what is expected."""


class ToolTimeout(ToolError):  # noqa: N818 (reads as what happened)
    """The tool did not finish within its time."""


class ToolFailed(ToolError):  # noqa: N818 (reads as what happened)
    """The tool raised. The message is `TypeName: text`, shortened; the error itself is the cause."""


class Tool(ABC):
    """What a model may call. `@tool` makes one of a function; subclass this for one that is no function.

    `parameters` is a JSON Schema of type object. `timeout` is in seconds, None is for ever. `idempotent` says that
    running a call twice does what running it once does. `on_crash` says what to do with a call that had started when
    the process died; left out, it is `rerun` for an idempotent tool and `unknown` for others. The doom-loop detector
    does not see an `exempt` tool (one that polls), and compares `loop_key(arguments)` where given. With `approval` a
    person is asked before a call runs: always, or where the predicate over the arguments is true. `expires_in` is
    the time to answer in seconds. `read_only` says that no call changes anything, or (False) that a call may; None
    that it is not known. The tool budget of an agent that sets none is chosen by it (`Budgets`).

    The calls of a step run side by side, but a `sequential` one only when those before it are settled or wait for a
    person, and those after it only when it is or does. At most `concurrency` calls of the tool run at once in an event
    loop, over all its turns; `rate` bounds how often one starts in this process. A call that has to wait for either
    has not started: its time-out does not run yet, and the other calls of its step go on.

    Raises `ConfigError` for a name that providers refuse, a time that is not above 0, a `concurrency` below 1, and
    `rerun` without `idempotent=True`. Source: DESIGN 4.5, 4.6, 4.12, 4.13.
    """

    #: Whether a call drives a turn of its own, with a share of what is left to the calling turn (DESIGN 4.14).
    delegates = False
    #: Whether `execute` looks at what it is told of its call. It is not made where nobody looks.
    takes_context = True

    def __init__(
        self,
        *,
        name: str,
        description: str,
        parameters: Mapping[str, JsonValue],
        approval: Approval = False,
        timeout: float | None = None,
        idempotent: bool = False,
        on_crash: OnCrash | None = None,
        loop_key: LoopKey | None = None,
        exempt: bool = False,
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
        if on_crash == "rerun" and not idempotent:
            raise ConfigError(
                f"tool {name}: on_crash='rerun' needs idempotent=True, for a call may then run twice:"
                " say so if that does no harm, else use 'unknown' or 'ask'"
            )
        if not (isinstance(approval, bool) or callable(approval)):
            raise ConfigError(f"tool {name}: approval is True, False or a function of the arguments, not {approval!r}")
        if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
            raise ConfigError(f"tool {name}: concurrency is a whole number of calls, at least 1, not {concurrency!r}")
        if not (rate is None or isinstance(rate, Rate)):
            raise ConfigError(f"tool {name}: rate is a Rate(calls=..., per=...), not {rate!r}")
        self.name = name
        self.description = description
        self.parameters = parameters
        self.timeout = _seconds(name, "timeout", timeout)
        self.idempotent = idempotent
        self.on_crash: OnCrash = on_crash or ("rerun" if idempotent else "unknown")
        self.exempt = exempt
        self.expires_in = _seconds(name, "expires_in", expires_in)
        self.read_only = read_only
        self.sequential = sequential
        self.concurrency = concurrency
        self.rate = rate
        #: Where its calls wait for each other; None for a tool whose calls need not.
        self.pace = None if concurrency is None and rate is None else Pace(concurrency, rate)
        self.spec = ToolSpec(name=name, description=description, parameters=parameters)
        self._approval = approval
        self._loop_key = loop_key
        #: Whether no call of the tool wants a person before it runs.
        self.asks_nobody = approval is False and type(self).asks is Tool.asks
        #: Whether `run` is nothing but a check and `run_checked`.
        self.runs_plainly = type(self).run is Tool.run

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Check the arguments of a call and give what `execute` takes; raises `ToolInputError`.

        Here they are taken as they are, for a tool whose arguments are checked elsewhere.
        """
        return dict(arguments)

    def plain(self, arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Give the arguments that `approval` and `loop_key` are asked about; raises `ToolInputError`."""
        return arguments

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
        except Exception:  # noqa: BLE001 (an embedder's function; the detector can do without it)
            told, about = "loop_key of tool %s raised; its arguments are compared instead", {"tool": self.name}
            _LOG.warning(told, self.name, exc_info=True, extra=about)
            return None

    def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
        """Say what this call wants of a person before it runs, or None; raises `ToolInputError`.

        None as well when `context` already holds the answer. A denied call is not asked about again: the batch
        settles it.
        """
        if self._approval is False or any(answer.decision == Decision.GRANT for answer in context.answers):
            return None
        if not self._wants_approval(self.plain(arguments), context):
            return None
        return Ask(kind=InterruptKind.APPROVAL, expires_in=self.expires_in)

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        """Check the arguments, run the call within the tool's time, and give its result, of any size.

        Raises `ToolInputError`, and what `run_checked` raises.
        """
        return await self.run_checked(self.parse(arguments), context)

    async def run_checked(self, values: Mapping[str, object], context: ToolContext) -> ToolResult:
        """Run a call whose arguments were checked: `values` is what `parse` gave.

        Raises `ToolTimeout`, or `ToolFailed` for whatever the tool itself raises, also for `SystemExit` and others that
        are no `Exception`: a tool must not end the process, nor the turn; and for data that is not JSON. Raises
        `NeedsPerson` where the tool asks a person, also from within a group. Ctrl-C passes through, for it is a person
        who wants all of this to stop; so does a cancellation, for whoever runs the call knows whether somebody asked
        for it. `context.abort` is set then, and when the time is over.
        """
        with limited(self.timeout):
            try:
                return to_result(await self.execute(values, context))
            except (ToolError, NeedsPerson):
                raise
            except NotJson as error:
                raise ToolFailed(f"{self.name}: {error}") from None
            except BaseException as error:
                if holds(error, KeyboardInterrupt):
                    raise
                if holds(error, anyio.get_cancelled_exc_class()):
                    context.abort.set()
                    raise
                asked = _found(error, NeedsPerson)
                if asked is not None:
                    raise NeedsPerson(asked.ask) from error
                raise ToolFailed(describe(error)) from error
        context.abort.set()
        raise ToolTimeout(f"{self.name} did not finish within {self.timeout:g} s; a part of its work may be done")

    @abstractmethod
    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        """Do the work of one call, with what `parse` gave. What is returned becomes a `ToolResult`, mostly text."""

    def _wants_approval(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> bool:
        if isinstance(self._approval, bool):
            return self._approval
        try:
            return bool(self._approval(arguments))
        except Exception:  # noqa: BLE001 (an embedder's function; a check that fails must not let the call pass)
            about = {"turn": context.turn, "call": context.call, "tool": self.name}
            _LOG.warning(
                "the approval check of tool %s raised; a person is asked", self.name, exc_info=True, extra=about
            )
            return True


class FunctionTool(Tool, Generic[P, R_co]):
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

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function, unchanged: no check, no time-out, and nothing made of what it returns."""
        return self._function(*args, **kwargs)  # type: ignore[return-value]

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Check the arguments against the function's annotations; raises `ToolInputError`."""
        try:
            return self._arguments.parse(arguments)
        except InvalidArguments as error:
            raise ToolInputError(str(error)) from None

    def plain(self, arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Give the arguments after coercion, with the defaults, as JSON values; raises `ToolInputError`."""
        try:
            return self._arguments.plain(arguments)
        except InvalidArguments as error:
            raise ToolInputError(str(error)) from None

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        """Call the function; one that is not async runs in a thread, which a time-out leaves behind."""
        if self._arguments.contexts:
            values = {**values, **dict.fromkeys(self._arguments.contexts, context)}
        if self._is_async:
            return await self._function(**values)  # type: ignore[misc]  # what an async function returns
        call = partial(self._function, **values)
        result = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        return await result if inspect.isawaitable(result) else result


@overload
def tool(function: Callable[P, R_co], /) -> FunctionTool[P, R_co]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R_co]], FunctionTool[P, R_co]]: ...
def tool(
    function: Callable[P, R_co] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> FunctionTool[P, R_co] | Callable[[Callable[P, R_co]], FunctionTool[P, R_co]]:
    """Make a tool of a function, async or not: bare as `@tool`, or with keywords.

    The model sees the function's name, the docstring before its first section, and a JSON Schema made of the
    annotations; arguments are described by `Annotated[..., Field(description=...)]`, or else by the docstring.
    A parameter without annotation takes any JSON value. The options are those of `Tool`.

    `approval` and `loop_key` are given the arguments as JSON values after coercion, with defaults filled in. If
    the approval check raises, a person is asked.

    Raises `ConfigError` for what `Tool` refuses, and for a function that cannot be called by names or has an
    annotation without a JSON Schema; the message names the function and the parameter. Source: DESIGN 8.
    """

    def make(function: Callable[P, R_co]) -> FunctionTool[P, R_co]:
        return FunctionTool(function, name=name, description=description, **options)

    return make if function is None else make(function)


def _seconds(name: str, field: str, value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ConfigError(f"tool {name}: {field} is a number of seconds above 0, or None, not {value!r}")
    return float(value)


def _found(error: BaseException, kind: type[E]) -> E | None:
    """The first error of a kind in a group, or the error itself; None if there is none."""
    if isinstance(error, kind):
        return error
    inner = (_found(one, kind) for one in error.exceptions) if isinstance(error, BaseExceptionGroup) else ()
    return next((one for one in inner if one is not None), None)


def holds(error: BaseException, kind: type[BaseException]) -> bool:
    """Say whether an error is of a kind, or is a group with one of that kind in it."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(kind) is not None
    return isinstance(error, kind)


def describe(error: BaseException) -> str:
    """Say `TypeName: text`; for a group, the errors in it, for its own text only counts them."""
    if isinstance(error, BaseExceptionGroup):
        return shorten("; ".join(describe(inner) for inner in error.exceptions), _ERROR_LIMIT)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (an error that cannot even be printed is still one)
        text = "(its text cannot be shown)"
    return shorten(f"{type(error).__name__}: {text}" if text else type(error).__name__, _ERROR_LIMIT)
