"""A reference simulator: the rules of a turn as one short program.

`predict` returns the course of a scripted turn. The program is written by hand from docs/rules.md, and shares no code
with the machine, the limits or the driver: a test checks its imports. `differential.observe` runs the same script on
the real engine. Where both return the same course, two programs agree on the rules.

`Turn` is a turn, of an agent or of a sub-agent, rule after rule: steps, replies, guardrails, reviews, calls, hooks,
people, sub-agents, compaction, the conclusion, time, and deaths of processes. `LoopDetector` compares its rounds.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import cycle, takewhile
from math import inf
from typing import Final, NoReturn

from tests.oracle.turn_script import (
    ANSWER,
    CHANGED_BY,
    HELPER,
    LATE_AFTER,
    LATER_IN_HELPER,
    LONG,
    OUTPUT_TOOL,
    RAISES_AFTER,
    TRIPS_AFTER,
    Course,
    Death,
    JournalCounts,
    PersonAct,
    ScriptedCall,
    ScriptedGuardrail,
    ScriptedReply,
    ScriptedTool,
    TurnScript,
)

from turnwright_states import CallStatus, Cause, EndReason, Finish, Outcome, ToolCallLimits

__all__ = ["CoincidenceError", "predict"]

#: The most steps of any turn (docs/rules.md#steps).
_MOST_STEPS: Final = 200
#: The most rounds of a cycle (docs/rules.md#doom-loops).
_LONGEST_CYCLE: Final = 4
#: Times that differ by less are equal.
_MOMENT: Final = 1e-6

#: The causes of failed attempts that are never retried (docs/reasons.md#causes).
_LASTING: Final = {
    *(Cause.BAD_REQUEST, Cause.AUTHENTICATION, Cause.PERMISSION, Cause.NOT_FOUND, Cause.REJECTED),
    *(Cause.CONTEXT_OVERFLOW, Cause.CONTENT_FILTER),
}
#: The causes that are reasons too. All other causes end a turn as `model_error`.
_REASONS: Final = {
    Cause.EMPTY_REPLY: EndReason.EMPTY_REPLY,
    Cause.CONTENT_FILTER: EndReason.CONTENT_FILTER,
    Cause.CONTEXT_OVERFLOW: EndReason.CONTEXT_OVERFLOW,
    Cause.CRASH: EndReason.CRASHED,
}
_CAPS: Final = {
    *(EndReason.STEP_CAP, EndReason.BUDGET, EndReason.TOKENS, EndReason.COST, EndReason.DEADLINE),
    EndReason.NO_CALL_RAN,
}
#: The reasons of each outcome (docs/reasons.md). All other reasons are failures.
_OUTCOMES: Final = {
    Outcome.FINISHED: {EndReason.ANSWERED, EndReason.TEXT_ONLY, EndReason.TRUNCATED},
    Outcome.SYNTHESIS_DONE: {EndReason.SYNTHESIZED},
    Outcome.CAP_HIT: _CAPS,
    Outcome.DOOM_LOOP: {EndReason.DOOM_LOOP},
    Outcome.ABORTED: {EndReason.ABORTED, EndReason.SUPERSEDED},
}
#: The results of calls that ran, or may have.
_RAN: Final = {CallStatus.OK, CallStatus.ERROR, CallStatus.UNKNOWN}
#: The faults of hooks and guardrails of calls, and the seconds until they end the turn.
_FAULTS: Final = {"trip": TRIPS_AFTER, "raise": RAISES_AFTER, "late": LATE_AFTER}

#: A turn that runs. It yields at each question to a person, and receives the person's act.
Life = Generator[None, PersonAct, None]
#: The key of a call in comparisons: the tool, and the call unless the tool has a key of its own.
Key = tuple[str, ScriptedCall | None]
#: The calls of a round, with the content of their results where results are compared.
Round = Counter[tuple[Key, object]]


def predict(script: TurnScript, deaths: Sequence[Death] = ()) -> Course:
    """Return the course of a scripted turn whose processes died so. See docs/rules.md.

    Raises `AssertionError` for a death at which the journal had what no turn by the rules has written then, and
    `CoincidenceError` if after a death work ends at the very moment of a deadline.
    """
    turn, people = Turn(script, deaths), cycle(script.people)
    try:
        next(turn.life)
        while True:
            turn.life.send(next(people))
    except StopIteration:
        pass
    if turn.deaths:
        raise AssertionError(f"by the rules the journal never has what it had at this death: {turn.deaths[0]}")
    return turn.course()


class StopError(Exception):
    """The reason why the turn stops, and the other limits that were reached."""

    def __init__(self, why: EndReason, also: Iterable[EndReason] = ()) -> None:
        super().__init__(why, tuple(also))
        self.why, self.also = why, tuple(also)


class EndError(StopError):
    """The turn ends (docs/rules.md#outcomes)."""


class LimitError(StopError):
    """A limit stops the turn, which concludes (docs/rules.md#concluding)."""


class UndecidedError(Exception):
    """The own model of the guardrail of the prompt fails before a model call."""


class DiedError(Exception):
    """The process died during a model call."""


class SuspendedError(Exception):
    """A sub-agent has died, and its caller has not resumed it."""


class CoincidenceError(Exception):
    """Work ends at the very moment at which the time of its turn is up. The rules do not say which is first."""


@dataclass(eq=False, slots=True)
class Call:
    """A call of a reply. It is open until it has a status."""

    scripted: ScriptedCall
    tool: ScriptedTool | None
    status: CallStatus | None = None
    #: Whether a person must approve it, and whether one has.
    asks: bool = False
    approved: bool = False
    #: Whether the hook before it has decided.
    judged: bool = False
    #: The content of its result, so that the results of two calls can be compared.
    result: object = None
    #: Whether its result is the turn's answer.
    answers: bool = False
    starts: int = 0
    #: Whether a crash interrupted it.
    is_interrupted: bool = False
    #: Whether another call has paid for the crash that interrupted it (docs/rules.md#recovery).
    crash_paid: bool = False
    #: Its status if a person declines, and whether the question expires.
    declined: CallStatus = CallStatus.REJECTED
    expires: bool = True
    #: Whether the journal has yet to say that it starts.
    due: bool = True
    #: Whether each question of its sub-agent expires, and the answers, by the question's place.
    questions: tuple[bool, ...] = ()
    acts: dict[int, PersonAct] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.status is None

    @property
    def needs_person(self) -> bool:
        """Whether it cannot run before a person approves it."""
        return self.asks and not self.approved

    def ask(self, questions: tuple[bool, ...]) -> None:
        """Ask the questions of its sub-agent."""
        self.asks, self.approved, self.questions, self.expires = True, False, questions, questions[0]

    def pass_on(self, act: PersonAct, *, expired: bool) -> None:
        """Answer the first open question of its sub-agent; if the question expired, the first one that can."""
        places = [place for place in range(len(self.questions)) if place not in self.acts]
        place = next(place for place in places if self.questions[place] or not expired)
        self.acts[place] = "no" if act == "expire" and not expired else act
        places.remove(place)
        self.approved, self.due = not places, True
        self.expires = bool(places) and self.questions[places[0]]

    def count_expiring(self) -> int:
        """Return its open questions that expire."""
        if not self.questions:
            return int(self.expires)
        return sum(expires for place, expires in enumerate(self.questions) if place not in self.acts)

    @property
    def is_output(self) -> bool:
        """Whether it gives a typed answer."""
        return self.tool is None and self.answers

    @property
    def is_helper(self) -> bool:
        """Whether it runs a sub-agent."""
        return self.tool is not None and self.tool.name == HELPER


def _agrees(act: PersonAct) -> bool:
    return act in ("yes", "always", "change")


def _is_idle(batch: list[Call]) -> bool:
    """Return whether a step has calls, and none of them ran (docs/rules.md#idle-steps)."""
    return batch != [] and not any(call.starts for call in batch)


def _has_answer(batch: list[Call]) -> bool:
    """Return whether a call gave the turn's answer (docs/rules.md#direct-results)."""
    return any(call.status is CallStatus.OK and call.answers for call in batch)


def _is_valid(answer: ScriptedCall) -> bool:
    """Return whether a typed answer fits its type and passes its validator."""
    return answer.fits and answer.does != "retry"


def _is_model_failing(fault: str, verdict: int) -> bool:
    """Return whether a guardrail's own model fails at its first, second or a later verdict."""
    return fault == "model" or (fault == "once" and verdict % 2 == 1)


class LoopDetector:
    """The rounds of a turn, and whether the latest one closes a loop (docs/rules.md#doom-loops)."""

    def __init__(self, script: TurnScript, tools: dict[str, ScriptedTool]) -> None:
        self.limits, self.tools = script.limits, tools
        self.rounds: list[Round] = []
        #: The calls of the open step that are watched, with what makes them equal.
        self.watched: list[tuple[Key, Call]] = []
        self.unwatched = {tool.name for tool in script.tools if tool.ignore_in_loop_detection}
        if script.typed:
            self.unwatched.add(OUTPUT_TOOL)
        self.is_loop = False
        self.loop_tools: set[str] = set()

    def watch(self, batch: list[Call]) -> None:
        """Watch the calls of a reply. Where their results are compared, the round ends with the step."""
        self.is_loop = False
        self.watched = [(self._key(call.scripted), call) for call in batch if call.scripted.tool not in self.unwatched]
        if self.limits.doom_compare == "calls":
            self.end_round()

    def end_round(self) -> None:
        """Remember the round, and look whether it closes a loop."""
        self.loop_tools = self.closed_loop()
        self.is_loop = self.is_loop or bool(self.loop_tools)
        self.rounds += filter(None, [self._round()])
        self.watched = []

    def closed_loop(self) -> set[str]:
        """Return the tools of the loop that the round of the open step closes."""
        threshold, latest = self.limits.doom_threshold, self._round()
        if threshold is None or not latest:
            return set()
        rounds = [*self.rounds, latest]
        for period in range(1, _LONGEST_CYCLE + 1):
            repeated = rounds[-period:]
            if rounds[-period * threshold :] == repeated * threshold:
                return {tool for keys in repeated for (tool, _), _ in keys}
        return set()

    def forget(self) -> None:
        """Forget all rounds. A loop begins anew."""
        self.rounds, self.watched, self.is_loop = [], [], False

    def _round(self) -> Round:
        """Return the round of the open step. A call that was denied, or whose outcome is unknown, is not in it."""
        if self.limits.doom_compare == "calls":
            return Counter((key, None) for key, _ in self.watched)
        counts = (CallStatus.OK, CallStatus.ERROR)
        return Counter((key, call.result) for key, call in self.watched if call.status in counts)

    def _key(self, scripted: ScriptedCall) -> Key:
        tool = self.tools.get(scripted.tool)
        return scripted.tool, None if tool is not None and tool.one_loop_key and scripted.fits else scripted


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of a sub-agent until it ends, asks a person, or dies."""

    acts: tuple[PersonAct, ...]
    """The answers to its questions, if it asked any."""
    aborted: float
    """The seconds until somebody aborts its caller."""
    cut: float
    """The seconds until its caller's calls are cut off."""
    rejects: bool = False
    """Whether its caller has no pause left, and so rejects its questions."""
    death: Death | None = None
    """The death that ends it, in seconds from its beginning, if it does: its caller dies then, too."""
    is_late: bool = False
    """Whether its question has expired."""


class Turn:
    """One turn, of an agent or of a sub-agent.

    `deaths` are the deaths of the processes that drive an agent's turn. The turn of a sub-agent has `stretches`: it
    rests between them, and each of them has its own death.
    """

    def __init__(
        self,
        script: TurnScript,
        deaths: Sequence[Death] = (),
        *,
        stretches: tuple[Stretch, ...] | None = None,
        is_mortal: bool = False,
    ) -> None:
        self.script = script
        self.limits = limits = script.limits
        self.tools = {tool.name: tool for tool in script.tools}
        if script.helper:
            self.tools[HELPER] = ScriptedTool(HELPER)
        self.loops = LoopDetector(script, self.tools)
        self.life = self._live()

        # The cap, and the steps of it that may call tools (docs/rules.md#steps).
        self.cap = min(limits.ceiling if limits.steps is None else limits.steps, limits.ceiling, _MOST_STEPS)
        self.allowance = max(self.cap - 1, 0) if limits.concluding == "within" else self.cap
        # No scripted tool says whether it reads or writes (docs/rules.md#budgets).
        calls = limits.tool_calls
        self.budget = calls.default if isinstance(calls, ToolCallLimits) else calls
        self.retries_left, self.output_retries = limits.max_retries, limits.output_retries
        self.nudges_left, self.compactions_left = limits.nudges, script.compactions

        self.now = 0.0
        self.deadline = inf if limits.seconds is None else limits.seconds
        self.abort_at = inf if script.abort_at is None else script.abort_at
        self.cancel_grace = script.cancel_grace

        # What the journal counts, and what counts against a limit.
        self.steps = self.started = self.tokens = self.model_calls = self.pauses = self.offers = self.read = 0
        self.replies = self.failures = self.compactions = self.syntheses = self.reviews = self.answers = 0
        #: Whether each open question expires, while the turn is paused.
        self.expiries: tuple[bool, ...] = ()
        #: The steps in a row in which no call ran.
        self.idle = 0
        self.asked_again = Counter[str]()
        self.calls: list[Call] = []
        self.executed: list[ScriptedCall] = []
        #: The limits that an abort reports: those that stop the turn, or about which a person is asked.
        self.stopped_by: tuple[EndReason, ...] = ()
        self.stopped = self.ended = False
        self.end: EndError
        self.outcome: Outcome

        #: Whether the guardrail of the prompt has yet to pass.
        self.unchecked = script.guardrail is not None
        #: Whether the journal has that it passed before the first model call.
        self.prepared = False
        #: The questions that it is still asked beside a reply, and the seconds until it has decided one.
        self.questions, self.decides_in = 0, 0.0
        #: The number of times that it and the output guardrail decided, or their models failed.
        self.prompt_verdicts = self.text_verdicts = 0

        #: For each reply in the conversation, whether it has results that can be cleared.
        self.spoken: list[bool] = []
        #: Whether the next request is too long, and the step of the last compaction.
        self.is_long, self.compacted = False, 0

        #: The turns of the sub-agents that run or ask a person, and the limits that each of a batch gets.
        self.children: dict[Call, Turn] = {}
        self.share, self.helper_calls = limits, 0
        #: When a call was last settled, and whether one of a sub-agent was then.
        self.settled_at, self.helped = 0.0, False

        #: Of a sub-agent: the times, of its own, when it was last started or resumed and when it is cut off.
        self.is_helper = stretches is not None
        self.stretches = stretches or ()
        self.coming = list(self.stretches)
        self.stretch_begin, self.cut = 0.0, inf
        #: Whether it asks a person, whether its question can expire, and whether it has.
        self.asks = self.expires = self.is_late = False
        #: The last text of its replies, the text of its conclusion, and the result that is its answer.
        self.text = self.conclusion = ""
        self.direct: object = None

        #: The deaths to come, and whether there are any in its team.
        self.deaths = list(deaths)
        self.is_mortal = is_mortal or bool(deaths)
        #: Whether the process died after the last fact, and the seconds that no fact has for that reason.
        self.lost, self.lost_seconds = False, 0.0
        #: The tokens of a reply that the journal does not have yet.
        self.unwritten = 0
        #: Whether it makes a model call, or reviews its reply.
        self.in_step = True
        #: The calls that wait for a person, by the journal at the last death.
        self.waiting: frozenset[int] = frozenset()

    def course(self) -> Course:
        """Return what the turn did, with the model calls of its sub-agents."""
        concludes_within = self.limits.concluding == "within" and self.cap > 0
        return Course(
            outcome=self.outcome,
            reason=self.end.why,
            also_reached=self.end.also,
            steps=self.steps + (concludes_within and (self.stopped or not self.allowance)),
            tool_calls=self.started,
            executed=tuple(sorted((scripted.tool, scripted.number) for scripted in self.executed)),
            model_calls=self.model_calls + self.helper_calls,
            pauses=self.pauses,
            tokens=self.tokens,
            results=tuple((call.scripted.tool, call.status or CallStatus.UNKNOWN) for call in self.calls),
            undelivered=self._unread(),
            sentinel=self._sentinel(),
        )

    def _sentinel(self) -> str | None:
        """Return the figures of the sentinel. An answer has none, unless tools were kept from a text-only turn."""
        why = self.end.why
        if self.outcome in (Outcome.FINISHED, Outcome.SYNTHESIS_DONE):
            return "" if why is EndReason.TEXT_ONLY and (self.budget == 0 or self.calls) else None
        figures = {
            EndReason.STEP_CAP: f"{self.cap} of {self.cap}",
            EndReason.BUDGET: f"{self.started} of {self.budget} calls",
            EndReason.TOKENS: f"{self.tokens} of {self.limits.tokens}",
        }
        return figures.get(why, "")

    # Steps and limits (docs/rules.md#steps, #precedence).

    def _live(self) -> Life:
        """Run the turn until it ends (docs/chart.md)."""
        try:
            try:
                if self.allowance == 0 or self.budget == 0:
                    self._write()
                    self._answer_in_text()
                while True:
                    yield from self._start_step()
                    yield from self._take_step(self._get_reply(in_step=True))
            except LimitError as limit:
                self._close_calls()
                self._conclude(limit)
        except EndError as end:
            self._close_calls(superseded=end.why is EndReason.SUPERSEDED)
            self.end = end
            self.outcome = next((outcome for outcome, whys in _OUTCOMES.items() if end.why in whys), Outcome.FAILED)
            self.ended = True
            self._write()

    def _start_step(self) -> Life:
        """Start a step, unless a limit is reached: the first one is the reason (docs/rules.md#precedence)."""
        if self.limits.doom_compare == "results":
            self.loops.end_round()
        while True:
            reached = self._reached_limits()
            spent = bool(set(reached) - {EndReason.STEP_CAP, EndReason.DOOM_LOOP})
            if EndReason.STEP_CAP in reached or (reached and EndReason.DOOM_LOOP not in reached):
                self._stop(reached[0])
            if not reached:
                break
            if self.nudges_left and not spent:
                self.nudges_left -= 1
                break
            if self.limits.doom_response == "stop" or spent or not self._may_pause():
                self._stop(EndReason.DOOM_LOOP)
            yield from self._ask_about_loop()
        self.steps += 1
        self._write()

    def _reached_limits(self) -> list[EndReason]:
        """Return the limits that are reached, the first one first (docs/chart.md#check)."""
        limits = self.limits
        use: list[tuple[EndReason, float, float | None]] = [
            (EndReason.STEP_CAP, self.steps, self.allowance),
            (EndReason.DOOM_LOOP, self.loops.is_loop, True),
            (EndReason.BUDGET, self.started, self.budget),
            (EndReason.TOKENS, self.tokens, limits.tokens),
            (EndReason.COST, self.tokens, limits.cost),
            (EndReason.DEADLINE, self.now - self.lost_seconds, limits.seconds),
            (EndReason.NO_CALL_RAN, self.idle, limits.idle_steps),
        ]
        return [reason for reason, amount, limit in use if limit is not None and amount >= limit]

    def _stop(self, why: EndReason) -> NoReturn:
        raise LimitError(why, [reason for reason in self._reached_limits() if reason is not why])

    def _take_step(self, reply: ScriptedReply) -> Life:
        """Run the calls of a reply, whatever its finish reason says (docs/rules.md#replies)."""
        self.spoken.append(bool(reply.calls))
        self.is_long = reply.tokens >= LONG
        batch = self._decide_calls(reply)
        self.calls += batch
        self.replies += 1
        self._write()
        if reply.finish is Finish.CONTENT_FILTER:
            raise EndError(EndReason.CONTENT_FILTER)
        self.loops.watch(batch)
        if not self._accept(reply, batch):
            return
        self.retries_left = self.limits.max_retries
        if not batch:
            raise EndError(EndReason.TRUNCATED if reply.finish is Finish.LENGTH else EndReason.ANSWERED)
        try:
            while open_calls := [call for call in batch if call.is_open]:
                yield from self._run_batch(open_calls, batch)
        except LimitError:
            if not _has_answer(batch):
                raise
        if _has_answer(batch):
            raise EndError(EndReason.ANSWERED)
        self._synthesize(batch)
        self.idle += _is_idle(batch)

    def _answer_in_text(self) -> NoReturn:
        """Make the one model call of a turn that may take no step or run no tool (docs/rules.md#zero)."""
        try:
            reply = self._get_reply(in_step=False)
        except LimitError as limit:
            raise EndError(limit.why, limit.also) from None
        self.calls += [Call(scripted, None, CallStatus.REFUSED) for scripted in reply.calls]
        self.replies += 1
        if reply.finish is Finish.CONTENT_FILTER:
            raise EndError(EndReason.CONTENT_FILTER)
        raise EndError(EndReason.TEXT_ONLY)

    # Replies and retries (docs/rules.md#replies, #retries).

    def _get_reply(self, *, in_step: bool) -> ScriptedReply:
        """Call the model until it replies. Only causes that may pass are retried."""
        self.retries_left, once_more = self.limits.max_retries, not in_step
        while True:
            reply = self._unless_died(lambda: self._attempt_reply(in_step=in_step))
            # A reply with no calls and a blank text is a failed attempt. So is the first reply of a turn without steps
            # that has only calls (docs/rules.md#zero).
            wants = reply.calls and not (once_more and self.retries_left)
            blank = not wants and not reply.text.strip() and reply.finish is not Finish.CONTENT_FILTER
            once_more = once_more and not (reply.error is Cause.EMPTY_REPLY or (reply.error is None and blank))
            cause = reply.error or (Cause.EMPTY_REPLY if blank else None)
            if cause is None:
                self.text = reply.text if reply.text.strip() else self.text
                return reply
            filtered = cause is Cause.CONTENT_FILTER  # it is a reply without calls
            self.replies, self.failures = self.replies + filtered, self.failures + (not filtered)
            if not self._recover_attempt(cause):
                raise EndError(_REASONS.get(cause, EndReason.MODEL_ERROR))

    def _attempt_reply(self, *, in_step: bool) -> ScriptedReply:
        """Make one attempt at a reply. It fails if the guardrail of the prompt does not decide, or the process died."""
        if not self._take_loss():
            try:
                self._prepare_attempt(in_step=in_step)
            except UndecidedError:
                return ScriptedReply(error=Cause.SERVER_ERROR)
            if not self._take_loss():
                return self._call_beside_guardrail()
        return ScriptedReply(error=Cause.CRASH)

    def _prepare_attempt(self, *, in_step: bool) -> None:
        """Begin an attempt: guardrails and hooks first, and a compaction of a conversation that is too long."""
        self._begin_attempt(in_step=in_step)
        if not self.lost and self._offered_tools() == "raise":
            raise self._failure()
        if in_step:
            self._read_messages()
        may_compact = not self.lost and self.compactions_left and self.compacted != self.steps
        if in_step and self.is_long and may_compact and self._can_compact(self.script.keep_steps):
            self._compact()
            if not self.lost:
                self._begin_attempt(in_step=in_step)

    def _begin_attempt(self, *, in_step: bool) -> None:
        """Begin an attempt, with the messages that came. A blocking guardrail of the prompt comes first."""
        self._begin_work()
        if in_step:
            self._read_messages()
        guardrail = self.script.guardrail
        if guardrail is not None and not guardrail.parallel and not self.lost:
            if not self._check_prompt():
                raise UndecidedError
            self.prepared = True
            self._write()

    def _recover_attempt(self, cause: Cause) -> bool:
        """Return whether the turn continues after a failed attempt of a step."""
        if cause is Cause.CONTEXT_OVERFLOW and self.compactions_left and self.steps:
            self._compact()
            return True
        return self._retry(cause)

    def _retry(self, cause: Cause) -> bool:
        """Take a retry for a failed attempt, if one is left and its cause may pass."""
        if cause in _LASTING or not self.retries_left:
            return False
        self.retries_left -= 1
        self._write()
        return True

    def _call_model(self, most_seconds: float = inf) -> ScriptedReply:
        """Make one model call, and count its tokens (docs/rules.md#model-calls)."""
        before, reply = self.tokens, self._unless_died(lambda: self._attempt_call(most_seconds))
        self.unwritten = self.tokens - before
        return reply

    def _attempt_call(self, most_seconds: float) -> ScriptedReply:
        number = len(self.spoken) if self.is_helper else self.model_calls
        reply = self.script.replies[number % len(self.script.replies)]
        self.model_calls += 1
        self._receive_reply(min(reply.seconds, most_seconds))
        if reply.seconds > most_seconds:
            return ScriptedReply(error=Cause.TIMEOUT)
        self.tokens += reply.tokens
        return reply

    def _read_messages(self) -> None:
        """Add the messages that came. They clear the doom-loop detector (docs/rules.md#messages)."""
        while self._unread() and not self.lost:
            self.read += 1
            self._forget_rounds()
            self._write()

    def _read_messages_in_batch(self) -> None:
        """Add the messages that came before the last result, which a step need not follow.

        An input guardrail checks them only before a model call (docs/rules.md#messages).
        """
        if self.script.guardrail is None:
            self._read_messages()

    def _unread(self) -> int:
        return sum(at <= self.now for at in self.script.messages) - self.read

    def _forget_rounds(self) -> None:
        self.loops.forget()
        self.idle = 0

    # Guardrails of the prompt and of texts (docs/rules.md#guardrails). A sub-agent has none.

    def _reviews_texts(self) -> bool:
        """Return whether the agent has an output guardrail and a hook after the model."""
        return self.script.hooked and not self.is_helper

    def _trip(self) -> EndError:
        return EndError(EndReason.GUARDRAIL, self.stopped_by)

    def _failure(self) -> EndError:
        """Return the end of a turn of which a hook or a guardrail raises, or takes too long."""
        return EndError(EndReason.ENGINE_ERROR, self.stopped_by)

    def _check_prompt(self) -> bool:
        """Ask the guardrail of the prompt, unless it has passed. Return False if its own model fails."""
        guardrail = self.script.guardrail
        if guardrail is not None and self.unchecked:
            self._work(guardrail.seconds)
            self._judge_prompt(guardrail)
        return not self.unchecked

    def _judge_prompt(self, guardrail: ScriptedGuardrail) -> None:
        self.prompt_verdicts += 1
        if not _is_model_failing(guardrail.fault, self.prompt_verdicts):
            if guardrail.raises or guardrail.trips:
                raise self._failure() if guardrail.raises else self._trip()
            self.unchecked = False

    def _call_beside_guardrail(self) -> ScriptedReply:
        """Call the model beside the guardrail of the prompt. If its own model fails, it is asked again in the review.

        A turn that may run no tool has no review: there it is asked until it decides.
        """
        guardrail = self.script.guardrail
        if guardrail is not None and self.unchecked:
            self.questions = 1 if self.steps else self.limits.max_retries + 1
            self.decides_in = guardrail.seconds
        reply = self._call_model()
        if not self.steps and reply.error is None and (reply.calls or reply.text.strip()):
            self._check_text(reply)
            self._await_guardrail()
        return reply

    def _receive_reply(self, seconds: float) -> None:
        while self.questions and self.decides_in < seconds:
            seconds -= self.decides_in
            self._work_beside_guardrail(self.decides_in)
        self._work_beside_guardrail(seconds)

    def _await_guardrail(self) -> None:
        """Wait for the guardrail of the prompt that runs beside a reply."""
        while self.questions:
            self._work_beside_guardrail(self.decides_in)

    def _work_beside_guardrail(self, seconds: float) -> None:
        """Work beside the guardrail of the prompt, which may end the turn."""
        self._work(seconds)
        self.decides_in -= seconds
        guardrail = self.script.guardrail
        if guardrail is not None and self.questions and self.decides_in <= 0:
            self.questions, self.decides_in = self.questions - 1, guardrail.seconds
            self._judge_prompt(guardrail)
            if not self.unchecked:
                self.questions = 0
            elif not self.questions and not self.steps:
                raise self._failure()

    def _check_text(self, reply: ScriptedReply) -> None:
        """Ask the output guardrail about a text that nothing reviews."""
        if self._reviews_texts() and reply.error is None and reply.text.strip():
            retries = self.limits.max_retries
            while self._is_undecided(reply):
                if not retries:
                    raise self._failure()
                retries -= 1

    def _is_undecided(self, reply: ScriptedReply) -> bool:
        """Ask the output guardrail. Return whether its own model fails."""
        self.text_verdicts += 1
        if reply.fault == "guardrail":
            raise self._failure()
        if _is_model_failing(reply.fault, self.text_verdicts):
            return True
        if reply.trips:
            raise self._trip()
        return False

    # Reviews and typed answers (docs/rules.md#reviews, #typed-answers).

    def _accept(self, reply: ScriptedReply, batch: list[Call]) -> bool:
        """Return whether a reply is accepted. A refused one has results for all its calls, and ends its step."""
        self.in_step = self._reviews_texts() or self.script.typed or self.unchecked
        if not self.in_step:
            return True
        self.retries_left = self.limits.max_retries
        accepted = self._review(reply, batch)
        self.in_step = False
        self.reviews += 1
        self._write()
        return accepted

    def _review(self, reply: ScriptedReply, batch: list[Call]) -> bool:
        """Review a reply. A crash, or a guardrail whose own model fails, costs a retry."""
        while True:
            why = EndReason.MODEL_ERROR
            if self._take_loss():
                why = EndReason.CRASHED
            else:
                try:
                    accepted = self._review_once(reply, batch)
                except DiedError:
                    continue
                if accepted is not None:
                    return accepted
            self.failures += 1
            if not self.retries_left:
                raise EndError(why)
            self.retries_left -= 1
            self._write()

    def _review_once(self, reply: ScriptedReply, batch: list[Call]) -> bool | None:
        """Return whether a reply is accepted, or None if a guardrail's own model fails."""
        self._begin_work()
        self._await_guardrail()
        if not self._check_prompt():
            return None
        if self._reviews_texts() and reply.fault in ("raise", "late"):
            self._work(_FAULTS[reply.fault])
            raise self._failure()
        if self._is_refused(reply, batch):
            if not self.output_retries:
                self.reviews += 1
                raise EndError(EndReason.INVALID_OUTPUT)
            self.output_retries -= 1
            for call in batch:
                call.status = call.status or CallStatus.REFUSED
            return False
        outputs = [call for call in batch if call.is_output]
        chosen = next((call for call in outputs if _is_valid(call.scripted)), None)
        if self._reviews_texts() and (reply.text.strip() or chosen is not None) and self._is_undecided(reply):
            return None
        for call in outputs:
            call.status = CallStatus.OK if call is chosen else CallStatus.REFUSED
        return True

    def _is_refused(self, reply: ScriptedReply, batch: list[Call]) -> bool:
        """Return whether the hook after the model refuses a reply, or no typed answer in it is valid."""
        if self._reviews_texts() and reply.refused:
            return True
        outputs = [call.scripted for call in batch if call.is_output]
        if outputs:
            return not any(map(_is_valid, outputs))
        return self.script.typed and not batch and reply.text != ANSWER

    # The calls of a reply (docs/rules.md#budgets).

    def _decide_calls(self, reply: ScriptedReply) -> list[Call]:
        """Give the calls the places that are left, in their order. A typed answer takes none."""
        places = self.limits.max_calls_per_step
        if self.budget is not None:
            places = min(places, self.budget - self.started)
        batch = [self._make_call(scripted) for scripted in reply.calls]
        for call in batch:
            if call.is_output:
                continue
            if call.tool is None:
                call.status = CallStatus.ERROR
            elif not call.scripted.fits or self.asked_again[call.tool.name] > call.tool.retries:
                call.status = CallStatus.ERROR
                # A text: the result of a call that returns is its number, and 1 == True.
                call.result = "spent" if self.asked_again[call.tool.name] > call.tool.retries else "does not fit"
            elif places <= 0:
                call.status = CallStatus.REFUSED
            else:
                places -= 1
        self._lease([call for call in batch if call.is_open and not call.is_output])
        return batch

    def _make_call(self, scripted: ScriptedCall) -> Call:
        """Return a call, without a tool if the turn or this step has none of its name."""
        if self.script.typed and scripted.tool == OUTPUT_TOOL:
            return Call(scripted, None, answers=True)
        tool, offered = self.tools.get(scripted.tool), self._offered_tools()
        if tool is None:
            return Call(scripted, None)
        if offered is not None and scripted.tool not in offered:
            return Call(scripted, None, result=offered)
        return Call(scripted, tool, asks=tool.needs_approval, answers=tool.return_direct)

    def _offered_tools(self) -> tuple[str, ...] | str | None:
        """Return the tools that the hook before the model offers in this step."""
        offered = self.script.offered
        return offered[(max(self.steps, 1) - 1) % len(offered)] if offered else None

    def _run_batch(self, open_calls: list[Call], batch: list[Call]) -> Life:
        """Run the open calls of a batch, those that a crash interrupted by the policies of their tools."""
        crashed = any(call.is_interrupted and call.is_open for call in batch)
        while not self._recover_calls(batch):
            pass
        open_calls = [call for call in open_calls if call.is_open]
        if open_calls:
            self.lost = False  # nothing of them was under way
        elif not _has_answer(batch) and not self._is_step_certain(batch, batch):
            self._read_messages_in_batch()
        if self.deaths and _phase(self.deaths[0].counts) == _phase(self.written()):
            self._begin_work()
            self._die_in(open_calls)
        elif crashed and open_calls and self._may_pause() and all(map(self._waits_in_journal, open_calls)):
            # The turn pauses with the last of the others, also while an abort leaves it time.
            if not _has_answer(batch):
                self._read_messages_in_batch()
            yield from self._ask_about(open_calls)
        elif open_calls:
            yield from self._run_open(open_calls, batch)

    def _run_open(self, open_calls: list[Call], batch: list[Call]) -> Life:
        """Run open calls, then ask a person about those that need one (docs/rules.md#approvals)."""
        self._begin_work()
        for call in open_calls:
            self._judge_call(call)
        open_calls = [call for call in open_calls if call.is_open]
        waiting = [call for call in open_calls if call.needs_person]
        if not self._may_pause():
            # Questions are asked in the order of the calls: after a hook that ends the turn, none is refused any more.
            for call in takewhile(lambda call: self._hook_decisions(call)[0] not in _FAULTS, open_calls):
                call.status = CallStatus.REFUSED if call in waiting else call.status
        self._run_side_by_side([call for call in open_calls if call not in waiting])
        if not _has_answer(batch) and not self._is_step_certain(open_calls, batch):
            self._read_messages_in_batch()
        waiting = [call for call in open_calls if call.is_open and call.needs_person]
        if waiting:
            yield from self._ask_about(waiting)

    def _is_step_certain(self, calls: list[Call], batch: list[Call]) -> bool:
        """Return whether these calls settle the batch and a step follows in any case. It reads the messages then."""
        idle = self.limits.idle_steps is not None and self.idle + _is_idle(batch) >= self.limits.idle_steps
        stops = self.script.synthesis or self._reached_limits() or self.loops.closed_loop() or idle
        return not stops and not any(call.is_open for call in calls) and not self.helped

    def _run_side_by_side(self, calls: list[Call]) -> None:
        """Run calls until the last one has its result, or an abort or the deadline cuts them off."""
        start, cut = self.now, self._cut_at()
        self._start(calls)
        for call in sorted(calls, key=self._seconds_of):
            if start + self._seconds_of(call) > cut:
                self.now = cut
                self._begin_work()
            self.now = start + self._seconds_of(call)
            self._settle(call)

    def _cut_at(self) -> float:
        """Return when calls are cut off. An abort leaves them `cancel_grace` seconds (docs/rules.md#aborts)."""
        return min(self.deadline, self.abort_at + self.cancel_grace)

    def _start(self, calls: list[Call]) -> None:
        """Start calls. The sub-agents among them run until they end, ask a person, or are cut off."""
        helpers = [call for call in calls if call.is_helper and self._is_run(call)]
        tool_calls = [call for call in calls if call not in helpers]
        running = [call for call in tool_calls if self._is_run(call)]
        self._count_starts(running)
        self.executed += [call.scripted for call in running]
        cut = self._cut_in(tool_calls)
        for call in sorted(helpers, key=lambda call: not self._is_faulty(call)):
            if call.due:
                self._count_starts([call])
            self._run_helper(call, cut)
            cut = min(cut, self._cut_in([call]))

    def _count_starts(self, calls: list[Call]) -> None:
        """Count calls. Each counts when it first starts (docs/rules.md#budgets)."""
        self.started += sum(not call.starts for call in calls)
        self.idle = 0 if calls else self.idle
        for call in calls:
            call.starts += 1

    def _settle(self, call: Call) -> None:
        """Give a call its result, by the hook before or after it if that decides so."""
        self._need_order(self.now, self._cut_at())
        before, after = self._hook_decisions(call)
        if self._is_faulty(call):
            raise self._trip() if (before if before in _FAULTS else after) == "trip" else self._failure()
        if before == "result":
            self.started, call.starts, self.idle = self.started + 1, call.starts + 1, 0
            call.status, call.result = CallStatus.OK, "known"
        else:
            if after == "hide":
                call.scripted = replace(call.scripted, does="return")  # a hidden `Retry` asks for no other try
            self._settle_by_tool(call)
        if after == "hide":
            call.status, call.result = CallStatus.OK, "hidden"
        if call.answers and call.status is CallStatus.OK:
            self.direct = call.result

    def _settle_by_tool(self, call: Call) -> None:
        self.helped = call.is_helper or (self.helped and self.settled_at == self.now)
        self.settled_at = self.now
        if call.is_helper:
            self._settle_by_helper(call)
            return
        does = call.scripted.does
        call.status = CallStatus.OK if does == "return" else CallStatus.ERROR
        call.result = call.scripted.number if does == "return" else does
        self.asked_again[call.scripted.tool] += does == "retry"

    def _synthesize(self, batch: list[Call]) -> None:
        """Offer the batch to the app's synthesis. One whose own model fails is retried, then skipped."""
        if not self.script.synthesis:
            return
        while cause := Cause.CRASH if self._take_loss() else self._offer(batch):
            self.failures += 1
            if not self._retry(cause):
                break
        self.syntheses += 1

    def _offer(self, batch: list[Call]) -> Cause | None:
        """Ask the synthesis, which may end the turn with a text. Return why its own model failed, if it did."""
        self._begin_work()
        successes = sum(call.status is CallStatus.OK for call in batch)
        in_team = self.script.helper or self.is_helper
        text = self.script.synthesis[(successes if in_team else self.offers) % len(self.script.synthesis)]
        self.offers += 1
        if isinstance(text, Cause):
            return text
        if isinstance(text, type):
            raise self._failure()
        if text and text.strip():
            self.syntheses += 1
            raise EndError(EndReason.SYNTHESIZED)
        return None

    # Hooks and guardrails of calls (docs/rules.md#hooks).

    def _judge_call(self, call: Call) -> None:
        """Ask the hook before a call, once."""
        if call.judged or not self.script.hooked:
            return
        call.judged = True
        match call.scripted.before:
            case "reject":
                call.status = CallStatus.REJECTED
            case "spoil":
                call.status, call.result = CallStatus.ERROR, "spoiled"
            case "change":
                call.scripted = replace(call.scripted, number=call.scripted.number + CHANGED_BY)
            case "ask":
                call.asks = True
            case "result" | "trip" | "raise" | "late":
                call.asks = False
            case _:
                pass

    def _hook_decisions(self, call: Call) -> tuple[str, str]:
        """Return the decisions before and after a call. A sub-agent that asks a person or is aborted has no result."""
        if not self.script.hooked:
            return "", ""
        child = self.children.get(call)
        has_result = child is None or (child.ended and child.outcome is not Outcome.ABORTED)
        return call.scripted.before, call.scripted.after if has_result else ""

    def _is_faulty(self, call: Call) -> bool:
        """Return whether a hook or a guardrail of the call ends the turn."""
        return any(decision in _FAULTS for decision in self._hook_decisions(call))

    def _is_run(self, call: Call) -> bool:
        """Return whether the tool of a call runs."""
        return self._hook_decisions(call)[0] not in ("result", *_FAULTS)

    def _seconds_of(self, call: Call) -> float:
        """Return how long a call lasts, with its hooks. Those of a sub-agent take longer."""
        before, after = self._hook_decisions(call)
        seconds = 0.0
        if self._is_run(call):
            seconds = self.children[call].seconds_run() if call.is_helper else call.scripted.seconds
        fault = before if before in _FAULTS else after
        if fault not in _FAULTS:
            return seconds
        return seconds + _FAULTS[fault] + (LATER_IN_HELPER if self.is_helper else 0.0)

    # People (docs/rules.md#approvals, #doom-loops, #sessions). Paused time does not count.

    def _may_pause(self) -> bool:
        return self.pauses < self.limits.max_pauses

    def _ask_about_loop(self) -> Life:
        """Ask whether the turn may go on. `always` stops watching the tools of the loop."""
        self.stopped_by = (EndReason.DOOM_LOOP,)
        self._pause()
        self.expiries = (False,)
        act = yield from self._ask(expires=False)
        self.answers += 1
        self._write()
        if not _agrees(act):
            self._stop(EndReason.DOOM_LOOP)
        if act == "always":
            self.loops.unwatched |= self.loops.loop_tools
        self._forget_rounds()
        self.stopped_by = ()

    def _ask_about(self, calls: list[Call]) -> Life:
        """Ask about each call. Nothing runs before the last answer."""
        self._pause()
        while calls := [call for call in calls if not call.approved and call.is_open]:
            self.expiries = tuple(call.expires for call in calls)
            act = yield from self._ask(expires=calls[0].expires)
            expired = act == "expire" and calls[0].expires
            for call in self._in_order_of_expiry(calls) if expired else calls[:1]:
                for _ in range(call.count_expiring() if expired else 1):
                    self._answer(call, act)
                    self.answers += 1
                    self._write()
        self.retries_left = self.limits.max_retries

    def _answer(self, call: Call, act: PersonAct) -> None:
        """Answer the question of a call, or pass the answer to its sub-agent.

        The questions of sub-agents that nobody answers expire with those of their caller.
        """
        expired = act == "expire" and call.count_expiring() > 0
        if expired:
            for child in self.children.values():
                child.is_late = True
        if call in self.children:
            call.pass_on(act, expired=expired)
            return
        call.approved, self.idle = _agrees(act), 0
        if not call.approved:
            call.status = call.declined
        if act == "change" and call.declined is CallStatus.REJECTED:  # not a question about a crash
            call.scripted = replace(call.scripted, number=call.scripted.number + CHANGED_BY)

    def _pause(self) -> None:
        self.is_late = False
        self.pauses += 1
        self._write()
        if self.abort_at <= self.now:
            raise EndError(EndReason.ABORTED, self.stopped_by)

    def _ask(self, *, expires: bool) -> Generator[None, PersonAct, PersonAct]:
        """Return the act of a person, whose question may expire.

        A new message of the session ends the sub-agents first, and is lost if a process dies then.
        """
        self.expires = expires
        if self.is_late and expires:
            return "expire"
        act = yield
        while act == "message" and self._dies_ending_children():
            act = yield
        if act in ("abort", "message"):
            raise EndError(EndReason.ABORTED if act == "abort" else EndReason.SUPERSEDED, self.stopped_by)
        return act

    # Sub-agents (docs/rules.md#sub-agents). Each is a turn with a journal of its own.

    def _lease(self, calls: list[Call]) -> None:
        """Lease each sub-agent among the calls of a batch an equal share of what is left, and refuse an empty one."""
        helpers = [call for call in calls if call.is_helper]
        if helpers:
            k, limits, budget = len(helpers), self.limits, self.budget
            tool_calls = None if budget is None else (budget - self.started - len(calls)) // k
            tokens = None if limits.tokens is None else max(limits.tokens - self.tokens, 0) // k
            cost = None if limits.cost is None else max(limits.cost - self.tokens, 0.0) / k
            self.share = limits.model_copy(update={"tool_calls": tool_calls, "tokens": tokens, "cost": cost})
            for call in helpers:
                call.status = CallStatus.REFUSED if 0 in (tool_calls, tokens, cost) else None

    def _cut_in(self, calls: list[Call]) -> float:
        """Return the seconds until sub-agents are cut off: by a guardrail or a hook of one of these calls, too."""
        faults = [self._seconds_of(call) for call in calls if self._is_faulty(call)]
        return min(self._cut_at() - self.now, *faults, inf)

    def _run_helper(self, call: Call, cut: float, death: Death | None = None) -> None:
        """Run the sub-agent of a call, or resume it with the answer to its question."""
        child = self.children.get(call)
        if child is None:
            child = Turn(self._helper_script(), stretches=(), is_mortal=self.is_mortal)
        aborted, rejects = self.abort_at - self.now, not self._may_pause()
        self.children[call] = child.extend(
            Stretch(tuple(call.acts[place] for place in sorted(call.acts)), aborted, cut, rejects, death, child.is_late)
        )
        call.due, call.acts = False, {}

    def _helper_script(self) -> TurnScript:
        """Return the script of its sub-agents: their time ends with its own."""
        script = self.script
        seconds = None if self.limits.seconds is None else max(self.deadline - self.now, _MOMENT)
        limits = self.share.model_copy(update={"seconds": seconds})
        return TurnScript(script.helper, script.tools, limits, synthesis=script.synthesis, hooked=script.hooked)

    def _settle_by_helper(self, call: Call) -> None:
        child = self.children[call]
        if child.asks:
            call.ask(child.expiries)
            return
        self._take_back(self.children.pop(call))
        statuses = {Outcome.FAILED: CallStatus.ERROR, Outcome.ABORTED: CallStatus.ABORTED}
        call.status, call.result = statuses.get(child.outcome, CallStatus.OK), child.final_text()

    def _take_back(self, child: "Turn") -> None:
        """Count what a sub-agent used. The rest of its share is free again."""
        self.started += child.started
        self.tokens += child.tokens
        self.helper_calls += child.attempts()
        self.executed += child.executed

    def _end_children(self) -> None:
        while self._dies_ending_children():
            pass
        for child in self.children.values():
            self._take_back(child)
        self.children.clear()

    def _dies_ending_children(self) -> bool:
        """End the sub-agents, one after the other. Return whether the process dies after one of them."""
        for call in self.calls:
            child = self.children.get(call)
            if child is not None and not child.ended:
                self._abort_child(call, child)
                if self._dies_now() and self.deaths[0].counts == self.written():
                    self._die()
                    return True
        return False

    def _abort_child(self, call: Call, child: "Turn") -> None:
        self.children[call] = child.extend(Stretch(("abort",), 0.0, 0.0, is_late=child.is_late))

    def extend(self, stretch: Stretch) -> "Turn":
        """Return this sub-agent after one more stretch. Its life is computed anew, for a turn cannot be copied."""
        turn = Turn(self.script, stretches=(*self.stretches, stretch), is_mortal=self.is_mortal)
        with suppress(SuspendedError):
            while turn.coming:
                begun = turn.coming[0]
                turn._begin_stretch()
                first, *later_acts = begun.acts or (None,)
                turn._go_on(first)
                for act in later_acts:
                    if act != "expire":  # its other questions expire with it
                        turn._go_on(act)
                while turn.asks and begun.rejects:
                    turn._go_on("no")
        return turn

    def _begin_stretch(self) -> None:
        stretch = self.coming.pop(0)
        self.stretch_begin, self.cut = self.now, self.now + stretch.cut
        self.abort_at = self.now + min(stretch.aborted, stretch.cut)
        if abs(self.deadline - self.abort_at) < _MOMENT:  # its caller is faster
            self.abort_at = self.deadline
        self.cancel_grace = max(stretch.cut - stretch.aborted, 0.0) if stretch.aborted < inf else 0.0
        self.is_late = self.is_late or stretch.is_late
        death = stretch.death
        self.deaths = [] if death is None else [replace(death, at=self.now + death.at)]
        if death is not None and death.counts.stopped and self.abort_at == self.deadline:
            self.abort_at += _MOMENT / 2  # it was faster than its caller, whose time ends too

    def _go_on(self, act: PersonAct | None) -> None:
        """Run on, with the answer to the question if it asked one."""
        self.asks = False
        with suppress(StopIteration):
            if act is None:
                next(self.life)
            else:
                self.life.send(act)
            self.asks = True

    def attempts(self) -> int:
        """Return the model calls of a sub-agent."""
        return self.model_calls

    def seconds_run(self) -> float:
        """Return the seconds that a sub-agent ran. One that is cut off would have run on."""
        is_cut = not self.asks and self.outcome is Outcome.ABORTED and self.now > self.cut - _MOMENT
        return inf if is_cut else self.now - self.stretch_begin

    def final_text(self) -> object:
        """Return what makes the text of a sub-agent differ from that of another one.

        That is what it wrote, or the figures of the fixed summary.
        """
        why = self.end.why
        if self.outcome not in (Outcome.CAP_HIT, Outcome.DOOM_LOOP) or self.conclusion:
            if self.outcome is Outcome.SYNTHESIS_DONE or (self.outcome is Outcome.FINISHED and self.direct is not None):
                return why, self.direct
            return why, self.conclusion or self.text
        ran = Counter(call.scripted.tool for call in self.calls if call.status in _RAN)
        spent = self.tokens, round(self.limits.cost or 0.0, 4)
        figures = {
            EndReason.COST: spent,
            EndReason.DEADLINE: f"{self.now - self.lost_seconds:.1f}",
            EndReason.DOOM_LOOP: frozenset(self.loops.loop_tools),
        }.get(why, self._sentinel())
        return why, figures, self.steps, self.started, tuple(ran.most_common()), self.text

    # Compaction (docs/rules.md#compaction).

    def _compact(self) -> None:
        """Replace the replies so far by a summary. It shares the retries of its step, and may fail."""
        self.compactions_left -= 1
        self.compacted = self.steps
        self.compactions += 1
        self._write()
        while cause := Cause.CRASH if self._take_loss() else self._shorten():
            self.failures += 1
            if not self._retry(cause):
                self._write()
                return
        self.compactions += 1
        self.is_long = False
        spent = [reason for reason in self._reached_limits() if reason in (EndReason.TOKENS, EndReason.COST)]
        if spent:
            self._stop(spent[0])
        self._write()

    def _shorten(self) -> Cause | None:
        """Make the conversation shorter. Return why it failed, if it did."""
        self._begin_work()
        keep = self.script.keep_steps
        while keep and not self._can_compact(keep):
            keep = keep // 2 if keep > 1 else 0
        if not self._can_compact(keep):
            return Cause.CONTEXT_OVERFLOW
        older = len(self.spoken) - keep
        if self.script.clears:
            self.spoken[:older] = [False] * older
            return None
        reply = self._call_model()
        if reply.error is None and reply.text.strip():
            del self.spoken[:older]
            return None
        return reply.error or Cause.EMPTY_REPLY

    def _can_compact(self, keep: int) -> bool:
        """Return whether there is something to compact before the last steps."""
        older = self.spoken[: max(len(self.spoken) - keep, 0)]
        return any(older) if self.script.clears else bool(older)

    # The conclusion and the end (docs/rules.md#concluding).

    def _conclude(self, limit: LimitError) -> NoReturn:
        """Let the model sum up, without tools and without the turn's deadline."""
        self.stopped_by, self.deadline = (limit.why, *limit.also), inf
        self.retries_left, sharper, self.stopped = self.limits.max_retries, False, True
        self._write()
        if self.limits.concluding == "never":  # a conclusion without a call of the model is a fact too
            self.failures += 1
            raise EndError(limit.why, limit.also)
        while True:
            lost = self._take_loss()
            reply = ScriptedReply(error=Cause.CRASH) if lost else self._unless_died(self._attempt_conclusion)
            self.failures += 1
            silent = reply.error is Cause.EMPTY_REPLY or (reply.error is None and not reply.text.strip())
            again = not sharper if silent else reply.error is not None and reply.error not in _LASTING
            if not again or not self.retries_left:
                raise EndError(limit.why, limit.also)
            self.retries_left, sharper = self.retries_left - 1, sharper or silent
            self._write()

    def _attempt_conclusion(self) -> ScriptedReply:
        """Make one attempt at the conclusion, after the guardrail of the prompt and before that of the text."""
        self._begin_work()
        self.questions = self.limits.max_retries + 1
        while not self._check_prompt():
            self.questions -= 1
            if not self.questions:
                raise self._failure()
        self.questions = 0
        self._begin_work()
        reply = self._call_model(self.limits.conclude_seconds)
        self._check_text(reply)
        self.conclusion = "" if reply.error is not None else reply.text.strip()
        return reply

    def _close_calls(self, *, superseded: bool = False) -> None:
        """Close the open calls. A new message of the session rejects those that wait (docs/rules.md#sessions)."""
        self._end_children()
        for call in self.calls:
            rejected = superseded and not call.approved
            call.status = call.status or (CallStatus.REJECTED if rejected else CallStatus.ABORTED)

    # Time (docs/rules.md#aborts).

    def _begin_work(self) -> None:
        """Begin I/O, unless somebody has aborted the turn or its time is up."""
        while min(self.abort_at, self.deadline) <= self.now and self._dies_ending_children():
            pass  # an abort is kept, and a crash may give time back
        if min(self.abort_at, self.deadline) <= self.now:
            self._end_children()
        if self.abort_at <= self.now:
            raise EndError(EndReason.ABORTED, self.stopped_by)
        if self.deadline <= self.now:
            self._stop(EndReason.DEADLINE)

    def _work(self, seconds: float) -> None:
        """Let I/O take its time, unless an abort or the deadline cuts it off, or the process dies."""
        ends, first = self.now + seconds, min(self.abort_at, self.deadline)
        if self.deaths and self._dies_before(min(ends, first)) and self.deaths[0].counts == self.written():
            self._die()
            raise DiedError
        self._need_order(ends, first)
        self.now = min(ends, first)
        if first < ends:
            self._begin_work()

    def _need_order(self, ends: float, cut: float) -> None:
        """Raise `CoincidenceError` if work ends when it is cut off: a crash may shift the deadlines of a team so."""
        if self.is_mortal and abs(ends - cut) < _MOMENT:
            raise CoincidenceError

    # Deaths of processes, and what the next process does (docs/rules.md#recovery).
    #
    # A death says when a process died and what it had written. The engine may write several facts in one append, so
    # the simulator finds the moment at which a turn by the rules has written exactly that.

    def written(self) -> JournalCounts:
        """Return the facts in the journal of the turn."""
        return JournalCounts(
            steps=self.steps,
            replies=self.replies,
            failures=self.failures,
            compactions=self.compactions,
            syntheses=self.syntheses,
            reviews=self.reviews,
            pauses=self.pauses,
            answers=self.answers,
            messages=self.read,
            stopped=self.stopped,
            ended=self.ended,
            starts=tuple(call.starts for call in self.calls),
            results=frozenset(place for place, call in enumerate(self.calls) if not call.is_open),
            helpers=tuple(
                (place, self.children[call].written()) for place, call in enumerate(self.calls) if call in self.children
            ),
        )

    def _write(self) -> None:
        """Write everything so far to the journal. The process may die then."""
        self.lost, self.unwritten = False, 0
        if self._dies_now() and self.deaths[0].counts == self.written():
            self._die()

    def _write_in_batch(self, rerun: Call | None = None) -> None:
        """Do what `_write` does beside messages, which are written before the last result."""
        self.lost = False
        if self._dies_now() and _without_messages(self.deaths[0].counts) == _without_messages(self.written()):
            if rerun is not None and self._place(rerun) not in self.deaths[0].just_started:
                self.executed.append(rerun.scripted)
            self._die()

    def _place(self, call: Call) -> int:
        return next(place for place, candidate in enumerate(self.calls) if candidate is call)

    def _dies_now(self) -> bool:
        return bool(self.deaths) and abs(self.deaths[0].at - self.now) < _MOMENT

    def _dies_before(self, ends: float) -> bool:
        """Return whether the process dies before the end of work. What it wrote at the end is known then.

        A sub-agent may also die at the end: its caller may have died at the same time.
        """
        at = self.deaths[0].at
        return self.now - _MOMENT < at < ends + _MOMENT if self.is_helper else self.now < at < ends

    def _die(self) -> None:
        """Let the process die, and each one after it that wrote only a question. Lost seconds do not count.

        The guardrail of the prompt is asked again, unless the journal has that it passed. A sub-agent continues when
        its caller resumes it.
        """
        if self.script.guardrail is not None and self.steps <= 1 and self.in_step and not self.prepared:
            self.unchecked, self.questions = True, 0
        death = last = self.deaths.pop(0)
        while self.deaths and death.at == self.deaths[0].at and death.counts == self.deaths[0].counts:
            last = self.deaths.pop(0)
        self.waiting = last.counts.waits
        self.now, self.lost = max(death.at, self.now), not death.released
        self.lost_seconds += death.lost
        self.deadline += death.lost
        if death.counts.messages > self.read:
            self.read = death.counts.messages
            self._forget_rounds()
        if self.is_helper:
            self._suspend(death)

    def _suspend(self, death: Death) -> None:
        """Let a sub-agent rest until its caller resumes it."""
        if abs(self.model_calls - death.calls) > 1:
            raise AssertionError(f"by the rules a sub-agent has not made so many model calls at this death: {death}")
        self.model_calls = death.calls
        if self.coming:
            self._begin_stretch()
        elif not self.ended:
            raise SuspendedError

    def _take_loss(self) -> bool:
        """Return whether the process died before the I/O that comes next, which then counts as a failed attempt."""
        lost, self.lost = self.lost, False
        if lost and self.abort_at <= self.now:
            self._begin_work()  # an aborted turn needs no repair
        return lost

    def _unless_died(self, attempt: Callable[[], ScriptedReply]) -> ScriptedReply:
        """Make an attempt, which a crash makes fail. If the process releases the turn before it dies, make it anew."""
        while True:
            try:
                return attempt()
            except DiedError:
                self.tokens, self.unwritten = self.tokens - self.unwritten, 0
                if self._take_loss():
                    return ScriptedReply(error=Cause.CRASH)
                self._begin_work()

    def _in_order_of_expiry(self, calls: list[Call]) -> list[Call]:
        """Return calls whose questions expire at once, those with results at the next death first: any order may be."""
        results = self.deaths[0].counts.results if self.deaths else ()
        return sorted(calls, key=lambda call: self._place(call) not in results)

    def _waits_in_journal(self, call: Call) -> bool:
        """Return whether a call waits for a person in the journal. A question about a crash is written first."""
        is_recorded = call.declined is CallStatus.UNKNOWN or self._place(call) in self.waiting
        return call.needs_person and is_recorded

    # Calls with results stay, calls that had not started run, and the policy of its tool is for an interrupted one.

    def _recover_calls(self, batch: list[Call]) -> bool:
        """Apply the policy to the calls that were interrupted. Return False if the process died once more."""
        interrupted = [call for call in batch if call.is_interrupted and call.is_open]
        if interrupted:
            self._begin_work()
            self._write_in_batch()  # only messages
            if self.lost:
                return False
        return all(map(self._recover_call, interrupted))

    def _recover_call(self, call: Call) -> bool:
        policy = "unknown" if call.tool is None else call.tool.on_crash
        if policy == "ask" and self._may_pause():
            call.is_interrupted, call.asks, call.approved = False, True, False
            call.declined, call.expires = CallStatus.UNKNOWN, False
            return True
        if policy != "rerun" or not (self.retries_left or call.crash_paid):
            call.status = CallStatus.UNKNOWN
        elif not self._rerun(call):
            return False
        call.is_interrupted = False
        self._write_in_batch()
        return not self.lost

    def _rerun(self, call: Call) -> bool:
        """Run an interrupted call again. Return False if the process died meanwhile.

        The first call of a crash costs a retry, for all the calls that the crash interrupted.
        """
        if not call.crash_paid:
            self.retries_left -= 1
            for open_call in self.calls:
                open_call.crash_paid = open_call.is_interrupted and open_call.is_open
        call.crash_paid = False
        call.starts += 1
        self._write_in_batch(call)
        if self.lost:
            return False
        self.executed.append(call.scripted)
        ends, cut = self.now + self._seconds_of(call), self._cut_at()
        same = self.deaths and _without_messages(self.deaths[0].counts) == _without_messages(self.written())
        if same and self.deaths[0].at < min(ends, cut) + _MOMENT:
            self._die()
            return False
        self.now, deaths = min(ends, cut), len(self.deaths)
        if ends > cut:
            self._begin_work()
            if len(self.deaths) < deaths:  # the process died when it ended sub-agents, and the turn has time again
                return False
        self._settle(call)
        return True

    def _die_in(self, calls: list[Call]) -> None:
        """Run calls until the process dies. What it wrote says which of them had started and finished."""
        death = self.deaths[0]
        for call in calls:
            self._judge_call(call)
        for call in calls:
            place = self._place(call)
            if not call.is_open:  # by a hook, if its decision was written
                call.status, call.judged = (call.status, True) if place in death.counts.results else (None, False)
            elif not self._leave(call, place, death):
                raise AssertionError(f"by the rules call {place} is not like that at this death: {death}")
        self._die()

    def _leave(self, call: Call, place: int, death: Death) -> bool:
        """Leave a call as it was when the process died. Return whether the rules let it be so."""
        if call.is_helper and self._is_run(call) and not call.needs_person:
            return self._leave_helper(call, place, death)
        self._end_early(call, dict(death.helpers).get(place))
        start, settled, starts = self.now, place in death.counts.results, death.counts.starts[place] - call.starts
        if call.needs_person:
            if settled and not self._may_pause():
                call.status = CallStatus.REFUSED
            return not starts and (not settled or not call.is_open)
        if not 0 <= starts <= 1 or (settled and not starts):
            return False
        if starts and self._is_run(call):
            self._start([call])
            if place in death.just_started:
                self.executed.pop()
        call.is_interrupted = bool(starts) and not settled
        if settled:
            self._settle(call)
            return start + self._seconds_of(call) < death.at + _MOMENT
        ends_later = start + self._seconds_of(call) > death.at - _MOMENT
        return ends_later and (bool(starts) or not self._is_run(call) or death.at < start + _MOMENT)

    def _leave_helper(self, call: Call, place: int, death: Death) -> bool:
        """Run a sub-agent as far as its own journal goes. Return whether the rules let it be so."""
        if call.starts < death.counts.starts[place]:
            self._count_starts([call])
            call.due = False
        if call.starts != death.counts.starts[place]:
            return False
        before, its_death = self.children.get(call), dict(death.helpers).get(place)
        counts = None if before is None else before.written()
        cut = self._cut_in([call for call in self.calls if call.is_open and not call.needs_person])
        if place in death.counts.results:
            self._run_helper(call, cut)
            child = self.children[call]
            ends = self.now + child.seconds_run()
            self._settle(call)
            return child.ended and ends < death.at + _MOMENT
        if its_death is None:
            return counts is None
        rests = before is not None and (before.asks or before.ended or before.lost)
        if its_death.counts == counts and (its_death.released or rests):  # it was not driven
            return True
        self._run_helper(call, cut, replace(its_death, at=death.at - self.now))
        child = self.children[call]
        ends = self.now + child.seconds_run() if child.ended else inf
        if child.asks:
            self._settle(call)
        self._end_early(call, its_death)
        resting = self.children.get(call)
        return resting is not None and its_death.counts == resting.written() and ends > death.at - _MOMENT

    def _end_early(self, call: Call, its_death: Death | None) -> None:
        """End a sub-agent that asks a person, if the process died when it ended the turn."""
        child = self.children.get(call)
        if child is not None and child.asks and its_death is not None and its_death.counts.ended:
            self._abort_child(call, child)


def _without_messages(counts: JournalCounts) -> JournalCounts:
    return replace(counts, messages=0)


def _phase(counts: JournalCounts) -> JournalCounts:
    return replace(counts, messages=0, starts=(), results=frozenset(), helpers=())
