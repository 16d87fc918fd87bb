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
    """Conversations that later requests may continue. They are found by the messages that they have so far.

    A request that repeats the messages up to an earlier reply is of the same conversation. One that repeats only the
    messages before the first reply is a conversation of its own, unless the first one had no reply.
    """

    def __init__(self) -> None:
        self._replied: dict[int, T] = {}
        self._unanswered: dict[int, T] = {}

    def take(self, keys: Iterable[Hashable]) -> Known[T]:
        """Return the conversation whose messages are the first ones of these, as many as possible."""
        digest = known_count = 0
        conversation = None
        for number, key in enumerate(keys, 1):
            digest = hash((digest, key))
            match = self._replied.get(digest) or self._unanswered.pop(digest, None)
            if match is not None:
                conversation, known_count = match, number
        return Known(conversation, known_count, digest)

    def keep(self, conversation: T, digest: int, reply: Iterable[Hashable] = ()) -> None:
        """Keep a conversation that has the messages of this digest, and a reply."""
        open_digest = digest
        for key in reply:
            digest = hash((digest, key))
            self._replied[digest] = conversation
        if digest == open_digest:
            self._unanswered[digest] = conversation
