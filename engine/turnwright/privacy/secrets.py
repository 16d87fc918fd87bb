"""Secrets, kept out of what is said: in texts of our own, and in the log lines of the libraries that talk for us.

A secret is found as it is, as texts of other kinds write it (JSON, addresses, programs, base64), and with some of its
characters missing at either end.
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

#: Which libraries write what they send and receive into their logs: addresses at level INFO, headers at DEBUG.
HTTP_LOGGERS: Final = (
    *("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))),
    *("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))),
)

#: A shorter secret is looked for as it is, and in no other form: it stands in too many words.
_SHORTEST: Final = 8
#: What may be a key: no short word, no address and no path. Of these, and of base64, a part is hidden as well.
_KEY: Final = re.compile(r"(?![/.])(?:(?=\D*\d)[\w+/=.~-]{12,}|[\w+/=.~-]{20,})", re.ASCII)
_PERCENT: Final = re.compile(r"%[0-9A-F]{2}")

#: Two who change the filters of a logger at once would lose one of them.
_changing: Final = threading.Lock()


class _SecretForm(NamedTuple):
    """A secret as some text writes it. At least `least` of its characters in a row are hidden.

    Each such part holds one of `blocks` whole, each with its place in the form. To look for these few is quick.
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

    def find(self, said: str, start: int, block: str) -> Iterator[tuple[int, int]]:
        """Where it stands around one of its blocks: the first character, and what is behind the last."""
        at = said.find(block)
        while at >= 0:
            begin, end = at, at + len(block)
            before, behind = start, start + len(block)
            while before and begin and said[begin - 1] == self.text[before - 1]:
                begin, before = begin - 1, before - 1
            while behind < len(self.text) and end < len(said) and said[end] == self.text[behind]:
                end, behind = end + 1, behind + 1
            if end - begin >= self.least:
                yield begin, end
            at = said.find(block, end if end - begin >= self.least else at + 1)


class Secrets:
    """Words that nobody may read. `mark` is what stands in their place.

    Each is also hidden as JSON, addresses, programs and base64 write it, at any place in the bytes that were encoded.
    Of a word that may be a key, and of base64, two thirds in a row are hidden too, from eight characters on.
    """

    __slots__ = ("_forms", "_mark", "_size")

    def __init__(self, words: Iterable[str] = (), *, mark: str = _HIDDEN) -> None:
        found = {word for word in words if word}
        self._size = len(found)
        self._mark = mark
        wholes = {text: _KEY.fullmatch(word) is None for word in found for text in _written(word)}
        wholes |= {text: False for word in found for text in _in_base64(word)}
        self._forms = [_SecretForm.of(text, whole=whole) for text, whole in wholes.items()]

    def __repr__(self) -> str:
        return f"<{self._size} secrets>"

    def hide(self, text: str) -> str:
        """The text with the mark, `***` as a rule, in the place of each secret."""
        places: list[tuple[int, int]] = []
        for form in self._forms:
            for start, block in form.blocks:
                # Most texts hold none of them.
                if block in text:
                    places.extend(form.find(text, start, block))
        if not places:
            return text
        hidden, at = "", 0
        for begin, end in sorted(places):
            if begin > at or not hidden:
                hidden += text[at:begin] + self._mark
            at = max(at, end)
        return hidden + text[at:]

    @contextmanager
    def hidden_in(self, *loggers: str) -> Iterator[None]:
        """Hide them in what these loggers write while the block runs, in message and traceback.

        A logger does not filter what those below it write: name each. A handler sees the record only after this.
        """
        if not self._forms:
            yield
            return
        hider = _HidingFilter(self)
        named = [logging.getLogger(name) for name in loggers]
        with _changing:
            for logger in named:
                # A new list, for another thread may be going through the old one.
                logger.filters = [*logger.filters, hider]
        try:
            yield
        finally:
            with _changing:
                for logger in named:
                    logger.filters = [one for one in logger.filters if one is not hider]


class _HidingFilter(logging.Filter):
    """Lets every record pass, without the secrets."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            said = record.getMessage()
        except Exception:  # noqa: BLE001 (a record that cannot be written out is told of by its handler)
            return True
        hidden = self._secrets.hide(said)
        if hidden != said:
            record.msg, record.args = hidden, None
        if record.exc_info:
            told = record.exc_text or logging.Formatter().formatException(record.exc_info)
            hidden = self._secrets.hide(told)
            if hidden != told:
                record.exc_info, record.exc_text = None, hidden
        return True


def _written(secret: str) -> Iterator[str]:
    """The secret as it stands in texts, in JSON, in addresses, in pages and in programs."""
    yield secret
    if len(secret) < _SHORTEST:
        return
    for form in (quote(secret), quote(secret, safe=""), quote_plus(secret)):
        yield form
        yield _PERCENT.sub(lambda found: found[0].lower(), form)
    for form in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield form
        yield form.replace("/", "\\/")
    yield html.escape(secret)
    yield repr(secret)[1:-1]


def _in_base64(secret: str) -> Iterator[str]:
    """What of the secret stands in base64, whatever stands before and behind it there: at each of three places."""
    if len(secret) < _SHORTEST:
        return
    data = secret.encode(errors="surrogatepass")
    for before in range(3):
        # The first and the last character may also hold bits of what stands beside the secret.
        whole = slice(-(-before * 4 // 3), (before + len(data)) * 4 // 3)
        plain = base64.b64encode(bytes(before) + data).decode()[whole]
        yield from {plain, plain.translate(str.maketrans("+/", "-_")), quote(plain, safe=""), plain.replace("/", "\\/")}
