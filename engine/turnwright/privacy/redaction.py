"""Hides secrets in what pages and log lines show: those of this process's environment, and what has the form of one.

A journal keeps what a model and its tools said, and people show each other pages and logs. A form that is not known
here passes: this is a net, not a wall (docs/security.md).

What a model or a tool says can be long, and made on purpose. So no expression here looks again and again at the same
letters: what may stand before a match is bounded, and what repeats without a bound is taken whole when it is found.
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
#: Variables whose values are secrets, by how their names end.
_VARIABLE: Final = re.compile(
    r"(?:(?:^|_)(?:KEY|PASS|AUTH|PAT|DSN)|(?<!^)_PWD|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY)$"
)
#: A shorter value hides nothing, and stands in too many words.
_SHORTEST: Final = 8
#: The shortest text that anything here matches, and the longest that is worth remembering with its result.
_NOTHING_BELOW: Final = 8
_REMEMBERED: Final = 80

#: What begins as no other word does, by whoever gives it out: the beginning, and what follows.
_BEGUN: Final = {
    "-----BEGIN ": r"""[A-Z0-9 ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----
        (?: [A-Za-z0-9_+/=:,.\s\\-]*? -----END\ [A-Z0-9 ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----
          | [A-Za-z0-9_+/=:,\s\\-]* )""",
    # OpenAI, Anthropic, and many who do as they do.
    "sk-": r"[A-Za-z0-9_-]{16,}",
    # Stripe.
    **{f"{kind}_{mode}_": r"[A-Za-z0-9]{16,}" for kind in ("sk", "rk", "pk") for mode in ("live", "test")},
    # GitHub and GitLab.
    **{f"gh{kind}_": r"[A-Za-z0-9]{20,}" for kind in "pousr"},
    "github_pat_": r"\w{20,}",
    "glpat-": r"[\w-]{16,}",
    # Slack.
    **{f"xox{kind}-": r"[A-Za-z0-9-]{10,}" for kind in "abeoprs"},
    # Amazon and Google: letters and digits alone, as pictures in base64 are too.
    **dict.fromkeys(("AKIA", "ASIA"), r"[A-Z0-9]{16}(?![A-Za-z0-9+/])"),
    "AIza": r"[\w-]{35}(?![\w+/])",
    "ya29.": r"[\w-]{20,}",
    # Hugging Face, Groq, and two registries.
    **dict.fromkeys(("hf_", "gsk_"), r"[A-Za-z0-9]{20,}"),
    "npm_": r"[A-Za-z0-9]{30,}",
    # Others who mark what is theirs: xAI, DigitalOcean, webhooks of Stripe, SendGrid.
    "xai-": r"[A-Za-z0-9]{20,}",
    "dop_v1_": r"[a-f0-9]{32,}",
    "whsec_": r"[A-Za-z0-9+/=]{16,}",
    "SG.": r"[\w-]{16,}\.[\w-]{16,}",
    "hooks.slack.com/services/": r"[\w/-]{8,}",
    "AccountKey=": r"[A-Za-z0-9+/=]{16,}",
    "pypi-": r"[\w-]{50,}",
    # A JSON web token. It begins a word, or else there would be many places where it may begin.
    "eyJ": r"(?<![\w-]eyJ)[\w-]{8,400}\.eyJ[\w-]{8,8000}\.[\w-]+",
}
_FORMS: Final = {begins: re.compile(re.escape(begins) + rest, re.VERBOSE) for begins, rest in _BEGUN.items()}

#: What stands between a name and its value: in JSON, in JSON within JSON, in a program, in a file of settings.
_BETWEEN_THEM: Final = r"""\\{0,31}["']?\s{0,8}[:=]{1,3}>?\s{0,8}"""
#: The same, and how the value begins.
_BEHIND: Final = rf"""{_BETWEEN_THEM}\\{{0,31}}["']?"""
#: What names a secret, and letters of which each of these names has some.
_NAME: Final = (
    "(?:passw(?:or)?d|passphrase|(?<=_)pass(?![a-z])|secret(?:[_-]?key)?|(?:api|access|private)[_-]?key"
    "|(?:auth|access|refresh|bearer|bot|session|api|id)[_-]?token)"
)
_NAMES: Final = ("passw", "passphrase", "_pass", "secret", "key", "token")
#: The names of fields whose whole value is a secret, and letters of which each of these has some.
_FIELD: Final = rf"(?:{_NAME}s?|authorization)"
_FIELDS: Final = (*_NAMES, "authorization")
_NAME_OF_ONE: Final = re.compile(rf"{_FIELD}\Z", re.IGNORECASE)
#: A number that is shorter is none.
_SHORTEST_NUMBER: Final = 4
#: How the name of a flag of a command ends, whose value stands behind a space.
_FLAG: Final = "(?:password|passwd|passphrase|secret|token|api-key|access-key)"
#: What stands behind a name that says what it is. What makes it a name stays.
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
        # Words are not that long without a digit.
        re.compile(r"(\bbearer\s{1,8})(?=[a-z.~+/_-]*\d)[\w.~+/-]{16,}=*", re.IGNORECASE),
    ),
    (
        ("--",),
        # A flag of a command, and its value behind a space.
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
#: A name and the beginning of a value that says itself where it ends: a text in quotes, a list or an object.
_OPENING: Final = re.compile(
    rf"""(?: {_FIELD} {_BETWEEN_THEM} | (?<![\w-])--(?:[\w-]{{0,40}}-)?{_FLAG} [ ]{{1,4}} )
        (?: (?P<slashes>\\{{0,31}}) (?P<quote>["']) | [\[{{] )""",
    re.VERBOSE | re.IGNORECASE,
)
#: No opening is longer, with all its blanks and backslashes.
_LONGEST_OPENING: Final = 256
#: How far behind a bracket a quote makes it a list or an object, and no remark.
_REMARK: Final = 200
#: A quote with all backslashes before it, and one of these or a bracket.
_QUOTES: Final = {quote: re.compile(rf"(?<!\\)(\\*){quote}") for quote in "\"'"}
_MARK: Final = re.compile(r"""(?<!\\)(\\*)(?:(["'])|([\[{])|([\]}]))""")
#: From so many letters on a text is looked through in pieces, and where it can be cut: a name and what is behind it
#: have nothing else between them than what cannot stand here before the end of a line.
_PIECE: Final = 1 << 16
_BETWEEN: Final = re.compile(r"""[^\w\s:="'\\]\n""")


class Redactor:
    """Hides secrets in texts. `environ` is where this process's own stand."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        known = {value for name, value in environ.items() if _VARIABLE.search(name.upper())}
        self._known = Secrets(one for one in known if len(one) >= _SHORTEST)
        self._hide_short = lru_cache(maxsize=4096)(self._hidden)

    def hide(self, text: str) -> str:
        """The text with `***` for each secret."""
        if len(text) < _NOTHING_BELOW:
            return text
        return self._hide_short(text) if len(text) <= _REMEMBERED else self._hidden(text)

    def hide_in(self, value: JsonValue, name: str = "") -> JsonValue:
        """The value, which stands under this name, with `***` for each secret in the texts and names that it holds."""
        if name and _NAME_OF_ONE.search(name):
            return _nothing_of(value)
        match value:
            case str():
                return self.hide(value)
            case list():
                return [self.hide_in(one) for one in value]
            case dict():
                return self.hide_fields(value)
            case _:
                return value

    def hide_fields(self, fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The fields with `***` for each secret in their names and values."""
        hidden: dict[str, JsonValue] = {}
        for key, value in fields.items():
            name = self.hide(key)
            number = 2
            while name in hidden:  # two names that were secrets
                name, number = f"{self.hide(key)} ({number})", number + 1
            hidden[name] = self.hide_in(value, key)
        return hidden

    def _hidden(self, text: str) -> str:
        text = self._known.hide(text)
        # To look for a few letters takes a hundredth of the time of an expression, and most texts have none of them.
        for begins, form in _FORMS.items():
            if begins in text:
                text = form.sub(_unless_within, text)
        return "".join(map(_without_named, _pieces(_without_values(text))))


@cache
def redactor() -> Redactor:
    """The redactor of this process."""
    return Redactor(os.environ)


def shown_fields(fact: Fact, hider: Redactor) -> dict[str, JsonValue]:
    """The fields of a fact as JSON, without secrets."""
    return hider.hide_fields(fact.to_json())


def without_secrets(fact: Fact, hider: Redactor) -> Fact:
    """The fact itself, where it has none, or one of its kind without them.

    Raises `InvalidJournalError` where there is none.
    """
    fields = fact.to_json()
    hidden = shown_fields(fact, hider)
    if hidden == fields:
        return fact
    return parse_fact(fact.kind, json.dumps({"v": PAYLOAD_VERSION, **hidden}))


def opened_in(text: str) -> tuple[int, int] | None:
    """Where a named value begins that has no end in the text: its name, and itself. None where there is none.

    What is added to the text may still be part of that value.
    """
    return next(((named, begin) for named, begin, end in _values_in(text) if end < 0), None)


def _nothing_of(value: JsonValue) -> JsonValue:
    """What is shown of a value that is a secret. That it is empty, or whether it is set, is none."""
    match value:
        case list():
            return [_nothing_of(one) for one in value]
        case str() | dict():
            return HIDDEN if value else value
        case bool() | None:
            return value
        case _:
            return value if len(str(value)) < _SHORTEST_NUMBER else HIDDEN


def _without_values(text: str) -> str:
    """The text without the values in it that stand behind a name and say where they end, whatever is in them."""
    shown, at = "", 0
    for _, begin, end in _values_in(text):
        shown += text[at:begin] + HIDDEN * (begin < len(text))
        at = len(text) if end < 0 else end
    return shown + text[at:]


def _values_in(text: str) -> Iterator[tuple[int, int, int]]:
    """Where each such value stands: its name, its first character, and what is behind its last; -1 if it has no end."""
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
    """The next opening. An expression lets no other thread run until it is through, so that it is given little."""
    while at < len(text):
        if (found := _OPENING.search(text, at, at + _PIECE)) is not None:
            return _OPENING.match(text, found.start()) or found  # what it found may go on behind the piece
        at += _PIECE - _LONGEST_OPENING
    return None


def _end_of_quoted(text: str, at: int, slashes: int, quote: str) -> int:
    """Where the quote stands that ends a text in quotes, with so many backslashes before each of them; -1 for none."""
    for mark in _QUOTES[quote].finditer(text, at):
        if _ends(len(mark[1]), slashes):
            return mark.end() - 1 - slashes
    return -1


def _ends(found: int, slashes: int) -> bool:
    """Whether a quote with so many backslashes before it ends a text whose quotes have `slashes` before them."""
    # Of each backslash in that text stand there `slashes + 1`, and of a quote in it one more than twice `slashes`.
    return found % (2 * slashes + 2) == slashes


def _end_of_bracketed(text: str, at: int) -> int | None:
    """What is behind the bracket that closes the one before `at`; -1 for none, and None if it has no text in quotes."""
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
    """The text without what stands behind a name that says what it is."""
    lower = text.lower()
    for names, behind in _BEHIND_NAMES:
        if any(name in lower for name in names):
            text = behind.sub(rf"\1{HIDDEN}", text)
    return text


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces: an expression lets no other thread run until it is through with its text."""
    start = 0
    while (cut := _BETWEEN.search(text, start + _PIECE)) is not None:
        yield text[start : cut.end()]
        start = cut.end()
    yield text[start:]


def _unless_within(found: re.Match[str]) -> str:
    """What stands for what has the form of a secret; that itself, where it goes on from a word before it."""
    before = found.string[found.start() - 1 : found.start()]
    return found[0] if before.isalnum() else HIDDEN
