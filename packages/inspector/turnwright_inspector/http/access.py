"""Authenticate browsers, and protect forms against other sites.

The pages show the texts of models and tools, and let a person approve and stop. The inspector prints an address with a
token; a browser that opens it receives a cookie. The cookie does not contain the token, because a browser sends a
machine's cookies to every port of it.
"""

import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwright.errors import ConfigError

from .refusals import refusal, token_required

#: The shortest token, in characters.
SHORTEST_TOKEN: Final = 16
#: The largest form, in bytes.
_HEAVIEST: Final = 1 << 20
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer` a browser hides the origin of our own forms from us too, and nothing could be checked.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}


@dataclass(frozen=True, slots=True)
class Token:
    """Require a token, by default a random one. This is the default access.

    `hosts` are the server's names besides `localhost` and numeric addresses; `*` means any. Without the check, another
    site could point its own name to this machine and act as the inspector.
    Raises `ConfigError` for a token of fewer than 16 characters, or with other characters than visible ASCII.
    """

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    hosts: Collection[str] = ()

    def __post_init__(self) -> None:
        if len(self.token) < SHORTEST_TOKEN or not all("!" <= character <= "~" for character in self.token):
            raise ConfigError(
                f"the token has {len(self.token)} characters: it needs at least {SHORTEST_TOKEN}, all of them visible"
                ' ASCII; `python -c "import secrets; print(secrets.token_urlsafe(32))"` makes one'
            )


@dataclass(frozen=True, slots=True)
class Open:
    """Require nothing: the server that mounts the inspector authorizes users. `hosts` are as in `Token`.

    Every user may answer, steer and stop every turn. Requests from other sites are still rejected, by forms signed
    with `key`. The default key is random, so processes that serve the same pages need the same secret `key`.

    Raises `ConfigError` for a key of fewer than 16 characters.
    """

    hosts: Collection[str] = ()
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def __post_init__(self) -> None:
        if len(self.key) < SHORTEST_TOKEN:
            raise ConfigError(
                f"the key of Open has {len(self.key)} characters: it needs at least {SHORTEST_TOKEN}; leave it out for"
                " a random one"
            )


Access = Token | Open


class AccessGuard:
    """Middleware that checks every request, and adds headers to every answer.

    The session's CSRF token is in `scope["state"]["csrf"]`. A request that changes something must contain it, as the
    field `csrf` of a form or as the header `X-CSRF-Token`.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._token = access.token.encode() if isinstance(access, Token) else None
        self._hosts = frozenset(host.lower() for host in access.hosts)
        # Derived from the token, so that servers with the same token accept each other's sessions.
        secret = access.key.encode() if isinstance(access, Open) else access.token.encode()
        self._key = sha256(b"turnwright inspector " + secret).digest()
        # Cookies ignore ports, so two inspectors on one machine need different names.
        self._cookie = f"turnwright_{self._sign('name', '')[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            # Addresses are made by this application, also where another one has mounted it.
            inner = {**scope, "app_root_path": scope.get("root_path", "")}
            inner.pop("router", None)
            await self._pass(inner, receive, _with_headers(inner, send))

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        response = self._wrong_host(connection) or self._way_in(scope, connection)
        if response is not None:
            await response(scope, receive, send)
            return
        programs = self._token is not None and self._has_bearer(connection.headers)
        session = self._session(connection) or (secrets.token_urlsafe(16) if self._token is None or programs else "")
        if not session:
            await (await self._with_form(scope, connection, receive))(scope, receive, send)
            return
        csrf = self._sign("csrf", session)
        scope["state"] = {**scope.get("state", {}), "csrf": csrf}
        if scope["method"] not in _SAFE:
            result = _wrong_origin(connection, self._hosts) or await _read(receive)
            if isinstance(result, bytes) and not programs and not _has_csrf(connection.headers, result, csrf):
                result = refusal(403, "This page is too old", "Load it again, and try again: its form has expired.")
            if isinstance(result, Response):
                await result(scope, receive, send)
                return
            receive = _again(result, receive)
        if not programs and not self._session(connection):
            send = _with_cookie(send, self._set_cookie(scope, session))
        await self._app(scope, receive, send)

    def _wrong_host(self, connection: HTTPConnection) -> Response | None:
        host = _name_of(connection.headers.get("host", ""))
        # Nobody can have a number point elsewhere.
        if host == "localhost" or _is_address(host) or host in self._hosts or "*" in self._hosts:
            return None
        return refusal(421, "Unknown host", "This server does not accept this host name.")

    def _way_in(self, scope: Scope, connection: HTTPConnection) -> Response | None:
        """The answer to a request with a token in its address: the cookie, and the same address without the token."""
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in query if name == "token"), None)
        return self._with_token(scope, connection, token) if token is not None and scope["method"] in _SAFE else None

    async def _with_form(self, scope: Scope, connection: HTTPConnection, receive: Receive) -> Response:
        """The answer to a request without a session: to the form of the page that asks for the token, or that page."""
        if scope["method"] in _SAFE or not _is_form(connection.headers):
            return _not_in(connection)
        body = await _read(receive)
        token = None if isinstance(body, Response) else parse_qs(body.decode("latin-1")).get("token", [None])[0]
        if token is None:
            return _not_in(connection)
        return (
            _wrong_origin(connection, self._hosts) or self._with_token(scope, connection, token) or _not_in(connection)
        )

    def _with_token(self, scope: Scope, connection: HTTPConnection, token: str) -> Response | None:
        if self._token is None:
            return None
        if not hmac.compare_digest(token.encode(), self._token):
            return _not_in(connection, wrong=bool(token))
        response = RedirectResponse(_without_token(scope), 303)
        response.headers["Set-Cookie"] = self._set_cookie(scope, secrets.token_urlsafe(16))
        return response

    def _session(self, connection: HTTPConnection) -> str:
        """Return the id of the session in the request's cookie; empty without a cookie, or for a forged one."""
        session, _, signature = connection.cookies.get(self._cookie, "").partition(".")
        good = self._sign("session", session)
        return session if session and hmac.compare_digest(signature.encode(), good.encode()) else ""

    def _set_cookie(self, scope: Scope, session: str) -> str:
        path, secure = scope.get("root_path", "") or "/", "; Secure" if scope.get("scheme") == "https" else ""
        cookie = f"{session}.{self._sign('session', session)}"
        return f"{self._cookie}={cookie}; Path={quote(path)}; HttpOnly; SameSite=Strict{secure}"

    def _has_bearer(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return (
            scheme.lower() == "bearer"
            and self._token is not None
            and hmac.compare_digest(token.strip().encode(), self._token)
        )

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), sha256).hexdigest()


def entry(address: str, access: Access) -> str:
    """Return the first page's address with the token."""
    return f"{address.rstrip('/')}/?{urlencode({'token': access.token})}" if isinstance(access, Token) else address


def _wrong_origin(connection: HTTPConnection, hosts: frozenset[str]) -> Response | None:
    """Return a refusal, if the browser reports that another site sent the request."""
    site, origin = connection.headers.get("sec-fetch-site", "same-origin"), connection.headers.get("origin")
    if site == "same-origin" and (origin is None or _is_ours(origin, connection.headers.get("host"), hosts)):
        return None
    return refusal(403, "Sent from elsewhere", "Another site has sent this form, and nothing was done.")


def _is_ours(origin: str, host: str | None, hosts: frozenset[str]) -> bool:
    try:
        return urlsplit(origin).netloc == host or _name_of(origin) in hosts
    except ValueError:
        return False


def _is_form(headers: Headers) -> bool:
    return headers.get("content-type", "").startswith("application/x-www-form-urlencoded")


def _has_csrf(headers: Headers, body: bytes, csrf: str) -> bool:
    field = headers.get("x-csrf-token", "")
    if not field and _is_form(headers):
        field = parse_qs(body.decode("latin-1")).get("csrf", [""])[0]
    return hmac.compare_digest(field.encode(), csrf.encode())


async def _read(receive: Receive) -> bytes | Response:
    """Return the body of a request, or a refusal if it is not one of our forms."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            # Half a form may say the opposite of the whole one. Nobody is left who would read this.
            return refusal(400, "Cut off", "The form did not arrive whole, and nothing was done.")
        body += message.get("body", b"")
        if len(body) > _HEAVIEST:
            return refusal(413, "Too long", f"A form may have {_HEAVIEST} bytes.")
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that repeats the body, and then continues."""
    bodies = [body]

    async def receive_again() -> Message:
        return {"type": "http.request", "body": bodies.pop(), "more_body": False} if bodies else await receive()

    return receive_again


def _with_headers(scope: Scope, send: Send) -> Send:
    below = scope["path"].removeprefix(scope.get("root_path", ""))
    cache = "no-cache" if below.startswith("/static/") else "no-store"

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            # A page with its style inside has a policy for it.
            policy = headers.get("Content-Security-Policy", _HEADERS["Content-Security-Policy"])
            headers.update({**_HEADERS, "Content-Security-Policy": policy, "Cache-Control": cache})
        await send(message)

    return send_with_headers


def _with_cookie(send: Send, cookie: str) -> Send:
    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).append("Set-Cookie", cookie)
        await send(message)

    return send_with_cookie


def _not_in(connection: HTTPConnection, *, wrong: bool = False) -> Response:
    """Return the page that asks for the token, and leads on to the page that was asked for. `wrong`: one was given."""
    is_linked = connection.headers.get("sec-fetch-site") in ("cross-site", "same-site")
    # A form of an expired page has no page of its own.
    page = wrong or connection.scope["method"] in _SAFE
    address = _without_token(connection.scope) if page else f"{quote(connection.scope.get('root_path', ''))}/"
    return token_required(address, linked=is_linked and not wrong, wrong=wrong)


def _without_token(scope: Scope) -> str:
    query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    parameters = urlencode([(name, value) for name, value in query if name != "token"])
    # One slash: with two, what follows would be another server's name.
    return "/" + quote(scope["path"].lstrip("/")) + (f"?{parameters}" if parameters else "")


def _name_of(place: str) -> str:
    try:
        return urlsplit(place if "//" in place else f"//{place}").hostname or ""
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
