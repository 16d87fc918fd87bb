"""The machine as a guard inside a loop of your own: you do the work, it says whether you may go on, and if not, why.

A `LoopGuard` feeds a `TurnMachine` and decides nothing itself; nothing here does I/O or waits. Your loop keeps five
promises:

1. Before each model call ask `may_call_model`. `Proceed`: call the model (`tools` says whether it may use tools).
   `Stopped` with `conclude`: call it once more without tools, so that it says what was done and what is left, and tell
   that with `concluded`, whose answer may be one more `Stopped` with `conclude`; `Stopped` without: the turn is over.
   `ResultsMissing`: these calls need their results first. `NeedsAnswer`: a person is to answer.
2. Tell each reply with `replied`, each model call that failed with `failed`. `replied` says which calls run. One that
   does not has its `refusal`, the ready text of its result: send it to the model as it is.
3. Tell each call that runs before it runs with `started`, and then its end with `result`.
4. Pass `elapsed`, the seconds that your loop has worked so far, wherever you can; the guard has no clock. When the
   time is up during a model call or a tool, stop that and tell it with `expired`.
5. If turns are to be explained or resumed, append `take_facts()` to a journal before you act on an answer.

A promise that is broken raises an error that says which event came in which state; nothing has changed then.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from . import facts as f
from .actions import AwaitPerson, CallModel, Conclude, Halt, RunTools
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
    ModelRepliedInput,
    StartedInput,
    ToolCall,
    Usage,
)
from .limits import Limits
from .machine import TurnMachine
from .reasons import REASONS, Cause, EndReason
from .state import Outcome


class Proceed(Struct, frozen=True):
    """The model may be called. `tools`, `nudge` and `max_tokens` are those of `CallModel`."""

    tools: bool
    nudge: bool = False
    max_tokens: int | None = None


class Stopped(Struct, frozen=True):
    """No step may start any more.

    With `conclude` the model may be called once more, tools disabled, and `outcome` is None until that is told.
    `reason` is why; `also_reached` are the other limits that held; `words` say what the reason means and what to do.
    `second_try`: the model concluded without text, and may be asked once more; say so to it.
    """

    reason: EndReason
    also_reached: tuple[EndReason, ...] = ()
    outcome: Outcome | None = None
    second_try: bool = False

    @property
    def conclude(self) -> bool:
        """Whether the model is to say what was done and what is left."""
        return self.outcome is None

    @property
    def words(self) -> str:
        """What the reason means, and what to do next, from the one table of reasons."""
        meaning = REASONS[self.reason]
        return f"{meaning.means} {meaning.next}"


class CallDecision(Struct, frozen=True):
    """One call of a reply. It runs, or `refusal` is the text of its result.

    `id` is the guard's, unique in the turn; `provider_id` is the one that the call came with.
    """

    id: str
    name: str
    provider_id: str = ""
    refusal: str = ""

    @property
    def runs(self) -> bool:
        """Whether the call may run."""
        return not self.refusal


class ResultsMissing(Struct, frozen=True):
    """Calls that have no result yet; the model may not be called without (DESIGN 4.8)."""

    calls: tuple[CallDecision, ...]


class NeedsAnswer(Struct, frozen=True):
    """The turn is paused until each of these is `answered`."""

    interrupts: tuple[f.InterruptRecord, ...]


May = Proceed | Stopped | ResultsMissing | NeedsAnswer


class LoopGuard:
    """Guards one turn under `limits`. `prompt`, `session` and `model` are only written down.

    `elapsed` is everywhere in seconds of work since the turn began; left out, no time has passed.
    """

    def __init__(
        self, limits: Limits | None = None, *, prompt: str = "", session: str | None = None, model: str = ""
    ) -> None:
        started = StartedInput(prompt=prompt, limits=limits or Limits(), session=session, model=model)
        machine, facts = TurnMachine.start(started)
        #: The machine underneath, to look at.
        self.machine = machine
        self._facts = facts

    @classmethod
    def resume(cls, facts: Iterable[f.Fact]) -> "LoopGuard":
        """Go on with a turn from its journal.

        Raises `InvalidJournalError` as `TurnMachine.resume` does, and for a turn that has a synthesis: that is its
        engine's.
        """
        guard = object.__new__(cls)
        guard.machine, guard._facts = TurnMachine.resume(facts), []
        if guard.machine.turn.synthesis:
            raise InvalidJournalError(
                1, "the turn has a synthesis, which a guard cannot run: resume it with its engine"
            )
        return guard

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, once the turn is over."""
        return self.machine.state.outcome

    def take_facts(self) -> list[f.Fact]:
        """The facts that are new since this was last called, oldest first: what a journal appends."""
        facts, self._facts = self._facts, []
        return facts

    def may_call_model(self) -> May:
        """Whether the loop may go on, and if not, why. Asking changes nothing."""
        action = self.machine.action
        match action:
            case CallModel(tools=tools, nudge=nudge, max_tokens=max_tokens):
                return Proceed(tools, nudge, max_tokens)
            case RunTools(calls=calls):
                return ResultsMissing(tuple(_permit(call.made) for call in calls))
            case AwaitPerson(interrupts=interrupts):
                return NeedsAnswer(interrupts)
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
        elapsed: float = 0.0,
    ) -> tuple[CallDecision, ...]:
        """The model replied. Returns one `CallDecision` for each call, in their order.

        A reply with blank text and no calls is taken as a failed attempt. Raises `IllegalInputError` when no model call
        was allowed: `may_call_model` was not asked, or not obeyed.
        """
        event = ModelRepliedInput(text=text, calls=tuple(calls), finish=finish, usage=usage, elapsed=elapsed)
        replies = [fact for fact in self._feed(event) if isinstance(fact, f.ModelReplied)]
        return tuple(_permit(made) for reply in replies for made in reply.calls)

    def failed(
        self,
        cause: Cause,
        message: str = "",
        *,
        partial: str = "",
        usage: Usage | None = None,
        elapsed: float = 0.0,
    ) -> May:
        """A model call brought no reply. `Proceed`, or `Stopped` with `conclude`, is a retry of the same call.

        `cause` decides whether it may pass; `message` is the provider's own words. Raises `IllegalInputError` when no
        model call was allowed.
        """
        return self.feed(
            AttemptFailedInput(cause=cause, message=message, partial=partial, usage=usage, elapsed=elapsed)
        )

    def started(self, call: str, *, elapsed: float = 0.0) -> CallDecision:
        """The call with this id is about to run.

        A call that was started before, and whose process died, may find no retry left: then its `refusal` is its
        result. Raises `InvalidCallError` for a call that is not open, `IllegalInputError` when none is.
        """
        known = self.machine.turn.batch.get(call)
        facts = self._feed(CallStartedInput(call=call, elapsed=elapsed))
        assert known is not None  # noqa: S101 (the machine has taken the event)
        return _permit(known.made, "".join(fact.result for fact in facts if isinstance(fact, f.CallSettled)))

    def result(self, call: str, status: CallStatus = CallStatus.OK, text: str = "", *, elapsed: float = 0.0) -> May:
        """The call with this id has its result.

        Raises `InvalidCallError` for one that is not open, or ok and never started.
        """
        return self.feed(CallSettledInput(call=call, status=status, result=text, elapsed=elapsed))

    def waits(self, call: str, kind: InterruptKind, question: str = "", *, elapsed: float = 0.0) -> May:
        """The call with this id needs a person first. When no pause is left it is refused at once."""
        return self.feed(CallWaitingInput(call=call, interrupt_kind=kind, question=question, elapsed=elapsed))

    def answered(self, interrupt: str, decision: Decision, text: str = "", *, elapsed: float = 0.0) -> May:
        """A person answered.

        Raises `AnswerMismatchError` for an interrupt that is not open, or does not take this decision.
        """
        return self.feed(AnsweredInput(interrupt=interrupt, decision=decision, text=text, elapsed=elapsed))

    def concluded(
        self, text: str | None, calls: Sequence[ToolCall] = (), *, usage: Usage | None = None, elapsed: float = 0.0
    ) -> May:
        """The concluding call replied: its text, and the calls that it asked for all the same, which do not run.

        A reply without text (None or blank) is asked for once more, where a retry is left: `Stop.second_try`.
        """
        return self.feed(ConcludedInput(text=text, calls=tuple(calls), usage=usage, elapsed=elapsed))

    def expired(self, *, partial: str = "", usage: Usage | None = None, elapsed: float = 0.0) -> May:
        """The time was up during a model call or a tool, which the loop has stopped. Open calls are closed."""
        return self.feed(ExpireInput(partial=partial, usage=usage, elapsed=elapsed))

    def aborted(self, *, partial: str = "", elapsed: float = 0.0) -> May:
        """Somebody stopped the turn; the loop has stopped what ran. Open calls are closed."""
        return self.feed(AbortInput(partial=partial, elapsed=elapsed))

    def broke(self, error: str, *, elapsed: float = 0.0) -> May:
        """The loop itself raised. Not for a tool that raises: that is a `result` with the status `error`."""
        return self.feed(FailInput(error=error, elapsed=elapsed))

    def feed(self, event: Input) -> May:
        """Feed any event of the machine, and say whether the loop may go on. Raises as `TurnMachine.feed` does."""
        self._feed(event)
        return self.may_call_model()

    def _feed(self, event: Input) -> list[f.Fact]:
        facts = self.machine.feed(event)
        self._facts += facts
        return facts


def _permit(made: f.CallMade, refusal: str = "") -> CallDecision:
    return CallDecision(made.id, made.name, made.provider_id, refusal or made.refused)
