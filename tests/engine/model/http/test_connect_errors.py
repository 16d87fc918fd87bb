import socket
import ssl

import httpx
import pytest

from turnwright.model.http.connect_errors import unreachable
from turnwright_states import Cause


def made_from(error: Exception, *roots: Exception) -> Exception:
    """The error as it looks where it was made from `roots`, the last of which was first."""
    link = error
    for root in roots:
        link.__cause__ = root
        link = root
    return error


@pytest.mark.parametrize(
    ("error", "cause", "hint"),
    [
        (httpx.ConnectError("All connection attempts failed"), Cause.CONNECTION, "Check that a server is running"),
        (
            made_from(httpx.ConnectError("no"), OSError("no"), socket.gaierror(-2, "Name or service not known")),
            Cause.CONNECTION,
            "Check the host in the base URL",
        ),
        (
            made_from(httpx.ConnectError("no"), Exception(), ssl.SSLCertVerificationError("self-signed")),
            Cause.REJECTED,
            "SSL_CERT_FILE",
        ),
        (
            made_from(httpx.ConnectError("no"), ssl.SSLError("[SSL] record layer failure")),
            Cause.CONNECTION,
            "plain http: check the scheme (http or https) and the port",
        ),
        (httpx.RemoteProtocolError("illegal status line: 'SSH-2.0'"), Cause.CONNECTION, "does not speak HTTP: check"),
        (
            httpx.RemoteProtocolError("Server disconnected without sending a response."),
            Cause.CONNECTION,
            "closed the connection instead of answering: try again, or check the scheme",
        ),
        (httpx.ReadError(""), Cause.CONNECTION, "closed the connection instead of answering"),
        (httpx.ProxyError("403 Forbidden"), Cause.CONNECTION, "Check the proxy"),
        (OSError("no route"), Cause.CONNECTION, "Check that a server is running"),
    ],
)
def test_connection_error_gives_a_hint(error: Exception, cause: Cause, hint: str) -> None:
    failure = unreachable(error, "http://host")
    assert failure.cause is cause
    assert str(failure).startswith("no connection to http://host: ")
    assert hint in str(failure)


def test_an_error_without_words_is_named_and_no_secret_is_quoted() -> None:
    assert "http://host: ReadError. " in str(unreachable(httpx.ReadError(""), "http://host"))
    assert "sk-secret" not in str(unreachable(httpx.ConnectError("got sk-secret"), "http://host", ["sk-secret"]))
