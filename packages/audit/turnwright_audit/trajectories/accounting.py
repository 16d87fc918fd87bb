"""The account of a recording: what its reader could not use.

A recognizer looks at the beginning of a file, so it may take a format for another one that is similar. The reader then
finds few of its records, and none of its calls.
"""

import re
from collections.abc import Iterable
from functools import partial
from typing import Final

from .atif import Trajectory
from .source import Recording

#: The words for a call in the formats of agents and providers: `tool_use`, `toolCall`, `function_call`, `tool-call`.
_CALL: Final = rb"(?:tool|function)[_-]?(?:use|call|request|invocation)"
#: A call in JSON. In a text the quotes of names and values are escaped.
_MARK: Final = re.compile(
    # A value of that type: `tool_use`, `mcp_tool_call`, `ToolCallRequestEvent`; a part of an AI SDK: `tool-weather`.
    rb'"(?:[\w$]{0,30}(?:type|kind)|event|role|from)"\s*:\s*"('
    rb"(?:[\w-]{1,60}[._-])?" + _CALL + rb"(?:[._-]?(?:start|begin|delta|request|event|message|part|serialized))*"
    rb'|dynamic-tool|tool-(?!result|output|error)[\w-]{1,99})"'
    # A field with a call, or a list of calls.
    rb'|"(' + _CALL + rb's?)"\s*:\s*(?:\[\s*)?\{\s*"'
    # A reply that ended with calls.
    rb'|"(?:stop|finish)_?reason"\s*:\s*"(' + _CALL + rb's?)"',
    re.IGNORECASE,
)
_PIECE: Final = 4 * 1024**2
#: A longer mark is none.
_OVERLAP: Final = 200


def count_calls(run: Trajectory) -> int:
    """Return the calls of a run and of its sub-agents, those that could not be read included."""
    steps = (step for trajectory in run.every() for step in trajectory.steps)
    return sum(len(step.tool_calls or ()) + step.step_notes.unreadable_calls for step in steps)


def misread(recording: Recording, calls: int) -> str:
    """Return why the runs of a recording were read as another format; empty if they were not.

    `calls` is the number of calls that were read.
    """
    unused_count, records = recording.unused_records, recording.records_read
    if 2 * unused_count > records:
        return f"{unused_count:,} of its {records:,} records have nothing that this format knows"
    if calls:
        return ""
    mark = call_mark(_pieces(recording))
    return f"it has calls ({mark}), and none could be read" if mark else ""


def call_mark(pieces: Iterable[bytes]) -> str:
    """Return the first mark of a call in the pieces of a recording; empty if there is none."""
    before = b""
    for piece in pieces:
        before += piece
        if match := _MARK.search(before):
            return match[match.lastindex or 0].decode()
        before = before[-_OVERLAP:]
    return ""


def _pieces(recording: Recording) -> Iterable[bytes]:
    with recording.open() as stream:
        yield from iter(partial(stream.read, _PIECE), b"")
