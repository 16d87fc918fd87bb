"""A run with the events of its turns, for a check that needs more than a trajectory."""

from collections.abc import Callable, Iterable

from turnwright_states.traces import TraceEvent

from .atif import Trajectory

#: Returns events, each with its number.
Events = Callable[[], Iterable[tuple[int, TraceEvent]]]


class TracedRun(Trajectory):
    """A run of a recording that has events. They include those of its sub-agents, and are made when they are needed.

    `place` is what their numbers count. `damaged`: a part of the recording could not be read, which may have been an
    event of this run.
    """

    events: Events = lambda: ()
    place: str = "line"
    damaged: bool = False

    @classmethod
    def of(cls, run: Trajectory, events: Events, *, place: str = "line", damaged: bool = False) -> "TracedRun":
        """Return a run with its events."""
        fields = {name: getattr(run, name) for name in Trajectory.__struct_fields__}
        return cls(**fields, events=events, place=place, damaged=damaged)
