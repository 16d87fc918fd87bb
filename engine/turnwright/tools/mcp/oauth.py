"""OAuth of servers over HTTP, by the SDK's providers: with a saved login, a person's login, or the client's own key."""

import logging
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import issuers_match, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, ValidationError

from turnwright._base.regular_files import read_regular

from .config import McpOAuth, McpServer
from .connect import Authorize, ServerLog

_LOG: Final = logging.getLogger(__name__)
_MAX_BYTES: Final = 1024 * 1024
_DIGITS: Final = 16


class SavedLogin(BaseModel):
    """The tokens of a login, and all that their refresh needs in another process."""

    model_config = ConfigDict(hide_input_in_errors=True)

    server: str = ""
    client: OAuthClientInformationFull | None = Field(default=None, repr=False)
    tokens: OAuthToken | None = Field(default=None, repr=False)
    #: The time at which the access token expires, in seconds since 1970. None if unknown.
    expires_at: float | None = None
    resource: ProtectedResourceMetadata | None = None
    authorization_server: OAuthMetadata | None = None
    #: Scopes that a call has lacked. The next login asks for them too.
    lacking: str = ""

    @property
    def secrets(self) -> list[str]:
        """The values that no message may show."""
        values = (
            self.tokens and self.tokens.access_token,
            self.tokens and self.tokens.refresh_token,
            self.client and self.client.client_secret,
        )
        return [value for value in values if value]


class LoginFile:
    """The file of a server's login, which only its owner can read; a journal has none of it.

    Servers with one address and one client share it, whatever their names are. `folder` is by default `turnwright/mcp`
    in `$XDG_STATE_HOME`, or else in `~/.local/state`.
    """

    def __init__(self, server: McpServer, folder: Path | None = None) -> None:
        client = server.oauth.client_id if server.oauth is not None else ""
        host = re.sub(r"[^a-z0-9.-]", "_", (urlsplit(server.url).hostname or "").lower())
        mark = sha256(f"{server.url}\0{client}".encode()).hexdigest()[:_DIGITS]
        self._server = server.url
        self.path = (folder or _default_folder()).expanduser() / f"{host[:100]}-{mark}.json"

    def read(self) -> SavedLogin:
        """Return the saved login. It is empty if there is none, and, with a warning, if the file cannot be read."""
        try:
            return SavedLogin.model_validate_json(read_regular(self.path, _MAX_BYTES))
        except FileNotFoundError:
            pass
        except ValidationError:
            _LOG.warning("the saved login in %s is damaged: log in again", self.path)
        except OSError as error:
            _LOG.warning("the saved login in %s cannot be read: %s", self.path, error.strerror)
        return SavedLogin()

    def write(self, login: SavedLogin) -> None:
        """Replace the file in one step. Its mode is 0600, and that of a new folder 0700. Raises `OSError`."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = login.model_copy(update={"server": self._server}).model_dump_json(exclude_none=True).encode()
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f"{self.path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise

    def remove(self) -> bool:
        """Delete the file. Return whether there was one. Raises `OSError`."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True


def _default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / "turnwright" / "mcp"


#: Shows a person the address to log in at, and returns what the browser brings back.
Ask: TypeAlias = Callable[[str], Awaitable[AuthorizationCodeResult]]

_CLIENT_NAME: Final = "Turnwright"
#: The redirect address where nobody can log in. It is never used.
_NOWHERE: Final = "http://127.0.0.1/callback"


class LoginNeededError(Exception):
    """A person must log in, and this process cannot ask one."""


class _ClientMetadata(OAuthClientMetadata):
    """The client's metadata. The SDK sets `scope` to the server's proposal; the configuration comes first."""

    configured: str = Field(default="", exclude=True)
    lacking: str = Field(default="", exclude=True)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "scope" and (value is None or isinstance(value, str)):
            value = self.configured or union_scopes(self.lacking, value)
        super().__setattr__(name, value)


class LoginProvider(OAuthClientProvider):
    """Authorization by a person, who logs in once. Later processes use and refresh the saved login.

    Without `ask`, nobody can log in here: then a lost login is reported to `log`. It is its own token storage.
    """

    def __init__(
        self, server: McpServer, file: LoginFile, log: ServerLog, *, ask: Ask | None = None, redirect: str = _NOWHERE
    ) -> None:
        self._oauth = server.oauth or McpOAuth()
        self._file = file
        self._log = log
        self._ask = ask
        self._address = ""
        #: The refresh tokens that were refused.
        self._refused_tokens: set[str] = set()
        #: The status of the server's last answer, without those of its authorization server.
        self._status = 0
        metadata = _ClientMetadata(
            client_name=_CLIENT_NAME,
            redirect_uris=[AnyUrl(redirect)],
            configured=self._oauth.scope,
            lacking=file.read().lacking,
        )
        super().__init__(
            server.url, metadata, self, self._show, self._wait_for_code, self._oauth.client_metadata_url or None
        )

    async def get_tokens(self) -> OAuthToken | None:
        """Return the saved tokens. A new login begins without."""
        return None if self._ask is not None else self._read_saved().tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Save new tokens, with all that their refresh needs."""
        context = self.context
        login = SavedLogin(
            client=context.client_info,
            tokens=tokens,
            expires_at=context.token_expiry_time,
            resource=context.protected_resource_metadata,
            authorization_server=context.oauth_metadata,
        )
        self._refused_tokens.clear()
        self._log.secrets.add(login.secrets)
        self._file.write(login)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the configured client, or the one that an earlier login has registered."""
        oauth, client = self._oauth, self._read_saved().client
        if not oauth.client_id:
            return client if self._ask is None or _fits(client, self.context.client_metadata) else None
        return OAuthClientInformationFull(
            client_id=oauth.client_id,
            client_secret=oauth.client_secret or None,
            redirect_uris=self.context.client_metadata.redirect_uris,
            token_endpoint_auth_method=client.token_endpoint_auth_method if client is not None else None,
            issuer=oauth.issuer or None,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Save the client that was registered."""
        saved_login = self._read_saved().model_copy(update={"client": client_info})
        self._log.secrets.add(saved_login.secrets)
        self._file.write(saved_login)

    async def _initialize(self) -> None:
        # The SDK loads tokens without the time when they expire, and without the address that refreshes them.
        await super()._initialize()
        saved_login, context = self._read_saved(), self.context
        if context.current_tokens is not None:
            context.token_expiry_time = saved_login.expires_at
            context.protected_resource_metadata = context.protected_resource_metadata or saved_login.resource
            if context.oauth_metadata is None and saved_login.authorization_server is not None:
                context.oauth_metadata = saved_login.authorization_server
                context.auth_server_url = str(saved_login.authorization_server.issuer)

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = super()._auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                if outgoing is request:
                    self._status = response.status_code
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def _select_authorization_server(  # pyright: ignore[reportIncompatibleMethodOverride] (the SDK gives it by place)
        self, servers: list[str]
    ) -> str:
        issuer = self._oauth.issuer
        return next((server for server in servers if issuer and issuers_match(server, issuer)), servers[0])

    async def _perform_authorization(self) -> httpx2.Request:
        context, issuer = self.context, self._oauth.issuer
        metadata = context.oauth_metadata
        if issuer and (metadata is None or not issuers_match(str(metadata.issuer), issuer)):
            raise OAuthFlowError(f"the server does not use the configured authorization server {issuer}")
        client = context.client_info
        if client is not None and client.client_secret and client.token_endpoint_auth_method is None:
            # The SDK would send no secret.
            methods = metadata.token_endpoint_auth_methods_supported if metadata is not None else None
            basic = methods is None or "client_secret_basic" in methods
            client.token_endpoint_auth_method = "client_secret_basic" if basic else "client_secret_post"
        if self._ask is not None:
            return await super()._perform_authorization()
        return await self._refresh_once_more()

    async def _refresh_once_more(self) -> httpx2.Request:
        """Refresh a token that the server refuses although it has not expired, or that another process has replaced."""
        context, saved_login = self.context, self._read_saved()
        refresh = saved_login.tokens.refresh_token if saved_login.tokens is not None else None
        if self._status == HTTPStatus.FORBIDDEN:  # a scope is missing, which the same login cannot give
            self._file.write(saved_login.model_copy(update={"lacking": context.client_metadata.scope or ""}))
        elif refresh is not None and refresh not in self._refused_tokens:
            context.current_tokens = saved_login.tokens
            return await self._refresh_token()
        raise self._needs_login()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        if self._ask is None and not response.is_success:
            raise self._needs_login()
        before = self.context.current_tokens
        await super()._handle_token_response(response)
        tokens = self.context.current_tokens
        if self._ask is None and before is not None and tokens is not None and tokens.refresh_token is None:
            tokens.refresh_token = before.refresh_token
            await self.set_tokens(tokens)

    async def _refresh_token(self) -> httpx2.Request:
        if self.context.current_tokens is not None and self.context.current_tokens.refresh_token is not None:
            self._refused_tokens.add(self.context.current_tokens.refresh_token)
        return await super()._refresh_token()

    def _read_saved(self) -> SavedLogin:
        saved_login = self._file.read()
        self._log.secrets.add(saved_login.secrets)
        return saved_login

    def _needs_login(self) -> LoginNeededError:
        self._log.require_login()
        return LoginNeededError(self._log.refusal)

    async def _show(self, address: str) -> None:
        self._address = address

    async def _wait_for_code(self) -> AuthorizationCodeResult:
        if self._ask is None:
            raise self._needs_login()
        return await self._ask(self._address)


class _NoStorage:
    """A token storage that keeps nothing: a client with a key of its own gets new tokens at any time."""

    def __init__(self, log: ServerLog) -> None:
        self._log = log

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._log.secrets.add(SavedLogin(tokens=tokens).secrets)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass


def authorize_by_login(server: McpServer, *, folder: Path | None, remedy: str) -> Authorize:
    """Return the authorization of a server's connections in a process that cannot ask a person.

    Without a saved login, requests are sent without authorization. `remedy` says how to log in.
    """
    return partial(_authorize, server, folder, remedy)


def _authorize(server: McpServer, folder: Path | None, remedy: str, log: ServerLog) -> httpx2.Auth | None:
    if server.oauth is not None and server.oauth.grant == "client_credentials":
        return _own_key(server.url, server.oauth, log)
    if not server.logs_in:
        return None
    log.remedy = remedy
    file = LoginFile(server, folder)
    return LoginProvider(server, file, log) if file.read().tokens is not None else None


def _own_key(url: str, oauth: McpOAuth, log: ServerLog) -> httpx2.Auth:
    provider: OAuthClientProvider
    if oauth.private_key:
        signer = SignedJWTParameters(
            issuer=oauth.client_id,
            subject=oauth.client_id,
            signing_key=oauth.private_key,
            signing_algorithm=oauth.algorithm,
        )
        provider = PrivateKeyJWTOAuthProvider(
            url, _NoStorage(log), oauth.client_id, signer.create_assertion_provider(), issuer=oauth.issuer
        )
    else:
        provider = ClientCredentialsOAuthProvider(
            url, _NoStorage(log), oauth.client_id, oauth.client_secret, issuer=oauth.issuer
        )
    metadata = provider.context.client_metadata.model_dump()
    provider.context.client_metadata = _ClientMetadata.model_validate(metadata | {"configured": oauth.scope})
    return provider


def _fits(client: OAuthClientInformationFull | None, metadata: OAuthClientMetadata) -> bool:
    """Whether a registered client may use the redirect address of this login."""
    return client is not None and set(metadata.redirect_uris or ()) <= set(client.redirect_uris or ())
