"""Writes and reads the items of a turn's inbox. No other module knows their format."""

import json
from collections.abc import Iterable
from typing import Final

from turnwright._base.ids import TOKENS
from turnwright.errors import ConfigError
from turnwright.store import InboxItem, InboxKind
from turnwright_states import AnsweredInput, InvalidInputError
from turnwright_states.construct import construct

#: The kinds of items that resume a paused turn.
RESUMING_KINDS: Final = frozenset({InboxKind.ABORT, InboxKind.ANSWER})
#: The id of an abort.
ABORT: Final = "abort"
#: The prefix of an answer's id. The interrupt follows.
ANSWER_PREFIX: Final = "answer:"


def abort_item(turn: str) -> InboxItem:
    """Make an abort. A turn has at most one, however often it is posted."""
    return InboxItem(turn, ABORT, InboxKind.ABORT)


def steer_item(turn: str, text: str) -> InboxItem:
    """Make a message to a running turn. Raises `ConfigError` for a blank text, or one that is not Unicode."""
    if not text.strip():
        raise ConfigError("the message to the turn is blank")
    return InboxItem(turn, f"steer:{TOKENS.get()(6)}", InboxKind.STEER, json.dumps({"text": writable(text)}))


def to_answered_input(item: InboxItem, elapsed: float) -> AnsweredInput | None:
    """Return the answer as the machine takes it, or None for another item."""
    try:
        return construct(AnsweredInput, {**_read(item), "elapsed": elapsed})
    except InvalidInputError:
        return None


def answers_in(items: Iterable[InboxItem]) -> frozenset[str]:
    """Return the interrupts whose answers are among the items."""
    return frozenset(item.id.removeprefix(ANSWER_PREFIX) for item in items if item.kind is InboxKind.ANSWER)


def steers(items: Iterable[InboxItem]) -> dict[str, str]:
    """Return the messages to the turn among the items, oldest first: text by item id.

    Another program may have written them. Blank ones are left out, and invalid characters become `?`.
    """
    said = {item.id: str(_read(item).get("text", "")) for item in items if item.kind is InboxKind.STEER}
    return {name: text.encode(errors="replace").decode() for name, text in said.items() if text.strip()}


def writable(text: str, what: str = "the message") -> str:
    """Return the text if UTF-8 can encode it.

    Raises `ConfigError`, naming `what` it is, for another value or half a surrogate pair.
    """
    if not isinstance(text, str):
        raise ConfigError(f"{what} must be text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{what} has half a surrogate pair at character {error.start}") from None
    return text


def _read(item: InboxItem) -> dict[str, object]:
    try:
        fields: object = json.loads(item.payload)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
