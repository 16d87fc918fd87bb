"""Hiding secrets in pages and log lines: the secrets in this process's environment, and texts with the form of one.

A journal contains the texts of a model and its tools, and people share pages and logs. A secret of an unknown form is
not hidden (docs/security.md).

A text may be long and hostile. So no expression here scans the same characters repeatedly: the part before a match has
a maximum length, and an unlimited repetition is consumed completely when it is found.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Final

from pydantic import JsonValue

from turnwright_states.fact import PAYLOAD_VERSION, Fact
from turnwright_states.fact_parser import parse_fact

from .secrets import Secrets

HIDDEN: Final = "***"
#: The endings of names of variables whose values are secrets.
_VARIABLE: Final = re.compile(
    r"(?:(?:^|_)(?:KEY|PASS|AUTH|PAT|DSN)|(?<!^)_PWD|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY)$"
)
#: Shorter values are not hidden, because they occur in too many words.
_SHORTEST: Final = 8
#: The shortest text that can match, and the longest text whose result is cached.
_NOTHING_BELOW: Final = 8
_REMEMBERED: Final = 80

#: Keys with a unique prefix: the prefix, and the pattern of the rest.
_BEGUN: Final = {
    "-----BEGIN ": r"""[A-Z0-9 ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----
        (?: [A-Za-z0-9_+/=:,.\s\\-]*? -----END\ [A-Z0-9 ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----
          | [A-Za-z0-9_+/=:,\s\\-]* )""",
    # OpenAI, Anthropic, and many others.
    "sk-": r"[A-Za-z0-9_-]{16,}",
    # Stripe.
    **{f"{kind}_{mode}_": r"[A-Za-z0-9]{16,}" for kind in ("sk", "rk", "pk") for mode in ("live", "test")},
    # GitHub and GitLab.
    **{f"gh{kind}_": r"[A-Za-z0-9]{20,}" for kind in "pousr"},
    "github_pat_": r"\w{20,}",
    "glpat-": r"[\w-]{16,}",
    # Slack.
    **{f"xox{kind}-": r"[A-Za-z0-9-]{10,}" for kind in "abeoprs"},
    # Amazon and Google. The lookahead excludes pictures in base64.
    **dict.fromkeys(("AKIA", "ASIA"), r"[A-Z0-9]{16}(?![A-Za-z0-9+/])"),
    "AIza": r"[\w-]{35}(?![\w+/])",
    "ya29.": r"[\w-]{20,}",
    # Hugging Face, Groq, and two registries.
    **dict.fromkeys(("hf_", "gsk_"), r"[A-Za-z0-9]{20,}"),
    "npm_": r"[A-Za-z0-9]{30,}",
    # xAI, DigitalOcean, webhooks of Stripe, SendGrid.
    "xai-": r"[A-Za-z0-9]{20,}",
    "dop_v1_": r"[a-f0-9]{32,}",
    "whsec_": r"[A-Za-z0-9+/=]{16,}",
    "SG.": r"[\w-]{16,}\.[\w-]{16,}",
    "hooks.slack.com/services/": r"[\w/-]{8,}",
    "AccountKey=": r"[A-Za-z0-9+/=]{16,}",
    "pypi-": r"[\w-]{50,}",
    # A JSON web token. It must start a word, because otherwise too many positions could match.
    "eyJ": r"(?<![\w-]eyJ)[\w-]{8,400}\.eyJ[\w-]{8,8000}\.[\w-]+",
}
_FORMS: Final = {begins: re.compile(re.escape(begins) + pattern, re.VERBOSE) for begins, pattern in _BEGUN.items()}

#: The text between a name and its value, in JSON, in JSON within JSON, in a program or in a settings file.
_BETWEEN_THEM: Final = r"""\\{0,31}["']?\s{0,8}[:=]{1,3}>?\s{0,8}"""
#: The same, with the beginning of the value.
_BEHIND: Final = rf"""{_BETWEEN_THEM}\\{{0,31}}["']?"""
#: The names of secrets, and parts of which each name contains one.
_NAME: Final = (
    "(?:passw(?:or)?d|passphrase|(?<=_)pass(?![a-z])|secret(?:[_-]?key)?|(?:api|access|private)[_-]?key"
    "|(?:auth|access|refresh|bearer|bot|session|api|id)[_-]?token)"
)
_NAMES: Final = ("passw", "passphrase", "_pass", "secret", "key", "token")
#: The names of fields whose complete value is a secret, and parts of which each name contains one.
_FIELD: Final = rf"(?:{_NAME}s?|authorization)"
_FIELDS: Final = (*_NAMES, "authorization")
_NAME_OF_ONE: Final = re.compile(rf"{_FIELD}\Z", re.IGNORECASE)
#: A shorter number is not a secret.
_SHORTEST_NUMBER: Final = 4
#: The endings of a command's flags whose value, after a space, is a secret.
_FLAG: Final = "(?:password|passwd|passphrase|secret|token|api-key|access-key)"
#: Secrets after a name: parts of which the name contains one, and the pattern. Its first group, the name, stays.
_BEHIND_NAMES: Final = (
    (
        ("://",),
        # The password of an address.
        re.compile(r"""(://[^\s/:@"'\\]{0,200}:)[^\s/@"'\\]+(?=@)"""),
    ),
    (
        ("authorization",),
        re.compile(
            rf"""(authorization {_BEHIND})
                (?: (?:bearer|basic|token) \s{{1,8}} [^\s"'\\,;]{{6,}} | [\w.~+/=-]{{16,}} )""",
            re.VERBOSE | re.IGNORECASE,
        ),
    ),
    (
        ("bearer",),
        # A word of this length without a digit is not a token.
        re.compile(r"(\bbearer\s{1,8})(?=[a-z.~+/_-]*\d)[\w.~+/-]{16,}=*", re.IGNORECASE),
    ),
    (
        ("--",),
        # A flag of a command, and its value after a space.
        re.compile(
            rf"""((?<![\w-])--(?:[\w-]{{0,40}}-)?{_FLAG} [ ]{{1,4}})
                (?!-) [^\s"'\\]{{6,}}""",
            re.VERBOSE | re.IGNORECASE,
        ),
    ),
    (
        _NAMES,
        re.compile(
            rf"""({_NAME} {_BEHIND}) (?! \*\*\* | null\b | none\b | true\b | false\b ) [^\s"'\\,;&)}}\]]{{4,}}""",
            re.VERBOSE | re.IGNORECASE,
        ),
    ),
)
#: A name and the opening of a value with a clear end: a text in quotes, a list or an object.
_OPENING: Final = re.compile(
    rf"""(?: {_FIELD} {_BETWEEN_THEM} | (?<![\w-])--(?:[\w-]{{0,40}}-)?{_FLAG} [ ]{{1,4}} )
        (?: (?P<slashes>\\{{0,31}}) (?P<quote>["']) | [\[{{] )""",
    re.VERBOSE | re.IGNORECASE,
)
#: The maximum length of an opening, with all blanks and backslashes.
_LONGEST_OPENING: Final = 256
#: A bracket opens a list or an object only if a quote follows within this distance.
_REMARK: Final = 200
#: A quote with all backslashes before it, and the same or a bracket.
_QUOTES: Final = {quote: re.compile(rf"(?<!\\)(\\*){quote}") for quote in "\"'"}
_MARK: Final = re.compile(r"""(?<!\\)(\\*)(?:(["'])|([\[{])|([\]}]))""")
#: A longer text is searched in pieces of this size. A cut is safe where this pattern matches, because it cannot match
#: between a name and its value.
_PIECE: Final = 1 << 16
_BETWEEN: Final = re.compile(r"""[^\w\s:="'\\]\n""")


class Redactor:
    """Hides secrets in texts. `environ` has the secrets of this process."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        values = {value for name, value in environ.items() if _VARIABLE.search(name.upper())}
        self._secrets = Secrets(word for word in values if len(word) >= _SHORTEST)
        self._hide_short = lru_cache(maxsize=4096)(self._hide_text)

    def hide(self, text: str) -> str:
        """Return the text with `***` for each secret."""
        if len(text) < _NOTHING_BELOW:
            return text
        return self._hide_short(text) if len(text) <= _REMEMBERED else self._hide_text(text)

    def hide_in(self, value: JsonValue, name: str = "") -> JsonValue:
        """Return the value of a field with this name, with `***` for each secret in its texts and names."""
        if name and _NAME_OF_ONE.search(name):
            return _hide_all(value)
        match value:
            case str():
                return self.hide(value)
            case list():
                return [self.hide_in(item) for item in value]
            case dict():
                return self.hide_fields(value)
            case _:
                return value

    def hide_fields(self, fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the fields with `***` for each secret in their names and values."""
        hidden_fields: dict[str, JsonValue] = {}
        for key, value in fields.items():
            name = self.hide(key)
            number = 2
            while name in hidden_fields:  # two names that were secrets
                name, number = f"{self.hide(key)} ({number})", number + 1
            hidden_fields[name] = self.hide_in(value, key)
        return hidden_fields

    def _hide_text(self, text: str) -> str:
        text = self._secrets.hide(text)
        # Searching for a prefix takes a hundredth of the time of a pattern, and most texts contain no prefix.
        for begins, form in _FORMS.items():
            if begins in text:
                text = form.sub(_hide_unless_within, text)
        return "".join(map(_without_named, _split_pieces(_hide_values(text))))


@cache
def redactor() -> Redactor:
    """Return the redactor of this process."""
    return Redactor(os.environ)


def shown_fields(fact: Fact, hider: Redactor) -> dict[str, JsonValue]:
    """Return the fields of a fact as JSON, without secrets."""
    return hider.hide_fields(fact.to_json())


def without_secrets(fact: Fact, hider: Redactor) -> Fact:
    """Return the fact if it has no secrets, or else a copy without them.

    Raises `InvalidJournalError` if no such fact exists.
    """
    fields = fact.to_json()
    hidden_fields = shown_fields(fact, hider)
    if hidden_fields == fields:
        return fact
    return parse_fact(fact.kind, json.dumps({"v": PAYLOAD_VERSION, **hidden_fields}))


def opened_in(text: str) -> tuple[int, int] | None:
    """Return the positions of the name and of the value of a secret without an end, or None.

    Text that is appended later may still belong to that value.
    """
    return next(((name_at, begin) for name_at, begin, end in _values_in(text) if end < 0), None)


def _hide_all(value: JsonValue) -> JsonValue:
    """Return the value with all contents hidden. Empty values, booleans and null are not secrets and stay."""
    match value:
        case list():
            return [_hide_all(item) for item in value]
        case str() | dict():
            return HIDDEN if value else value
        case bool() | None:
            return value
        case _:
            return value if len(str(value)) < _SHORTEST_NUMBER else HIDDEN


def _hide_values(text: str) -> str:
    """Hide the values of secrets that have a name and a clear end."""
    text_out, at = "", 0
    for _, begin, end in _values_in(text):
        text_out += text[at:begin] + HIDDEN * (begin < len(text))
        at = len(text) if end < 0 else end
    return text_out + text[at:]


def _values_in(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield the positions of each such value: its name, its start and its end, -1 for a value without an end."""
    lower = text.lower()
    if not any(name in lower for name in (*_FIELDS, "--")):
        return
    at = 0
    while (opening := _next_opening(text, at)) is not None:
        begin = at = opening.end()
        end: int | None
        if opening["quote"]:
            end = _end_of_quoted(text, begin, len(opening["slashes"]), opening["quote"])
        elif (end := _end_of_bracketed(text, begin)) is not None:
            begin -= 1
        if end is not None and end != begin:
            yield opening.start(), begin, end
            if end < 0:
                return
            at = end


def _next_opening(text: str, at: int) -> re.Match[str] | None:
    """Return the next opening. Short searches let other threads run in between, which a pattern blocks."""
    while at < len(text):
        if (match := _OPENING.search(text, at, at + _PIECE)) is not None:
            return _OPENING.match(text, match.start()) or match  # the match may continue after the piece
        at += _PIECE - _LONGEST_OPENING
    return None


def _end_of_quoted(text: str, at: int, slashes: int, quote: str) -> int:
    """Return the end of a quoted text whose quotes have `slashes` backslashes before them, or -1."""
    for mark in _QUOTES[quote].finditer(text, at):
        if _ends(len(mark[1]), slashes):
            return mark.end() - 1 - slashes
    return -1


def _ends(backslashes: int, slashes: int) -> bool:
    """Whether a quote with `backslashes` backslashes before it ends a text whose quotes have `slashes` before them."""
    # In that text each backslash is written as `slashes + 1` of them, and a quote has `2 * slashes + 1` before it.
    return backslashes % (2 * slashes + 2) == slashes


def _end_of_bracketed(text: str, at: int) -> int | None:
    """Return the end of the bracketed value that opens before `at`: -1 without an end, None without a quoted text."""
    depth, slashes, within = 1, None, ""
    for mark in _MARK.finditer(text, at):
        if slashes is None:
            if mark.start() > at + _REMARK:
                return None
            if mark[2]:
                slashes = len(mark[1])
        if within:
            if mark[2] == within and slashes is not None and _ends(len(mark[1]), slashes):
                within = ""
        elif mark[2]:
            within = mark[2]
        else:
            depth += 1 if mark[3] else -1
            if not depth:
                return None if slashes is None else mark.end()
    return None if slashes is None else -1


def _without_named(text: str) -> str:
    """Hide the secrets that follow a name."""
    lower = text.lower()
    for names, behind in _BEHIND_NAMES:
        if any(name in lower for name in names):
            text = behind.sub(rf"\1{HIDDEN}", text)
    return text


def _split_pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces, so that other threads can run between them, which a pattern blocks."""
    start = 0
    while (match := _BETWEEN.search(text, start + _PIECE)) is not None:
        yield text[start : match.end()]
        start = match.end()
    yield text[start:]


def _hide_unless_within(match: re.Match[str]) -> str:
    """Return the replacement of a match: the match itself if it continues a word, else `***`."""
    before = match.string[match.start() - 1 : match.start()]
    return match[0] if before.isalnum() else HIDDEN
