"""A hand-written agent loop, before and after it has a guard: `python examples/guarded_loop.py` (no network, no key).

The loop stays yours: your client, your messages, your tools. The guard says what to request, which calls run, and when
the loop is over.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

from turnwright import Limits
from turnwright_guards import GuardedLoop

#: Model calls after which somebody pulls the plug on a loop that does not end.
PLUG = 500
Json = dict[str, Any]


class PluggedOutError(Exception):
    """The user stopped the program because of the bill."""


class Client:
    """A scripted client in place of your provider's: it sums up when calls are forbidden."""

    def __init__(self, script: Iterator[list[int]]) -> None:
        self.script = script
        self.calls = 0

    def create(self, *, messages: list[Json], tools: list[str], tool_choice: str = "auto") -> Json:
        """One chat completion. The script has the pages that the model wants."""
        self.calls += 1
        if self.calls > PLUG:
            raise PluggedOutError
        if not tools or tool_choice == "none":
            return completion(f"I have seen {len(messages)} messages, and am not done.")
        return completion("", [json.dumps({"number": number}) for number in next(self.script)])


def completion(text: str, arguments_of_calls: list[str] | None = None) -> Json:
    """A chat completion with these calls of `read_page`."""
    calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": "read_page", "arguments": arguments}}
        for number, arguments in enumerate(arguments_of_calls or [])
    ]
    return {"choices": [{"message": {"role": "assistant", "content": text, "tool_calls": calls}}]}


def read_page(number: int) -> str:
    """The one tool."""
    return f"page {number} ... continued on page {number + 1}"


def before(client: Client) -> str:
    """The usual first loop, without a guard. Only the model can end it."""
    messages: list[Json] = [{"role": "user", "content": "What does the manual say?"}]
    while True:
        message = client.create(messages=messages, tools=["read_page"])["choices"][0]["message"]
        messages.append(message)
        if not message["tool_calls"]:
            return str(message["content"])
        for call in message["tool_calls"]:
            result = read_page(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def after(client: Client, limits: Limits) -> GuardedLoop:
    """The same loop with a guard."""
    with GuardedLoop([{"role": "user", "content": "What does the manual say?"}], limits) as loop:
        while loop.running:
            reply = client.create(**loop.request(tools=["read_page"]))
            for call in loop.reply(reply):
                loop.result(call, read_page(**call.arguments))
    return loop


def runs_away() -> Iterator[list[int]]:
    """A model that always wants the next page."""
    return ([number] for number in itertools.count(1))


def goes_in_circles() -> Iterator[list[int]]:
    """A model that reads two pages again and again."""
    return ([number] for number in itertools.cycle((1, 2)))


def wants_everything() -> Iterator[list[int]]:
    """A model that asks for eight pages at once."""
    return (list(range(8 * batch, 8 * batch + 8)) for batch in itertools.count())


def main() -> None:
    """Show three models that never finish, with each loop."""
    shows: tuple[tuple[Callable[[], Iterator[list[int]]], Limits], ...] = (
        (runs_away, Limits(steps=5)),
        (goes_in_circles, Limits(steps=50)),
        (wants_everything, Limits(tool_calls=20)),
    )
    for script, limits in shows:
        print(script.__name__.replace("_", " "))
        try:
            before(Client(script()))
        except PluggedOutError:
            print(f"  before: no end after {PLUG} model calls")
        client = Client(script())
        loop = after(client, limits)
        ran = sum(message["role"] == "tool" and message["content"].startswith("page") for message in loop.messages)
        print(f"  after:  {loop.ending}, with {ran} tool calls and {client.calls} model calls")
        print(f"          model: {loop.text}")


if __name__ == "__main__":
    main()
