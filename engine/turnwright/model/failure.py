"""What a provider says went wrong, as a `ModelError`: why, in its own words, and what to do next. No I/O.

Providers word the same fault in many ways: an HTTP status, a number or a name in the body, or only a sentence. The
chart has to know whether another attempt may help, so all of them are reduced to one `Cause`.
"""

import html
import re
import time
from collections.abc import Collection, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from pydantic import JsonValue

from turnwright_states import Cause

from .json_text import read_json
from .pieces import mend
from .protocol import ModelError, Reply

#: How much of a provider's words a message quotes, in characters.
MAX_EXCERPT: Final = 200
#: A key shorter than this is a placeholder of a local server, and hiding it would only garble the message.
MIN_SECRET: Final = 4

_BY_STATUS: Final = {
    400: Cause.BAD_REQUEST,
    401: Cause.AUTHENTICATION,
    403: Cause.PERMISSION,
    404: Cause.NOT_FOUND,
    408: Cause.TIMEOUT,
    409: Cause.CONFLICT,
    413: Cause.CONTEXT_OVERFLOW,
    422: Cause.BAD_REQUEST,
    429: Cause.RATE_LIMITED,
    503: Cause.OVERLOADED,
    529: Cause.OVERLOADED,
}

# Names that bodies give in `code`, `type` or `status`, in lower case. These say more than the status does.
_BY_NAME: Final = {
    "context_length_exceeded": Cause.CONTEXT_OVERFLOW,
    "exceed_context_size_error": Cause.CONTEXT_OVERFLOW,
    "content_filter": Cause.CONTENT_FILTER,
    "content_policy_violation": Cause.CONTENT_FILTER,
    "responsibleaipolicyviolation": Cause.CONTENT_FILTER,
    "insufficient_quota": Cause.PERMISSION,
    "billing_not_active": Cause.PERMISSION,
    "billing_hard_limit_reached": Cause.PERMISSION,
}
# These only stand in for a status: a broken stream has none, for its headers were sent when all was well. The first
# that is named counts, so the kinds that come along with a code that says more are last.
_INSTEAD_OF_STATUS: Final = {
    "overloaded": Cause.OVERLOADED,
    "overloaded_error": Cause.OVERLOADED,
    "engine_overloaded": Cause.OVERLOADED,
    "service_unavailable": Cause.OVERLOADED,
    "unavailable": Cause.OVERLOADED,
    "rate_limit_exceeded": Cause.RATE_LIMITED,
    "rate_limit_error": Cause.RATE_LIMITED,
    "too_many_requests": Cause.RATE_LIMITED,
    "resource_exhausted": Cause.RATE_LIMITED,
    "timeout": Cause.TIMEOUT,
    "timeout_error": Cause.TIMEOUT,
    "request_timeout": Cause.TIMEOUT,
    "deadline_exceeded": Cause.TIMEOUT,
    "invalid_api_key": Cause.AUTHENTICATION,
    "authentication_error": Cause.AUTHENTICATION,
    "unauthenticated": Cause.AUTHENTICATION,
    "permission_error": Cause.PERMISSION,
    "permission_denied": Cause.PERMISSION,
    "model_not_found": Cause.NOT_FOUND,
    "not_found_error": Cause.NOT_FOUND,
    "not_found": Cause.NOT_FOUND,
    "invalid_request_error": Cause.BAD_REQUEST,
    "invalid_argument": Cause.BAD_REQUEST,
    "badrequesterror": Cause.BAD_REQUEST,
}

# OpenAI, vLLM, llama.cpp, Anthropic, xAI, Gemini, LM Studio and Cohere, in this order.
_OVERFLOW: Final = re.compile(
    r"maximum context length|context window|context length|(?:available )?context size|prompt is too long"
    r"|maximum prompt length|input token count|context the overflows|input is too long|too many tokens",
    re.IGNORECASE,
)
_FILTERED: Final = re.compile(r"content management policy|content policy", re.IGNORECASE)
_OVERLOADED: Final = re.compile(r"overloaded", re.IGNORECASE)
# "Too many tokens" is also how a rate limit is worded, and a key may be refused in words about anything.
_NEVER_OVERFLOW: Final = frozenset({401, 403, 404, 408, 429, 503, 529})

_NEXT: Final = {
    Cause.CONNECTION: "Check that a server is running there.",
    Cause.TIMEOUT: "Try again, or allow it more time.",
    Cause.CONFLICT: "Try again.",
    Cause.RATE_LIMITED: "Wait, or ask the provider for a higher limit.",
    Cause.SERVER_ERROR: "Try again later; the fault is the provider's.",
    Cause.OVERLOADED: "Try again later.",
    Cause.BAD_REQUEST: "The request itself must change: check the model, the tools and the options.",
    Cause.AUTHENTICATION: "Check the API key: set OPENAI_API_KEY, or pass api_key.",
    Cause.PERMISSION: "Check what the key may use, and the account's credit.",
    Cause.NOT_FOUND: "Check the model's id and the base URL.",
    Cause.CONTEXT_OVERFLOW: "Send less: compact the conversation, or start a new one.",
    Cause.CONTENT_FILTER: "Do not repeat it unchanged.",
    Cause.REJECTED: "Check the base URL and the account.",
}

_TAGS: Final = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


class Said(NamedTuple):
    """What an error body says: its words, the names it gives, and a status if it holds one."""

    words: str
    names: frozenset[str] = frozenset()
    status: int | None = None


def http_failure(
    status: int, headers: Mapping[str, str], body: bytes, *, where: str, secrets: Collection[str] = ()
) -> ModelError:
    """Make the error for a response that is no success.

    `headers` are looked up in lower case; `body` may be the beginning of the body; `where` names the server in the
    message; `secrets` are never quoted.
    """
    text = _hide(body.decode("utf-8", "replace"), secrets)
    try:
        said = understand(read_json(text))
    except ValueError:
        said = Said(without_tags(text))
    if 300 <= status < 400:  # noqa: PLR2004 (the redirects)
        target = excerpt(headers.get("location", "elsewhere"), secrets)
        hint = f"It redirects to {target}; redirects are not followed. Set the base URL to where the API is."
        return ModelError(f"{where} answered {status}. {hint}", cause=Cause.REJECTED, status=status)
    cause = classify(status, said)
    return ModelError(
        _sentence(f"{where} answered {status}", said, cause, secrets),
        cause=cause,
        status=status,
        retry_after=retry_after(headers),
    )


def stream_failure(error: JsonValue, *, partial: Reply, secrets: Collection[str] = ()) -> ModelError:
    """Make the error for one that came inside a reply whose HTTP status was 200. `error` is its JSON, or a text."""
    said = understand(error)
    cause = classify(None, said)
    message = _sentence("the provider reported an error in its reply", said, cause, secrets)
    return ModelError(message, cause=cause, status=said.status, partial=partial)


def understand(value: JsonValue) -> Said:
    """Read an error body: `error` as an object or a text, `message` or `detail` without one, a list of one, a text."""
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return Said(value if isinstance(value, str) else "")
    inner = value.get("error")
    error = inner if isinstance(inner, dict) else value
    words = next((text for text in _words_of(inner, error) if text), "")
    names: set[str] = set()
    status = None
    deeper = error.get("innererror")
    for source in (error, value, deeper if isinstance(deeper, dict) else {}):
        for key in ("code", "type", "status", "status_code"):
            named = source.get(key)
            if isinstance(named, str):
                names.add(named.lower())
            status = status or _as_status(named)
    return Said(words, frozenset(names), status)


def classify(status: int | None, said: Said) -> Cause:
    """Reduce a failure to its cause. `status` is the HTTP status; None where the headers had promised success."""
    status = status or said.status
    for name, cause in _BY_NAME.items():
        if name in said.names:
            return cause
    if status not in _NEVER_OVERFLOW and not said.names & {"rate_limit_exceeded"} and _OVERFLOW.search(said.words):
        return Cause.CONTEXT_OVERFLOW
    if _FILTERED.search(said.words) and status in {None, 400, 403}:
        return Cause.CONTENT_FILTER
    overloaded = any("overloaded" in name for name in said.names) or _OVERLOADED.search(said.words)
    if overloaded and (status is None or status == 429 or status >= 500):  # noqa: PLR2004 (HTTP)
        return Cause.OVERLOADED
    if status is not None:
        return _BY_STATUS.get(status, Cause.SERVER_ERROR if status >= 500 else Cause.REJECTED)  # noqa: PLR2004
    return next((cause for name, cause in _INSTEAD_OF_STATUS.items() if name in said.names), Cause.SERVER_ERROR)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read the seconds the provider asks us to wait: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    milliseconds = _seconds(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "").strip()
    seconds = _seconds(value)
    if seconds is not None or not value:
        return seconds
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None


def excerpt(text: str, secrets: Collection[str] = ()) -> str:
    """Make foreign text fit to be quoted: no secrets, no control characters, on one line, shortened.

    Secrets go first: cutting the text through a key would leave half of it behind.
    """
    text = mend(_hide(text, secrets)[: MAX_EXCERPT * 20])
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= MAX_EXCERPT else text[: MAX_EXCERPT - 1].rstrip() + "…"


def without_tags(text: str) -> str:
    """Take the text out of a web page; other text is left as it is."""
    text = text[: MAX_EXCERPT * 20]
    return html.unescape(_TAGS.sub(" ", text)) if text.lstrip("\ufeff \t\r\n").startswith("<") else text


def _hide(text: str, secrets: Collection[str]) -> str:
    # A secret may hold another (a header and the token in it), so the longest goes first.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET:
            text = text.replace(secret, "[hidden]")
    return text


def _sentence(what: str, said: Said, cause: Cause, secrets: Collection[str]) -> str:
    words = excerpt(said.words, secrets)
    quoted = f"{what}: {words}" if words else what
    return f"{quoted.rstrip('.')}. {_NEXT.get(cause, '')}".rstrip()


def _words_of(inner: JsonValue, error: dict[str, JsonValue]) -> Iterator[str]:
    """Every place where an error body may keep its words, the best first."""
    if isinstance(inner, str):
        yield inner
    for key in ("message", "detail", "error_description", "msg"):
        found = error.get(key)
        if isinstance(found, list):
            found = "; ".join(str(item.get("msg", "")) if isinstance(item, dict) else str(item) for item in found)
        if isinstance(found, dict):
            found = found.get("message")
        if isinstance(found, str):
            yield found


def _as_status(value: JsonValue) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:9])
    return value if isinstance(value, int) and 400 <= value < 600 else None  # noqa: PLR2004 (HTTP)


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
