"""The stream of any turn leads to the task of its journal, live and replayed."""

from collections.abc import Sequence

from google.protobuf.json_format import MessageToDict
from hypothesis import given
from tests.protocols.ag_ui.test_properties import Told, pausing, played, told
from tests.protocols.asgi import Json

from turnwright.transcript.events import TurnEvent
from turnwright_protocols.a2a import TaskEncoder
from turnwright_testing import Scenario

from .client import TaskView, answer_of

_NAMES = {"TaskStatusUpdateEvent": "statusUpdate", "TaskArtifactUpdateEvent": "artifactUpdate"}


def task_of(turn: Told, events: Sequence[TurnEvent]) -> Json:
    """Return the task that an encoder has after these events."""
    encoder = TaskEncoder(turn.turn, "context", at=1)
    for event in events:
        encoder.encode(event)
    return MessageToDict(encoder.task)


def view_of(turn: Told, events: Sequence[TurnEvent]) -> Json:
    """Return the task that a client has which received the updates of these events."""
    encoder, view = TaskEncoder(turn.turn, "context", at=1), TaskView()
    view.read([{"task": MessageToDict(encoder.task)}])
    for event in events:
        view.read([{_NAMES[type(update).__name__]: MessageToDict(update)} for update in encoder.encode(event)])
    return view.task


@given(played)
def test_stream_leads_to_the_task_of_the_journal(scenario: Scenario) -> None:
    for turn in told(scenario):
        task = task_of(turn, turn.journal)
        for events in (turn.live, turn.journal):
            view = view_of(turn, events)
            assert answer_of(view) == answer_of(task)
            assert view["status"] == task["status"]
            assert view["metadata"] == task["metadata"]


@given(pausing)
def test_paused_task_asks_its_open_questions(scenario: Scenario) -> None:
    """So does one whose questions were answered in part."""
    for turn in told(scenario):
        for place, (_, open_ids) in enumerate(turn.stood, 1):
            facts = {seq for seq, _ in turn.facts[:place]}
            events = [event for event in turn.journal if event.seq in facts]
            task = task_of(turn, events)
            if task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED":
                data = task["status"]["message"]["parts"][-1]["data"]
                question_ids = [f"{turn.turn}/{interrupt['id']}" for interrupt in data["interrupts"]]
                assert sorted(question_ids) == sorted(open_ids)
