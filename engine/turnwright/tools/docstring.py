"""A small parser of docstrings: the description of a function, and of each of its arguments.

It reads three styles: Google (`Args:`), reST (`:param x:`) and NumPy (`Parameters` over a line of dashes). Anything
else is left out and is never an error.
"""

import inspect
import re
from typing import Final, Literal, NamedTuple

_ARGUMENTS: Final = frozenset(
    {"args", "arguments", "params", "parameters", "keyword args", "keyword arguments", "other parameters"}
)
_OTHER_SECTIONS: Final = frozenset({"return", "returns", "yield", "yields", "raises", "attributes"})
_FIELD: Final = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(?P<name>\w+)\s*:(?P<text>.*)"
)
_OTHER_FIELD: Final = re.compile(r":(?:type|returns?|rtype|raises?|except|yields?|ytype)\b[^:]*:")
_ENTRY: Final = re.compile(r"\s*\*{0,2}(?P<name>\w+)\s*(?:\(.*?\))?\s*:(?P<text>.*)")
_NAMES: Final = re.compile(r"\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*")

_Style = Literal["google", "rest", "numpy", "other"]


class Docstring(NamedTuple):
    """The paragraphs before the first section, and the description of each argument."""

    description: str
    arguments: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """Parse a docstring; None counts as empty. Line breaks in the description of an argument become spaces."""
    lines = inspect.cleandoc(text or "").splitlines()
    begin = next((number for number in range(len(lines)) if _find_style(lines, number)), len(lines))
    parts_by_name: dict[str, list[str]] = {}
    names: list[str] = []
    style: _Style | None = None
    base: int | None = None  # the indentation of the entries of a Google section
    for number in range(begin, len(lines)):
        line = lines[number]
        indent = len(line) - len(line.lstrip())
        if new_style := _find_style(lines, number):
            style, names, base = new_style, [], None
            if field := _FIELD.match(line):
                names = [field["name"]]
                parts_by_name[field["name"]] = [field["text"].strip()]
        elif not line.strip() or style == "other":
            continue
        elif style == "numpy" and indent == 0:
            head = line.partition(":")[0].strip()
            names = re.findall(r"\w+", head) if _NAMES.fullmatch(head) else []
            parts_by_name.update((name, []) for name in names)
        elif style == "google" and base in (None, indent) and (entry := _ENTRY.match(line)) and indent:
            base = indent
            names = [entry["name"]]
            parts_by_name[entry["name"]] = [entry["text"].strip()]
        elif indent == 0:
            style, names = "other", []
        else:
            for name in names:
                parts_by_name[name].append(line.strip())
    return Docstring(
        description="\n".join(lines[:begin]).strip(),
        arguments={name: text for name, parts in parts_by_name.items() if (text := " ".join(filter(None, parts)))},
    )


def _find_style(lines: list[str], number: int) -> _Style | None:
    line = lines[number]
    if _FIELD.match(line):
        return "rest"
    if _OTHER_FIELD.match(line):
        return "other"
    title = line.lower()
    is_underlined = number + 1 < len(lines) and re.fullmatch(r"-{3,}\s*", lines[number + 1]) is not None
    if is_underlined or title.endswith(":"):
        word = title.removesuffix(":").strip() if not is_underlined else title.strip()
        if word in _ARGUMENTS and not line[:1].isspace():
            return "numpy" if is_underlined else "google"
        if word in _OTHER_SECTIONS and not line[:1].isspace():
            return "other"
    return None
