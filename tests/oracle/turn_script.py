"""A turn as data: its limits, what the model and the tools do, what people do, and when.

`reference.predict` returns the course of such a turn by the rules, and `differential.observe` by the engine. Times are
in seconds of a clock that moves only while the turn works.
"""

from dataclasses import dataclass, field
from typing import Literal

from turnwright_states import CallStatus, Cause, EndReason, Finish, Limits, Outcome

__all__ = [
    "ANSWER",
    "HELPER",
    "LONG",
    "OUTPUT_TOOL",
    "Course",
    "Death",
    "JournalCounts",
    "PersonAct",
    "ScriptedCall",
    "ScriptedGuardrail",
    "ScriptedReply",
    "ScriptedTool",
    "TurnScript",
]

#: The tool that takes a typed answer, and the text that is one.
OUTPUT_TOOL, ANSWER = "final_result", '{"number": 1, "does": "return", "seconds": 0}'
#: The tool that runs a sub-agent.
HELPER = "helper"
#: After a reply that used so many tokens, the next request is too long.
LONG = 1_000
#: The seconds until a guardrail of calls trips, and until a hook raises or its time is up.
TRIPS_AFTER, RAISES_AFTER, LATE_AFTER = 19 / 64, 27 / 64, 41 / 64
#: The seconds by which those of a sub-agent take longer, so that it and its caller never fail at once.
LATER_IN_HELPER = 2 / 64
#: The amount that a hook or a person adds to the number of a call that they change.
CHANGED_BY = 10

#: The act of a person who is asked: `yes` or `no`; `always`, which is `yes` except for a doom loop; `change`, which is
#: `yes` with another number for a call; `expire`, so that all questions that can expire do; `abort`; or `message`, a
#: new message of the session.
PersonAct = Literal["yes", "no", "always", "change", "expire", "abort", "message"]


@dataclass(frozen=True, slots=True)
class ScriptedTool:
    """A tool. Each of its calls says what it does."""

    name: str
    needs_approval: bool = False
    ignore_in_loop_detection: bool = False
    one_loop_key: bool = False
    """Whether all its calls count as equal for the doom-loop detector."""
    return_direct: bool = False
    retries: int = 1
    on_crash: Literal["unknown", "rerun", "ask"] = "unknown"
    """The policy for a call that a crash interrupted."""


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A call in a reply, and the work of its tool. Calls with equal fields have equal arguments."""

    tool: str
    number: int = 0
    """A number that makes calls differ."""
    does: Literal["return", "fail", "retry"] = "return"
    """Whether the tool returns a text, raises an error, or raises `Retry`."""
    seconds: float = 0.0
    fits: bool = True
    """Whether the arguments fit the tool's schema."""
    before: Literal["", "change", "spoil", "reject", "ask", "result", "trip", "raise", "late"] = ""
    """The decision of the hook before the tool: another number, arguments that do not fit, and so on; or a guardrail
    trips on the arguments. A hook that is `late` does not finish in its time."""
    after: Literal["", "hide", "trip", "raise", "late"] = ""
    """The decision of the hook after the tool, to give another result; or a guardrail trips on the result."""


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """The reply of one model call, or its error."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish: Finish = Finish.STOP
    error: Cause | None = None
    tokens: int = 1
    """The tokens that the call uses. A token costs 1."""
    seconds: float = 0.0
    refused: bool = False
    """Whether a hook after the model refuses the reply."""
    trips: bool = False
    """Whether a guardrail trips on the text of the reply."""
    fault: Literal["", "raise", "late", "guardrail", "model", "once"] = ""
    """The fault of the hook after the model, of the guardrail of the text, or of that guardrail's own model, which
    fails each time or every other time."""


@dataclass(frozen=True, slots=True)
class ScriptedGuardrail:
    """A guardrail of the prompt, before the first model call or in parallel with it."""

    seconds: float = 0.1
    trips: bool = False
    raises: bool = False
    parallel: bool = False
    fault: Literal["", "model", "once"] = ""
    """The fault of its own model, which fails each time or every other time."""


@dataclass(frozen=True, slots=True)
class TurnScript:
    """One turn. The model of the empty script answers at once."""

    replies: tuple[ScriptedReply, ...] = (ScriptedReply(text="Done."),)
    """One for each model call of the turn. After the last one they begin anew."""
    tools: tuple[ScriptedTool, ...] = ()
    limits: Limits = field(default_factory=Limits)
    people: tuple[PersonAct, ...] = ("yes",)
    """One act for each question. After the last one they begin anew."""
    synthesis: tuple[str | Cause | type[RuntimeError] | None, ...] = ()
    """The text of the app's synthesis each time that it is asked, or None, or the error of its own model, or it raises.
    After the last one they begin anew. With sub-agents, one for each number of successful calls in a batch."""
    messages: tuple[float, ...] = ()
    """The times at which people write to the turn."""
    abort_at: float | None = None
    cancel_grace: float = 1.0
    crashes: tuple[int, ...] = ()
    """The appends that each process makes to the journal before it dies. The process after the last one lives on."""
    dies_at: float | None = None
    """The time at which the process dies, whatever it does."""
    hooked: bool = False
    """Whether the agent has the hooks and guardrails that decide about calls and replies."""
    guardrail: ScriptedGuardrail | None = None
    typed: bool = False
    """Whether the agent has a typed answer: the output tool's arguments, or `ANSWER` as a text. Its validator refuses
    one that says `retry`."""
    compactions: int = 0
    """The most compactions. 0: the agent has none."""
    keep_steps: int = 0
    clears: bool = False
    """Whether a compaction clears the results of tools, instead of asking for a summary."""
    helper: tuple[ScriptedReply, ...] = ()
    """The replies of the sub-agent that the tool `HELPER` runs, if there are any. The number of a reply is that of the
    replies before it in its turn. The sub-agent has the same tools."""
    offered: tuple[tuple[str, ...] | Literal["raise"] | None, ...] = ()
    """The tools of each step that a hook before the model offers, or None for all, or it raises. They begin anew after
    the last."""


@dataclass(frozen=True, slots=True)
class JournalCounts:
    """The facts in the journal of a turn, by kind. A call is named by its place among the calls of the turn."""

    steps: int = 0
    replies: int = 0
    failures: int = 0
    """Failed attempts, of compactions too, and attempts at the conclusion."""
    compactions: int = 0
    """Compactions that began, and conversations that became shorter."""
    syntheses: int = 0
    reviews: int = 0
    pauses: int = 0
    answers: int = 0
    messages: int = 0
    stopped: bool = False
    ended: bool = False
    starts: tuple[int, ...] = ()
    """The starts of each call."""
    results: frozenset[int] = frozenset()
    """The calls with results."""
    waits: frozenset[int] = field(default=frozenset(), compare=False)
    """The calls that wait for a person. A turn may write that before or after the starts of the others."""
    helpers: tuple[tuple[int, "JournalCounts"], ...] = ()
    """The journals of the sub-agents of calls without results."""


@dataclass(frozen=True, slots=True)
class Death:
    """The death of a process that drove the turn."""

    at: float
    counts: JournalCounts
    """The facts that were in the journal."""
    just_started: frozenset[int] = frozenset()
    """The calls that this process started and whose tools did not run."""
    lost: float = 0.0
    """The seconds since the last append."""
    released: bool = False
    """Whether the process had released the turn before, so that its next driver finds no crash."""
    calls: int = 0
    """The model calls so far, if it drove a sub-agent. The last one may have begun at the moment of the death."""
    helpers: tuple[tuple[int, "Death"], ...] = ()
    """The deaths of the sub-agents of calls without results."""


@dataclass(frozen=True, slots=True)
class Course:
    """The course of a turn, as it was or as it is predicted."""

    outcome: Outcome
    reason: EndReason
    also_reached: tuple[EndReason, ...]
    steps: int
    tool_calls: int
    """The calls that count in the budget."""
    executed: tuple[tuple[str, int], ...]
    """The tool and the number of each call whose tool ran, sorted. The tools themselves count."""
    model_calls: int
    """The model calls. The model itself counts."""
    pauses: int
    tokens: int
    results: tuple[tuple[str, CallStatus], ...]
    """The tool and the status of each call in the transcript, in order. Each call has one result."""
    undelivered: int
    """The messages that the model never read."""
    sentinel: str | None
    """The figures in the sentinel, such as "5 of 5"; empty without figures, None without a sentinel."""
