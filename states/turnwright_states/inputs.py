"""The inputs of the machine: everything that happened outside, with its time and its texts.

The machine has no clock and no random numbers, so every input has `elapsed`: monotonic seconds of driving, summed over
the segments of the turn, without paused time.
"""

import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, field
from msgspec.structs import force_setattr

from .amounts import LARGEST_FLOAT
from .amounts import Spent as Spent  # noqa: PLC0414 (exported with the inputs)
from .amounts import Usage as Usage  # noqa: PLC0414 (likewise)
from .construct import Checked, check_each, writable
from .limits import MAX_APPROVERS, MAX_CALLS_PER_REPLY, Limits
from .payload import freeze
from .reasons import Cause, EndReason
from .state import Trigger

if TYPE_CHECKING:
    from pydantic import JsonValue

    JsonObject = Mapping[str, JsonValue]
    AbortReason = Literal[EndReason.ABORTED, EndReason.SUPERSEDED]
else:  # msgspec checks the outermost type, and the class the rest
    JsonValue = dict[str, Any] | list[Any] | str | int | float | bool | None
    JsonObject = Mapping[str, Any]
    AbortReason = EndReason

#: A count, and a finite number of seconds.
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, le=LARGEST_FLOAT)]
#: The people who must approve.
Approvals = Annotated[int, Meta(ge=1, le=MAX_APPROVERS)]

#: Space, line and paragraph separators, control and format characters.
_UNSEEN: Final = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf"})
#: Invisible letters and marks, in addition to whitespace, control and format characters.
_INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


class Finish(StrEnum):
    """The reason why the model stopped, as far as the chart distinguishes reasons."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"


class CallStatus(StrEnum):
    """The status of a tool call's result."""

    OK = "ok"
    ERROR = "error"
    REJECTED = "rejected"
    REFUSED = "refused"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class InterruptKind(StrEnum):
    """The kind of a question to a person."""

    QUESTION = "question"
    GRANT = "grant"
    APPROVAL = "approval"
    UNKNOWN_OUTCOME = "unknown_outcome"
    #: The world owes the call its result: a job, a browser, a webhook, the time.
    RESULT = "result"
    DOOM_LOOP = "doom_loop"


class Decision(StrEnum):
    """A person's decision. `DECISIONS` has the decisions that each kind of interrupt accepts."""

    REPLY = "reply"
    APPROVE = "approve"
    REJECT = "reject"
    RERUN = "rerun"
    UNKNOWN = "unknown"
    SETTLE = "settle"
    GO_ON = "go_on"
    ALWAYS = "always"
    STOP = "stop"


DECISIONS: Final[dict[InterruptKind, tuple[Decision, ...]]] = {
    InterruptKind.QUESTION: (Decision.REPLY, Decision.REJECT),
    InterruptKind.GRANT: (Decision.APPROVE, Decision.REJECT),
    InterruptKind.APPROVAL: (Decision.APPROVE, Decision.REJECT),
    InterruptKind.UNKNOWN_OUTCOME: (Decision.RERUN, Decision.UNKNOWN, Decision.SETTLE),
    InterruptKind.RESULT: (Decision.SETTLE, Decision.RERUN, Decision.REJECT),
    InterruptKind.DOOM_LOOP: (Decision.GO_ON, Decision.ALWAYS, Decision.STOP),
}


class GivenResult(Checked, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a call that came from outside its process. The machine keeps it, and does not read it."""

    json_fields = ("structured", "files")
    text: str = ""
    #: Whether it is the call's error.
    error: bool = False
    structured: JsonValue = None
    files: tuple[JsonObject, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "structured", freeze(self.structured))
        force_setattr(self, "files", tuple(map(freeze, self.files)))

    def _check(self) -> None:
        super()._check()
        self.__post_init__()


class CallQuestion(Checked, frozen=True, kw_only=True):
    """One more question of a call that asks several at once: its sub-agent's, or those of one round of a server.

    The fields are those of `CallWaitingInput`.
    """

    json_fields = ("arguments", "schema")
    interrupt_kind: InterruptKind
    question: str = ""
    choices: tuple[str, ...] = ()
    grant: str | None = None
    arguments: JsonObject | None = None
    expires_at: float | None = None
    forwarded: str | None = None
    tool: str = ""
    path: str = ""
    approvals: Approvals = 1
    approved_by: tuple[str, ...] = ()
    otherwise: GivenResult | None = None
    schema: JsonObject | None = None
    restricted: bool = False
    rules: tuple[str, ...] = ()

    def _check(self) -> None:
        super()._check()
        _check_names(self)


class ToolCall(Checked, frozen=True, kw_only=True):
    """One call that a model's reply asked for, looked up and validated by the driver.

    `problem` is the reason why it cannot run: an unknown tool, or arguments that are not JSON or do not fit the schema.
    That text is then the call's error, and the call counts in no budget. `arguments` is None if the model's text was
    not a JSON object; `raw` keeps that text.
    """

    json_fields = ("arguments",)
    name: str
    arguments: JsonObject | None = None
    raw: str = ""
    provider_id: str = ""
    problem: str = ""
    #: The tool's own text that the doom-loop detector compares instead of the arguments.
    loop_key: str | None = None
    #: Whether the doom-loop detector ignores the call, as for a tool that polls.
    ignore_in_loop_detection: bool = False
    #: Whether the call runs a sub-agent, which leases a share of the turn's rest (docs/rules.md#sub-agents).
    delegates: bool = False
    #: Whether the call is the turn's typed answer (docs/rules.md#typed-answers): it never runs, and takes no budget.
    output: bool = False
    #: The tools that the sub-agent may call, also through its own: for rules (docs/rules.md#rules-over-calls).
    reaches: tuple[str, ...] = ()

    def _check(self) -> None:
        super()._check()
        force_setattr(self, "name", writable(self.name))


#: The calls of one reply.
Calls = Annotated[tuple[ToolCall, ...], Meta(max_length=MAX_CALLS_PER_REPLY)]


class Input(Checked, frozen=True, kw_only=True):
    """An event outside the machine, `elapsed` seconds of driving after the turn began.

    `trigger` is its usual trigger in the chart; None if it has no row there.
    """

    trigger: ClassVar[Trigger | None] = None

    elapsed: Seconds = 0.0
    #: Messages that the turn did not accept: kept with its end, if this input ends it (docs/rules.md#messages).
    undelivered: tuple[str, ...] = ()

    @classmethod
    def title(cls) -> str:
        """Return the name of the event: `CallSettled` for a `CallSettledInput`."""
        return cls.__name__.removesuffix("Input") or "Input"


class StartedInput(Input, frozen=True, kw_only=True):
    """A turn begins. The input has everything that a later resumption needs."""

    trigger = Trigger.PROCEED
    json_fields = (
        *("agent", "files", "message_history", "metadata", "model_settings", "request", "rules", "past"),
        "client_tools",
    )
    prompt: str
    limits: Limits = field(default_factory=Limits)
    #: The turn's conversation and the model's id: for people and for a resumption.
    session: str | None = None
    model: str = ""
    #: The agent as the engine encoded it (a JSON object): kept, not read.
    agent: JsonObject = field(default_factory=dict)
    #: The files of the prompt (pictures, documents), each as the engine encoded it: kept, not read.
    files: tuple[JsonObject, ...] = ()
    #: The messages before the prompt, if the app passed any: kept, not read.
    message_history: tuple[JsonObject, ...] = ()
    #: Whether the app has a synthesis, which is offered each finished batch.
    synthesis: bool = False
    parent_turn: str | None = None
    parent_call: str | None = None
    depth: Count = 0
    #: The turn that this one continues after a limit (docs/rules.md#continuing).
    continue_from: str | None = None
    #: The turn that this one copies, up to that turn's fact `forked_at`.
    forked_from: str | None = None
    forked_at: Annotated[int, Meta(ge=1)] | None = None
    #: The differences of this fork from that turn.
    forked_with: tuple[str, ...] = ()
    #: The app's own data, for a resumption: kept, not read.
    metadata: JsonObject = field(default_factory=dict)
    #: The settings of the turn's model calls as the engine encoded them: kept, not read.
    model_settings: JsonObject = field(default_factory=dict)
    #: The names of the engine's hooks and guardrails: kept, not read.
    hooks: tuple[str, ...] = ()
    guardrails: tuple[str, ...] = ()
    #: Digests of what the caller asked for, by field, if the caller chose the turn's id: kept, not read.
    request: JsonObject = field(default_factory=dict)
    #: Whether the app must authorize each answer: kept with the question about a doom loop, not read.
    restricted: bool = False
    #: The rules over the turn's calls, and their state before it (docs/rules.md#rules-over-calls).
    rules: tuple[JsonObject, ...] = ()
    past: JsonObject = field(default_factory=dict)
    #: The tools of this turn alone, which its client runs, as the engine encoded them: kept, not read.
    client_tools: tuple[JsonObject, ...] = ()

    def _check(self) -> None:
        super()._check()
        if self.rules:
            from .rules import History  # noqa: PLC0415 (few turns have rules)

            History.of_journal(self.rules, self.past)


class ModelRepliedInput(Input, frozen=True, kw_only=True):
    """The model's reply is complete. A blank text without calls is a failed attempt (docs/rules.md#replies)."""

    trigger = Trigger.REPLIED
    json_fields = ("reasoning_details",)
    text: str = ""
    reasoning: str = ""
    #: Data that must be sent back unchanged with the reasoning, such as signatures: kept, not read.
    reasoning_details: tuple[JsonObject, ...] = ()
    calls: Calls = ()
    finish: Finish = Finish.STOP
    usage: Usage | None = None
    #: Whether hooks, guardrails or the output type check the reply before anything of it runs. A reply with a typed
    #: answer needs it. It has no effect where no call is allowed.
    review: bool = False
    #: Whether the calls that may run start with the reply, so that one append holds both.
    starts: bool = False

    def _check(self) -> None:
        super()._check()
        check_each("calls", self.calls)


class RequestPreparedInput(Input, frozen=True, kw_only=True):
    """The dynamic part of a step's requests is known. It is journaled once a step, before the model call.

    `instructions` is None if the text has not changed since the last step, and `tools` if every tool may be called.
    """

    json_fields = ("settings", "decisions")
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    #: The model settings that hooks changed, and the messages that they added: kept, not read.
    settings: JsonObject = field(default_factory=dict)
    append: tuple[str, ...] = ()
    #: The model of this step instead of the turn's, by name: kept, not read.
    model: str | None = None
    #: The hooks' decisions: kept, not read.
    decisions: tuple[JsonObject, ...] = ()


class ReviewedInput(Input, frozen=True, kw_only=True):
    """The reply that was journaled last is accepted, or refused with feedback for the model."""

    trigger = Trigger.REVIEWED
    json_fields = ("output", "decisions")
    refused: bool = False
    feedback: str = ""
    #: The call of the reply that is the typed answer.
    answer: str | None = None
    #: The typed answer as data: kept, not read.
    output: JsonValue = None
    #: The hooks' decisions: kept, not read.
    decisions: tuple[JsonObject, ...] = ()


class OversizedInput(Input, frozen=True, kw_only=True):
    """The next request would exceed the compaction's threshold: compact the conversation first."""

    trigger = Trigger.OVERSIZED
    #: The estimated tokens of the request.
    tokens: Count = 0


class CompactedInput(Input, frozen=True, kw_only=True):
    """The older part of the conversation is replaced by a summary, or its tool results are cleared."""

    trigger = Trigger.COMPACTED
    #: The summary.
    text: str = ""
    #: Whether tool results were cleared, instead of a summary.
    cleared: bool = False
    #: The number of the latest messages that stay as they are.
    kept: Count = 0
    usage: Usage | None = None


class AttemptFailedInput(Input, frozen=True, kw_only=True):
    """A model call, the synthesis, a review or a compaction failed. The chart allows or refuses a retry."""

    trigger = Trigger.ATTEMPT_FAILED
    cause: Cause
    #: The provider's own words and the remedy, for people.
    message: str = ""
    partial: str = ""
    usage: Usage | None = None
    #: Seconds that the driver waits before the next attempt, if there is one.
    wait: Seconds = 0.0


class CallStartedInput(Input, frozen=True, kw_only=True):
    """A tool call is about to run. It is journaled before the tool runs. A second one for the same call is a rerun."""

    json_fields = ("arguments", "decisions")
    call: str
    #: The id of the child turn that this call drives.
    child: str | None = None
    #: The arguments that hooks changed, and the hooks' decisions.
    arguments: JsonObject | None = None
    decisions: tuple[JsonObject, ...] = ()


class CallSettledInput(Input, frozen=True, kw_only=True):
    """A tool call has its result."""

    json_fields = ("structured", "files", "decisions")
    call: str
    status: CallStatus = CallStatus.OK
    result: str = ""
    #: The result as data, and the pictures and documents that belong to it: kept, not read.
    structured: JsonValue = None
    files: tuple[JsonObject, ...] = ()
    spent: Spent | None = None
    #: Whether the result, if it is `ok`, is the turn's answer (`return_direct`).
    final: bool = False
    #: Whether the tool raised `Retry`: counted for its `retries`.
    retry: bool = False
    #: The hooks' decisions: kept, not read.
    decisions: tuple[JsonObject, ...] = ()


class CallWaitingInput(Input, frozen=True, kw_only=True):
    """A tool call needs a person before it can continue."""

    json_fields = ("arguments", "changed", "decisions", "kept", "schema")
    call: str
    interrupt_kind: InterruptKind
    question: str = ""
    choices: tuple[str, ...] = ()
    #: The access that an approval would grant, such as a path.
    grant: str | None = None
    #: The arguments of the child's call that a forwarded interrupt concerns.
    arguments: JsonObject | None = None
    #: Seconds since the epoch after which the next driver or sweep rejects it.
    expires_at: float | None = None
    #: The id of a child's interrupt that is forwarded as `call/interrupt`; the tool that asks in the child's turn, and
    #: the calls below this one that lead to its call, joined by `:`.
    forwarded: str | None = None
    tool: str = ""
    path: str = ""
    #: The call's own arguments as hooks changed them, which the person sees; and the hooks' decisions.
    changed: JsonObject | None = None
    decisions: tuple[JsonObject, ...] = ()
    #: The approvals of different people that are still needed, and the people who have approved.
    approvals: Approvals = 1
    approved_by: tuple[str, ...] = ()
    #: The result of the call if no other came before `expires_at`.
    otherwise: GivenResult | None = None
    #: The JSON Schema of the result, and whether the app must authorize each answer: kept, not read.
    schema: JsonObject | None = None
    restricted: bool = False
    #: The names of the rules by which a sub-agent asks: kept for the person, and not approved for this call.
    rules: tuple[str, ...] = ()
    #: The tool's own data for the next run of the call, such as a server's `request_state`: kept, not read.
    kept: JsonValue = None
    #: Further questions of the call. A call asks them all at once, because it waits once a pause.
    more: tuple[CallQuestion, ...] = ()

    def _check(self) -> None:
        super()._check()
        _check_names(self)
        check_each("more", self.more)

    @property
    def questions(self) -> "tuple[CallWaitingInput | CallQuestion, ...]":
        """All questions of the call."""
        return (self, *self.more)


def _check_names(question: CallWaitingInput | CallQuestion) -> None:
    for name in ("grant", "forwarded"):
        text = getattr(question, name)
        force_setattr(question, name, text and writable(text))
    force_setattr(question, "approved_by", tuple(map(writable, question.approved_by)))
    check_each("otherwise", filter(None, [question.otherwise]))


class SynthesizedInput(Input, frozen=True, kw_only=True):
    """The app's synthesis ran on the batch. `text` is the answer; None or a blank text continues the turn."""

    trigger = Trigger.SETTLED
    text: str | None = None


class AnsweredInput(Input, frozen=True, kw_only=True):
    """A person answered one interrupt."""

    trigger = Trigger.ANSWERED
    json_fields = ("arguments",)
    interrupt: str
    decision: Decision
    text: str = ""
    #: The arguments that the person approved instead of the call's own: only with the approval of a call.
    arguments: JsonObject | None = None
    #: The result of the call: with `settle`, and only then.
    given: GivenResult | None = None
    #: Who answered, through which channel, and when (seconds since the epoch).
    by: str = ""
    via: str = ""
    at: float | None = None
    #: Whether the approval covers equal calls too, in the turn and in the later turns of its session.
    always: bool = False

    def _check(self) -> None:
        super()._check()
        for name in ("by", "via"):
            force_setattr(self, name, writable(getattr(self, name)))
        check_each("given", filter(None, [self.given]))


class SteeredInput(Input, frozen=True, kw_only=True):
    """A message to the running turn, before its next model call or during its open batch (docs/rules.md#messages)."""

    text: str


class ConcludedInput(Input, frozen=True, kw_only=True):
    """The concluding call was answered: with a text or None, and perhaps with calls, none of which runs.

    A blank text counts as None. After a reply without text the model is asked once more if a retry is left.
    """

    trigger = Trigger.CONCLUDED
    text: str | None = None
    calls: Calls = ()
    usage: Usage | None = None

    def _check(self) -> None:
        check_each("calls", self.calls)


class StopInput(Input, frozen=True, kw_only=True):
    """A stop, which closes the open calls. The driver has stopped its I/O, and the sub-agents have ended."""

    partial: str = ""
    #: The usage of the open calls' sub-agents, by call.
    spent: Mapping[str, Spent] = field(default_factory=dict)
    #: The usage of a model call that no fact has.
    usage: Usage | None = None


class ExpireInput(StopInput, frozen=True, kw_only=True):
    """The deadline passed during I/O."""

    trigger = Trigger.EXPIRE


class AbortInput(StopInput, frozen=True, kw_only=True):
    """Somebody aborted the turn."""

    trigger = Trigger.ABORT
    reason: AbortReason = EndReason.ABORTED

    def _check(self) -> None:
        if self.reason not in {EndReason.ABORTED, EndReason.SUPERSEDED}:
            raise ValueError(f"reason: nobody aborts a turn for {self.reason}")


class TrippedInput(StopInput, frozen=True, kw_only=True):
    """A guardrail tripped."""

    trigger = Trigger.TRIPPED
    json_fields = ("metadata",)
    guardrail: str
    #: The text for people, and data for programs.
    message: str = ""
    metadata: JsonObject = field(default_factory=dict)
    #: What the guardrail checks, such as `input` or `output`: kept, not read.
    checks: str = ""


class FailInput(StopInput, frozen=True, kw_only=True):
    """The engine, or a hook of the app, raised."""

    trigger = Trigger.FAIL
    error: str


def is_blank(text: str) -> bool:
    """Return whether a text has only whitespace, control characters and invisible ones, such as a zero-width space.

    A reply, a conclusion or a synthesis with a blank text counts as one without text (docs/rules.md#replies).
    """
    text = text.strip()
    if not text or "!" <= text[0] <= "~":
        return not text
    return all(char in _INVISIBLE or unicodedata.category(char) in _UNSEEN for char in text)
