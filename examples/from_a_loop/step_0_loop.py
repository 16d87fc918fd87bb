"""Step 0: the usual first loop."""

import json
from collections.abc import Callable

from shop import Client, Message, charge, play, refund, search

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
        """Call the model and its tools until it requests no more tools."""
        while True:
            reply = self.client.chat(messages)
            messages.append(reply)
            if not reply.get("tool_calls"):
                text: str | None = reply["content"]
                return text
            for call in reply["tool_calls"]:
                function = call["function"]
                result = self.call(function["name"], json.loads(function["arguments"]))
                done = {"role": "tool", "tool_call_id": call["id"], "content": result}
                messages.append(done)

    def call(self, name: str, arguments: dict[str, int]) -> str:
        """Run a tool. Ask first if it needs approval."""
        if name in ASK_FIRST and input(f"{name} {arguments}?\n") != "yes":
            return "rejected by a person"
        return TOOLS[name](**arguments)

    def answer(self) -> str | None:
        """Return at once: this app asks only at the terminal."""
        return "nothing waits"


if __name__ == "__main__":
    play(App)
