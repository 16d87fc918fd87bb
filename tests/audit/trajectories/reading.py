"""The promises of every reader of recorded runs, for the tests of each."""

import copy
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import strategies as st

from turnwright_audit.trajectories.atif import Trajectory
from turnwright_audit.trajectories.formats import format_named, format_of
from turnwright_audit.trajectories.source import Recording, UnreadableRecordingError

Call = tuple[str, str]


def read(data: bytes, format: str) -> list[Trajectory]:  # noqa: A002 (the command's word)
    """The runs of a recording, read as this format."""
    reader = format_named(format)
    assert reader is not None, f"no reader is registered as {format}"
    return list(reader.read(Recording.of(data)))


def recognized(data: bytes) -> str | None:
    """The name of the format that recognizes a recording."""
    reader = format_of(Recording.of(data))
    return reader.name if reader else None


def calls(runs: Iterable[Trajectory]) -> Counter[Call]:
    """The calls of runs and their sub-agents: names with arguments."""
    return Counter(
        (call.function_name, json.dumps(call.arguments, sort_keys=True))
        for run in runs
        for trajectory in run.every()
        for step in trajectory.steps
        for call in step.tool_calls or ()
    )


def results(runs: Iterable[Trajectory]) -> int:
    """The number of results of calls, without orphans."""
    return sum(
        result.source_call_id is not None
        for run in runs
        for trajectory in run.every()
        for step in trajectory.steps
        if step.observation
        for result in step.observation.results
    )


def without_events(run: Trajectory) -> Trajectory:
    """A run as a trajectory alone, without the events of a recording."""
    return Trajectory(**{name: getattr(run, name) for name in Trajectory.__struct_fields__})


def assert_a_cut_is_safe(data: bytes, at: int, format: str) -> None:  # noqa: A002
    """A recording that ends at this byte is read without an error, and no call of it is invented."""
    whole = calls(read(data, format))
    try:
        read_runs = read(data[:at], format)
    except UnreadableRecordingError:
        return
    invented = calls(read_runs) - whole
    assert not invented, f"cut at {at}: {invented}"


def results_of(runs: Iterable[Trajectory]) -> list[Any]:
    """The contents of all results, in the order of the steps."""
    return [
        result.content for run in runs for step in run.steps if step.observation for result in step.observation.results
    ]


_DEEP: Any = json.loads("[" * 900 + "]" * 900)
_WRONG: Any = [None, True, -7, 1.5, "text", [], {}, [[]], [{}], {"role": {}}, [1, "a", None], {"type": 3}, _DEEP]
Path = tuple[Any, ...]


def damaged(document: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 (any JSON)
    """Copies of a document in which one value has another type."""
    return st.builds(
        lambda path, value: _replaced(document, path, value),
        st.sampled_from([*_paths(document)]),
        st.sampled_from(_WRONG),
    )


def assert_damage_is_safe(data: bytes, whole: bytes, format: str) -> None:  # noqa: A002
    """A recording with damage is looked at and read without an error, and no tool of it is invented."""
    recognized(data)
    names = {name for name, _ in calls(read(whole, format))}
    try:
        read_runs = read(data, format)
    except UnreadableRecordingError:
        return
    invented = {name for name, _ in calls(read_runs)} - names - {"text", "-7", "1.5"}
    assert not invented


def assert_garbage_is_safe(lines: list[bytes], at: int, format: str) -> None:  # noqa: A002
    """A recording whose line at this place is garbage is read without an error, and no call of it is invented."""
    whole = calls(read(b"\n".join(lines), format))
    garbage = [*lines[:at], b'{"\xff\x00]', *lines[at + 1 :]]
    try:
        read_runs = read(b"\n".join(garbage), format)
    except UnreadableRecordingError:
        return
    assert not calls(read_runs) - whole
    assert sum(run.run_notes.unreadable_lines + run.run_notes.cut for run in read_runs) == 1


def _paths(value: Any, at: Path = ()) -> Iterator[Path]:  # noqa: ANN401
    yield at
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from _paths(part, (*at, key))


def _replaced(document: Any, path: Path, value: Any) -> Any:  # noqa: ANN401
    if not path:
        return value
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed
