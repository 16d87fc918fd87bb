"""A server that is open: its session in a task of its own, its tools, its calls, its death and its return.

The SDK's scopes must be left by the task that entered them, and calls come from the tasks of many batches. So each
life of a server is one task, which opens the session, waits, and closes it; whoever calls only sends through it.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Final, TypeAlias

import anyio
import anyio.abc
from mcp import MCPError
from mcp.client import Client, ClientRequestContext, IncomingMessage
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    URL_ELICITATION_REQUIRED,
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    RequestParamsMeta,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue, ValidationError

from turnwright.privacy.secrets import Secrets
from turnwright.tools.context import ToolContext
from turnwright.tools.errors import ToolError, describe

from .callers import Caller, Callers
from .connect import Connect, Diary, InProcess, heard
from .wire import MOST_TOOLS, TOO_MANY_TOOLS

#: How a server is reached: by a transport that is made anew each time, in our own process, or by a client at hand.
Way: TypeAlias = Connect | InProcess | Client

_LOG: Final = logging.getLogger(__name__)
_CLIENT_INFO: Final = Implementation(name="turnwright", version=version("turnwright"))
#: Seconds for a server to leave in order.
_SHUTDOWN_SECONDS: Final = 8.0
#: Seconds that a call waits for what a server has to say that is dying. It may take longer to be gone.
_EXIT_MESSAGE_SECONDS: Final = 0.5
#: With these an HTTP server turns a session down that it does not know.
_REFUSED: Final = (400, 404)
#: How the SDK says, in small letters, that the refusal was not written in the protocol.
_REFUSED_WITHOUT_WORDS: Final = "server returned an error response"
_MOST_PAGES: Final = 1_000
#: How often a server may ask in one call. It is bounded by the pauses of the turn as well.
_MOST_ROUNDS: Final = 100


class ServerDownError(Exception):
    """The server cannot be reached. The message says why, without secrets."""


@dataclass(eq=False)
class _Life:
    """One process of a server, or one connection to it."""

    diary: Diary
    client: Client | None = None
    tools: list[Tool] = field(default_factory=list)
    error: Exception | None = None
    #: The server said that its tools are others now.
    changed: bool = False
    #: A question of the server comes with the call that it is about, or is none of our business.
    tells_callers: bool = False
    lost: bool = False
    ready: anyio.Event = field(default_factory=anyio.Event)
    leave: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def opened(self) -> Client:
        """The client, once it is ready."""
        if self.client is None:
            raise TypeError("the server is not ready")
        return self.client

    @property
    def is_dead(self) -> bool:
        return self.lost or self.diary.ended or self.gone.is_set()


class McpSession:
    """One server, which is started again when it is called after its death.

    `startup` is how many seconds it may take until it has told its tools. `secrets` are hidden in all that is said of
    it. `group` runs its lives.
    """

    def __init__(
        self, name: str, way: Way, group: anyio.abc.TaskGroup, *, startup: float, secrets: frozenset[str] = frozenset()
    ) -> None:
        self.name = name
        self._way = way
        self._group = group
        self._startup = startup
        self._secrets = Secrets(secrets)
        self._life: _Life | None = None
        self._lock = anyio.Lock()
        self._callers = Callers()

    async def start(self) -> list[Tool]:
        """Open it, and give its tools. Raises `ServerDownError`."""
        return (await self._alive()).tools

    async def close(self) -> None:
        """End it, in order if it lets itself be ended so."""
        if self._life is not None:
            await _end(self._life)

    def hide(self, text: str) -> str:
        """The text without the secrets of the server's configuration."""
        return self._secrets.hide(text)

    async def call(self, tool: str, arguments: Mapping[str, JsonValue], context: ToolContext) -> CallToolResult:
        """Call a tool.

        Raises `NeedsPersonError` where the server asks what nobody has answered yet, and `ToolError` for an error of
        the protocol and for a server that is dead. A cancellation is passed on to the server.
        """
        caller = Caller(self.name, context)
        while True:
            try:
                life = await self._alive()
            except ServerDownError as down:
                raise ToolError(f"server {self.name} does not run, and could not be started again: {down}") from None
            try:
                result = await self._send(life, tool, dict(arguments), caller)
            except MCPError as error:
                await self._consider(error, life, caller)
                continue
            if caller.needs is not None:
                raise caller.needs
            if result is not None:
                return result

    async def _send(
        self, life: _Life, tool: str, arguments: dict[str, JsonValue], caller: Caller
    ) -> CallToolResult | None:
        """Make the call once. None where its result does not count, for the server asked something meanwhile."""
        # Who was answered is about to be asked again: where nothing tells who is asked, nobody else may run then.
        alone = caller.muddled or (caller.is_again and not life.tells_callers)
        async with self._callers.calling(caller, alone=alone):
            caller.muddled, caller.scope = False, anyio.CancelScope()
            result = None
            with caller.scope:
                try:
                    result = await life.opened.call_tool(
                        tool, arguments, progress_callback=partial(_pass_on, caller.context), meta=_meta(caller.context)
                    )
                except (RuntimeError, ValidationError) as error:
                    said = self.hide(describe(error))
                    raise ToolError(f"server {self.name}: its answer does not fit the protocol: {said}") from None
        return None if caller.needs is not None or caller.muddled else result

    async def _consider(self, error: MCPError, life: _Life, caller: Caller) -> None:
        """Return where the call is to be made again. Raises `NeedsPersonError` or `ToolError` where it is not."""
        if caller.needs is not None:
            raise caller.needs from None
        if error.code == URL_ELICITATION_REQUIRED:
            self._visit(caller, error)
        elif self._has_forgotten_us(life, error) and not caller.greeted:
            life.lost = caller.greeted = True
        elif not caller.muddled:
            raise await self._explained(life, error) from None

    def _visit(self, caller: Caller, error: MCPError) -> None:
        """Have a person open the addresses without which the server does not go on. Raises `NeedsPersonError`."""
        try:
            asked = UrlElicitationRequiredError.from_error(error.error).elicitations
        except (ValidationError, AttributeError):
            asked = []
        if not asked:
            raise ToolError(f"server {self.name}: {self.hide(error.message)}")
        for one in asked:
            caller.visit(one)

    async def _explained(self, life: _Life, error: MCPError) -> ToolError:
        closed = error.code == CONNECTION_CLOSED and error.message.startswith(("Connection closed", "SSE stream"))
        if not closed and not life.is_dead:
            return ToolError(f"server {self.name}: {self.hide(error.message)}")
        await self._dismiss(life)
        return ToolError(
            f"server {self.name} has died{life.diary.tell()}: a part of the call's work may be done; the server is"
            " started again at the next call"
        )

    def _has_forgotten_us(self, life: _Life, error: MCPError) -> bool:
        """Whether an HTTP server refused the call for it does not know the session (any more): nothing has run then."""
        said = error.message.lower()
        return life.diary.status in _REFUSED and ("session" in said or said == _REFUSED_WITHOUT_WORDS)

    async def _alive(self) -> _Life:
        async with self._lock:
            life = self._life
            if life is not None and not life.is_dead:
                return life
            if life is not None:
                await self._dismiss(life)
            self._life = await self._begin()
            return self._life

    async def _dismiss(self, life: _Life) -> None:
        """End a life that is lost, and hear its last words.

        It is ended by a task of its own: a process that does not listen takes seconds, which are not those of a call.
        """
        life.lost = True
        if not (life.gone.is_set() or life.leave.is_set()):
            life.leave.set()
            self._group.start_soon(_end, life)
        await _gone_soon(life)

    async def _begin(self) -> _Life:
        life = _Life(Diary(self.name, self._secrets))
        self._group.start_soon(self._live, life)
        try:
            with anyio.move_on_after(self._startup):
                await life.ready.wait()
        finally:
            if life.client is None:
                life.scope.cancel()
        if life.client is not None:
            return life
        await _gone_soon(life)
        raise ServerDownError(self._why(life))

    def _why(self, life: _Life) -> str:
        error: BaseException | None = life.error
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if life.diary.refused:
            return self.hide(life.diary.refused)
        if error is None:
            said = f"it was not ready within {self._startup:g} s"
        elif isinstance(error, ServerDownError):
            said = str(error)
        elif isinstance(error, MCPError):
            said = "it ended before it was ready" if error.code == CONNECTION_CLOSED else error.message
        else:
            said = describe(error)
        return self.hide(said) + life.diary.tell()

    async def _live(self, life: _Life) -> None:
        try:
            with life.scope:
                if isinstance(self._way, Client):
                    await self._serve(life, self._way)
                else:
                    async with self._client(self._way, life) as client:
                        await self._serve(life, client)
        except Exception as error:  # noqa: BLE001 (whatever ends a server is told to those who call it)
            life.error = error
        finally:
            life.gone.set()
            life.ready.set()

    def _client(self, way: Connect | InProcess, life: _Life) -> Client:
        return Client(
            heard(way, life.diary) if callable(way) else way,
            client_info=_CLIENT_INFO,
            elicitation_callback=self._answer,
            message_handler=partial(self._hear, life),
            input_required_max_rounds=_MOST_ROUNDS,
            cache=None,
        )

    async def _serve(self, life: _Life, client: Client) -> None:
        """Ask for the tools, and stay until it is time to leave."""
        life.tools = await _listed(client)
        if life.changed:  # by the greeting, with which some servers find out what we can
            life.tools = await _listed(client)
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        life.tells_callers = modern or life.diary.tells_callers or client is self._way
        life.client = client
        life.ready.set()
        await life.leave.wait()

    async def _answer(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        caller = await self._callers.whose()
        answer = None if caller is None else caller.answer(params)
        if answer is not None:
            return answer
        if context.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            # There the server waits for nothing: an error ends the call on our side alone.
            return ErrorData(code=INVALID_REQUEST, message="a person has to answer first")
        return ElicitResult(action="cancel")

    async def _hear(self, life: _Life, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            life.changed = True
            if life.client is not None:
                _LOG.info("server %s has other tools now; they are offered when it is opened again", self.name)


async def _gone_soon(life: _Life) -> None:
    with anyio.move_on_after(_EXIT_MESSAGE_SECONDS):
        await life.gone.wait()


async def _end(life: _Life) -> None:
    life.leave.set()
    with anyio.CancelScope(shield=True):
        with anyio.move_on_after(_SHUTDOWN_SECONDS):
            await life.gone.wait()
        life.scope.cancel()
        await life.gone.wait()


def _meta(context: ToolContext) -> RequestParamsMeta:
    """What the server is told of the call: with the key it can see that it has done it before."""
    return {
        "turnwright/key": context.idempotency_key,
        "turnwright/turn": context.turn_id,
        "turnwright/call": context.call_id,
        "turnwright/attempt": context.attempt,
    }  # type: ignore[typeddict-unknown-key]  # it is an open map, which mypy does not know yet


async def _listed(client: Client) -> list[Tool]:
    """All pages of the server's tools."""
    if client.server_capabilities.tools is None:
        return []
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        if len(tools) > MOST_TOOLS:
            raise ServerDownError(TOO_MANY_TOOLS)
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


async def _pass_on(context: ToolContext, progress: float, total: float | None, message: str | None) -> None:
    with suppress(ValueError):  # a server may send what is no number
        context.progress(progress, total, message or "")
