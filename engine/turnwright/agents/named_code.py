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


def named(spec: str, kind: type[AppCode]) -> AppCode:
    """Import what `module:name` names: an object of this kind, or a class of it without arguments.

    The module is found in the working directory too. Raises `ConfigError` for another name, for a module that cannot be
    imported, and for another object.
    """
    found = _imported(spec, kind)
    if not isinstance(found, kind):
        what = "hook" if kind is HooksBase else "guardrail"
        raise ConfigError(f"is not a {what}, but {found!r:.60}")
    return found


def _imported(spec: str, kind: type[AppCode] | None = None) -> object:
    """Import what `module:name` names; a class of this kind is called. Raises `ConfigError`."""
    module, colon, name = spec.partition(":")
    if not (colon and module.replace(".", "_").isidentifier() and name.replace(".", "_").isidentifier()):
        raise ConfigError(_FORM)
    try:
        found: object = load_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if kind is not None and isinstance(found, type) and issubclass(found, kind):
            found = found()
    except Exception as error:
        said = str(error) if isinstance(error, ConfigError) else describe(error)
        raise ConfigError(f"cannot be imported: {said}") from error
    return found


def _function(spec: str) -> object:
    """Import the function that `module:name` names. Raises `ConfigError`."""
    found = _imported(spec)
    if not callable(found):
        raise ConfigError(f"is not a function, but {found!r:.60}")
    return found


def _output_type(spec: str) -> object:
    """Import the type of answers that `module:name` names. Raises `ConfigError`, also for one without a JSON Schema."""
    found: Any = _imported(spec)  # pydantic says whether it is a type
    if found is None or isroutine(found):
        raise ConfigError(f"is not a type, but {found!r:.60}")
    try:
        TypeAdapter(found).json_schema()
    except PydanticUserError as error:
        raise ConfigError(f"is not a type of answers: {error.message.splitlines()[0]}") from error
    return found


#: The keys with one name, and those with a list of names.
_ONE: Final[Mapping[str, Callable[[str], object]]] = {"prepare_tools": _function, "output_type": _output_type}
_SEVERAL: Final[Mapping[str, Callable[[str], object]]] = {
    "hooks": lambda spec: named(spec, HooksBase),
    "guardrails": lambda spec: named(spec, GuardrailBase),
    "output_validators": _function,
}


def resolve_code(matter: FrontMatter, values: dict[str, object]) -> None:
    """Replace the names of code in the values of a front matter by the code, or note mistakes."""
    for key, load in _ONE.items():
        spec = values.pop(key, None)
        for found in () if spec is None else _loaded(matter, (key,), spec, load):
            values[key] = found
    for key, load in _SEVERAL.items():
        if (given := values.pop(key, None)) is None:
            continue
        specs = given.split(",") if isinstance(given, str) else given
        if isinstance(specs, list):
            values[key] = [one for place, spec in enumerate(specs) for one in _loaded(matter, (key, place), spec, load)]
        else:
            matter.wrong((key,), f"must be a list of names such as [myapp.policy:{key[:-1]}]")


def _loaded(matter: FrontMatter, loc: Loc, spec: object, load: Callable[[str], object]) -> list[object]:
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
    found = vars(load_module(module))
    if name:
        if not isinstance(found.get(name), AppCode):
            raise ConfigError(f"--hooks {spec}: {module} has no hook and no guardrail {name!r}")
        return [found[name]]
    every = [one for one in found.values() if isinstance(one, AppCode)]
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
    agents = _agents_in(load_module(module), spec, name)
    places: dict[str, Agent] = {}
    for agent in agents:
        if places.setdefault(agent.name, agent) is not agent:
            raise ConfigError(f"{spec} has two agents with the name {agent.name!r}: rename one of them")
        agent.limits_for(limits)
    return [*places.values()]


def _agents_in(module: ModuleType, spec: str, name: str) -> Sequence[Agent]:
    offered = {key: value for key, value in vars(module).items() if isinstance(value, Agent)}
    if not name:
        if not offered:
            raise ConfigError(f"{spec} has no agents: write one at the top level, such as DESK = Agent(name=...)")
        return [*offered.values()]
    value: object = module
    for part in name.split("."):
        value = getattr(value, part, None)
    if isinstance(value, Agent):
        return [value]
    if isinstance(value, list | tuple) and value and all(isinstance(one, Agent) for one in value):
        return value
    names = f"it has {', '.join(offered)}" if offered else "it has none at the top level"
    raise ConfigError(f"{spec}: is not an agent, and no list of agents, but {value!r:.60}: {names}")
