"""A turn fed by hand: what the tests of the pure machine share."""

from typing import Protocol, TypeVar

import pytest
from msgspec.structs import replace

from turnwright_states import (
    Action,
    CallSettledInput,
    CallStartedInput,
    CallState,
    CallStatus,
    CallWaitingInput,
    Finish,
    Halt,
    Input,
    InterruptKind,
    Limits,
    ModelRepliedInput,
    StartedInput,
    State,
    ToolCall,
    TurnMachine,
    Usage,
    facts,
)

_Fact = TypeVar("_Fact", bound=facts.Fact)


class Script:
    """One turn and its journal. `clock` is the `elapsed` of whatever is fed next, in seconds."""

    def __init__(self, started: StartedInput) -> None:
        self.machine, first = TurnMachine.start(started)
        self.facts = list(first)
        self.clock = 0.0

    @property
    def action(self) -> Action:
        return self.machine.action

    @property
    def state(self) -> State:
        return self.machine.state

    @property
    def calls(self) -> int:
        """The tool calls that were counted so far."""
        return self.machine.turn.counters.calls

    @property
    def steps(self) -> int:
        """The `step_started` facts so far."""
        return len(self.of(facts.StepStarted))

    @property
    def ready(self) -> list[str]:
        """The ids of the calls that can run now, in call order."""
        batch = self.machine.turn.batch.values()
        return [call.id for call in batch if call.state in (CallState.READY, CallState.STARTED)]

    @property
    def interrupts(self) -> list[str]:
        """The ids of the open interrupts, oldest first."""
        return list(self.machine.turn.interrupts)

    @property
    def end(self) -> Halt | None:
        """The outcome and the reason of the turn; None while it is not over."""
        action = self.machine.action
        return action if isinstance(action, Halt) else None

    def feed(self, event: Input) -> list[facts.Fact]:
        """Feed one event at `clock`, and keep its facts."""
        new = self.machine.feed(replace(event, elapsed=self.clock))
        self.facts += new
        return new

    def reply(
        self,
        *calls: ToolCall | str,
        text: str = "",
        finish: Finish = Finish.STOP,
        usage: Usage | None = Usage(),  # noqa: B008 (frozen)
        review: bool = False,
    ) -> list[facts.Fact]:
        """The model asks for these calls; a bare name is a call without arguments."""
        asked_calls = tuple(ToolCall(name=call, arguments={}) if isinstance(call, str) else call for call in calls)
        return self.feed(ModelRepliedInput(text=text, calls=asked_calls, finish=finish, usage=usage, review=review))

    def settle(self, status: CallStatus = CallStatus.OK, result: str = "") -> list[facts.Fact]:
        """Start and settle every call that can run; returns the facts of all of it."""
        before = len(self.facts)
        for call in self.ready:
            self.settle_one(call, status, result)
        return self.facts[before:]

    def settle_one(self, call: str, status: CallStatus = CallStatus.OK, result: str = "") -> None:
        """Start and settle this call."""
        self.feed(CallStartedInput(call=call))
        self.feed(CallSettledInput(call=call, status=status, result=result))

    def step(self, *calls: ToolCall | str, usage: Usage | None = Usage()) -> None:  # noqa: B008 (frozen)
        """One whole step: the reply, and its calls run."""
        self.reply(*calls, usage=usage)
        self.settle()

    def wait(self, call: str, kind: InterruptKind = InterruptKind.APPROVAL) -> list[facts.Fact]:
        """The call needs a person."""
        return self.feed(CallWaitingInput(call=call, interrupt_kind=kind))

    def of(self, kind: type[_Fact]) -> list[_Fact]:
        """The facts of one kind, oldest first."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def kinds(self) -> list[str]:
        return [fact.kind for fact in self.facts]

    def result(self, call: str) -> facts.CallSettled:
        """The one result of a call."""
        (settled,) = (fact for fact in self.of(facts.CallSettled) if fact.call == call)
        return settled


class Begin(Protocol):
    """Begins a turn with a `Started` event of the test's own or a plain one; the keywords are fields of `Limits`."""

    def __call__(self, started: StartedInput | None = None, /, **limits: object) -> Script: ...


@pytest.fixture
def begin() -> Begin:
    """Begins a turn under the given limits."""

    def _begin(started: StartedInput | None = None, /, **limits: object) -> Script:
        event = started or StartedInput(prompt="Tidy utils.py")
        return Script(replace(event, limits=Limits.model_validate(limits)))

    return _begin
