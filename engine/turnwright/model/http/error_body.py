"""Parse the body of an error response: its message, its error names, and how long to wait. No I/O."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pydantic import JsonValue

from .json_text import read_json, read_object, read_objects
from .retry_after import length_of, wait_in_words

# The keys of an error's name: OpenAI, Google, TGI, AWS and OpenRouter.
_NAMES: Final = ("code", "type", "status", "status_code", "error_type", "reason", "__type", "limit_source")
# The keys of the wait, in seconds or as a duration: Google, OpenRouter and Hugging Face.
_WAITS: Final = ("retryDelay", "retry_after", "retry_after_seconds", "estimated_time")
# The most reasons of a list, and the most characters of one reason, that are read.
_REASONS: Final = 100
_LONGEST: Final = 100_000
_WORDS: Final = ("message", "detail", "error_description", "msg", "Message", "error")


class ErrorBody(NamedTuple):
    """The content of an error body: its message, its error names, and a status if it has one.

    `names` are in lower case. `wait` is in seconds. `headers` are those of the provider behind a gateway.
    """

    words: str
    names: frozenset[str] = frozenset()
    status: int | None = None
    wait: float | None = None
    headers: Mapping[str, str] = {}


def understand(value: JsonValue) -> ErrorBody:
    """Parse an error body: `error` as an object or a text, a bare `message` or `detail`, a list of one, or a text.

    The message of the provider replaces that of a gateway before it (`Provider returned error`).
    """
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        words = value[:_LONGEST] if isinstance(value, str) else ""
        return ErrorBody(words, wait=wait_in_words(words))
    inner = value.get("error") or _first(value.get("errors"))
    error = inner if isinstance(inner, dict) else value
    words = next(filter(None, _words_of(inner, error)), "")[:_LONGEST]
    names: set[str] = set()
    status = wait = None
    for source in _sources(value, error):
        for key in _NAMES:
            name = source.get(key)
            if isinstance(name, str):
                names.add(plain_name(name))
            status = status or _as_status(name)
        for key in _WAITS:
            wait = _length(source.get(key)) if wait is None else wait
    metadata = read_object(error.get("metadata"))
    if metadata.get("flagged_input"):
        names.add("flagged_input")
    behind = _behind(metadata.get("raw"))
    all_headers = read_object(metadata.get("headers"))
    headers = {name.lower(): text for name, text in all_headers.items() if isinstance(text, str)}
    words = behind.words or words
    for seconds in (wait_in_words(words), behind.wait):
        wait = seconds if wait is None else wait
    return ErrorBody(words, frozenset(names | behind.names), status or behind.status, wait, headers)


def plain_name(name: str) -> str:
    """Normalize a name: lower case, without the prefix and suffix of AWS (`com.amazon...#Name:http://...`)."""
    return name.rpartition("#")[2].partition(":")[0].lower()


def _behind(raw: JsonValue) -> ErrorBody:
    if isinstance(raw, str):
        try:
            return understand(read_json(raw))
        except ValueError:
            return ErrorBody(raw)
    return understand(raw)


def _sources(value: dict[str, JsonValue], error: dict[str, JsonValue]) -> Iterator[dict[str, JsonValue]]:
    """Return every object of a body that may contain the error's name, the best first."""
    yield error
    yield value
    yield read_object(error.get("innererror"))
    yield read_object(error.get("metadata"))
    yield from read_objects(error.get("details"))[:_REASONS]


def _words_of(inner: JsonValue, error: dict[str, JsonValue]) -> Iterator[str]:
    """Return every value of an error body that may be its message, the best first."""
    if isinstance(inner, str):
        yield inner
    for key in _WORDS:
        value = error.get(key)
        values = value[:_REASONS] if isinstance(value, list) else [value]
        yield "; ".join(filter(None, map(_words_in, values)))


def _words_in(value: JsonValue) -> str:
    """Return the words of a message, which may be an object, such as FastAPI's with the place of the field (`loc`)."""
    if not isinstance(value, dict):
        return value if isinstance(value, str) else ""
    words = next(filter(None, _words_of(None, value)), "")
    place = value.get("loc")
    field = ".".join(str(key) for key in place if key != "body") if isinstance(place, list) else ""
    return f"{field}: {words}" if field and words else words


def _first(value: JsonValue) -> JsonValue:
    return value[0] if isinstance(value, list) and value else None


def _length(value: JsonValue) -> float | None:
    return length_of(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _as_status(value: JsonValue) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:9])
    return value if isinstance(value, int) and 400 <= value < 600 else None  # noqa: PLR2004 (HTTP)
