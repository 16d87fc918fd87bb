"""Opening servers during a block, and offering their tools under names for the model (`server__tool`)."""

import logging
import re
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio

from turnwright._base.background_task import background_task
from turnwright.context import NOT_GIVEN, NotGiven
from turnwright.errors import ConfigError
from turnwright.tools.tool import Tool

from .config import McpServer, Policy, mcp_servers, read_mcp_config

if TYPE_CHECKING:
    import anyio.abc
    from mcp.client import Transport
    from mcp_types import Tool as Listed

    from .session import McpSession, Way

#: Seconds that a server may take until it has sent its tools.
STARTUP_TIMEOUT: Final = 60.0
#: Seconds that a person has to log in.
LOGIN_TIMEOUT: Final = 300.0

#: The longest name of a tool, the characters that names do not have, and the digits that mark a changed name.
_LONGEST: Final = 64
_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MARK_DIGITS: Final = 8

_LOG: Final = logging.getLogger(__name__)
_PLAIN: Final = McpServer(command="-")


@asynccontextmanager
async def mcp_tools(
    *sources: str | Path | Mapping[str, object],
    approve: Policy = "annotated",
    timeout: float | NotGiven | None = NOT_GIVEN,  # noqa: ASYNC109 (of a call, not of this)
    startup: float = STARTUP_TIMEOUT,
    logins: str | Path | None = None,
    tasks: bool = False,
) -> AsyncIterator[list[Tool]]:
    """Open the servers during the block. The context value is the list of their tools.

        async with mcp_tools("mcp.json") as tools, Engine(model=..., tools=[*tools, read_file]) as engine:
            await engine.run(agent, "Tidy the notes.")

    A source is the path of a configuration (`read_mcp_config`), its contents as an object with `mcpServers`, or a
    mapping of names to servers: an `McpServer`, a server object of the SDK, a function that makes a transport of the
    SDK, or an open `Client` of the SDK. A client stays open, and answers questions of the server itself.

    A tool is named `server__tool` (`tool_names`). `approve` decides which calls need approval: `annotated` (by the
    server's hints, see `approval_for`), `always`, `never`, or a function that takes a tool's `McpHints` and returns its
    `needs_approval`. Tools in a server's `auto_approve` need none. `timeout` limits one call, as that of `@tool` does,
    and `startup` the time until a server has sent its tools, both in seconds. A server's configuration may override
    the three. With `tasks` all servers may make a call a task, whose result comes later, else those whose configuration
    says so. `logins` is the folder with the logins of `mcp_login` and `turnwright mcp login`; by default see
    `mcp_login`.

    Raises `ConfigError` if the extra is not installed, for an invalid configuration, for two servers with one name, and
    for every server that does not start, or that needs a login. Then no server stays open.
    """
    try:
        from .session import McpSession  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise _explain_missing_extra(error) from None
    targets = _read_targets(sources)
    background = _BackgroundGroup()
    async with background_task(background.run):
        await background.ready.wait()
        sessions = []
        for name, (target, remedy) in targets.items():
            server = target if isinstance(target, McpServer) else _PLAIN
            way = _way(name, target, _folder(logins), remedy)
            session = McpSession(
                name,
                way,
                background.group,
                startup=server.startup or startup,
                secrets=server.secrets,
                tasks=tasks or server.tasks,
            )
            sessions.append((session, server))
        try:
            tool_lists = await _start([session for session, _ in sessions])
            yield _make_tools(sessions, tool_lists, approve=approve, timeout=timeout)
        finally:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as group:
                    for session, _ in sessions:
                        group.start_soon(session.close)


async def mcp_login(
    server: McpServer,
    *,
    show: Callable[[str], object],
    typed: Callable[[], Awaitable[str]] | None = None,
    name: str = "server",
    logins: str | Path | None = None,
    timeout: float = LOGIN_TIMEOUT,  # noqa: ASYNC109 (of a person, not of this)
) -> bool:
    """Log in at a server over HTTP, by OAuth: authorization code with PKCE, by the SDK.

        await mcp_login(McpServer(url="https://mcp.example.com/mcp"), show=print)

    `show` gets the address that a person must open. The browser returns to an address of this machine. Where it runs on
    another one, `typed` waits for the person to type the address at which the browser ended. `timeout` is the time for
    all in seconds, and `name` is for errors.

    The login is saved in a file of its own with mode 0600, in the folder `logins`; by default `turnwright/mcp` in
    `$XDG_STATE_HOME`, or else in `~/.local/state`. `mcp_tools` uses it, and refreshes it.

    Returns False if the server asked for no login. Raises `ConfigError` if it failed, or if the server has no logins.
    """
    try:
        from .login import log_in  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise _explain_missing_extra(error) from None
    return await log_in(name, server, show=show, read_address=typed, folder=_folder(logins), timeout=timeout)


def mcp_logout(server: McpServer, *, logins: str | Path | None = None) -> bool:
    """Delete the saved login at a server. Return whether there was one.

    Tokens stay valid at the server until they expire. `logins` is the folder, as for `mcp_login`.
    """
    try:
        from .login import log_out  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise _explain_missing_extra(error) from None
    return log_out(server, _folder(logins))


def _explain_missing_extra(error: ImportError) -> ConfigError:
    return ConfigError(f"MCP servers need the extra: pip install 'turnwright[mcp]' ({error})")


def _folder(logins: str | Path | None) -> Path | None:
    return Path(logins) if logins is not None else None


class _BackgroundGroup:
    """A task group in a task of its own, so that an error of the block is not wrapped in an exception group."""

    group: "anyio.abc.TaskGroup"

    def __init__(self) -> None:
        self.ready = anyio.Event()

    async def run(self) -> None:
        async with anyio.create_task_group() as self.group:
            self.ready.set()
            await anyio.sleep_forever()


def _read_targets(sources: Sequence[str | Path | Mapping[str, object]]) -> dict[str, tuple[object, str]]:
    """Return what each server is reached by, and how to log in at it, by name."""
    targets: dict[str, tuple[object, str]] = {}
    for source in sources:
        servers: Mapping[str, object]
        remedy = "call turnwright.tools.mcp.mcp_login with its McpServer"
        if isinstance(source, str | Path):
            servers = read_mcp_config(source)
        elif isinstance(source.get("mcpServers", source.get("servers")), Mapping):
            servers = mcp_servers(source)
        else:
            servers = source
        for name, target in servers.items():
            if name in targets:
                raise ConfigError(f"there are two MCP servers with the name {name!r}: rename one of them")
            if isinstance(source, str | Path):
                remedy = shlex.join(["turnwright", "mcp", "login", name, "--mcp", str(source)])
            if not (isinstance(target, McpServer) and target.disabled):
                targets[name] = (target, remedy)
    return targets


def _way(name: str, target: object, logins: Path | None, remedy: str) -> "Way":
    from mcp.client import Client  # noqa: PLC0415 (an optional extra)
    from mcp.server import MCPServer, Server  # noqa: PLC0415 (an optional extra)

    from .connect import connect_to  # noqa: PLC0415 (an optional extra)
    from .oauth import authorize_by_login  # noqa: PLC0415 (an optional extra)

    if isinstance(target, McpServer):
        return connect_to(target, authorize_by_login(target, folder=logins, remedy=remedy))
    if isinstance(target, Client | MCPServer | Server):
        return target
    if callable(target):
        make = cast("Callable[[], Transport]", target)
        return lambda _: make()
    raise ConfigError(
        f"MCP server {name!r}: give an McpServer, a server or an open client of the SDK, or a function that makes a"
        f" transport, not {type(target).__name__}"
    )


async def _start(sessions: "Sequence[McpSession]") -> "list[list[Listed]]":
    """Start all servers at once. Raises a `ConfigError` that names each server that does not start."""
    from .session import ServerDownError  # noqa: PLC0415 (an optional extra)

    tool_lists: dict[int, list[Listed]] = {}
    down: list[str] = []

    async def start_session(number: int, session: "McpSession") -> None:
        try:
            tool_lists[number] = await session.start()
        except ServerDownError as error:
            down.append(f"MCP server {session.name!r} does not start: {error}")

    async with anyio.create_task_group() as group:
        for number, session in enumerate(sessions):
            group.start_soon(start_session, number, session)
    if down:
        raise ConfigError("\n".join(sorted(down)))
    return [tool_lists[number] for number in range(len(sessions))]


def _make_tools(
    sessions: "Sequence[tuple[McpSession, McpServer]]",
    tool_lists: "Sequence[list[Listed]]",
    *,
    approve: Policy,
    timeout: float | NotGiven | None,
) -> list[Tool]:
    from .tool import McpTool, is_usable  # noqa: PLC0415 (an optional extra)
    from .wire import warn_left_out  # noqa: PLC0415 (an optional extra)

    tools_by_name: dict[tuple[str, str], tuple[McpSession, McpServer, Listed]] = {}
    for (session, server), tools in zip(sessions, tool_lists, strict=True):
        for tool in tools:
            if _is_offered(server, tool) and is_usable(session.name, tool):
                if (session.name, tool.name) in tools_by_name:
                    warn_left_out(session.name, tool.name, "the server has listed another tool of this name")
                else:
                    tools_by_name[session.name, tool.name] = (session, server, tool)
    return [
        McpTool(
            session,
            tool,
            name=name,
            policy=server.approve or approve,
            approved=_fits(tool.name, server.auto_approve),
            timeout=server.timeout or timeout,
        )
        for name, (session, server, tool) in zip(tool_names(list(tools_by_name)), tools_by_name.values(), strict=True)
    ]


def _is_offered(server: McpServer, tool: "Listed") -> bool:
    if tool.execution is not None and tool.execution.task_support == "required":
        _LOG.info("tool %s is left out: it can only be called as an MCP task, which is not supported", tool.name)
        return False
    return _fits(tool.name, server.include) and not _fits(tool.name, server.exclude)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def tool_names(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return a unique name, valid for all providers, for each pair of a server and its tool.

    A name is `server__tool`, at most 64 of a-z, A-Z, 0-9, `_` and `-`. Another character becomes `_`. A name that was
    changed, is too long, or occurs twice gets the suffix `_` and 8 digits of the pair's SHA-256. So it does not depend
    on the server's other tools. The pairs must be different.
    """
    plain = [f"{server}__{tool}" for server, tool in pairs]
    often = Counter(plain)
    return [
        name if len(name) <= _LONGEST and not _NO_NAME.search(name) and often[name] == 1 else _mark_name(name, pair)
        for name, pair in zip(plain, pairs, strict=True)
    ]


def _mark_name(name: str, pair: tuple[str, str]) -> str:
    mark = sha256("\0".join(pair).encode(errors="replace")).hexdigest()[:_MARK_DIGITS]
    return f"{_NO_NAME.sub('_', name)[: _LONGEST - _MARK_DIGITS - 1]}_{mark}"
