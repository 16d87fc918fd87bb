"""What may be put into a turn's inbox, and how it is read out again. The one place that knows how it is written."""

import json
import secrets
from collections.abc import Iterable
from typing import Final

from pydantic import ValidationError

from turnwright.errors import ConfigError
from turnwright.store import InboxItem, InboxKind
from turnwright_states import AnsweredInput

from .answers import Answer

#: What a turn that rests is taken up for.
CALLS: Final = frozenset({InboxKind.ABORT, InboxKind.ANSWER})
#: The id of the request to stop.
ABORT: Final = "abort"
#: What the id of an answer begins with; the interrupt follows.
_ANSWER: Final = "answer:"


def abort_item(turn: str) -> InboxItem:
    """Somebody wants the turn to stop. However often it is said, there is one such request."""
    return InboxItem(turn, ABORT, InboxKind.ABORT)


def answer_item(turn: str, interrupt: str, reply: Answer) -> InboxItem:
    """A person's answer to an open interrupt. An interrupt has room for one."""
    payload = json.dumps({"interrupt": interrupt, "decision": reply.decision, "text": reply.text})
    return InboxItem(turn, f"{_ANSWER}{interrupt}", InboxKind.ANSWER, payload)


def steer_item(turn: str, text: str) -> InboxItem:
    """A message to the running turn. Raises `ConfigError` for one that says nothing, or is no text."""
    if not text.strip():
        raise ConfigError("the message to the turn says nothing: write what it should take into account")
    return InboxItem(turn, f"steer:{secrets.token_hex(6)}", InboxKind.STEER, json.dumps({"text": writable(text)}))


def answered(item: InboxItem, elapsed: float) -> AnsweredInput | None:
    """The answer as the machine takes it; None for what is no answer."""
    try:
        return AnsweredInput.model_validate({**_read(item), "elapsed": elapsed})
    except ValidationError:
        return None


def answers_in(items: Iterable[InboxItem]) -> frozenset[str]:
    """The interrupts whose answers wait to be taken in."""
    return frozenset(item.id.removeprefix(_ANSWER) for item in items if item.kind is InboxKind.ANSWER)


def steers(items: Iterable[InboxItem]) -> dict[str, str]:
    """The messages to the turn that wait, oldest first: text by item id.

    Another program may have written them: one that says nothing is none, and what cannot be written down becomes `?`.
    """
    said = {item.id: str(_read(item).get("text", "")) for item in items if item.kind is InboxKind.STEER}
    return {name: text.encode(errors="replace").decode() for name, text in said.items() if text.strip()}


def writable(text: str, what: str = "the message") -> str:
    """The text, if it can be written down. Raises `ConfigError`, naming `what` it is, for what is none.

    Half a surrogate pair cannot be written.
    """
    if not isinstance(text, str):
        raise ConfigError(f"{what} is a text, and not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{what} is no text: its character {error.start} is half a pair") from None
    return text


def _read(item: InboxItem) -> dict[str, object]:
    try:
        fields: object = json.loads(item.payload)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
