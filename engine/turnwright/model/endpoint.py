"""Where a model server is and how one proves to it who is asking: an address, headers, and what must stay hidden."""

import base64
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from turnwright.errors import ConfigError

if TYPE_CHECKING:
    import httpx

OPENAI: Final = "https://api.openai.com/v1"

_PORTS: Final = 65536
# A header or a query parameter whose name holds one of these carries a secret.
_SECRET_NAMES: Final = ("auth", "key", "token", "secret", "cookie", "password")


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """A checked address with its headers. Its `repr` is its `shown` address: no user, no password, no query.

    `openai` is whether it is OpenAI's own, `loopback` whether it is on this machine; `secrets` are the texts that no
    message may quote.
    """

    url: "httpx.URL"
    shown: str
    headers: Mapping[str, str]
    secrets: frozenset[str]
    openai: bool
    loopback: bool

    def __repr__(self) -> str:
        return self.shown

    @classmethod
    def of(
        cls, *, base_url: str | None = None, api_key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> "Endpoint":
        """Find the chat completions of `base_url`, by default `OPENAI_BASE_URL` or OpenAI's own.

        The key is `api_key`, else the user and password inside the address, else `OPENAI_API_KEY`; an `Authorization`
        among `headers` goes before all of them. An empty variable is taken for an unset one.

        Raises `ConfigError` for an address that is no http(s) URL, a key or a header that HTTP cannot carry, and
        OpenAI's own address without a key.
        """
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL", "").strip() or OPENAI
        url = _address(base_url)
        own = url.host == "api.openai.com" or url.host.endswith(".api.openai.com")
        user, password = url.username, url.password
        url = url.copy_with(username=None, password=None)
        shown = str(url.copy_with(query=None))
        sent = {name.lower(): _header(name, value) for name, value in (headers or {}).items()}
        secrets = {value for name, value in [*sent.items(), *url.params.multi_items()] if _is_secret(name)}
        secrets |= {value.partition(" ")[2] for value in secrets}
        if api_key is None and not user:
            api_key = os.environ.get("OPENAI_API_KEY")
        if "authorization" not in sent:
            if api_key:
                sent["authorization"] = f"Bearer {_key(api_key)}"
                secrets.add(api_key)
            elif user:
                basic = base64.b64encode(f"{user}:{password}".encode()).decode()
                sent["authorization"] = f"Basic {basic}"
                secrets |= {basic, password or user}
            elif own:
                raise ConfigError(
                    f"there is no API key for {OPENAI}: set OPENAI_API_KEY, pass api_key, or name another server in "
                    "OPENAI_BASE_URL"
                )
        path = url.path.rstrip("/").removesuffix("/chat/completions")
        url = url.copy_with(path=f"{path}/chat/completions")
        return cls(url, shown, sent, frozenset(filter(None, secrets)), own, _is_loopback(url.host))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_secret(name: str) -> bool:
    return any(part in name.lower() for part in _SECRET_NAMES)


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


def _key(key: str) -> str:
    if not key.isascii() or not key.isprintable() or key != key.strip():
        raise ConfigError(
            "the API key has a character that a key cannot have (a line end, a space around it, or a letter outside "
            "ASCII): set OPENAI_API_KEY, or api_key, to the key alone"
        )
    return key


def _header(name: str, value: str) -> str:
    if not name.isascii() or not name.isprintable() or not name or any(char in ' :"(),/;<=>?@[\\]{}' for char in name):
        raise ConfigError(f"{name!r} is no name for a header: use letters, digits and hyphens")
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise ConfigError(f"the header {name!r} has a value that HTTP cannot carry: use ASCII, on one line")
    return value
