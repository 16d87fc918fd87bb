"""The capacity of a fleet on paper, in turns a second: the least that its slots, CPUs and connections allow.

    capacity(Fleet(workers=50), Work(steps=8, model=3.0), costs).turns

Nothing here was fitted to a run: the costs are those of one turn at a time. What it leaves out is what waits: a queue
makes turns slower, and not fewer, until something is full.
"""

from math import ceil
from typing import Final

from msgspec import Struct

#: Of a job without heartbeats: its start and its notification; its activity; its search attributes.
_ACTIONS: Final = 4
#: The parts of a fleet that use CPU.
PARTS: Final[tuple[str, ...]] = ("worker", "client", "postgres", "temporal")


class Cost(Struct, frozen=True):
    """A cost: so much for each turn, and so much for each step of it."""

    turn: float
    step: float

    def of(self, steps: int) -> float:
        """The cost of a turn of so many steps, and its answer."""
        return self.turn + self.step * steps

    @classmethod
    def through(cls, few: tuple[int, float], many: tuple[int, float]) -> "Cost":
        """The line through two measurements of (steps, cost). It is never below nothing: small costs are noise."""
        step = max((many[1] - few[1]) / (many[0] - few[0]), 0.0)
        return cls(max(few[1] - step * few[0], 0.0), step)


class Costs(Struct, frozen=True):
    """The unit costs. `cpu` is in CPU seconds, by part; `idle` is what a part uses each second with nothing to do.

    `waits`: the seconds that a turn holds its slot beyond its model and its tools. `commits` are those of appending
    facts; `commit` is the seconds that one takes. `actions` are what the Temporal server that was measured took in a
    second; None without one.
    """

    cpu: dict[str, Cost]
    idle: dict[str, float]
    waits: Cost
    commits: Cost
    commit: float
    actions: float | None = None


class StoreCost(Struct, frozen=True):
    """The cost of a turn to its store: rows, commits that write, and round trips to a server."""

    rows: int
    commits: int
    trips: int


def store_cost(steps: int, calls: int, parallel: int = 8) -> StoreCost:
    """Return the cost of a turn without a session, of so many steps with so many calls each, and its answer.

    A step appends its reply with the first calls that start, and then what ends and starts together, as many calls as
    run in parallel. Each append is a row and a commit. The creation is one of each too, and there are the rows of the
    turn and of its summary. The release is a commit. Beside these are a check of the driver's lock and a read of the
    inbox.
    """
    appends = steps * (1 + ceil(calls / parallel)) + 1
    commits = 1 + appends + 1
    return StoreCost(rows=1 + appends + 2, commits=commits, trips=commits + 2)


class Work(Struct, frozen=True):
    """A turn: `steps` steps with tools, and the answer; seconds of a model call, and of the tools of one step."""

    steps: int
    model: float
    tools: float = 0.0

    @property
    def thinking(self) -> float:
        """The seconds of its model and its tools."""
        return (self.steps + 1) * self.model + self.steps * self.tools


class Fleet(Struct, frozen=True):
    """The resources. `cores` are those of one machine that runs everything; None if each part has its own.

    Then a worker process has a core, for Python uses no more, and Postgres has as many as it says. `actions` are what
    Temporal takes in a second, where that is not the server that was measured: a namespace of Temporal Cloud has a
    limit. A turn sends a heartbeat every `heartbeat` seconds. `connections` are those of a worker's pool.
    """

    workers: int
    concurrency: int = 100
    cores: float | None = None
    postgres_cores: float = 4.0
    actions: float | None = None
    heartbeat: float = 2.0
    connections: int = 4


class Capacity(Struct, frozen=True):
    """Turns a second, by what bounds them. `slot` is the seconds for which a turn holds a slot."""

    bounds: dict[str, float]
    slot: float

    @property
    def turns(self) -> float:
        """The turns a second."""
        return min(self.bounds.values())

    @property
    def bound_by(self) -> str:
        """The part that limits them."""
        return min(self.bounds, key=self.bounds.__getitem__)


def capacity(fleet: Fleet, work: Work, costs: Costs) -> Capacity:
    """Return the turns a second of a fleet."""
    cpu = {part: cost.of(work.steps) for part, cost in costs.cpu.items()}
    idle = {part: costs.idle.get(part, 0.0) * (fleet.workers if part == "worker" else 1) for part in cpu}
    slot = work.thinking + costs.waits.of(work.steps)
    bounds = {
        "slots": _rate(fleet.workers * fleet.concurrency, slot),
        "connections": _rate(fleet.workers * fleet.connections, costs.commits.of(work.steps) * costs.commit),
    }
    action_rate = costs.actions if fleet.actions is None else fleet.actions
    bounds["Temporal"] = float("inf") if action_rate is None else action_rate / actions(slot, fleet.heartbeat)
    bounds["CPU of the workers"] = _rate(fleet.workers - idle.get("worker", 0.0), cpu.get("worker", 0.0))
    if fleet.cores is not None:
        bounds["CPU of all"] = _rate(fleet.cores - sum(idle.values()), sum(cpu.values()))
    else:
        bounds["CPU of Postgres"] = _rate(fleet.postgres_cores - idle.get("postgres", 0.0), cpu.get("postgres", 0.0))
    return Capacity(bounds, slot)


def actions(slot: float, heartbeat: float = 2.0) -> float:
    """The work of Temporal for a turn that holds its slot for so many seconds: it records each part.

    The first heartbeat is sent at once.
    """
    return _ACTIONS + 1 + slot / heartbeat


def _rate(there: float, seconds_each: float) -> float:
    """Return how often a second `seconds_each` fits into the available amount."""
    return max(there, 0.0) / seconds_each if seconds_each > 0 else float("inf")
