"""Leaves out of later requests what a provider refused for its content (docs/rules.md#refused-content).

A provider that refuses a request for a picture, a text or its length refuses every request that has the same again. So
the messages since the last request that it accepted are replaced by a line. The journal keeps them.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import structs

from turnwright._base.words import collapse_whitespace, count, cut_clean
from turnwright.message import AnyPart, FilePart, Message, SentinelPart, TextPart, ToolCallPart, ToolResultPart
from turnwright_states import CallStatus, Cause

from .compaction import without_results

#: The causes of a failed model call that the content of its request explains. Another key or address does not help.
CONTENT_CAUSES: Final = frozenset({Cause.BAD_REQUEST, Cause.CONTENT_FILTER, Cause.CONTEXT_OVERFLOW, Cause.REJECTED})

#: The most characters of a provider's message, and of a tool's name, in a line.
_QUOTED: Final = 200
_SHOWN_NAME: Final = 100
_SHOWN_NAMES: Final = 10
#: A message of a provider is not repeated if it quotes as many characters of what it refused.
_ECHO: Final = 12
#: The server's name and its status, before the provider's own words.
_WHERE: Final = re.compile(r"^.{1,300}? answered \d{3}(?:: |\. ?)", re.DOTALL)
_NOT_RUN: Final = frozenset({CallStatus.REFUSED, CallStatus.REJECTED})
_WORD: Final = re.compile(r"\w+")
#: From so many refusals in a row on, the older messages lose their files and results, and then their older half.
_CLEARS: Final = 2


class Acceptance(NamedTuple):
    """The number of first messages of a conversation that a model has replied to, that model, and refusals since."""

    messages: int = 0
    model: str = ""
    refusals: int = 0


def refusal_text(cause: Cause, message: str = "") -> str:
    """Return why a provider refused a request: the cause, and the beginning of its message without the server's name.

    The message of a content filter is left out, because it may quote what is filtered.
    """
    from turnwright.model.http.errors import NEXT_STEPS  # noqa: PLC0415 (few requests are refused)

    words = "" if cause is Cause.CONTENT_FILTER else _WHERE.sub("", collapse_whitespace(message))
    words = words.removesuffix(NEXT_STEPS.get(cause, "")).rstrip(" .")
    return f"{cause}: {cut_clean(words, _QUOTED)}" if words else str(cause)


def without_refused(messages: Sequence[Message]) -> list[Message]:
    """Return messages of ended turns, without what providers refused: a line replaces it.

    The sentinel of a turn says where that begins.
    """
    result: list[Message] = []
    for message in messages:
        sentinel = next((part for part in message.parts if isinstance(part, SentinelPart) and part.refusal), None)
        if sentinel is None:
            result.append(message)
            continue
        begins = (at for at in range(len(result) - 1, -1, -1) if _has_part(result[at], sentinel.refused_from))
        begin = next(begins, len(result))
        if begin < len(result):
            result[begin:] = [refusal_message(result[begin:], sentinel.refusal)]
        plain_sentinel = structs.replace(sentinel, refusal="", refused_from=None)
        parts = tuple(plain_sentinel if part is sentinel else part for part in message.parts)
        result.append(structs.replace(message, parts=parts))
    return result


def _has_part(message: Message, seq: int | None) -> bool:
    return any(part.seq == seq for part in message.parts)


def refusal_message(left_out: Sequence[Message], refusal: str) -> Message:
    """Return the line that replaces messages: what is left out, the calls that ran, and why."""
    if _is_quoted(refusal, left_out):
        refusal = refusal.partition(":")[0]
    return Message.user(f"[Left out here, because the provider refused it ({refusal}): {_list_contents(left_out)}.]")


def _is_quoted(refusal: str, left_out: Sequence[Message]) -> bool:
    """Whether the provider's message repeats some of the refused content, which would be refused again."""
    words = refusal.casefold().partition(": ")[2]
    starts = (word.start() for word in _WORD.finditer(words))
    echoes = {words[at : at + _ECHO] for at in starts if at + _ECHO <= len(words)}
    texts = [_text_of(part).casefold() for message in left_out for part in message.parts] if echoes else []
    return any(echo in text for text in texts for echo in echoes)


def _text_of(part: AnyPart) -> str:
    if isinstance(part, SentinelPart):  # no model receives it, and it may quote the provider
        return ""
    return str(part.arguments) if isinstance(part, ToolCallPart) else getattr(part, "text", "")


def _list_contents(messages: Sequence[Message]) -> str:
    parts: list[AnyPart] = [part for message in messages for part in message.parts]
    user_messages = sum(message.role == "user" and message.says_something for message in messages)
    replies = sum(message.role == "assistant" and message.says_something for message in messages)
    results = [part for part in parts if isinstance(part, ToolResultPart)]
    files = [
        *(part for part in parts if isinstance(part, FilePart)),
        *(file for part in results for file in part.files),
    ]
    kinds = ", ".join(f"{number} {kind}" for kind, number in Counter(file.media_type for file in files).items())
    items = [
        (user_messages, count(user_messages, "message of the user", "messages of the user")),
        (replies, count(replies, "reply", "replies")),
        (len(results), count(len(results), "tool result")),
        (len(files), f"{count(len(files), 'file')} ({kinds})"),
    ]
    text = ", ".join(words for number, words in items if number) or "nothing that can be shown"
    run_tools = Counter(part.name for part in results if part.status not in _NOT_RUN)
    names = [f"{cut_clean(name, _SHOWN_NAME)} ({number})" for name, number in run_tools.most_common(_SHOWN_NAMES)]
    suffix = f" and {len(run_tools) - _SHOWN_NAMES} more tools" if len(run_tools) > _SHOWN_NAMES else ""
    return f"{text}. Calls that ran: {', '.join(names)}{suffix}; do not assume their results" if names else text


def shorten_messages(messages: Sequence[Message], refusals: int) -> list[Message]:
    """Return accepted messages as they are sent after so many refusals in a row.

    What a model accepted once, another model or a changed provider may refuse. So after the second refusal files and
    tool results are left out, then with each further one the older half of the messages.
    """
    if refusals < _CLEARS:
        return [*messages]
    plain = [_without_files(without_results(message)) for message in messages]
    halvings = refusals - _CLEARS
    if not halvings and all(new is old for new, old in zip(plain, messages, strict=True)):
        halvings = 1
    for _ in range(halvings):
        plain = _newer_half(plain)
    if len(plain) < len(messages):
        oldest = len(messages) - len(plain)
        plain.insert(0, Message.user(f"[The {oldest} oldest messages were left out: requests with them were refused.]"))
    return plain


def _newer_half(messages: Sequence[Message]) -> list[Message]:
    """Return the newer half, from a message of the user on, so that no result loses its call."""
    middle = (len(messages) + 1) // 2
    begins = (at for at in range(middle, len(messages)) if messages[at].role == "user")
    return [*messages[next(begins, len(messages)) :]]


def _without_files(message: Message) -> Message:
    if not message.files:
        return message
    parts = [_without_content(part) if isinstance(part, FilePart) else part for part in message.parts]
    return structs.replace(message, parts=tuple(parts))


def _without_content(file: FilePart) -> TextPart:
    return TextPart(seq=file.seq, text=f"[A file was left out: {file.media_type}.]")
