"""Slash commands of a session, which no model sees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnwright._base.words import count, money
from turnwright.errors import SessionNotFoundError, TurnBusyError
from turnwright.runtime.engine import Engine
from turnwright.status import describe_activity, describe_ending, describe_pause
from turnwright_protocols.conversations import abort_turn, find_open_turn, is_paused, root_turns
from turnwright_states import State


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command: its name without the slash, and its words for people."""

    name: str
    description: str


STATUS: Final = Command("status", "Show the state of this conversation, and what it used.")
DELETE: Final = Command("delete", "Delete this conversation, after a question.")
#: The commands by the whole text of a prompt.
COMMANDS: Final[Mapping[str, Command]] = {f"/{command.name}": command for command in (STATUS, DELETE)}
DELETE_QUESTION: Final = "Delete this conversation with all its turns? This cannot be undone."
#: The most turns that `/status` counts.
_MOST_TURNS: Final = 1_000


async def describe_session(engine: Engine, session: str) -> str:
    """Return the state of a conversation in a few lines."""
    rows = root_turns(await engine.turns(session=session, limit=_MOST_TURNS))
    if not rows:
        return "This conversation has no turns yet."
    newest, status = await engine.get(rows[0].id), rows[0].status
    if newest.paused:
        state = describe_pause(len(newest.interrupts))
    elif status.reason is None:
        state = describe_activity(newest.state) if isinstance(newest.state, State) else "Waiting for a driver"
    else:
        state = describe_ending(status.reason)
    steps, calls = sum(row.status.steps for row in rows), sum(row.status.tool_calls for row in rows)
    tokens = newest.usage.input_tokens + newest.usage.output_tokens
    cost = f", cost {money(newest.usage.cost)}" if newest.usage.cost else ""
    return (
        f"{count(len(rows), 'turn')}, {count(steps, 'step')}, {count(calls, 'tool call')}.\n\n"
        f"The newest turn, {newest.id} ({count(tokens, 'token')}{cost}): {state}"
    )


async def delete_session(engine: Engine, session: str) -> str:
    """Delete a conversation, and return what happened in words. A turn that is paused is deleted too."""
    row = await find_open_turn(engine, session)
    try:
        if row is not None and (is_paused(row) or not await engine.store.is_driven(row.id)):
            await abort_turn(engine, row.id)
        deleted_count = await engine.delete_session(session)
    except SessionNotFoundError:
        return "This conversation has no turns yet."
    except TurnBusyError:
        return "Nothing was deleted: another process runs a turn of this conversation."
    return f"Deleted: {count(deleted_count, 'turn')}. A new conversation begins here."
