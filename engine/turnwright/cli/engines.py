"""Opens the engines of commands that drive turns."""

import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from turnwright.agent import Agent
from turnwright.agents.files import read_agents
from turnwright.context import GuardrailBase, HooksBase
from turnwright.driver.subagents import AgentTool, agent_tools, primary_agents
from turnwright.errors import ConfigError
from turnwright.journal.event_bus import Observer
from turnwright.journal.links import Links
from turnwright.model.protocol import Model
from turnwright.model.providers import LOCAL
from turnwright.runtime import Runtime
from turnwright.runtime.engine import Engine
from turnwright.store import Store
from turnwright.tools import Tool
from turnwright.tools.load import LoadedTools

from .options import (
    DriverFlags,
    choose_agent,
    choose_hooks,
    choose_tools,
    model_named,
    open_models,
    with_helpers,
)
from .process import configured_telemetry

if TYPE_CHECKING:
    from turnwright.config.config import Config, EngineOptions
    from turnwright.runtime.engine import EngineArguments


#: Opens the engine, and what its tools need. An engine opens itself.
Opening = AbstractAsyncContextManager[Engine]
#: Loggers of the MCP SDK.
_NOISY: Final = ("client", "mcp", "httpx2")


def driving_model(config: "Config", model: str | None) -> str:
    """Return the full name of the model: from the flag `--model`, or from the configuration.

    Raises `ConfigError` if neither names one. The embedded model must be named to be used by a worker.
    """
    settings = config.settings
    model_id = model_named(model or settings.model, settings.base_url)
    if model_id == LOCAL.name and not (model or settings.model):
        raise ConfigError(
            "no model: name one with --model, such as --model local (the embedded one) or --model gpt-5-mini;"
            " --base-url is for a server of your own"
        )
    return model_id


def open_driver(
    store: Store,
    config: "Config",
    model: str,
    flags: DriverFlags,
    *,
    runtime: Runtime | None = None,
) -> Opening:
    """Return an engine that opens and drives the turns in `store`, configured by `flags` and else by `config`.

    Sub-agents of the sources are offered as tools. A turn uses the model of its own agent, or else `model`.
    Raises `ConfigError` for a model, a tool or an agent that is not available.
    """
    settings, options = config.settings, config.engine_options()
    sources = settings.agents if flags.agents is None else (flags.agents,)
    agents = read_agents(*sources, limits=options["limits"]) if sources else []
    return open_engine(
        options,
        models=open_models(model, None, settings.base_url, settings.timeout),
        tools=choose_tools(flags.tools or settings.tools, flags.root or Path(settings.root)),
        hooks=choose_hooks(flags.hooks or settings.hooks),
        servers=flags.mcp or tuple(map(Path, settings.mcp)),
        agents=agents,
        helpers=agent_tools(config.prepared(agent) for agent in agents),
        store=store,
        runtime=runtime,
        on_event=(),
    )


def startable_agents(source: str | None, config: "Config") -> list[Agent]:
    """Return the agents that a person can start: those of the source that are not sub-agents, or else a default one."""
    if source is None and not config.settings.agents:
        return [config.prepared(choose_agent(None, None, config)[0])]
    sources = config.agent_sources() if source is None else (source,)
    return [config.prepared(agent) for agent in primary_agents(read_agents(*sources, limits=config.limits()))]


def open_engine(
    options: "EngineOptions",
    *,
    models: tuple[Model, Callable[[str], Model]],
    tools: LoadedTools,
    hooks: tuple[Sequence[HooksBase], Sequence[GuardrailBase]],
    servers: Sequence[Path],
    agents: Sequence[Agent],
    helpers: Sequence[AgentTool],
    store: Store,
    on_event: Sequence[Observer],
    runtime: Runtime | None = None,
) -> Opening:
    """Return an engine that opens, with the options of the configuration. Raises `ConfigError`.

    `models` are its model, and a function that finds another one by its name. `servers` are files that name MCP
    servers. `agents` are registered if a journal cannot keep all of them. `helpers` are offered as tools.
    """
    model, find_model = models
    arguments: EngineArguments = {
        **cast("EngineArguments", options),
        "model": model,
        "models": find_model,
        "store": store,
        "links": Links.from_environment(os.environ),
        "on_event": on_event,
        "runtime": runtime,
        "telemetry": configured_telemetry(),
    }
    make: Callable[..., Engine] = partial(
        Engine,
        agents=[agent for agent in agents if agent.code],
        hooks=hooks[0],
        guardrails=hooks[1],
        **arguments,
    )
    # The command line gives no dependencies itself.
    make = make if tools.make_deps is None else partial(make, deps=tools.make_deps)
    return with_mcp(servers, make, with_helpers(tools.tools, helpers))


def with_mcp(files: Sequence[Path], make: Callable[..., Engine], tools: Sequence[Tool]) -> Opening:
    """Return a context manager that opens the MCP servers of `files`, and the engine with `tools` and their tools.

    Without a file it is the engine itself, so that an error of the engine is raised at once.
    """
    return _open(files, make, tools) if files else make(tools=tools)


@asynccontextmanager
async def _open(files: Sequence[Path], make: Callable[..., Engine], tools: Sequence[Tool]) -> AsyncIterator[Engine]:
    from turnwright.tools.mcp import mcp_tools  # noqa: PLC0415 (an optional extra)

    silence_mcp()
    async with mcp_tools(*files) as server_tools, make(tools=[*tools, *server_tools]) as engine:
        yield engine


def silence_mcp() -> None:
    """Hide the log of the MCP SDK. Errors of servers and calls say the same."""
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
