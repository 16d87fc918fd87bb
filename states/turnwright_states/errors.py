"""The errors of the machine. Each leaves the turn as it was.

MachineError
├── InvalidInputError    the driver's mistake: a field of an input, or of a call in it, has a wrong value
├── IllegalInputError    the driver's mistake: the chart has no row for this input in this state
├── InvalidCallError     the driver's mistake: the batch has no such call, or the call is in another state
├── AnswerMismatchError  a person's mistake: no such interrupt is open, or it does not accept this decision
└── InvalidJournalError  a damaged journal: a fact cannot be read, or does not lead to its state
"""

from collections.abc import Iterable

from .state import State


class PicklableError(BaseException):
    """An exception that can be copied and sent to another process, with its text and its fields.

    Python rebuilds an exception by calling its class with `args`, which fails where `__init__` takes something else
    than the text. This one is rebuilt without a call of `__init__`.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return _restore_error, (type(self), self.args, vars(self))


def _restore_error(kind: type[PicklableError], args: tuple[object, ...], fields: dict[str, object]) -> PicklableError:
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


class MachineError(PicklableError, Exception):
    """The base of all errors that the machine raises on purpose."""


class InvalidInputError(MachineError, ValueError):
    """A field of an input, or of a call in it, has a wrong value. `why` begins with the field."""

    def __init__(self, event: str, why: str) -> None:
        super().__init__(f"{event}: {why}")
        self.event = event
        self.why = why


class IllegalInputError(MachineError):
    """The chart has no row for this input in this state.

    `made` is above 0 only for a chart that lacks a row, which the lint refuses. It counts the facts of the input that
    were made before. The turn has applied them, and the next `feed` returns them.
    """

    def __init__(self, event: str, state: State, *, made: int = 0) -> None:
        lacking = f"the chart lacks a row, and {made} facts of the input were made before"
        super().__init__(f"{event} is not accepted in state {state}: {lacking if made else 'nothing was changed'}")
        self.event = event
        self.state = state
        self.made = made


class InvalidCallError(MachineError):
    """An input names a call that is not in the batch, or that cannot accept the input now."""

    def __init__(self, event: str, call: str, why: str) -> None:
        super().__init__(f"{event} for call {call!r}: {why}; nothing was changed")
        self.event = event
        self.call = call


class AnswerMismatchError(MachineError):
    """An answer names no open interrupt, or a decision that the interrupt's kind does not accept."""

    def __init__(self, interrupt: str, why: str, interrupts: Iterable[str]) -> None:
        self.interrupts = tuple(interrupts)
        is_open = f"open: {', '.join(self.interrupts)}" if self.interrupts else "none is open"
        super().__init__(f"interrupt {interrupt!r}: {why} ({is_open})")
        self.interrupt = interrupt


class InvalidJournalError(MachineError):
    """A fact cannot be read, or does not lead to the state that it names. `seq` counts from 1.

    `newer`: a later release wrote it, so this release cannot check it.
    """

    def __init__(self, seq: int, why: str, *, newer: bool = False) -> None:
        super().__init__(f"fact {seq} of the journal: {why}")
        self.seq = seq
        self.newer = newer
