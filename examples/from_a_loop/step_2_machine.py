"""Step 2: the machine says what to do next, and the loop does it."""

import json
from collections.abc import Callable

from shop import Client, Message, charge, play, refund, search

from turnwright_states import (
    REASONS,
    AnsweredInput,
    AwaitPerson,
    Call,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    Conclude,
    ConcludedInput,
    Decision,
    Halt,
    Input,
    InterruptKind,
    Limits,
    ModelRepliedInput,
    RunTools,
    StartedInput,
    ToolCall,
    TurnMachine,
    facts,
)

TOOLS: dict[str, Callable[..., str]] = {"search": search, "refund": refund, "charge": charge}
ASK_FIRST = {"refund"}
LIMITS = Limits(steps=5, max_retries=1)


class App:
    """Answers messages. The turn that is under way, or waits for a person, is in memory."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.machine: TurnMachine | None = None
        self.messages: list[Message] = []
        self.ids: dict[str, str] = {}

    def respond(self, messages: list[Message]) -> str | None:
        """Begin a turn, and drive it until it has ended or waits for a person."""
        self.machine, _ = TurnMachine.start(StartedInput(prompt=messages[-1]["content"], limits=LIMITS))
        self.messages = messages
        return self.drive(self.machine)

    def answer(self) -> str | None:
        """A person says yes to what the turn in memory asks."""
        if self.machine is None:
            return "nothing waits"
        for interrupt in tuple(self.machine.turn.interrupts):
            self.feed(self.machine, AnsweredInput(interrupt=interrupt, decision=Decision.APPROVE))
        return self.drive(self.machine)

    def drive(self, machine: TurnMachine) -> str:
        """Do what the machine asks for, one thing after the other."""
        text = ""
        while True:
            match machine.action:
                case Halt() as halt:
                    return f"{text or REASONS[halt.reason].means} ({halt.outcome}: {halt.reason})"
                case AwaitPerson(interrupts=interrupts):
                    return f"may I {', '.join(interrupt.tool for interrupt in interrupts)}?"
                case CallModel(tools=tools):
                    reply = self.client.chat(self.messages, tools=tools)
                    text, calls = reply["content"] or "", reply.get("tool_calls") or []
                    if text or calls:
                        self.messages.append(reply)
                    self.feed(machine, ModelRepliedInput(text=text, calls=tuple(map(as_call, calls))))
                case Conclude():
                    reply = self.client.chat(self.messages, tools=False)
                    text = reply["content"]
                    self.messages.append(reply)
                    self.feed(machine, ConcludedInput(text=text))
                case RunTools(calls=calls):
                    for call in calls:
                        self.call(machine, call)

    def call(self, machine: TurnMachine, call: Call) -> None:
        """Run a tool, or say that the call waits for a person."""
        if call.name in ASK_FIRST and not call.answers:
            self.feed(machine, CallWaitingInput(call=call.id, interrupt_kind=InterruptKind.APPROVAL))
            return
        self.feed(machine, CallStartedInput(call=call.id))
        try:
            status, result = CallStatus.OK, TOOLS[call.name](**call.arguments)
        except Exception as error:  # noqa: BLE001 (the model reads it)
            status, result = CallStatus.ERROR, f"{type(error).__name__}: {error}"
        self.feed(machine, CallSettledInput(call=call.id, status=status, result=result))

    def feed(self, machine: TurnMachine, event: Input) -> None:
        """Say what happened. Every call that has its result now gets its message, in this one place."""
        for fact in machine.feed(event):
            if isinstance(fact, facts.ModelReplied):
                self.ids.update({made.id: made.provider_id for made in fact.calls})
                for made in fact.calls:
                    if made.refused:
                        self.tell(made.id, made.refused)
            elif isinstance(fact, facts.CallSettled):
                self.tell(fact.call, fact.result)

    def tell(self, call: str, result: str) -> None:
        """The model is to read the result of a call."""
        self.messages.append({"role": "tool", "tool_call_id": self.ids[call], "content": result})


def as_call(call: Message) -> ToolCall:
    """A call as the machine wants it."""
    function = call["function"]
    return ToolCall(name=function["name"], arguments=json.loads(function["arguments"]), provider_id=call["id"])


if __name__ == "__main__":
    play(App)
