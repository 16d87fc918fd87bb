"""A mail desk with a mail server that refuses unknown recipients."""

import logging
from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, ToolError, TurnResult, tool
from turnwright.message import ToolResultPart

_LOG: Final = logging.getLogger(__name__)
MAILBOXES: Final[dict[str, list[str]]] = {"ann@example.org": [], "bob@example.org": []}


def reset() -> None:
    """Start with empty mailboxes."""
    for mails in MAILBOXES.values():
        mails.clear()


def deliver(recipient: str, text: str) -> None:
    """Deliver a mail, as the server does. Raises `ConnectionError` for an unknown recipient."""
    if recipient not in MAILBOXES:
        raise ConnectionError(f"550 no mailbox {recipient}")
    MAILBOXES[recipient].append(text)


@tool
async def send_mail(
    recipient: Annotated[str, Field(examples=["ann@example.org", "carl@example.org"])], text: str
) -> str:
    """Send a mail."""
    try:
        deliver(recipient, text)
    except ConnectionError as error:
        _LOG.exception("no mail to %s", recipient)
        raise ToolError(f"not sent: {error}") from error
    return f"sent to {recipient}"


DESK = Agent(name="Mail desk", instructions="Send mails.", tools=("send_mail",))


def invariant_sent_mails_are_in_mailboxes(turn: TurnResult) -> None:
    """A mail that the model takes for sent has arrived."""
    for part in (part for message in turn.messages for part in message.parts):
        if isinstance(part, ToolResultPart) and part.text.startswith("sent to "):
            recipient = part.text.removeprefix("sent to ")
            assert MAILBOXES.get(recipient), f"nothing arrived at {recipient}: {part.text}"
