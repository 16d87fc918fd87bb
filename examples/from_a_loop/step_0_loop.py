"""Step 0: the loop that everybody writes first."""

import json
from collections.abc import Callable

from shop import Client, Message, charge, play, refund, search

TOOLS: dict[str, Callable[..., str]] = {"search": search, "refund": refund, "charge": charge}
ASK_FIRST = {"refund"}


class App:
    """Answers messages."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def respond(self, messages: list[Message]) -> str | None:
        """Call the model, and the tools that it asks for, until it asks for none."""
        while True:
            reply = self.client.chat(messages)
            messages.append(reply)
            if not reply.get("tool_calls"):
                text: str | None = reply["content"]
                return text
            for call in reply["tool_calls"]:
                result = self.call(call["function"]["name"], json.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    def call(self, name: str, arguments: dict[str, int]) -> str:
        """Run a tool, or ask first."""
        if name in ASK_FIRST and input(f"{name} {arguments}? ") != "yes":
            return "a person said no"
        return TOOLS[name](**arguments)

    def answer(self) -> str | None:
        """There is nothing to answer: whoever is asked must sit at the terminal."""
        return "nothing waits"


if __name__ == "__main__":
    play(App)
