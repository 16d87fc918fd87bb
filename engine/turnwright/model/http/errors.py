"""Classify a provider's error as a `ModelError`: its cause, the provider's message, and what to do next. No I/O.

Providers report the same error in many ways: an HTTP status, a number or a name in the body, or only a sentence. The
chart needs to know whether another attempt may help, so each is mapped to one `Cause`.
"""

import codecs
import contextlib
import html
import itertools
import json
import re
from collections.abc import Collection, Mapping
from typing import Final

from pydantic import JsonValue

from turnwright._base.words import collapse_whitespace, cut_tight
from turnwright.model.protocol import ModelError, ModelResponse
from turnwright.privacy.secrets import Secrets
from turnwright_states import Cause

from .error_body import ErrorBody, plain_name, understand
from .json_text import read_json
from .retry_after import retry_after
from .sse import EventReader
from .text_buffer import mend

# The most characters of a provider's text that are searched for the name of a field.
_MOST_WORDS: Final = 4_000
#: The most characters of a provider's text that a message quotes.
MAX_EXCERPT: Final = 200
#: A shorter key is a placeholder for a local server; hiding it would only garble the message.
MIN_SECRET: Final = 4

_HIDDEN: Final = "[hidden]"
_NOT_MODIFIED: Final = 304
# UTF-32 comes first, because its mark begins like that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BY_NULS: Final[dict[tuple[bool, ...], str]] = {
    (True, False, True, False): "utf-16-le",
    (False, True, False, True): "utf-16-be",
}

_BY_STATUS: Final = {
    400: Cause.BAD_REQUEST,
    401: Cause.AUTHENTICATION,
    402: Cause.PERMISSION,
    403: Cause.PERMISSION,
    404: Cause.NOT_FOUND,
    408: Cause.TIMEOUT,
    409: Cause.CONFLICT,
    410: Cause.NOT_FOUND,
    413: Cause.CONTEXT_OVERFLOW,
    422: Cause.BAD_REQUEST,
    # A part behind the server failed: the model during the reply (Bedrock, TGI), or a tool of the provider (Groq).
    424: Cause.SERVER_ERROR,
    425: Cause.CONFLICT,
    429: Cause.RATE_LIMITED,
    # Groq's flex tier is full.
    498: Cause.OVERLOADED,
    # A proxy closed the request.
    499: Cause.INTERRUPTED,
    # The server never does what was asked for.
    501: Cause.REJECTED,
    503: Cause.OVERLOADED,
    504: Cause.TIMEOUT,
    505: Cause.REJECTED,
    # The network wants a login first.
    511: Cause.REJECTED,
    # Cloudflare did not reach the server, or timed out. Its other codes are errors of the server.
    522: Cause.TIMEOUT,
    524: Cause.TIMEOUT,
    529: Cause.OVERLOADED,
}

# Names in `code`, `type`, `status` or `reason` of a body, in lower case. They say more than the status; the first one
# in this order counts.
_BY_NAME: Final[tuple[tuple[Cause, frozenset[str]], ...]] = (
    (Cause.CONTEXT_OVERFLOW, frozenset({"context_length_exceeded", "exceed_context_size_error"})),
    (Cause.CONTEXT_OVERFLOW, frozenset({"model_context_window_exceeded", "request_too_large"})),
    # GitHub Copilot, GitHub Models and Qianfan.
    (
        Cause.CONTEXT_OVERFLOW,
        frozenset({"model_max_prompt_tokens_exceeded", "tokens_limit_reached", "tokens_too_long"}),
    ),
    (Cause.CONTENT_FILTER, frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation"})),
    (Cause.CONTENT_FILTER, frozenset({"data_inspection_failed", "datainspectionfailed", "flagged_input"})),
    (Cause.CONTENT_FILTER, frozenset({"image_content_policy_violation", "bio_policy", "cyber_policy"})),
    # OpenRouter's 402 for an account with pending payments of other requests.
    (Cause.RATE_LIMITED, frozenset({"openrouter_in_flight_budget"})),
    (Cause.PERMISSION, frozenset({"insufficient_quota", "insufficient_balance", "exceeded_current_quota_error"})),
    (Cause.PERMISSION, frozenset({"billing_error", "billing_not_active", "billing_hard_limit_reached", "arrearage"})),
    (Cause.PERMISSION, frozenset({"failed_precondition", "usage_not_included"})),
    (Cause.AUTHENTICATION, frozenset({"api_key_invalid"})),
    # The server could not parse the model's output (Groq, with a 400). Another attempt may succeed.
    (Cause.SERVER_ERROR, frozenset({"tool_use_failed", "output_parse_failed", "json_validate_failed"})),
    # AWS sends these with misleading statuses.
    (Cause.RATE_LIMITED, frozenset({"servicequotaexceededexception"})),
    (Cause.OVERLOADED, frozenset({"modelnotreadyexception"})),
    (Cause.AUTHENTICATION, frozenset({"expiredtokenexception", "unrecognizedclientexception"})),
)
# These replace a status, which a broken stream lacks: its headers promised success. The first one in this order counts,
# so general kinds, which accompany a more precise code, come last.
_INSTEAD_OF_STATUS: Final[tuple[tuple[Cause, frozenset[str]], ...]] = (
    (Cause.OVERLOADED, frozenset({"overloaded", "overloaded_error", "engine_overloaded", "capacity_exceeded"})),
    (Cause.OVERLOADED, frozenset({"service_unavailable", "serviceunavailableexception", "unavailable", "slow_down"})),
    (Cause.RATE_LIMITED, frozenset({"rate_limit_exceeded", "rate_limit_error", "rate_limited", "too_many_requests"})),
    (Cause.RATE_LIMITED, frozenset({"resource_exhausted", "throttlingexception"})),
    (Cause.TIMEOUT, frozenset({"timeout", "timeout_error", "request_timeout", "deadline_exceeded"})),
    (Cause.TIMEOUT, frozenset({"modeltimeoutexception"})),
    (Cause.AUTHENTICATION, frozenset({"invalid_api_key", "authentication_error", "unauthenticated"})),
    (Cause.PERMISSION, frozenset({"permission_error", "permission_denied", "accessdeniedexception"})),
    (Cause.NOT_FOUND, frozenset({"model_not_found", "not_found_error", "not_found", "resourcenotfoundexception"})),
    (Cause.BAD_REQUEST, frozenset({"invalid_request_error", "invalid_argument", "badrequesterror"})),
    (Cause.BAD_REQUEST, frozenset({"validationexception", "validation"})),
    # OpenAI's Responses API, in a response that failed.
    (Cause.BAD_REQUEST, frozenset({"invalid_prompt", "invalid_encrypted_content", "invalid_image"})),
    (Cause.BAD_REQUEST, frozenset({"invalid_image_format", "invalid_base64_image", "invalid_image_url"})),
    (Cause.BAD_REQUEST, frozenset({"invalid_image_mode", "image_too_large", "image_too_small", "image_parse_error"})),
    (Cause.BAD_REQUEST, frozenset({"image_file_too_large", "unsupported_image_media_type", "empty_image_file"})),
    (Cause.BAD_REQUEST, frozenset({"failed_to_download_image", "image_file_not_found"})),
)

# OpenAI, vLLM, llama.cpp, Anthropic (twice), xAI, Gemini, LM Studio, Bedrock, Cohere, TGI, Groq, Moonshot, GLM and
# Qwen; then vLLM (twice), LiteLLM, TabbyAPI, Bedrock, Gemini, OpenAI about a message or the number of messages, and
# gateways; the words of GitHub Copilot, SGLang, NIM, Nova, watsonx, Volcengine and Databricks; last vLLM about the rest
# that a long prompt leaves, Volcengine about pictures, a code that a gateway quotes, and gateways with a 400 or 500.
_OVERFLOW: Final = re.compile(
    r"maximum context length|context window|context length|(?:available )?context size|prompt (?:is )?too long"
    r"|prompt 超长|exceed context limit|maximum prompt length|input token count|context the overflows|input is too long"
    r"|too many tokens|`?inputs`? (?:tokens|must have less than)|reduce the length of the (?:messages|prompt|input)"
    r"|exceeded model token limit|prompt exceeds max|range of input length"
    r"|maximum model length|prompt \(length \d+\)|contextwindowexceeded|max_seq_len|too many total text bytes"
    r"|request payload size exceeds|invalid '(?:messages|input)\b[^']*': string too long"
    r"|invalid '(?:messages|input)': array too long"
    r"|token limit exceeded|tokens too long|\b(?:prompt|input) (?:text|tokens?|length)\b[^.]{0,80}\bexceed"
    r"|max_tokens must be at least 1, got -|exceed max message tokens|context_(?:length|window)_exceeded"
    r"|request entity too large",
    re.IGNORECASE,
)
# OpenAI's rate limit for one request that exceeds the limit per minute: waiting does not help.
_NEVER_FITS: Final = re.compile(r"(?:input|output) tokens must be reduced", re.IGNORECASE)
# Azure, DeepSeek, xAI and OpenAI, OpenRouter; then GLM (twice), Qwen and Volcengine, new-api, Kimi, and MiniMax, which
# answers 500.
_FILTERED: Final = re.compile(
    r"content (?:management|filtering)? ?policy|content exists risk"
    r"|violat(?:es?|ing) (?:our |the )?usage (?:guidelines|polic)"
    r"|\b(?:input|prompt|request|message|content)s? (?:was|were|has been|have been) flagged"
    r"|unsafe or sensitive content|不安全或敏感内容|may contain (?:inappropriate|sensitive) (?:content|information)"
    r"|contains sensitive words|considered high risk|\binput new_sensitive\b",
    re.IGNORECASE,
)
# Anthropic (twice), DeepSeek and GLM, OpenRouter, xAI, gateways (three times).
_UNPAID: Final = re.compile(
    r"credit balance is too low|reached your specified (?:workspace )?api usage limits|insufficient balance|余额不足"
    r"|insufficient (?:credits|funds)|used all available credits|out of credits|欠费|额度不足",
    re.IGNORECASE,
)
_OVERLOADED: Final = re.compile(r"overloaded", re.IGNORECASE)
# nginx, Go and Apache.
_WANTS_TLS: Final = re.compile(
    r"plain http request was sent to https|http request to an https server|speaking plain http to an ssl", re.IGNORECASE
)
# "Too many tokens" may also mean a rate limit, and a rejected key may be described in any words.
_NEVER_OVERFLOW: Final = frozenset({401, 403, 404, 408, 429, 503, 529})
_RATE_LIMITS: Final = frozenset().union(*(names for cause, names in _INSTEAD_OF_STATUS if cause is Cause.RATE_LIMITED))
_MAY_BE_FILTERED: Final = frozenset({None, 400, 403, 500})
_MAY_BE_UNPAID: Final = frozenset({None, 400, 402, 403, 429})

#: The next step for the developer, for each cause.
NEXT_STEPS: Final = {
    Cause.CONNECTION: "Check that a server is running there.",
    Cause.TIMEOUT: "Try again, or allow it more time.",
    Cause.CONFLICT: "Try again.",
    Cause.INTERRUPTED: "Try again.",
    Cause.RATE_LIMITED: "Wait, or ask the provider for a higher limit.",
    Cause.SERVER_ERROR: "Try again later; the error is the provider's.",
    Cause.OVERLOADED: "Try again later.",
    Cause.BAD_REQUEST: "The request itself must change: check the model, the tools and the options.",
    Cause.AUTHENTICATION: "Check the API key.",
    Cause.PERMISSION: "Check what the key may use, and the account's credit.",
    Cause.NOT_FOUND: "Check the model's id and the base URL.",
    Cause.CONTEXT_OVERFLOW: "Send less: compact the conversation, or start a new one.",
    Cause.CONTENT_FILTER: "Do not repeat it unchanged.",
    Cause.REJECTED: "Check the base URL and the account.",
}

# OpenAI, Azure and gateways: "Unsupported parameter: 'max_tokens' is not supported with this model. Use
# 'max_completion_tokens' instead.", and servers of the other kind: "Unrecognized request argument supplied:
# max_completion_tokens".
_LIMIT_FIELD: Final = re.compile(
    r"(?=.*\bmax_completion_tokens\b).*(\binstead\b|\buse\b|not supported|un(?:supported|recognized|known|expected)"
    r"|not (?:permitted|allowed))",
    re.IGNORECASE | re.DOTALL,
)

# Anthropic (three times), and OpenAI and Azure, also without the code.
_REFUSED_REASONING: Final = re.compile(
    r"invalid `?(?:signature|data)`? in `?(?:redacted_)?thinking|\.thinking\.signature: field required"
    r"|`thinking` or `redacted_thinking` blocks.*cannot be modified"
    r"|encrypted content .*could not be verified",
    re.IGNORECASE | re.DOTALL,
)

# Kimi, and DeepSeek (twice), wherever their models are served.
_MISSING_REASONING: Final = re.compile(
    r"reasoning_content\b.{0,40}(?:is missing|must be passed back)|content\[\]\.thinking\b.{0,40}must be passed back",
    re.IGNORECASE,
)

_TAGS: Final = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
# Text between two characters of a secret that a reader does not see: a tag, a character reference, and anything but
# visible ASCII.
_INVISIBLE: Final = r"(?:[^!-~]|<[^<>]{0,80}>|&#?\w{1,8};)*"


class LimitFieldError(ModelError):
    """The server wants the limit of the reply under its other name: `max_tokens` or `max_completion_tokens`."""


class RefusedReasoningError(ModelError):
    """The server refuses the reasoning of earlier replies, because it is that of another account, model or server."""


class MissingReasoningError(ModelError):
    """The server requires the reasoning of earlier replies, which was not sent back."""


def http_failure(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    where: str,
    now: float,
    key_hint: str = "",
    secrets: Collection[str] = (),
) -> ModelError:
    """Make the error for an unsuccessful response.

    `headers` have lower-case names; `body` may be the beginning of the body; `where` names the server in the message,
    and `key_hint` says how to give it a key; `now` is the time in seconds since 1970; `secrets` are never quoted.
    """
    error = _read(_hide(body.decode(_charset(body), "replace"), secrets))
    if 300 <= status < 400:  # noqa: PLR2004 (the redirects)
        target = excerpt(headers.get("location", ""), secrets) if status != _NOT_MODIFIED else ""
        hint = (
            f"It redirects to {target}; redirects are not followed. Set the base URL to where the API is."
            if target
            else "That is not a reply, and it names no other address. Check the base URL, and any proxy on the way."
        )
        return ModelError(f"{where} answered {status}. {hint}", cause=Cause.REJECTED, status=status)
    aws_type = headers.get("x-amzn-errortype")
    cause = classify(status, error._replace(names=error.names | {plain_name(aws_type)}) if aws_type else error)
    # OpenAI, Anthropic and gateways before them; their own clients obey it too.
    is_refused = cause.may_pass and headers.get("x-should-retry", "").strip().lower() == "false"
    cause = Cause.REJECTED if is_refused else cause
    sentence = _write_sentence(f"{where} answered {status}", error, cause, secrets, key_hint)
    return _choose_kind(error)(
        f"{sentence} The provider says not to repeat the request as it is." if is_refused else sentence,
        cause=cause,
        status=status,
        retry_after=retry_after({**error.headers, **headers}, status=status, now=now, wait_in_body=error.wait),
    )


def _read(text: str) -> ErrorBody:
    """Parse an error body: JSON, a stream of events with JSON, a web page or a text."""
    with contextlib.suppress(ValueError):
        return read_error(read_json(text))
    reader = EventReader()
    for event in itertools.chain(reader.feed(text.encode()), reader.close()):
        with contextlib.suppress(ValueError):
            error = understand(read_json(event.data))
            if error.words or error.names:
                return error
    return ErrorBody(without_tags(text))


def read_error(error: JsonValue) -> ErrorBody:
    """Parse the JSON of an error. In a form without a known message, all of it is the message."""
    body = understand(error)
    if body.words or not error:
        return body
    return body._replace(words=json.dumps(error, ensure_ascii=False)[:_MOST_WORDS])


def stream_failure(error: JsonValue, *, partial: ModelResponse, secrets: Collection[str] = ()) -> ModelError:
    """Make the error for one inside a reply with HTTP status 200. `error` is its JSON, or a text."""
    body = read_error(error)
    cause = classify(None, body)
    message = _write_sentence("the provider reported an error in its reply", body, cause, secrets)
    return _choose_kind(body)(message, cause=cause, status=body.status, retry_after=body.wait, partial=partial)


def _choose_kind(error: ErrorBody) -> type[ModelError]:
    words = error.words[:_MOST_WORDS]
    if "invalid_encrypted_content" in error.names or _REFUSED_REASONING.search(words):
        return RefusedReasoningError
    if _MISSING_REASONING.search(words):
        return MissingReasoningError
    return LimitFieldError if _LIMIT_FIELD.match(words) else ModelError


def classify(status: int | None, error: ErrorBody) -> Cause:
    """Return the cause of a failure. `status` is the HTTP status; None if the headers promised success."""
    status = status or error.status
    return (
        next((cause for cause, names in _BY_NAME if names & error.names), None)
        or _classify_words(status, error)
        or _classify_status(status)
        or next((cause for cause, names in _INSTEAD_OF_STATUS if names & error.names), Cause.SERVER_ERROR)
    )


def _classify_words(status: int | None, error: ErrorBody) -> Cause | None:
    """Return the cause that only the message says, unless the status or a name contradicts it."""
    is_limited = status in _NEVER_OVERFLOW or error.names & _RATE_LIMITS
    if (not is_limited and _OVERFLOW.search(error.words)) or _NEVER_FITS.search(error.words):
        return Cause.CONTEXT_OVERFLOW
    if status in _MAY_BE_UNPAID and _UNPAID.search(error.words):
        return Cause.PERMISSION
    if status == 400 and _WANTS_TLS.search(error.words):  # noqa: PLR2004 (HTTP)
        return Cause.REJECTED
    if _FILTERED.search(error.words) and status in _MAY_BE_FILTERED:
        return Cause.CONTENT_FILTER
    is_overloaded = any("overloaded" in name for name in error.names) or _OVERLOADED.search(error.words)
    if is_overloaded and (status is None or status == 429 or status >= 500):  # noqa: PLR2004 (HTTP)
        return Cause.OVERLOADED
    return None


def _classify_status(status: int | None) -> Cause | None:
    if status is None:
        return None
    return _BY_STATUS.get(status, Cause.SERVER_ERROR if status >= 500 else Cause.REJECTED)  # noqa: PLR2004 (HTTP)


def excerpt(text: str, secrets: Collection[str] = ()) -> str:
    """Return foreign text in a form that can be quoted: one short line without secrets and control characters.

    Secrets are removed before the text is shortened, because a cut through a key would leave half of it. A much longer
    text is first cut far behind the quoted part.
    """
    text = mend(_hide(text[: MAX_EXCERPT * 400], secrets)[: MAX_EXCERPT * 20])
    text = collapse_whitespace("".join(char if char.isprintable() else " " for char in text))
    return cut_tight(text, MAX_EXCERPT)


def without_tags(text: str) -> str:
    """Return the text of a web page; other text is returned unchanged."""
    text = text[: MAX_EXCERPT * 20]
    return html.unescape(_TAGS.sub(" ", text)) if text.lstrip("\ufeff \t\r\n").startswith("<") else text


def _hide(text: str, secrets: Collection[str]) -> str:
    """Hide the secrets, even if invisible text interrupts them."""
    long_secrets = [secret for secret in secrets if len(secret) >= MIN_SECRET]
    # A secret may contain another (a header and its token), so the longest comes first.
    for secret in sorted(long_secrets, key=len, reverse=True):
        text = re.sub(_INVISIBLE.join(map(re.escape, secret)), _HIDDEN, text)
    return Secrets(long_secrets, mark=_HIDDEN).hide(text)


def _charset(body: bytes) -> str:
    """Return UTF-8, unless a byte order mark or the NULs of the first characters show another form of Unicode."""
    marked_charset = next((charset for mark, charset in _MARKS if body.startswith(mark)), None)
    return marked_charset or _BY_NULS.get(tuple(map(bool, body[:4])), "utf-8")


def _write_sentence(subject: str, error: ErrorBody, cause: Cause, secrets: Collection[str], key_hint: str = "") -> str:
    words = excerpt(error.words, secrets)
    beginning = f"{subject}: {words}" if words else subject
    hint = NEXT_STEPS.get(cause, "")
    if cause is Cause.AUTHENTICATION and key_hint:
        hint = f"Check the API key: {key_hint}."
    return f"{beginning.rstrip('.!')}. {hint}".rstrip()
