"""Render templates. Every value in a page is escaped, made visible, and without secrets."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, partial
from typing import Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from turnwright._base.words import cut_tight
from turnwright.journal.questions import describe_approvals
from turnwright.privacy.invisible import replace_invisible
from turnwright.privacy.redaction import Redactor, redactor

from .markup import ColoringBudget, coloring, highlight, markdown
from .questions import question_text

#: Seconds of a minute, an hour and a day.
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
#: Shorter times are in milliseconds, or in seconds.
_SHORT: Final = 0.9995
_LONG: Final = 59.95
#: The smallest number with four decimals; smaller ones have more.
_SMALL: Final = 0.001
#: The largest number without an exponent. Only a forged journal has larger ones.
_LARGE: Final = 10**15

#: The smallest cost that is shown as it is.
_CENT_OF_A_CENT: Final = 0.0001
#: The longest text that is shown as JSON over several lines.
_LONGEST_DATA: Final = 20_000

#: The most characters of a secret behind the shown part of a text.
_EDGE: Final = 16_384

#: The pictures of the control characters, and where those begin that have none.
_PICTURES: Final = 0x2400
_SPACE, _DELETE = 0x20, 0x7F


@cache
def environment() -> Environment:
    """The templates with their filters. A name that a template misspells is an error, not an empty place."""
    return environment_with(redactor())


def environment_with(hider: Redactor) -> Environment:
    environment = Environment(
        loader=PackageLoader("turnwright_inspector"),
        autoescape=True,
        finalize=partial(_finalize, hider.hide),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        seconds=seconds,
        moment=moment,
        amount=amount,
        dollars=dollars,
        asked=partial(question_text, hider),
        approvals=describe_approvals,
        json=lambda value: json_text(hider.hide_in(value)),
        span=span,
        shown=lambda text: visible(hider.hide(str(text))),
        # Half a secret is not known as one: it is hidden before anything is cut.
        truncate=lambda text, length: cut_tight(hider.hide(str(text)), length),
        beginning=lambda text, length: beginning(str(text), length, hider.hide),
        markdown=lambda text: markdown(str(text), lambda words: visible(hider.hide(words))),
        code=lambda text, language, length: highlight(visible(beginning(str(text), length, hider.hide)), language),
        data_in=partial(_data_in, hider),
        urlencode=lambda fields: urlencode({name: hider.hide(value) for name, value in fields.items()}),
    )
    # What these give is taken for a template's own words, in which nothing is hidden or escaped.
    for name in ("safe", "tojson"):
        del environment.filters[name]
    return environment


def render(template: str, values: Mapping[str, object]) -> str:
    with coloring(ColoringBudget()):
        return environment().get_template(template).render(values)


def beginning(text: str, most: int, hide: Callable[[str], str]) -> str:
    """The first `most` characters of a text (0: all of it) without its secrets, and how many more there are.

    A page with all of a long turn's results would be larger than a browser shows.
    """
    if not most or len(text) <= most:
        return hide(text)
    # Secrets are hidden before the text is cut, because half a secret is not recognized.
    return f"{hide(text[: most + _EDGE])[:most]}\n... {len(text) - most:,} more characters: see the journal's file"


def seconds(value: float) -> str:
    """Format a time: `12 ms`, `3.4 s`, `2 min 5 s`, `3 h 20 min`, `2 d 4 h`."""
    if value < _SHORT:
        return f"{value * 1000:.0f} ms"
    if value < _LONG:
        return f"{value:.1f} s"
    value = max(value, _MINUTE)
    for size, unit, smaller, small in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", 1, "s")):
        if value >= size:
            whole, remainder = divmod(value, size)
            return f"{whole:.0f} {unit} {remainder // smaller:.0f} {small}"
    return f"{value:.0f} s"


def span(value: float) -> str:
    """Format a round time: `1 minute`, `4 hours`, `7 days`."""
    for size, unit in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if value >= size and not value % size:
            return f"{value / size:.0f} {unit}{'' if value == size else 's'}"
    return f"{value:.0f} second{'' if value == 1 else 's'}"


def moment(value: float) -> str:
    """A moment in ISO 8601, in UTC; scripts on the page turn it into the reader's own time.

    A moment outside the calendar is in seconds.
    """
    try:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{value:g} s"


def json_text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def amount(value: float) -> str:
    """Format a number: `1,234`, `0.0042`, `0.000013`; a huge one as `1.00e+400`."""
    if abs(value) >= _LARGE:
        return f"{Decimal(value):.3g}"
    if float(value).is_integer():
        return f"{value:,.0f}"
    if abs(value) < _SMALL:
        return f"{value:.2g}" if "e" not in f"{value:.2g}" else f"{value:.12f}".rstrip("0").rstrip(".") or "0"
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def dollars(value: float) -> str:
    """Format a cost in US dollars, as prices are published: `$0.0042`, `$1,200.5000`; `<$0.0001` if it is less."""
    if abs(value) >= _LARGE:
        return f"${amount(value)}"
    return f"${value:,.4f}" if not 0 < value < _CENT_OF_A_CENT else f"<${_CENT_OF_A_CENT:.4f}"


def _data_in(hider: Redactor, text: str) -> str:
    """Return a text that is a JSON object or a list as JSON over several lines; empty for any other."""
    if len(text) > _LONGEST_DATA or text.lstrip()[:1] not in ("{", "["):
        return ""
    try:
        return json_text(hider.hide_in(json.loads(text)))
    except (ValueError, RecursionError):
        return ""


def visible(text: str) -> str:
    """Replace each invisible character, and each that changes the direction of text, by a picture or a number."""
    return replace_invisible(text, _picture)


def _picture(character: str) -> str:
    code = ord(character)
    if character == "\r":  # a browser breaks the line there
        return character
    if code < _SPACE:
        return chr(_PICTURES + code)
    return "␡" if code == _DELETE else f"[U+{code:04X}]"


def _finalize(hide: Callable[[str], str], value: object) -> object:
    """Prepare a value before it is escaped. A template's own text is returned unchanged."""
    if hasattr(value, "__html__") or isinstance(value, int | float):
        return value
    return visible(hide(str(value)))
