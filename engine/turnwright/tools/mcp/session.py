"""An open server: its session, its tools and calls, and its restart after it died.

The task that enters a scope of the SDK must also leave it, and calls come from the tasks of many batches. So each
connection is one task, which opens the session, waits, and closes it. Calls only send through it.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import anyio
import anyio.abc
import mcp_types as types
from mcp import MCPError
from mcp.client import Client, ClientRequestContext, IncomingMessage
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue, ValidationError

from turnwright._base.version import VERSION
from turnwright._base.words import cut_clean
from turnwright.privacy.secrets import Secrets
from turnwright.tools.context import ToolContext
from turnwright.tools.errors import ToolError, describe
from turnwright.tools.timing import clock_stopped

from .caller import Caller, Round
from .connect import Connect, InProcess, ServerLog, open_transport
from .tasks import (
    LONGEST_INTERVAL,
    SHORTEST_INTERVAL,
    CreatedTask,
    TaskExtension,
    TaskState,
    cancel_task,
    get_task,
    update_task,
)
from .wire import MOST_TOOLS, TOO_MANY_TOOLS

#: The connection to a server: a function that makes a transport, a server in this process, or an open client.
Way: TypeAlias = Connect | InProcess | Client

_LOG: Final = logging.getLogger(__name__)
_CLIENT_INFO: Final = types.Implementation(name="turnwright", version=VERSION)
#: Seconds for the regular shutdown of a server.
_SHUTDOWN_SECONDS: Final = 8.0
#: Seconds that a call waits for the last output of a dying server, which may take longer to end.
_EXIT_MESSAGE_SECONDS: Final = 0.5
#: The statuses with which an HTTP server refuses an unknown session.
_REFUSED: Final = (400, 404)
#: The SDK's message, in lower case, for a refusal that is not a message of the protocol.
_REFUSED_WITHOUT_WORDS: Final = "server returned an error response"
_MOST_PAGES: Final = 1_000
#: The maximum number of a server's requests in one call. The pauses of the turn limit it too.
_MOST_ROUNDS: Final = 100
#: Seconds until a task is looked at again after an error, and the characters of a task's error that are shown.
_AFTER_ERROR: Final = 30.0
_SHOWN: Final = 500
#: Seconds before a round in which the server asked for nothing but another round: the first, and the most.
_SHORTEST_REST: Final = 0.05
_LONGEST_REST: Final = 0.25

#: The call in whose context the code runs.
_CURRENT: Final[ContextVar["Caller | None"]] = ContextVar("turnwright_mcp_caller", default=None)


class ServerDownError(Exception):
    """The server cannot be reached. The message says why, without secrets."""


class Callers:
    """The running calls of one server."""

    def __init__(self) -> None:
        self._running_callers: list[Caller] = []
        self._alone = False
        self._open_requests = 0
        self._change = anyio.Event()
        #: Keeps the order of arrival. Otherwise a call that must run alone could wait for ever.
        self._turnstile = anyio.Lock()

    @asynccontextmanager
    async def run_call(self, caller: Caller, *, alone: bool) -> AsyncIterator[None]:
        """Run a call in the block. With `alone`, it waits until no other call runs, and keeps others waiting.

        The timeout clock of a waiting call is stopped, because nothing was sent yet.
        """
        with clock_stopped():
            async with self._turnstile:
                while self._alone or self._open_requests or (alone and self._running_callers):
                    await self._change.wait()
                self._running_callers.append(caller)
                self._alone = alone
        token = _CURRENT.set(caller)
        try:
            yield
        finally:
            _CURRENT.reset(token)
            self._running_callers.remove(caller)
            self._alone = False
            self._notify()

    async def find_caller(self) -> Caller | None:
        """Return the call that a server's request belongs to, or None if it is unknown. For the SDK's callback."""
        current = _CURRENT.get()
        if current is not None and current in self._running_callers:
            return current
        self._open_requests += 1
        self._notify()
        try:
            while len(self._running_callers) > self._open_requests:
                await self._change.wait()
            if len(self._running_callers) <= 1:
                return self._running_callers[0] if self._running_callers else None
            # Several calls still run, which may take long. So all of them are repeated, one after the other.
            for caller in self._running_callers:
                caller.muddled = True
            return None
        finally:
            self._open_requests -= 1
            self._notify()

    def _notify(self) -> None:
        self._change.set()
        self._change = anyio.Event()


@dataclass(eq=False)
class _Connection:
    log: ServerLog
    client: Client | None = None
    tools: list[types.Tool] = field(default_factory=list)
    error: Exception | None = None
    #: The server reported that its tools changed.
    changed: bool = False
    #: A request of the server arrives in the context of its call, or goes to the caller's own client.
    identifies_caller: bool = False
    is_lost: bool = False
    ready: anyio.Event = field(default_factory=anyio.Event)
    leave: anyio.Event = field(default_factory=anyio.Event)
    end: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def open_client(self) -> Client:
        if self.client is None:
            raise TypeError("the server is not ready")
        return self.client

    @property
    def is_dead(self) -> bool:
        return self.is_lost or self.log.has_ended or self.end.is_set()


class McpSession:
    """One server. A call after its death starts it again.

    `startup` is the time in seconds until it must have sent its tools. `secrets` are hidden in all messages. `group`
    runs the connections.
    """

    def __init__(
        self,
        name: str,
        way: Way,
        group: anyio.abc.TaskGroup,
        *,
        startup: float,
        secrets: frozenset[str] = frozenset(),
        tasks: bool = False,
    ) -> None:
        self.name = name
        #: Whether the server may make a call a task.
        self.tasks = tasks
        #: When each task may be looked at again, by the clock of the event loop.
        self._next_looks: dict[str, float] = {}
        self._way = way
        self._group = group
        self._startup = startup
        self._secrets = Secrets(secrets)
        self._connection: _Connection | None = None
        self._lock = anyio.Lock()
        self._callers = Callers()

    async def start(self) -> list[types.Tool]:
        """Connect to the server and return its tools. Raises `ServerDownError`."""
        return (await self._ensure_connection()).tools

    async def close(self) -> None:
        """Shut the server down, by force if it does not end."""
        if self._connection is not None:
            await _end(self._connection)

    def hide(self, text: str) -> str:
        """Return the text without the secrets of the server's configuration."""
        return self._secrets.hide(text)

    async def call(self, tool: str, arguments: Mapping[str, JsonValue], context: ToolContext) -> types.CallToolResult:
        """Call a tool.

        Raises `NeedsPersonError` for a question that has no answer yet, and `ToolError` for a protocol error and for a
        dead server. A cancellation is passed on to the server.
        """
        caller = Caller(self.name, context)
        while True:
            try:
                connection = await self._ensure_connection()
            except ServerDownError as down:
                raise ToolError(f"server {self.name} is down and could not be restarted: {down}") from None
            try:
                result = await self._send(connection, tool, dict(arguments), caller)
            except MCPError as error:
                await self._consider(error, connection, caller)
                continue
            if caller.needs is not None:
                raise caller.needs
            if result is not None:
                return result

    async def _send(
        self, connection: _Connection, tool: str, arguments: dict[str, JsonValue], caller: Caller
    ) -> types.CallToolResult | None:
        """Make the call once. Returns None if it must be repeated after a request of the server."""
        # An answered call gets the same question again. If requests do not name their call, it must run alone.
        alone = caller.muddled or (caller.is_again and not connection.identifies_caller)
        async with self._callers.run_call(caller, alone=alone):
            caller.muddled, caller.scope = False, anyio.CancelScope()
            result = None
            with caller.scope:
                try:
                    result = await self._request(connection, tool, arguments, caller)
                except (RuntimeError, ValidationError) as error:
                    problem = self.hide(describe(error))
                    raise ToolError(f"server {self.name}: its answer violates the protocol: {problem}") from None
        return None if caller.needs is not None or caller.muddled else result

    async def _request(
        self, connection: _Connection, tool: str, arguments: dict[str, JsonValue], caller: Caller
    ) -> types.CallToolResult:
        """Send the call, over protocol 2026-07-28 in rounds. Raises `NeedsPersonError` for the questions of a round."""
        client, pause = connection.open_client, _SHORTEST_REST
        progress, meta = partial(_pass_on, caller.context), _meta(caller.context)
        if client is self._way or client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return await client.call_tool(tool, arguments, progress_callback=progress, meta=meta)
        current = caller.resume_round()
        if current.task:
            return await self._continue_task(client, caller, current)
        for _ in range(_MOST_ROUNDS):
            caller.fill_round(current)
            send = partial(
                client.session.call_tool,
                tool,
                arguments,
                progress_callback=progress,
                input_responses={**current.responses} or None,
                request_state=current.state,
                meta=meta,
                allow_input_required=True,
                allow_claimed=True,
            )
            try:
                result = await send()
            except MCPError as error:
                if error.code != types.HEADER_MISMATCH:
                    raise
                await _list_tools(client)  # the server's schema has changed, and with it the headers of the call
                result = await send()
            if isinstance(result, types.CallToolResult):
                return result
            if isinstance(result, CreatedTask):
                seconds = None if result.ttl_ms is None else result.ttl_ms / 1000
                return await self._continue_task(client, caller, caller.begin_task(result.task_id, seconds))
            if not isinstance(result, types.InputRequiredResult):
                raise ToolError(f"server {self.name}: its answer violates the protocol: another kind of result")
            current = caller.begin_round(result)
            if not current.requests:
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_REST)
        raise ToolError(f"server {self.name}: it asked for more than {_MOST_ROUNDS} rounds in one call")

    async def _continue_task(self, client: Client, caller: Caller, current: Round) -> types.CallToolResult:
        """Return the result of a task. Raises `NeedsPersonError` for its questions, and `Later` while it works."""
        while True:
            if current.requests:
                caller.fill_round(current)
                await update_task(client.session, current.task, current.responses)
                current.answered += current.responses
                current.requests, current.responses = {}, {}
            state = await get_task(client.session, current.task)
            if state.status == "completed":
                return types.CallToolResult.model_validate(state.result)
            if state.status in ("failed", "cancelled"):
                why = state.error.get("message") or state.status_message or f"the task was {state.status}"
                raise ToolError(f"server {self.name}: {self.hide(cut_clean(str(why), _SHOWN))}")
            open_requests = {key: value for key, value in state.input_requests.items() if key not in current.answered}
            if state.status != "input_required" or not open_requests:
                self._next_looks[current.task] = anyio.current_time() + _interval(state)
                raise caller.wait_for_task()
            current.requests = caller.offered_requests(open_requests)

    async def is_ready(self, data: JsonValue) -> bool:
        """Return whether the call with this kept data can go on: its task has ended, or asks something.

        A server that cannot be reached now is asked again later.
        """
        kept_round = Round.of(data)
        if not kept_round.task or anyio.current_time() < self._next_looks.get(kept_round.task, 0.0):
            return False
        try:
            connection = await self._ensure_connection()
            state = await get_task(connection.open_client.session, kept_round.task)
        except (ServerDownError, ValidationError, RuntimeError) as error:
            _LOG.warning("server %s: task %s cannot be read now: %s", self.name, kept_round.task, describe(error))
            self._next_looks[kept_round.task] = anyio.current_time() + _AFTER_ERROR
            return False
        except MCPError:  # it does not know the task: the call says why
            return True
        self._next_looks[kept_round.task] = anyio.current_time() + _interval(state)
        return state.is_ready({*kept_round.answered})

    async def cancel_task(self, data: JsonValue) -> None:
        """Ask the server to end the task of a call that nobody waits for. Errors are ignored."""
        kept_round = Round.of(data)
        self._next_looks.pop(kept_round.task, None)
        if kept_round.task:
            with suppress(MCPError, ServerDownError, RuntimeError, ValidationError):
                await cancel_task((await self._ensure_connection()).open_client.session, kept_round.task)

    async def _consider(self, error: MCPError, connection: _Connection, caller: Caller) -> None:
        """Return if the call must be repeated, else raise `NeedsPersonError` or `ToolError`."""
        if caller.needs is not None:
            raise caller.needs from None
        if error.code == types.URL_ELICITATION_REQUIRED:
            self._visit(caller, error)
        elif self._has_forgotten_us(connection, error) and not caller.greeted:
            connection.is_lost = caller.greeted = True
        elif not caller.muddled:
            raise await self._explain_error(connection, error) from None

    def _visit(self, caller: Caller, error: MCPError) -> None:
        """Ask a person to open the addresses that the server requires. Raises `NeedsPersonError`."""
        try:
            requests = UrlElicitationRequiredError.from_error(error.error).elicitations
        except (ValidationError, AttributeError):
            requests = []
        if not requests:
            raise ToolError(f"server {self.name}: {self.hide(error.message)}")
        for request in requests:
            caller.ask(request)

    async def _explain_error(self, connection: _Connection, error: MCPError) -> ToolError:
        if connection.log.needs_login:
            await self._discard(connection)
            return ToolError(f"server {self.name} did not take the call: {self.hide(connection.log.refusal)}")
        is_closed = error.code == types.CONNECTION_CLOSED and error.message.startswith(
            ("Connection closed", "SSE stream")
        )
        if not is_closed and not connection.is_dead:
            return ToolError(f"server {self.name}: {self.hide(error.message)}")
        await self._discard(connection)
        return ToolError(
            f"server {self.name} has died{connection.log.explain()}: part of the call's work may be done; the next call"
            " restarts the server"
        )

    def _has_forgotten_us(self, connection: _Connection, error: MCPError) -> bool:
        """Whether an HTTP server refused the call because it does not know the session. Then nothing has run."""
        text = error.message.lower()
        return connection.log.status in _REFUSED and ("session" in text or text == _REFUSED_WITHOUT_WORDS)

    async def _ensure_connection(self) -> _Connection:
        async with self._lock:
            connection = self._connection
            if connection is not None and not connection.is_dead:
                return connection
            if connection is not None:
                await self._discard(connection)
            self._connection = await self._begin()
            return self._connection

    async def _discard(self, connection: _Connection) -> None:
        """End a lost connection, and read its last output.

        A task of its own ends it, because a process that does not respond takes seconds, and the call must not wait.
        """
        connection.is_lost = True
        if not (connection.end.is_set() or connection.leave.is_set()):
            connection.leave.set()
            self._group.start_soon(_end, connection)
        await _wait_until_gone(connection)

    async def _begin(self) -> _Connection:
        connection = _Connection(ServerLog(self.name, self._secrets))
        self._group.start_soon(self._run, connection)
        try:
            with anyio.move_on_after(self._startup):
                await connection.ready.wait()
        finally:
            if connection.client is None:
                connection.scope.cancel()
        if connection.client is not None:
            return connection
        await _wait_until_gone(connection)
        raise ServerDownError(self._explain_failure(connection))

    def _explain_failure(self, connection: _Connection) -> str:
        error: BaseException | None = connection.error
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if connection.log.refusal:
            return self.hide(connection.log.refusal)
        if error is None:
            problem = f"it was not ready within {self._startup:g} s"
        elif isinstance(error, ServerDownError):
            problem = str(error)
        elif isinstance(error, MCPError):
            problem = "it ended before it was ready" if error.code == types.CONNECTION_CLOSED else error.message
        else:
            problem = describe(error)
        return self.hide(problem) + connection.log.explain()

    async def _run(self, connection: _Connection) -> None:
        try:
            with connection.scope:
                if isinstance(self._way, Client):
                    await self._serve(connection, self._way)
                else:
                    async with self._client(self._way, connection) as client:
                        await self._serve(connection, client)
        except Exception as error:  # noqa: BLE001 (any error that ends a server becomes the error of its calls)
            connection.error = error
        finally:
            connection.end.set()
            connection.ready.set()

    def _client(self, way: Connect | InProcess, connection: _Connection) -> Client:
        return Client(
            open_transport(way, connection.log) if callable(way) else way,
            client_info=_CLIENT_INFO,
            elicitation_callback=self._answer,
            extensions=[TaskExtension()] if self.tasks else None,
            message_handler=partial(self._on_message, connection),
            cache=None,
        )

    async def _serve(self, connection: _Connection, client: Client) -> None:
        """Read the list of tools, then wait for the end of the connection."""
        connection.tools = await _list_tools(client)
        if connection.changed:  # some servers change their tools after the handshake, by the client's capabilities
            connection.tools = await _list_tools(client)
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        connection.identifies_caller = modern or connection.log.identifies_caller or client is self._way
        connection.client = client
        connection.ready.set()
        await connection.leave.wait()

    async def _answer(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context  # over older protocols it does not name the call
        caller = await self._callers.find_caller()
        answer = None if caller is None else caller.answer(params)
        return answer or types.ElicitResult(action="cancel")

    async def _on_message(self, connection: _Connection, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            connection.changed = True
            if connection.client is not None:
                _LOG.info("server %s has changed its tools; they are offered when it is opened again", self.name)


async def _wait_until_gone(connection: _Connection) -> None:
    with anyio.move_on_after(_EXIT_MESSAGE_SECONDS):
        await connection.end.wait()


async def _end(connection: _Connection) -> None:
    connection.leave.set()
    with anyio.CancelScope(shield=True):
        with anyio.move_on_after(_SHUTDOWN_SECONDS):
            await connection.end.wait()
        connection.scope.cancel()
        await connection.end.wait()


def _interval(state: TaskState) -> float:
    """Return the seconds until a task may be looked at again: those of the server, within bounds."""
    return min(max(SHORTEST_INTERVAL, (state.poll_interval_ms or 0) / 1000), LONGEST_INTERVAL)


def _meta(context: ToolContext) -> types.RequestParamsMeta:
    """Return the call's metadata for the server. By the key it can recognize a repeated call."""
    return {
        "turnwright/key": context.idempotency_key,
        "turnwright/turn": context.turn_id,
        "turnwright/call": context.call_id,
        "turnwright/attempt": context.attempt,
    }  # type: ignore[typeddict-unknown-key]  # an open map, which mypy does not support yet


async def _list_tools(client: Client) -> list[types.Tool]:
    if client.server_capabilities.tools is None:
        return []
    tools: list[types.Tool] = []
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
    with suppress(ValueError):  # a server may send something else than a finite number
        context.progress(progress, total, message or "")
