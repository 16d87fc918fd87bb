"""Tools that are functions: `@tool`, and the class that it makes."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Concatenate, Generic, Protocol, Unpack, cast, overload

from pydantic import JsonValue
from typing_extensions import ParamSpec, TypeVar

from turnwright.context import DepsT_contra, JsonObject, MaybeAwaitable
from turnwright.errors import ConfigError

from .context import ToolContext
from .docstring import parse_docstring
from .loop_handle import in_thread
from .schema import Arguments
from .tool import Approval, Tool, ToolOptions

P = ParamSpec("P", default=...)
R = TypeVar("R", default=object)
#: The function of a tool.
F_co = TypeVar("F_co", covariant=True)
#: The dependencies that a function needs.
D = TypeVar("D", default=object)
#: The dependencies that an approval function needs.
A = TypeVar("A", default=object)


class FunctionTool(Tool[DepsT_contra], Generic[F_co, DepsT_contra]):
    """A function that a model may call, as `@tool` makes it. Calling the tool calls the function directly."""

    def __init__(
        self,
        function: F_co,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        needs_approval: Approval = False,
        **options: Unpack[ToolOptions],
    ) -> None:
        if not inspect.isroutine(function):
            raise ConfigError(f"@tool takes a function or a bound method, not {function!r}: wrap it in a function")
        label = getattr(function, "__qualname__", repr(function))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"tool {label}: a generator cannot be a tool: return one result")
        docstring = parse_docstring(function.__doc__)
        self._function = cast("Callable[..., object]", function)
        self._is_async = inspect.iscoroutinefunction(function)
        self._arguments = Arguments(function, docstring.arguments)
        # Before our own attributes are set, because the function may have attributes with the same names.
        update_wrapper(cast("Callable[..., object]", self), self._function, updated=())
        super().__init__(
            name=function.__name__ if name is None else name,
            description=docstring.description if description is None else description,
            parameters=self._arguments.schema,
            needs_approval=needs_approval,
            **options,
        )
        if type(self).execute is FunctionTool.execute:
            self.takes_context = bool(self._arguments.contexts)

    if TYPE_CHECKING:
        # An attribute, so that type checkers find a common type for a list of tools of different functions.
        __call__: F_co
    else:

        def __call__(self, *args, **kwargs):  # noqa: ANN002, ANN003, ANN204
            """Call the function directly: no validation, no timeout, the return value unchanged."""
            return self._function(*args, **kwargs)

    @property
    def functions(self) -> tuple[Callable[..., object], ...]:
        """The function itself, and the one given as `needs_approval`."""
        return (self._function, *super().functions)

    @property
    def may_answer(self) -> bool:
        """Whether a call may give the turn's answer. A function whose annotated result is no `ToolResult` cannot."""
        if self.return_direct or type(self).execute is not FunctionTool.execute:
            return True
        returns = inspect.get_annotations(self._function).get("return", object)
        return any(name in str(returns) for name in ("ToolResult", "object", "Any"))

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Validate the arguments against the function's annotations; raises `ToolInputError`."""
        return self._arguments.parse(arguments)

    def complete(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Return all arguments of the function, with defaults; raises `ToolInputError`."""
        return self._arguments.complete(arguments)

    def plain(self, arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Return the coerced arguments as JSON values, with defaults; raises `ToolInputError`."""
        return self._arguments.plain(arguments)

    def _list_offered(self) -> Mapping[str, bool]:
        return dict.fromkeys(super()._list_offered(), True)  # `complete` fills in the defaults

    async def execute(self, values: Mapping[str, object], context: ToolContext[DepsT_contra]) -> object:
        """Call the function. A function that is not async runs in a thread, which continues after a timeout."""
        if self._arguments.contexts:
            values = {**values, **dict.fromkeys(self._arguments.contexts, context)}
        if self._is_async:
            return await self._function(**values)  # type: ignore[misc]  # what an async function returns
        result = await in_thread(partial(self._function, **values))
        return await result if inspect.isawaitable(result) else result


class ApprovalFunction(Protocol[DepsT_contra]):
    """Decides whether a person must approve a call. It needs the dependencies of its context."""

    def __call__(self, ctx: ToolContext[DepsT_contra], arguments: JsonObject) -> MaybeAwaitable[bool]:
        """Return True if a person must approve the call with these arguments."""
        ...


class ToolDecorator(Protocol[A]):  # pyright: ignore[reportInvalidTypeVarUse]  # mypy and pyright disagree on its variance
    """Makes a tool from a function. The tool needs the dependencies of the context that the function takes first."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[ToolContext[A], P], R], /
    ) -> FunctionTool[Callable[Concatenate[ToolContext[A], P], R], A]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[ToolContext[D], P], R], /
    ) -> FunctionTool[Callable[Concatenate[ToolContext[D], P], R], D]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTool[Callable[P, R], A]: ...


@overload
def tool(
    function: Callable[Concatenate[ToolContext[D], P], R], /
) -> FunctionTool[Callable[Concatenate[ToolContext[D], P], R], D]: ...
@overload
def tool(function: Callable[P, R], /) -> FunctionTool[Callable[P, R], object]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: ApprovalFunction[A],
    **options: Unpack[ToolOptions],
) -> ToolDecorator[A]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: Approval = False,
    **options: Unpack[ToolOptions],
) -> ToolDecorator: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: Approval = False,
    **options: Unpack[ToolOptions],
) -> object:
    """Make a tool from a function, async or not. Use it bare, as `@tool`, or with keywords.

    The model sees the function's name, its docstring up to the first section, and a JSON Schema made from the
    annotations. Arguments are described by `Annotated[..., Field(description=...)]`, or else by the docstring. A
    parameter without annotation takes any JSON value. The options are those of `Tool`.

    A function given as `needs_approval` is a `f(ctx, arguments)`: the context of the call, and one mapping of the
    coerced arguments as JSON values, with defaults. Or it names the arguments that it needs, and gets them by keyword:
    `needs_approval=lambda amount: amount > 100`. It may be async, and returns True (ask a person) or False. If it
    raises or returns anything else, the call is refused. A function that is not async must be fast, because it runs in
    the event loop. `loop_key` gets the same mapping.

    Raises `ConfigError` for options that `Tool` refuses, for a function that cannot be called by keyword, and for an
    annotation without a JSON Schema. The message names the function and the parameter.
    """

    def make(function: Callable[P, R]) -> FunctionTool[Callable[P, R]]:
        return FunctionTool(function, name=name, description=description, needs_approval=needs_approval, **options)

    return make if function is None else make(function)
