"""The gate of all HTTP doors: who may use a session, the bounds of a request, refusals, and streams of events.

Needs Starlette, which the extra of each HTTP protocol brings.
"""

import inspect
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Final, TypeAlias, TypeVar
from urllib.parse import quote, unquote

import anyio
from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from turnwright._base.background_task import background_task
from turnwright._base.frozen import strict_json
from turnwright.agent import Agent
from turnwright.driver.admission import check_client_tools
from turnwright.errors import (
    ConfigError,
    InvalidAnswerError,
    PicklableError,
    SessionBusyError,
    SessionNotFoundError,
    TurnAlreadyEndedError,
    TurnBusyError,
    TurnConflictError,
    TurnNotFoundError,
    need_kind,
)
from turnwright.runtime.engine import Engine
from turnwright.tools.later import ExternalTool

from .client_tools import ToolDeclaration
from .conversations import NOT_AUTHORIZED, UNFIT_ANSWER

_LOG = logging.getLogger(__name__)

JsonObject: TypeAlias = dict[str, JsonValue]
#: True or the user's name: the request may use the session. False, None or an empty name: it may not.
Access: TypeAlias = bool | str | None
Authorize: TypeAlias = Callable[[Request, str], Access | Awaitable[Access]]

#: The longest id of a session that a client may choose, in characters.
LONGEST_SESSION: Final = 128
#: How much of a body is read that is too large, as a multiple of the limit.
_DROPPED: Final = 4
#: The beginning of the sessions of named users.
_OWNED: Final = "~"
_JSON: Final = ("application/json",)
_SERVER_FAULT: Final = 500
#: Codes of JSON-RPC.
_INVALID_REQUEST, _INTERNAL_ERROR = -32600, -32603
_Piece = TypeVar("_Piece")
_UNAVAILABLE: Final = "the server cannot run this turn now"
#: Statuses and words of the engine's errors. Any other error is the server's own, and its words stay in the log.
_REFUSED: Final[Mapping[type[Exception], tuple[int, str]]] = {
    TurnNotFoundError: (404, "there is no such turn"),
    SessionNotFoundError: (404, "there is no such conversation"),
    SessionBusyError: (409, "the conversation is busy: a turn of it is running"),
    TurnBusyError: (409, "the conversation is busy: a turn of it is running"),
    TurnAlreadyEndedError: (409, "the turn has ended: send a new message"),
    TurnConflictError: (409, "a turn with this id exists already, with another request"),
    InvalidAnswerError: (409, UNFIT_ANSWER),
}


class RefusedRequestError(PicklableError, Exception):
    """A request that is refused with an HTTP `status`. `why` is for the client, without names of hosts or files."""

    def __init__(
        self, status: int, why: str, *, field: str = "", code: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.code = code
        #: Of the response, such as the kind of authorization that is needed.
        self.headers = headers or {}
        #: The field of the request that is wrong.
        self.field = field


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of all doors that share a gate.

    A request's body has `body_bytes`, and arrives within `body_seconds`. A stream lasts `stream_seconds`, and a client
    takes each piece of it within `send_seconds`. At most `requests` are served at once. A silent stream sends a comment
    every `keep_alive` seconds. Raises `ConfigError` for a value that is not a number of at least 0.
    """

    body_bytes: int = 16 * 1024 * 1024
    body_seconds: float = 30.0
    stream_seconds: float = 3600.0
    send_seconds: float = 30.0
    requests: int = 200
    keep_alive: float = 15.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
                raise ConfigError(f"bounds: {name} must be a number of at least 0, not {value!r:.80}")


@dataclass(slots=True)
class Gate:
    """Admits requests. One gate serves all doors of a server, so its bounds hold for their sum.

    `authorize(request, session)` returns whether the request may use the session: True, or the user's name. With names,
    each user has sessions of its own: the same session id of two users is two sessions, and answers are signed. It may
    be async, and may raise Starlette's `HTTPException`. It is called before anything is read or changed.
    """

    authorize: Authorize
    bounds: Bounds = field(default_factory=Bounds)
    _open: int = 0

    def __post_init__(self) -> None:
        if not callable(self.authorize):
            raise ConfigError(f"authorize must be a function, not {self.authorize!r:.80}")
        need_kind("bounds", self.bounds, Bounds, "Bounds(...)")

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Count a request while it is served. Raises `RefusedRequestError` if there are too many."""
        if self._open >= self.bounds.requests:
            raise RefusedRequestError(503, "the server has too many open requests: try again later")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    async def identify(self, request: Request, session: str) -> str:
        """Return the name of the user who may use the session; empty if the app names none.

        Raises `RefusedRequestError`.
        """
        if not 0 < len(session) <= LONGEST_SESSION or not session.isprintable():
            raise RefusedRequestError(400, f"the conversation's id must have 1 to {LONGEST_SESSION} visible characters")
        answer = self.authorize(request, session)
        access = await answer if inspect.isawaitable(answer) else answer
        if access is True and not session.startswith(_OWNED):
            return ""
        if not isinstance(access, str) or not access:
            raise RefusedRequestError(403, "no access to this conversation: send the credentials of its user")
        return access

    async def open_session(self, request: Request, conversation: str) -> tuple[str, str]:
        """Return the user who may use a conversation, and the engine's session of it. Raises what `identify` does."""
        user = await self.identify(request, conversation)
        return user, owned_session(user, conversation)

    async def read_json(self, request: Request) -> JsonObject:
        """Return the body of a request. Raises `RefusedRequestError` unless it is one JSON object within the bounds."""
        return parse_object(await self.read_body(request, _JSON))

    async def read_body(self, request: Request, media_types: Collection[str]) -> bytes:
        """Return the body of a request, of one of these types. Raises `RefusedRequestError` beyond the bounds."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in media_types:
            raise RefusedRequestError(415, f"the body must be {' or '.join(media_types)}")
        limit, size = self.bounds.body_bytes, 0
        is_too_large = _length(request) > limit
        content = bytearray()
        with anyio.move_on_after(self.bounds.body_seconds) as scope:
            try:
                # Some clients read no refusal before they have sent the body: its rest is read and dropped.
                async for piece in request.stream():
                    size += len(piece)
                    is_too_large = is_too_large or size > limit
                    if size > _DROPPED * limit:
                        break
                    if not is_too_large:
                        content += piece
            except ClientDisconnect:
                raise RefusedRequestError(400, "the body did not arrive whole") from None
        if is_too_large:
            raise RefusedRequestError(413, f"the body has more than {limit:,} bytes")
        if scope.cancelled_caught:
            raise RefusedRequestError(408, f"the body did not arrive within {self.bounds.body_seconds:g} s")
        return bytes(content)


def parse_object(content: bytes) -> JsonObject:
    """Return a JSON object. Raises `RefusedRequestError`, also for text that is not valid Unicode."""
    try:
        value = strict_json(content)
    except RecursionError:
        raise RefusedRequestError(400, "the body is not valid JSON") from None
    except ValueError as error:
        raise RefusedRequestError(400, f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise RefusedRequestError(400, "the body must be a JSON object")
    return value


def wrong_field(name: str, why: str) -> RefusedRequestError:
    """Return the refusal of a request because of one of its fields."""
    return RefusedRequestError(400, f"{name}: {why}", field=name)


def read_flag(body: JsonObject, name: str) -> bool:
    """Return a field that is true or false, by default false. Raises `RefusedRequestError`."""
    value = body.get(name)
    if not isinstance(value, bool | None):
        raise wrong_field(name, "must be true or false")
    return bool(value)


def refuse_call(refusal: RefusedRequestError) -> Response:
    """Return a refusal as an error of JSON-RPC."""
    code = _INTERNAL_ERROR if refusal.status >= _SERVER_FAULT else _INVALID_REQUEST
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": refusal.why}}, refusal.status)


def owned_session(user: str, session: str) -> str:
    """Return the engine's session of a user's conversation. No two users share one, whatever their names are."""
    return f"{_OWNED}{quote(user, safe='')}/{session}" if user else session


def user_of(session: str) -> str:
    """Return the user of an engine's session; empty if it has none."""
    return unquote(session.removeprefix(_OWNED).partition("/")[0]) if session.startswith(_OWNED) else ""


def conversation_of(session: str) -> str:
    """Return the conversation of an engine's session, without its user."""
    return session.partition("/")[2] if session.startswith(_OWNED) else session


def choose_agent(agents: Mapping[str, Agent], name: JsonValue) -> Agent:
    """Return the agent of that name, in whatever case; without a name the first one. Raises `RefusedRequestError`."""
    if name is None:
        return next(iter(agents.values()))
    agent = agents.get(name.lower()) if isinstance(name, str) else None
    if agent is None:
        raise RefusedRequestError(404, f"there is no such agent: use one of {', '.join(agents)}", field="model")
    return agent


def declare_tools(engine: Engine, agent: Agent, declarations: Sequence[ToolDeclaration]) -> tuple[ExternalTool, ...]:
    """Return the tools that a client declares for a turn of the agent. Raises `RefusedRequestError`."""
    try:
        tools = tuple(declaration.make_tool() for declaration in declarations)
        check_client_tools(engine.setup, agent, tools)
    except ConfigError as error:
        raise RefusedRequestError(400, str(error), field="tools") from None
    return tools


def refusal_of(error: Exception) -> RefusedRequestError:
    """Return the refusal of a request that ended in an error. Words of unknown errors go to the log alone."""
    if isinstance(error, RefusedRequestError):
        return error
    if isinstance(error, HTTPException):
        detail: object = error.detail  # FastAPI's is any JSON
        why = detail if isinstance(detail, str) else json.dumps(detail, default=str)
        return RefusedRequestError(error.status_code, why, headers=error.headers)
    if isinstance(error, InvalidAnswerError) and error.is_refused:
        return RefusedRequestError(403, NOT_AUTHORIZED)
    status, why = _REFUSED.get(type(error), (_SERVER_FAULT, _UNAVAILABLE))
    if status == _SERVER_FAULT:
        _LOG.error("a request failed", exc_info=error)
    if isinstance(error, InvalidAnswerError) and error.is_unfit:
        why = f"{why}: {error.why}"
    return RefusedRequestError(status, why)


def replay(content: bytes, receive: Receive) -> Receive:
    """Return a receiver that gives the body of a request again, and then what follows it."""
    bodies: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive_again() -> Message:
        return bodies.pop() if bodies else await receive()

    return receive_again


@asynccontextmanager
async def waiting(request: Request, bounds: Bounds) -> AsyncIterator[None]:
    """Leave the block after the seconds of a stream, or when the client disconnects. Its turn continues.

    The body of the request was read.
    """
    with anyio.move_on_after(bounds.stream_seconds) as scope:
        async with background_task(_cancel_on_disconnect, request.receive, scope):
            yield


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class EventStream(Response):
    """A stream of server-sent events, already encoded. It ends when the client disconnects; the turn continues.

    `lines` are closed in any case, and then `on_end` is called.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        lines: AsyncGenerator[str, None],
        bounds: Bounds,
        headers: Mapping[str, str] | None = None,
        *,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._lines = lines
        self._bounds = bounds
        self._on_end = on_end
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no", **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; of a `HEAD` request only its headers."""
        bounds, turn_to_send = self._bounds, anyio.Lock()

        async def write(text: str, *, more: bool = True) -> None:
            async with turn_to_send:
                with anyio.fail_after(bounds.send_seconds):
                    await send({"type": "http.response.body", "body": text.encode(), "more_body": more})

        async def keep_alive() -> None:
            while True:
                await anyio.sleep(bounds.keep_alive)
                await write(": keep-alive\n\n")

        try:
            async with anyio.create_task_group() as group, aclosing(self._lines) as lines:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                group.start_soon(keep_alive)
                group.start_soon(_cancel_on_disconnect, receive, group.cancel_scope)
                with anyio.move_on_after(bounds.stream_seconds):
                    async for line in lines:
                        if scope.get("method") == "HEAD":
                            break
                        await write(line)
                await write("", more=False)
                group.cancel_scope.cancel()
        except* TimeoutError:
            _LOG.info("a client did not read its stream for %g s: it is closed", bounds.send_seconds)
        finally:
            self._on_end()


def to_sse(value: Mapping[str, JsonValue], event: str = "") -> str:
    """Return JSON as a server-sent event, of this name if it has one."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def encode_stream(
    pieces: AsyncIterator[_Piece], start: str, encode: Callable[[_Piece], str], close: Callable[[str], str]
) -> AsyncGenerator[str, None]:
    """Yield a stream that begins with `start`, has each encoded piece, and ends with `[DONE]` in any case.

    `close` returns the lines before that. It gets the words of an error, which are empty if all pieces came.
    """
    yield start
    error = ""
    try:
        async for piece in pieces:
            if lines := encode(piece):
                yield lines
    except Exception as failure:  # noqa: BLE001 (the response has begun: the client gets words of ours)
        error = refusal_of(failure).why
    if lines := close(error):
        yield lines
    yield "data: [DONE]\n\n"


class Endpoint:
    """An ASGI application of one handler. It counts in the gate until its response is sent.

    `refuse` makes the protocol's response of a refusal.
    """

    def __init__(
        self,
        gate: Gate,
        handle: Callable[[Request], Awaitable[Response]],
        refuse: Callable[[RefusedRequestError], Response],
    ) -> None:
        need_kind("the gate", gate, Gate, "Gate(authorize)")
        self._gate = gate
        self._handle = handle
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        try:
            with self._gate.admitted():
                try:
                    response = await self._handle(Request(scope, receive))
                except Exception as error:  # noqa: BLE001 (a door has other clients too)
                    response = self._make_refusal(refusal_of(error))
                await response(scope, receive, send)
        except RefusedRequestError as refusal:
            await self._make_refusal(refusal)(scope, receive, send)

    def _make_refusal(self, refusal: RefusedRequestError) -> Response:
        response = self._refuse(refusal)
        response.headers.update(refusal.headers)
        return response


def _length(request: Request) -> int:
    try:
        return int(request.headers.get("content-length", "0"))
    except ValueError:
        raise RefusedRequestError(400, "the content length is not a number") from None
