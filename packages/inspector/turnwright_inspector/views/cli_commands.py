"""The commands that pages show: of which turn, in which store, from which place."""

import shlex
from typing import Final

from turnwright._base.ids import root_of
from turnwright.journal.driving_status import by_command_line
from turnwright.journal.fork import places_of

from .steps import Step
from .turn_record import TurnRecord

#: The note at a command if the inspector was made without the store's address.
NO_ADDRESS: Final = "This page lacks the store's address: add it with `--store`, unless it is the default."

#: The note in place of commands if no other process can read the store.
IN_MEMORY: Final = "The turn is in the memory of its process: no command can read it there."
#: The note at commands for a turn whose journal does not have its model and tools.
UNTOLD: Final = "Add the program's model and tools to commands that use them, because the journal does not have them."
#: The arguments for a turn whose journal does not have its model and tools.
_TO_TELL: Final = " --base-url URL --tools FILE"


def store_flag(store: str) -> str:
    """Return a command's argument for this store, after a space; empty for an unknown address."""
    return f" --store {shlex.quote(store)}" if store else ""


def begun_elsewhere(turn: TurnRecord) -> bool:
    """Whether another program began the turn, so that no command line knows its model and its tools."""
    return turn.started.parent_turn is None and not by_command_line(turn.started.metadata)


def resume_command(turn: str, store: str, *, elsewhere: bool) -> str:
    """Return the command that resumes a turn, or its root turn. `elsewhere`: another program began it."""
    return f"turnwright resume {shlex.quote(root_of(turn))}{store_flag(store)}{_TO_TELL if elsewhere else ''}"


def continue_command(turn: str, store: str, *, elsewhere: bool) -> str:
    """Return the command that continues from an ended turn. `elsewhere`: another program began it."""
    hint = f" --model MODEL{_TO_TELL}" if elsewhere else ""
    return f'turnwright run --continue {shlex.quote(turn)} "Go on."{store_flag(store)}{hint}'


def fork_command(turn: TurnRecord, at: int, store: str) -> str:
    """Return the command that runs a copy of the turn's first `at` facts. A sub-agent's turn has none."""
    hint = _TO_TELL if lacks_model(turn) else ""
    return f"turnwright fork {shlex.quote(turn.row.id)} --at {at}{store_flag(store)}{hint}"


def lacks_model(turn: TurnRecord) -> bool:
    """Whether a command that runs this turn needs its model and tools as arguments, because the journal lacks them."""
    return turn.started.parent_turn is not None or begun_elsewhere(turn)


def show_command(turn: str, store: str) -> str:
    return f"turnwright show {shlex.quote(turn)}{store_flag(store)}"


def fork_place(turn: TurnRecord, upto: int) -> int | None:
    """Return the last place up to the fact `upto` after which the turn can be forked; None without one."""
    ends = [place.last for place in places_of(turn.replayed.groups, turn.journal) if place.last <= upto]
    return ends[-1] if ends and not turn.fault else None


def asked_at(step: Step) -> int:
    """Return the place before the step's model call was answered, or failed."""
    attempts = [attempt.seq for attempt in step.attempts]
    first = min((seq for seq in (step.replied, *attempts) if seq is not None), default=step.last + 1)
    return first - 1
