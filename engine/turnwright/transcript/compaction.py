"""The conversation after compactions, as a model is sent it (docs/rules.md#compaction).

A compaction replaces the older messages by a summary, or clears their tool results. It cuts only before a step, so a
call stays with its result. The transcript keeps every message: only requests leave them out.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec import structs

from turnwright.message import FilePart, Message, ToolCallPart, ToolResultPart
from turnwright_states.facts import Compacted

#: The compactions of a turn, oldest first, each with the number of the turn's messages that were closed before it.
Compactions: TypeAlias = Sequence[tuple[Compacted, int]]

CLEARED: Final = "[This result was removed to save space. Call the tool again if you need it.]"
#: Characters of a token in an estimate, and the tokens of a picture or a document.
_CHARACTERS: Final = 4
_FILE_TOKENS: Final = 1500


def compact_history(
    history: Sequence[Message], closed_messages: Sequence[Message], compactions: Compactions
) -> tuple[tuple[Message, ...], int]:
    """Return what replaces the history and the first closed messages of a turn, and how many of these it replaces.

    `history` has the messages before the turn.
    """
    base, replaced_count = tuple(history), 0
    for fact, count in compactions:
        view = (*base, *closed_messages[replaced_count:count])
        cut_at = max(len(view) - fact.kept, 0)
        base, replaced_count = (*_replace_older(view[:cut_at], fact, closed_messages[0]), *view[cut_at:]), count
    return base, replaced_count


def history_needed(compactions: Compactions) -> int | None:
    """Return how many of the messages before a turn its compactions left in the conversation; None for all."""
    message_count: int | None = None
    before = 0
    for fact, count in compactions:
        own_count = count - before
        if fact.kept <= own_count and not fact.cleared:
            message_count = 0
        elif message_count is None and not fact.cleared:
            message_count = fact.kept - own_count
        before = count
    return message_count


def _replace_older(older: Sequence[Message], fact: Compacted, prompt: Message) -> Iterable[Message]:
    if fact.cleared:
        return map(without_results, older)
    # The prompt says what the turn is about, and is never summarized.
    return (summary_message(fact.text), *(message for message in older if message is prompt))


def summary_message(text: str) -> Message:
    """Return the message that replaces the older ones."""
    return Message.user(f"Summary of the conversation so far:\n\n{text}")


def without_results(message: Message) -> Message:
    """Return the message without the contents of its tool results; the message itself if it has none."""
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    if message.role != "tool" or all(part.text == CLEARED for part in results):
        return message
    parts = (
        structs.replace(part, text=CLEARED, structured=None, files=()) if isinstance(part, ToolResultPart) else part
        for part in message.parts
    )
    return structs.replace(message, parts=tuple(parts))


def cut_before(messages: Sequence[Message], keep_steps: int) -> int:
    """Return how many of the messages are older than the last `keep_steps` steps; 0 if there are not so many.

    The messages that a kept step replies to are kept with it.
    """
    steps = 0
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "assistant" and messages[place].says_something:
            steps += 1
            if steps == keep_steps:
                while place and messages[place - 1].role == "user":
                    place -= 1  # noqa: PLW2901 (the loop ends here)
                return place
    return 0 if keep_steps else len(messages)


def oldest_steps(messages: Sequence[Message]) -> int:
    """Return how many messages the oldest steps have, the least that have half of the content; 0 without a step."""
    sizes = [sum(size_of([message])[::2]) for message in messages]
    half, content, has_step = sum(sizes) / 2, 0, False
    for place, message in enumerate(messages):
        # The messages that a step replies to go with it.
        begins = message.role == "user" or (message.role == "assistant" and messages[place - 1].role != "user")
        if place and begins and has_step and content >= half:
            return place
        content += sizes[place]
        has_step = has_step or (message.role == "assistant" and message.says_something)
    return len(messages) if has_step else 0


class Size(NamedTuple):
    """The size of messages: the characters of their texts, their files, and what these and details take in memory."""

    characters: int = 0
    files: int = 0
    content: int = 0

    def __add__(self, other: object) -> "Size":
        """Return the size of both."""
        if not isinstance(other, Size):
            return NotImplemented
        characters, files, content = other
        return Size(self.characters + characters, self.files + files, self.content + content)

    @property
    def tokens(self) -> int:
        """An estimate of the tokens, for a provider that has not counted them yet."""
        return self.characters // _CHARACTERS + self.files * _FILE_TOKENS


def size_of(messages: Iterable[Message]) -> Size:
    """Return the size of messages."""
    characters = data_length = 0
    files: list[FilePart] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, FilePart):
                files.append(part)
            elif isinstance(part, ToolCallPart):
                characters += len(part.name) + len(str(part.arguments))
            else:
                characters += len(getattr(part, "text", ""))
                files += getattr(part, "files", ())
                # What a provider adds to its reasoning, or a tool to its text, may be far longer than the text.
                if provider_data := getattr(part, "details", None) or getattr(part, "structured", None):
                    data_length += len(str(provider_data))
    return Size(characters, len(files), data_length + sum(len(file.data) for file in files))
