"""A run with the events of its turns, for a check that needs more than a trajectory."""

from collections.abc import Callable, Iterable
from typing import Final

from turnwright_audit.traces import TraceEvent

from .atif import Trajectory

#: What could not be read of a recording, if its place is not known.
DAMAGE: Final = "a part of the run could not be read"
#: Returns events, each with its number.
Events = Callable[[], Iterable[tuple[int, TraceEvent]]]


class TracedRun(Trajectory):
    """A run of a recording that has events. They include those of its sub-agents, and are made when they are needed.

    `place` is what their numbers count. `damage` says what could not be read of the recording, which may have been an
    event of this run; empty for a whole one.
    """

    events: Events = lambda: ()
    place: str = "line"
    damage: str = ""

    @classmethod
    def of(cls, run: Trajectory, events: Events, *, place: str = "line", damage: str = "") -> "TracedRun":
        """Return a run with its events."""
        fields = {name: getattr(run, name) for name in Trajectory.__struct_fields__}
        return cls(**fields, events=events, place=place, damage=damage)
