"""A desk that waits for reports, which take a while and may fail."""

from itertools import chain, repeat
from typing import Final, Literal

import anyio

from turnwright import Agent, tool

#: The states of each report, one for each look.
STATES: Final = {"sales": ("queued", "running", "done"), "stock": ("queued", "failed")}


@tool(read_only=True, timeout=None)
async def wait_for_report(report: Literal["sales", "stock"]) -> str:
    """Wait for a report."""
    states = STATES[report]
    for state in chain(states, repeat(states[-1])):
        if state in ("done", "failed"):
            return f"the {report} report is {state}"
        await anyio.sleep(0.1)
    raise AssertionError("a report always has a state")


DESK = Agent(name="Report desk", instructions="Wait for reports.", tools=("wait_for_report",))
