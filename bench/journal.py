"""How many bytes a long turn writes a step: 200 steps of 10 calls each, into SQLite.

    python bench/journal.py [--steps 200] [--calls 10]

Prints, for each quarter of the turn, the bytes of the facts' payloads, and the bytes that the process wrote to files
(the WAL and the checkpoints, in whole pages), a step. Flat means that the last quarter is like the first: nothing that
is written grows with the turn. `/proc` is read, so it needs Linux for the second figure.
"""

import argparse
import itertools
import statistics
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio

from turnwright import Agent, Engine, tool
from turnwright.events import FactEvent, TurnEvent
from turnwright.model.protocol import Reply, ReplyCall, Request
from turnwright.store import SqliteStore
from turnwright_states import Usage
from turnwright_states.facts import StepStarted

QUARTERS: Final = 4


class Asking:
    """A model that asks for so many calls in each of so many steps, and then answers."""

    name = "asking"

    def __init__(self, steps: int, calls: int) -> None:
        self._left = steps - 1
        self._calls = calls

    async def stream(self, request: Request) -> AsyncIterator[Reply]:
        """One reply, at once."""
        usage = Usage(input_tokens=len(request.messages), output_tokens=10)
        if not self._left:
            yield Reply(text="All done.", usage=usage)
            return
        self._left -= 1
        at = range(self._left * self._calls, (self._left + 1) * self._calls)
        yield Reply(calls=tuple(ReplyCall(id=f"c{n}", name="look", arguments={"place": n}) for n in at), usage=usage)


@tool
async def look(place: int) -> str:
    """Look at a place."""
    return f"nothing at {place:5}"


async def measure(folder: Path, steps: int, calls: int) -> None:
    """Run the turn, and print the table."""
    written: list[int] = []

    def note(event: TurnEvent) -> None:
        if isinstance(event, FactEvent) and isinstance(event.fact, StepStarted):
            written.append(bytes_written())

    store = SqliteStore(folder / "turns.db")
    agent = Agent(name="Long", steps=steps, budget=steps * calls)
    async with Engine(model=Asking(steps, calls), tools=[look], store=store, observers=[note]) as engine:
        turn = await engine.run(agent, "Look everywhere.")
        facts = [fact for _, fact in await store.facts(turn.id)]
    print(f"{turn.outcome}: {turn.steps} steps, {turn.tool_calls} calls, {len(facts)} facts")
    sizes: list[int] = []
    for fact in facts:
        if isinstance(fact, StepStarted):
            sizes.append(0)
        if sizes:
            sizes[-1] += len(fact.payload().encode())
    disk = [after - before for before, after in itertools.pairwise(written)]
    print(f"{'steps':>9}  {'payload, bytes a step':>22}  {'written to files, bytes a step':>31}")
    # The last step answers in text, and is no step like the others.
    for first in range(0, steps - 1, steps // QUARTERS):
        part = slice(first, min(first + steps // QUARTERS, steps - 1))
        print(f"{part.start + 1:4}-{part.stop:4}  {mean(sizes[part]):22,.0f}  {mean(disk[part]):31,.0f}")
    quarter = steps // QUARTERS
    tail = slice(steps - 1 - quarter, steps - 1)
    print(f"last {quarter} / first {quarter}: payload {mean(sizes[tail]) / mean(sizes[:quarter]):.3f}", end="")
    print(f", files {mean(disk[tail]) / mean(disk[:quarter]):.3f}" if any(disk) else "")


def bytes_written() -> int:
    """What this process has handed to the operating system to write so far; 0 where that cannot be known."""
    path = Path("/proc/self/io")
    if not path.exists():
        return 0
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith("wchar"))


def mean(values: list[int]) -> float:
    """The mean; 0 of nothing."""
    return statistics.fmean(values) if values else 0.0


def main() -> None:
    """Read the flags, and measure in a folder that is removed afterwards."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--calls", type=int, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(measure, Path(folder), asked.steps, asked.calls)


if __name__ == "__main__":
    main()
