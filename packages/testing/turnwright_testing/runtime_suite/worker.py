"""A worker in a process of its own: an engine with tools that a test can watch, and a scripted model."""

import json
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from pydantic import JsonValue

from turnwright.agent import Agent
from turnwright.context import TurnInfo
from turnwright.driver.subagents import agent_tool
from turnwright.model.protocol import ModelRequest, ModelResponse, TextDelta
from turnwright.model.retry import Backoff
from turnwright.model.scripted import asks_for
from turnwright.runtime import Runtime
from turnwright.runtime.engine import Engine
from turnwright.store import open_store
from turnwright.tools import Tool, ToolContext, tool
from turnwright_states import Usage
from turnwright_testing.faults.watched import NotingStore, describe_pairing, watched_tools
from turnwright_testing.faults.witness import Witness

AGENT: Final = Agent(name="Clerk")
#: The releases of the tools that a worker may have.
OLD, NEW, POOR = 1, 2, 3
_HELPER: Final = Agent(name="Helper", description="Does a part of the work, which its prompt describes.")
#: A call of a plan that is none: the model itself waits at a gate.
_THINKS: Final = "think"
_USAGE: Final = Usage(input_tokens=9, output_tokens=3)

#: One call: the tool, and the number that it is given, or its arguments.
Call = tuple[str, int | Mapping[str, JsonValue]]


@dataclass(frozen=True, slots=True)
class Shift:
    """The settings of a worker: its store, its runtime, and the release of its tools.

    The witness records its work; its log is the file `{witness}-log`.
    """

    address: str
    witness: Path
    make_runtime: Callable[[], Runtime]
    version: int = OLD

    @property
    def log(self) -> Path:
        return self.witness.with_name(f"{self.witness.name}-log")


async def work(shift: Shift) -> None:
    """Run as a worker until SIGTERM, which stops it like an operator."""
    logging.basicConfig(
        filename=shift.log, level=logging.WARNING, format="%(process)d %(levelname)s %(message)s", force=True
    )
    witness = Witness(shift.witness)
    stopping = anyio.Event()
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with engine_of(shift, shift.make_runtime()) as engine, anyio.create_task_group() as group:

            async def listen() -> None:
                async for _ in signals:
                    stopping.set()
                    witness.note("stops")

            group.start_soon(listen)
            witness.note("works")
            await engine.run_worker(stopping)
            group.cancel_scope.cancel()


async def begin(shift: Shift, words: str) -> None:
    async with engine_of(shift, shift.make_runtime()) as engine:
        await engine.run(AGENT, words)


@dataclass(frozen=True, slots=True)
class Desk:
    """The dependencies of a turn: the place that its metadata names."""

    name: str


async def desk_of(turn: TurnInfo) -> AsyncIterator[Desk]:
    yield Desk(str(turn.metadata.get("desk", "")))


def engine_of(shift: Shift, runtime: Runtime) -> Engine[Desk]:
    witness = Witness(shift.witness)
    return Engine(
        deps=desk_of,
        model=PromptedModel(witness),
        tools=_tools(witness, shift.version),
        store=NotingStore(open_store(shift.address), witness),
        backoff=Backoff(initial=0.0, max_retry_after=0.0),
        cancel_grace=0.1,
        poll_interval=0.05,
        runtime=runtime,
    )


def prompt(*steps: Sequence[Call]) -> str:
    """Return the model's script: the tools of each step, before the final text."""
    return json.dumps(steps)


def helper(*steps: Sequence[Call]) -> Call:
    """Return a call of the sub-agent, which does these steps."""
    return _HELPER.tool_name, {"prompt": prompt(*steps)}


def thinks(gate: int) -> Call:
    """Return a step without a call: the model waits until the gate is open."""
    return _THINKS, gate


class PromptedModel:
    """A model that follows the script in the prompt. Its reply depends on the conversation alone."""

    name = "prompted"

    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        self._witness.note("asked", describe_pairing(request))
        prompts = [message.text for message in request.messages if message.role == "user"]
        steps: list[list[Call]] = json.loads(prompts[0])
        step = sum(bool(message.calls) for message in request.messages)
        yield TextDelta("Well")
        if step >= len(steps) or request.tool_choice == "none":
            messages = "".join(f" {text}" for text in prompts[1:])
            yield ModelResponse(text=f"Well, that is all.{messages}", usage=_USAGE)
            return
        for name, gate in steps[step]:
            if name == _THINKS and isinstance(gate, int):
                self._witness.note("thinks", gate)
                await self._witness.gate_opened(gate)
        yield asks_for(
            *(_call(*planned_call) for planned_call in steps[step] if planned_call[0] != _THINKS),
            text="Well",
            usage=_USAGE,
        )


def _call(name: str, arguments: int | Mapping[str, JsonValue]) -> tuple[str, Mapping[str, JsonValue]]:
    return name, {"n": arguments} if isinstance(arguments, int) else arguments


def _tools(witness: Witness, version: int) -> list[Tool[Desk]]:
    """Return one release's tools: the new one's erase differs, and it has `stamp`; the poor one has no erase."""

    @tool
    async def tell_desk(context: ToolContext[Desk], n: int) -> str:
        """Name the desk that the turn is for."""
        with witness.runs(context):
            return f"{n} is for {context.deps.name}"

    @tool(needs_approval=True)
    async def erase(context: ToolContext, n: int) -> str:
        """Erase something for good, with approval."""
        with witness.runs(context):
            return f"erased {n} for good"

    @tool
    async def stamp(context: ToolContext, n: int) -> str:
        """Stamp something."""
        with witness.runs(context):
            return f"stamped {n}"

    tools: list[Tool[Desk]] = [*watched_tools(witness), agent_tool(_HELPER), tell_desk]
    if version == OLD:
        return tools
    kept_tools = [tool for tool in tools if tool.name != erase.name]
    return [*kept_tools, erase, stamp] if version == NEW else [*kept_tools, stamp]
