"""From the flags of `run` and `chat` to an agent, an engine that opens, and the metadata that a turn keeps of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue, ValidationError

from turnwright.agent import AGENTS_FILE, DEPS, Agent, needs_of
from turnwright.context import GuardrailBase, HooksBase
from turnwright.driver.dependencies import code_words, missing_names
from turnwright.driver.subagents import AgentTool, agent_tools
from turnwright.errors import ConfigError, StoreError
from turnwright.journal.driving_status import by_command_line
from turnwright.journal.event_bus import Observer
from turnwright.model.model_settings import ModelSettings, merge_settings
from turnwright.model.protocol import Model
from turnwright.model.providers import split_name
from turnwright.tools.load import names_code
from turnwright.transcript.request_builder import settings_in
from turnwright_states import Limits
from turnwright_states.facts import TurnStarted

from . import process
from .engines import Opening, open_engine
from .options import (
    DriverFlags,
    choose_agent,
    choose_hooks,
    choose_tools,
    configuration,
    model_named,
    open_models,
    read_metadata,
    read_settings,
    with_limits,
)
from .runtimes import Service, WorkersModel
from .saved_options import SavedOptions
from .turn_flags import TurnFlags

if TYPE_CHECKING:
    from turnwright.config.config import Config


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """An agent, an engine, limits, metadata and model settings for new turns."""

    agent: Agent
    opening: Opening
    limits: Limits
    metadata: dict[str, JsonValue]
    settings: ModelSettings | None


def plan_turn(
    turn_flags: TurnFlags, on_event: Sequence[Observer], *, service: Service, before: TurnStarted | None
) -> TurnPlan:
    """Return what new turns run with: flags first, then the options kept by the turn before, then the configuration.

    `before` is the first fact of the turn to continue from.

    Raises `ConfigError` for an agent, a model, a tool or a file that is not available.
    """
    flags, settings, metadata = turn_flags.driver, read_settings(turn_flags.setting), read_metadata(turn_flags.metadata)
    steps, config = turn_flags.steps, turn_flags.config
    saved_options = SavedOptions() if before is None else SavedOptions.from_json(before.metadata)
    if before is not None and not by_command_line(before.metadata) and flags.model is None and flags.base_url is None:
        raise ConfigError(
            f"the turn was run by another program, which has its model {before.model!r} and its tools: continue it"
            " there, or name a model with --model, and the tools with --tools"
        )
    has_flags = turn_flags.agent is not None or flags.agents is not None
    shared_values = {"limits.tool_timeout": turn_flags.tool_timeout}
    full_config = configuration(
        config, {"limits.steps": steps, "base_url": flags.base_url, "timeout": flags.timeout, **shared_values}
    )
    # --steps is for the turn's own agent. Its sub-agents have the steps of their files and of the configuration.
    for_all = full_config if steps is None else configuration(config, shared_values)
    options = for_all.engine_options()
    if has_flags or before is None:
        agent, helper_agents = choose_agent(turn_flags.agent, flags.agents, full_config)
        if not has_flags:
            _say_unused(Path(*full_config.settings.agents[:1] or [AGENTS_FILE]))
        agent, helpers = (
            full_config.prepared(agent),
            agent_tools(for_all.prepared(helper.agent) for helper in helper_agents),
        )
    else:
        limits = {"steps": steps, "tool_timeout": turn_flags.tool_timeout}
        agent, helpers = with_limits(_agent_again(before, saved_options), limits), saved_options.helpers()
        options["limits"] = saved_options.limits or before.limits
    url = full_config.settings.base_url if before is None else saved_options.endpoint(flags.base_url)
    timeout = saved_options.silence(flags.timeout, full_config.settings.timeout)
    if flags.base_url is not None and flags.model is not None:
        _need_endpoint(flags.model, url)
    model_asked = (
        flags.model
        or (agent.model if has_flags else None)
        or saved_options.model
        or agent.model
        or full_config.settings.model
    )
    model_id = model_named(model_asked, url)
    if not service.embedded and flags.model is not None:
        agent = agent.model_copy(update={"model": model_id})  # workers know of a turn only what its journal has
    tools = flags.tools or saved_options.tools or full_config.settings.tools
    root = flags.root or saved_options.root or Path(full_config.settings.root)
    hooks = flags.hooks or saved_options.hooks or full_config.settings.hooks
    acting, checking = choose_hooks(hooks)
    if before is not None:
        _need_code(before, acting, checking)
    sources = (
        saved_options.agents
        if not has_flags and before is not None
        else _sources_of_code(agent, helpers, flags, full_config)
    )
    servers = flags.mcp or saved_options.mcp or tuple(map(Path, full_config.settings.mcp))
    saved_options = SavedOptions.of(
        model=model_id,
        base_url=url,
        from_flag=flags.base_url is not None or saved_options.from_flag,
        timeout=timeout,
        tools=tools,
        root=root,
        mcp=servers,
        hooks=hooks,
        agents=sources,
        helpers=helpers,
        limits=options["limits"],
    )
    earlier = {} if before is None else SavedOptions.others_in(before.metadata)
    all_metadata = {**earlier, **metadata, **saved_options.to_json()}
    if service.embedded:
        models: tuple[Model, Callable[[str], Model]] = open_models(model_id, agent, url, timeout)
    else:
        models = WorkersModel(model_id), WorkersModel.with_name
    opening = open_engine(
        options,
        models=models,
        tools=choose_tools(tools, root),
        hooks=(acting, checking),
        servers=servers,
        agents=saved_options.registered() if before is not None and not has_flags else [],
        helpers=helpers,
        store=service.store(turn_flags.store),
        runtime=service.runtime(),
        on_event=on_event if service.embedded else [],
    )
    if before is not None and not has_flags:
        settings = merge_settings(settings_in(before), settings)
    return TurnPlan(agent, opening, options["limits"], all_metadata, settings)


def _sources_of_code(
    agent: Agent, helpers: Sequence[AgentTool], flags: DriverFlags, config: "Config"
) -> tuple[str, ...]:
    """Return the sources of the agents if one has code, which is loaded again when the turn is resumed."""
    if not any(member.code for member in (agent, *(helper.agent for helper in helpers))):
        return ()
    return config.agent_sources() if flags.agents is None else (flags.agents,)


def same_agent(before: TurnStarted) -> Agent:
    """Return the agent of a recorded turn, without its code. Raises `StoreError` for a record that is damaged."""
    try:
        return Agent.from_json(before.agent)
    except ValidationError as error:
        raise StoreError(f"the agent of the turn to continue from is damaged: {error.errors()[0]['msg']}") from None


def _agent_again(before: TurnStarted, saved_options: SavedOptions) -> Agent:
    """Return the agent of a recorded turn, with the code of its saved source.

    Raises `ConfigError` if the source no longer has some of the code: a new turn must not lose a guardrail.
    """
    agent = same_agent(before)
    registered_agent = next(
        (candidate for candidate in saved_options.registered() if candidate.name == agent.name), agent
    )
    missing = {*needs_of(before.agent)} - {DEPS, *registered_agent.code}
    if missing:
        raise ConfigError(
            f"agent {agent.name!r}: the earlier turn had {', '.join(sorted(missing))}, which no file names now:"
            " name the source of the agent with --agents"
        )
    return registered_agent.restore(before.agent)


def _need_code(before: TurnStarted, hooks: Sequence[HooksBase], guardrails: Sequence[GuardrailBase]) -> None:
    """Raise `ConfigError` if hooks or guardrails of the earlier turn's engine are missing: a new turn keeps them."""
    missing = missing_names(before.hooks, hooks), missing_names(before.guardrails, guardrails)
    if any(missing):
        raise ConfigError(
            f"the earlier turn had {code_words(*missing)} of its engine, missing here: name the modules with --hooks"
        )


def _say_unused(file: Path) -> None:
    """Say that a file has agents, or cannot be read, and that a plain assistant runs. No code of the file is loaded."""
    from turnwright.agents.front_matter import UnreadableFileError, read_text  # noqa: PLC0415 (many turns need none)
    from turnwright.agents.markdown import names_in  # noqa: PLC0415 (as above)

    if not file.is_file() or names_code(str(file)):
        return
    try:
        names = names_in(read_text(file))
    except UnreadableFileError as error:
        process.say(f"{file} is not used: it {error.why}")
        return
    if len(names) == 1:
        process.say(f"{file} is not used: --agents {file} runs its agent")
    elif names:
        process.say(f"{file} is not used: --agents {file} --agent NAME runs one of its agents: {', '.join(names)}")


def _need_endpoint(model: str, url: str | None) -> None:
    """Raise `ConfigError` for a model that runs at no address."""
    model_id = model_named(model, url)
    if "base_url" not in split_name(model_id)[0].options:
        raise ConfigError(f"--base-url: model {model_id} takes no address: leave one of the two flags out")
