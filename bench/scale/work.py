"""A worker process of the scale run: an engine whose model and tools take their time, and write down what they did."""

import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from turnwright import Agent, Engine, Usage, tool
from turnwright.model.protocol import ModelRequest, ModelResponse, TextDelta
from turnwright.model.scripted import asks_for
from turnwright.runtime import Local, Runtime, Temporal
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, InboxItem, Status, open_store
from turnwright.tools import Tool, ToolContext
from turnwright_states.facts import Fact
from turnwright_testing.faults import Witness
from turnwright_testing.faults.watched import NotingStore, describe_pairing

AGENT: Final = Agent(name="Clerk")
#: Those of a step, in this order: a crash reruns the first, and makes the second one's outcome unknown.
TOOLS: Final = ("put", "send")
_USAGE: Final = Usage(input_tokens=100, output_tokens=10)


@dataclass(frozen=True, slots=True)
class Role:
    """The role of a process of the run, and its place.

    `address` is the store's; `temporal` the service's, or empty for the runtime that needs none. Turns take `steps`
    steps of two calls, and the answer after them; a model call takes `model` seconds, a tool call `tool` seconds.
    """

    address: str
    temporal: str
    queue: str
    witness: Path
    concurrency: int
    steps: int
    model: float
    tool: float

    def engine(self) -> Engine:
        """The engine of a worker, and of who submits to it."""
        witness = Witness(self.witness)
        return Engine(
            model=SlowModel(witness, self.steps, self.model),
            tools=slow_tools(witness, self.tool),
            store=TimedStore(self.address, witness),
            runtime=self.runtime(),
        )

    def runtime(self) -> Runtime:
        """The runtime of the turns, with its default times."""
        if self.temporal:
            return Temporal(self.temporal, queue=self.queue, concurrency=self.concurrency)
        return Local(concurrency=self.concurrency)


async def work(role: Role) -> None:
    """Work until the process is killed. What it says stands beside its witness."""
    with role.witness.with_suffix(".log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    async with role.engine() as engine:
        await engine.run_worker()


class TimedStore(NotingStore):
    """Writes down what was acknowledged, and how long each append took: `took {turn} {microseconds}`.

    Beside each claim stands the time of the wall clock: `held {turn} {epoch} {seconds}`.
    """

    def __init__(self, address: str, witness: Witness) -> None:
        super().__init__(open_store(address), witness)
        self._times = witness

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        """See `Store.claim`."""
        claim = await super().claim(turn_id, abandoned=abandoned)
        self._times.note("held", turn_id, claim.epoch, time.time())
        return claim

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        start = time.perf_counter()
        waiting = await super().append(claim, facts, status, consumed)
        self._times.note("took", claim.turn, round(1e6 * (time.perf_counter() - start)))
        return waiting


class SlowModel:
    """Asks for two calls in each of so many steps, then answers. It takes `seconds` for each, and no CPU."""

    name = "slow"

    def __init__(self, witness: Witness, steps: int, seconds: float) -> None:
        self._witness = witness
        self._steps = steps
        self._seconds = seconds

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        """Stream the reply. See `Model.stream`."""
        self._witness.note("asked", describe_pairing(request))
        await anyio.sleep(self._seconds)
        step = sum(bool(message.calls) for message in request.messages)
        yield TextDelta("Well")
        if step < self._steps:
            yield asks_for(*((name, {"n": step}) for name in TOOLS), text="Well", usage=_USAGE)
        else:
            yield ModelResponse(text="Well, that is all.", usage=_USAGE)


def slow_tools(witness: Witness, seconds: float) -> list[Tool]:
    """A tool that may be run again after a crash, and one that may not."""

    @tool(idempotent=True)
    async def put(context: ToolContext, n: int) -> str:
        """Put something in its place; twice does no harm."""
        with witness.runs(context):
            await anyio.sleep(seconds)
        return f"put {n}"

    @tool
    async def send(context: ToolContext, n: int) -> str:
        """Send something; twice is one too many."""
        with witness.runs(context):
            await anyio.sleep(seconds)
        return f"sent {n}"

    return [put, send]
