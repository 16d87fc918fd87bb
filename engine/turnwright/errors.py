"""The errors that a caller can meet, by whose fault they are.

    TurnwrightError
    ├── ConfigError          yours: an agent file, a flag, a limit, a tool, a store's address
    │   └── CannotDrive      a turn's tools or its model are not there, and so it is left alone
    ├── SessionBusy          yours: the session's live turn must end, pause or be aborted first
    ├── UnknownTurn          yours: no such turn in this store
    ├── TurnEnded            yours: the turn is over, nothing more can be done to it
    ├── BadAnswer            yours: no such interrupt, or an answer that it does not take
    ├── TurnBusy             another driver holds the turn
    ├── Fenced               another driver took the turn over while this one ran
    ├── RuntimeUnavailable   a runtime's service could not be reached; what it was to be told is in the journal
    ├── StoreError           the store could not read or write; nothing was journalled
    ├── UnpairedError        a message list with a call without its result (`turnwright.pairing`)
    ├── ToolError            a tool's (`turnwright.tools`): becomes the result of the call
    └── ModelError           the provider's (`turnwright.model`): becomes a fact, never leaves the driver

How a turn ends is never an exception: it is the outcome and the reason of its result.
"""

from collections.abc import Sequence


class TurnwrightError(Exception):
    """Everything that this package raises on purpose."""


class ConfigError(TurnwrightError):
    """Something that the caller wrote cannot be used. The message says what, where, and what to write instead."""


class CannotDrive(ConfigError):  # noqa: N818 (reads as what happened)
    """A turn that is there cannot be driven here: its tools or its model are missing. It is left as it is."""


class SessionBusy(TurnwrightError):  # noqa: N818 (the design's word)
    """The session has a live turn."""

    def __init__(self, session: str, turn: str) -> None:
        super().__init__(
            f"session {session!r} is busy with turn {turn}: wait for it, or abort it; if its process died, take it up "
            f"with `recover()` or `turnwright resume {turn}`"
        )
        self.session = session
        self.turn = turn


class UnknownTurn(TurnwrightError):  # noqa: N818 (reads as what happened)
    """There is no such turn."""

    def __init__(self, turn: str) -> None:
        super().__init__(f"there is no turn {turn!r} in this store: `turnwright turns` lists them")
        self.turn = turn


class TurnEnded(TurnwrightError):  # noqa: N818 (reads as what happened)
    """The turn is over."""

    def __init__(self, turn: str, outcome: str, reason: str) -> None:
        super().__init__(f"turn {turn} has ended ({outcome}: {reason}): start a new one")
        self.turn = turn
        self.outcome = outcome
        self.reason = reason


class BadAnswer(TurnwrightError):  # noqa: N818 (reads as what happened)
    """An answer to an interrupt that is not open, or that does not take it. The message lists what is open."""

    def __init__(self, interrupt: str, why: str, pending: Sequence[str]) -> None:
        is_open = f"open: {', '.join(pending)}" if pending else "none is open"
        super().__init__(f"interrupt {interrupt!r}: {why} ({is_open})")
        self.interrupt = interrupt
        self.pending = tuple(pending)


class TurnBusy(TurnwrightError):  # noqa: N818 (reads as what happened)
    """Another living driver holds the turn."""

    def __init__(self, turn: str, owner: str) -> None:
        super().__init__(f"turn {turn} is being driven by {owner}: wait for it, or abort it")
        self.turn = turn
        self.owner = owner


class Fenced(TurnwrightError):  # noqa: N818 (the design's word)
    """Another driver has claimed the turn since: this one must stop, and has written nothing."""

    def __init__(self, turn: str, epoch: int) -> None:
        super().__init__(f"turn {turn} was taken over by another driver (this one held epoch {epoch})")
        self.turn = turn
        self.epoch = epoch


class StoreError(TurnwrightError):
    """The store could not be read or written. Nothing was journalled; the turn can be recovered."""


class RuntimeUnavailable(TurnwrightError):  # noqa: N818 (reads as what happened)
    """The service of a runtime could not be reached. `turn` was written all the same: a sweep submits it, if it is one.

    Do not begin it again: `events` follows it, and `abort` stops it.
    """

    def __init__(self, why: str, turn: str | None = None) -> None:
        super().__init__(why if turn is None else f"turn {turn} is written, and will be driven when it is found: {why}")
        self.turn = turn
