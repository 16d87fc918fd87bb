"""Secrets, kept out of what is said: in texts of our own, and in the log lines of the libraries that talk for us."""

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

_HIDDEN: Final = "***"

#: Two who change the filters of a logger at once would lose one of them.
_changing: Final = threading.Lock()


class Secrets:
    """Words that nobody may read."""

    __slots__ = ("_words",)

    def __init__(self, words: Iterable[str] = ()) -> None:
        # The longest first: one may be a part of another.
        self._words = sorted({word for word in words if word}, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"<{len(self._words)} secrets>"

    def hide(self, text: str) -> str:
        """The text with `***` in the place of each secret."""
        for word in self._words:
            text = text.replace(word, _HIDDEN)
        return text

    @contextmanager
    def hidden_in(self, *loggers: str) -> Iterator[None]:
        """Hide them in what these loggers write while the block runs, in message and traceback.

        A logger does not filter what those below it write: name each. A handler sees the record only after this.
        """
        if not self._words:
            yield
            return
        hider = _Hider(self)
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


class _Hider(logging.Filter):
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
