"""What was made of the beginning of a conversation, kept for the next request, which begins with it again. No I/O.

A turn sends all its messages again with every step. What one of them is on the wire is kept for as long as it lives
(`EncodedMessage`), but to walk over all of them and put that together takes longer with every step. Kept beginnings
leave of it one look, in C, at whether the messages are still the same objects: 15 ns each. In the last 50 of 200 steps
of two calls a body of chat completions takes 35 us of CPU instead of 330, and 60 instead of 600 where the messages must
be made to fit (`bench/bodies.py`).
"""

import weakref
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import is_
from typing import Final, Generic, NamedTuple, TypeVar

from turnwright.message import Message

Made = TypeVar("Made")


class _Beginning(NamedTuple, Generic[Made]):
    """Some messages, the one behind them, and what was made of them."""

    behind: weakref.ref[Message]
    messages: tuple[Message, ...]
    made: Made


class PrefixCache(Generic[Made]):
    """Keeps one beginning of each conversation that goes on, whatever other conversations go on beside it.

    `add` makes more of what was made of a beginning, and of the messages that follow it; `nothing` is what is made of
    no messages. A beginning ends before a message of the assistant's for which `is_sent` is true: the last of these, or
    with `steps` the last but so many less one. What stands behind the last one may be said for one call only, and the
    next request will not have it.

    A beginning is kept for as long as the message behind it lives, and must hold no reference to that one; so nothing
    outlives its turn. Messages are known by identity: two that are equal may differ on the wire (`1 == True`).
    """

    def __init__(
        self,
        nothing: Made,
        add: Callable[[Made, Sequence[Message]], Made],
        *,
        is_sent: Callable[[Message], bool] = lambda _: True,
        steps: int = 1,
    ) -> None:
        self._nothing: Final = nothing
        self._add: Final = add
        self._is_sent: Final = is_sent
        self._steps: Final = steps
        self._kept: Final[dict[int, _Beginning[Made]]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, messages: tuple[Message, ...]) -> tuple[Made, tuple[Message, ...]]:
        """Return what is made of the beginning of `messages`, and the rest of them."""
        begin, end, made = 0, 0, self._nothing
        replies = 0
        for number in range(len(messages) - 1, 0, -1):
            message = messages[number]
            if message.role != "assistant" or not self._is_sent(message):
                continue
            replies += 1
            if replies < self._steps:
                continue
            end = end or number
            known = self._kept.get(id(message))
            if known is not None:
                if _begins(messages, known, number):
                    begin, made = number, known.made
                if begin != end:
                    # It goes on from here, or goes another way: either way the next request will not want this one.
                    self._kept.pop(id(message), None)
                break
        if begin != end:
            made = self._add(made, messages[begin:end])
            # One that stands there twice would be held by what is to go with it.
            if not any(map(is_, messages[begin:end], repeat(messages[end]))):
                self._keep(messages[:end], messages[end], made)
        return made, messages[end:]

    def _keep(self, messages: tuple[Message, ...], behind: Message, made: Made) -> None:
        kept, key = self._kept, id(behind)
        kept[key] = _Beginning(weakref.ref(behind, lambda _: kept.pop(key, None)), messages, made)


def _begins(messages: tuple[Message, ...], known: _Beginning[Made], number: int) -> bool:
    """Whether the beginning that is known under a message's id is the one before that message."""
    same = known.behind() is messages[number] and len(known.messages) == number
    return same and all(map(is_, known.messages, messages))
