"""The errors of the machine. Each leaves the turn as it was.

MachineError
├── IllegalInputError    the driver's fault: the chart has no row for this event in this state
├── InvalidCallError     the driver's fault: no such call in the batch, or not in a condition for this event
├── AnswerMismatchError  a person's: no such interrupt is open, or it does not take this decision
└── InvalidJournalError  the journal's: a fact that cannot be read, or does not lead to the state it names
"""

from collections.abc import Iterable

from .state import State


class MachineError(Exception):
    """Everything that the machine raises on purpose."""


class IllegalInputError(MachineError):
    """The chart has no row for this event in this state.

    `made` is above 0 only for a chart that lacks a row, which lint refuses: so many facts of the event were made before
    the row was missed. The turn has taken them in, and they come out with those of the next event.
    """

    def __init__(self, event: str, state: State, *, made: int = 0) -> None:
        lacking = f"the chart lacks a row, and {made} facts of the event were made before"
        super().__init__(f"{event} is not accepted in state {state}: {lacking if made else 'nothing was changed'}")
        self.event = event
        self.state = state
        self.made = made


class InvalidCallError(MachineError):
    """An event names a call that is not in the batch, or that cannot take it now."""

    def __init__(self, event: str, call: str, why: str) -> None:
        super().__init__(f"{event} for call {call!r}: {why}; nothing was changed")
        self.event = event
        self.call = call


class AnswerMismatchError(MachineError):
    """An answer names no open interrupt, or decides what its kind does not take."""

    def __init__(self, interrupt: str, why: str, interrupts: Iterable[str]) -> None:
        self.interrupts = tuple(interrupts)
        is_open = f"open: {', '.join(self.interrupts)}" if self.interrupts else "none is open"
        super().__init__(f"interrupt {interrupt!r}: {why} ({is_open})")
        self.interrupt = interrupt


class InvalidJournalError(MachineError):
    """A fact cannot be read, or does not lead to the state that it names. `seq` counts from 1.

    `newer`: a later release wrote it, so that this one cannot say what is wrong with it, if anything is.
    """

    def __init__(self, seq: int, why: str, *, newer: bool = False) -> None:
        super().__init__(f"fact {seq} of the journal: {why}")
        self.seq = seq
        self.newer = newer
