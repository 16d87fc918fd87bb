"""Step 1: the same loop asks a guard before each model call."""

import json
from collections.abc import Callable

from shop import Client, Message, charge, play, refund, search

from turnwright_states import CallStatus, Limits, LoopGuard, Proceed, Stopped, ToolCall

TOOLS: dict[str, Callable[..., str]] = {
    "search": search,
    "refund": refund,
    "charge": charge,
}
ASK_FIRST = {"refund"}


class App:
    """An app that answers messages."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def respond(self, messages: list[Message]) -> str | None:
        """Call the model and its tools as long as the guard allows it."""
        guard, text = LoopGuard(Limits(steps=5, max_retries=1)), ""
        while True:
            may = guard.may_call_model()
            if isinstance(may, Stopped) and not may.conclude:
                return f"{text or may.words} ({may.outcome}: {may.reason})"
            reply = self.client.chat(
                messages, tools=isinstance(may, Proceed) and may.tools
            )
            text, calls = reply["content"] or "", reply.get("tool_calls") or []
            if text or calls:
                messages.append(reply)
            if isinstance(may, Stopped):
                guard.concluded(text)
                continue
            permits = guard.replied(text, [as_call(call) for call in calls])
            # An empty reply has no permits.
            for call, permit in zip(calls, permits, strict=False):
                result = permit.refusal
                if permit.runs:
                    guard.started(permit.id)
                    status, result = self.call(call["function"])
                    guard.result(permit.id, status, result)
                done = {"role": "tool", "tool_call_id": call["id"], "content": result}
                messages.append(done)

    def call(self, function: Message) -> tuple[CallStatus, str]:
        """Run a tool. Ask first if it needs approval. Always return a result."""
        name, arguments = function["name"], json.loads(function["arguments"])
        try:
            if name in ASK_FIRST and input(f"{name} {arguments}?\n") != "yes":
                return CallStatus.REJECTED, "rejected by a person"
            return CallStatus.OK, TOOLS[name](**arguments)
        except Exception as error:  # noqa: BLE001 (the model reads it)
            return CallStatus.ERROR, f"{type(error).__name__}: {error}"

    def answer(self) -> str | None:
        """Return at once: this app asks only at the terminal."""
        return "nothing waits"


def as_call(call: Message) -> ToolCall:
    """Convert a call for the guard."""
    function = call["function"]
    arguments = json.loads(function["arguments"])
    return ToolCall(name=function["name"], arguments=arguments, provider_id=call["id"])


if __name__ == "__main__":
    play(App)
