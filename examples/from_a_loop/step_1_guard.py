"""Step 1: the same loop, which asks a guard before each model call and tells it what happened."""

import json
from collections.abc import Callable

from shop import Client, Message, charge, play, refund, search

from turnwright_states import CallStatus, Limits, LoopGuard, Proceed, Stopped, ToolCall

TOOLS: dict[str, Callable[..., str]] = {"search": search, "refund": refund, "charge": charge}
ASK_FIRST = {"refund"}


class App:
    """Answers messages."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def respond(self, messages: list[Message]) -> str | None:
        """Call the model, and the tools that it asks for, as long as the guard says so."""
        guard, text = LoopGuard(Limits(steps=5, max_retries=1)), ""
        while True:
            may = guard.may_call_model()
            if isinstance(may, Stopped) and not may.conclude:
                return f"{text or may.words} ({may.outcome}: {may.reason})"
            reply = self.client.chat(messages, tools=isinstance(may, Proceed) and may.tools)
            text, calls = reply["content"] or "", reply.get("tool_calls") or []
            if text or calls:
                messages.append(reply)
            if isinstance(may, Stopped):
                guard.concluded(text)
                continue
            permits = guard.replied(text, [as_call(call) for call in calls])
            for call, permit in zip(calls, permits, strict=False):  # no permits for a reply that was empty
                result = permit.refusal
                if permit.runs:
                    guard.started(permit.id)
                    status, result = self.call(call["function"]["name"], json.loads(call["function"]["arguments"]))
                    guard.result(permit.id, status, result)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    def call(self, name: str, arguments: dict[str, int]) -> tuple[CallStatus, str]:
        """Run a tool, or ask first. Whatever happens, the call has a result."""
        try:
            if name in ASK_FIRST and input(f"{name} {arguments}? ") != "yes":
                return CallStatus.REJECTED, "a person said no"
            return CallStatus.OK, TOOLS[name](**arguments)
        except Exception as error:  # noqa: BLE001 (the model reads it)
            return CallStatus.ERROR, f"{type(error).__name__}: {error}"

    def answer(self) -> str | None:
        """There is nothing to answer: whoever is asked must sit at the terminal."""
        return "nothing waits"


def as_call(call: Message) -> ToolCall:
    """A call as the guard wants it."""
    function = call["function"]
    return ToolCall(name=function["name"], arguments=json.loads(function["arguments"]), provider_id=call["id"])


if __name__ == "__main__":
    play(App)
