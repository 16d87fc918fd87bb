"""How long a model server is waited for, and what is said when that was too long. No I/O, and no clock of its own.

A server that computes is told from one that hangs by what it sends. Some servers send bytes that hold no part of the
reply while the model thinks: comments (`: OPENROUTER PROCESSING`, `: keep-alive`), events that say nothing (`ping`),
chunks with a role or an empty text. A server that has lost its model may send such bytes for ever. So there are two
clocks: one for silence, which any byte sets back, and a longer one that only a part of the reply sets back. What is a
part of the reply is said by `turnwright.model.http.text_buffer.Meter.progress`.
"""

from dataclasses import dataclass
from typing import Final, TypedDict

from turnwright.errors import ConfigError
from turnwright.model.protocol import ModelError
from turnwright_states import Cause

# How long is waited, in seconds and in all, for what follows the finish reason: the usage, and sometimes more text,
# come at once or not at all. The reply is whole by then, so whatever is late is not worth its wait.
_AFTER: Final = 2.0
#: How long one reply may take in all, in seconds. A server that sends a letter a minute makes progress all the time.
REPLY_TIMEOUT: Final = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long to wait, in seconds: to connect, until a reply begins, while it is silent, and after it is whole.

    `first_byte` is counted from the request to the first event with a part of the reply in it, whatever else comes
    before. Inside the reply a server may be silent for `idle`; while it sends bytes without a part of the reply, the
    next part may take as long as the first one. `reply` bounds the whole reply, and `after` all that follows the
    finish reason.

    Raises `ConfigError` for a time that is not above zero.
    """

    connect: float = 10.0
    first_byte: float = 300.0
    idle: float = 60.0
    reply: float = REPLY_TIMEOUT
    after: float = _AFTER

    def __post_init__(self) -> None:
        for name in ("connect", "first_byte", "idle", "reply", "after"):
            seconds: float = getattr(self, name)
            if not seconds > 0:
                raise ConfigError(f"the {name} time-out is {seconds}: it must be above 0 seconds")


class Waiting:
    """The wait for one answer of the server `where`, from the moment `now` on. All moments are in seconds.

    What the bytes meant is known only to who decodes them, and is told before each read.
    """

    def __init__(self, patience: Timeouts, where: str, now: float) -> None:
        self._patience = patience
        self._where = where
        # Since when the reply has not come on.
        self._since = now
        self._end = now + patience.reply
        self._read = now
        self._came = 0
        self._whole = False
        self._asked = False
        self._alive = False
        self._silent = False
        self._spent = False
        self._later = max(patience.first_byte, patience.idle)
        self._bound = patience.first_byte

    def limit(self, now: float, *, came: int, whole: bool) -> float:
        """How long the read that begins `now` may take. That it is asked means that the read before brought bytes.

        `came` is how far the reply has come, a number that changes with each part of it; `whole` is whether its
        finish reason has come.
        """
        self._alive = self._asked
        self._asked = True
        if whole and self._whole:
            if came != self._came:
                # Whoever took what had come may have been slow. That is not the server's fault.
                self._since += now - self._read
        elif came != self._came or whole:
            self._since = now
            self._alive = False
        self._came, self._whole = came, whole
        patience = self._patience
        self._bound = patience.after if whole else self._later if came else patience.first_byte
        left = self._since + self._bound - now
        self._silent = came > 0 and patience.idle < left
        if self._silent:
            left = patience.idle
        self._spent = not whole and self._end - now < left
        if self._spent:
            left = self._end - now
        return left if left > 0 else 0.0

    def heard(self, now: float) -> None:
        """Take note of when a read ended. It matters only where `whole` was said of it."""
        self._read = now

    def over(self) -> ModelError:
        """Make the error for a read that took longer than its limit."""
        again = "Try again, or allow it more time"
        if self._spent:
            said = f"{self._where} had not ended its reply after {self._patience.reply:g} s. {again} (reply_timeout)."
        elif self._alive and not self._silent:
            said = f"{self._where} sent no part of a reply for {self._bound:g} s. {again} (first_byte_timeout)."
        elif self._came:
            idle = self._patience.idle
            said = f"{self._where} was silent for {idle:g} s in the middle of its reply. {again} (idle_timeout)."
        else:
            said = f"{self._where} did not begin to answer within {self._bound:g} s. {again} (first_byte_timeout)."
        return ModelError(said, cause=Cause.TIMEOUT)


class Silence(TypedDict, total=False):
    """The keywords of a client that one time-out sets."""

    connect_timeout: float
    first_byte_timeout: float
    idle_timeout: float


def silence(timeout: float | None) -> Silence:
    """How long an endpoint may be silent, as keywords of a client. Connecting takes no longer than it does by default.

    None leaves a client its defaults.
    """
    if timeout is None:
        return {}
    return {
        "connect_timeout": min(timeout, Timeouts().connect),
        "first_byte_timeout": timeout,
        "idle_timeout": timeout,
    }
