"""The address of the inspector and the access to it, from the flags of `serve`."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Final

import typer

from turnwright.config.files import TOKEN_VARIABLE
from turnwright.errors import ConfigError

LOOPBACK: Final = "127.0.0.1"

_HIGHEST_PORT: Final = 65535

TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TEXT",
        help=f"The access token [default: {TOKEN_VARIABLE}, else a random one]. It is visible in `ps`.",
    ),
]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The address and the access token of the inspector. If `token` is empty, one is generated.

    `hosts` are host names of the server besides `localhost`. `root_path` is the path prefix of a proxy.
    """

    host: str
    port: int
    token: str
    hosts: Sequence[str] = ()
    root_path: str = ""

    @classmethod
    def of(
        cls,
        host: str,
        port: int,
        token: str | None,
        hosts: Sequence[str] = (),
        *,
        root_path: str = "",
        remote: bool = False,
    ) -> "ServerOptions":
        """Check the flags. Raises `ConfigError` for an address that other machines reach without `remote`."""
        secret = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
        if token is not None and not token:
            raise ConfigError("--token: is empty: give a token, or leave the flag out for a random one")
        if not 0 <= port <= _HIGHEST_PORT:
            raise ConfigError(f"--port {port}: is not a port: use 1 to {_HIGHEST_PORT}, or 0 for a free one")
        if not _is_loopback(host):
            why = f"--host {host}: other machines may reach it, and anybody with the token may answer and stop turns"
            if not remote:
                raise ConfigError(f"{why}: to allow that, give --allow-remote")
            if not secret:
                raise ConfigError(f"{why}: give a token of your own, with {TOKEN_VARIABLE} or --token")
        path = f"/{root_path.strip('/')}" if root_path.strip("/") else ""
        return cls(host, port, secret, tuple(hosts), path)

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.host)

    def listen(self) -> socket.socket:
        """Return a socket that listens on the address. Raises `ConfigError` if that fails."""
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listening = socket.socket(family, kind, protocol)
            try:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.bind(address)
                listening.listen(128)
            except BaseException:
                listening.close()
                raise
        except OSError as error:
            raise ConfigError(
                f"{self.host}, port {self.port}: cannot listen ({error.strerror}): choose another --port"
                " (0 picks a free one), or another --host"
            ) from None
        return listening

    def address(self, port: int) -> str:
        names = [name for name in self.hosts if name != "*"]
        host = self.host if self.is_loopback or not names else names[0]
        if host in ("0.0.0.0", "::"):  # noqa: S104 (a server on every address is on this one too)
            host = LOOPBACK
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{self.root_path}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
