"""The function given as `needs_approval`: its signature and its call."""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import anyio
from pydantic import JsonValue

from turnwright._base.words import cut_clean
from turnwright.errors import ConfigError

from .context import NeedsPersonError, ToolContext
from .errors import ToolError, describe, holds
from .schema import hints_of, is_context
from .timing import limit_block

_ARGUMENTS: Final = "arguments"
_OUR_NAMES: Final = frozenset({"context", "ctx", _ARGUMENTS})
_SHOWN_VALUE: Final = 80
_LOG: Final = logging.getLogger(__name__)


class ApprovalCheck:
    """A function that decides from a call's arguments whether a person must approve the call.

    It is called by keyword, with the arguments that it has parameters for, or with all of them if it takes
    `**kwargs`. A parameter annotated `ToolContext`, or one named `ctx` or `context` that is not an argument of the
    tool, gets the context of the call. One named `arguments` that is not an argument of the tool gets all of them, as
    JSON values. Arguments bound by `functools.partial` are left alone.

    `arguments` maps the names of the tool's arguments to whether each call has a value for it. `timeout` is the tool's
    timeout in seconds; it also limits this function. Raises `ConfigError`, naming the tool, the function and the
    parameter, for a function that cannot be called like this.
    """

    def __init__(
        self, tool: str, function: Callable[..., object], arguments: Mapping[str, bool], timeout: float | None
    ) -> None:
        self._tool = tool
        self._timeout = timeout
        self.function = function
        self._label = _label_of(function)
        self._location = f"tool {tool}: needs_approval: {self._label}"
        self._bound_names = frozenset(function.keywords) if isinstance(function, partial) else frozenset[str]()
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"{self._location} is a generator: return True or False instead")
        self._names: list[str] = []
        self._contexts: list[str] = []
        self._takes_all = False
        self._takes_rest = False
        self._takes_mapping = False
        for parameter in self._read_parameters():
            self._take(parameter, arguments)
        if self._takes_rest and not (
            self._takes_all or self._names or self._contexts or self._takes_mapping or self._bound_names
        ):
            raise ConfigError(
                f"{self._location}: the arguments are passed by name, and '*' takes none:"
                " name them, or take '**arguments'"
            )

    async def __call__(
        self,
        tool: object,
        values: Mapping[str, object],
        plain: Callable[[], Mapping[str, JsonValue]],
        context: ToolContext,
    ) -> bool:
        """Return whether a call of `tool` with these arguments needs approval. `plain` returns them as JSON values.

        Raises `ToolError`, which refuses the call, if the function raises, is late, or returns anything but True or
        False. `NeedsPersonError` passes through: the function may ask a question itself.
        """
        call = self._bind_call(values, plain, context)
        with limit_block(self._timeout, tool) as limit:
            try:
                verdict = await self._await_verdict(call)
                # A late verdict is possible: the function swallowed its cancellation, or kept the event loop busy.
                if limit is None or anyio.current_time() < limit.deadline:
                    return verdict
            except NeedsPersonError:
                raise
            except BaseException as error:
                if holds(error, KeyboardInterrupt) or holds(error, anyio.get_cancelled_exc_class()):
                    raise
                message, about = "the approval check of tool %s raised; its call is refused", {"tool": self._tool}
                about |= {"turn": context.turn_id, "call": context.call_id}
                _LOG.warning(message, self._tool, exc_info=True, extra=about)
                raise self._make_refusal(f"raised {describe(error)}") from error
        raise self._make_refusal(f"did not finish within {self._timeout:g} s")

    def _make_refusal(self, why: str) -> ToolError:
        return ToolError(f"refused and not run: the approval check of {self._tool} {why}")

    def _bind_call(
        self,
        values: Mapping[str, object],
        plain: Callable[[], Mapping[str, JsonValue]],
        context: ToolContext,
    ) -> Callable[[], object]:
        """Return the call of the function. Raises `ToolInputError` for arguments that the tool does not accept."""
        mapping = {_ARGUMENTS: plain()} if self._takes_mapping else {}
        names = [name for name in values if name not in self._bound_names] if self._takes_all else self._names
        named_values = {name: values[name] for name in names if name in values}
        return partial(self.function, **named_values, **mapping, **dict.fromkeys(self._contexts, context))

    async def _await_verdict(self, call: Callable[[], object]) -> bool:
        result = call()
        if inspect.isawaitable(result):
            result = await result
        if not isinstance(result, bool):
            raise TypeError(
                f"{self._label} returned {cut_clean(repr(result), _SHOWN_VALUE)}: return True (ask a person) or False"
            )
        return result

    def _read_parameters(self) -> Sequence[inspect.Parameter]:
        try:
            parameters, hints = inspect.signature(self.function).parameters, hints_of(self.function)
            return [
                parameter.replace(annotation=hints.get(name, parameter.annotation))
                for name, parameter in parameters.items()
            ]
        except (NameError, SyntaxError, AttributeError) as error:
            raise ConfigError(
                f"{self._location}: its annotations cannot be resolved ({error}):"
                " import the annotated types at run time, and define them at module level"
            ) from error
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{self._location}: its signature cannot be read ({error}): wrap it in a function"
            ) from error

    def _take(self, parameter: inspect.Parameter, arguments: Mapping[str, bool]) -> None:
        """Note the value that one parameter will get, if any. Raises `ConfigError` if no value fits."""
        name, is_needed = parameter.name, parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_KEYWORD:
            self._takes_all = True
        elif parameter.kind is parameter.VAR_POSITIONAL:
            self._takes_rest = True
        elif name in self._bound_names:
            pass
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            if is_needed:
                raise ConfigError(f"{self._location}: parameter {name!r} is positional-only: remove the '/'")
        elif is_context(parameter.annotation) or (name in _OUR_NAMES and name not in arguments):
            self._takes_mapping = self._takes_mapping or name == _ARGUMENTS
            self._contexts += [] if name == _ARGUMENTS else [name]
        elif name in arguments:
            if is_needed and not arguments[name]:
                raise ConfigError(
                    f"{self._location}: {name!r} is optional in a call: give the parameter a default, as in {name}=None"
                )
            self._names.append(name)
        elif is_needed:
            raise ConfigError(f"{self._location}: {_unknown(name, arguments)}")


def _unknown(name: str, arguments: Mapping[str, bool]) -> str:
    if not arguments:
        return f"parameter {name!r} is not an argument of the tool, which takes none: remove the parameter"
    first = next(iter(arguments))
    return (
        f"parameter {name!r} is not an argument of the tool (its arguments: {', '.join(arguments)}):"
        f" they are passed by name, as in needs_approval=lambda {first}: ..."
    )


def _label_of(function: Callable[..., object]) -> str:
    if isinstance(function, partial):
        return _label_of(function.func)
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__
