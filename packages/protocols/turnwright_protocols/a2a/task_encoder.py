"""Encode the account of a turn as a task, and as the updates of its stream."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec.structs import replace
from pydantic import JsonValue

from turnwright.transcript.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols import items as i
from turnwright_protocols.client_tools import settleable
from turnwright_protocols.conversations import without_approved
from turnwright_protocols.endings import Ending, ending_of, explain_end, record_end
from turnwright_protocols.items import Item, clean, left_open
from turnwright_protocols.turn_reader import TurnReader
from turnwright_states import EndReason, Outcome
from turnwright_states import facts as f
from turnwright_states.inputs import is_blank

from .messages import ask, file_part, to_struct

Update: TypeAlias = TaskStatusUpdateEvent | TaskArtifactUpdateEvent
Updates = Iterator[Update]

#: The id of the artifact, which holds the answer.
ANSWER: Final = "answer"
#: The states of ended tasks. One that a limit stopped has failed.
_STATES: Final[Mapping[Ending, TaskState]] = {
    "answered": TaskState.TASK_STATE_COMPLETED,
    "cut": TaskState.TASK_STATE_COMPLETED,
    "stopped": TaskState.TASK_STATE_CANCELED,
    "refused": TaskState.TASK_STATE_REJECTED,
}


def state_of_end(outcome: Outcome, reason: EndReason) -> TaskState:
    """Return the state of an ended turn's task."""
    return _STATES.get(ending_of(outcome, reason), TaskState.TASK_STATE_FAILED)


class TaskEncoder:
    """Translates the events of one turn into its task. No I/O.

    `encode` returns the updates of a stream; `task` is the task so far, to which they lead. The only artifact is the
    answer: the model's last text. Earlier texts, questions and answers are messages of the history. A task that waits
    for results is working, unless they are those of `client_tools`, which the client runs. So is one that waits for
    other approvals than that of `user`.
    """

    def __init__(
        self, turn: str, context: str, *, at: float, client_tools: Collection[str] = (), user: str = ""
    ) -> None:
        self.turn = turn
        self._context = context
        #: The time of the status, in seconds since the Unix epoch.
        self.at = at
        #: The open pause, if the client is asked, and whether the history has its question.
        self.pause: TurnPausedEvent | None = None
        self._question: Message | None = None
        self._reader = TurnReader(turn, client_tools)
        #: Chooses the interrupts that the client can answer.
        self.choose_questions = without_approved(
            user, lambda interrupts: settleable(interrupts, self._reader.client_tools)
        )
        self._state: TaskState = TaskState.TASK_STATE_SUBMITTED
        self._record: dict[str, JsonValue] = {"turn": turn}
        self._history: list[Message] = []
        #: The artifact's text, and the message of the model that it belongs to.
        self._text: list[str] = []
        self._message = ""
        #: The words of the status.
        self._words: Message | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the turn has ended."""
        return "outcome" in self._record

    @property
    def task(self) -> Task:
        """The task so far."""
        text = "".join(self._text)
        return Task(
            id=self.turn,
            context_id=self._context,
            status=self._status(self._words),
            artifacts=[Artifact(artifact_id=ANSWER, name=ANSWER, parts=[Part(text=text)])] if text else [],
            history=self._history,
            metadata=to_struct(self._record),
        )

    def encode(self, event: TurnEvent) -> list[Update]:
        """Return the updates of an event; empty for an event of another turn."""
        if event.turn != self.turn:
            return []
        pause = self.pause
        updates = [update for item in self._reader.read(event) for update in self._encode(item)]
        if isinstance(event, FactEvent) and pause is not None:
            updates += self._close(pause.interrupts, left_open(pause, event))
        return updates

    def take_answers(self, names: Collection[str]) -> None:
        """Read that these interrupts are answered, before the turn's driver has taken the answers."""
        if self.pause is not None:
            interrupts = tuple(interrupt for interrupt in self.pause.interrupts if interrupt.id not in names)
            pause = replace(self.pause, interrupts=interrupts) if interrupts else None
            list(self._close(self.pause.interrupts, pause))

    def _encode(self, item: Item) -> Updates:  # noqa: C901 (one case an item: flat)
        match item:
            case i.TurnStartItem(prompt=prompt, files=files):
                parts = [Part(text=clean(prompt))] if prompt else []
                self._history.append(self._say("user-1", [*parts, *map(file_part, files)], Role.ROLE_USER))
                self._state = TaskState.TASK_STATE_WORKING
                yield self._update()
            case i.TextDeltaItem(message=message, kind="text", delta=delta):
                yield self._write(message, delta)
            case i.ReplyItem(message=message, text=text, replaced=True) if message == self._message:
                yield from self._replace(text)
            case i.CallsItem(message=message, text=text) if not is_blank(text):
                self._history.append(self._say(message.rpartition("/")[2], [Part(text=text)]))
            case i.CallRunItem(event=event):
                yield self._update(self._say(f"call-{event.seq}", [Part(text=clean(event.tool))]))
            case i.CallProgressItem(call=call, event=progress):
                text = f"{progress.tool}: {progress.message}" if progress.message else progress.tool
                yield self._update(self._say(f"progress-{call}", [Part(text=clean(text))]))
            case i.UserMessageItem(message=message, text=text):
                self._history.append(self._say(message.rpartition("/")[2], [Part(text=text)], Role.ROLE_USER))
            case i.FactItem(event=FactEvent(fact=f.Answered() as answer, seq=seq)):
                self._remember_answer(answer, seq)
            case i.PauseItem(event=pause) if questions := self.choose_questions(pause.interrupts):
                yield self._ask(replace(pause, interrupts=tuple(questions)))
            case i.EndItem(event=end):
                yield from self._end(end)
            case _:
                pass

    # Questions.

    def _ask(self, pause: TurnPausedEvent) -> Update:
        self.pause = pause
        self._question = self._words = self._say(f"question-{pause.seq}", ask(pause.interrupts))
        self._state = TaskState.TASK_STATE_INPUT_REQUIRED
        return self._update(self._words)

    def _remember_answer(self, answer: f.Answered, seq: int) -> None:
        if self._question is not None:
            self._history.append(self._question)
            self._question = None
        text = clean(answer.text or str(answer.decision))
        self._history.append(self._say(f"answer-{seq}", [Part(text=text)], Role.ROLE_USER))

    def _close(self, interrupts: Sequence[Interrupt], pause: TurnPausedEvent | None) -> Updates:
        """Read which interrupts are still open. The client is asked while it can answer any."""
        questions = () if pause is None else tuple(self.choose_questions(pause.interrupts))
        if pause is None or not questions:
            self.pause = self._words = None
            self._state = TaskState.TASK_STATE_WORKING
            yield self._update()
        elif tuple(interrupts) != questions:
            yield self._ask(replace(pause, interrupts=questions))

    # The artifact.

    def _write(self, message: str, delta: str) -> Update:
        appends = self._message == message
        if not appends:
            self._text.clear()
        self._message = message
        self._text.append(delta)
        return self._update_artifact(delta, append=appends)

    def _replace(self, text: str) -> Updates:
        """Replace the artifact unless it has this text. A text after an empty one begins it again."""
        if "".join(self._text) != text:
            self._text = [text]
            self._message = self._message if text else ""
            yield self._update_artifact(text, append=False)

    def _update_artifact(self, text: str, *, append: bool, last: bool = False) -> Update:
        return TaskArtifactUpdateEvent(
            task_id=self.turn,
            context_id=self._context,
            artifact=Artifact(artifact_id=ANSWER, name=ANSWER, parts=[Part(text=text)]),
            append=append,
            last_chunk=last,
        )

    # The status.

    def _end(self, event: TurnEndedEvent) -> Updates:
        yield from self._replace(clean(event.text or event.partial))
        if any(self._text):
            yield self._update_artifact("", append=True, last=True)
        record = record_end(event)
        self._record |= {name: value for name, value in record.items() if name not in ("text", "partial")}
        self.pause = self._words = None
        self._state = state_of_end(event.outcome, event.reason)
        if self._state != TaskState.TASK_STATE_COMPLETED:
            self._words = self._say("end", [Part(text=explain_end(event) or str(event.reason))])
        yield self._update(self._words)

    def _update(self, message: Message | None = None) -> Update:
        """Return the status with a message, which the task keeps only if it is a question or the reason of the end."""
        return TaskStatusUpdateEvent(
            task_id=self.turn,
            context_id=self._context,
            status=self._status(message),
            metadata=to_struct(self._record),
        )

    def _status(self, message: Message | None) -> TaskStatus:
        timestamp = Timestamp()
        timestamp.FromMicroseconds(int(self.at * 1_000_000))
        return TaskStatus(state=self._state, message=message, timestamp=timestamp)

    def _say(self, name: str, parts: Sequence[Part], role: Role = Role.ROLE_AGENT) -> Message:
        identifier = f"{self.turn}/{name}"
        return Message(message_id=identifier, role=role, parts=parts, task_id=self.turn, context_id=self._context)
