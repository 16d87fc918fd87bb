"""No error of pydantic-ai, or of a client below it, comes out as it is; each has its cause."""

import json

import httpx
import pytest
from pydantic_ai import exceptions

from turnwright.model import ModelError, ModelResponse
from turnwright.model.http.text_buffer import TooLargeError
from turnwright.model.pydantic_ai.errors import failure
from turnwright_states import Cause


class APIStatusError(Exception):
    """The exception of the clients of OpenAI and Anthropic."""

    def __init__(self, status: int, body: object = None, headers: dict[str, str] | None = None) -> None:
        super().__init__("it was refused")
        self.status_code = status
        self.body = body
        self.response = httpx.Response(status, headers=headers)


class APITimeoutError(Exception):
    pass


class ClientError(Exception):
    """The exception of botocore."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"An error occurred ({code})")
        self.response = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}


class APIError(Exception):
    """The exception of Google's client."""

    def __init__(self, code: int, details: object) -> None:
        super().__init__(f"{code} failed")
        self.code = code
        self.details = details


class NoCredentialsError(Exception):
    pass


def made_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def http(status: int, body: object = None, **more: object) -> exceptions.ModelHTTPError:
    return exceptions.ModelHTTPError(status, "m", body, **more)  # type: ignore[arg-type]  # keywords of any type


QUOTA = exceptions.ModelQuotaExceededError
OVERFLOW = exceptions.ModelContextWindowExceededError
OVERLOADED = exceptions.ModelOverloadedError


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (http(401), Cause.AUTHENTICATION),
        (http(404, "no such model"), Cause.NOT_FOUND),
        (http(429), Cause.RATE_LIMITED),
        (http(500, {"error": {"message": "oops"}}), Cause.SERVER_ERROR),
        (http(400, {"error": {"code": "content_filter"}}), Cause.CONTENT_FILTER),
        (http(400, '{"error": {"code": "content_filter"}}'), Cause.CONTENT_FILTER),
        (http(400, "prompt is too long: 9 tokens"), Cause.CONTEXT_OVERFLOW),
        (exceptions.ModelHTTPError.for_category(OVERFLOW, status_code=400, model_name="m"), Cause.CONTEXT_OVERFLOW),
        (exceptions.ModelHTTPError.for_category(QUOTA, status_code=429, model_name="m"), Cause.PERMISSION),
        (
            exceptions.ModelHTTPError.for_category(OVERLOADED, status_code=503, model_name="m", body="busy"),
            Cause.OVERLOADED,
        ),
        (OVERFLOW("m", "too much"), Cause.CONTEXT_OVERFLOW),
        (QUOTA("m", "no credit"), Cause.PERMISSION),
        (OVERLOADED("m", "busy"), Cause.OVERLOADED),
        (exceptions.ModelRateLimitError("m", "slow down"), Cause.RATE_LIMITED),
        (exceptions.ModelUnavailableError("m", "later"), Cause.OVERLOADED),
        (exceptions.ModelServerError("m", "oops"), Cause.SERVER_ERROR),
        (exceptions.ModelAuthenticationError("m", "who?"), Cause.AUTHENTICATION),
        (exceptions.ModelNotFoundError("m", "where?"), Cause.NOT_FOUND),
        (exceptions.ModelRequestRejectedError("m", "no"), Cause.BAD_REQUEST),
        (exceptions.ModelConnectionError("m", "refused"), Cause.CONNECTION),
        (exceptions.ModelTimeoutError("m", "slow"), Cause.TIMEOUT),
        (exceptions.ModelRequestTimeout("m", 3.0), Cause.TIMEOUT),
        (exceptions.ModelAPIError("m", "what?"), Cause.SERVER_ERROR),
        (exceptions.ModelAPIError("m", "x", body={"type": "overloaded_error"}), Cause.OVERLOADED),
        (exceptions.ModelAPIError("m", "x", provider_error_code="ThrottlingException"), Cause.RATE_LIMITED),
        (made_from(exceptions.ModelAPIError("m", "x"), APITimeoutError()), Cause.TIMEOUT),
        (made_from(exceptions.ModelAPIError("m", "x"), httpx.ConnectError("x")), Cause.CONNECTION),
        (exceptions.ContentFilterError("no"), Cause.CONTENT_FILTER),
        (exceptions.UnexpectedModelBehavior("Invalid response", "<p>Log in</p>"), Cause.SERVER_ERROR),
        (exceptions.UnexpectedModelBehavior("ended without content or tool calls"), Cause.EMPTY_REPLY),
        (exceptions.UserError("that is not supported"), Cause.BAD_REQUEST),
        (NotImplementedError("no audio"), Cause.BAD_REQUEST),
        (httpx.ReadTimeout("slow"), Cause.TIMEOUT),
        (httpx.ReadError("gone"), Cause.CONNECTION),
        (httpx.RemoteProtocolError("gone"), Cause.CONNECTION),
        (ConnectionResetError("gone"), Cause.CONNECTION),
        (TimeoutError(), Cause.TIMEOUT),
        (APITimeoutError("slow"), Cause.TIMEOUT),
        (APIStatusError(529), Cause.OVERLOADED),
        (APIStatusError(400, {"code": "context_length_exceeded"}), Cause.CONTEXT_OVERFLOW),
        (ClientError(400, "ValidationException"), Cause.BAD_REQUEST),
        (ClientError(400, "ExpiredTokenException"), Cause.AUTHENTICATION),
        (APIError(503, {"error": {"status": "UNAVAILABLE"}}), Cause.OVERLOADED),
        (NoCredentialsError("Unable to locate credentials"), Cause.AUTHENTICATION),
        (json.JSONDecodeError("what?", "<p>", 0), Cause.SERVER_ERROR),
        (TooLargeError("the reply is longer than 8 characters"), Cause.REJECTED),
        (KeyError("choices"), Cause.REJECTED),
    ],
    ids=lambda value: value.value if isinstance(value, Cause) else type(value).__name__,
)
def test_each_error_has_a_cause(error: Exception, cause: Cause) -> None:
    model_error = failure(error, where="model m")
    assert model_error.cause is cause
    assert str(model_error).startswith("model m")
    assert model_error.partial is None


def test_status_and_message_of_the_provider_are_quoted() -> None:
    model_error = failure(http(500, {"error": {"message": "the fan is broken"}}), where="model m")
    assert model_error.status == 500
    assert "answered 500: the fan is broken." in str(model_error)


@pytest.mark.parametrize(
    "error",
    [
        http(429, headers={"Retry-After": "7"}),
        http(429, retry_after=7.0),
        APIStatusError(429, headers={"retry-after": "7"}),
        exceptions.ModelRateLimitError("m", "slow", retry_after=7.0),
        exceptions.ModelConnectionError("m", "gone", retry_after=7.0),
    ],
    ids=lambda error: type(error).__name__,
)
def test_requested_wait_is_passed_on(error: Exception) -> None:
    assert failure(error, where="m").retry_after == pytest.approx(7.0)


def test_advice_of_pydantic_ai_is_quoted() -> None:
    model_error = failure(http(404, "no", suggested_model_id="m-2", hint="Enable it in the console."), where="m")
    assert str(model_error).endswith("Enable it in the console. Did you mean 'm-2'?")


def test_begun_reply_was_interrupted() -> None:
    """The error carries the partial reply; the same error before any data is one of the connection."""
    half = ModelResponse(text="half")
    for error in (exceptions.ModelConnectionError("m", "gone"), httpx.ReadError("gone")):
        model_error = failure(error, where="m", partial=half)
        assert (model_error.cause, model_error.partial) == (Cause.INTERRUPTED, half)
    ended = exceptions.ModelAPIError("m", "Streamed response ended without a `finish_reason`")
    assert failure(ended, where="m", partial=half).cause is Cause.INTERRUPTED


def test_error_inside_a_stream_has_the_partial_reply() -> None:
    error = http(529, {"type": "error", "error": {"type": "overloaded_error"}}, in_stream=True)
    model_error = failure(error, where="m", partial=ModelResponse(text="half"))
    assert (model_error.cause, model_error.partial) == (Cause.OVERLOADED, ModelResponse(text="half"))


def test_transient_error_among_several_models_counts() -> None:
    group = exceptions.FallbackExceptionGroup("all failed", [http(401), http(503), http(400)])
    assert failure(group, where="m").cause is Cause.OVERLOADED
    none_will = exceptions.FallbackExceptionGroup("all failed", [http(401), http(400)])
    assert failure(none_will, where="m").cause is Cause.BAD_REQUEST


def test_own_model_error_stays_unchanged() -> None:
    error = ModelError("no", cause=Cause.CONFLICT)
    assert failure(error, where="m") is error


@pytest.mark.parametrize(
    "error",
    [
        http(401, {"error": {"message": "Incorrect API key: sk-secret"}}),
        http(401, "Incorrect API key: sk-secret"),
        http(404, "no", hint="Use sk-secret there."),
        exceptions.ModelAPIError("m", "sk-secret", body={"message": "sk-secret"}),
        exceptions.ModelConnectionError("m", "https://x/?key=sk-secret"),
        exceptions.UserError("sk-secret is not a key"),
        KeyError("sk-secret"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_secrets_are_not_quoted(error: Exception) -> None:
    model_error = failure(error, where="m", secrets=["sk-secret"])
    assert "sk-secret" not in str(model_error)
    assert "[hidden]" in str(model_error)
