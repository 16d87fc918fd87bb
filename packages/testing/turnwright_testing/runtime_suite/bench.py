"""The bench that the suite needs: a place for turns, and the runtime that drives them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from turnwright.runtime import Runtime


@dataclass(frozen=True, slots=True)
class RuntimeBench:
    """The environment of the runtime under test, for one test.

    `address` is the store's: an empty one that several processes may open, `sqlite:///...` or `postgresql://...`.
    `make_runtime` makes the runtime of one process, of the test's own and of each worker; it can be pickled, as a
    function of a module, or `functools.partial` of one. All that it makes belong together, and nobody else's workers
    take what they submit. They look for turns that were left every second or more often, and when they are to stop
    they give those that run a second or two.

    `restart_store` and `restart_service` end the server behind the store, and the runtime's own, and start them
    again: the data stays. Where there is none they are None, and what needs it is skipped. `takes_over_zombies`: a
    process that is stopped, and lives, loses its turns to others; otherwise it keeps them until it continues or dies.
    `patience` is the longest time, in seconds, until an abandoned turn is resumed.

    `make_patient` makes a runtime whose workers give the turns that run a minute or more when they are to stop.
    Without it, a busy machine may need longer to end even a short tool than `make_runtime` allows.
    """

    address: str = field(repr=False)  # it may have a password
    make_runtime: Callable[[], Runtime]
    patience: float
    takes_over_zombies: bool = False
    restart_store: Callable[[], Awaitable[None]] | None = None
    restart_service: Callable[[], Awaitable[None]] | None = None
    make_patient: Callable[[], Runtime] | None = None
