"""The events of AG-UI, as logs have them."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from pydantic import JsonValue

from turnwright.model.http.json_text import read_text
from turnwright_audit.trajectories.shapes import join_texts
from turnwright_audit.trajectories.source import Recording, iso_time


class Event(Struct, rename="camel"):
    """The fields that are read of any event. Their types are checked where they are used."""

    type: Any = None
    timestamp: Any = None
    thread_id: Any = None
    run_id: Any = None
    input: Any = None
    outcome: Any = None
    message: Any = None
    code: Any = None
    message_id: Any = None
    role: Any = None
    delta: Any = None
    tool_call_id: Any = None
    tool_call_name: Any = None
    parent_message_id: Any = None
    content: Any = None
    messages: Any = None
    subagent_run_id: Any = None
    metadata: Any = None
    event: Any = None


decode = msgspec.json.Decoder(Event).decode
decode_list = msgspec.json.Decoder(list[Event]).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode
#: Names of fields in dumps of Python programs.
_SNAKE: Final = (b'"thread_id"', b'"message_id"', b'"tool_call_id"')
_CAMEL: Final = (b'"threadId"', b'"messageId"', b'"toolCallId"')
#: Larger numbers of a time are milliseconds: this is in the year 5138.
_SECONDS: Final = 1e11


def is_snake(recording: Recording) -> bool:
    """Whether the fields of the events have the names of Python."""
    head = recording.head  # which may have such names in raw events of a framework
    return any(name in head for name in _SNAKE) and not any(name in head for name in _CAMEL)


def decode_snake(line: bytes) -> Event:
    """Return the event of a line, by the names of Python."""
    return from_snake(_decode_any(line))


def from_snake(value: Mapping[str, Any]) -> Event:
    """Return the event of an object, by the names of Python."""
    return Event(**{name: value[name] for name in Event.__struct_fields__ if name in value})


def content_of(value: JsonValue) -> str:
    """Return the text of a message: its content, or the texts of its parts."""
    if isinstance(value, list):
        return join_texts(*(part.get("text") for part in value if isinstance(part, Mapping)))
    return read_text(value)


def objects_of(value: JsonValue) -> list[Mapping[str, JsonValue]]:
    """Return the objects of a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def time_of(event: Event) -> str | None:
    """Return the time of an event as ISO 8601."""
    stamp = event.timestamp
    if isinstance(stamp, str):
        return stamp or None
    if not isinstance(stamp, int | float) or isinstance(stamp, bool):
        return None
    return iso_time(stamp / 1000 if stamp > _SECONDS else stamp)
