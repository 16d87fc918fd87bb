"""Advice on the page of an ended turn: to continue in a new turn, or to retry the step that failed."""

from dataclasses import dataclass
from typing import Final

from turnwright_states import EndReason, Outcome

from .cli_commands import begun_elsewhere, continue_command, fork_command, fork_place
from .turn_record import TurnRecord

#: Endings after which a new turn may go on where this one stopped.
_CONTINUED: Final = frozenset({EndReason.TRUNCATED, EndReason.ABORTED})
#: Failures that may have passed.
_RETRIED: Final = frozenset({EndReason.MODEL_ERROR, EndReason.EMPTY_REPLY, EndReason.CRASHED})


@dataclass(frozen=True, slots=True)
class Advice:
    """An advised action. A retry forks the turn after the fact `retry_at`; without one the turn is continued.

    `text` is the suggested message of the new turn; empty where only a person knows what was missing. `command` does it
    on a command line.
    """

    command: str
    retry_at: int | None = None
    text: str = ""


def advice_of(turn: TurnRecord, store: str) -> Advice | None:
    """Return what can be done next with an ended turn; None for any other, an earlier place, and a sub-agent's turn.

    `store` is the address for commands.
    """
    reason, outcome = turn.result.reason, turn.result.outcome
    if reason is None or turn.cut or turn.fault or turn.started.parent_turn is not None:
        return None
    if reason in _RETRIED:
        at = retry_place(turn)
        return None if at is None else Advice(fork_command(turn, at, store), at)
    if outcome in (Outcome.CAP_HIT, Outcome.DOOM_LOOP) or reason in _CONTINUED:
        command = continue_command(turn.row.id, store, elsewhere=begun_elsewhere(turn))
        return Advice(command, text="" if outcome is Outcome.DOOM_LOOP else "Go on.")
    return None


def retry_place(turn: TurnRecord) -> int | None:
    """Return the last place to fork a failed turn from, before the attempts of its last step; None without one."""
    attempts = turn.steps[-1].attempts if turn.steps else []
    return fork_place(turn, attempts[0].seq - 1 if attempts else turn.length)
