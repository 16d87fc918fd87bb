"""The commands of this package, which its entry points add to `turnwright`."""

import anyio

from turnwright.cli.options import DEFAULT_STORE, ConfigOption, DriverFlags, StoreOption, configuration
from turnwright.cli.runtimes import shared_store
from turnwright.cli.signals import Opening
from turnwright.cli.worker_engine import driving_model, open_driver, startable_agents
from turnwright.errors import ConfigError


def acp(
    *,
    store: StoreOption = DEFAULT_STORE,
    flags: DriverFlags,
    config: ConfigOption = None,
) -> None:
    """Serve agents to an editor that speaks the Agent Client Protocol.

    The editor starts this command, and speaks over its standard input and output. Each agent of --agents is a session
    mode. Sessions are in the store, so that they survive the editor and this process.
    """
    try:
        from turnwright_protocols.acp import serve_acp  # noqa: PLC0415 (an optional extra)
    except ModuleNotFoundError as missing:
        raise ConfigError(f"turnwright acp needs {missing.name}: pip install 'turnwright-protocols[acp]'") from None
    config_read = configuration(config, {"base_url": flags.base_url, "timeout": flags.timeout})
    opened = shared_store(store, create=True)
    opening: Opening = open_driver(opened, config_read, driving_model(config_read, flags.model), flags)
    agents = startable_agents(flags.agents, config_read)

    async def serve() -> None:
        async with opening as engine:
            await serve_acp(engine, agents)

    anyio.run(serve)
