"""Numbers and texts in the form that people read: counted, shortened, on one line."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

#: Control characters: terminals obey them, and PostgreSQL stores no NUL.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 step`, `1,200 steps`. The plural ends in `s` unless it is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def money(number: float) -> str:
    """Return an amount of money without a currency, with at least three digits and no exponent: `0.012`, `1,234.50`."""
    return f"{number:,.2f}" if number >= 1 or not number else f"{number:.3f}"


def local_time(seconds: float, form: str) -> str:
    """Format a time since the Unix epoch in local time. A time after the calendar's last date stays a number."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime(form)
    except (OverflowError, OSError, ValueError):
        return f"{seconds:g} s since 1970"


def cut(text: str, most: int) -> str:
    """Cut a text to `most` characters. The last character of a cut text is an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def clean(text: str) -> str:
    """Return a plain `str` without lone surrogates, which neither a store nor a provider can encode."""
    return text if type(text) is str and text.isascii() else str.encode(text, errors="replace").decode()


def cut_clean(text: str, limit: int) -> str:
    """Cut `text` to `limit` characters, without lone surrogates. The last character of a cut text is an ellipsis."""
    return cut(clean(text), limit)


def text_of(error: BaseException) -> str:
    """Return the text of an error, `clean`, also of an error that fails to print."""
    try:
        return clean(str(error))
    except Exception:  # noqa: BLE001 (the app's error)
        return f"(the text of {type(error).__name__} cannot be shown)"


def show_value(value: object) -> str:
    """Return the beginning of a value's `repr`, or its type if it fails to print."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001 (the app's value)
        return f"a {type(value).__name__} that cannot be shown"


def cut_tight(text: str, most: int) -> str:
    """Cut a text as `cut` does, without blanks before the ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def cut_after(text: str, most: int, mark: str = "…") -> str:
    """Cut a text after `most` characters, and append the mark, which is not counted."""
    return text if len(text) <= most else text[:most] + mark


def cut_line(text: str, most: int = 160) -> str:
    """Return a text on one line of at most `most` characters."""
    return cut(collapse_whitespace(text), most)


def cut_utf8(data: bytes, most: int) -> str:
    """Decode the first `most` bytes of valid UTF-8, without an incomplete last character."""
    return data[:most].decode(errors="ignore")


def collapse_whitespace(text: str) -> str:
    """Return a text on one line: each run of white space becomes one space."""
    return " ".join(text.split())


def collapse_controls(text: str) -> str:
    """Return a text on one line: each run of white space and control characters becomes one space."""
    return collapse_whitespace(_CONTROL.sub(" ", text))


def escape_unprintable(text: str) -> str:
    r"""Write line breaks, other control characters and surrogates as escapes (`\n`).

    Otherwise a file's name could imitate another line of a listing, or another question to a person.
    """
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)


def explain_json_error(error: Exception) -> str:
    """Return why a text is not JSON. Pythons have different words, of their stack, for one that nests too deep."""
    return "it nests too many lists and objects" if isinstance(error, RecursionError) else str(error)


def name_of(function: Callable[..., object]) -> str:
    """Return the name of a function of the app, for people."""
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__
