"""What the commands and forms that pages show have in common: which turn, in which store, from which place."""

import shlex
from typing import Final

from turnwright._base.ids import root_of
from turnwright.journal.driving_status import by_command_line

from .turn_record import TurnRecord

#: Said beside a command where the inspector was made without the store's address.
NO_ADDRESS: Final = (
    "This page was not told the address of its store: add `--store` with it, unless it is the store that commands look"
    " in anyway."
)

#: Said in place of commands where no other process can read the store.
IN_MEMORY: Final = "The turn is in the memory of the process that drives it: no command can read it there."
#: Said beside commands that run a turn whose model and tools its journal does not say.
UNTOLD: Final = "The commands that call the model and run tools are to be told them: no journal has the program's own."
#: What a command is to be told where the journal does not say which model and which tools a turn has.
_TO_TELL: Final = " --base-url URL --tools FILE"


def store_flag(store: str) -> str:
    """What a command says to find this store, after a space; empty where its address is not known."""
    return f" --store {shlex.quote(store)}" if store else ""


def begun_elsewhere(turn: TurnRecord) -> bool:
    """Whether another program began the turn, so that no command line knows its model and its tools."""
    return turn.started.parent_turn is None and not by_command_line(turn.started.metadata)


def resume_command(turn: str, store: str, *, elsewhere: bool) -> str:
    """The command that takes a turn up, or the one whose sub-agent it is. `elsewhere`: another program began it."""
    return f"turnwright resume {shlex.quote(root_of(turn))}{store_flag(store)}{_TO_TELL if elsewhere else ''}"


def continue_command(turn: str, store: str, *, elsewhere: bool) -> str:
    """The command that goes on from a turn that ended. `elsewhere`: another program began it."""
    told = f" --model MODEL{_TO_TELL}" if elsewhere else ""
    return f'turnwright run --continue {shlex.quote(turn)} "Go on."{store_flag(store)}{told}'


def fork_command(turn: TurnRecord, at: int, store: str) -> str:
    """The command that goes on in a copy of the turn's first `at` facts. Of a sub-agent's no journal says all."""
    told = _TO_TELL if lacks_model(turn) else ""
    return f"turnwright fork {shlex.quote(turn.row.id)} --at {at}{store_flag(store)}{told}"


def lacks_model(turn: TurnRecord) -> bool:
    """Whether a command that runs this very turn's model and tools is to be told them: its journal does not say."""
    return turn.started.parent_turn is not None or begun_elsewhere(turn)


def show_command(turn: str, store: str) -> str:
    return f"turnwright show {shlex.quote(turn)}{store_flag(store)}"


def fork_place(turn: TurnRecord, upto: int) -> int | None:
    """The last place up to the fact `upto` after which the turn can be forked; None where there is none."""
    ends = [group.last for group in turn.replayed.groups if group.state.outcome is None and group.last <= upto]
    return ends[-1] if ends and not turn.fault else None
