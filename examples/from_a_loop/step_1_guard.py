"""Step 1: the same loop asks a guard before each model call."""

from collections.abc import Callable

from shop import Client, Message, charge, play, refund, search

from turnwright import Limits
from turnwright_guards import GuardedLoop

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
        with GuardedLoop(messages, Limits(steps=5, max_retries=1)) as loop:
            while loop.running:
                request = loop.request(tools=True)
                tools = "tool_choice" not in request
                reply = self.client.chat(request["messages"], tools=tools)
                for call in loop.reply({"choices": [{"message": reply}]}):
                    failed, result = self.call(call.name, **call.arguments)
                    loop.result(call, result, error=failed)
        return f"{loop.text} ({loop.ending})"

    def call(self, name: str, **arguments: object) -> tuple[bool, str]:
        """Run a tool. Ask first if it needs approval. Always return a result."""
        try:
            if name in ASK_FIRST and input(f"{name} {arguments}?\n") != "yes":
                return True, "rejected by a person"
            return False, TOOLS[name](**arguments)
        except Exception as error:  # noqa: BLE001 (the model reads it)
            return True, f"{type(error).__name__}: {error}"

    def answer(self) -> str | None:
        """Return at once: this app asks only at the terminal."""
        return "nothing waits"


if __name__ == "__main__":
    play(App)
