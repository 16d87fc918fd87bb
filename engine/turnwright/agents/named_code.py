"""Code that an agent file or a flag names: `module:name`, or `path/file.py:name` for a flag. Agents are code too."""

from collections.abc import Callable, Mapping, Sequence
from inspect import isroutine
from types import ModuleType
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from turnwright.agent import Agent
from turnwright.context import AppCode, GuardrailBase, HooksBase
from turnwright.errors import ConfigError
from turnwright.tools.errors import describe
from turnwright.tools.load import load_module, split_code
from turnwright_states import Limits

from .front_matter import FrontMatter, Loc

_FORM: Final = "must be a name such as myapp.policy:cap, of a module and of what it has"


def import_named(spec: str, kind: type[AppCode]) -> AppCode:
    """Import what `module:name` names: an object of this kind, or a class of it without arguments.

    The module is found in the working directory too. Raises `ConfigError` for another name, for a module that cannot be
    imported, and for another object.
    """
    code = _import_object(spec, kind)
    if not isinstance(code, kind):
        kind_name = "hook" if kind is HooksBase else "guardrail"
        raise ConfigError(f"is not a {kind_name}, but {code!r:.60}")
    return code


def _import_object(spec: str, kind: type[AppCode] | None = None) -> object:
    """Import what `module:name` names; a class of this kind is called. Raises `ConfigError`."""
    module, colon, name = spec.partition(":")
    if not (colon and module.replace(".", "_").isidentifier() and name.replace(".", "_").isidentifier()):
        raise ConfigError(_FORM)
    try:
        code: object = load_module(module)
        for part in name.split("."):
            code = getattr(code, part)
        if kind is not None and isinstance(code, type) and issubclass(code, kind):
            code = code()
    except Exception as error:
        problem = str(error) if isinstance(error, ConfigError) else describe(error)
        raise ConfigError(f"cannot be imported: {problem}") from error
    return code


def _import_function(spec: str) -> object:
    """Import the function that `module:name` names. Raises `ConfigError`."""
    function = _import_object(spec)
    if not callable(function):
        raise ConfigError(f"is not a function, but {function!r:.60}")
    return function


def _import_output_type(spec: str) -> object:
    """Import the type of answers that `module:name` names. Raises `ConfigError`, also for one without a JSON Schema."""
    output_type: Any = _import_object(spec)  # pydantic says whether it is a type
    if output_type is None or isroutine(output_type):
        raise ConfigError(f"is not a type, but {output_type!r:.60}")
    try:
        TypeAdapter(output_type).json_schema()
    except PydanticUserError as error:
        raise ConfigError(f"is not a type of answers: {error.message.splitlines()[0]}") from error
    return output_type


#: The keys with one name, and those with a list of names.
_LOADERS: Final[Mapping[str, Callable[[str], object]]] = {
    "prepare_tools": _import_function,
    "output_type": _import_output_type,
}
_LIST_LOADERS: Final[Mapping[str, Callable[[str], object]]] = {
    "hooks": lambda spec: import_named(spec, HooksBase),
    "guardrails": lambda spec: import_named(spec, GuardrailBase),
    "output_validators": _import_function,
}


def resolve_code(matter: FrontMatter, values: dict[str, object]) -> None:
    """Replace the names of code in the values of a front matter by the code, or note mistakes."""
    for key, load in _LOADERS.items():
        spec = values.pop(key, None)
        for code in () if spec is None else _load_code(matter, (key,), spec, load):
            values[key] = code
    for key, load in _LIST_LOADERS.items():
        if (names := values.pop(key, None)) is None:
            continue
        specs = names.split(",") if isinstance(names, str) else names
        if isinstance(specs, list):
            values[key] = [
                code for place, spec in enumerate(specs) for code in _load_code(matter, (key, place), spec, load)
            ]
        else:
            matter.wrong((key,), f"must be a list of names such as [myapp.policy:{key[:-1]}]")


def _load_code(matter: FrontMatter, loc: Loc, spec: object, load: Callable[[str], object]) -> list[object]:
    """Return the code that a name imports, in a list; an empty one after a mistake, which is noted."""
    try:
        return [load(spec.strip() if isinstance(spec, str) else "")]
    except ConfigError as error:
        matter.wrong(loc, str(error))
        return []


def code_of(spec: str) -> list[AppCode]:
    """Return the hooks and guardrails of `module`, or the one of `module:name`. `path/file.py` is a module too.

    Raises `ConfigError` for a module that cannot be loaded, for one without any, and for another name.
    """
    module, name = split_code(spec)
    namespace = vars(load_module(module))
    if name:
        if not isinstance(namespace.get(name), AppCode):
            raise ConfigError(f"--hooks {spec}: {module} has no hook and no guardrail {name!r}")
        return [namespace[name]]
    every = [code for code in namespace.values() if isinstance(code, AppCode)]
    if not every:
        raise ConfigError(
            f"--hooks {spec}: {module} has no hooks and no guardrails: decorate functions, as with @before_tool"
        )
    return list(dict.fromkeys(every))


def agents_of(spec: str, limits: Limits) -> list[Agent]:
    """Return the agents of `path/file.py`, or those of `module:name` and `path/file.py:name`: an agent, or a list.

    `limits` are the engine's, which each agent must fit. Raises `ConfigError` for code that cannot be loaded, for code
    without agents, for another object, and for two agents with one name.
    """
    module, name = split_code(spec)
    agents = agents_in(load_module(module), spec, name)
    places: dict[str, Agent] = {}
    for agent in agents:
        if places.setdefault(agent.name, agent) is not agent:
            raise ConfigError(f"{spec} has two agents with the name {agent.name!r}: rename one of them")
        agent.limits_for(limits)
    return [*places.values()]


def agents_in(module: ModuleType, spec: str, name: str) -> Sequence[Agent]:
    """Return the agents of a loaded module: all, or those of a name in it. Raises `ConfigError`, which names `spec`."""
    agents_by_name = {key: value for key, value in vars(module).items() if isinstance(value, Agent)}
    if not name:
        if not agents_by_name:
            raise ConfigError(f"{spec} has no agents: write one at the top level, such as DESK = Agent(name=...)")
        return [*agents_by_name.values()]
    names = f"it has {', '.join(agents_by_name)}" if agents_by_name else "it has none at the top level"
    value: object = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise ConfigError(f"{spec}: there is no agent of this name: {names}")
        value = getattr(value, part)
    if isinstance(value, Agent):
        return [value]
    if isinstance(value, list | tuple) and value and all(isinstance(item, Agent) for item in value):
        return value
    raise ConfigError(f"{spec}: is not an agent, and no list of agents, but {value!r:.60}: {names}")
