import json
import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.model.failure import MAX_EXCERPT, Said, classify, excerpt, http_failure, retry_after, stream_failure
from turnwright.model.protocol import ModelError, Reply
from turnwright_states import Cause


def failed(status: int, body: JsonValue | bytes, **headers: str) -> ModelError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http_failure(status, headers, data, where="http://host/v1", secrets=["sk-secret"])


@pytest.mark.parametrize(
    ("status", "cause", "next_step"),
    [
        (400, Cause.BAD_REQUEST, "must change"),
        (401, Cause.AUTHENTICATION, "OPENAI_API_KEY"),
        (402, Cause.REJECTED, "account"),
        (403, Cause.PERMISSION, "key may use"),
        (404, Cause.NOT_FOUND, "model's id and the base URL"),
        (405, Cause.REJECTED, "base URL"),
        (408, Cause.TIMEOUT, "Try again"),
        (409, Cause.CONFLICT, "Try again"),
        (413, Cause.CONTEXT_OVERFLOW, "Send less"),
        (422, Cause.BAD_REQUEST, "must change"),
        (429, Cause.RATE_LIMITED, "Wait"),
        (500, Cause.SERVER_ERROR, "provider's"),
        (502, Cause.SERVER_ERROR, "provider's"),
        (503, Cause.OVERLOADED, "later"),
        (529, Cause.OVERLOADED, "later"),
    ],
)
def test_each_status_has_a_cause_the_providers_words_and_a_next_step(status: int, cause: Cause, next_step: str) -> None:
    error = failed(status, {"error": {"message": "The words."}})
    assert (error.cause, error.status) == (cause, status)
    assert str(error).startswith(f"http://host/v1 answered {status}: The words. ")
    assert next_step in str(error)


@pytest.mark.parametrize(
    ("status", "error", "cause"),
    [
        (400, {"code": "context_length_exceeded"}, Cause.CONTEXT_OVERFLOW),
        (
            400,
            {"type": "exceed_context_size_error", "message": "request (9) exceeds the available context size (8)"},
            Cause.CONTEXT_OVERFLOW,
        ),
        (400, {"message": "This model's maximum context length is 8192 tokens."}, Cause.CONTEXT_OVERFLOW),
        (400, {"message": "prompt is too long: 9 tokens > 8 maximum"}, Cause.CONTEXT_OVERFLOW),
        (422, {"message": "Input exceeds the context window"}, Cause.CONTEXT_OVERFLOW),
        (400, {"message": "too many tokens: 9"}, Cause.CONTEXT_OVERFLOW),
        (500, {"code": 500, "message": "Context size has been exceeded."}, Cause.CONTEXT_OVERFLOW),
        (429, {"message": "too many tokens per minute", "code": "rate_limit_exceeded"}, Cause.RATE_LIMITED),
        (401, {"message": "no key for a context window"}, Cause.AUTHENTICATION),
        (400, {"message": "max_tokens is too large: this model takes at most 16"}, Cause.BAD_REQUEST),
        (400, {"code": "content_filter"}, Cause.CONTENT_FILTER),
        (400, {"code": "content_policy_violation"}, Cause.CONTENT_FILTER),
        (400, {"code": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}, Cause.CONTENT_FILTER),
        (400, {"message": "blocked by the content management policy"}, Cause.CONTENT_FILTER),
        (429, {"code": "insufficient_quota", "type": "insufficient_quota"}, Cause.PERMISSION),
        (429, {"message": "That model is currently overloaded"}, Cause.OVERLOADED),
        (500, {"type": "overloaded_error"}, Cause.OVERLOADED),
        (404, {"message": "the method is overloaded"}, Cause.NOT_FOUND),
    ],
)
def test_the_body_may_say_more_than_the_status(status: int, error: JsonValue, cause: Cause) -> None:
    assert failed(status, {"error": error}).cause is cause


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("boom", Cause.SERVER_ERROR),
        ({"code": 502, "message": "bad gateway"}, Cause.SERVER_ERROR),
        ({"code": "429"}, Cause.RATE_LIMITED),
        ({"status": 503}, Cause.OVERLOADED),
        ({"code": 400, "message": "x"}, Cause.BAD_REQUEST),
        ({"type": "rate_limit_error"}, Cause.RATE_LIMITED),
        ({"status": "RESOURCE_EXHAUSTED"}, Cause.RATE_LIMITED),
        ({"type": "overloaded_error"}, Cause.OVERLOADED),
        ({"message": "The engine is overloaded"}, Cause.OVERLOADED),
        ({"type": "invalid_request_error"}, Cause.BAD_REQUEST),
        ({"type": "invalid_request_error", "code": "invalid_api_key"}, Cause.AUTHENTICATION),
        ({"type": "timeout"}, Cause.TIMEOUT),
        ({"code": 500, "message": "Context size has been exceeded."}, Cause.CONTEXT_OVERFLOW),
        ({"code": "content_filter"}, Cause.CONTENT_FILTER),
        ({"code": 200, "message": "odd"}, Cause.SERVER_ERROR),
        (None, Cause.SERVER_ERROR),
    ],
)
def test_an_error_inside_a_stream_is_understood_without_a_status(error: JsonValue, cause: Cause) -> None:
    partial = Reply(text="a")
    failure = stream_failure({"error": error}, partial=partial)
    assert (failure.cause, failure.partial) == (cause, partial)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Words"}},
        {"error": "Words"},
        {"message": "Words"},
        {"detail": "Words"},
        {"detail": [{"loc": ["body"], "msg": "Words"}]},
        {"error": {"detail": {"message": "Words"}}},
        {"error": None, "message": "Words"},
        [{"error": {"message": "Words"}}],
        b"Words",
        b"<html><style>p {}</style><body><h1>Words</h1></body>",
        b"\xef\xbb\xbf <p>Words</p>",
    ],
)
def test_the_providers_words_are_found_wherever_they_are(body: JsonValue | bytes) -> None:
    assert str(failed(418, body)).startswith("http://host/v1 answered 418: Words. ")


@pytest.mark.parametrize("body", [b"", {}, [], None, {"error": {}}, {"error": {"message": 5}}, b"[" * 100_000])
def test_a_body_without_words_is_still_an_error(body: JsonValue | bytes) -> None:
    assert str(failed(500, body)).startswith("http://host/v1 answered 500")


def test_a_redirect_is_not_followed_and_says_where_it_leads() -> None:
    error = failed(308, b"", location="https://elsewhere/sk-secret")
    assert error.cause is Cause.REJECTED
    assert "It redirects to https://elsewhere/[hidden]" in str(error)


class TestExcerpt:
    def test_control_characters_and_line_ends_become_spaces(self) -> None:
        assert excerpt("a\r\n\x1b[31mb\u202e\u2028 c\t") == "a [31mb c"

    def test_it_is_shortened(self) -> None:
        assert excerpt("x" * 500) == "x" * (MAX_EXCERPT - 1) + "…"

    def test_secrets_are_hidden_before_it_is_cut(self) -> None:
        """Cutting first would leave the half of a key that no longer looks like one."""
        assert "sk-" not in excerpt("x" * (MAX_EXCERPT - 5) + "sk-secret", ["sk-secret"])

    def test_a_secret_that_holds_another_is_hidden_whole(self) -> None:
        assert excerpt("got Basic abcd", ["abcd", "Basic abcd"]) == "got [hidden]"

    def test_a_placeholder_is_no_secret(self) -> None:
        assert excerpt("maximum", ["x"]) == "maximum"

    @given(st.text(st.characters(exclude_categories=())))
    def test_any_text_becomes_one_printable_line(self, text: str) -> None:
        assert excerpt(text).isprintable()


@pytest.mark.parametrize("status", [400, 401, 500])
@pytest.mark.parametrize(
    "template", [b'{"error": {"message": "bad key KEY"}}', b"<p>KEY", b"KEY", b'{"detail": ["KEY"]}']
)
def test_a_key_that_the_server_echoes_is_hidden(status: int, template: bytes) -> None:
    assert "sk-secret" not in str(failed(status, template.replace(b"KEY", b"sk-secret")))


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({}, None),
            ({"retry-after": "7"}, 7),
            ({"retry-after": " 0.5 "}, 0.5),
            ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
            ({"retry-after-ms": "x", "retry-after": "7"}, 7),
            ({"retry-after": "soon"}, None),
            ({"retry-after": "nan"}, None),
            ({"retry-after": "inf"}, None),
            ({"retry-after": "-3"}, None),
            ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ],
    )
    def test_it_is_read_as_seconds(self, headers: dict[str, str], seconds: float | None) -> None:
        assert retry_after(headers) == seconds

    def test_it_may_be_a_date(self) -> None:
        seconds = retry_after({"retry-after": formatdate(time.time() + 30, usegmt=True)})
        assert seconds is not None
        assert 25 < seconds <= 31

    def test_it_is_on_the_error(self) -> None:
        assert failed(429, b"", **{"retry-after": "9"}).retry_after == 9


@given(status=st.none() | st.integers(300, 999), words=st.text(), names=st.frozensets(st.text()))
def test_everything_has_a_cause(status: int | None, words: str, names: frozenset[str]) -> None:
    assert isinstance(classify(status, Said(words, names)), Cause)
