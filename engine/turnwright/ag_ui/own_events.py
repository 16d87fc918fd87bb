"""What AG-UI has no event of its own for: facts as custom events, and the progress of calls as activities."""

from collections.abc import Iterator, Mapping
from typing import Final

from ag_ui.core import ActivitySnapshotEvent, CustomEvent
from pydantic import JsonValue

from turnwright.events import FactEvent, ToolProgressEvent
from turnwright_states import facts as f

from .interrupts import interrupt_id
from .messages import call_id, clean_json

#: The prefix of the names of our own events and activities.
PREFIX: Final = "turnwright."

#: What a custom event does not repeat of its fact: what the messages say, and the machine's bookkeeping.
_UNTOLD: Final = frozenset({"type", "turn", "state", "partial"})
_IN_MESSAGES: Final = frozenset({"synthesized", "concluded"})


class OwnEvents:
    """Those of one turn. `owner` is its id for a sub-agent's, None for the run's own turn."""

    def __init__(self, turn: str, owner: str | None) -> None:
        self._turn = turn
        self._owner = owner
        #: What was told last of each call that runs.
        self._progress: dict[str, dict[str, JsonValue]] = {}

    def named(self, name: str, value: Mapping[str, JsonValue]) -> CustomEvent:
        """An event `turnwright.{name}`."""
        return CustomEvent(name=f"{PREFIX}{name}", value=clean_json(value), subagent_run_id=self._owner)

    def fact(self, event: FactEvent) -> CustomEvent:
        """The public part of the fact's line, with the ids that calls and interrupts have here."""
        left_out = _UNTOLD | {"text"} if event.type in _IN_MESSAGES else _UNTOLD
        value = {name: field for name, field in event.public().items() if name not in left_out}
        if "call" in value:
            value["call"] = call_id(self._turn, str(value["call"]))
        if asked := value.get("interrupt"):
            value["interrupt"] = interrupt_id(self._turn, str(asked["id"] if isinstance(asked, dict) else asked))
        return self.named(event.type, value)

    def progress(self, event: ToolProgressEvent) -> ActivitySnapshotEvent:
        """How far a call is, in the place of what was told of it before."""
        content: dict[str, JsonValue] = {"call": call_id(self._turn, event.call), "tool": event.tool}
        content["progress"] = event.progress
        if event.total is not None:
            content["total"] = event.total
        if event.message:
            content["message"] = event.message
        self._progress[event.call] = content
        return self._activity(event.call, content)

    def end_progress(self, fact: f.CallSettled) -> Iterator[ActivitySnapshotEvent]:
        """The last progress of a call with how it ended, if there was any."""
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
