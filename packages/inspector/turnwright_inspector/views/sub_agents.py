"""The steps of a turn's sub-agents, at every depth."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from turnwright.errors import StoreError, TurnNotFoundError
from turnwright.journal.subturns import sub_turns
from turnwright.store import Store, TurnRow
from turnwright.transcript.reading import reading

from .steps import Step, steps_of

#: The most turns of sub-agents that a page reads.
MOST: Final = 50


@dataclass(frozen=True, slots=True)
class SubAgent:
    """The turn of a sub-agent: its id, its steps so far, and its own sub-agents, by the call that they belong to."""

    id: str
    steps: tuple[Step, ...]
    below: Mapping[str, "SubAgent"]
    live: bool = False


async def sub_agents(store: Store, rows: Mapping[str, TurnRow]) -> Mapping[str, SubAgent]:
    """Read the turns of these rows, which are by call, and those below; the first ones, where there are very many."""
    left = [MOST]

    async def read(rows: Mapping[str, TurnRow]) -> Mapping[str, SubAgent]:
        found: dict[str, SubAgent] = {}
        for call, row in rows.items():
            if left[0] <= 0:
                break
            left[0] -= 1
            with suppress(TurnNotFoundError, StoreError):  # deleted since, or damaged
                facts = await store.facts(row.id)
                with reading(row.id):
                    steps = steps_of(facts, ())
                below = await read(await sub_turns(store, row.id, facts))
                found[call] = SubAgent(row.id, steps, below, live=row.status.outcome is None)
        return found

    return await read(rows)
