"""Turns to look at: as a fuzzer drove them, and one of each kind that takes more than a script."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from turnwright import Agent, Engine, tool
from turnwright.model import ScriptedModel
from turnwright.store import MemoryStore, NewTurn, Status, Store
from turnwright.tools import Tool
from turnwright_inspector.views.pagination import Window
from turnwright_inspector.views.turn_record import TabContext, history_of, read_turn
from turnwright_states import TurnMachine
from turnwright_states import facts as f
from turnwright_testing import Driven

AGENT = Agent(name="Anybody", instructions="You are somebody.")


@tool
async def ok(n: int = 0) -> str:
    """It works."""
    return f"ok {n}"


@tool(loop_key=lambda _: "always the same")
async def fail() -> str:
    """It does not."""
    raise ValueError("boom")


@tool(needs_approval=True)
async def ask(n: int = 0) -> str:
    """It asks."""
    return f"allowed {n}"


@tool(idempotent=True)
async def again(n: int = 0) -> str:
    """It may run again."""
    return f"again {n}"


TOOLS: tuple[Tool, ...] = (ok, fail, ask, again)


async def keep(store: Store, name: str, facts: Sequence[f.Fact]) -> None:
    """Write a turn of these facts, whatever they are."""
    first = facts[0]
    session = first.session if isinstance(first, f.TurnStarted) else None
    try:
        status = Status.of(TurnMachine.resume(facts).turn)
    except Exception:  # noqa: BLE001 (a forged journal: its driver may have said anything)
        status = Status(facts[-1].state)
    claim = await store.create(NewTurn(name, session, AGENT.name, "wayward", 1.0), facts, status)
    await store.release(claim)


async def kept(driven: Sequence[Driven]) -> tuple[Engine, tuple[str, ...]]:
    """An engine on a store that has these turns, and their ids."""
    engine = Engine(model=ScriptedModel(), tools=TOOLS, store=MemoryStore())
    names = tuple(f"turn{number}" for number in range(len(driven)))
    for name, scripted_turn in zip(names, driven, strict=True):
        await keep(engine.store, name, [fact for _, fact in scripted_turn.facts])
    return engine, names


async def look(engine: Engine, name: str, step: str | None = None, at: int | None = None) -> TabContext:
    """Return the context that the tabs of a turn's page receive."""
    turn = await read_turn(engine.store, name, at)
    history = await history_of(engine.store, turn)
    return TabContext(engine, turn, turn.step(step), "sqlite:///turns.db", history)


class Parted(Protocol):
    """A tab that shows a window of its rows."""

    @property
    def window(self) -> Window | None:
        """The rows that are shown; None for all."""
        ...


Shown = TypeVar("Shown", bound=Parted)
Row = TypeVar("Row")


def rows_of(
    view: Callable[[TabContext], Shown], looked: TabContext, rows: Callable[[Shown], Sequence[Row]]
) -> list[Row]:
    """All rows that a tab shows, over all its pages."""
    by_place: dict[int, Row] = {}
    until: int | None = sys.maxsize
    while until is not None:
        part = view(replace(looked, until=until))
        assert part.window is not None
        by_place |= dict(enumerate(rows(part), start=part.window.first))
        until = part.window.earlier
    return [by_place[place] for place in sorted(by_place)]


async def look_at_each_step(engine: Engine, name: str) -> Mapping[str, TabContext]:
    """The same for each step, by its key."""
    whole = await look(engine, name)
    return {step.key: TabContext(engine, whole.turn, step, whole.store, whole.history) for step in whole.turn.steps}
