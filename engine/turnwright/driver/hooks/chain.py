"""The hooks and guardrails of a turn: the engine's, then its agent's, each in list order."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright._base.words import clean, show_value
from turnwright.context import AppCode, GuardrailBase, HooksBase
from turnwright.errors import ConfigError, HookFailedError, need_function
from turnwright_states.suggestions import find_similar_name

from .asking import ask, checked_timeout
from .guardrails import Guardrail, GuardrailKind
from .hooks import HOOKS, TAKES, Hooks, overrides

_LOG: Final = logging.getLogger(__name__)


class Hook:
    """One hook of a turn: a method of `Hooks`, bound to its object."""

    __slots__ = ("_hooks", "function", "name", "on", "timeout")

    def __init__(self, hooks: Hooks[object], on: str) -> None:
        self._hooks = hooks
        self.on = on
        self.name = hooks.name
        self.timeout = hooks.timeout
        self.function: Callable[..., object] = getattr(hooks, on)

    @property
    def what(self) -> str:
        """The hook in an error."""
        return f"{self.on} hook {self.name!r}"

    def about(self, tool: str) -> bool:
        """Return whether the hook is about this tool."""
        return self._hooks.tools is None or tool in self._hooks.tools

    async def ask(self, *args: object, grace: float, allowed_errors: tuple[type[Exception], ...] = ()) -> object:
        """Ask the hook (`asking.ask`)."""
        return await ask(
            self.what, self.function, *args, seconds=self.timeout, grace=grace, allowed_errors=allowed_errors
        )

    def text(self, value: object) -> str:
        """Return a text that the hook returned, as a store can keep it. Raises `HookFailedError` for another value."""
        if not isinstance(value, str):
            raise HookFailedError(f"{self.what} returned {show_value(value)} where a text is needed")
        return clean(value)

    def decision(self, kind: str, **fields: JsonValue) -> dict[str, JsonValue]:
        """Return a decision of the hook, as the journal keeps it."""
        return {"hook": self.name, "on": self.on, "decision": kind, **fields}


class Chain:
    """The hooks and guardrails of a turn, in the order in which they are asked."""

    def __init__(self, hooks: Sequence[Hooks[object]], guardrails: Sequence[Guardrail[object]]) -> None:
        self._hooks: Mapping[str, tuple[Hook, ...]] = {
            on: tuple(Hook(hook, on) for hook in hooks if overrides(hook, on)) for on in HOOKS
        }
        self._guardrails = tuple(guardrails)

    def before(self, on: str) -> tuple[Hook, ...]:
        """Return the hooks of this kind: the engine's before the agent's."""
        return self._hooks[on]

    def after(self, on: str) -> tuple[Hook, ...]:
        """Return the hooks of this kind in reverse order."""
        return self._hooks[on][::-1]

    def guardrails(self, kind: GuardrailKind) -> tuple[Guardrail[object], ...]:
        """Return the guardrails of this kind."""
        return tuple(guardrail for guardrail in self._guardrails if guardrail.kind is kind)


def checked_hooks(hooks: Iterable[HooksBase[object]], where: str) -> tuple[Hooks[object], ...]:
    """Return the hooks. Raises `ConfigError` for another object, and for hooks that override nothing."""
    result: list[Hooks[object]] = []
    for hook in hooks:
        if not isinstance(hook, Hooks):
            advice = (
                f"write {hook.__name__}()" if isinstance(hook, type) else "decorate a function, as with @before_tool"
            )
            if isinstance(hook, Guardrail):
                advice = f"guardrail {hook.name!r} belongs into guardrails=[...]"
            raise ConfigError(f"{where}: hooks: {_name_item(hook)} is not a hook: {advice}")
        if not any(overrides(hook, on) for on in HOOKS):
            raise ConfigError(f"{where}: hooks: {hook.name} overrides no hook: {', '.join(HOOKS)}")
        for on in HOOKS:
            if overrides(hook, on):
                need_function(f"{where}: hooks: {hook.name}.{on}", getattr(hook, on), *TAKES[on])
        if isinstance(hook.tools, str):
            raise ConfigError(f"{where}: hooks: {hook.name}: tools must be a list of tool names: [{hook.tools!r}]")
        checked_timeout(hook.timeout, f"{where}: hooks: {hook.name}")
        result.append(hook)
    return tuple(result)


def check_tool_names(hooks: Iterable[Hooks[object]], tools: Collection[str], where: str) -> None:
    """Raise `ConfigError` for a hook about a tool that the engine does not have, because it would never be asked.

    An engine without tools is not checked: it may only submit turns to workers. The tool of an MCP server
    (`server__tool`) is a warning, because the server may offer it another time.
    """
    for hook in hooks:
        for name in (hook.tools or ()) if tools else ():
            if name in tools:
                continue
            about = f"{where}: hooks: {hook.name}: tools: "
            if not isinstance(name, str):
                raise ConfigError(f"{about}{_name_item(name)} is not a name: write the name of the tool, as a text")
            near = find_similar_name(name, tools)
            hint = f"did you mean {near!r}?" if near else f"offered: {', '.join(tools)}"
            if "__" in name:
                _LOG.warning("%sthere is no tool %r now, so the hook is not asked about it; %s", about, name, hint)
            else:
                raise ConfigError(f"{about}there is no tool {name!r}; {hint}")


def functions_of(
    hooks: Iterable[HooksBase[object]], guardrails: Iterable[GuardrailBase[object]]
) -> list[Callable[..., object]]:
    """Return the functions of hooks and guardrails that take a context."""
    methods = [getattr(hook, on) for hook in hooks if isinstance(hook, Hooks) for on in HOOKS if overrides(hook, on)]
    return [*methods, *(guardrail.check for guardrail in guardrails if isinstance(guardrail, Guardrail))]


def checked_guardrails(guardrails: Iterable[GuardrailBase[object]], where: str) -> tuple[Guardrail[object], ...]:
    """Return the guardrails. Raises `ConfigError` for another object."""
    result: list[Guardrail[object]] = []
    for guardrail in guardrails:
        if not isinstance(guardrail, Guardrail):
            advice = "decorate a function, as with @input_guardrail"
            if isinstance(guardrail, Hooks):
                advice = f"hook {guardrail.name!r} belongs into hooks=[...]"
            raise ConfigError(f"{where}: guardrails: {_name_item(guardrail)} is not a guardrail: {advice}")
        result.append(guardrail)
    return tuple(result)


def code_names(code: Iterable[AppCode[object]]) -> tuple[str, ...]:
    """Return the names of hooks or guardrails, as the journal has them."""
    return tuple(item.name for item in code if isinstance(item, Hooks | Guardrail))


def _name_item(item: object) -> str:
    name = getattr(item, "name", None) or getattr(item, "__name__", None)
    return name if isinstance(name, str) else f"{item!r:.80}"
