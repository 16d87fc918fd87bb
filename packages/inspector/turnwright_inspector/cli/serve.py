"""`turnwright serve`: serves the inspector as pages for a browser."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwright.agent import Agent
from turnwright.cli.options import (
    DEFAULT_STORE,
    PORT,
    ConfigOption,
    DriverFlags,
    JsonLinesOption,
    PortOption,
    StoreOption,
    configuration,
    first_given,
)
from turnwright.cli.packages import import_part
from turnwright.cli.runtimes import shared_store
from turnwright.cli.stores import store_flag, without_password
from turnwright.errors import ConfigError
from turnwright.journal.links import Links
from turnwright.runtime.engine import Engine
from turnwright.store import MemoryStore

from .server_options import LOOPBACK, ServerOptions, TokenOption

if TYPE_CHECKING:
    from turnwright.cli.engines import Opening


def serve(
    *,
    store: StoreOption = DEFAULT_STORE,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to serve on.")] = LOOPBACK,
    port: PortOption = PORT,
    token: TokenOption = None,
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Allow an address that other machines reach; needs a token of your own."),
    ] = False,
    allow_hosts: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A host name that browsers use; may be repeated."),
    ] = None,
    root_path: Annotated[
        str, typer.Option("--root-path", metavar="PATH", help="The path prefix that a proxy in front removes.")
    ] = "",
    drive: Annotated[
        bool, typer.Option("--drive", help="Drive turns that are answered, forked or resumed on the pages.")
    ] = False,
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--runs", metavar="PATH", help="Serve recorded runs of any agent, or exported turns; may be repeated."
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="NAMES", help="Serve protocols too: a2a,mcp,responses,ui. Needs --drive."),
    ] = None,
    flags: DriverFlags,
    config: ConfigOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Serve the inspector: turns as pages in a browser.

    The first line printed is the address to open, with an access token. Only this machine reaches it, unless
    --allow-remote is given.

    The process that drives a turn, or `turnwright worker`, gets the answers. With --drive, this process drives the
    turn, with the tools and the model of the flags, and a page starts turns of its agents.

    With the variables TURNWRIGHT_LINKS (an address) and TURNWRIGHT_LINK_KEYS it serves links and callbacks too.

    With --http, programs run turns of its agents with A2A, MCP (/mcp), the OpenAI SDK (/v1) or the AI SDK (/api/chat).
    They send the token as `Authorization: Bearer TOKEN`.

    With --runs, it serves files, folders and archives of recordings that `turnwright audit` reads, and no store.
    """
    doors = [] if http is None else [name.strip() for name in http.split(",")]
    if doors:
        import_part("turnwright_protocols.http_doors", "--http").need_doors(doors)
    flag = first_given(flags)
    if flag is not None and not drive:
        raise ConfigError(f"{flag}: needs --drive: give --drive, or start a worker instead")
    if http is not None and not drive:
        raise ConfigError("--http: needs --drive, because its turns run in this process")
    place = ServerOptions.of(host, port, token, allow_hosts or (), root_path=root_path, remote=allow_remote)
    if runs:
        if drive or store_flag(store):
            raise ConfigError("--runs: is served without a store: leave --drive and --store out")
        _serve_runs(runs, place, as_json=as_json)
        return
    agents: list[Agent] = []
    opening: Opening
    if drive:
        from turnwright.cli.engines import driving_model, open_driver, startable_agents  # noqa: PLC0415 (only a process that drives turns needs them)

        config_with_flags = configuration(config, {"base_url": flags.base_url, "timeout": flags.timeout})
        agent_models = driving_model(config_with_flags, flags.model)
        agents = startable_agents(flags.agents, config_with_flags)
        opening = open_driver(shared_store(store, create=True), config_with_flags, agent_models, flags)
    else:
        # A named store that does not exist is a mistake. The default store may be created later.
        turn_store = shared_store(store, create=store_flag(store) == "")
        opening = Engine(store=turn_store, links=Links.from_environment(os.environ))
    from .serving import serve_pages  # noqa: PLC0415 (slow to load)

    serve_pages(
        opening, place, store=without_password(store), drives=drive, as_json=as_json, agents=agents, doors=doors
    )


def _serve_runs(paths: Sequence[Path], place: ServerOptions, *, as_json: bool) -> None:
    from turnwright_inspector.views.run_library import RunLibrary  # noqa: PLC0415 (slow to load)

    from .serving import serve_pages  # noqa: PLC0415 (as above)

    words = f"inspector of the runs in {', '.join(map(str, paths))}; Ctrl-C stops it"
    opening = Engine(store=MemoryStore())
    with RunLibrary(paths) as library:
        serve_pages(opening, place, store="memory:", drives=False, as_json=as_json, words=words, runs=library)
