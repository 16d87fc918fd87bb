"""The dependencies of a driver: models, tools, limits, and the embedder's hooks."""

import inspect
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, get_args

import msgspec

from turnwright._base.words import name_of
from turnwright.agent import DEPS, Agent, needs_of
from turnwright.agent.fields import check_limit
from turnwright.context import (
    NOT_GIVEN,
    AppCode,
    DepsFactory,
    GuardrailBase,
    HooksBase,
    JsonObject,
    MaybeAwaitable,
    NotGiven,
)
from turnwright.errors import CannotRunError, ConfigError, need_function, need_kind, need_list, need_plain_function
from turnwright.journal.answers import Authorize
from turnwright.journal.links import Links
from turnwright.message import Message, ToolSpec
from turnwright.model.model_settings import ModelSettings, checked_settings, merge_settings
from turnwright.model.prices import Price, PublishedPrice, is_free, published_price, reports_cost
from turnwright.model.protocol import Model
from turnwright.model.retry import Backoff
from turnwright.tools.errors import describe
from turnwright.tools.loop_handle import MAX_THREADS, Threads
from turnwright.tools.schema import deps_needed
from turnwright.tools.tool import Tool
from turnwright.transcript.pairing import Unpaired
from turnwright_states import CallStatus, Limits, Usage
from turnwright_states.facts import TurnStarted

if TYPE_CHECKING:
    from turnwright.rules import Rule, RuleSet
    from turnwright.transcript.output_type import OutputType


def checked_model(model: Model) -> Model:
    """Return the model if it is one. Raises `ConfigError`, which names the ways to get one."""
    if not (isinstance(getattr(model, "name", None), str) and callable(getattr(model, "stream", None))):
        raise ConfigError(
            f"{model!r} is not a model: give an object of turnwright.model, such as OpenAIChat(...) or"
            " AnthropicMessages(...), pydantic_ai_model(...) for one of pydantic-ai's, or your own with a `name` and a"
            " method `stream`"
        )
    if inspect.iscoroutinefunction(model.stream):
        raise ConfigError(f"model {model.name}: `stream` returns its reply: it must yield it, a ModelResponse")
    if inspect.isgeneratorfunction(model.stream):
        raise ConfigError(f"model {model.name}: `stream` is a plain generator: write `async def stream`")
    seconds = getattr(model, "silence_timeout", None)
    need_kind(f"model {model.name}: silence_timeout", seconds, int | float | None, "a number of seconds")
    return model


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A call of a finished batch with its result, for `synthesize`."""

    name: str
    arguments: Mapping[str, object]
    status: CallStatus
    text: str


T = TypeVar("T")

#: Agents of whom the same is cached.
_MOST_AGENTS: Final = 64
#: What is known of agents, by the agent's id. The agent is kept too, so that its id stays unique.
ByAgent = dict[int, tuple[Agent, T]]
Prepare = Callable[[tuple[Message, ...]], MaybeAwaitable[Sequence[Message]]]
Synthesis = Callable[[tuple[FinishedCall, ...]], MaybeAwaitable[str | None]]


def _give_price(model: Model) -> str:
    remedy = (
        f'give the engine prices={{"{model.name}": Price(input=..., output=...)}}, or turnwright.toml a table'
        f' [prices."{model.name}"]'
    )
    # A client of an API passes its options on to the class of all clients.
    inits = [init for base in type(model).__mro__ if (init := vars(base).get("__init__"))]
    if any("capabilities" in inspect.signature(init).parameters for init in inits):
        remedy += ", or the model capabilities=Capabilities(reports_cost=True) if its server reports the cost"
    return remedy


class AgentTools(NamedTuple):
    """The tools of an agent, by name and as its models receive them."""

    by_name: Mapping[str, Tool]
    specs: tuple[ToolSpec, ...]


class Supplied(msgspec.Struct, frozen=True):
    """The agent of a turn, with its code, and its dependencies, from the caller of a driver.

    For a sub-agent's turn also the beginning of the turn that a person started, at the top.
    """

    agent: Agent | None = None
    deps: object = NOT_GIVEN
    origin: TurnStarted | None = None


NOTHING_SUPPLIED: Final = Supplied()


def get_or_make(cache: ByAgent[T], agent: Agent, make: Callable[[], T]) -> T:
    """Return what is known of an agent, or else make it. Turns in flight share it."""
    entry = cache.get(id(agent))
    if entry is not None:
        return entry[1]
    value = make()
    if len(cache) >= _MOST_AGENTS:
        cache.clear()
    cache[id(agent)] = (agent, value)
    return value


def deps_given(deps: object, setup: "Dependencies", *, here: bool) -> object:
    """Return the deps of a call, or `NOT_GIVEN`. `here` says that this process drives the turn.

    Raises `ConfigError` for deps that the engine does not take, or that cannot reach the workers of its runtime, and if
    they are missing.
    """
    if deps is NOT_GIVEN or (deps is None and not setup.takes_deps):
        if here and setup.takes_deps and setup.make_deps is None:
            raise ConfigError("deps: every turn of this engine needs them: give this call deps=...")
        return NOT_GIVEN
    if not setup.takes_deps:
        raise ConfigError("deps: this engine takes none: make it with Engine(deps_type=...) or Engine(deps=...)")
    if not here:
        raise ConfigError(
            "deps: they cannot be sent to a worker: leave them out, and give the workers' engine a function that makes"
            " them, Engine(deps=...)"
        )
    return deps


class Dependencies(msgspec.Struct, frozen=True):
    """The dependencies of a driver. `Engine` describes the arguments that it shares.

    `now` is the wall clock, for the expiry of interrupts. `clock`, which never goes back, measures the seconds of
    driving.

    Raises `ConfigError` for an argument of another type, a number out of range, an invalid `unpaired`, and a blank
    `show_budget_to_model`.
    """

    model: Model | None = None
    models: Callable[[str], Model] | None = None
    tools: Mapping[str, Tool] = msgspec.field(default_factory=dict)
    #: The registered agents by name. They have the code that a journal cannot keep.
    agents: Mapping[str, Agent] = msgspec.field(default_factory=dict)
    #: The engine's hooks and guardrails, which come before those of its agents.
    hooks: Sequence[HooksBase] = ()
    guardrails: Sequence[GuardrailBase] = ()
    #: Makes the `deps` of a turn (docs/rules.md#dependencies).
    make_deps: DepsFactory[object] | None = None
    #: Whether every turn of the engine needs deps, from `make_deps` or from the caller.
    takes_deps: bool = False
    limits: Limits = msgspec.field(default_factory=Limits)
    #: The rules that hold for every agent.
    rules: tuple["RuleSet", ...] = ()
    prices: Mapping[str, Price] = msgspec.field(default_factory=dict)
    history_processor: Prepare | None = None
    synthesize: Synthesis | None = None
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    max_parallel_tools: int = 8
    threads: Threads = msgspec.field(default_factory=lambda: Threads(MAX_THREADS))
    unpaired: Unpaired = "repair"
    show_budget_to_model: bool | str = False
    model_settings: ModelSettings | None = None
    strict_settings: bool = False
    stop_repetition: bool = True
    #: Decides who may answer.
    authorize: Authorize | None = None
    #: Makes links by which people answer, and callbacks for results.
    links: Links | None = None
    cancel_grace: float = 1.0
    poll_interval: float = 0.25
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    #: The data of known agents: their limits, their JSON in journals, their rules, their tools, and the types of their
    #: answers.
    limits_by_agent: ByAgent[Limits] = msgspec.field(default_factory=dict)
    journals_by_agent: ByAgent[JsonObject] = msgspec.field(default_factory=dict)
    rules_by_agent: ByAgent[tuple[JsonObject, ...]] = msgspec.field(default_factory=dict)
    tools_by_agent: ByAgent[AgentTools] = msgspec.field(default_factory=dict)
    outputs_by_agent: "ByAgent[OutputType]" = msgspec.field(default_factory=dict)
    #: The model and the name of each setting of which a warning was logged.
    warned_settings: set[tuple[str, str]] = msgspec.field(default_factory=set)

    def __post_init__(self) -> None:
        if self.unpaired not in get_args(Unpaired):
            raise ConfigError(
                "unpaired must be 'repair' or 'reject'; your own messages go into `run(message_history=...)`"
            )
        for name, count, unit in (
            ("max_parallel_tools", self.max_parallel_tools, "calls"),
            ("max_threads", self.threads.count, "threads"),
        ):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ConfigError(f"{name} must be a number of {unit}, at least 1, not {count!r}")
        for name, seconds in (("cancel_grace", self.cancel_grace), ("poll_interval", self.poll_interval)):
            need_kind(name, seconds, int | float, "a time in seconds")
            if not 0 <= seconds < math.inf or (name == "poll_interval" and not seconds):
                raise ConfigError(f"{name} must be a time in seconds, not {seconds!r}")
        need_kind("limits", self.limits, Limits, "Limits(steps=...)")
        need_kind("backoff", self.backoff, Backoff, "Backoff(initial=...)")
        need_kind("prices", self.prices, Mapping, 'prices by model name: {"gpt-5-mini": Price(input=..., output=...)}')
        for model, price in self.prices.items():
            need_kind(f"prices: {model}", price, Price, "Price(input=..., output=...)")
        need_function("history_processor", self.history_processor, "messages")
        need_function("synthesize", self.synthesize, "batch")
        need_function("authorize", self.authorize, "answering")
        need_kind("links", self.links, Links | None, "Links(base, keys=[...])")
        need_plain_function("now", self.now)
        need_plain_function("clock", self.clock)
        if self.model is not None:
            checked_model(self.model)
        checked_settings(self.model_settings, "Engine")
        if isinstance(self.show_budget_to_model, str) and not self.show_budget_to_model.strip():
            raise ConfigError("show_budget_to_model is blank: give True for the standard text, or a text of your own")

    def need_no_deps(self) -> None:
        """Raise `ConfigError` for code whose context needs dependencies, if turns of this engine have none."""
        if self.takes_deps:
            return
        code = [(f"tool {tool.name}", function) for tool in self.tools.values() for function in tool.functions]
        code += _functions_of("engine", self.hooks, self.guardrails)
        for agent in (*self.agents.values(), *_called_agents(self.tools)):
            where = f"agent {agent.name!r}"
            code += _functions_of(where, agent.hooks, agent.guardrails)
            own_code = (agent.instructions, agent.prepare_tools, *agent.output_validators)
            code += [(where, function) for function in own_code if callable(function)]
        for where, function in code:
            if deps_type := deps_needed(function):
                raise ConfigError(
                    f"{where}: {name_of(function)} needs dependencies of type {deps_type}, and this engine has none:"
                    " make it with Engine(deps=...) or Engine(deps_type=...)"
                )

    def agent_of(self, turn_id: str, agent_record: JsonObject, supplied_agent: Agent | None) -> Agent:
        """Return a turn's agent: the JSON of its journal, with the code of the agent that was given or is registered.

        Raises what `code_for` raises, and `ValidationError` for damaged data.
        """
        agent = self.code_for(turn_id, agent_record, supplied_agent)
        return Agent.from_json(agent_record) if agent is None else agent.restore(agent_record)

    def code_for(self, turn_id: str, agent_record: JsonObject, supplied_agent: Agent | None) -> Agent | None:
        """Return the agent that has the code for a turn, if there is one: the one that was given or is registered.

        Raises `CannotRunError` if the turn needs code that it does not have.
        """
        name, needs = str(agent_record.get("name")), set(needs_of(agent_record)) - {DEPS}
        agent = next(
            (
                candidate
                for candidate in (supplied_agent, self.agents.get(name))
                if candidate is not None and candidate.name == name
            ),
            None,
        )
        missing = ", ".join(sorted(needs if agent is None else needs - agent.code.keys()))
        if missing and agent is None:
            raise CannotRunError(
                f"turn {turn_id}: the journal keeps only the name of agent {name!r}, not its {missing}: register the"
                " agent, Engine(agents=[...]), or give it to the call that resumes the turn; on the command line, name"
                " it with --agents MODULE:NAME"
            )
        if missing:
            raise CannotRunError(
                f"turn {turn_id}: it began with {missing} of agent {name!r}, which sets none here: give the agent one,"
                " or an empty one"
            )
        return agent

    def need_supplied(self, turn_id: str, turn_start: TurnStarted, supplies: Supplied) -> None:
        """Raise `CannotRunError` if a turn needs what neither its caller nor this engine has.

        That is each hook and each guardrail of the engine that began the turn, by name, and its dependencies.
        """
        if turn_start.hooks or turn_start.guardrails:
            self._need_code(turn_id, turn_start)
        if supplies.deps is not NOT_GIVEN or self.make_deps is not None:
            return
        if self.takes_deps or DEPS in needs_of(turn_start.agent):
            raise CannotRunError(
                f"turn {turn_id}: it needs deps, which no journal keeps: give the engine a function that makes them,"
                " Engine(deps=...), or give them to the call that resumes the turn; on the command line,"
                " --tools names a module with make_deps"
            )

    def _need_code(self, turn_id: str, turn_start: TurnStarted) -> None:
        """Raise `CannotRunError` if the engine lacks a hook or a guardrail of the engine that began the turn."""
        hooks = missing_names(turn_start.hooks, self.hooks)
        guardrails = missing_names(turn_start.guardrails, self.guardrails)
        if hooks or guardrails:
            raise CannotRunError(
                f"turn {turn_id}: it began with {code_words(hooks, guardrails)} of its engine, missing here: give them"
                " to the engine, Engine(hooks=[...], guardrails=[...]), or on the command line, --hooks MODULE"
            )

    def output_of(self, agent: Agent) -> "OutputType | None":
        """Return the type of the agent's answer; None for text. It is cached for each agent.

        Raises `ConfigError` for a type without a JSON Schema, and for an invalid schema.
        """
        if not agent.is_typed:
            return None
        from turnwright.transcript.output_type import OutputType  # noqa: PLC0415 (few agents have one)

        make = partial(OutputType, agent.name, agent.output_type, agent.output_schema)
        return get_or_make(self.outputs_by_agent, agent, make)

    def model_for(self, agent: Agent, name: str | None = None) -> Model:
        """Return the agent's model, or the model `name` in its place. Without `models` only the engine's exists.

        Raises `ConfigError` for another model, for one that is not found, and if there is none.
        """
        name = agent.model if name is None else name
        if name is not None and self.models is not None:
            try:
                return checked_model(self.models(name))
            except ConfigError:
                raise
            except Exception as error:
                problem = describe(error)
                raise ConfigError(f"agent {agent.name!r}: model {name!r} was not found: {problem}") from error
        if name is not None and (self.model is None or self.model.name != name):
            only = "has none" if self.model is None else f"has only {self.model.name!r}"
            raise ConfigError(
                f"agent {agent.name!r}: model {name!r}: the engine {only}: give it models=, a function that"
                " returns the model of a name, or leave the agent's model out"
            )
        if self.model is None:
            raise ConfigError(f"agent {agent.name!r}: no model: give the engine one, or name one in the agent")
        return self.model

    def writer_for(self, agent: Agent) -> Model | None:
        """Return the model that writes the agent's summaries, if `compaction` names one. Raises `ConfigError`."""
        name = None if agent.compaction is None else agent.compaction.model
        return None if name is None else self.model_for(agent, name)

    def settings_for(self, agent: Agent, model: Model, run: ModelSettings | None) -> ModelSettings | None:
        """Return the settings of a turn: those of the run over the agent's over the engine's. None if there are none.

        Logs a warning for each setting that the model does not support. Raises `ConfigError` for one with
        `strict_settings`, and for settings that are none.
        """
        settings = merge_settings(self.model_settings, agent.model_settings, checked_settings(run, "this turn"))
        if settings is not None:
            self.check_settings(model, settings, strict=self.strict_settings)
        return settings

    def check_settings(self, model: Model, settings: ModelSettings, *, strict: bool) -> None:
        """See `turnwright.model.settings_mapping.check_settings`. There is one warning for each model and setting."""
        from turnwright.model.settings_mapping import check_settings  # noqa: PLC0415 (most turns have no settings)

        check_settings(model, settings, strict=strict, known_warnings=self.warned_settings)

    def price_for(self, model: Model) -> Price | PublishedPrice | None:
        """Return the price of a model: the engine's, or else the published one, which may be unknown."""
        price = self.prices.get(model.name)
        return published_price(model) if price is None else price

    def need_costs(self, agent: Agent, owner: str) -> None:
        """Raise `ConfigError` if a model of the agent or of its summaries has no price, and reports no cost."""
        for model in (self.model_for(agent), self.writer_for(agent)):
            if model is not None and self._known_price(model) is None and reports_cost(model) is False:
                raise ConfigError(f"{owner} needs the price of model {model.name!r}: {_give_price(model)}")

    def check_cost(self, model: Model, usage: Usage | None) -> None:
        """Raise `ConfigError` for a complete reply without a cost, of a model that does not say whether it reports it.

        A turn with a cost limit would spend without a bound.
        """
        has_cost = usage is not None and usage.cost > 0
        if not has_cost and self._known_price(model) is None and reports_cost(model) is None:
            raise ConfigError(
                f"the turn has a cost limit, and a reply of model {model.name!r} has no cost: {_give_price(model)},"
                " or set reports_cost=True in the model's `capabilities` if such a reply is free"
            )

    def may_cost(self, agent: Agent) -> bool:
        """Whether a turn of the agent can cost anything: its own model calls, its summaries, or a sub-agent's turn."""
        for caller, tools in self._tools_below(agent):
            try:
                models = (self.model_for(caller), self.writer_for(caller))
            except ConfigError:  # a call of this sub-agent reports it, as one without its tools
                return True
            if tools is None or not all(model is None or self._is_free(model) for model in models):
                return True
        return False

    def _is_free(self, model: Model) -> bool:
        price = self._known_price(model)
        return price is not None and is_free(price)

    def _known_price(self, model: Model) -> Price | PublishedPrice | None:
        price = self.price_for(model)
        return None if isinstance(price, PublishedPrice) and not price.is_known else price

    def tools_for(self, agent: Agent) -> Mapping[str, Tool]:
        """Return the agent's tools by name, in the order of the engine's. Raises `ConfigError` for an unknown one."""
        return get_or_make(self.tools_by_agent, agent, partial(self._tools_for, agent)).by_name

    def specs_for(self, agent: Agent) -> tuple[ToolSpec, ...]:
        """Return the agent's tools as its models receive them. Raises as `tools_for` does."""
        return get_or_make(self.tools_by_agent, agent, partial(self._tools_for, agent)).specs

    def tools_in_turn(self, turn_id: str, turn_start: TurnStarted) -> Mapping[str, Tool]:
        """Return the engine's tools, and those that the client of the turn runs. Raises `UnreadableTurnError`.

        A tool of the turn precedes one of the engine, which a later release of the app may have added.
        """
        if not turn_start.client_tools:
            return self.tools
        from turnwright.tools.later import read_client_tools  # noqa: PLC0415 (few turns have such tools)

        return {**self.tools, **read_client_tools(turn_id, turn_start.client_tools)}

    def hosted_tools(self, agent: Agent) -> tuple[str, ...]:
        """Return the names of the tools that the provider of the agent's model runs."""
        tools = getattr(self.model_for(agent), "hosted_tools", ())
        return tuple(str(tool.get("name", tool.get("type"))) for tool in tools if isinstance(tool, Mapping))

    def reached_by(self, agent: Agent) -> dict[str, Agent]:
        """Return the tools that turns of an agent and of its sub-agents may call, each with an agent that may call it.

        A sub-agent whose tools are not there reaches none: a call of it reports that.
        """
        agents_by_tool = dict[str, Agent]()
        for caller, tools in self._tools_below(agent):
            agents_by_tool = dict.fromkeys(tools or (), caller) | agents_by_tool
        return agents_by_tool

    def sub_agents_of(self, agent: Agent) -> list[Agent]:
        """Return the sub-agents that turns of an agent, and of these, may call. Those without their tools are not."""
        return [caller for caller, tools in self._tools_below(agent) if tools is not None and caller is not agent]

    def _tools_below(self, agent: Agent) -> Iterator[tuple[Agent, Mapping[str, Tool] | None]]:
        """Yield an agent and its sub-agents at any depth, each with its tools; None if one of these is not there."""
        agents = [agent]
        for caller in agents:  # the list grows as sub-agents are found
            tools: Mapping[str, Tool] | None = None
            with suppress(ConfigError):
                tools = self.tools_for(caller)
                agents += [sub_agent for sub_agent in _called_agents(tools) if sub_agent not in agents]
            yield caller, tools

    def _tools_for(self, agent: Agent) -> AgentTools:
        unknown = [name for name in agent.tools_needed if name not in self.tools]
        if unknown:
            raise no_such_tool(agent, unknown[0], self.tools)
        tools = {name: tool for name, tool in self.tools.items() if agent.may_use(name, delegates=tool.delegates)}
        return AgentTools(MappingProxyType(tools), tuple(tool.spec for tool in tools.values()))


def _called_agents(tools: Mapping[str, Tool]) -> list[Agent]:
    """Return the agents that run as sub-agents when these tools are called."""
    sub_agents = (getattr(tool, "agent", None) for tool in tools.values() if tool.delegates)
    return [agent for agent in sub_agents if isinstance(agent, Agent)]


def engine_limits(limits: Limits | None, tool_timeout: float | NotGiven | None) -> Limits:
    """Return the limits of an engine, with its `tool_timeout` if that was given. Raises `ConfigError`."""
    limits = Limits() if limits is None else limits
    need_kind("limits", limits, Limits, "Limits(steps=...)")
    if isinstance(tool_timeout, NotGiven):
        return limits
    try:
        check_limit("tool_timeout", tool_timeout)
    except ValueError as error:
        raise ConfigError(f"tool_timeout {error}") from None
    return limits.model_copy(update={"tool_timeout": tool_timeout})


def engine_rules(rules: "Sequence[Rule | RuleSet]") -> "tuple[RuleSet, ...]":
    """Return the rules of an engine. Raises `ConfigError` for another object."""
    need_list("rules", rules)
    if not rules:
        return ()
    from turnwright.rules import make_rule_sets  # noqa: PLC0415 (few engines have rules)

    return make_rule_sets(rules, "Engine")


def no_such_tool(agent: Agent, name: str, tool_names: Collection[str]) -> ConfigError:
    """Return the error about a tool that an agent names and that is not offered."""
    from turnwright_states.suggestions import find_similar_name  # noqa: PLC0415 (only after a mistake)

    server_hint = "SERVER__TOOL is a tool of an MCP server, which `run --mcp FILE` and mcp_tools() offer"
    hint = server_hint if "__" in name else "--tools or Engine(tools=...) offers more"
    if near := find_similar_name(name, tool_names):
        hint = f"did you mean {near!r}? {hint}"
    names = ", ".join(tool_names) or "none"
    return ConfigError(f"agent {agent.name!r}: tools: there is no tool {name!r} (offered: {names}); {hint}")


def agents_by_name(agents: Sequence[Agent]) -> dict[str, Agent]:
    """Return the agents by name. Raises `ConfigError` for anything else, and for two of one name."""
    by_name: dict[str, Agent] = {}
    need_list("agents", agents)
    for agent in agents:
        if not isinstance(agent, Agent):
            raise ConfigError(f"agents: {agent!r} is not an agent: write Agent(name=...)")
        if agent.name in by_name:
            raise ConfigError(f"agents: two agents are called {agent.name!r}: rename one of them")
        by_name[agent.name] = agent
    return by_name


def tools_by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """Return the tools by name. Raises `ConfigError` for an invalid tool, and for two of one name."""
    by_name: dict[str, Tool] = {}
    need_list("tools", tools)
    for tool in tools:
        if not isinstance(tool, Tool):
            kind = "hooks" if isinstance(tool, HooksBase) else "guardrails" if isinstance(tool, GuardrailBase) else ""
            advice = f"give it as {kind}=[...]" if kind else "decorate a function of yours with @tool"
            raise ConfigError(f"{tool!r:.80} is not a tool: {advice}")
        if tool.name in by_name:
            raise ConfigError(f"two tools are called {tool.name!r}: name one of them with @tool(name=...)")
        by_name[tool.name] = tool
    return by_name


def hooks_of(
    hooks: Sequence[HooksBase], where: str = "engine", tools: Collection[str] | None = None
) -> tuple[HooksBase, ...]:
    """Return hooks. Raises `ConfigError` for another object, and names where it was given.

    With the names of the engine's `tools`, also for a hook about a tool that is not among them.
    """
    need_list("hooks", hooks)
    if not hooks:
        return ()
    from .hooks.chain import check_tool_names, checked_hooks  # noqa: PLC0415 (many programs have none)

    valid_hooks = checked_hooks(hooks, where)
    if tools is not None:
        check_tool_names(valid_hooks, tools, where)
    return valid_hooks


def guardrails_of(guardrails: Sequence[GuardrailBase], where: str = "engine") -> tuple[GuardrailBase, ...]:
    """Return guardrails. Raises `ConfigError` for another object, and names where it was given."""
    need_list("guardrails", guardrails)
    if not guardrails:
        return ()
    from .hooks.chain import checked_guardrails  # noqa: PLC0415 (many programs have none)

    return checked_guardrails(guardrails, where)


def names_of(code: Sequence[AppCode]) -> tuple[str, ...]:
    """Return the names of hooks or guardrails, as the journal has them."""
    if not code:
        return ()
    from .hooks.chain import code_names  # noqa: PLC0415 (many programs have none)

    return code_names(code)


def missing_names(recorded_names: Sequence[str], code: Sequence[AppCode]) -> list[str]:
    """Return the recorded names that these hooks or guardrails lack. A name that is recorded twice is needed twice."""
    return sorted((Counter(recorded_names) - Counter(names_of(code))).elements())


def code_words(hooks: Sequence[str], guardrails: Sequence[str]) -> str:
    """Return the words for hooks and guardrails of these names, such as "hook 'cap' and guardrail 'on_topic'"."""
    names_by_kind = (("hook", hooks), ("guardrail", guardrails))
    return " and ".join(
        f"{kind}{'s' * (len(names) > 1)} {', '.join(map(repr, names))}" for kind, names in names_by_kind if names
    )


def _functions_of(
    where: str, hooks: Sequence[HooksBase], guardrails: Sequence[GuardrailBase]
) -> list[tuple[str, Callable[..., object]]]:
    if not (hooks or guardrails):
        return []
    from .hooks.chain import functions_of  # noqa: PLC0415 (many programs have none)

    return [(where, function) for function in functions_of(hooks, guardrails)]


def factory_of(deps: DepsFactory[object] | None) -> DepsFactory[object] | None:
    """Return the function that makes dependencies. Raises `ConfigError` for anything that cannot be called so."""
    if deps is None:
        return None
    if not callable(deps):
        raise ConfigError(f"deps must be an async function of the turn that makes them, not {deps!r:.80}")
    need_function(f"deps: {name_of(deps)}", deps, "turn")
    return deps
