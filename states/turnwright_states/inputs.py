"""What is fed to the machine: everything that happened outside, with its time and its texts inside.

The machine has no clock and makes no ids of its own from chance, so every event carries `elapsed`: seconds
of driving, monotonic, summed over the segments of the turn (paused time is not in it).
"""

import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from .limits import MAX_CALLS_PER_REPLY, Limits
from .reasons import Cause, EndReason
from .state import Trigger

JsonObject = Mapping[str, JsonValue]
AbortReason = Literal[EndReason.ABORTED, EndReason.SUPERSEDED]


def _writable(text: str) -> str:
    return text.encode(errors="replace").decode()


#: Letters and marks that show nothing, beside whitespace, control and format characters.
_INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def is_blank(text: str) -> bool:
    """Whether a text shows nothing: whitespace, control characters and invisible ones (a zero-width space) only.

    A reply, a conclusion or a synthesis whose text is blank counts as one without text (rule 9).
    """
    text = text.strip()
    if not text or "!" <= text[0] <= "~":
        return not text
    return all(one in _INVISIBLE or unicodedata.category(one) in _UNSEEN for one in text)


#: Space, line and paragraph separators, control and format characters.
_UNSEEN: Final = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf"})


#: A text that the turn's state depends on. Half a surrogate pair, which no journal can hold, becomes a question mark
#: here as it would there: else what is read back would not be what the machine knew.
Writable = Annotated[str, AfterValidator(_writable)]


class Frozen(BaseModel):
    """A value that crosses the border of the machine: immutable, and strict about unknown fields."""

    # What checks it is built when the first one is made, and not for kinds that a process never makes.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Usage(Frozen):
    """What a model call used, as the provider counted it."""

    input_tokens: Annotated[int, Field(ge=0)] = 0
    output_tokens: Annotated[int, Field(ge=0)] = 0
    #: In the currency of the limits' `cost`; 0 where no price is known.
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    @property
    def tokens(self) -> int:
        """Input and output tokens together: what the token budget counts."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
        )


class Spent(Frozen):
    """What a finished sub-agent used of its lease."""

    calls: Annotated[int, Field(ge=0)] = 0
    tokens: Annotated[int, Field(ge=0)] = 0
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class Finish(StrEnum):
    """Why the model stopped, reduced to what the chart tells apart. Calls are seen, not announced."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"


class CallStatus(StrEnum):
    """How a tool call was settled."""

    OK = "ok"
    ERROR = "error"
    REJECTED = "rejected"
    REFUSED = "refused"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class InterruptKind(StrEnum):
    """What a person is asked for."""

    QUESTION = "question"
    GRANT = "grant"
    APPROVAL = "approval"
    UNKNOWN_OUTCOME = "unknown_outcome"
    DOOM_LOOP = "doom_loop"


class Decision(StrEnum):
    """What a person decided. `DECISIONS` says which kind of interrupt takes which."""

    REPLY = "reply"
    APPROVE = "approve"
    REJECT = "reject"
    RERUN = "rerun"
    UNKNOWN = "unknown"
    GO_ON = "go_on"
    ALWAYS = "always"
    STOP = "stop"


DECISIONS: Final[dict[InterruptKind, tuple[Decision, ...]]] = {
    InterruptKind.QUESTION: (Decision.REPLY, Decision.REJECT),
    InterruptKind.GRANT: (Decision.APPROVE, Decision.REJECT),
    InterruptKind.APPROVAL: (Decision.APPROVE, Decision.REJECT),
    InterruptKind.UNKNOWN_OUTCOME: (Decision.RERUN, Decision.UNKNOWN),
    InterruptKind.DOOM_LOOP: (Decision.GO_ON, Decision.ALWAYS, Decision.STOP),
}


class ToolCall(Frozen):
    """One call that a model's reply asked for, looked up and validated by the driver.

    `problem` says why it cannot run (unknown tool, arguments that are not JSON or do not fit the schema): it is
    then answered with that text as its error and counts against no budget. `arguments` is None where the
    model's text was not a JSON object; `raw` keeps that text.
    """

    name: Writable
    arguments: JsonObject | None = None
    raw: str = ""
    provider_id: str = ""
    problem: str = ""
    #: What the doom-loop detector compares instead of the arguments, where the tool names it.
    loop_key: str | None = None
    #: A polling tool: the doom-loop detector does not see its calls.
    ignore_in_loop_detection: bool = False
    #: The call runs a sub-agent: it leases its share of what the turn has left (rule 14).
    delegates: bool = False


#: The calls of one reply.
Calls = Annotated[tuple[ToolCall, ...], Field(max_length=MAX_CALLS_PER_REPLY)]


class Input(Frozen):
    """Something that happened, `elapsed` seconds of driving after the turn began.

    `trigger` is the event of the chart that it is, mostly; None for what the chart is not asked about.
    """

    trigger: ClassVar[Trigger | None] = None

    elapsed: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    #: Messages to the running turn that were not taken in: kept with its end, if this event ends it (rule 15).
    undelivered: tuple[str, ...] = ()

    @classmethod
    def title(cls) -> str:
        """What happened, in one word: `CallSettled` for a `CallSettledInput`."""
        return cls.__name__.removesuffix("Input") or "Input"


class StartedInput(Input):
    """A turn begins. Everything that its resumption needs to know is in here."""

    trigger = Trigger.PROCEED
    prompt: str
    limits: Limits = Field(default_factory=Limits)
    #: The conversation that the turn belongs to, and the model's id: for people and for those who resume.
    session: str | None = None
    model: str = ""
    #: The agent as the engine wrote it (a JSON object): the machine keeps it and reads nothing of it.
    agent: JsonObject = Field(default_factory=dict)
    #: What came with the prompt (pictures, documents), each as the engine wrote it: kept, not read.
    files: tuple[JsonObject, ...] = ()
    #: The messages before the prompt, where the embedder brought them: kept, not read.
    message_history: tuple[JsonObject, ...] = ()
    #: Whether the embedder has a synthesis that is offered each finished batch.
    synthesis: bool = False
    parent_turn: str | None = None
    parent_call: str | None = None
    depth: Annotated[int, Field(ge=0)] = 0
    #: The turn that this one goes on from, after a limit (rule 16).
    continue_from: str | None = None
    #: The turn that this one is a copy of, as far as that turn's fact `forked_at`.
    forked_from: str | None = None
    forked_at: Annotated[int, Field(ge=1)] | None = None
    #: What the embedder wants to find again when the turn is resumed: kept, not read.
    metadata: JsonObject = Field(default_factory=dict)


class ModelRepliedInput(Input):
    """The model's reply is whole. One with blank text and no calls is taken as a failed attempt (rule 9)."""

    trigger = Trigger.REPLIED
    text: str = ""
    reasoning: str = ""
    #: What must be sent back unchanged beside the reasoning (signatures): kept, not read.
    reasoning_details: tuple[JsonObject, ...] = ()
    calls: Calls = ()
    finish: Finish = Finish.STOP
    usage: Usage | None = None


class AttemptFailedInput(Input):
    """A model call, or the synthesis, failed. Its retry is allowed or refused by the chart."""

    trigger = Trigger.ATTEMPT_FAILED
    cause: Cause
    #: The provider's own words and what to do; shown to people.
    message: str = ""
    partial: str = ""
    usage: Usage | None = None
    #: Seconds that the driver waits before the next attempt, if there is one.
    wait: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class CallStartedInput(Input):
    """A tool call is about to run. Journalled before it runs; a second one for the same call is a rerun."""

    call: str
    #: The id of the child turn that this call drives.
    child: str | None = None


class CallSettledInput(Input):
    """A tool call has its result."""

    call: str
    status: CallStatus = CallStatus.OK
    result: str = ""
    #: The result as data, and the pictures and documents that belong to it: kept, not read.
    structured: JsonValue = None
    files: tuple[JsonObject, ...] = ()
    spent: Spent | None = None


class CallWaitingInput(Input):
    """A tool call needs a person before it can go on."""

    call: str
    interrupt_kind: InterruptKind
    question: str = ""
    choices: tuple[str, ...] = ()
    #: What a grant would allow (a path, say).
    grant: Writable | None = None
    #: Of a forwarded interrupt: the arguments of the child's call that it is about.
    arguments: JsonObject | None = None
    #: Seconds since the epoch after which the next driver or sweep denies it.
    expires_at: float | None = None
    #: The id of a child's interrupt that is forwarded as `call/interrupt`.
    forwarded: Writable | None = None


class SynthesizedInput(Input):
    """The embedder's synthesis has looked at the batch: the final text, or None (or a blank text) to go on."""

    trigger = Trigger.SETTLED
    text: str | None = None


class AnsweredInput(Input):
    """A person answered one interrupt."""

    trigger = Trigger.ANSWERED
    interrupt: str
    decision: Decision
    text: str = ""


class SteeredInput(Input):
    """A message to the running turn, taken in before its next model call, or while its batch is open (rule 15)."""

    text: str


class ConcludedInput(Input):
    """The concluding call answered: text or None, and the calls that it asked for all the same, which do not run.

    A blank text is none. A reply without text is asked for once more where a retry is left.
    """

    trigger = Trigger.CONCLUDED
    text: str | None = None
    calls: Calls = ()
    usage: Usage | None = None


class StopInput(Input):
    """What closes the calls that are open: the driver has stopped its I/O, and the sub-agents have ended."""

    partial: str = ""
    #: What the sub-agents of the open calls used, by call.
    spent: Mapping[str, Spent] = Field(default_factory=dict)


class ExpireInput(StopInput):
    """The deadline passed during I/O, which the driver has stopped."""

    trigger = Trigger.EXPIRE
    usage: Usage | None = None


class AbortInput(StopInput):
    """Somebody stopped the turn; the driver has stopped its I/O."""

    trigger = Trigger.ABORT
    reason: AbortReason = EndReason.ABORTED


class FailInput(StopInput):
    """The engine, or a hook of its embedder, raised."""

    trigger = Trigger.FAIL
    error: str
