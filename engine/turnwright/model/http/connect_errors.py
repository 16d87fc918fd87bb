"""Turn an error before the headers of an answer into a `ModelError` that says what to do. No I/O."""

import socket
import ssl
from collections.abc import Collection, Iterator

from turnwright.model.protocol import ModelError
from turnwright_states import Cause

from .errors import excerpt


def unreachable(error: Exception, where: str, secrets: Collection[str] = ()) -> ModelError:
    """Make the `ModelError` for an error of httpx, or of the network, before the headers of an answer.

    `where` names the server in the message; `secrets` are never quoted.
    """
    cause, hint = _explain(error)
    words = excerpt(str(error) or type(error).__name__, secrets).rstrip(".")
    return ModelError(f"no connection to {where}: {words}. {hint}", cause=cause)


def _explain(error: Exception) -> tuple[Cause, str]:
    import httpx  # noqa: PLC0415 (importing it costs half of what importing all of turnwright may cost)

    roots = tuple(_list_roots(error))
    if any(isinstance(root, ssl.SSLCertVerificationError) for root in roots):
        hint = (
            "Its certificate is not accepted: check the host in the base URL; if the certificate's authority is one of "
            "your own, name its file in SSL_CERT_FILE."
        )
        return Cause.REJECTED, hint
    port = "the scheme (http or https) and the port of the base URL"
    if any(isinstance(root, ssl.SSLError) for root in roots):
        hint = f"TLS was not agreed on, as with a server that speaks plain http: check {port}."
    elif isinstance(error, httpx.ProxyError):
        hint = "Check the proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY)."
    elif any(isinstance(root, socket.gaierror) for root in roots):
        hint = "Check the host in the base URL."
    elif isinstance(error, httpx.RemoteProtocolError) and "disconnected" not in str(error):
        hint = f"What answers there does not speak HTTP: check {port}."
    elif isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError):
        hint = f"It closed the connection instead of answering: try again, or check {port}."
    else:
        hint = "Check that a server is running there."
    return Cause.CONNECTION, hint


def _list_roots(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(16):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__
