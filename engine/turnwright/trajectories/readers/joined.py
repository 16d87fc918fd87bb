"""Joins logged requests that continue one another into conversations."""

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Known(NamedTuple, Generic[T]):
    """The conversation that a request continues, if it is known, with the number of messages it has already."""

    conversation: T | None
    messages: int
    digest: int


class Joined(Generic[T]):
    """Conversations that later requests may continue. They are found by the messages that they have so far."""

    def __init__(self) -> None:
        self._open: dict[int, T] = {}

    def take(self, keys: Iterable[Hashable]) -> Known[T]:
        """Return the conversation whose messages are the first ones of these; the longest, if there are several."""
        digest = match = known = 0
        for number, key in enumerate(keys, 1):
            digest = hash((digest, key))
            if digest in self._open:
                known, match = number, digest
        return Known(self._open.pop(match, None), known, digest)

    def keep(self, conversation: T, digest: int, more: Iterable[Hashable] = ()) -> None:
        """Keep a conversation that has the messages of this digest, and more."""
        for key in more:
            digest = hash((digest, key))
        self._open[digest] = conversation
