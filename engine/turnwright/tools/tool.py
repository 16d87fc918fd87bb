"""Tools: their declaration, their questions to a person, and the execution of one call."""

import copy
import inspect
import logging
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Generic, Literal, TypedDict

import anyio
from pydantic import JsonValue

from turnwright._base.schema_faults import dangling_refs, invalid_keyword
from turnwright._base.words import clean
from turnwright.context import NOT_GIVEN, DepsT_contra, NotGiven
from turnwright.errors import ConfigError, Retry, known_options, need_function, need_kind, need_number
from turnwright.message import ToolSpec
from turnwright_states import Decision, InterruptKind
from turnwright_states.limits import MAX_APPROVERS, TOOL_TIMEOUT
from turnwright_states.payload import freeze, thaw

from .context import Ask, NeedsPersonError, ToolContext
from .errors import ToolError, ToolFailedError, ToolInputError, ToolTimeoutError, describe, find_error, holds
from .loop_handle import in_event_loop
from .rate_limiter import Rate, RateLimiter
from .result import NotJsonError, ToolResult, to_result
from .timing import limit_block

if TYPE_CHECKING:
    from .approval_check import ApprovalCheck

#: The crash policy: what happens to a call that a crash interrupted (docs/rules.md#recovery).
OnCrash = Literal["rerun", "unknown", "ask"]
#: Whether a person must approve a call: always, never, or decided by a function of the call's arguments.
Approval = bool | Callable[..., bool | Awaitable[bool]]
LoopKey = Callable[[Mapping[str, JsonValue]], str | Awaitable[str]]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LOG: Final = logging.getLogger(__name__)
#: Seconds of an async function that makes a key for loop detection.
_KEY_SECONDS: Final = 30.0


class ToolOptions(TypedDict, total=False):
    """The options of `@tool`, without the name, the description and `needs_approval`. See `Tool`."""

    timeout: float | NotGiven | None
    idempotent: bool
    on_crash: OnCrash | None
    loop_key: LoopKey | None
    ignore_in_loop_detection: bool
    expires_in: float | None
    approvers: int
    read_only: bool | None
    sequential: bool
    concurrency: int | None
    rate: Rate | None
    retries: int
    return_direct: bool


class Tool(ABC, Generic[DepsT_contra]):
    """A tool that a model may call. `@tool` makes one from a function; subclass this for any other.

    A `Tool[Deps]` needs an engine with these dependencies. A `Tool` without them fits every engine.

    `parameters` is a JSON Schema of type object. `timeout` is in seconds. Without one, the turn's limit `tool_timeout`
    applies, 300 s by default; None means that a call may take for ever. `idempotent`: running a call twice has the same
    effect as running it once. `read_only`: True if no call changes anything, False if a call
    may, None if unknown. It selects the agent's tool-call limit (`ToolCallLimits`), and makes the tool idempotent.
    `on_crash` is the policy for a call that a crash interrupted: by default `rerun` for an idempotent tool, else
    `unknown`. `ignore_in_loop_detection` hides the tool from the doom-loop detector, which otherwise compares
    `loop_key(arguments)`, if given, or the arguments. `needs_approval`: True if a person must approve each call, or a
    function of the call that returns True or False (see `tool`). `expires_in` is the time to answer in seconds. With
    `approvers` above 1, so many different people must approve a call, and one rejection rejects it
    (docs/rules.md#approvers).

    The calls of a step run concurrently. A `sequential` call starts when the calls before it have results or wait for a
    person; later calls wait for it in the same way. At most `concurrency` calls of the tool run at once in an event
    loop, over all turns. `rate` limits the starts in this process. A call that waits for either has not started: its
    timeout does not run yet, and the other calls of its step go on.

    A tool may raise `Retry("why")`: the model reads the text as the call's error and may call again. After more than
    `retries` of them in a turn, further calls of the tool are refused. `return_direct`: the result of a call that
    succeeds is the turn's answer, and the model is not called again.

    Raises `ConfigError` for an option of another type, a name that providers refuse, a time that is not above 0, a
    `concurrency` below 1, a
    `needs_approval` that cannot be called with the tool's arguments, and `rerun` for a tool that is neither idempotent
    nor read-only, and for `parameters` with an invalid keyword or a `$ref` that leads nowhere.
    See docs/rules.md#budgets, docs/rules.md#doom-loops, docs/rules.md#approvals.
    """

    #: Whether a call runs a turn of its own, with a share of the calling turn's limits (docs/rules.md#sub-agents).
    delegates = False
    #: Whether `execute` uses its context. Otherwise no context is made.
    takes_context = True
    #: The wait of a call that does not run here (`ExternalTool`).
    later: NeedsPersonError | None = None
    #: Whether `execute` may ask a person with its context.
    asks_with_context = True

    @known_options("tool")
    def __init__(
        self,
        *,
        name: str,
        description: str,
        parameters: Mapping[str, JsonValue],
        needs_approval: Approval = False,
        timeout: float | NotGiven | None = NOT_GIVEN,
        idempotent: bool = False,
        on_crash: OnCrash | None = None,
        loop_key: LoopKey | None = None,
        ignore_in_loop_detection: bool = False,
        expires_in: float | None = None,
        approvers: int = 1,
        read_only: bool | None = None,
        sequential: bool = False,
        concurrency: int | None = None,
        rate: Rate | None = None,
        retries: int = 1,
        return_direct: bool = False,
    ) -> None:
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise ConfigError(
                f"tool {name!r}: a name must have 1 to 64 of a-z, A-Z, 0-9, '_' and '-': set one with @tool(name=...)"
            )
        if on_crash not in ("rerun", "unknown", "ask", None):
            raise ConfigError(f"tool {name}: on_crash must be 'rerun', 'unknown' or 'ask', not {on_crash!r}")
        for option, value, kind, form in (
            ("description", description, str, "text"),
            ("idempotent", idempotent, bool, "True or False"),
            ("ignore_in_loop_detection", ignore_in_loop_detection, bool, "True or False"),
            ("read_only", read_only, bool | None, "True, False or None"),
            ("sequential", sequential, bool, "True or False"),
            ("rate", rate, Rate | None, "a Rate(calls=..., per=...)"),
            ("return_direct", return_direct, bool, "True or False"),
        ):
            need_kind(f"tool {name}: {option}", value, kind, form)
        need_function(f"tool {name}: loop_key", loop_key, "arguments")
        idempotent = idempotent or read_only is True
        if on_crash == "rerun" and not idempotent:
            raise ConfigError(
                f"tool {name}: on_crash='rerun' may run a call twice: if that is safe, set idempotent=True or"
                " read_only=True, else use 'unknown' or 'ask'"
            )
        if not (isinstance(needs_approval, bool) or callable(needs_approval)):
            raise ConfigError(f"tool {name}: needs_approval must be True, False or a function, not {needs_approval!r}")
        for option, number, least, most in (
            ("concurrency", 1 if concurrency is None else concurrency, 1, None),
            ("approvers", approvers, 1, MAX_APPROVERS),
            ("retries", retries, 0, None),
        ):
            need_number(f"tool {name}: {option}", number, least, most)
        if fault := invalid_keyword(parameters) or next(iter(dangling_refs(parameters)), None):
            raise ConfigError(f"tool {name}: parameters: {fault}")
        self.name = name
        self.description = description
        self.parameters = freeze(parameters)
        #: Whether the tool sets its `timeout` itself. Otherwise the turn's `tool_timeout` precedes it.
        self.has_own_timeout = timeout is not NOT_GIVEN
        self.timeout = TOOL_TIMEOUT if isinstance(timeout, NotGiven) else _seconds(name, "timeout", timeout)
        self.idempotent = idempotent
        self.on_crash: OnCrash = on_crash or ("rerun" if idempotent else "unknown")
        self.ignore_in_loop_detection = ignore_in_loop_detection
        self.expires_in = _seconds(name, "expires_in", expires_in)
        self.approvers = approvers
        self.read_only = read_only
        self.sequential = sequential
        self.concurrency = concurrency
        self.rate = rate
        self.retries = retries
        self.return_direct = return_direct
        #: Limits concurrent calls and starts; None without such a limit.
        self.limiter = None if concurrency is None and rate is None else RateLimiter(concurrency, rate)
        self.spec = ToolSpec(name=name, description=description, parameters=self.parameters)
        #: Whether a person must approve each call.
        self.always_asks = needs_approval is True
        self._check: ApprovalCheck | None = None
        if not isinstance(needs_approval, bool):
            from . import approval_check as checks  # noqa: PLC0415 (few tools have an approval function)

            self._check = checks.ApprovalCheck(name, needs_approval, self._list_offered(), self.timeout)
        self._loop_key = loop_key
        #: Whether the function `loop_key` is async, so that `awaited_loop_key` returns its keys.
        self.has_async_key = inspect.iscoroutinefunction(loop_key) or inspect.iscoroutinefunction(
            getattr(loop_key, "__call__", None)  # noqa: B004 (an object with an async `__call__`)
        )
        #: Whether no call of the tool needs a person before it runs.
        self.never_asks = (
            needs_approval is False and type(self).asks is Tool.asks and type(self).asks_first is Tool.asks_first
        )
        #: Whether the app's code decides about approvals. It may be slow, and may ignore its cancellation.
        self.asks_by_code = self._check is not None or type(self).asks_first is not Tool.asks_first
        #: Whether `run` is not overridden, so that validated arguments can go to `run_unlimited`.
        self.runs_plainly = type(self).run is Tool.run

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def may_ask(self) -> bool:
        """Whether a call may need a person: before it runs, while it runs, or after a crash."""
        return not self.never_asks or self.on_crash == "ask" or (self.takes_context and self.asks_with_context)

    @property
    def functions(self) -> tuple[Callable[..., object], ...]:
        """The functions of the app that take a context of its calls."""
        return (self.execute, *(() if self._check is None else (self._check.function,)))

    @property
    def may_answer(self) -> bool:
        """Whether a call may give the turn's answer: always (`return_direct`), or by a result that says so."""
        return True

    def seconds_of_call(self, tool_timeout: float | None) -> float | None:
        """Return the time limit of a call in a turn with this `tool_timeout`; None means no limit."""
        return self.timeout if self.has_own_timeout else tool_timeout

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Validate the arguments of a call and return the values for `execute`; raises `ToolInputError`.

        This class returns the arguments unchanged, for tools that validate elsewhere.
        """
        return {**thaw(arguments)}

    def plain(self, arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Return a copy of the arguments for `loop_key`; raises `ToolInputError`."""
        return copy.deepcopy(dict(arguments))

    def complete(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Return a copy of the values for `execute`, for `needs_approval`; raises `ToolInputError`."""
        return copy.deepcopy(self.parse(arguments))

    def loop_key(self, arguments: Mapping[str, JsonValue]) -> str | None:
        """Return the key that the doom-loop detector compares; None means that it compares the arguments.

        It is also None for invalid arguments, and if the tool's `loop_key` function raises, which is logged.
        """
        if self._loop_key is None:
            return None
        try:
            return clean(str(self._loop_key(self.plain(arguments))))
        except ToolInputError:
            return None
        except BaseException as error:
            if holds(error, KeyboardInterrupt):  # any other error of the app's function is not fatal
                raise
            message, about = "loop_key of tool %s raised; its arguments are compared instead", {"tool": self.name}
            _LOG.warning(message, self.name, exc_info=True, extra=about)
            return None

    async def awaited_loop_key(self, arguments: Mapping[str, JsonValue]) -> str | None:
        """Return what `loop_key` returns, for a function that is async. It has 30 seconds."""
        if self._loop_key is None:
            return None
        try:
            with anyio.fail_after(_KEY_SECONDS):
                key = self._loop_key(self.plain(arguments))
                return clean(str(await key if inspect.isawaitable(key) else key))
        except ToolInputError:
            return None
        except Exception:  # noqa: BLE001 (an error of the app's function is not fatal)
            message, about = "loop_key of tool %s raised; its arguments are compared instead", {"tool": self.name}
            _LOG.warning(message, self.name, exc_info=True, extra=about)
            return None

    def approval(self, question: str = "") -> Ask:
        """Return the question whether a call of this tool may run, for as many people as must approve it."""
        kind = InterruptKind.APPROVAL
        return Ask(kind=kind, question=question, expires_in=self.expires_in, approvals=self.approvers)

    def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext[DepsT_contra]) -> Ask | None:
        """Return the question to a person before this call runs, or None; raises `ToolInputError`.

        None too if `context` has the answer already. A rejected call does not come here again. A function given as
        `needs_approval` is called later, in `asks_first`.
        """
        if not self.always_asks or _is_granted(context):
            return None
        self.plain(arguments)
        return self.approval()

    async def asks_first(self, arguments: Mapping[str, JsonValue], context: ToolContext[DepsT_contra]) -> Ask | None:
        """Return the question of `asks`, or else the one that the function `needs_approval` requires.

        Raises `ToolInputError`, and `ToolError` if that function fails, which refuses the call. The function may ignore
        its cancellation: see `tool_work.Inquiry`.
        """
        ask = self.asks(arguments, context)
        if ask is not None or self._check is None or _is_granted(context):
            return ask
        if not await self._check(self, self.complete(arguments), lambda: self.plain(arguments), context):
            return None
        return self.approval()

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext[DepsT_contra]) -> ToolResult:
        """Validate the arguments, run the call within the timeout, and return its result, of any size.

        Raises `ToolInputError`, `ToolTimeoutError`, with `context.abort_signal` set, and the errors of `run_unlimited`.
        """
        values = self.parse(arguments)
        with limit_block(self.timeout, self):
            return await self.run_unlimited(values, context)
        context.abort_signal.set()
        raise ToolTimeoutError(f"{self.name} did not finish within {self.timeout:g} s; part of its work may be done")

    async def run_unlimited(self, values: Mapping[str, object], context: ToolContext[DepsT_contra]) -> ToolResult:
        """Run a call with validated arguments, as `parse` returns them, whose time the caller limits.

        Raises `ToolFailedError` for data that is not JSON and for any error of the tool, also for `SystemExit` and the
        like, because a tool must not end the process or the turn; `NeedsPersonError` if the tool asks a person, and
        `Retry` if it asks the model to try again, both also from within an exception group. `KeyboardInterrupt` and
        cancellations pass through. `context.abort_signal` is set at a cancellation.
        """
        try:
            result = await self.execute(values, context)
            if isinstance(result, NeedsPersonError):  # a `Later`
                raise result  # noqa: TRY301 (a function for it would be called in each step)
            return to_result(result)
        except (ToolError, NeedsPersonError, Retry):
            raise
        except NotJsonError as error:
            raise ToolFailedError(f"{self.name}: {error}") from None
        except BaseException as error:
            if holds(error, KeyboardInterrupt) or (isinstance(error, GeneratorExit) and not in_event_loop()):
                raise
            if holds(error, anyio.get_cancelled_exc_class()):
                context.abort_signal.set()
                raise
            question = find_error(error, NeedsPersonError)
            if question is not None:
                raise NeedsPersonError(question.ask, *question.more) from error
            again = find_error(error, Retry)
            if again is not None:
                raise Retry(again.feedback) from error
            raise ToolFailedError(describe(error)) from error

    @property
    def watches_waits(self) -> bool:
        """Whether a worker asks this tool about its calls that wait for results: see `is_ready`."""
        return False

    async def is_ready(self, data: JsonValue) -> bool:  # noqa: ARG002 (of a tool that watches)
        """Return whether a call that waits for its result shall run again. `data` is its `Later(kept=...)`."""
        return False

    async def give_up(self, data: JsonValue) -> None:
        """Drop the work of a call that waited, and whose turn or wait has ended otherwise."""

    @abstractmethod
    async def execute(self, values: Mapping[str, object], context: ToolContext[DepsT_contra]) -> object:
        """Do the work of one call with the values from `parse`. The return value becomes a `ToolResult`."""

    def _list_offered(self) -> Mapping[str, bool]:
        """Return the names of the arguments, and whether each call has a value for them."""
        properties, required_names = self.parameters.get("properties"), self.parameters.get("required")
        names = properties if isinstance(properties, Mapping) else {}
        return {name: isinstance(required_names, list) and name in required_names for name in names}


def _seconds(name: str, field: str, value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ConfigError(f"tool {name}: {field} must be a number of seconds above 0, or None, not {value!r}")
    return float(value)


def _is_granted(context: ToolContext) -> bool:
    return any(answer.decision == Decision.APPROVE for answer in context.answers)
