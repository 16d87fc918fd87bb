"""Turn an error of pydantic-ai, or of one of its clients, into a `ModelError`. No I/O.

pydantic-ai translates most errors of its clients. The others are classified by their status, their response and the
names of their classes, because there are a dozen clients and none must be installed.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Final

from pydantic_ai import exceptions

from turnwright.model.http.errors import excerpt, http_failure, stream_failure, without_tags
from turnwright.model.http.json_text import read_json
from turnwright.model.http.text_buffer import TooLargeError
from turnwright.model.protocol import ModelError, ModelResponse
from turnwright_states import Cause

# Classes of pydantic-ai that say more than a status, with the names that `failure` knows.
_NAMES: Final[tuple[tuple[type[exceptions.ModelAPIError], str], ...]] = (
    (exceptions.ModelContextWindowExceededError, "context_length_exceeded"),
    (exceptions.ModelQuotaExceededError, "insufficient_quota"),
    (exceptions.ModelRateLimitError, "rate_limit_exceeded"),
    (exceptions.ModelOverloadedError, "overloaded"),
    (exceptions.ModelUnavailableError, "service_unavailable"),
    (exceptions.ModelAuthenticationError, "authentication_error"),
    (exceptions.ModelNotFoundError, "not_found"),
    (exceptions.ModelRequestRejectedError, "invalid_request_error"),
)

# Classes of httpx and httpx2, of the clients of OpenAI, Anthropic and AWS, of anyio and of Python itself.
_BROKEN: Final = frozenset(
    {
        "ModelConnectionError",
        "TransportError",
        "StreamError",
        "APIConnectionError",
        "HTTPClientError",
        "ClosedResourceError",
        "BrokenResourceError",
        "EndOfStream",
        "IncompleteReadError",
        "ConnectionError",
        "gaierror",
        "SSLError",
    }
)


def failure(
    error: Exception, *, where: str, partial: ModelResponse | None = None, secrets: Collection[str] = ()
) -> ModelError:
    """Make the `ModelError` for an error of pydantic-ai.

    `where` names the model in the message; `partial` is any partial reply; `secrets` are never quoted.
    """
    if isinstance(error, ExceptionGroup):
        # With a fallback, one model that may answer later is enough for another attempt.
        failures = [
            failure(inner_error, where=where, partial=partial, secrets=secrets) for inner_error in error.exceptions
        ]
        model_error = next((inner_error for inner_error in failures if inner_error.cause.may_pass), failures[-1])
    elif isinstance(error, ModelError):
        model_error = error
    elif (status := _status(error)) is not None:
        model_error = _with_status(error, status, where, secrets)
    else:
        model_error = _without_status(error, where, partial, secrets)
    model_error.partial = model_error.partial or partial
    return model_error


def _with_status(error: Exception, status: int, where: str, secrets: Collection[str]) -> ModelError:
    headers = _headers(error)
    if isinstance(error, exceptions.ModelAPIError) and error.retry_after is not None:
        headers.setdefault("retry-after", f"{error.retry_after:g}")
    model_error = http_failure(status, headers, _body(error), where=where, now=time.time(), secrets=secrets)
    hints = [getattr(error, "hint", None)]
    if suggestion := getattr(error, "suggested_model_id", None):
        hints.append(f"Did you mean {suggestion!r}?")
    hint_text = " ".join(excerpt(hint, secrets) for hint in hints if isinstance(hint, str))
    if not hint_text:
        return model_error
    return ModelError(
        f"{model_error} {hint_text}", cause=model_error.cause, status=status, retry_after=model_error.retry_after
    )


def _without_status(
    error: Exception, where: str, partial: ModelResponse | None, secrets: Collection[str]
) -> ModelError:
    cause = _cause(error, has_begun=partial is not None)
    if cause is not None:
        words = excerpt(_words(error), secrets) or type(error).__name__
        model_error = ModelError(f"{where}: {words}", cause=cause, partial=partial)
    elif isinstance(error, exceptions.ModelAPIError):
        provider_error = stream_failure(
            read_json(_body(error).decode()), partial=partial or ModelResponse(), secrets=secrets
        )
        model_error = ModelError(
            f"{where}: {provider_error}",
            cause=provider_error.cause,
            retry_after=provider_error.retry_after,
            partial=partial,
        )
    else:
        kind, words = type(error).__name__, excerpt(str(error), secrets)
        hint = "It is not a provider's error: see the traceback of its cause."
        model_error = ModelError(f"{where} failed with {kind}: {words}. {hint}", cause=Cause.REJECTED, partial=partial)
    if isinstance(error, exceptions.ModelAPIError):
        model_error.retry_after = error.retry_after if model_error.retry_after is None else model_error.retry_after
    return model_error


def _cause(error: Exception, *, has_begun: bool) -> Cause | None:
    """Return the cause that an error's class means; None if its body says more, or the class is unknown."""
    if isinstance(error, exceptions.ModelServerError):
        return Cause.SERVER_ERROR
    is_named = isinstance(error, tuple(kind for kind, _ in _NAMES))
    names = set() if is_named else set(_classes(error))
    tests: tuple[tuple[Callable[[], bool], Cause], ...] = (
        (lambda: isinstance(error, exceptions.ContentFilterError), Cause.CONTENT_FILTER),
        # Adapters of pydantic-ai raise this for content that the provider does not accept, such as sound.
        (lambda: isinstance(error, exceptions.UserError | NotImplementedError), Cause.BAD_REQUEST),
        (lambda: isinstance(error, TooLargeError), Cause.REJECTED),
        (lambda: any("timeout" in name.lower() for name in names), Cause.TIMEOUT),
        (lambda: bool(names & _BROKEN), Cause.INTERRUPTED if has_begun else Cause.CONNECTION),
        (lambda: any("credential" in name.lower() for name in names), Cause.AUTHENTICATION),
        # A stream that ended early, which only the message says.
        (lambda: type(error) is exceptions.ModelAPIError and has_begun and not error.body, Cause.INTERRUPTED),
        (lambda: _is_unexpected(error) and "without content" in str(error), Cause.EMPTY_REPLY),
        (lambda: _is_unexpected(error) or bool(names & {"JSONDecodeError", "UnicodeDecodeError"}), Cause.SERVER_ERROR),
    )
    return next((cause for holds, cause in tests if holds()), None)


def _is_unexpected(error: Exception) -> bool:
    return isinstance(error, exceptions.UnexpectedModelBehavior)


def _classes(error: BaseException) -> Iterator[str]:
    cause: BaseException | None = error
    for _ in range(8):
        if cause is None:
            return
        yield from (kind.__name__ for kind in type(cause).__mro__)
        cause = cause.__cause__


def _words(error: Exception) -> str:
    if isinstance(error, exceptions.UnexpectedModelBehavior | exceptions.UserError):
        return error.message
    return str(error)


def _status(error: Exception) -> int | None:
    response = getattr(error, "response", None)
    places: list[object] = [getattr(error, "status_code", None), getattr(error, "code", None)]
    places.append(getattr(response, "status_code", None))
    if isinstance(response, Mapping):
        metadata = response.get("ResponseMetadata")
        places.append(metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None)
    return next((status for status in places if isinstance(status, int) and 300 <= status < 600), None)  # noqa: PLR2004


def _headers(error: Exception) -> dict[str, str]:
    for source in (error, getattr(error, "response", None)):
        headers = getattr(source, "headers", None)
        if isinstance(headers, Mapping):
            return {str(name).lower(): str(value) for name, value in headers.items()}
    return {}


def _body(error: Exception) -> bytes:
    """Return the error's body, and pydantic-ai's names for the error."""
    body = next((value for name in ("body", "details", "response") if (value := getattr(error, name, None))), None)
    candidates: list[object] = [next((name for kind, name in _NAMES if isinstance(error, kind)), None)]
    candidates += [getattr(error, "provider_error_code", None), getattr(error, "provider_error_type", None)]
    if isinstance(body, str):
        with suppress(ValueError):
            body = read_json(body)
    fields: dict[str, object] = {}
    if isinstance(body, Mapping):
        # The client of AWS keeps the response in an attribute of its own.
        inner = body.get("Error")
        fields = dict(inner if isinstance(inner, Mapping) else body)
        candidates.append(fields.get("Code"))
    elif isinstance(body, str):
        fields = {"message": without_tags(body)}
    elif not isinstance(error, exceptions.ModelHTTPError):
        fields = {"message": str(error)}
    names = [name for name in candidates if isinstance(name, str)]
    fields |= dict(zip(("reason", "error_type"), names, strict=False))
    return json.dumps(fields, default=repr).encode()
