"""Read the wait that a provider asks for from its headers and its message. No I/O, and no clock.

Providers send it in a dozen forms, and some only send when a limit resets. An explicit wait takes precedence. The chart
decides whether there is another attempt (docs/rules.md#retries).
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_MILLISECONDS: Final = ("retry-after-ms", "x-ms-retry-after-ms")
# The reset of a limit says nothing about another kind of failure, and most providers send it with every answer.
_LIMITED: Final = frozenset({429, 503, 529})

# A reset this large is a date, in seconds or milliseconds since 1970, not a wait of thirty years. `Retry-After` has no
# such dates (RFC 9110).
_EPOCH: Final = 1e9
_EPOCH_MS: Final = 1e11

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?", re.IGNORECASE)
# Repeated headers are joined by commas. In an HTTP date, the comma precedes a day.
_BETWEEN: Final = re.compile(r",(?!\s*[0-9]{1,2}[ -][A-Za-z])")

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LENGTH: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|[smhd])")
_LENGTHS: Final = re.compile(rf"(?:{_LENGTH.pattern})+")

_DURATION_UNIT: Final = r"milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d"
_DURATION: Final = re.compile(rf"(\d+(?:\.\d+)?)\s*({_DURATION_UNIT})(?![a-z])", re.IGNORECASE)
_ADVICE: Final = re.compile(
    r"\b(?:try again|retry|wait)(?:\s+(?:again|in|after|for|at least))*\s+"
    rf"((?:\d+(?:\.\d+)?\s*(?:{_DURATION_UNIT})(?![a-z])[\s,]*(?:and\s+)?)+)",
    re.IGNORECASE,
)


def retry_after(
    headers: Mapping[str, str], *, status: int, now: float, wait_in_body: float | None = None
) -> float | None:
    """Return the seconds that a provider asks to wait, 0 or more; None if it sends none.

    Precedence: `Retry-After` in milliseconds, in seconds or as a date; `wait_in_body`; and for the statuses 429, 503
    and 529 the reset of the limits: the last reset of the used-up limits, else the first reset of
    all. Of two headers with one name the longer wait counts. `headers` have lower-case names; `now` is the time in
    seconds since 1970.

    Source: RFC 9110; "Rate limits" of OpenAI, Anthropic, Groq, Mistral and OpenRouter; the IETF's draft of RateLimit
    header fields.
    """
    for name in _MILLISECONDS:
        milliseconds = _find_longest(headers.get(name, ""), _number)
        if milliseconds is not None:
            return max(milliseconds / 1000, 0.0)
    header_wait = _find_longest(headers.get("retry-after", ""), lambda value: _wait(value, now))
    if header_wait is not None:
        return header_wait
    if wait_in_body is not None or status not in _LIMITED:
        return wait_in_body
    resets = [
        (_number(remaining) == 0, seconds)
        for remaining, reset in _limits(headers)
        if (seconds := _seconds_until(reset, now)) is not None
    ]
    waits = [seconds for is_spent, seconds in resets if is_spent]
    return max(waits) if waits else min((seconds for _, seconds in resets if seconds), default=None)


def length_of(text: str) -> float | None:
    """Parse a duration as Go and Google write it (`34s`, `6m0s`, `350ms`, `1m12.5s`), or a number of seconds."""
    text = text.strip()
    if not _LENGTHS.fullmatch(text):
        seconds = _number(text)
        return None if seconds is None else max(seconds, 0.0)
    return _finite(sum(float(number) * _UNITS[unit] for number, unit in _LENGTH.findall(text)))


def wait_in_words(words: str) -> float | None:
    """Parse the wait in a sentence such as `Please try again in 1m12.5s.` or `Please retry after 6 seconds.`"""
    match = _ADVICE.search(words)
    if match is None:
        return None
    # The first letter identifies the unit, except for the two with an m.
    return _finite(sum(float(number) * _UNITS[_short(unit.lower())] for number, unit in _DURATION.findall(match[1])))


def _short(unit: str) -> str:
    return "ms" if unit == "ms" or unit.startswith("milli") else unit[0]


def _limits(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Return each limit in the headers: the remaining amount, if it is sent, and its reset."""
    for name in headers:
        words = name.lower().replace("rate-limit", "ratelimit").split("-")
        if "reset" in words and any(word.startswith("ratelimit") for word in words):
            yield headers.get(name.lower().replace("reset", "remaining"), ""), headers[name]
    together = headers.get("ratelimit", "")
    for limit in together.split(","):
        fields = _fields(limit.split(";"))
        if "t" in fields:
            yield fields.get("r", ""), fields["t"]
    fields = _fields(re.split("[,;]", together))
    if "reset" in fields:
        yield fields.get("remaining", ""), fields["reset"]


def _fields(parts: list[str]) -> dict[str, str]:
    return {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in parts)}


def _find_longest(value: str, parse: Callable[[str], float | None]) -> float | None:
    """Parse a header that may be repeated."""
    return max((wait for part in _BETWEEN.split(value) if (wait := parse(part)) is not None), default=None)


def _wait(value: str, now: float) -> float | None:
    """Parse a wait: a number of seconds, a duration, or a date."""
    length = length_of(value)
    if length is not None:
        return length
    moment = _moment(value)
    return None if moment is None else max(moment - now, 0.0)


def _seconds_until(value: str, now: float) -> float | None:
    """Parse a moment: like a wait, or the seconds or milliseconds since 1970."""
    number = _number(value)
    if number is None or number < _EPOCH:
        return _wait(value, now)
    return max((number / 1000 if number >= _EPOCH_MS else number) - now, 0.0)


def _moment(value: str) -> float | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = parse(value.strip())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def _number(value: str) -> float | None:
    value = value.strip()
    return _finite(float(value)) if _NUMBER.fullmatch(value) else None


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
