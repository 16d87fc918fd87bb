"""`turnwright serve`: the inspector, as pages for a browser."""

from contextlib import nullcontext
from typing import Annotated

import typer

from turnwright.engine import Engine
from turnwright.errors import ConfigError

from .interactive import Opening
from .options import (
    DEFAULT_STORE,
    ConfigOption,
    DriverFlags,
    JsonLinesOption,
    StoreOption,
    configuration,
    first_given,
)
from .runtimes import shared_store
from .server_options import LOOPBACK, PORT, PortOption, ServerOptions, TokenOption, need_extra
from .stores import store_flag, without_password
from .telemetry import Exporting
from .worker_engine import driving, driving_model


def serve(
    *,
    store: StoreOption = DEFAULT_STORE,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to serve at.")] = LOOPBACK,
    port: PortOption = PORT,
    token: TokenOption = None,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Serve where other machines reach it; needs a token of your own.")
    ] = False,
    allow_hosts: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name that browsers reach it by; may be repeated."),
    ] = None,
    root_path: Annotated[
        str, typer.Option("--root-path", metavar="PATH", help="What a proxy in front takes off the paths.")
    ] = "",
    drive: Annotated[
        bool, typer.Option("--drive", help="Drive turns that are answered, forked or taken up on the pages.")
    ] = False,
    flags: DriverFlags,
    config: ConfigOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Show turns as pages: what each step did and why it ended. Answer, steer, stop and fork them there.

    The first line that is printed is the address to open. It has a token, without which nobody gets in, and only this
    machine reaches it unless --allow-remote is given.

    Other processes may drive the turns meanwhile. What is answered on a page is left to them, or to `turnwright
    worker`; with --drive this process drives it on, with the tools and the model that the flags name, as a worker.

    Ctrl-C or SIGTERM ends it; turns that it drives are let go of, and can be resumed.
    """
    given = first_given(flags)
    if given is not None and not drive:
        raise ConfigError(f"{given}: is for driving turns: say --drive, or leave it to a worker")
    place = ServerOptions.of(host, port, token, allow_hosts or (), root_path=root_path, remote=allow_remote)
    need_extra()
    # A store that is named and not there is a mistake; the one that is looked into anyway may be made later.
    opened = shared_store(store, create=drive or store_flag(store) == "")
    opening: Opening = Engine(store=opened)
    exporting: Exporting | None = None
    if drive:
        said = configuration(config, {"base_url": flags.base_url, "timeout": flags.timeout})
        named = driving_model(said, flags.model)
        exporting = Exporting()
        opening = driving(opened, said, named, flags, telemetry=exporting.telemetry)
    from .serving import serve_pages  # noqa: PLC0415 (an extra, and the help need not wait for it)

    with nullcontext() if exporting is None else exporting.sent():
        serve_pages(opening, place, store=without_password(store), drives=drive, as_json=as_json)
