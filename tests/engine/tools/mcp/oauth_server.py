"""A server over HTTP that needs a login, and its authorization server, both in threads of the test."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

TOOLS = [
    {"name": "hello", "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}},
    {"name": "admin", "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}},
]


class OAuthServer:
    """The state of the two servers, and the requests that they received."""

    def __init__(self, address: str) -> None:
        self.address = address
        #: Access tokens that are taken, with their scopes, and refresh tokens.
        self.access: dict[str, str] = {}
        self.refresh: dict[str, str] = {}
        self.codes: dict[str, dict[str, str]] = {}
        #: The forms of token requests, the metadata of registered clients, the queries of logins.
        self.token_requests: list[dict[str, str]] = []
        self.registered: list[dict[str, Any]] = []
        self.logins: list[dict[str, str]] = []
        self.lifetime: int | None = 3600
        self.denies = False
        self.rotates = True
        self.basic: list[str] = []
        self._number = 0

    @property
    def url(self) -> str:
        """The address of the MCP server."""
        return f"{self.address}/mcp"

    @property
    def issuer(self) -> str:
        """The address of the authorization server."""
        return f"{self.address}/auth"

    def new_tokens(self, scope: str) -> dict[str, Any]:
        """Give out an access token and a refresh token."""
        self._number += 1
        access, refresh = f"access-{self._number}-Zm9vYmFyYmF6", f"refresh-{self._number}-cXV4cXV1eA"
        self.access[access], self.refresh[refresh] = scope, scope
        tokens: dict[str, Any] = {"access_token": access, "token_type": "Bearer", "scope": scope}
        if self.lifetime is not None:
            tokens["expires_in"] = self.lifetime
        return tokens | ({"refresh_token": refresh} if self.rotates or self._number == 1 else {})

    def exchange(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Answer a request for tokens."""
        self.token_requests.append(form)
        match form["grant_type"]:
            case "authorization_code" if form["code"] in self.codes:
                return 200, self.new_tokens(self.codes.pop(form["code"])["scope"])
            case "refresh_token" if form["refresh_token"] in self.refresh:
                scope = self.refresh[form["refresh_token"]]
                if self.rotates:
                    del self.refresh[form["refresh_token"]]
                return 200, self.new_tokens(scope)
            case "client_credentials":
                tokens = self.new_tokens(form.get("scope", ""))
                del tokens["refresh_token"]
                return 200, tokens
        return 400, {"error": "invalid_grant"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        authority: OAuthServer = self.server.authority
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path == "/.well-known/oauth-protected-resource/mcp":
            about = {
                "resource": authority.url,
                "authorization_servers": [authority.issuer],
                "scopes_supported": ["read"],
            }
            self._send(200, about)
        elif path == "/.well-known/oauth-authorization-server/auth":
            self._send(
                200,
                {
                    "issuer": authority.issuer,
                    "authorization_endpoint": f"{authority.issuer}/authorize",
                    "token_endpoint": f"{authority.issuer}/token",
                    "registration_endpoint": f"{authority.issuer}/register",
                    "code_challenge_methods_supported": ["S256"],
                },
            )
        elif path == "/auth/authorize":
            login = {name: values[-1] for name, values in query.items()}
            authority.logins.append(login)
            code = f"code-{len(authority.logins)}"
            authority.codes[code] = {"scope": login.get("scope", "")}
            back = {"error": "access_denied", "error_description": "<no>"} if authority.denies else {"code": code}
            location = f"{login['redirect_uri']}?{urlencode(back | {'state': login['state']})}"
            self._send(302, {}, location=location)
        else:
            self._send(404, {})

    def do_POST(self) -> None:
        authority: OAuthServer = self.server.authority
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.path == "/auth/register":
            registration = json.loads(body)
            authority.registered.append(registration)
            client = {
                **registration,
                "client_id": f"client-{len(authority.registered)}",
                "token_endpoint_auth_method": "none",
            }
            self._send(201, client)
        elif self.path == "/auth/token":
            if "authorization" in self.headers:
                authority.basic.append(self.headers["authorization"])
            self._send(*authority.exchange({name: values[-1] for name, values in parse_qs(body).items()}))
        else:
            self._answer(authority, json.loads(body))

    def _answer(self, authority: OAuthServer, message: dict[str, Any]) -> None:
        scope = authority.access.get(self.headers.get("authorization", "").removeprefix("Bearer "))
        if scope is None:
            about = f"{authority.address}/.well-known/oauth-protected-resource/mcp"
            self._send(401, {}, challenge=f'Bearer resource_metadata="{about}"')
            return
        match message["method"]:
            case "initialize":
                version = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
                result: dict[str, Any] = version | {"serverInfo": {"name": "oauth", "version": "1"}}
            case "tools/list":
                result = {"tools": TOOLS}
            case "tools/call" if message["params"]["name"] == "admin" and "admin" not in scope.split():
                self._send(403, {}, challenge='Bearer error="insufficient_scope", scope="admin"')
                return
            case "tools/call":
                result = {"content": [{"type": "text", "text": "hello"}]}
            case _ if "id" not in message:
                self._send(202, {})
                return
            case _:
                error = {"code": -32601, "message": "Method not found"}
                self._send(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
                return
        self._send(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _send(self, status: int, value: dict[str, Any], *, location: str = "", challenge: str = "") -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        headers = {"location": location, "www-authenticate": challenge, "content-type": "application/json"}
        for name, text in (headers | {"content-length": str(len(data))}).items():
            if text:
                self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is the library's)
        """Write nothing."""


@contextmanager
def oauth_server() -> Iterator[OAuthServer]:
    """Serve during the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        authority = OAuthServer(f"http://127.0.0.1:{server.server_port}")
        server.authority = authority  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield authority
        finally:
            server.shutdown()
            thread.join()
