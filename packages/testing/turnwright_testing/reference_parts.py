"""The parts of the reference simulator: the reasons of endings, the way to an ending, a call, and the counters."""

from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, NoReturn

from turnwright_states import CallStatus, Cause, EndReason, Outcome, ToolCallLimits

from .turn_script import Course, PersonAct, ScriptedCall, ScriptedTool, TurnScript

#: The most steps of any turn (docs/rules.md#steps).
_MOST_STEPS: Final = 200

#: The most rounds of a cycle (docs/rules.md#doom-loops).
_LONGEST_CYCLE: Final = 4

#: The causes of failed attempts that are never retried (docs/reasons.md#causes).
_REFUSED: Final = {Cause.BAD_REQUEST, Cause.AUTHENTICATION, Cause.PERMISSION, Cause.NOT_FOUND, Cause.REJECTED}
LASTING: Final = _REFUSED | {Cause.CONTEXT_OVERFLOW, Cause.CONTENT_FILTER}
#: The causes that are reasons too. All other causes end a turn as `model_error`.
REASONS: Final = {
    Cause.EMPTY_REPLY: EndReason.EMPTY_REPLY,
    Cause.CONTENT_FILTER: EndReason.CONTENT_FILTER,
    Cause.CONTEXT_OVERFLOW: EndReason.CONTEXT_OVERFLOW,
    Cause.CRASH: EndReason.CRASHED,
}
LIMITS: Final = {
    *(EndReason.STEP_CAP, EndReason.BUDGET, EndReason.TOKENS, EndReason.COST, EndReason.DEADLINE),
    EndReason.NO_CALL_RAN,
}
#: The reasons of each outcome (docs/reasons.md). All other reasons are failures.
OUTCOMES: Final = {
    Outcome.FINISHED: {EndReason.ANSWERED, EndReason.TEXT_ONLY, EndReason.TRUNCATED},
    Outcome.SYNTHESIS_DONE: {EndReason.SYNTHESIZED},
    Outcome.CAP_HIT: LIMITS,
    Outcome.DOOM_LOOP: {EndReason.DOOM_LOOP},
    Outcome.ABORTED: {EndReason.ABORTED, EndReason.SUPERSEDED},
}

#: A turn that runs. It yields at each question to a person, and receives the person's act.
Life = Generator[None, PersonAct, None]


#: The key of a call in comparisons: the tool, and the call unless the tool has a key of its own.
Key = tuple[str, ScriptedCall | None]
#: The calls of a round, with what their results say where results are compared.
Round = Counter[tuple[Key, object]]


class StopError(Exception):
    """The reason why the turn stops, and the other limits that were reached."""

    def __init__(self, why: EndReason, also: Iterable[EndReason] = ()) -> None:
        super().__init__(why, tuple(also))
        self.why, self.also = why, tuple(also)


class EndError(StopError):
    """The turn ends (docs/rules.md#outcomes)."""


class LimitError(StopError):
    """A limit stops the turn, which concludes (docs/rules.md#concluding)."""


class CoincidenceError(Exception):
    """Work ends at the very moment at which the time of its turn is up. The rules do not say which is first."""


@dataclass(slots=True)
class Call:
    """A call of a reply. It is open until it has a status."""

    asked: ScriptedCall
    tool: ScriptedTool | None
    status: CallStatus | None = None
    asks: bool = False
    approved: bool = False
    judged: bool = False
    #: The content of its result, so that the results of two calls can be compared.
    result: object = None
    answers: bool = False
    starts: int = 0
    runs: bool = False
    #: Whether another call has paid for the crash that interrupted it (docs/rules.md#recovery).
    crash_paid: bool = False
    #: Its status if a person declines, and whether the question expires.
    declined: CallStatus = CallStatus.REJECTED
    expires: bool = True
    #: Whether the journal has yet to say that it starts, and the answer to the question of its sub-agent.
    due: bool = True
    act: PersonAct | None = None


def agrees(act: PersonAct) -> bool:
    """Return whether a person says yes."""
    return act in ("yes", "always", "change")


def is_idle(batch: list[Call]) -> bool:
    """Return whether a step has calls, and none of them ran (docs/rules.md#idle-steps)."""
    return batch != [] and not any(call.starts for call in batch)


def has_answer(calls: Iterable[Call]) -> bool:
    """Return whether a call gave the turn's answer (docs/rules.md#direct-results)."""
    return any(call.status is CallStatus.OK and call.answers for call in calls)


class Counted:
    """The counters of a turn, the rounds that it remembers, and its course."""

    started: int
    tokens: int

    def __init__(self, script: TurnScript) -> None:
        self.script = script
        self.limits = limits = script.limits
        self.tools = {tool.name: tool for tool in script.tools}
        # The cap, and the steps of it that may call tools (docs/rules.md#steps).
        self.cap = min(limits.ceiling if limits.steps is None else limits.steps, limits.ceiling, _MOST_STEPS)
        self.allowance = max(self.cap - 1, 0) if limits.concluding == "within" else self.cap
        # No scripted tool says whether it reads or writes (docs/rules.md#budgets).
        calls = limits.tool_calls
        self.budget = calls.default if isinstance(calls, ToolCallLimits) else calls
        self.now = 0.0
        self.deadline = inf if limits.seconds is None else limits.seconds
        self.abort_at = inf if script.abort_at is None else script.abort_at
        self.steps = self.started = self.tokens = self.model_calls = self.pauses = self.offers = self.read = 0
        self.replies = self.failures = self.compactions = self.syntheses = self.reviews = self.answers = 0
        #: `lost`: whether the process died after the last fact.
        self.stopped = self.ended = self.lost = False
        #: The seconds that no fact has, because a process died.
        self.lost_seconds = 0.0
        #: Whether it has sub-agents, or is one.
        self.in_team = bool(script.helper)
        self.nudges_left = limits.nudges
        #: The steps in a row in which no call ran.
        self.idle = 0
        self.rounds: list[Round] = []
        self.doom = False
        self.loop_tools: set[str] = set()
        #: The calls of the open step that the doom-loop detector watches, with what makes them equal.
        self.watched: list[tuple[Key, Call]] = []
        self.unwatched: set[str] = {tool.name for tool in script.tools if tool.ignore_in_loop_detection}
        self.asked_again = Counter[str]()
        self.calls: list[Call] = []
        self.executed: list[ScriptedCall] = []
        #: The limits that an abort reports: those that stop the turn, or about which a person is asked.
        self.stopped_by: tuple[EndReason, ...] = ()
        self.end: EndError
        self.outcome: Outcome

    def _trip(self) -> EndError:
        return EndError(EndReason.GUARDRAIL, self.stopped_by)

    def _failed(self) -> EndError:
        """Return the end of a turn of which a hook or a guardrail raises, or takes too long."""
        return EndError(EndReason.ENGINE_ERROR, self.stopped_by)

    def _reached(self) -> list[EndReason]:
        """Return the limits that are reached, the first one first (docs/chart.md#check)."""
        limits = self.limits
        use: list[tuple[EndReason, float, float | None]] = [
            (EndReason.STEP_CAP, self.steps, self.allowance),
            (EndReason.DOOM_LOOP, self.doom, True),
            (EndReason.BUDGET, self.started, self.budget),
            (EndReason.TOKENS, self.tokens, limits.tokens),
            (EndReason.COST, self.tokens, limits.cost),
            (EndReason.DEADLINE, self.now - self.lost_seconds, limits.seconds),
            (EndReason.NO_CALL_RAN, self.idle, limits.idle_steps),
        ]
        return [reason for reason, used, limit in use if limit is not None and used >= limit]

    def _stop(self, why: EndReason) -> NoReturn:
        raise LimitError(why, [other for other in self._reached() if other is not why])

    def _watch_for_loops(self, batch: list[Call]) -> None:
        """Watch the calls of a reply. Where their results are compared, the round ends with the step."""
        self.doom = False
        self.watched = [(self._key(call.asked), call) for call in batch if call.asked.tool not in self.unwatched]
        if self.limits.doom_compare == "calls":
            self._end_round()

    def _end_round(self) -> None:
        """Remember the round, and look whether it closes a loop (docs/rules.md#doom-loops)."""
        self.loop_tools = self._loop()
        self.doom = self.doom or bool(self.loop_tools)
        self.rounds += filter(None, [self._round()])
        self.watched = []

    def _round(self) -> Round:
        """Return the round of the open step. A call that was denied, or whose outcome is unknown, is not in it."""
        if self.limits.doom_compare == "calls":
            return Counter((key, None) for key, _ in self.watched)
        counts = (CallStatus.OK, CallStatus.ERROR)
        return Counter((key, call.result) for key, call in self.watched if call.status in counts)

    def _loop(self) -> set[str]:
        """Return the tools of the loop that the round of the open step closes."""
        threshold, latest = self.limits.doom_threshold, self._round()
        if threshold is None or not latest:
            return set()
        rounds = [*self.rounds, latest]
        for period in range(1, _LONGEST_CYCLE + 1):
            cycle = rounds[-period:]
            if rounds[-period * threshold :] == cycle * threshold:
                return {tool for one in cycle for (tool, _), _ in one}
        return set()

    def _key(self, asked: ScriptedCall) -> Key:
        tool = self.tools.get(asked.tool)
        return asked.tool, None if tool is not None and tool.one_loop_key and asked.fits else asked

    def _forget_rounds(self) -> None:
        self.rounds, self.watched, self.doom, self.idle = [], [], False, 0

    def _expiring(self, calls: list[Call]) -> list[Call]:
        """Return calls whose questions expire at once, in the order in which they do."""
        return calls

    def _unread(self) -> int:
        return sum(at <= self.now for at in self.script.messages) - self.read

    def course(self) -> Course:
        """Return what the turn did."""
        why = self.end.why
        return Course(
            outcome=self.outcome,
            reason=why,
            also_reached=self.end.also,
            steps=self.steps
            + (self.limits.concluding == "within" and self.cap > 0 and (self.stopped or not self.allowance)),
            tool_calls=self.started,
            executed=tuple(sorted((asked.tool, asked.number) for asked in self.executed)),
            model_calls=self.model_calls,
            pauses=self.pauses,
            tokens=self.tokens,
            results=tuple((call.asked.tool, call.status or CallStatus.UNKNOWN) for call in self.calls),
            undelivered=self._unread(),
            sentinel=self._sentinel(why),
        )

    def _sentinel(self, why: EndReason) -> str | None:
        """Return the figures of the sentinel. An answer has none, unless tools were kept from a text-only turn."""
        if self.outcome in (Outcome.FINISHED, Outcome.SYNTHESIS_DONE):
            return "" if why is EndReason.TEXT_ONLY and (self.budget == 0 or self.calls) else None
        figures = {
            EndReason.STEP_CAP: f"{self.cap} of {self.cap}",
            EndReason.BUDGET: f"{self.started} of {self.budget} calls",
            EndReason.TOKENS: f"{self.tokens} of {self.limits.tokens}",
        }
        return figures.get(why, "")
