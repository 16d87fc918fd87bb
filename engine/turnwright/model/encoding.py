"""What the encoders of all APIs share: JSON as bytes, what a caller adds to it, and what was encoded before. No I/O."""

import json
import re
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Final, Generic, TypeVar

from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import Message

from .pieces import mend

Encoded = TypeVar("Encoded")

# What providers ask of the name of a tool. They hold messages that were sent long ago to it as well.
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 64


class Kept(Generic[Encoded]):
    """Keeps what `encode` makes of each message for as long as the message lives.

    A turn sends its messages again with every step. Encoding them once keeps the steps equally cheap (DESIGN 10).
    """

    def __init__(self, encode: Callable[[Message], Encoded]) -> None:
        self._encode = encode
        self._kept: dict[int, tuple[weakref.ref[Message], Encoded]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, message: Message) -> Encoded:
        """Return the encoded form of `message`."""
        known = self._kept.get(id(message))
        if known is not None and known[0]() is message:
            return known[1]
        encoded = self._encode(message)
        # By identity, since what holds a mapping has no hash; so the entry must go when the message goes.
        kept, key = self._kept, id(message)
        kept[key] = (weakref.ref(message, lambda _: kept.pop(key, None)), encoded)
        return encoded


def dump(value: Mapping[str, JsonValue]) -> bytes:
    """Write JSON as it goes over the wire; half a surrogate pair becomes U+FFFD."""
    return mend(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def sendable_name(name: str) -> str:
    """A tool's name, or the id of a call, as every provider takes it: ours are, what a model made up need not be."""
    return _NOT_IN_A_NAME.sub("_", name[:_LONGEST_NAME]) or "_"


def checked_extra(
    extra_body: Mapping[str, JsonValue] | None, reserved: Collection[str], name: str = "extra_body"
) -> dict[str, JsonValue]:
    """Return what a caller adds to every request. `name` is the option in which it was given.

    Raises `ConfigError` where it is not JSON or names a field in `reserved`.
    """
    if not isinstance(extra_body, Mapping | None):
        raise ConfigError(f"{name} is a mapping of fields to their values, and not {extra_body!r}")
    extra = dict(extra_body or {})
    wrong = extra.keys() & set(reserved)
    if wrong:
        raise ConfigError(f"{name} may not hold {', '.join(sorted(wrong))}: the request itself says that")
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name} cannot be written as JSON: {error}") from error
    return extra
