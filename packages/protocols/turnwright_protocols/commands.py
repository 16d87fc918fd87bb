"""The commands of this package, which its entry points add to `turnwright`."""

from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final

import anyio
import typer

from turnwright.cli.engines import Opening, driving_model, open_driver, startable_agents
from turnwright.cli.options import DEFAULT_STORE, ConfigOption, DriverFlags, StoreOption, configuration
from turnwright.cli.runtimes import shared_store
from turnwright.errors import ConfigError

#: The Pythons that the library of a protocol has releases for, in the words of an error.
_PYTHONS: Final = {"acp": " (Python below 3.15)"}

EditorToolsOption = Annotated[
    bool, typer.Option(help="Let the agents read and write files and run commands by the editor, if it offers that.")
]


def acp(
    *,
    store: StoreOption = DEFAULT_STORE,
    flags: DriverFlags,
    config: ConfigOption = None,
    editor_tools: EditorToolsOption = True,
) -> None:
    """Serve agents to an editor that speaks the Agent Client Protocol.

    The editor starts this command, and speaks over its standard input and output. Each agent of --agents is a session
    mode. Sessions are in the store, so that they survive the editor and this process.
    """
    _serve("acp", store, flags, config, editor_tools=editor_tools)


def mcp_serve(
    *,
    store: StoreOption = DEFAULT_STORE,
    flags: DriverFlags,
    config: ConfigOption = None,
) -> None:
    """Serve agents as the tools of an MCP server.

    The client starts this command, and speaks over its standard input and output. Each agent of --agents is a tool.
    Turns are in the store, so that a paused one survives the client and this process.
    """
    _serve("mcp", store, flags, config)


def _serve(protocol: str, store: str, flags: DriverFlags, config: Path | None, **options: bool) -> None:
    """Serve agents over standard input and output, by the protocol of this name, with its own options."""
    try:
        serve: Callable[..., Awaitable[None]] = getattr(
            import_module(f"turnwright_protocols.{protocol}"), f"serve_{protocol}"
        )
    except ModuleNotFoundError as missing:
        raise ConfigError(f"{missing}{_PYTHONS.get(protocol, '')}") from None
    config_read = configuration(config, {"base_url": flags.base_url, "timeout": flags.timeout})
    model, agents = driving_model(config_read, flags.model), startable_agents(flags.agents, config_read)
    opening: Opening = open_driver(shared_store(store, create=True), config_read, model, flags)

    async def serve_all() -> None:
        async with opening as engine:
            await serve(engine, agents, **options)

    anyio.run(serve_all)
