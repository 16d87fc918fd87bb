"""The facts in a turn's journal, one class for each kind (docs/rules.md#journal).

A fact is a decision that was made. The fold (`turn.py`) trusts it and evaluates no guard again, so a new release cannot
change the past. Each fact has the machine's state after it, and a short hash of everything else that the machine knows
then, unless all its fields follow from the facts before it. Payloads are versioned JSON (`v`), without the fields that
have their empty defaults.

A constructor checks nothing, because the machine makes facts from checked inputs. A journal is checked when it is read
(`fact_parser.py`). Facts are immutable, including their dicts and lists, so no reader can change a decision.

A fact also has its words for pages, logs, events and the command line (`fact.py`), so a new kind appears there without
further changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from msgspec import Meta, field, to_builtins
from msgspec.structs import force_setattr

from .amounts import format_number
from .fact import DEBUG, INFO, TOKENS, WARNING, JournalValue, LoggedTurn, LogLine, allow
from .fact import Fact as Fact  # noqa: PLC0414 (exported with the kinds)
from .inputs import (
    AnsweredInput,
    CallStartedInput,
    CallStatus,
    CompactedInput,
    Decision,
    Finish,
    GivenResult,
    InterruptKind,
    OversizedInput,
    RequestPreparedInput,
    Spent,
    SteeredInput,
    SynthesizedInput,
    Usage,
)
from .limits import MAX_CALLS_PER_REPLY, Limits
from .payload import FrozenDict, plain, text_of
from .reasons import Cause, EndReason
from .state import Outcome, Stall, State
from .verdict import Effect, RuleDecision

if TYPE_CHECKING:
    from pydantic import JsonValue

    from .inputs import JsonObject
else:  # msgspec does not support the recursive type of JSON.
    JsonValue = Any
    JsonObject = Mapping[str, Any]

#: `omit_defaults` compares by identity, so it omits only this zero, and only this object without fields.
_ZERO: Final = 0.0
_NO_DATA: Final[JsonObject] = FrozenDict()
_LARGEST: Final = 1.7976931348623157e308

#: The effects of verdicts in a fact that asks no person.
_EFFECTS: Final = {"": "allow", "refuse": "refuse", "ask": "refuse", "end": "end", "report": "report"}

#: Without the content of a file and its address, which may be signed.
_FILES: Final = allow("media_type", "name", "size")


class Lease(JournalValue, frozen=True, kw_only=True):
    """The share of the remaining budgets that a sub-agent may use; None where the parent has no such budget."""

    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None

    def __str__(self) -> str:
        return f"calls={self.calls} tokens={self.tokens} cost={self.cost}"


class CallMade(JournalValue, frozen=True, kw_only=True):
    """One call of a reply, and the decision about it."""

    public_fields = allow("id", "name", "arguments", "raw", "refused", "invalid", "output")
    private_fields = frozenset({"provider_id", "key", "own_key", "lease", "reaches"})
    json_fields = ("arguments",)

    #: Our id, unique in the turn: nine letters and digits, which every provider accepts.
    id: str
    name: str
    arguments: JsonObject | None = None
    #: The model's text, if it was not a JSON object.
    raw: str = ""
    provider_id: str = ""
    #: The key that the doom-loop detector compares; empty for a call that it ignores.
    key: str = ""
    #: Whether the tool gave the key instead of the arguments.
    own_key: bool = False
    #: The reason why the call does not run; empty if it does.
    refused: str = ""
    #: Whether `refused` is a mistake of the model (unknown tool, bad arguments), not a limit.
    invalid: bool = False
    lease: Lease | None = None
    #: Whether it is the turn's typed answer.
    output: bool = False
    #: The tools that its sub-agent may call, and that a rule names.
    reaches: tuple[str, ...] = ()


class RuleVerdict(JournalValue, frozen=True, kw_only=True):
    """The decision of a rule about a call or an answer.

    `broken` is the effect of a broken rule, and empty for a rule that allows the call. `by` are the earlier calls that
    decided it.
    """

    public_fields = allow("rule", "broken", "by", "words")
    rule: str
    broken: str = ""
    by: tuple[str, ...] = ()
    #: Why the rule is broken.
    words: str = ""


class InterruptRecord(JournalValue, frozen=True, kw_only=True):
    """A question to a person. `call` is empty for a doom loop."""

    public_fields = allow(
        *("id", "kind", "call", "tool", "question", "choices", "grant", "arguments", "expires_at", "path", "approvals"),
        rules=RuleVerdict.public_fields,
    )
    private_fields = frozenset({"approved_by", "otherwise", "kept", "schema", "restricted"})
    json_fields = ("arguments", "otherwise", "kept", "schema")

    id: str
    kind: InterruptKind
    call: str = ""
    tool: str = ""
    question: str = ""
    choices: tuple[str, ...] = ()
    grant: str | None = None
    #: The arguments of the child's call that a forwarded interrupt concerns. A call of this turn has its own.
    arguments: JsonObject | None = None
    #: Seconds since the epoch; the next driver or sweep after it rejects.
    expires_at: float | None = None
    #: The calls of sub-agents that lead from `call` to the one that asks, joined by `:`.
    path: str = ""
    #: The approvals that are still needed, and the people who have approved.
    approvals: int = 1
    approved_by: tuple[str, ...] = ()
    #: The result of the call if no other came before `expires_at`, and the tool's data for its next run.
    otherwise: GivenResult | None = None
    kept: JsonValue = None
    #: The JSON Schema that a result must fit.
    schema: JsonObject | None = None
    #: Whether the app must authorize each answer, so that a process without its `authorize` accepts none.
    restricted: bool = False
    #: The rules that an approval allows to break.
    rules: tuple[RuleVerdict, ...] = ()

    @property
    def forwarded(self) -> bool:
        """Whether it belongs to a child: its call continues and passes the answer to the child."""
        return bool(self.call) and self.id.startswith(f"{self.call}/")


def _decisions(verdicts: Iterable[RuleVerdict], call: str | None, *, asks: bool = False) -> list[RuleDecision]:
    """Return the decisions that a fact records. Only a fact that `asks` has questions; others refuse instead."""
    effects = {"ask": "ask"} if asks else _EFFECTS
    return [
        RuleDecision(verdict.rule, cast("Effect", effects[verdict.broken]), call, verdict.by, verdict.words)
        for verdict in verdicts
        if verdict.broken in effects
    ]


#: The fields of the first fact that its JSON text omits if they are empty.
_OMITTED: Final = (
    *("files", "model_settings", "forked_with", "hooks", "guardrails"),
    *("request", "restricted", "rules", "past", "client_tools"),
)


def _call(call: str, tools: Mapping[str, str]) -> str:
    return f"{tools[call]} ({call})" if call in tools else call


class TurnStarted(Fact, frozen=True, kw_only=True, omit_defaults=False):
    """The turn began."""

    kind = "turn_started"
    noteworthy = False
    public_fields = allow(
        "prompt", "parent_turn", "parent_call", "depth", "continue_from", agent=allow("name"), files=_FILES
    )
    private_fields = frozenset(
        {"limits", "session", "model", "message_history", "synthesis", "forked_from", "forked_at", "metadata", "chart"}
        | {"model_settings", "forked_with", "hooks", "guardrails", "request", "restricted", "rules", "past"}
        | {"client_tools"}
    )
    json_fields = (
        *("agent", "metadata", "files", "message_history", "model_settings", "request", "rules", "past"),
        "client_tools",
    )
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
    #: The settings of the turn's model calls: those of the engine, the agent and the run, merged.
    model_settings: JsonObject = field(default_factory=dict)
    #: The differences of a fork from its original, such as `prompt` or `limits.steps`.
    forked_with: tuple[str, ...] = ()
    #: The names of the engine's hooks and guardrails, which every driver of the turn needs.
    hooks: tuple[str, ...] = ()
    guardrails: tuple[str, ...] = ()
    #: Digests of the agent's name, the prompt and the options, by field, if the caller chose the turn's id.
    request: JsonObject = field(default_factory=dict)
    #: Whether the app must authorize each answer to the turn.
    restricted: bool = False
    #: The rules over the turn's calls, pinned for the turn, and their state before it (`turnwright_states.rules`).
    rules: tuple[JsonObject, ...] = ()
    past: JsonObject = field(default_factory=dict)
    #: The tools of this turn alone, which its client runs, as the engine encoded them.
    client_tools: tuple[JsonObject, ...] = ()

    def payload(self) -> str:
        """Return the JSON text for the store.

        Its limits are written in full, because a later release may have other defaults. Empty `files`,
        `model_settings`, `forked_with`, `hooks`, `guardrails`, `request`, `rules`, `past` and `client_tools`, and a
        false `restricted`, are omitted.
        """
        fields = to_builtins(self, enc_hook=plain)
        for name in _OMITTED:
            if not fields[name]:
                del fields[name]
        return text_of(fields)

    def _words(self, _: Mapping[str, str], /) -> str:
        return self.prompt

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return INFO, f"started, with at most {self.limits.cap} steps"

    def log_fields(self) -> dict[str, str]:
        """See `Fact.log_fields`."""
        return {"agent": str(self.agent.get("name", ""))}


class StepStarted(Fact, frozen=True, kw_only=True):
    """CHECK allowed another step. `nudge`: the request has a hint that the model repeats itself; `stall`: or stalls.

    `started_at` is the time in UTC (RFC 3339, ending in `Z`). The machine has no clock and leaves it None; the writer
    of the journal sets it. No decision depends on it.
    """

    kind = "step_started"
    noteworthy = False
    public_fields = allow("number", "nudge", "stall", "started_at")
    number: int
    nudge: bool = False
    stall: Stall | None = None
    started_at: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")] | None = None

    def _words(self, _: Mapping[str, str], /) -> str:
        hint = ", with a nudge" if self.nudge else ", with a hint" if self.stall else ""
        return f"step {self.number}{hint}"

    def _logged(self, turn: LoggedTurn, /) -> LogLine:
        return INFO, f"step {self.number} of at most {turn.limits.cap}"


class ModelReplied(Fact, frozen=True, kw_only=True):
    """The model's reply is complete, and each of its calls was accepted or refused."""

    kind = "model_replied"
    noteworthy = False
    public_fields = allow("text", "finish", calls=CallMade.public_fields, usage=TOKENS)
    private_fields = frozenset({"reasoning", "reasoning_details"})
    json_fields = ("reasoning_details", "calls")
    text: str = ""
    reasoning: str = ""
    reasoning_details: tuple[JsonObject, ...] = ()
    calls: Annotated[tuple[CallMade, ...], Meta(max_length=MAX_CALLS_PER_REPLY)] = ()
    finish: Finish = Finish.STOP
    usage: Usage | None = None

    def _words(self, _: Mapping[str, str], /) -> str:
        return ", ".join(f"{call.name} ({call.id})" for call in self.calls) or self.text

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        count, runs = len(self.calls), sum(not call.refused for call in self.calls)
        if count and self.state is State.TEXT_ONLY:
            return WARNING, f"the model asked for {count} calls without being allowed any: all refused"
        level = INFO if self.state is State.TOOL_EXEC else DEBUG
        return level, f"the model replied; {runs} of {count} calls run" if count else "the model replied, without calls"


#: The decisions of hooks and guardrails, in words.
_DECIDED: Final[Mapping[JsonValue, str]] = {
    "change_arguments": "changed the arguments",
    "change_request": "changed the request",
    "passed": "passed",
    "reject": "rejected the call",
    "require_approval": "asked for approval",
    "retry": "refused the reply",
    "return_result": "gave the result",
}


def describe_decisions(decisions: Iterable[JsonObject]) -> str:
    """Return what hooks and guardrails decided, for the end of a fact's words; empty without decisions."""
    words = ""
    for decision in decisions:
        if "approval" in decision:  # of an earlier, equal call
            words += f"; approved always ({decision['approval']})"
            continue
        kind = "guardrail" if "guardrail" in decision else "hook"
        words += f"; {kind} {decision.get(kind)} {_DECIDED.get(decision.get('decision'), decision.get('decision'))}"
    return words


class RequestPrepared(Fact, frozen=True, kw_only=True):
    """The dynamic part of the step's requests: every attempt of the step sends the same.

    `instructions` is None if the text has not changed since the last step, and `tools` if every tool may be called.
    """

    kind = "request_prepared"
    noteworthy = False
    public_fields = allow("tools")
    private_fields = frozenset({"instructions", "settings", "append", "model", "decisions"})
    json_fields = ("settings", "decisions")
    follows_from = RequestPreparedInput
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    settings: JsonObject = _NO_DATA
    append: tuple[str, ...] = ()
    #: The model of this step instead of the turn's, by name.
    model: str | None = None
    decisions: tuple[JsonObject, ...] = ()

    def __post_init__(self) -> None:
        if not self.settings:
            force_setattr(self, "settings", _NO_DATA)

    def _words(self, _: Mapping[str, str], /) -> str:
        parts = ["instructions"] if self.instructions is not None else []
        parts += ["settings"] if self.settings else []
        parts += [f"{len(self.append)} messages"] if self.append else []
        parts += [f"tools {', '.join(self.tools) or 'none'}"] if self.tools is not None else []
        parts += [f"model {self.model}"] if self.model is not None else []
        return ("; ".join(parts) or "nothing changed") + describe_decisions(self.decisions)

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return DEBUG, "the request was prepared"


class Reviewed(Fact, frozen=True, kw_only=True):
    """The reply was accepted, or refused with feedback. `retry`: another step follows, in which the model reads it.

    `answer` is the call that is the typed answer, and `output` the answer as data.
    """

    kind = "reviewed"
    public_fields = allow("refused", "retry", "feedback", "answer", "output", rules=RuleVerdict.public_fields)
    private_fields = frozenset({"decisions"})
    json_fields = ("output", "decisions")
    refused: bool = False
    retry: bool = False
    feedback: str = ""
    answer: str | None = None
    output: JsonValue = None
    decisions: tuple[JsonObject, ...] = ()
    #: The rules that refused the answer.
    rules: tuple[RuleVerdict, ...] = ()

    def _words(self, _: Mapping[str, str], /) -> str:
        return (f"refused: {self.feedback}" if self.refused else "accepted") + describe_decisions(self.decisions)

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        if not self.refused:
            return DEBUG, "the reply was accepted"
        return INFO, f"the reply was refused, {'another step follows' if self.retry else 'no output retry is left'}"


class CompactionStarted(Fact, frozen=True, kw_only=True):
    """The conversation is too long for the next request, and is compacted first.

    `tokens` is the estimate of the request; 0 if the provider refused it.
    """

    kind = "compaction_started"
    public_fields = allow("tokens")
    follows_from = OversizedInput
    tokens: Annotated[int, Meta(ge=0)] = 0

    def _words(self, _: Mapping[str, str], /) -> str:
        return f"about {self.tokens} tokens" if self.tokens else "the provider refused the request"

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return INFO, f"compaction started: {self.summary()}"


class Compacted(Fact, frozen=True, kw_only=True):
    """The older messages are replaced by a summary (`text`), or lose their tool results (`cleared`).

    `kept` counts the latest messages of the conversation, which stay as they are.
    """

    kind = "compacted"
    noteworthy = False
    public_fields = allow("text", "cleared", "kept", usage=TOKENS)
    follows_from = CompactedInput
    text: str = ""
    cleared: bool = False
    kept: Annotated[int, Meta(ge=0)] = 0
    usage: Usage | None = None

    def _words(self, _: Mapping[str, str], /) -> str:
        return "old tool results cleared" if self.cleared else self.text

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        change = "its old tool results were cleared" if self.cleared else "its older part was summarized"
        return INFO, f"the conversation was compacted: {change}"


class AttemptFailed(Fact, frozen=True, kw_only=True):
    """An attempt failed. `retry`: another one follows, after `wait` seconds."""

    kind = "attempt_failed"
    public_fields = allow("attempt", "cause", "retry", "partial", "wait", usage=TOKENS)
    private_fields = frozenset({"message"})
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

    def _words(self, _: Mapping[str, str], /) -> str:
        return f"attempt {self.attempt}: {self.cause}{', tried again' if self.retry else ''}"

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        after = f"tried again after {self.wait:g} s" if self.retry else "not tried again"
        return INFO, f"attempt {self.attempt} failed ({self.cause}), {after}"


class CallStarted(Fact, frozen=True, kw_only=True):
    """A call is about to run."""

    kind = "call_started"
    noteworthy = False
    public_fields = allow("call", "attempt", "child", "arguments", rules=RuleVerdict.public_fields)
    private_fields = frozenset({"decisions"})
    json_fields = ("arguments", "decisions")
    follows_from = CallStartedInput
    call: str
    attempt: int = 1
    child: str | None = None
    #: The arguments that hooks changed, and the hooks' decisions.
    arguments: JsonObject | None = None
    decisions: tuple[JsonObject, ...] = ()
    #: The rules that allowed it, and those that only report it.
    rules: tuple[RuleVerdict, ...] = ()

    def _words(self, tools: Mapping[str, str], /) -> str:
        attempt = f", attempt {self.attempt}" if self.attempt > 1 else ""
        verdict_words = "".join(f"; {decision}" for decision in _decisions(self.rules, self.call) if decision.is_broken)
        return _call(self.call, tools) + attempt + describe_decisions(self.decisions) + verdict_words

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return DEBUG, f"call {self.call} started, attempt {self.attempt}"


class CallSettled(Fact, frozen=True, kw_only=True):
    """A call has its only result: a text for the model, and the same as data for programs (`structured`).

    `files` are its pictures and documents. `final`: the result is the turn's answer. `retry`: its tool raised `Retry`.
    """

    kind = "call_settled"
    noteworthy = False
    public_fields = allow(
        *("call", "status", "result", "structured", "final", "retry", "arguments"),
        files=_FILES,
        rules=RuleVerdict.public_fields,
    )
    private_fields = frozenset({"spent", "decisions", "key"})
    json_fields = ("structured", "files", "decisions", "arguments")
    call: str
    status: CallStatus = CallStatus.OK
    result: str = ""
    structured: JsonValue = None
    files: tuple[JsonObject, ...] = ()
    spent: Spent | None = None
    final: bool = False
    retry: bool = False
    decisions: tuple[JsonObject, ...] = ()
    #: By which the doom-loop detector compares the result, if it compares results and this one counts.
    key: str = ""
    #: The rules that refused the call, and the arguments that they judged, if hooks had changed them.
    rules: tuple[RuleVerdict, ...] = ()
    arguments: JsonObject | None = None

    def _words(self, tools: Mapping[str, str], /) -> str:
        if self.rules:
            rules = "; ".join(map(str, _decisions(self.rules, self.call)))
            return f"{_call(self.call, tools)}: {rules}{describe_decisions(self.decisions)}"
        result = f": {self.result}" if self.result else ""
        return f"{_call(self.call, tools)}: {self.status}{describe_decisions(self.decisions)}{result}"

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return DEBUG, f"call {self.call} settled: {self.status}"


class CallWaiting(Fact, frozen=True, kw_only=True):
    """A call waits for a person."""

    kind = "call_waiting"
    noteworthy = False
    public_fields = allow(
        "call", "changed", interrupt=InterruptRecord.public_fields, more=InterruptRecord.public_fields
    )
    private_fields = frozenset({"decisions"})
    json_fields = ("interrupt", "changed", "decisions", "more")
    call: str
    interrupt: InterruptRecord
    #: The call's own arguments as hooks changed them, and the hooks' decisions.
    changed: JsonObject | None = None
    decisions: tuple[JsonObject, ...] = ()
    #: The call's further questions.
    more: tuple[InterruptRecord, ...] = ()

    @property
    def interrupts(self) -> tuple[InterruptRecord, ...]:
        """All questions of the call."""
        return (self.interrupt, *self.more)

    def _words(self, tools: Mapping[str, str], /) -> str:
        ids = ", ".join(interrupt.id for interrupt in self.interrupts)
        names = ", ".join(verdict.rule for interrupt in self.interrupts for verdict in interrupt.rules)
        rules = f" (asked by {names})" if names else ""
        return f"{_call(self.call, tools)} waits for {ids}{rules}{describe_decisions(self.decisions)}"

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return DEBUG, f"call {self.call} waits for a person"


class Paused(Fact, frozen=True, kw_only=True):
    """The turn is paused. `interrupt` is a doom loop's; those of calls were journaled when they arrived."""

    kind = "paused"
    noteworthy = False
    public_fields = allow(interrupt=InterruptRecord.public_fields)
    interrupt: InterruptRecord | None = None

    def _words(self, _: Mapping[str, str], /) -> str:
        return "" if self.interrupt is None else self.interrupt.question

    def _logged(self, turn: LoggedTurn, /) -> LogLine:
        return INFO, f"paused: {len(turn.interrupts)} answers needed"


class Synthesized(Fact, frozen=True, kw_only=True):
    """The synthesis ran on the batch. Null is written too, because a crash would run it twice otherwise."""

    kind = "synthesized"
    noteworthy = False
    public_fields = allow("text")
    follows_from = SynthesizedInput
    text: str | None = None

    def _words(self, _: Mapping[str, str], /) -> str:
        return "no answer" if self.text is None else self.text

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return DEBUG, f"the synthesis gave {'nothing' if self.text is None else 'the answer'}"


class Answered(Fact, frozen=True, kw_only=True):
    """A person answered."""

    kind = "answered"
    noteworthy = False
    public_fields = allow("interrupt", "decision", "text", "grant", "arguments", "via", "at", "always")
    private_fields = frozenset({"always_for", "given", "by"})
    json_fields = ("arguments", "given")
    follows_from = AnsweredInput
    interrupt: str
    decision: Decision
    text: str = ""
    #: The access that was granted for the rest of the turn.
    grant: str | None = None
    #: The tools that the doom-loop detector ignores for the rest of the turn.
    always_for: tuple[str, ...] = ()
    #: The arguments that the person approved instead of the call's own.
    arguments: JsonObject | None = None
    #: The result of the call, which hooks and guardrails still see.
    given: GivenResult | None = None
    #: Who answered, through which channel, and when (seconds since the epoch).
    by: str = ""
    via: str = ""
    at: float | None = None
    #: Whether the approval covers equal calls too.
    always: bool = False

    @property
    def signature(self) -> str:
        """The signature in words: `by ann via slack, 2026-11-28 19:02 UTC`. Empty if nobody is named."""
        if not self.by:
            return ""
        channel = f" via {self.via}" if self.via else ""
        try:
            time = "" if self.at is None else f"{datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M} UTC"
        except (OverflowError, ValueError, OSError):  # not a time of a clock
            time = ""
        return f"by {self.by}{channel}" + (f", {time}" if time else "")

    def _words(self, _: Mapping[str, str], /) -> str:
        suffix = "" if self.arguments is None else ", with other arguments"
        suffix += ", always for equal calls" if self.always else ""
        suffix += f" ({self.signature})" if self.signature else ""
        return f"{self.interrupt}: {self.decision}{suffix}{f': {self.text}' if self.text else ''}"

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return INFO, f"{self.interrupt} was answered; the state is {self.state}"


class StepFinished(Fact, frozen=True, kw_only=True):
    """The step is over. `usage` is that of the whole step, and `seconds` its time of driving."""

    kind = "step_finished"
    noteworthy = False
    public_fields = allow("number", "seconds", usage=TOKENS)
    number: int
    usage: Usage
    seconds: float

    @property
    def new_usage(self) -> None:
        """None, because the facts of the step's model calls reported it."""
        return None

    def _words(self, _: Mapping[str, str], /) -> str:
        return f"step {self.number}, {self.seconds:.2f} s"

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return DEBUG, f"step {self.number} took {self.seconds:.3f} s, {self.usage.tokens} tokens"


class Stopping(Fact, frozen=True, kw_only=True):
    """A limit was reached: the model is asked to conclude."""

    kind = "stopping"
    noteworthy = False
    public_fields = allow("reason", "also_reached", "partial", usage=TOKENS)
    reason: EndReason
    also_reached: tuple[EndReason, ...] = ()
    partial: str = ""
    usage: Usage | None = None

    def _words(self, _: Mapping[str, str], /) -> str:
        return str(self.reason)

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return INFO, f"stopping: {self.reason}"


class MessageAdded(Fact, frozen=True, kw_only=True):
    """A message to the running turn was accepted. The model reads it after the results of the open batch."""

    kind = "message_added"
    public_fields = allow("text")
    follows_from = SteeredInput
    text: str

    def _words(self, _: Mapping[str, str], /) -> str:
        return self.text

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return DEBUG, "a message was accepted"


class Concluded(Fact, frozen=True, kw_only=True):
    """The concluding call was answered. `refused` names the tools of its calls, none of which runs.

    `retry`: it had no text, and the model is asked once more.
    """

    kind = "concluded"
    noteworthy = False
    public_fields = allow("text", "refused", "retry", usage=TOKENS)
    text: str | None = None
    refused: Annotated[tuple[str, ...], Meta(max_length=MAX_CALLS_PER_REPLY)] = ()
    usage: Usage | None = None
    retry: bool = False

    def _words(self, _: Mapping[str, str], /) -> str:
        if self.text is not None:
            return self.text
        refused_calls = f", {', '.join(self.refused)} refused" if self.refused else ""
        return f"no text{refused_calls}{', asked again' if self.retry else ''}"

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        if self.retry:
            return INFO, "the conclusion had no text; the model is asked once more"
        return DEBUG, "the model concluded" if self.text is not None else "the model concluded without text"


class TrippedGuardrail(JournalValue, frozen=True, kw_only=True):
    """The guardrail that ended a turn: its name, its message for people, and its data for programs.

    `checks` says what it tripped on: the prompt (`input`), text that a person added (`message`, `answer`, `history`), a
    reply (`output`), or a call (`tool_input`, `tool_output`). A rule that ended the turn is one that checks a `rule`.
    """

    public_fields = allow("name", "message", "checks")
    private_fields = frozenset({"metadata"})
    json_fields = ("metadata",)

    name: str
    message: str = ""
    metadata: JsonObject = _NO_DATA
    checks: str = ""

    def __post_init__(self) -> None:
        if not self.metadata:
            force_setattr(self, "metadata", _NO_DATA)


class TurnEnded(Fact, frozen=True, kw_only=True):
    """The turn is over."""

    kind = "turn_ended"
    noteworthy = False
    public_fields = allow(
        "outcome",
        "reason",
        "also_reached",
        "partial",
        "undelivered",
        "unmet",
        usage=TOKENS,
        guardrail=TrippedGuardrail.public_fields,
    )
    private_fields = frozenset({"error"})
    json_fields = ("guardrail",)
    outcome: Outcome
    reason: EndReason
    also_reached: tuple[EndReason, ...] = ()
    partial: str = ""
    undelivered: tuple[str, ...] = ()
    error: str = ""
    #: The usage of the attempt that was cut off.
    usage: Usage | None = None
    guardrail: TrippedGuardrail | None = None
    #: The rules whose `then` had not come.
    unmet: tuple[str, ...] = ()

    def _words(self, _: Mapping[str, str], /) -> str:
        trip = "" if self.guardrail is None else f" ({self.guardrail.name}: {self.guardrail.message})"
        return f"{self.outcome}: {self.reason}{trip}"

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return INFO, f"ended: {self.outcome}: {self.reason}"


class Notice(Fact, frozen=True, kw_only=True):
    """A notice that people get once: a limit at 80 % (`used` of `of`), or a missing usage."""

    kind = "notice"
    public_fields = allow("limit")
    private_fields = frozenset({"used", "of"})
    limit: str
    used: Annotated[float, Meta(ge=0)] = _ZERO
    of: Annotated[float, Meta(ge=0)] = _ZERO

    def __post_init__(self) -> None:
        for name in ("used", "of"):
            force_setattr(self, name, float(getattr(self, name)) or _ZERO)

    def _words(self, _: Mapping[str, str], /) -> str:
        return f"{self.limit} {self._share}" if self.of else self.limit

    def _logged(self, _: LoggedTurn, /) -> LogLine:
        return INFO, f"notice: {self.limit}" + (f", {self._share}" if self.of else "")

    @property
    def _share(self) -> str:
        return f"{format_number(self.used)} of {format_number(self.of)}"


def rule_decisions(fact: Fact) -> list[RuleDecision]:
    """Return what rules decided about the call or the answer of a fact."""
    match fact:
        case CallStarted() | CallSettled():
            return _decisions(fact.rules, fact.call)
        case CallWaiting():
            # A sub-agent's question is a decision of its own turn.
            own_interrupts = [interrupt for interrupt in fact.interrupts if not interrupt.forwarded]
            verdicts = [verdict for interrupt in own_interrupts for verdict in interrupt.rules]
            return _decisions(verdicts, fact.call, asks=True)
        case Reviewed():
            return _decisions(fact.rules, None)
        case TurnEnded(guardrail=TrippedGuardrail(checks="rule") as rule):
            by, call = rule.metadata.get("by", ()), rule.metadata.get("call")
            evidence = tuple(map(str, by)) if isinstance(by, Sequence) else ()
            return [RuleDecision(rule.name, "end", None if call is None else str(call), evidence, rule.message)]
        case _:
            return []


KINDS: Final[Mapping[str, type[Fact]]] = {fact.kind: fact for fact in Fact.__subclasses__()}


def tool_names(facts: Iterable[Fact]) -> dict[str, str]:
    """Return the names of the tools that replies asked for, by the ids of the calls: for `Fact.summary`."""
    return {call.id: call.name for fact in facts if isinstance(fact, ModelReplied) for call in fact.calls}
