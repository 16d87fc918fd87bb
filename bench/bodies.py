"""The cost of a request's body as a turn grows: 200 steps of two calls each, for each protocol.

    python bench/bodies.py [--steps 200] [--calls 2] [--repeat 5]

Prints, for each wire and what its servers take, the CPU time a step of the first and the last quarter, their ratio,
and how many functions are called for the second request and for the last one. Only the body is built: the request is
made to fit and encoded, and nothing is sent. Of several turns the fastest counts. The body itself grows, and so does
the time it takes to copy it once; what is done for each of its messages must not.
"""

import argparse
import cProfile
import gc
import pstats
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Final

from turnwright.message import Message, ToolCallPart, ToolSpec
from turnwright.model.anthropic import request as anthropic_wire
from turnwright.model.capabilities import Capabilities
from turnwright.model.fit import fit
from turnwright.model.openai_chat import request as openai_wire
from turnwright.model.protocol import ModelRequest

QUARTERS: Final = 4
TOOLS: Final = tuple(
    ToolSpec(name, f"{name} a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
    for name in ("look", "read", "write", "find")
)

#: Builds the body of one request, or what takes its place.
Build = Callable[[ModelRequest], object]


def openai(capabilities: Capabilities) -> Build:
    """Bodies of chat completions."""
    encoder = openai_wire.OpenAIEncoder("m", capabilities=capabilities)
    return lambda request: encoder.encode(fit(request, capabilities))


def anthropic(capabilities: Capabilities) -> Build:
    """Bodies of the Messages API."""
    encoder = anthropic_wire.AnthropicEncoder("m", thinking={"type": "adaptive"}, capabilities=capabilities)
    return lambda request: encoder.encode(fit(request, capabilities))


def pydantic_ai(capabilities: Capabilities) -> Build:
    """Messages of pydantic-ai, which makes bodies of its own out of them."""
    from turnwright.model.pydantic_ai.request import messages_of, parameters_of  # noqa: PLC0415 (an extra)

    return lambda request: (messages_of(fit(request, capabilities).messages), parameters_of(request))


DEFAULT: Final = Capabilities()
STRICT: Final = Capabilities(strict_alternation=True)
SINGLE: Final = Capabilities(parallel_tool_calls=False)
BOTH: Final = Capabilities(strict_alternation=True, parallel_tool_calls=False)
WIRES: Final[Mapping[str, Callable[[], Build]]] = {
    "chat completions": lambda: openai(DEFAULT),
    "chat, strict turns": lambda: openai(STRICT),
    "chat, one call at a time": lambda: openai(SINGLE),
    "chat, both": lambda: openai(BOTH),
    "Messages API": lambda: anthropic(DEFAULT),
    "Messages API, both": lambda: anthropic(BOTH),
    "pydantic-ai": lambda: pydantic_ai(DEFAULT),
}


def requests(steps: int, calls: int) -> list[ModelRequest]:
    """The requests of one turn. Its messages are the same objects in each."""
    messages = [Message.system("You are a careful engineer."), Message.user("Look everywhere.")]
    model_requests: list[ModelRequest] = []
    for step in range(steps):
        model_requests.append(ModelRequest(tuple(messages), tools=TOOLS, first=step == 0))
        call_parts = [ToolCallPart(id=f"call{step}-{n}", name="look", arguments={"place": n}) for n in range(calls)]
        messages.append(Message.assistant("Looking", call_parts))
        messages += [Message.result(call.id, "look", f"nothing at {call.arguments}") for call in call_parts]
    return model_requests


def times(build: Build, model_requests: list[ModelRequest]) -> list[float]:
    """The CPU time of each body, in microseconds."""
    spent: list[float] = []
    for request in model_requests:
        begun = time.process_time_ns()
        build(request)
        spent.append((time.process_time_ns() - begun) / 1000)
    return spent


def called(build: Build, model_requests: list[ModelRequest], number: int) -> int:
    """Return the number of function calls for the request of that number, after those before it."""
    for request in model_requests[:number]:
        build(request)
    profile = cProfile.Profile()
    profile.enable()
    build(model_requests[number])
    profile.disable()
    # One of them is what ends the profile.
    return int(getattr(pstats.Stats(profile), "total_calls", 1)) - 1


def measure(name: str, wire: Callable[[], Build], steps: int, calls: int, repeat: int) -> None:
    """Print a row of the table."""
    quarter = max(steps // QUARTERS, 1)
    turns: list[list[float]] = []
    for _ in range(repeat):
        model_requests = requests(steps, calls)
        gc.collect()
        turns.append(times(wire(), model_requests))
    # The first body of a turn pays for what is made only once.
    first = min(statistics.fmean(turn[1:quarter]) for turn in turns)
    last = min(statistics.fmean(turn[-quarter:]) for turn in turns)
    second, end = called(wire(), requests(steps, calls), 1), called(wire(), requests(steps, calls), steps - 1)
    print(f"{name:24}  {first:9.1f}  {last:9.1f}  {last / first:6.2f}  {second:9,}  {end:9,}")


def main() -> None:
    """Read the flags, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--calls", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    quarter = options.steps // QUARTERS
    print(f"{options.steps} steps of {options.calls} calls; us a step, and functions called")
    print(f"{'':24}  {f'first {quarter}':>9}  {f'last {quarter}':>9}  {'ratio':>6}  {'second':>9}  {'last':>9}")
    for name, wire in WIRES.items():
        measure(name, wire, options.steps, options.calls, options.repeat)


if __name__ == "__main__":
    main()
