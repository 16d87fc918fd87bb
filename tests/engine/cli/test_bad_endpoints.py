"""With any endpoint, a turn ends with a reason and a clear message, or is refused before it starts.

The cases run a few at once, each against a server of its own; the tests then look at how each of them came out.
"""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Asked, Cli, Done, Endpoint, Json, Move

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
HELLO = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
FINE = STREAM + HELLO + STOP


def http(status: str, body: str = "", *headers: str) -> bytes:
    """A whole response; `status` is such as `404 Not Found`."""
    head = (f"HTTP/1.1 {status}", f"Content-Length: {len(body.encode())}", "Connection: close", *headers)
    return ("\r\n".join(head) + "\r\n\r\n" + body).encode()


def error(status: str, message: str, *headers: str, **fields: object) -> bytes:
    """A response with OpenAI's error body."""
    return http(status, json.dumps({"error": {"message": message, **fields}}), *headers)


@dataclass(frozen=True)
class Case:
    """An endpoint, and how the turn comes out.

    `answers` are what the server plays; none means that no server listens. The turn's error contains `words`.
    """

    name: str
    answers: "tuple[tuple[Move, ...], ...]"
    words: str
    reason: str = "model_error"
    retries: int = 0
    flags: tuple[str, ...] = ()
    requests: int = 1
    text: str = ""
    code: int = 1
    causes: tuple[str, ...] = ()


CASES = (
    Case("refuses the connection", (), "Check that a server is running there", requests=0, causes=("connection",)),
    Case("hangs", ((None,),), "did not begin to answer within 0.4 s", flags=("--timeout", "0.4"), causes=("timeout",)),
    Case(
        "hangs in its stream",
        ((STREAM + HELLO, None),),
        "was silent for 0.4 s in the middle of its reply",
        flags=("--timeout", "0.4"),
        text="Hello",
        causes=("timeout",),
    ),
    Case("400", ((error("400 Bad Request", "no such option"),),), "no such option", causes=("bad_request",)),
    Case(
        "401",
        ((error("401 Unauthorized", "Incorrect API key provided: sk-secret-0123456789abcdef."),),),
        "Incorrect API key provided: [hidden]. Check the API key",
        causes=("authentication",),
    ),
    Case("403", ((error("403 Forbidden", "not yours"),),), "answered 403: not yours", causes=("permission",)),
    Case("404", ((error("404 Not Found", "no model x"),),), "Check the model's id", causes=("not_found",)),
    Case(
        "429 and a retry that is refused as well",
        ((error("429 Too Many Requests", "slow down", "Retry-After: 0"),),),
        "answered 429: slow down",
        retries=1,
        requests=2,
        causes=("rate_limited", "rate_limited"),
    ),
    Case("500", ((http("500 Internal Server Error"),),), "the error is the provider's", causes=("server_error",)),
    Case("500 with garbage", ((http("500 Oh", "\x00\x1b[31mboom"),),), "boom", causes=("server_error",)),
    Case(
        "503, then all is well",
        ((http("503 Service Unavailable"),), (FINE,)),
        "",
        reason="answered",
        retries=1,
        requests=2,
        text="Hello",
        code=0,
        causes=("overloaded",),
    ),
    Case(
        "half a stream, then all is well",
        ((STREAM + HELLO,), (FINE,)),
        "",
        reason="answered",
        retries=1,
        requests=2,
        text="Hello",
        code=0,
        causes=("interrupted",),
    ),
    Case(
        "a web page",
        ((http("200 OK", "<html><title>Sign in</title><body>Welcome</body></html>", "Content-Type: text/html"),),),
        "Sign in",
        causes=("rejected",),
    ),
    Case(
        "half a stream",
        ((STREAM + HELLO,),),
        "ended before the reply did: there was no finish reason",
        text="Hello",
        causes=("interrupted",),
    ),
    Case("cut", ((STREAM + HELLO + b'data: {"choi',),), "not complete JSON", text="Hello", causes=("interrupted",)),
    Case("an empty stream", ((STREAM,),), "ended", causes=("interrupted",)),
    Case(
        "an empty reply",
        ((STREAM + STOP,),),
        "neither text nor tool calls",
        reason="empty_reply",
        causes=("empty_reply",),
    ),
    Case(
        "no JSON in a chunk",
        ((STREAM + HELLO + b"data: {oops}\n\n",),),
        "not complete JSON: {oops}",
        text="Hello",
        causes=("interrupted",),
    ),
    Case("another JSON", ((STREAM + b"data: [1, 2]\n\ndata: 7\n\n",),), "ended", causes=("interrupted",)),
    Case(
        "an error in the stream",
        ((STREAM + HELLO + b'data: {"error": {"message": "the GPU is on fire"}}\n\n',),),
        "the GPU is on fire",
        text="Hello",
        causes=("server_error",),
    ),
    Case(
        "a redirect",
        ((http("308 Permanent Redirect", "", "Location: https://elsewhere.invalid/v1"),),),
        "It redirects to https://elsewhere.invalid/v1; redirects are not followed",
        causes=("rejected",),
    ),
    Case("garbage", ((bytes(range(256)) * 4,),), "no connection", causes=("connection",)),
    Case("a closed connection", ((b"",),), "no connection", causes=("connection",)),
    Case("a line without end", ((STREAM + b"data: ", *([b"x" * 2**20] * 17)),), "longer than", causes=("rejected",)),
    Case(
        "a content filter",
        ((STREAM + HELLO + b'data: {"choices":[{"delta":{},"finish_reason":"content_filter"}]}\n\n',),),
        "",
        reason="content_filter",
        text="Hello",
    ),
    Case(
        "a refusal by its content filter",
        ((error("400 Bad Request", "filtered", code="content_filter"),),),
        "",
        reason="content_filter",
    ),
    Case(
        "a context overflow",
        ((error("400 Bad Request", "This model's maximum context length is 8192 tokens", code="x"),),),
        "Send less",
        reason="context_overflow",
        causes=("context_overflow",),
    ),
)


@pytest.fixture(scope="module")
def ended(
    tmp_path_factory: pytest.TempPathFactory,
    serve: "Callable[[], Endpoint]",
    settle: "Callable[[Path, Endpoint], Cli]",
) -> "dict[str, tuple[Done, list[Asked]]]":
    """The result of each case, and the requests to its server."""

    def run(case: Case) -> "tuple[str, tuple[Done, list[Asked]]]":
        server = serve()
        for answer in case.answers:
            server.plays(*answer)
        if not case.answers:
            server.server_close()
        cli = settle(tmp_path_factory.mktemp("case"), server)
        file = cli.agent(f"max_retries: {case.retries}")
        return case.name, (cli.run("run", "hi", "--agents", file, "--json", *case.flags), server.requests)

    with ThreadPoolExecutor(4) as pool:
        return dict(pool.map(run, CASES))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_endpoint_ends_the_turn_with_a_reason_and_a_message(
    case: Case, ended: "dict[str, tuple[Done, list[Asked]]]"
) -> None:
    done, requests = ended[case.name]
    turn_ended = done.last
    assert done.code == case.code
    assert done.err == ""
    assert (turn_ended["type"], turn_ended["reason"], turn_ended["text"]) == ("turn_ended", case.reason, case.text)
    assert turn_ended["outcome"] == ("finished" if case.code == 0 else "failed")
    assert case.words in turn_ended.get("error", "")
    assert [event["cause"] for event in done.of("attempt_failed")] == list(case.causes)
    assert len(requests) == case.requests


@pytest.mark.slow
def test_retry_waits_as_long_as_the_provider_requests(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(error("429 Too Many Requests", "slow down", "Retry-After: 1")).says("Hello")
    done = cli.run("run", "hi", "--json")
    failed, replied = done.of("attempt_failed")[0], done.of("model_replied")[0]
    assert failed["wait"] >= 1.0
    assert replied["elapsed"] - failed["elapsed"] >= 1.0
    assert done.code == 0


@pytest.mark.slow
def test_wait_before_a_retry_is_shown_on_the_plain_display(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(error("429 Too Many Requests", "slow down", "Retry-After: 1")).says("Hello")
    assert re.search(r"attempt failed, trying again in 1\.\d s: .* answered 429: slow down", cli.run("run", "hi").out)


def test_failed_attempt_is_shown_on_the_plain_display(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(http("503 Busy", "come \x1b]0;back\x07 later", "Retry-After: 0")).says("Hello")
    done = cli.run("run", "hi")
    assert "attempt failed, trying again" in done.out
    assert "answered 503: come ]0;back later. Try again later." in done.out
    assert "\x1b" not in done.out
    assert done.code == 0


def test_text_of_a_broken_reply_is_dropped_by_the_next_attempt(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(STREAM + HELLO).says("Good day")
    done = cli.run("run", "hi", "--json")
    kinds = [event["type"] for event in done.events]
    assert kinds.index("text_delta") < kinds.index("attempt_failed") < kinds.index("response_restarted")
    assert done.last["text"] == "Good day"


def test_model_timeout_may_come_from_the_environment_and_is_kept(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(None)
    done = cli.run("run", "hi", "--agents", cli.agent("max_retries: 0"), "--json", env={"TURNWRIGHT_TIMEOUT": "0.3"})
    assert "within 0.3 s" in done.last["error"]
    context: Json = done.events[0]["metadata"]
    assert context["timeout"] == 0.3


def test_deadline_stops_a_turn_with_a_hanging_endpoint(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(None)
    file = cli.agent("budget: {seconds: 0.3}", "conclude_seconds: 0.2", "max_retries: 0")
    done = cli.run("run", "hi", "--agents", file, "--json")
    assert (done.code, done.last["outcome"], done.last["reason"]) == (4, "cap_hit", "deadline")
    assert "Stopped at the time limit" in done.last["text"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:8080/v1", "does not begin with http:// or https://"),
        ("http://", "names no server"),
        ("http://user:pass word@host:99999/v1", "the base URL"),
    ],
)
def test_invalid_address_is_a_usage_error(cli: "Cli", url: str, words: str) -> None:
    done = cli.run("run", "hi", "--base-url", url)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert "pass word" not in done.err
