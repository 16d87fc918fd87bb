"""One schedule: a world that lives through its choices, and the checks of what it leaves."""

import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from random import getstate, seed, setstate
from typing import Final

import anyio

from turnwright._base.ids import TOKENS
from turnwright.agent import Agent
from turnwright.context import JsonObject
from turnwright.runtime.engine import Engine
from turnwright.tools import Tool
from turnwright.tools.loop_handle import INLINE
from turnwright_states.verdict import Check
from turnwright_testing.invariants import InvariantViolatedError, select_violated
from turnwright_testing.run_report import ending_of

from .checks import checks_of
from .choices import Choices, Made
from .loop import NeverRestsError, NobodyRunsError, SimulatedLoop
from .people import People
from .world import RETURNS, World

_LOGGERS: Final = ("turnwright", "asyncio")


@dataclass(frozen=True, slots=True)
class SimulationTarget:
    """The agent that is simulated, the tools that stand-ins replace, and the builder of each process's engine.

    `build` is called with some arguments of `Engine`, which it passes on: the simulated model, tools, store and clocks,
    and limits. Write one to add hooks, guardrails or dependencies, such as `partial(Engine, hooks=[...])`.
    Each turn has the `metadata`.
    """

    agent: Agent[None, object]
    tools: tuple[Tool, ...] = ()
    build: Callable[..., Engine[None]] = Engine
    metadata: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The record of one schedule.

    `choices` repeat it (`run_schedule(target, choices=...)`). `trace` says what happened, one line each. `journals` has
    the facts of each turn as JSON, and `ends` the ending of each. `seconds` are those of the virtual clock.
    """

    seed: int
    choices: Made
    trace: Sequence[str]
    journals: Mapping[str, Sequence[str]]
    ends: Sequence[str]
    checks: Sequence[Check]
    seconds: float

    @property
    def violations(self) -> tuple[Check, ...]:
        """The claims that do not hold, with what was seen."""
        return select_violated(self.checks)


def run_schedule(target: SimulationTarget, seed: int = 0, *, choices: Made | None = None) -> Schedule:
    """Run one schedule, drawn from `seed` or with given `choices`, and check it. The same input gives the same record.

    Raises `ConfigError` for an agent that cannot run with these tools.
    """
    schedule_choices = Choices(seed, choices)
    world = World(target.agent, target.tools, target.build, schedule_choices, target.metadata)
    with _alone(world, seed):
        loop = SimulatedLoop(world.choose_next)
        world.clock = loop.time
        try:
            loop.run(_live(world))
        except (NobodyRunsError, NeverRestsError) as error:
            waiting = ", ".join(world.open_calls.values()) or "none"
            world.violate(RETURNS, f"{error}; calls that have not returned: {waiting}")
    if world.cannot_run is not None:
        raise world.cannot_run
    turns = world.disk.turns_now()
    return Schedule(
        seed=seed,
        choices=schedule_choices.made,
        trace=world.trace,
        journals={turn: [fact.payload() for fact in world.disk.facts_now(turn)] for turn in turns},
        ends=[ending_of(world.disk.facts_now(turn)[-1]) for turn in turns],
        checks=checks_of(world),
        seconds=loop.time(),
    )


def assert_schedule(schedule: Schedule) -> None:
    """Raise `InvariantViolatedError` unless every claim holds."""
    if schedule.violations:
        raise InvariantViolatedError(schedule.violations)


async def _live(world: World) -> None:
    async with anyio.create_task_group() as group:
        await People(world, group).live()
        group.cancel_scope.cancel()


@contextmanager
def _alone(world: World, number: int) -> Iterator[None]:
    """Let nothing from outside decide: ids, the wall clock, random numbers, threads, and the garbage collector."""
    loggers = {logger: logger.level for logger in map(logging.getLogger, _LOGGERS)}
    numbers, before, wall = count(1), getstate(), time.time
    tokens = TOKENS.set(lambda size: f"{next(numbers):0{2 * size}x}")
    inline = INLINE.set(True)
    collects = gc.isenabled()
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        seed(number)
        time.time = world.now
        gc.disable()
        yield
    finally:
        time.time = wall
        setstate(before)
        TOKENS.reset(tokens)
        INLINE.reset(inline)
        if collects:
            gc.enable()
        for logger, level in loggers.items():
            logger.setLevel(level)
