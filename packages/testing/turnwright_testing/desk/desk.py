"""A desk: an agent as its module states it, with its tools, its outside world and its invariants."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Final, cast

from hypothesis import strategies as st

from turnwright.agent import Agent
from turnwright.agents.named_code import agents_in
from turnwright.context import JsonObject
from turnwright.driver.subagents import agent_tools
from turnwright.errors import ConfigError, find_misfit, need_kind, need_plain_function
from turnwright.runtime.engine import Engine
from turnwright.tools import Tool, builtin_tools
from turnwright.tools.load import MAKE_DEPS, load_module, split_code
from turnwright_states.suggestions import explain_unknown
from turnwright_testing.behavior import Stage
from turnwright_testing.draw import draw_pool
from turnwright_testing.json_values import ArgumentValues, property_names

#: A function whose `assert` statements hold whenever no call runs.
Invariant = Callable[..., object]

#: The beginning of the name of an invariant, and the values that one may take.
_INVARIANT: Final = "invariant_"
_TAKES: Final = ("turn", "requests")
_PLAIN: Final[tuple[JsonObject, ...]] = ({},)


@dataclass(frozen=True, slots=True)
class Desk:
    """An agent with all that a run of it needs. `load_desk` reads one from a module.

    `tools` run for real. `reset` brings the outside world to its beginning. Each of the `invariants` holds whenever no
    call runs; it may take `turn`, the result of an ended turn, and `requests`, those of the turn so far. `metadata` and
    `prompts` are those of turns; without prompts, texts of all kinds are. `build` makes the engine. `values` has
    strategies for arguments, and `modules` are searched for more of them.
    """

    agent: Agent
    tools: tuple[Tool, ...] = ()
    agents: tuple[Agent, ...] = ()
    invariants: tuple[Invariant, ...] = ()
    reset: Callable[[], object] = bool
    metadata: tuple[JsonObject, ...] = _PLAIN
    prompts: tuple[str, ...] = ()
    build: Callable[..., Engine[None]] = Engine
    values: ArgumentValues = field(default_factory=dict)
    modules: tuple[ModuleType, ...] = ()

    @property
    def files(self) -> frozenset[str]:
        """The source files of the desk, for places in reports."""
        return frozenset(filter(None, map(_file_of, self.modules)))


def load_desk(source: str, agent: str = "", *, tools: str = "", root: str = ".") -> Desk:
    """Load one desk of a source. Raises what `load_desks` does, and `ConfigError` unless `agent` names one."""
    desks = load_desks(source, tools=tools, root=root)
    matching_desks = [desk for desk in desks if agent in ("", desk.agent.name)]
    if len(matching_desks) != 1:
        names = ", ".join(desk.agent.name for desk in desks)
        missing = f"no agent of the name {agent!r}" if agent else f"{len(desks)} agents"
        raise ConfigError(f"{source} has {missing}: choose one of {names}")
    return matching_desks[0]


def load_desks(source: str, *, tools: str = "", root: str = ".") -> list[Desk]:
    """Load the agents of `path/file.py`, `path/file.py:NAME` or `module:NAME`, each with what its module states.

    The module is imported once. Its tools are those of the agents, with those of the module `tools`. Stand-ins take the
    places of built-in tools, which would read and write the folder `root`. Under these names the module may state more:
    `reset()`, `invariant_...()`, `METADATA`, `PROMPTS`, `VALUES`, `make_deps(turn)`, `make_engine(**parts)`.

    Raises `ConfigError` for a module that cannot be loaded, and for one of these names that has another form.
    """
    path, name = split_code(source)
    modules = [load_module(path), *([load_module(tools)] if tools and tools != path else [])]
    names = {key: value for module in reversed(modules) for key, value in vars(module).items()}
    agents = tuple(agents_in(modules[0], source, name))
    stated_agents = [value for value in names.values() if isinstance(value, Agent)]
    every_agent = tuple({agent.name: agent for agent in (*stated_agents, *agents)}.values())
    metadata = _list_several(f"{source}: METADATA", names.get("METADATA"), Mapping, "a list of dicts")
    prompts = _list_several(f"{source}: PROMPTS", names.get("PROMPTS"), str, "a list of texts")
    deps = names.get(MAKE_DEPS)
    desk_tools = tuple(_tools(names, every_agent, root))
    build = names.get("make_engine") or (Engine if deps is None else partial(Engine, deps=deps))
    return [
        Desk(
            agent=agent,
            tools=desk_tools,
            agents=tuple(
                agent if registered_agent.name == agent.name else registered_agent for registered_agent in every_agent
            ),
            invariants=tuple(_invariants(names, source)),
            reset=_reset(names, source),
            metadata=cast("tuple[JsonObject, ...]", metadata) or _PLAIN,
            prompts=cast("tuple[str, ...]", prompts),
            build=cast("Callable[..., Engine[None]]", build),
            values=_argument_values(names, source, desk_tools),
            modules=tuple(_with_neighbors(modules)),
        )
        for agent in agents
    ]


def _with_neighbors(modules: Sequence[ModuleType]) -> list[ModuleType]:
    """Return the modules, and those of the same folders whose functions and objects they use."""
    folders = {str(Path(file).parent) for file in filter(None, map(_file_of, modules))}
    reachable = [*modules]
    for module in reachable:
        for value in vars(module).values():
            functions = value.functions if isinstance(value, Tool) else ()
            names = (getattr(item, "__module__", None) for item in (value, type(value), *functions))
            sources = [value if isinstance(value, ModuleType) else None, *map(sys.modules.get, map(str, names))]
            reachable += [
                neighbor
                for neighbor in dict.fromkeys(sources)
                if neighbor is not None
                and neighbor not in reachable
                and str(Path(_file_of(neighbor)).parent) in folders
            ]
    return reachable


def _file_of(module: ModuleType) -> str:
    """Return the source file of a module, or an empty text."""
    return getattr(module, "__file__", None) or ""


def _list_several(name: str, values: object, kind: type, form: str) -> tuple[object, ...]:
    """Return the values of a sequence, or of a strategy. Raises `ConfigError` for one of another kind."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable | st.SearchStrategy | None):
        raise ConfigError(f"{name} must be {form}, not {values!r:.80}")
    several = tuple(draw_pool(values, 0) if isinstance(values, st.SearchStrategy) else values or ())
    for value in several:
        need_kind(name, value, kind, form)
    return several


def _reset(names: Mapping[str, object], source: str) -> Callable[[], object]:
    reset = names.get("reset", bool)
    need_plain_function(f"{source}: reset", reset)
    function = cast("Callable[[], object]", reset)
    if misfit := find_misfit(function, ()):
        raise ConfigError(f"{source}: reset {misfit}")
    return function


def _argument_values(names: Mapping[str, object], source: str, tools: Iterable[Tool]) -> ArgumentValues:
    values = names.get("VALUES", {})
    need_kind(f"{source}: VALUES", values, Mapping, "a dict of strategies")
    strategies = cast("ArgumentValues", values)
    for name, strategy in strategies.items():
        form = "a strategy of Hypothesis, such as st.sampled_from([...])"
        need_kind(f"{source}: VALUES[{name!r}]", strategy, st.SearchStrategy, form)
    parameters = {tool.name: [*property_names(tool.parameters)] for tool in tools}
    known_names = [*dict.fromkeys(chain.from_iterable(parameters.values()))]
    known_names += [f"{tool}.{name}" for tool, fields in parameters.items() for name in (*fields, "result")]
    for name in strategies:
        if isinstance(name, str) and name not in known_names:
            raise ConfigError(f"{source}: VALUES[{name!r}] {explain_unknown(name, known_names)}")
    return strategies


def _tools(values_by_name: Mapping[str, object], agents: Sequence[Agent], root: str) -> Iterator[Tool]:
    """Return the tools of the modules, stand-ins for the built-in ones that an agent names, and the sub-agents."""
    names = {name for agent in agents for name in agent.tools or ()}
    built_in = [tool for tool in builtin_tools(Path(root)) if tool.name in names]
    tools = {tool.name: tool for tool in Stage().tools(built_in)}
    tools |= {value.name: value for value in _stated_tools(values_by_name)}
    yield from tools.values()
    delegating_names = {tool.name for tool in tools.values() if tool.delegates}
    yield from (helper for helper in agent_tools(agents) if helper.name not in delegating_names)


def _stated_tools(names: Mapping[str, object]) -> Iterator[Tool]:
    """Return the tools of a module, also those in its lists and mappings."""
    for value in names.values():
        several = (
            [*value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        )
        yield from (tool for tool in several if isinstance(tool, Tool))


def _invariants(names: Mapping[str, object], source: str) -> Iterator[Invariant]:
    for name, value in names.items():
        if name.startswith(_INVARIANT) and callable(value):
            need_plain_function(f"{source}: {name}", value)
            unknown = [key for key in inspect.signature(value).parameters if key not in _TAKES]
            if unknown:
                raise ConfigError(
                    f"{source}: {name} takes {unknown[0]!r}: an invariant may take {' and '.join(_TAKES)}"
                )
            yield value
