"""The facts of a turn: what its journal holds, one kind a class.

A fact is a decision that was made. The fold (`turn.py`) trusts it and asks no guard again, so a new release cannot
change the past. Each fact names the state in which the machine stands after it, and a short hash of everything else
the machine knows then. Payloads are JSON, versioned (`v`), without the fields that are at their empty defaults.
"""

import json
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import Field, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError

from .errors import BadJournal
from .events import (
    CallStatus,
    Decision,
    Finish,
    Frozen,
    InterruptKind,
    JsonObject,
    Spent,
    Usage,
)
from .limits import Limits
from .reasons import Cause, EndReason
from .state import Outcome, State

#: The version of the payloads that this release writes.
PAYLOAD_VERSION: Final = 1


class Lease(Frozen):
    """The share of what is left that a sub-agent may use; None where the parent has no such budget."""

    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None


class CallMade(Frozen):
    """One call of a reply, with what was decided about it."""

    #: Ours, unique in the turn, and nine letters and digits, which every provider takes.
    id: str
    name: str
    arguments: JsonObject | None = None
    #: The model's text, where it was not a JSON object.
    raw: str = ""
    provider_id: str = ""
    #: What the doom-loop detector compares; empty for a call that it does not see.
    key: str = ""
    #: Whether the tool gave the key, and not the arguments.
    own_key: bool = False
    #: Why the call does not run; empty if it does.
    refused: str = ""
    #: Whether `refused` is a mistake of the model (unknown tool, bad arguments), not a limit.
    invalid: bool = False
    lease: Lease | None = None


class Interrupt(Frozen):
    """A person is asked. `call` is empty for a doom loop."""

    id: str
    kind: InterruptKind
    call: str = ""
    tool: str = ""
    question: str = ""
    choices: tuple[str, ...] = ()
    grant: str | None = None
    #: Seconds since the epoch; the next touch after it denies.
    expires_at: float | None = None

    @property
    def forwarded(self) -> bool:
        """Whether it is a child's, which the child settles: its call goes on, and hands the answer down."""
        return bool(self.call) and self.id.startswith(f"{self.call}/")


class Fact(Frozen):
    """What every fact carries. `elapsed` is in seconds of driving since the turn began."""

    kind: ClassVar[str]

    elapsed: float
    state: State
    hash: str = ""

    def payload(self) -> str:
        """The fact as the JSON text that a store keeps."""
        # The limits of a turn are written whole: a later release may have other defaults. No files are none for ever.
        whole = isinstance(self, TurnStarted)
        without = {"files"} if isinstance(self, TurnStarted) and not self.files else None
        try:
            text = self.model_dump_json(exclude_defaults=not whole, exclude=without)
        except PydanticSerializationError:  # half a surrogate pair, which no UTF-8 can write
            fields = self.model_dump(exclude_defaults=not whole, exclude=without)
            text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(errors="replace").decode()
        return f'{{"v":{PAYLOAD_VERSION},' + text[1:]


class TurnStarted(Fact):
    """The turn began."""

    kind = "turn_started"
    prompt: str
    limits: Limits
    session: str | None = None
    model: str = ""
    agent: JsonObject = Field(default_factory=dict)
    files: tuple[JsonObject, ...] = ()
    history: tuple[JsonObject, ...] = ()
    synthesis: bool = False
    parent_turn: str | None = None
    parent_call: str | None = None
    depth: int = 0
    continues: str | None = None
    forked_from: str | None = None
    forked_at: int | None = None
    context: JsonObject = Field(default_factory=dict)
    chart: int


class StepStarted(Fact):
    """CHECK allowed another step. `nudge`: the model is told that it repeats itself."""

    kind = "step_started"
    number: int
    nudge: bool = False


class ModelReplied(Fact):
    """The model's reply is whole, and it is decided which of its calls run."""

    kind = "model_replied"
    text: str = ""
    reasoning: str = ""
    reasoning_details: tuple[JsonObject, ...] = ()
    calls: tuple[CallMade, ...] = ()
    finish: Finish = Finish.STOP
    usage: Usage | None = None


class AttemptFailed(Fact):
    """An attempt failed. `retry`: another one follows, after `wait` seconds."""

    kind = "attempt_failed"
    attempt: int
    cause: Cause
    retry: bool = False
    message: str = ""
    partial: str = ""
    usage: Usage | None = None
    wait: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class CallStarted(Fact):
    """A call is about to run."""

    kind = "call_started"
    call: str
    attempt: int = 1
    child: str | None = None


class CallSettled(Fact):
    """A call has its one result: the text for the model, and for programs the same as data (`structured`).

    `files` are the pictures and documents that belong to it.
    """

    kind = "call_settled"
    call: str
    status: CallStatus = CallStatus.OK
    result: str = ""
    structured: JsonValue = None
    files: tuple[JsonObject, ...] = ()
    spent: Spent | None = None


class CallWaiting(Fact):
    """A call waits for a person."""

    kind = "call_waiting"
    call: str
    interrupt: Interrupt


class Paused(Fact):
    """The turn rests. `interrupt` is the doom loop's; those of calls were journalled as they came."""

    kind = "paused"
    interrupt: Interrupt | None = None


class Synthesised(Fact):
    """The synthesis looked at the batch; null is written too, else a crash would run it twice."""

    kind = "synthesised"
    text: str | None = None


class Answered(Fact):
    """A person answered."""

    kind = "answered"
    interrupt: str
    decision: Decision
    text: str = ""
    #: What was granted for the rest of the turn.
    grant: str | None = None
    #: The tools that the doom-loop detector leaves out for the rest of the turn.
    always_for: tuple[str, ...] = ()


class StepFinished(Fact):
    """The step is over: what it used, and how long it took in seconds of driving."""

    kind = "step_finished"
    number: int
    usage: Usage
    seconds: float


class Stopping(Fact):
    """A limit was reached: the model is asked to conclude."""

    kind = "stopping"
    reason: EndReason
    also_reached: tuple[EndReason, ...] = ()
    partial: str = ""
    usage: Usage | None = None


class MessageAdded(Fact):
    """A message to the running turn was taken in; it is shown after the results of the open batch."""

    kind = "message_added"
    text: str


class Concluded(Fact):
    """The concluding call answered. `refused` names the tools that it asked for all the same."""

    kind = "concluded"
    text: str | None = None
    refused: tuple[str, ...] = ()
    usage: Usage | None = None


class Halted(Fact):
    """The turn is over."""

    kind = "halted"
    outcome: Outcome
    reason: EndReason
    also_reached: tuple[EndReason, ...] = ()
    partial: str = ""
    undelivered: tuple[str, ...] = ()
    error: str = ""
    #: What the attempt that was cut off used.
    usage: Usage | None = None


class Notice(Fact):
    """Something that people should know, once: a limit at 80 % (`used` of `of`), or usage that is not told."""

    kind = "notice"
    limit: str
    used: Annotated[float, Field(ge=0)] = 0
    of: Annotated[float, Field(ge=0)] = 0


KINDS: Final[Mapping[str, type[Fact]]] = {
    fact.kind: fact
    for fact in (
        TurnStarted,
        StepStarted,
        ModelReplied,
        AttemptFailed,
        CallStarted,
        CallSettled,
        CallWaiting,
        Paused,
        Synthesised,
        Answered,
        StepFinished,
        Stopping,
        MessageAdded,
        Concluded,
        Halted,
        Notice,
    )
}


def parse_fact(kind: str, payload: str, seq: int = 0) -> Fact:
    """Read one fact from its kind and its JSON text.

    `seq` is its place in the journal, for the message. Raises `BadJournal` for an unknown kind, a payload of another
    version, and one that does not fit its kind.
    """
    if kind not in KINDS:
        raise BadJournal(seq, f"its kind {kind!r} is unknown to this release")
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise BadJournal(seq, "its payload is not a JSON object")
    version = fields.pop("v", None)
    if type(version) is not int or version != PAYLOAD_VERSION:
        newer = type(version) is int and version > PAYLOAD_VERSION
        why = f"its payload has version {version!r}, and this release reads {PAYLOAD_VERSION}"
        raise BadJournal(seq, why, newer=newer)
    try:
        return KINDS[kind].model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise BadJournal(seq, f"its payload does not fit {kind}: {field}: {first['msg']}") from None
