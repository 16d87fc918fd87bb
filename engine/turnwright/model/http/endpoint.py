"""The address of a model server, its authentication, and the secrets in both."""

import base64
import ipaddress
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from turnwright.errors import ConfigError

if TYPE_CHECKING:
    import httpx

_PORTS: Final = 65536
# A header or a query parameter with one of these in its name is a secret.
_SECRET_NAMES: Final = ("auth", "key", "token", "secret", "cookie", "password")
_BY_NAME: Final = ContextVar("model_by_name", default=False)


@contextmanager
def opened_by_name() -> Iterator[None]:
    """Open models by their names, as the command line does: no error advises an argument that nobody can pass then."""
    token = _BY_NAME.set(True)
    try:
        yield
    finally:
        _BY_NAME.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The provider's conventions for the address and the authentication of an API.

    `address` is the provider's own, with the host `host`; `version` and `path` end every address. `key_header` is the
    header of the key, `token_variable` the environment variable of a token for gateways, sent as
    `Authorization: Bearer`. `headers` are sent with every request.
    """

    address: str
    host: str
    version: str = ""
    path: str
    address_variable: str
    key_variable: str
    token_variable: str = ""
    key_header: str = "authorization"
    headers: Mapping[str, str] = field(default_factory=dict)

    def path_of(self, base: str) -> str:
        """Return the endpoint's path below `base`, which may end in the version or in the complete path."""
        base = base.rstrip("/")
        if base.endswith(self.path):
            return base
        return base.removesuffix(self.version) + self.version + self.path

    def secret_of(self, api_key: str | None) -> tuple[str, str]:
        """Return the authentication header and its secret; two empty texts if there is none.

        Without `api_key` both come from the environment. A token takes precedence over a key, because it is meant for
        a gateway, which must not receive the provider's key.
        """
        if api_key is None:
            token = os.environ.get(self.token_variable, "") if self.token_variable else ""
            if token:
                return "authorization", _key(token, f"set {self.token_variable} to the token")
            key = _key(os.environ.get(self.key_variable, ""), f"set {self.key_variable} to the key")
        else:
            key = _key(api_key, "pass as api_key the key")
        return (self.key_header, key) if key else ("", "")


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """A checked address with its headers. Its `repr` is `shown_url`, the address without user, password and query.

    `own` is whether the address is the provider's own, `loopback` whether it is on this machine. `secrets` must not
    appear in messages. `key_hint` says how to give it a key.
    """

    url: "httpx.URL"
    shown_url: str
    headers: Mapping[str, str]
    secrets: frozenset[str]
    own: bool
    loopback: bool
    key_hint: str

    def __repr__(self) -> str:
        return self.shown_url

    @classmethod
    def of(
        cls,
        api: Api,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> "Endpoint":
        """Return the endpoint of `api` at `base_url`, by default the address in its variable or the provider's own.

        Precedence of the key: the key's header or an `Authorization` in `headers`, `api_key`, the user and password in
        the address, the token or key in the environment. An empty variable counts as unset.

        Raises `ConfigError` for an address that is not an http(s) URL, a key or a header that HTTP cannot carry, and
        the provider's own address without a key.
        """
        source = f" in {api.address_variable}" if base_url is None else ""
        if base_url is None:
            base_url = os.environ.get(api.address_variable, "").strip() or api.address
        url = _parse_address(base_url, source)
        is_own = url.host == api.host or url.host.endswith(f".{api.host}")
        user, password = url.username, url.password
        url = url.copy_with(username=None, password=None)
        shown_url = str(url.copy_with(query=None))
        if not isinstance(headers, Mapping | None):
            raise ConfigError(f"headers must be a mapping of names to texts, not {type(headers).__name__}")
        for name in headers or ():
            _need_text("the name of a header", name)
        own_headers = {name.lower(): _header(name, value) for name, value in (headers or {}).items()}
        named_values = [*own_headers.items(), *url.params.multi_items()]
        secrets = {value for name, value in named_values if any(part in name.lower() for part in _SECRET_NAMES)}
        secrets |= {value.partition(" ")[2] for value in secrets}
        sent_headers = {**api.headers, **own_headers}
        by_name = _BY_NAME.get()
        if not sent_headers.keys() & {"authorization", api.key_header}:
            header, secret = ("", "") if user and api_key is None else api.secret_of(api_key)
            if secret:
                sent_headers[header] = f"Bearer {secret}" if header == "authorization" else secret
                secrets.add(secret)
            elif user:
                basic = base64.b64encode(f"{user}:{password}".encode()).decode()
                sent_headers["authorization"] = f"Basic {basic}"
                secrets |= {basic, password or user}
            elif is_own:
                ways = f"set {api.key_variable}{'' if by_name else ', pass api_key'}"
                raise ConfigError(
                    f"no API key for {api.address}: {ways}, or name another server in {api.address_variable}"
                )
        url = url.copy_with(path=api.path_of(url.path))
        hint = f"set {api.key_variable}" if by_name else f"set {api.key_variable}, or pass api_key"
        return cls(url, shown_url, sent_headers, frozenset(filter(None, secrets)), is_own, _is_loopback(url.host), hint)


def _is_loopback(host: str) -> bool:
    """Whether the host is this machine: vLLM and others print the address 0.0.0.0, which reaches it too."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def _parse_address(base_url: str, source: str) -> "httpx.URL":
    import httpx  # noqa: PLC0415 (importing it costs half of what importing all of turnwright may cost)

    _need_text("base_url", base_url)
    hint = "write it like http://localhost:8080/v1"
    # Even an invalid address may contain a password, or a key in its query.
    is_secret = "@" in base_url or "?" in base_url
    subject = f"the base URL{source}" if is_secret else f"the base URL{source} {base_url!r}"
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, ValueError):
        raise ConfigError(f"{subject} cannot be read: {hint}") from None
    if url.scheme not in {"http", "https"}:
        raise ConfigError(f"{subject} does not begin with http:// or https://: {hint}")
    if not url.host or any(char.isspace() for char in base_url):
        raise ConfigError(f"{subject} names no server, or has a space in it: {hint}")
    if url.port is not None and not 0 < url.port < _PORTS:
        raise ConfigError(f"{subject} has a port that does not exist: {hint}")
    if url.fragment:
        raise ConfigError(f"{subject} has a fragment (#...), which no server would see: {hint}")
    return url


def _need_text(name: str, value: object) -> None:
    """Raise `ConfigError` for another value than text. It may be secret, and is not shown."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be text, not {type(value).__name__}")


def _key(key: str, hint: str) -> str:
    _need_text("api_key", key)
    if not key.isascii() or not key.isprintable() or key != key.strip():
        raise ConfigError(
            "the API key has a character that a key cannot have (a line end, a space around it, or a letter outside "
            f"ASCII): {hint} alone"
        )
    return key


def _header(name: str, value: str) -> str:
    _need_text(f"the header {name!r}", value)
    if not name.isascii() or not name.isprintable() or not name or any(char in ' :"(),/;<=>?@[\\]{}' for char in name):
        raise ConfigError(f"{name!r} is not a name for a header: use letters, digits and hyphens")
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise ConfigError(f"the header {name!r} has a value that HTTP cannot carry: use ASCII, on one line")
    return value
