"""Finding the secrets in a server's configuration: by their place, by their names, and by their form."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import unquote, unquote_plus, urlsplit

#: A shorter secret could be an ordinary word, and is not hidden.
_SHORTEST: Final = 6
#: From this length on, a part of an address with a digit counts as a key.
_KEY_LENGTH: Final = 16

# Names have a maximum length, because the time for a long argument would grow with its square.
_WORD: Final = r"(?:key|token|secret|passw|passphrase|pwd|auth|credential|cookie|signature)[\w.-]{0,80}"
_NAME: Final = rf"[\w.-]{{0,80}}{_WORD}"
#: `--api-key`, with its value in the next argument.
_OPTION: Final = re.compile(rf"--?{_NAME}", re.IGNORECASE)
#: The same for an HTTP header, `NAME: VALUE`.
_HEADER: Final = re.compile(r"-H|--headers?")
#: `API_KEY=value`, `--token=value`, `X-Api-Key: value`, as a complete argument.
_WHOLE: Final = re.compile(rf"(?:-*(?:{_NAME})\s*[=:]|--header=[^:]*:)\s*(.+)", re.IGNORECASE | re.DOTALL)
#: The same inside another text, as in JSON.
_WITHIN: Final = re.compile(
    rf"""{_WORD}["']?\s{{0,8}}[=:]\s*["']?(?:(?:bearer|basic|token)\s+)?([^\s"',;&{{}}]+)""", re.IGNORECASE
)
_SCHEMES: Final = frozenset({"basic", "bearer", "token"})


def hidden_words(values: Iterable[str]) -> frozenset[str]:
    """Return the values and their single words: if `Bearer KEY` is a secret, `KEY` is one too."""
    words = (word for value in values for word in (value, *value.split()))
    return frozenset(word for word in words if len(word) >= _SHORTEST and word.lower() not in _SCHEMES)


def in_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the secrets among the arguments of a program: values of options with such names, and keys in addresses."""
    before = ""
    for argument in arguments:
        if _HEADER.fullmatch(before):
            yield argument.partition(":")[2].strip()
        elif _OPTION.fullmatch(before) and not argument.startswith("-"):
            yield argument
        if whole := _WHOLE.fullmatch(argument):
            yield whole[1]
        yield from _WITHIN.findall(argument)
        if "://" in argument:
            yield from in_address(argument)
        before = argument


def in_address(address: str) -> Iterator[str]:
    """Yield the secrets in a URL: user and password, the query, and parts of the path that look like a key."""
    try:
        parts = urlsplit(address)
    except ValueError:  # not a valid address
        return
    if "@" in parts.netloc:
        user = parts.netloc.rpartition("@")[0]
        for word in (user, *user.split(":", 1)):
            yield from (word, unquote(word))
    yield parts.query
    for pair in re.split("[&;]", parts.query):
        name, _, value = pair.partition("=")
        if re.fullmatch(_NAME, name, re.IGNORECASE) or _looks_like_a_key(value or name):
            yield from (value or name, unquote_plus(value or name))
    for piece in parts.path.split("/"):
        if _looks_like_a_key(piece):
            yield from (piece, unquote(piece))


def _looks_like_a_key(text: str) -> bool:
    return len(text) >= _KEY_LENGTH and any(letter.isdigit() for letter in text)
