"""Step 2: the machine returns the next action, and the loop performs it."""

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

TOOLS: dict[str, Callable[..., str]] = {
    "search": search,
    "refund": refund,
    "charge": charge,
}
ASK_FIRST = {"refund"}
LIMITS = Limits(steps=5, max_retries=1)


class App:
    """An app that answers messages. The current turn is in memory."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.machine: TurnMachine | None = None
        self.messages: list[Message] = []
        self.ids: dict[str, str] = {}

    def respond(self, messages: list[Message]) -> str | None:
        """Start a turn, and run it until it ends or pauses."""
        started = StartedInput(prompt=messages[-1]["content"], limits=LIMITS)
        self.machine, _ = TurnMachine.start(started)
        self.messages = messages
        return self.drive(self.machine)

    def answer(self) -> str | None:
        """Approve the questions of the turn in memory."""
        if self.machine is None:
            return "nothing waits"
        for interrupt in tuple(self.machine.turn.interrupts):
            approved = AnsweredInput(interrupt=interrupt, decision=Decision.APPROVE)
            self.feed(self.machine, approved)
        return self.drive(self.machine)

    def drive(self, machine: TurnMachine) -> str:
        """Perform one action of the machine after the other."""
        text = ""
        while True:
            match machine.action:
                case Halt() as halt:
                    text = text or REASONS[halt.reason].means
                    return f"{text} ({halt.outcome}: {halt.reason})"
                case AwaitPerson(interrupts=interrupts):
                    names = ", ".join(interrupt.tool for interrupt in interrupts)
                    return f"may I {names}?"
                case CallModel(tools=tools):
                    reply = self.client.chat(self.messages, tools=tools)
                    text, calls = reply["content"] or "", reply.get("tool_calls") or []
                    if text or calls:
                        self.messages.append(reply)
                    new_calls = tuple(as_call(call) for call in calls)
                    self.feed(machine, ModelRepliedInput(text=text, calls=new_calls))
                case Conclude():
                    reply = self.client.chat(self.messages, tools=False)
                    text = reply["content"]
                    self.messages.append(reply)
                    self.feed(machine, ConcludedInput(text=text))
                case RunTools(calls=calls):
                    for call in calls:
                        self.call(machine, call)

    def call(self, machine: TurnMachine, call: Call) -> None:
        """Run a tool, or report that the call waits for a person."""
        if call.name in ASK_FIRST and not call.answers:
            kind = InterruptKind.APPROVAL
            self.feed(machine, CallWaitingInput(call=call.id, interrupt_kind=kind))
            return
        self.feed(machine, CallStartedInput(call=call.id))
        try:
            status, result = CallStatus.OK, TOOLS[call.name](**call.arguments)
        except Exception as error:  # noqa: BLE001 (the model reads it)
            status, result = CallStatus.ERROR, f"{type(error).__name__}: {error}"
        self.feed(machine, CallSettledInput(call=call.id, status=status, result=result))

    def feed(self, machine: TurnMachine, event: Input) -> None:
        """Report an event. Append a message for each call that has a result now."""
        for fact in machine.feed(event):
            if isinstance(fact, facts.ModelReplied):
                self.ids.update({call.id: call.provider_id for call in fact.calls})
                for call in fact.calls:
                    if call.refused:
                        self.append_result(call.id, call.refused)
            elif isinstance(fact, facts.CallSettled):
                self.append_result(fact.call, fact.result)

    def append_result(self, call: str, result: str) -> None:
        """Append the result of a call to the messages."""
        done = {"role": "tool", "tool_call_id": self.ids[call], "content": result}
        self.messages.append(done)


def as_call(call: Message) -> ToolCall:
    """Convert a call for the machine."""
    function = call["function"]
    arguments = json.loads(function["arguments"])
    return ToolCall(name=function["name"], arguments=arguments, provider_id=call["id"])


if __name__ == "__main__":
    play(App)
