"""Hiding known secrets in our own texts and in the log lines of HTTP libraries.

A secret is found as it is, in encoded forms (JSON, addresses, programs, base64), and with some characters missing at
either end.
"""

import base64
import html
import json
import logging
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import quote, quote_plus

_HIDDEN: Final = "***"

#: Loggers of libraries that log the requests: addresses at level INFO, headers at DEBUG.
HTTP_LOGGERS: Final = (
    *("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))),
    *("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))),
)

#: A shorter secret is searched only as it is, because its other forms would match too many words.
_SHORTEST: Final = 8
#: The form of a key: no short word, no address and no path. A part of a key, or of base64, is hidden too.
_KEY: Final = re.compile(r"(?![/.])(?:(?=\D*\d)[\w+/=.~-]{12,}|[\w+/=.~-]{20,})", re.ASCII)
_PERCENT: Final = re.compile(r"%[0-9A-F]{2}")

#: Guards the filters of loggers, because concurrent changes could lose a filter.
_changing: Final = threading.Lock()


class _SecretForm(NamedTuple):
    """One encoded form of a secret. Any `least` of its characters in a row are hidden.

    Each such part contains one of `blocks`, which have their position in the form. Searching for the blocks is fast.
    """

    text: str
    least: int
    blocks: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, text: str, *, whole: bool) -> "_SecretForm":
        least = len(text) if whole else max(_SHORTEST, -(-2 * len(text) // 3))
        size = least if whole else (least + 1) // 2
        starts = range(0, len(text) - size + 1, size)
        return cls(text, least, tuple((start, text[start : start + size]) for start in starts))

    def find(self, haystack: str, start: int, block: str) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each occurrence around one of the blocks."""
        at = haystack.find(block)
        while at >= 0:
            begin, end = at, at + len(block)
            before, behind = start, start + len(block)
            while before and begin and haystack[begin - 1] == self.text[before - 1]:
                begin, before = begin - 1, before - 1
            while behind < len(self.text) and end < len(haystack) and haystack[end] == self.text[behind]:
                end, behind = end + 1, behind + 1
            if end - begin >= self.least:
                yield begin, end
            at = haystack.find(block, end if end - begin >= self.least else at + 1)


class Secrets:
    """Words that must not be shown. `mark` replaces them.

    The forms of a word in JSON, addresses, programs and base64 are hidden too, the latter at any offset. Of a word that
    may be a key, and of base64, any two thirds in a row are hidden, at least eight characters.
    """

    __slots__ = ("_forms", "_mark", "_words")

    def __init__(self, words: Iterable[str] = (), *, mark: str = _HIDDEN) -> None:
        self._words: frozenset[str] = frozenset()
        self._forms: list[_SecretForm] = []
        self._mark = mark
        self.add(words)

    def add(self, words: Iterable[str]) -> None:
        """Hide these words too."""
        new_words = {word for word in words if word} - self._words
        wholes = {text: _KEY.fullmatch(word) is None for word in new_words for text in _list_forms(word)}
        wholes |= {text: False for word in new_words for text in _in_base64(word)}
        self._words |= new_words
        # A new list, because another thread may be iterating over the old one.
        self._forms = [*self._forms, *(_SecretForm.of(text, whole=whole) for text, whole in wholes.items())]

    def __repr__(self) -> str:
        return f"<{len(self._words)} secrets>"

    def hide(self, text: str) -> str:
        """Return the text with the mark, by default `***`, for each secret."""
        places: list[tuple[int, int]] = []
        for form in self._forms:
            for start, block in form.blocks:
                # Most texts contain no block.
                if block in text:
                    places.extend(form.find(text, start, block))
        if not places:
            return text
        result, at = "", 0
        for begin, end in sorted(places):
            if begin > at or not result:
                result += text[at:begin] + self._mark
            at = max(at, end)
        return result + text[at:]

    @contextmanager
    def hidden_in(self, *loggers: str) -> Iterator[None]:
        """Hide the words in the messages and tracebacks of these loggers during the block, words that are added too.

        The filter of a logger does not apply to the loggers below it, so name each. Handlers run after the filter.
        """
        hider = _HidingFilter(self)
        named_loggers = [logging.getLogger(name) for name in loggers]
        with _changing:
            for logger in named_loggers:
                # A new list, because another thread may be iterating over the old one.
                logger.filters = [*logger.filters, hider]
        try:
            yield
        finally:
            with _changing:
                for logger in named_loggers:
                    logger.filters = [filter_ for filter_ in logger.filters if filter_ is not hider]


class _HidingFilter(logging.Filter):
    """Passes every record, without the secrets."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 (the handler reports a record that cannot be formatted)
            return True
        hidden_text = self._secrets.hide(message)
        if hidden_text != message:
            record.msg, record.args = hidden_text, None
        if record.exc_info:
            text = record.exc_text or logging.Formatter().formatException(record.exc_info)
            hidden_text = self._secrets.hide(text)
            if hidden_text != text:
                record.exc_info, record.exc_text = None, hidden_text
        return True


def _list_forms(secret: str) -> Iterator[str]:
    """Yield the forms of the secret in texts, JSON, addresses, pages and programs."""
    yield secret
    if len(secret) < _SHORTEST:
        return
    for form in (quote(secret), quote(secret, safe=""), quote_plus(secret)):
        yield form
        yield _PERCENT.sub(lambda match: match[0].lower(), form)
    for form in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield form
        yield form.replace("/", "\\/")
    yield html.escape(secret)
    yield repr(secret)[1:-1]


def _in_base64(secret: str) -> Iterator[str]:
    """Yield the part of the secret that is fixed in base64 whatever surrounds it, for each of the three offsets."""
    if len(secret) < _SHORTEST:
        return
    data = secret.encode(errors="surrogatepass")
    for before in range(3):
        # The first and the last character may contain bits of the neighboring bytes.
        whole = slice(-(-before * 4 // 3), (before + len(data)) * 4 // 3)
        plain = base64.b64encode(bytes(before) + data).decode()[whole]
        yield from {plain, plain.translate(str.maketrans("+/", "-_")), quote(plain, safe=""), plain.replace("/", "\\/")}
