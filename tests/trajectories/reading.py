"""The promises of every reader of recorded runs, for the tests of each."""

import json
from collections import Counter
from collections.abc import Iterable

from turnwright.trajectories.atif import Trajectory
from turnwright.trajectories.formats import format_named, format_of
from turnwright.trajectories.source import Recording, UnreadableRecordingError

Call = tuple[str, str]


def read(data: bytes, format: str) -> list[Trajectory]:  # noqa: A002 (the command's word)
    """The runs of a recording, read as this format."""
    found = format_named(format)
    assert found is not None, f"no reader is registered as {format}"
    return list(found.read(Recording.of(data)))


def recognized(data: bytes) -> str | None:
    """The name of the format that recognizes a recording."""
    found = format_of(Recording.of(data))
    return found.name if found else None


def calls(runs: Iterable[Trajectory]) -> Counter[Call]:
    """The calls of runs and their sub-agents: names with arguments."""
    return Counter(
        (call.function_name, json.dumps(call.arguments, sort_keys=True))
        for run in runs
        for one in run.every()
        for step in one.steps
        for call in step.tool_calls or ()
    )


def results(runs: Iterable[Trajectory]) -> int:
    """The number of results of calls, without orphans."""
    return sum(
        result.source_call_id is not None
        for run in runs
        for one in run.every()
        for step in one.steps
        if step.observation
        for result in step.observation.results
    )


def assert_a_cut_is_safe(data: bytes, at: int, format: str) -> None:  # noqa: A002
    """A recording that ends at this byte is read without an error, and no call of it is invented."""
    whole = calls(read(data, format))
    try:
        found = read(data[:at], format)
    except UnreadableRecordingError:
        return
    invented = calls(found) - whole
    assert not invented, f"cut at {at}: {invented}"
