"""Where a model server is and how one proves to it who is asking: an address, headers, and what must stay hidden."""

import base64
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from turnwright.errors import ConfigError

if TYPE_CHECKING:
    import httpx

_PORTS: Final = 65536
# A header or a query parameter whose name holds one of these carries a secret.
_SECRET_NAMES: Final = ("auth", "key", "token", "secret", "cookie", "password")


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What the address of an API and the proof of who asks look like, as its provider has laid them down.

    `address` is the provider's own, and `host` its host's name; `version` and `path` end every address. `key_header`
    is what carries the key, `token_variable` the variable of a token that is sent as `Authorization: Bearer`, as
    gateways want it. `headers` go with every request.
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
        """The path of the endpoint below `base`, which may already end in the version, or be the whole path."""
        base = base.rstrip("/")
        if base.endswith(self.path):
            return base
        return base.removesuffix(self.version) + self.version + self.path

    def secret_of(self, api_key: str | None) -> tuple[str, str]:
        """The header that says who asks, and its secret; two empty texts where there is none.

        Without `api_key` the environment is asked. A token goes before a key: who sets one means a gateway, and a key
        of the provider's own that lies about must not be sent there.
        """
        if api_key is None:
            token = os.environ.get(self.token_variable, "") if self.token_variable else ""
            if token:
                return "authorization", _key(token, self.token_variable)
            api_key = os.environ.get(self.key_variable, "")
        return (self.key_header, _key(api_key, self.key_variable)) if api_key else ("", "")


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """A checked address with its headers. Its `repr` is its `shown` address: no user, no password, no query.

    `own` is whether it is the API's provider's own, `loopback` whether it is on this machine; `secrets` are the texts
    that no message may quote; `key_variable` is where its key is looked for.
    """

    url: "httpx.URL"
    shown: str
    headers: Mapping[str, str]
    secrets: frozenset[str]
    own: bool
    loopback: bool
    key_variable: str

    def __repr__(self) -> str:
        return self.shown

    @classmethod
    def of(
        cls,
        api: Api,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> "Endpoint":
        """Find the endpoint of `api` at `base_url`, by default its variable's address or its provider's own.

        The key is `api_key`, else the user and password inside the address, else the environment's token or key; the
        header of a key, or an `Authorization`, among `headers` goes before all of them. An empty variable is taken
        for an unset one.

        Raises `ConfigError` for an address that is no http(s) URL, a key or a header that HTTP cannot carry, and the
        provider's own address without a key.
        """
        if base_url is None:
            base_url = os.environ.get(api.address_variable, "").strip() or api.address
        url = _address(base_url)
        own = url.host == api.host or url.host.endswith(f".{api.host}")
        user, password = url.username, url.password
        url = url.copy_with(username=None, password=None)
        shown = str(url.copy_with(query=None))
        given = {name.lower(): _header(name, value) for name, value in (headers or {}).items()}
        named = [*given.items(), *url.params.multi_items()]
        secrets = {value for name, value in named if any(part in name.lower() for part in _SECRET_NAMES)}
        secrets |= {value.partition(" ")[2] for value in secrets}
        sent = {**api.headers, **given}
        if not sent.keys() & {"authorization", api.key_header}:
            header, secret = ("", "") if user and api_key is None else api.secret_of(api_key)
            if secret:
                sent[header] = f"Bearer {secret}" if header == "authorization" else secret
                secrets.add(secret)
            elif user:
                basic = base64.b64encode(f"{user}:{password}".encode()).decode()
                sent["authorization"] = f"Basic {basic}"
                secrets |= {basic, password or user}
            elif own:
                raise ConfigError(
                    f"there is no API key for {api.address}: set {api.key_variable}, pass api_key, or name another "
                    f"server in {api.address_variable}"
                )
        url = url.copy_with(path=api.path_of(url.path))
        return cls(url, shown, sent, frozenset(filter(None, secrets)), own, _is_loopback(url.host), api.key_variable)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address(base_url: str) -> "httpx.URL":
    import httpx  # noqa: PLC0415 (importing it costs half of what importing all of turnwright may cost)

    hint = "write it like http://localhost:8080/v1"
    # An address may hold a password, also where it cannot be read.
    quoted = "the base URL" if "@" in base_url else f"the base URL {base_url!r}"
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, ValueError):
        raise ConfigError(f"{quoted} cannot be read: {hint}") from None
    if url.scheme not in {"http", "https"}:
        raise ConfigError(f"{quoted} does not begin with http:// or https://: {hint}")
    if not url.host or any(char.isspace() for char in base_url):
        raise ConfigError(f"{quoted} names no server, or has a space in it: {hint}")
    if url.port is not None and not 0 < url.port < _PORTS:
        raise ConfigError(f"{quoted} has a port that does not exist: {hint}")
    if url.fragment:
        raise ConfigError(f"{quoted} has a fragment (#...), which no server would see: {hint}")
    return url


def _key(key: str, variable: str) -> str:
    if not key.isascii() or not key.isprintable() or key != key.strip():
        raise ConfigError(
            "the API key has a character that a key cannot have (a line end, a space around it, or a letter outside "
            f"ASCII): set {variable}, or api_key, to the key alone"
        )
    return key


def _header(name: str, value: str) -> str:
    if not name.isascii() or not name.isprintable() or not name or any(char in ' :"(),/;<=>?@[\\]{}' for char in name):
        raise ConfigError(f"{name!r} is no name for a header: use letters, digits and hyphens")
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise ConfigError(f"the header {name!r} has a value that HTTP cannot carry: use ASCII, on one line")
    return value
