"""`turnwright mcp`: logins at MCP servers over HTTP."""

import os
import sys
import webbrowser
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import anyio
import typer

from turnwright.errors import ConfigError
from turnwright.tools.mcp import McpServer, mcp_login, mcp_logout, read_mcp_config

from .engines import silence_mcp
from .options import ConfigOption, McpOption, configuration
from .process import echo

_TIMEOUT: Final = 300.0


class Action(StrEnum):
    LOGIN = "login"
    LOGOUT = "logout"


def mcp(
    action: Annotated[Action, typer.Argument(metavar="ACTION", help="login or logout.")],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="The server's name in the file.")],
    *,
    mcp: McpOption = None,
    config: ConfigOption = None,
    browser: Annotated[
        bool | None,
        typer.Option("--browser/--no-browser", help="Open the address, or only print it [default: on a desktop]."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="The time to log in.")
    ] = _TIMEOUT,
) -> None:
    """Log in at an MCP server, or out.

    login prints an address to open, and saves the login in a file that only you can read. logout deletes it.
    `turnwright mcp serve` serves your own agents.
    """
    target = _find_server(server, mcp or tuple(map(Path, configuration(config).settings.mcp)))
    if action is Action.LOGOUT:
        echo(f"logged out of {server}" if mcp_logout(target) else f"there was no login at {server}")
        return
    silence_mcp()
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    opens = browser if browser is not None else _has_desktop()

    def show(address: str) -> None:
        echo(f"Open this address to log in at {server}:\n\n{address}\n")
        if has_terminal:
            echo("If your browser is on another machine, paste here the address where it ends.")
        if opens:
            webbrowser.open(address)

    async def log_in() -> bool:
        read_address = _typed_line if has_terminal else None
        return await mcp_login(target, show=show, typed=read_address, name=server, timeout=timeout)

    echo(f"logged in at {server}" if anyio.run(log_in) else f"{server} asked for no login")


def _find_server(name: str, files: Sequence[Path]) -> McpServer:
    """Return the server of that name in the files. Raises `ConfigError` that names those that have logins."""
    if not files:
        raise ConfigError("no MCP servers: name their file with --mcp FILE, or with `mcp` in turnwright.toml")
    servers = {server_name: server for file in files for server_name, server in read_mcp_config(file).items()}
    if name not in servers:
        names = ", ".join(server_name for server_name, server in servers.items() if server.logs_in) or "none"
        raise ConfigError(f"there is no MCP server {name!r}. Servers with logins: {names}")
    return servers[name]


def _has_desktop() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


async def _typed_line() -> str:
    """Wait for a line from the terminal. It can be canceled."""
    await anyio.wait_readable(sys.stdin)
    line = sys.stdin.readline()
    if not line:
        await anyio.sleep_forever()  # the terminal is closed, and the browser may still come
    return line
