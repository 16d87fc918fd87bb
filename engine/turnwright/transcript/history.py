"""The messages before a turn, as its requests send them: what is known of each is found once."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from turnwright.message import Message, ReasoningPart

from .compaction import Size, size_of
from .pairing import check_pairing, rename_calls


class History(NamedTuple):
    """Paired messages before a turn, whose call ids no turn has. It is not changed, but followed by a longer one.

    A session's next turn begins with the same objects, so that encoders find them in their caches
    (docs/rules.md#speed).
    """

    messages: tuple[Message, ...] = ()
    #: The events with content, which are sent.
    sent_messages: tuple[Message, ...] = ()
    #: The number of calls.
    calls: int = 0
    size: Size = Size()
    #: The texts of users and instructions that no model has replied to: for input guardrails.
    unchecked: tuple[str, ...] = ()

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "History":
        """Make a history of paired messages. Raises `UnpairedError`."""
        return cls().followed_by(messages)

    def followed_by(self, messages: Sequence[Message]) -> "History":
        """Return this history with more messages, which are paired among themselves. Raises `UnpairedError`."""
        check_pairing(messages)
        new = rename_calls(messages, self.calls)
        return History(
            (*self.messages, *new),
            (*self.sent_messages, *[message for message in new if message.says_something]),
            self.calls + sum(len(message.calls) for message in new),
            self.size + size_of(new),
        )


def drop_signatures(message: Message) -> Message:
    """Return the message without the signatures of another model, which other providers reject."""
    if not any(isinstance(part, ReasoningPart) and part.details for part in message.parts):
        return message
    parts = (structs.replace(p, details=()) if isinstance(p, ReasoningPart) else p for p in message.parts)
    return structs.replace(message, parts=tuple(parts))


def unchecked_texts(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the texts of users and instructions, also of their files, for input guardrails."""
    return tuple(
        text
        for message in messages
        if message.role in ("user", "system")
        for text in (message.text, *(file.decoded_text for file in message.files))
        if text
    )


#: That of a turn without one, shared by all.
NO_HISTORY: Final = History()
