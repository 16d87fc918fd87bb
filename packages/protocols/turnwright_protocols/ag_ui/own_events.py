"""Custom events for facts without an event in AG-UI, and activities for the progress of calls."""

from collections.abc import Iterator, Mapping
from typing import Final

from ag_ui.core import ActivitySnapshotEvent, CustomEvent
from pydantic import JsonValue

from turnwright.transcript.events import FactEvent, ToolProgressEvent
from turnwright_protocols.items import clean_json
from turnwright_states import facts as f

from .interrupts import interrupt_id
from .messages import call_id

#: The prefix of the names of our own events and activities.
PREFIX: Final = "turnwright."

#: The fields of a fact that its custom event leaves out: texts of messages, and the machine's bookkeeping.
_UNTOLD: Final = frozenset({"type", "turn", "state", "partial"})
_IN_MESSAGES: Final = frozenset({"synthesized", "concluded"})


class OwnEvents:
    """The custom events of one turn. `owner` is the id of a sub-agent's turn, None for the run's own turn."""

    def __init__(self, turn: str, owner: str | None) -> None:
        self._turn = turn
        self._owner = owner
        #: The last progress of each running call.
        self._progress: dict[str, dict[str, JsonValue]] = {}

    def named(self, name: str, value: Mapping[str, JsonValue]) -> CustomEvent:
        """An event `turnwright.{name}`."""
        return CustomEvent(name=f"{PREFIX}{name}", value=clean_json(value), subagent_run_id=self._owner)

    def fact(self, event: FactEvent) -> CustomEvent:
        """Return the public part of a fact, with AG-UI's ids of calls and interrupts."""
        left_out = _UNTOLD | {"text"} if event.type in _IN_MESSAGES else _UNTOLD
        value = {name: field for name, field in event.public().items() if name not in left_out}
        if "call" in value:
            value["call"] = call_id(self._turn, str(value["call"]))
        if interrupt := value.get("interrupt"):
            value["interrupt"] = interrupt_id(
                self._turn, str(interrupt["id"] if isinstance(interrupt, dict) else interrupt)
            )
        return self.named(event.type, value)

    def progress(self, event: ToolProgressEvent) -> ActivitySnapshotEvent:
        """Replace the progress of a call."""
        content: dict[str, JsonValue] = {"call": call_id(self._turn, event.call), "tool": event.tool}
        content["progress"] = event.progress
        if event.total is not None:
            content["total"] = event.total
        if event.message:
            content["message"] = event.message
        self._progress[event.call] = content
        return self._activity(event.call, content)

    def end_progress(self, fact: f.CallSettled) -> Iterator[ActivitySnapshotEvent]:
        """Return the last progress of a call, if there was any, with the call's status."""
        content = self._progress.pop(fact.call, None)
        if content is not None:
            yield self._activity(fact.call, {**content, "status": str(fact.status)})

    def _activity(self, call: str, content: Mapping[str, JsonValue]) -> ActivitySnapshotEvent:
        return ActivitySnapshotEvent(
            message_id=f"{call_id(self._turn, call)}/progress",
            activity_type=f"{PREFIX}tool_progress",
            content=clean_json(content),
            replace=True,
            subagent_run_id=self._owner,
        )
