"""A hand-written agent loop, before and after it asks a guard: `python examples/guarded_loop.py` (no network, no key).

The loop stays yours: your client, your messages, your tools. It reports each event to the guard, which decides whether
the model may be called again, and if not, why.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic

from turnwright_states import CallStatus, Limits, LoopGuard, Proceed, Stopped, ToolCall

#: Model calls after which somebody pulls the plug on a loop that does not end.
PLUG = 500


@dataclass
class Reply:
    """A reply of your client."""

    text: str = ""
    #: (id, tool, arguments) of each call.
    calls: list[tuple[str, str, dict[str, int]]] = field(default_factory=list)


class PluggedOutError(Exception):
    """The user stopped the program because of the bill."""


class Client:
    """A scripted client in place of your provider's: it sums up when it has no tools."""

    def __init__(self, script: Iterator[Reply]) -> None:
        self.script = script
        self.calls = 0

    def chat(self, messages: list[str], *, tools: bool) -> Reply:
        """One model call."""
        self.calls += 1
        if self.calls > PLUG:
            raise PluggedOutError
        return next(self.script) if tools else Reply(f"I have seen {len(messages)} messages, and am not done.")


def read_page(number: int) -> str:
    """The one tool."""
    return f"page {number} ... continued on page {number + 1}"


def before(client: Client) -> str:
    """The usual first loop, without a guard. Only the model can end it."""
    messages = ["user: What does the manual say?"]
    while True:
        reply = client.chat(messages, tools=True)
        messages.append(f"assistant: {reply.text}")
        if not reply.calls:
            return reply.text
        messages += [f"tool {name}: {read_page(**arguments)}" for _, name, arguments in reply.calls]


def after(client: Client, guard: LoopGuard) -> str:
    """The same loop, which asks the guard before each model call and reports each event."""
    messages, text, began = ["user: What does the manual say?"], "", monotonic()
    while True:
        may = guard.may_call_model()
        if isinstance(may, Stopped) and not may.conclude:
            return text
        reply = client.chat(messages, tools=isinstance(may, Proceed) and may.tools)
        text = reply.text
        messages.append(f"assistant: {text}")
        if isinstance(may, Stopped):
            guard.concluded(text, elapsed=monotonic() - began)
            continue
        calls = [ToolCall(name=name, arguments=arguments, provider_id=own) for own, name, arguments in reply.calls]
        permits = guard.replied(text, calls, elapsed=monotonic() - began)
        for (_, name, arguments), permit in zip(reply.calls, permits, strict=True):
            result = permit.refusal
            if permit.runs:
                guard.started(permit.id)
                result = read_page(**arguments)
                guard.result(permit.id, CallStatus.OK, result, elapsed=monotonic() - began)
            messages.append(f"tool {name}: {result}")


def runs_away() -> Iterator[Reply]:
    """A model that always wants the next page."""
    return (Reply(calls=[("id", "read_page", {"number": number})]) for number in itertools.count(1))


def goes_in_circles() -> Iterator[Reply]:
    """A model that reads two pages again and again."""
    return (Reply(calls=[("id", "read_page", {"number": number})]) for number in itertools.cycle((1, 2)))


def wants_everything() -> Iterator[Reply]:
    """A model that asks for eight pages at once."""
    return (
        Reply(calls=[("id", "read_page", {"number": 8 * batch + number}) for number in range(8)])
        for batch in itertools.count()
    )


def main() -> None:
    """Show three models that never finish, with each loop."""
    shows: tuple[tuple[Callable[[], Iterator[Reply]], Limits], ...] = (
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
        client, guard = Client(script()), LoopGuard(limits)
        text = after(client, guard)
        stop, used = guard.may_call_model(), guard.machine.turn.counters
        if isinstance(stop, Stopped):
            print(f"  after:  {stop.reason} at {used.steps} steps, {used.calls} tool calls, {client.calls} model calls")
            print(f"          {stop.words}")
            print(f"          model: {text}")


if __name__ == "__main__":
    main()
