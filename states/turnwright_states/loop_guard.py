"""The machine as a guard in your own loop: your code does the work, and the guard says whether it may continue.

A `LoopGuard` feeds a `TurnMachine` and decides nothing itself. It does no I/O and never waits. Your loop must:

1. Call `may_call_model` before each model call. `Proceed`: call the model (`tools`: whether it may use tools).
   `Stopped` with `conclude`: call the model once more without tools, for a summary of what was done and what is left,
   and pass the summary to `concluded`, which may return such a `Stopped` once more. `Stopped` without `conclude`: the
   turn is over. `ResultsMissing`: these calls need their results first. `NeedsAnswer`: a person must answer.
   `VerdictMissing`: say first whether the reply is accepted.
2. Pass each reply to `replied`, and each failed model call to `failed`. `replied` returns which calls run. A call that
   does not run has a `refusal`: send that text to the model as the call's result. A reply without a call ends the turn,
   unless you pass `review=True` and then refuse it with `reviewed(feedback)`.
3. Call `started` before each call that runs, and `result` after it. With `rules`, `started` judges the call: it may
   have a `refusal` now, or wait for a person (`waits`). Start calls that a rule couples one after the other.
4. Pass `elapsed`, the seconds that your loop has worked so far, because the guard has no clock. When the time ends
   during a model call or a tool, stop it and call `expired`.
5. Append `take_facts()` to a journal before you act on a return value, if turns must be explained or resumed.

A call out of order raises an error with the input and the state, and changes nothing.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from msgspec import Struct
from msgspec.structs import replace

from . import facts as f
from .actions import AwaitPerson, CallModel, Conclude, Halt, ReviewReply, RunTools
from .errors import InvalidJournalError
from .inputs import (
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    ConcludedInput,
    Decision,
    ExpireInput,
    FailInput,
    Finish,
    Input,
    InterruptKind,
    JsonObject,
    ModelRepliedInput,
    ReviewedInput,
    StartedInput,
    ToolCall,
    Usage,
)
from .limits import Limits
from .machine import TurnMachine
from .reasons import REASONS, Cause, EndReason
from .state import Outcome, Stall

if TYPE_CHECKING:
    from .rules import Rule, RuleList


class Proceed(Struct, frozen=True):
    """The model may be called. `tools`, `nudge`, `max_tokens` and `stall` are those of `CallModel`."""

    tools: bool
    nudge: bool = False
    max_tokens: int | None = None
    stall: Stall | None = None


class Stopped(Struct, frozen=True):
    """No step may start any more.

    With `conclude` the model may be called once more, tools disabled, and `outcome` is None until `concluded` was
    called. `reason` stopped the turn, and `also_reached` are the other limits that were reached. `second_try`: the
    model concluded without text; ask it once more, and mention that.
    """

    reason: EndReason
    also_reached: tuple[EndReason, ...] = ()
    outcome: Outcome | None = None
    second_try: bool = False

    @property
    def conclude(self) -> bool:
        """Whether the model must be asked for a summary."""
        return self.outcome is None

    @property
    def words(self) -> str:
        """The meaning of the reason, and the next step for the developer."""
        meaning = REASONS[self.reason]
        return f"{meaning.means} {meaning.next}"


class CallDecision(Struct, frozen=True):
    """One call of a reply. It runs, or `refusal` is the text of its result.

    `id` is the guard's, unique in the turn; `provider_id` is the provider's. `waits` is the id of the interrupt with
    which a rule asks a person: answer it, then start the call again.
    """

    id: str
    name: str
    provider_id: str = ""
    refusal: str = ""
    waits: str = ""

    @property
    def runs(self) -> bool:
        """Whether the call may run."""
        return not (self.refusal or self.waits)


class ResultsMissing(Struct, frozen=True):
    """Calls that need a result before the next model call (docs/rules.md#pairing)."""

    calls: tuple[CallDecision, ...]


class NeedsAnswer(Struct, frozen=True):
    """The turn is paused until each of these is `answered`."""

    interrupts: tuple[f.InterruptRecord, ...]


class VerdictMissing(Struct, frozen=True):
    """A reply that was recorded for a review needs its verdict: call `reviewed` (docs/rules.md#reviews)."""


May = Proceed | Stopped | ResultsMissing | NeedsAnswer | VerdictMissing


class LoopGuard:
    """A guard of one turn under `limits`. `session` and `model` are only recorded.

    `rules` are judged as in a turn of an engine (docs/rules.md#rules-over-calls); their history begins with `prompt`.
    `elapsed` is in seconds of work since the turn began. Without it no time has passed. Raises `InvalidRuleError`.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        prompt: str = "",
        session: str | None = None,
        model: str = "",
        rules: "Iterable[Rule | RuleList]" = (),
    ) -> None:
        event = StartedInput(
            prompt=prompt, limits=limits or Limits(), session=session, model=model, rules=_resolve(rules)
        )
        machine, facts = TurnMachine.start(event)
        #: The machine, for reading only.
        self.machine = machine
        self._facts = facts

    @classmethod
    def resume(cls, facts: Iterable[f.Fact]) -> "LoopGuard":
        """Resume a turn from its journal.

        Raises `InvalidJournalError` as `TurnMachine.resume` does, and for a turn with a synthesis, which only an engine
        can run.
        """
        guard = object.__new__(cls)
        guard.machine, guard._facts = TurnMachine.resume(facts, verify=True), []
        if guard.machine.turn.synthesis:
            raise InvalidJournalError(
                1, "the turn has a synthesis, which a LoopGuard cannot run: resume it with its engine"
            )
        guard._facts += guard._conclude_unasked(guard.machine.turn.elapsed)
        return guard

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, once the turn is over."""
        return self.machine.state.outcome

    def take_facts(self) -> list[f.Fact]:
        """Return the facts since the last call of this method, oldest first, for your journal."""
        facts, self._facts = self._facts, []
        return facts

    def may_call_model(self) -> May:
        """Return whether the loop may continue, and if not, the reason. Nothing changes."""
        action = self.machine.action
        match action:
            case CallModel(tools=tools, nudge=nudge, max_tokens=max_tokens, stall=stall):
                return Proceed(tools, nudge, max_tokens, stall)
            case RunTools(calls=calls):
                return ResultsMissing(tuple(_permit(call.made) for call in calls))
            case AwaitPerson(interrupts=interrupts):
                return NeedsAnswer(interrupts)
            case ReviewReply():
                return VerdictMissing()
            case Conclude(reason=reason, second_try=again):
                return Stopped(reason, self.machine.turn.also_reached, second_try=again)
            case _:
                assert isinstance(action, Halt)  # noqa: S101 (a guarded turn has no synthesis: see `resume`)
                return Stopped(action.reason, action.also_reached, action.outcome)

    def replied(
        self,
        text: str = "",
        calls: Sequence[ToolCall] = (),
        *,
        finish: Finish = Finish.STOP,
        usage: Usage | None = None,
        review: bool = False,
        elapsed: float = 0.0,
    ) -> tuple[CallDecision, ...]:
        """Record a reply, and return one `CallDecision` for each call, in their order.

        A reply with blank text and no calls is a failed attempt. With `review`, call `reviewed` before anything of the
        reply runs; only then does the turn end or continue. Raises `IllegalInputError` when no model call was allowed.
        """
        event = ModelRepliedInput(
            text=text, calls=tuple(calls), finish=finish, usage=usage, review=review, elapsed=elapsed
        )
        replies = [fact for fact in self._feed(event) if isinstance(fact, f.ModelReplied)]
        return tuple(_permit(call) for reply in replies for call in reply.calls)

    def reviewed(self, feedback: str | None = None, *, elapsed: float = 0.0) -> May:
        """Accept the reply that was recorded for a review, or refuse it with `feedback`.

        A refused reply is not the end: its calls are closed, its step is over, and another step may follow, in which
        your loop sends the feedback to the model. A turn has `Limits.output_retries` of them, then it fails. Raises
        `IllegalInputError` if no reply waits for a verdict: a blank reply and one of a turn without steps do not.
        """
        is_refused = feedback is not None
        return self.feed(ReviewedInput(refused=is_refused, feedback=feedback or "", elapsed=elapsed))

    def failed(
        self,
        cause: Cause,
        message: str = "",
        *,
        partial: str = "",
        usage: Usage | None = None,
        elapsed: float = 0.0,
    ) -> May:
        """Record a model call that failed. `Proceed`, or `Stopped` with `conclude`, is a retry of the same call.

        `cause` decides whether a retry may help; `message` has the provider's words. Raises `IllegalInputError` when no
        model call was allowed.
        """
        return self.feed(
            AttemptFailedInput(cause=cause, message=message, partial=partial, usage=usage, elapsed=elapsed)
        )

    def started(self, call: str, *, elapsed: float = 0.0) -> CallDecision:
        """Record that a call is about to run.

        A call whose process died may have no retry left, and a rule may refuse the call: then its `refusal` is its
        result. A rule may ask a person (`waits`), or end the turn. Raises `InvalidCallError` for a call that is not
        open, or that a rule couples with an earlier one without a result, and `IllegalInputError` when no call is open.
        """
        open_call = self.machine.turn.batch.get(call)
        facts = self._feed(CallStartedInput(call=call, elapsed=elapsed))
        assert open_call is not None  # noqa: S101 (the machine has taken the event)
        refusals = (fact.result for fact in facts if isinstance(fact, f.CallSettled) and fact.call == call)
        waits = (fact.interrupt.id for fact in facts if isinstance(fact, f.CallWaiting))
        return replace(_permit(open_call.made, "".join(refusals)), waits="".join(waits))

    def result(
        self,
        call: str,
        status: CallStatus = CallStatus.OK,
        text: str = "",
        *,
        final: bool = False,
        elapsed: float = 0.0,
    ) -> May:
        """Record the result of a call. With `final` and status `ok` it is the turn's answer.

        The other calls of the step still get their results, and no model call follows. Raises `InvalidCallError` for a
        call that is not open, and for status `ok` without a start.
        """
        return self.feed(CallSettledInput(call=call, status=status, result=text, final=final, elapsed=elapsed))

    def waits(self, call: str, kind: InterruptKind, question: str = "", *, elapsed: float = 0.0) -> May:
        """Record that a call needs a person first. It is refused at once when no pause is left."""
        return self.feed(CallWaitingInput(call=call, interrupt_kind=kind, question=question, elapsed=elapsed))

    def answered(self, interrupt: str, decision: Decision, text: str = "", *, elapsed: float = 0.0) -> May:
        """Record a person's answer.

        Raises `AnswerMismatchError` for an interrupt that is not open, or does not accept this decision.
        """
        return self.feed(AnsweredInput(interrupt=interrupt, decision=decision, text=text, elapsed=elapsed))

    def concluded(
        self, text: str | None, calls: Sequence[ToolCall] = (), *, usage: Usage | None = None, elapsed: float = 0.0
    ) -> May:
        """Record the reply of the concluding call: its text, and its calls, none of which runs.

        After a reply without text (None or blank) the model is asked once more if a retry is left
        (`Stopped.second_try`).
        """
        return self.feed(ConcludedInput(text=text, calls=tuple(calls), usage=usage, elapsed=elapsed))

    def expired(self, *, partial: str = "", usage: Usage | None = None, elapsed: float = 0.0) -> May:
        """Record that the time ended during a model call or a tool, which the loop has stopped. Close open calls."""
        return self.feed(ExpireInput(partial=partial, usage=usage, elapsed=elapsed))

    def aborted(self, *, partial: str = "", elapsed: float = 0.0) -> May:
        """Record an abort. The loop has stopped its work. Close open calls."""
        return self.feed(AbortInput(partial=partial, elapsed=elapsed))

    def broke(self, error: str, *, elapsed: float = 0.0) -> May:
        """Record that the loop itself raised. A tool that raises is a `result` with the status `error` instead."""
        return self.feed(FailInput(error=error, elapsed=elapsed))

    def feed(self, event: Input) -> May:
        """Feed any input of the machine, and return as `may_call_model` does. Raises as `TurnMachine.feed` does."""
        self._feed(event)
        return self.may_call_model()

    def _feed(self, event: Input) -> list[f.Fact]:
        facts = self.machine.feed(event)
        facts += self._conclude_unasked(event.elapsed)
        self._facts += facts
        return facts

    def _conclude_unasked(self, elapsed: float) -> list[f.Fact]:
        """Conclude a turn that stops without asking its model (`concluding="never"`). Return the facts."""
        action = self.machine.action
        if isinstance(action, Conclude) and not action.asks_model:
            return self.machine.feed(ConcludedInput(elapsed=elapsed))
        return []


def _resolve(rules: "Iterable[Rule | RuleList]") -> tuple[JsonObject, ...]:
    items = tuple(rules)
    if not items:
        return ()
    from .rules.history import list_rule_sets  # noqa: PLC0415 (few turns have rules)
    from .rules.rule import resolve_rules  # noqa: PLC0415 (likewise)

    return cast("tuple[JsonObject, ...]", resolve_rules(list_rule_sets(items)))


def _permit(call: f.CallMade, refusal: str = "") -> CallDecision:
    return CallDecision(call.id, call.name, call.provider_id, refusal or call.refused)
