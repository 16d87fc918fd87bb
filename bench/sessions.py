"""The cost of a turn against the number of turns in its session.

    python -m bench.sessions [--turns 500] [--plot FILE]

A turn is one step: a text in answer to a text. Prints for each subject the CPU of turns by their place, in
milliseconds: the median of the ten turns around each place. `--plot` also draws them.
"""

import argparse
import asyncio
import cProfile
import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.turnwright_turns import Turnwright, TurnwrightSqlite
from bench.yardstick import Script, run

PLACES: Final = (5, 20, 50, 100, 200, 300, 400, 500)
AROUND: Final = 5


async def cpu(subject: Turnwright, turns: int) -> dict[int, float]:
    """Return the CPU of turns of one session by their place, in milliseconds."""
    subject.session = "s"
    spent: list[float] = []
    async with subject.opened():
        for _ in range(turns + AROUND):
            began = time.process_time()
            await run(subject, Script(1))
            spent.append((time.process_time() - began) * 1e3)
    return {at: statistics.median(spent[max(at - AROUND, 1) : at + AROUND]) for at in PLACES if at <= turns}


async def calls(subject: Turnwright, *places: int) -> list[int]:
    """Return the function calls of the turns at these places of one session."""
    subject.session = "s"
    counts: dict[int, int] = {}
    async with subject.opened():
        for number in range(1, max(places) + 1):
            with cProfile.Profile() as profile:
                await run(subject, Script(1))
            counts[number] = sum(entry.callcount for entry in profile.getstats())
    return [counts[place] for place in places]


def plot(found: Mapping[str, Mapping[int, float]], path: Path) -> None:
    """Draw the cost against the number of turns, a line for each subject."""
    from bench.plots import Line, turns_in_a_session  # noqa: PLC0415 (matplotlib comes with the extra `bench`)

    turns_in_a_session([Line(name, [*map(float, line)], [*line.values()]) for name, line in found.items()], path)


def main() -> None:
    """Measure and print; draw, if asked."""
    parser = argparse.ArgumentParser(description="Measures turns by their place in a session.")
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--plot", type=Path, metavar="FILE")
    asked = parser.parse_args()
    found = {one.name: asyncio.run(cpu(one, asked.turns)) for one in (Turnwright(), TurnwrightSqlite())}
    print(json.dumps(found, indent=1))
    if asked.plot is not None:
        plot(found, asked.plot)


if __name__ == "__main__":
    main()
