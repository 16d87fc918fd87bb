"""One turn of a loop that belongs to somebody else: the guard, its clock, its words, and perhaps a journal.

The adapters in this package translate the events of a framework into calls of these methods.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import RLock
from typing import Final, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from turnwright._base.ids import new_id
from turnwright.errors import ConfigError, LeaseLostError, StoreError, TurnAlreadyEndedError, need_kind, need_list
from turnwright.model.http.json_text import whole_object
from turnwright.rules import RuleError, Rules, make_rule_sets
from turnwright.store import NewTurn
from turnwright.store.sessions import default_title
from turnwright.transcript.wording import conclude_instruction, cut_off_problem, fixed_summary, hint_text
from turnwright_states import (
    CallDecision,
    CallSettledInput,
    CallStatus,
    Cause,
    EndReason,
    Finish,
    Limits,
    LoopGuard,
    Outcome,
    Proceed,
    ResultsMissing,
    Stopped,
    ToolCall,
    Usage,
    VerdictMissing,
)
from turnwright_states.call import CallState
from turnwright_states.facts import Reviewed
from turnwright_states.inputs import is_blank
from turnwright_states.rules import InvalidRuleError

from .journal import GuardJournal

P = ParamSpec("P")
T = TypeVar("T")

#: The feedback of a reply after which the framework called the model again.
CONTINUED: Final = "the loop did not accept this reply as the answer"
#: The result of a call that the framework did not run, or whose result it did not pass on.
NO_RESULT: Final = "no result was reported"
#: The result of a call that is not one of the last reply.
UNKNOWN_CALL: Final = "not executed: the turn does not know this call"
#: The result of a call that a rule couples with an earlier one of its reply.
COUPLED: Final = "not executed: by a rule it comes after {}, which has no result yet: call it again"


class Ending(Struct, frozen=True):
    """The ending of a guarded turn: one outcome, one reason, and the other limits that were reached.

    `turn_id` is the turn's id in the journal. `words` is the meaning, and the next step for the developer.
    """

    outcome: Outcome
    reason: EndReason
    also_reached: tuple[EndReason, ...]
    turn_id: str
    words: str

    def __str__(self) -> str:
        return f"{self.outcome}: {self.reason}"


class NextCall(Struct, frozen=True):
    """The next model call: whether it may use tools, and a user message for this request alone."""

    tools: bool
    hint: str = ""
    conclude: bool = False


class GuardOptions(Struct, frozen=True):
    """The settings that the turns of one guard share."""

    limits: Limits
    journal: str | None = None
    session: str | None = None
    clock: Callable[[], float] = time.monotonic
    rules: Rules = ()

    def checked(self) -> "GuardOptions":
        """Return these options. Raises `ConfigError` for other objects, and for what a guard cannot keep."""
        need_kind("limits", self.limits, Limits, "Limits(steps=...)")
        if self.limits.doom_response == "ask":
            raise ConfigError("doom_response: a guard has nobody to ask: use 'stop'")
        if self.limits.cost is not None:
            raise ConfigError("cost: a guard knows no prices: limit `tokens` instead")
        if not self.rules:
            return self
        need_list("rules", self.rules)
        rule_sets = make_rule_sets(self.rules, "rules")
        for rule in (rule for rule_set in rule_sets for rule in rule_set.rules):
            if rule.scope == "session":
                raise ConfigError(f"rule {rule.name!r}: a guard remembers one turn, no session: use an engine")
        # Nobody is asked, so a rule that would ask refuses.
        return replace(self, rules=rule_sets, limits=self.limits.model_copy(update={"max_pauses": 0}))


class GuardedTurn:
    """A turn under `options`. `app` names the loop in the journal; `prompt` and `model` are recorded.

    `seconds` of the limits are checked between steps only: the loop's own model call or tool is not interrupted.
    Its methods may be called from any thread. Those that write wait for the journal; `in_thread` keeps an event loop
    free. They raise `StoreError` and
    `LeaseLostError` if the journal cannot be written.
    """

    def __init__(self, options: GuardOptions, *, app: str, prompt: str = "", model: str = "") -> None:
        self.id = new_id()
        self._clock, self._start = options.clock, options.clock()
        self._lock = RLock()
        try:
            self._guard = LoopGuard(
                options.limits, prompt=prompt, session=options.session, model=model, rules=options.rules
            )
        except InvalidRuleError as error:
            raise RuleError(error.why, rule=error.rule) from None
        #: Why a rule refused the last answer, for the next request.
        self._feedback = ""
        #: The calls of the last reply by the provider's ids, which may repeat.
        self._calls: dict[str, list[CallDecision]] = {}
        self._journal: GuardJournal | None = None
        facts = self._guard.take_facts()
        if options.journal is not None:
            title = "" if options.session is None else default_title(prompt)
            new = NewTurn(self.id, options.session, app, model, time.time(), title)
            self._journal = GuardJournal(options.journal, new, facts, self._guard.machine.turn)

    @classmethod
    async def begin(cls, options: GuardOptions, *, app: str, prompt: str = "", model: str = "") -> "GuardedTurn":
        """Make a turn, in a thread if it writes a journal."""
        make = partial(cls, options, app=app, prompt=prompt, model=model)
        return make() if options.journal is None else await _in_thread(make)

    @property
    def over(self) -> bool:
        """Whether the turn has ended."""
        return self._guard.outcome is not None

    @property
    def ending(self) -> Ending | None:
        """The ending of the turn, or None while it has not ended."""
        may = None if not self.over else self._guard.may_call_model()
        if not isinstance(may, Stopped) or may.outcome is None:
            return None
        return Ending(may.outcome, may.reason, may.also_reached, self.id, may.words)

    @property
    def concluding(self) -> bool:
        """Whether a limit was reached, and the model is to sum up."""
        may = self._guard.may_call_model()
        return isinstance(may, Stopped) and may.conclude

    @property
    def model_is_next(self) -> bool:
        """Whether the model is to be called before anything else: no call can run, and the turn is not over."""
        return self.concluding or isinstance(self._guard.may_call_model(), Proceed)

    @property
    def has_one_call(self) -> bool:
        """Whether the last reply had one call."""
        return [len(calls) for calls in self._calls.values()] == [1]

    @property
    def summary(self) -> str:
        """The last text of a turn whose model gave none: the reason, the steps and the calls."""
        ending = self.ending
        return "" if ending is None else fixed_summary(self._guard.machine.turn, ending.reason, (), "")

    def text_after(self, text: str) -> str:
        """Return the last text of a turn that is over: `text`, or the summary if it is blank or was refused."""
        ending = self.ending
        is_refused = ending is not None and ending.outcome is Outcome.FAILED
        return self.summary if is_refused or is_blank(text) else text

    def next_call(self) -> NextCall:
        """Return what the next request is like.

        A reply that waits for its verdict is refused first, because the loop continues, and open calls get a result
        that says that there is none. Raises `TurnAlreadyEndedError`.
        """
        with self._lock:
            may = self._guard.may_call_model()
            if isinstance(may, VerdictMissing):
                may = self._guard.reviewed(CONTINUED, elapsed=self._elapsed())
            while isinstance(may, ResultsMissing):
                may = self._guard.result(may.calls[0].id, CallStatus.UNKNOWN, NO_RESULT, elapsed=self._elapsed())
            self._save()
            match may:
                case Proceed(tools=tools, nudge=nudge, stall=stall):
                    hints = [self._feedback, hint_text(stall) if nudge or stall else ""]
                    self._feedback = ""
                    return NextCall(tools, "\n\n".join(filter(None, hints)))
                case Stopped(outcome=None, reason=reason, second_try=again):
                    words = conclude_instruction(self._guard.machine.turn, reason, again=again)
                    return NextCall(tools=False, hint=words, conclude=True)
            ending = self.ending
            assert ending is not None  # noqa: S101 (nobody is asked: see `GuardOptions.checked`)
            raise TurnAlreadyEndedError(self.id, ending.outcome, ending.reason)

    def replied(
        self,
        text: str,
        calls: Sequence[ToolCall] = (),
        *,
        finish: Finish = Finish.STOP,
        usage: Usage | None = None,
        review: bool = False,
    ) -> tuple[CallDecision, ...]:
        """Record a reply or a conclusion, and return a decision for each call, in their order. Of a conclusion none."""
        with self._lock:
            elapsed = self._elapsed()
            decisions: tuple[CallDecision, ...] = ()
            if self.concluding:
                self._guard.concluded(text, calls, usage=usage, elapsed=elapsed)
            else:
                if finish is Finish.LENGTH:
                    calls = [call if call.arguments else maybe_cut_off(call, usage) for call in calls]
                decisions = self._guard.replied(
                    text, calls, finish=finish, usage=usage, review=review and not calls, elapsed=elapsed
                )
            by_id: defaultdict[str, list[CallDecision]] = defaultdict(list)
            for decision in decisions:
                by_id[decision.provider_id].append(decision)
            self._calls = by_id
            self._save()
            return decisions

    def reviewed(self, feedback: str | None = None) -> None:
        """Accept the reply that waits for its verdict, or refuse it. Does nothing if none waits."""
        with self._lock:
            if isinstance(self._guard.may_call_model(), VerdictMissing):
                self._guard.reviewed(feedback, elapsed=self._elapsed())
                self._save()

    def refusal(self, provider_id: str) -> str:
        """Return why a call of the last reply does not run; empty if it may."""
        with self._lock:
            return next((decision.refusal for decision in self._calls.get(provider_id, ())), "")

    def settle_rest(self, results: Mapping[str, tuple[str, CallStatus]], *, final: bool = False) -> None:
        """Record results of open calls by the provider's ids. `final`: the last one is the turn's answer."""
        with self._lock:
            answered_calls = [call.made for call in self._guard.machine.turn.open_calls()]
            answered_calls = [call for call in answered_calls if call.provider_id in results]
            for call in answered_calls:
                self.settled(call.id, *results[call.provider_id], final=final and call is answered_calls[-1])

    def started(self, provider_id: str) -> CallDecision:
        """Record that a call is about to run, and return the decision: a refused one must not run.

        A call that is not one of the last reply, and any call after the end, is refused. So is one that a rule couples
        with an earlier call without a result: frameworks run the calls of a reply together.
        """
        with self._lock:
            waiting = self._calls.get(provider_id) or []
            decision = waiting.pop(0) if len(waiting) > 1 else next(iter(waiting), None)
            if decision is None or self.over:
                return CallDecision("", "", provider_id, UNKNOWN_CALL)
            if decision.runs:
                decision = self._begin_call(decision)
                self._save()
            return decision

    def _begin_call(self, decision: CallDecision) -> CallDecision:
        turn = self._guard.machine.turn
        call = turn.batch.get(decision.id)
        blocker = None if call is None or call.state is not CallState.READY else turn.find_blocker(call)
        if blocker is None:
            return self._guard.started(decision.id, elapsed=self._elapsed())
        refusal = COUPLED.format(blocker.name)
        self._guard.result(decision.id, CallStatus.REFUSED, refusal, elapsed=self._elapsed())
        return replace(decision, refusal=refusal)

    def settled(self, call: str, text: str, status: CallStatus = CallStatus.OK, *, final: bool = False) -> None:
        """Record the result of a call. `final`: it is the turn's answer. Does nothing if the turn has ended."""
        with self._lock:
            if not self.over:
                self._guard.feed(
                    CallSettledInput(call=call, status=status, result=text, final=final, elapsed=self._elapsed())
                )
                self._save()

    def model_failed(self, error: BaseException) -> None:
        """Record that a model call raised: a conclusion is replaced by `summary`, any other call fails the turn."""
        with self._lock:
            if self.model_is_next:
                self._guard.failed(Cause.REJECTED, describe_error(error), elapsed=self._elapsed())
                self._save()

    def broke(self, error: BaseException) -> None:
        """End the turn because the loop raised. An error that is no `Exception` aborts it.

        Does nothing if the turn has ended. An error of the journal is not raised, because the loop raises already.
        """
        with self._lock:
            if not self.over:
                if isinstance(error, Exception):
                    self._guard.broke(describe_error(error), elapsed=self._elapsed())
                else:
                    self._guard.aborted(elapsed=self._elapsed())
                with suppress(StoreError, LeaseLostError):
                    self._save()

    def aborted(self) -> None:
        """End the turn because the loop ended without an answer. Does nothing if the turn has ended."""
        with self._lock:
            if not self.over:
                self._guard.aborted(elapsed=self._elapsed())
                self._save()

    async def in_thread(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of this turn, in a thread if it writes a journal."""
        call = partial(method, *args, **kwargs)
        return call() if self._journal is None else await _in_thread(call)

    def __del__(self) -> None:
        """Release the journal of a turn that never ended, such as one of a run that was dropped."""
        journal = getattr(self, "_journal", None)
        if journal is not None:
            with suppress(StoreError):  # nobody is left to receive it
                journal.close()

    def _elapsed(self) -> float:
        return max(self._clock() - self._start, 0.0)

    def _save(self) -> None:
        facts = self._guard.take_facts()
        feedbacks = [fact.feedback for fact in facts if isinstance(fact, Reviewed) and fact.refused and fact.rules]
        self._feedback = feedbacks[-1] if feedbacks else self._feedback
        if self._journal is not None:
            if facts:
                self._journal.append(facts, self._guard.machine.turn)
            if self.over:
                self._journal.close()


async def _in_thread(call: Callable[[], T]) -> T:
    from anyio.to_thread import run_sync  # noqa: PLC0415 (loops without an event loop do not need it)

    return await run_sync(call)


def tool_call(name: str, arguments: object, provider_id: str) -> ToolCall:
    """Return a call as the machine receives it. `arguments` is an object, or its JSON text, which may be invalid."""
    if isinstance(arguments, Mapping):
        return ToolCall(name=name, arguments=dict(arguments), provider_id=provider_id)
    text = str(arguments or "")
    fields = whole_object(text)
    return ToolCall(name=name, arguments=fields, raw=text if fields is None else "", provider_id=provider_id)


def maybe_cut_off(call: ToolCall, usage: Usage | None) -> ToolCall:
    """Return a call of a reply that was cut off as one that does not run. `usage` is that of the reply.

    Clients and frameworks parse the arguments as far as they have arrived, so these look complete.
    """
    limit = None if usage is None else usage.output_tokens
    return call if call.problem else replace(call, problem=cut_off_problem(limit))


def describe_error(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {error}"
