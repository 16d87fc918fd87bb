"""The facts of a turn: what its journal holds, one kind a class.

A fact is a decision that was made. The fold (`turn.py`) trusts it and asks no guard again, so a new release cannot
change the past. Each fact names the state in which the machine stands after it, and a short hash of everything else
the machine knows then. Payloads are JSON, versioned (`v`), without the fields that are at their empty defaults.

To make a fact checks nothing: the machine makes them, of events that were checked. A journal is checked when it is
read (`parse_fact`). A fact cannot be changed, nor can a dict or a list in it: whoever is told of facts, and whoever
reads them from a store, sees what was decided and changes nothing of it.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from msgspec import DecodeError, Meta, Struct, convert, field, to_builtins
from msgspec import ValidationError as Misfit
from msgspec.json import Decoder
from msgspec.structs import force_setattr

from .errors import InvalidJournalError
from .inputs import CallStatus, Decision, Finish, InterruptKind, Spent, Usage
from .limits import MAX_CALLS_PER_REPLY, Limits
from .payload import frozen, misfit, model, nests_deeper, plain, repeated, text_of
from .reasons import Cause, EndReason
from .state import Outcome, State

if TYPE_CHECKING:
    from pydantic import JsonValue

    from .inputs import JsonObject
else:  # What is any JSON there is to a type checker, msgspec only takes as anything.
    JsonValue = Any
    JsonObject = Mapping[str, Any]

#: The version of the payloads that this release writes.
PAYLOAD_VERSION: Final = 1
#: The one zero that `omit_defaults` leaves out, which compares by identity.
_ZERO: Final = 0.0
_LARGEST: Final = 1.7976931348623157e308


# The garbage collector need not look at what a journal keeps: all that is in it was made before, so no cycle goes
# through it.
class _Kept(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What a journal keeps."""


class Lease(_Kept, frozen=True, kw_only=True):
    """The share of what is left that a sub-agent may use; None where the parent has no such budget."""

    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None

    def __str__(self) -> str:
        return f"calls={self.calls} tokens={self.tokens} cost={self.cost}"


class CallMade(_Kept, frozen=True, kw_only=True):
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


class InterruptRecord(_Kept, frozen=True, kw_only=True):
    """A person is asked. `call` is empty for a doom loop."""

    id: str
    kind: InterruptKind
    call: str = ""
    tool: str = ""
    question: str = ""
    choices: tuple[str, ...] = ()
    grant: str | None = None
    #: The arguments of the child's call that a forwarded interrupt is about. Those of a call of this turn are its own.
    arguments: JsonObject | None = None
    #: Seconds since the epoch; the next touch after it denies.
    expires_at: float | None = None

    @property
    def forwarded(self) -> bool:
        """Whether it is a child's, which the child settles: its call goes on, and hands the answer down."""
        return bool(self.call) and self.id.startswith(f"{self.call}/")


class Fact(_Kept, frozen=True, tag_field="v", tag=PAYLOAD_VERSION):
    """What every fact carries. `elapsed` is in seconds of driving since the turn began."""

    kind: ClassVar[str]

    elapsed: float
    state: State
    hash: str = ""

    def payload(self) -> str:
        """The fact as the JSON text that a store keeps."""
        return text_of(self)

    def freeze(self) -> None:
        """Make the dicts and lists in a fact that was read unchangeable, as they are in one that the machine makes."""

    def to_json(self) -> "dict[str, JsonValue]":
        """The same as data, without its version. Nothing in it is shared with the fact."""
        fields: dict[str, JsonValue] = json.loads(text_of(self))
        del fields["v"]
        return fields


class TurnStarted(Fact, frozen=True, kw_only=True, omit_defaults=False):
    """The turn began."""

    kind = "turn_started"
    prompt: str
    limits: Limits
    session: str | None = None
    model: str = ""
    agent: JsonObject = field(default_factory=dict)
    files: tuple[JsonObject, ...] = ()
    message_history: tuple[JsonObject, ...] = ()
    synthesis: bool = False
    parent_turn: str | None = None
    parent_call: str | None = None
    depth: int = 0
    continue_from: str | None = None
    forked_from: str | None = None
    forked_at: int | None = None
    metadata: JsonObject = field(default_factory=dict)
    chart: int

    def freeze(self) -> None:
        """See `Fact.freeze`."""
        for name in ("agent", "metadata"):
            force_setattr(self, name, frozen(getattr(self, name)))
        for name in ("files", "message_history"):
            force_setattr(self, name, tuple(map(frozen, getattr(self, name))))

    def payload(self) -> str:
        """The fact as the JSON text that a store keeps.

        Its limits are written whole: a later release may have other defaults. No files are none for ever.
        """
        if self.files:
            return text_of(self)
        fields = to_builtins(self, enc_hook=plain)
        del fields["files"]
        return text_of(fields)


class StepStarted(Fact, frozen=True, kw_only=True):
    """CHECK allowed another step. `nudge`: the model is told that it repeats itself.

    `started_at` is the time in UTC (RFC 3339, ending in `Z`). The machine has no clock and leaves it None: whoever
    writes the journal puts it in. Nothing is decided by it.
    """

    kind = "step_started"
    number: int
    nudge: bool = False
    started_at: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")] | None = None


class ModelReplied(Fact, frozen=True, kw_only=True):
    """The model's reply is whole, and it is decided which of its calls run."""

    kind = "model_replied"
    text: str = ""
    reasoning: str = ""
    reasoning_details: tuple[JsonObject, ...] = ()
    calls: Annotated[tuple[CallMade, ...], Meta(max_length=MAX_CALLS_PER_REPLY)] = ()
    finish: Finish = Finish.STOP
    usage: Usage | None = None

    def freeze(self) -> None:
        """See `Fact.freeze`."""
        force_setattr(self, "reasoning_details", tuple(map(frozen, self.reasoning_details)))
        for made in self.calls:
            force_setattr(made, "arguments", frozen(made.arguments))


class AttemptFailed(Fact, frozen=True, kw_only=True):
    """An attempt failed. `retry`: another one follows, after `wait` seconds."""

    kind = "attempt_failed"
    attempt: int
    cause: Cause
    retry: bool = False
    message: str = ""
    partial: str = ""
    usage: Usage | None = None
    wait: Annotated[float, Meta(ge=0, le=_LARGEST)] = _ZERO

    def __post_init__(self) -> None:
        if not self.wait:
            force_setattr(self, "wait", _ZERO)


class CallStarted(Fact, frozen=True, kw_only=True):
    """A call is about to run."""

    kind = "call_started"
    call: str
    attempt: int = 1
    child: str | None = None


class CallSettled(Fact, frozen=True, kw_only=True):
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

    def freeze(self) -> None:
        """See `Fact.freeze`."""
        force_setattr(self, "structured", frozen(self.structured))
        force_setattr(self, "files", tuple(map(frozen, self.files)))


class CallWaiting(Fact, frozen=True, kw_only=True):
    """A call waits for a person."""

    kind = "call_waiting"
    call: str
    interrupt: InterruptRecord

    def freeze(self) -> None:
        """See `Fact.freeze`."""
        force_setattr(self.interrupt, "arguments", frozen(self.interrupt.arguments))


class Paused(Fact, frozen=True, kw_only=True):
    """The turn rests. `interrupt` is the doom loop's; those of calls were journalled as they came."""

    kind = "paused"
    interrupt: InterruptRecord | None = None


class Synthesized(Fact, frozen=True, kw_only=True):
    """The synthesis looked at the batch; null is written too, else a crash would run it twice."""

    kind = "synthesized"
    text: str | None = None


class Answered(Fact, frozen=True, kw_only=True):
    """A person answered."""

    kind = "answered"
    interrupt: str
    decision: Decision
    text: str = ""
    #: What was granted for the rest of the turn.
    grant: str | None = None
    #: The tools that the doom-loop detector leaves out for the rest of the turn.
    always_for: tuple[str, ...] = ()


class StepFinished(Fact, frozen=True, kw_only=True):
    """The step is over: what it used, and how long it took in seconds of driving."""

    kind = "step_finished"
    number: int
    usage: Usage
    seconds: float


class Stopping(Fact, frozen=True, kw_only=True):
    """A limit was reached: the model is asked to conclude."""

    kind = "stopping"
    reason: EndReason
    also_reached: tuple[EndReason, ...] = ()
    partial: str = ""
    usage: Usage | None = None


class MessageAdded(Fact, frozen=True, kw_only=True):
    """A message to the running turn was taken in; it is shown after the results of the open batch."""

    kind = "message_added"
    text: str


class Concluded(Fact, frozen=True, kw_only=True):
    """The concluding call answered. `refused` names the tools that it asked for all the same.

    `retry`: it has no text, and the model is asked once more.
    """

    kind = "concluded"
    text: str | None = None
    refused: Annotated[tuple[str, ...], Meta(max_length=MAX_CALLS_PER_REPLY)] = ()
    usage: Usage | None = None
    retry: bool = False


class TurnEnded(Fact, frozen=True, kw_only=True):
    """The turn is over."""

    kind = "turn_ended"
    outcome: Outcome
    reason: EndReason
    also_reached: tuple[EndReason, ...] = ()
    partial: str = ""
    undelivered: tuple[str, ...] = ()
    error: str = ""
    #: What the attempt that was cut off used.
    usage: Usage | None = None


class Notice(Fact, frozen=True, kw_only=True):
    """Something that people should know, once: a limit at 80 % (`used` of `of`), or usage that is not told."""

    kind = "notice"
    limit: str
    used: Annotated[float, Meta(ge=0)] = _ZERO
    of: Annotated[float, Meta(ge=0)] = _ZERO

    def __post_init__(self) -> None:
        for name in ("used", "of"):
            force_setattr(self, name, float(getattr(self, name)) or _ZERO)


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
        Synthesized,
        Answered,
        StepFinished,
        Stopping,
        MessageAdded,
        Concluded,
        TurnEnded,
        Notice,
    )
}


#: How many lists and objects of a payload may stand in each other. The machine's events take up to 255 of them in one
#: value, so that no fact comes near; whatever walks a fact later may recurse.
MAX_NESTING: Final = 300
#: The characters of a damaged value that an error quotes.
_MOST_QUOTED: Final = 60
#: How each payload begins that this release writes.
_HEAD: Final = f'{{"v":{PAYLOAD_VERSION},'


def parse_fact(kind: object, payload: object, seq: int = 0) -> Fact:
    """Read one fact from its kind and its JSON text, whatever a store found in their place.

    `seq` is its place in the journal, for the message. Raises `InvalidJournalError` for an unknown kind, a payload of
    another version, one that does not fit its kind or is no text, one that nests lists and objects more than
    `MAX_NESTING` deep, and one in which an object has a name twice: readers of JSON differ in which of the two values
    they take.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidJournalError(seq, f"its kind {_quoted(kind)} is unknown to this release")
    if not isinstance(payload, str):
        raise InvalidJournalError(seq, f"its payload {_quoted(payload)} is no text")
    if nests_deeper(payload, MAX_NESTING):
        raise InvalidJournalError(seq, f"its payload is nested too deeply: more than {MAX_NESTING} lists and objects")
    if payload.startswith(_HEAD):
        try:
            fact = _decoder(KINDS[kind]).decode(payload)
            if fact.payload() == payload:  # so no name stands twice in it, of which the decoder takes the last
                fact.freeze()
                return fact
        except (DecodeError, ValueError, RecursionError):
            pass  # What is wrong with it, if anything is, the slower way finds out.
    return _parse(kind, payload, seq)


@cache
def _decoder(kind: type[Fact]) -> Decoder[Fact]:
    return Decoder(kind, dec_hook=model)


def _quoted(value: object) -> str:
    shown = ascii(value)
    return shown if len(shown) <= _MOST_QUOTED else f"{shown[:_MOST_QUOTED]}..."


def _parse(kind: str, payload: str, seq: int) -> Fact:
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise InvalidJournalError(seq, "its payload is not a JSON object")
    name = repeated(payload)
    if name is not None:
        raise InvalidJournalError(seq, f"its payload has {name!r} twice in one object")
    version = fields.pop("v", None)
    if type(version) is not int or version != PAYLOAD_VERSION:
        newer = type(version) is int and version > PAYLOAD_VERSION
        why = f"its payload has version {version!r}, and this release reads {PAYLOAD_VERSION}"
        raise InvalidJournalError(seq, why, newer=newer)
    try:
        fact = convert(fields, KINDS[kind], dec_hook=model)
        # Python reads more than JSON is. What cannot be written again would fail wherever the fact is shown.
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except Misfit as error:
        raise InvalidJournalError(seq, f"its payload does not fit {kind}: {misfit(error)}") from None
    except UnicodeEncodeError:
        raise InvalidJournalError(seq, "its payload holds half a surrogate pair, which is no text") from None
    except (ValueError, RecursionError):
        raise InvalidJournalError(
            seq, "its payload holds a number that JSON does not have, or is nested too deeply"
        ) from None
    fact.freeze()
    return fact
