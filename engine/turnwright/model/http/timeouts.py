"""The timeouts of a model server, and their errors. No I/O, and no clock.

While a model thinks, some servers send bytes without a part of the reply: comments (`: OPENROUTER PROCESSING`,
`: keep-alive`), empty events (`ping`), chunks with a role or an empty text. A server without its model may send them
for ever. So there are two timers: one for silence, which any byte resets, and a longer one that only a part of the
reply resets. `turnwright.model.http.text_buffer.Meter.progress` counts the parts of the reply.
"""

from dataclasses import dataclass
from typing import Final, TypedDict

from turnwright.errors import ConfigError, need_kind
from turnwright.model.protocol import ModelError
from turnwright_states import Cause

# The wait, in seconds, for everything behind the finish reason. Usage, and sometimes text, arrive at once or not at
# all, and the reply is already complete.
_AFTER: Final = 2.0
#: The longest time for one reply, in seconds. A server that sends a letter a minute never exceeds the other timeouts.
REPLY_TIMEOUT: Final = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts, in seconds: to connect, until the reply begins, during silence, and after the reply is complete.

    `first_byte` is from the request to the first event with a part of the reply. Inside the reply a server may be
    silent for `idle`; while it sends other bytes, the next part may take `first_byte` too. `reply` limits the complete
    reply, and `after` the time behind the finish reason.

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
            need_kind(f"the {name} timeout", seconds, int | float, "a number of seconds")
            if not seconds > 0:
                raise ConfigError(f"the {name} timeout is {seconds}: it must be above 0 seconds")


class Waiting:
    """The wait for one answer of the server `where`, from the moment `now` on. All moments are in seconds.

    The decoder's progress is passed in before each read.
    """

    def __init__(self, patience: Timeouts, where: str, now: float) -> None:
        self._patience = patience
        self._where = where
        # The last moment at which the reply grew.
        self._since = now
        self._end = now + patience.reply
        self._read = now
        self._progress = 0
        self._whole = False
        self._has_read = False
        self._alive = False
        self._silent = False
        self._spent = False
        self._later = max(patience.first_byte, patience.idle)
        self._bound = patience.first_byte

    def limit(self, now: float, *, progress: int, whole: bool) -> float:
        """Return the timeout of the read that begins `now`. The previous read returned bytes.

        `progress` is a number that changes with each part of the reply; `whole` is whether its finish reason has come.
        """
        self._alive = self._has_read
        self._has_read = True
        if whole and self._whole:
            if progress != self._progress:
                # The consumer's time between reads does not count against the server.
                self._since += now - self._read
        elif progress != self._progress or whole:
            self._since = now
            self._alive = False
        self._progress, self._whole = progress, whole
        patience = self._patience
        self._bound = patience.after if whole else self._later if progress else patience.first_byte
        seconds_left = self._since + self._bound - now
        self._silent = progress > 0 and patience.idle < seconds_left
        if self._silent:
            seconds_left = patience.idle
        self._spent = not whole and self._end - now < seconds_left
        if self._spent:
            seconds_left = self._end - now
        return seconds_left if seconds_left > 0 else 0.0

    def note_read(self, now: float) -> None:
        """Record the end of a read. It matters only for a complete reply."""
        self._read = now

    def over(self) -> ModelError:
        """Make the error for a read that exceeded its timeout."""
        again = "Try again, or allow it more time"
        if self._spent:
            message = (
                f"{self._where} had not ended its reply after {self._patience.reply:g} s. {again} (reply_timeout)."
            )
        elif self._alive and not self._silent:
            message = f"{self._where} sent no part of a reply for {self._bound:g} s. {again} (first_byte_timeout)."
        elif self._progress:
            idle = self._patience.idle
            message = f"{self._where} was silent for {idle:g} s in the middle of its reply. {again} (idle_timeout)."
        else:
            message = f"{self._where} did not begin to answer within {self._bound:g} s. {again} (first_byte_timeout)."
        return ModelError(message, cause=Cause.TIMEOUT)


class Silence(TypedDict, total=False):
    """The keywords of a client that one timeout sets."""

    connect_timeout: float
    first_byte_timeout: float
    idle_timeout: float


def silence(timeout: float | None) -> Silence:
    """Return a client's keywords for an endpoint that may be silent for so many seconds; None: the defaults.

    The timeout to connect is at most its default.
    """
    if timeout is None:
        return {}
    return {
        "connect_timeout": min(timeout, Timeouts().connect),
        "first_byte_timeout": timeout,
        "idle_timeout": timeout,
    }
