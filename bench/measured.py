"""The measurements of one subject, as they are printed and kept. Standard library only."""

from typing import TypedDict


class Steps(TypedDict):
    """CPU a step at one number of steps."""

    cpu_us: float
    bare_us: float
    ratio: float
    pairs: int


class Growth(TypedDict):
    """The last 50 of 200 steps over the first 50, and the CPU of each ten."""

    ratio: float
    runs: int
    by_ten_us: list[float]


class Bytes(TypedDict):
    """Bytes a step, in the first 50 and the last 50 of 200 steps: in the store, and handed to the system to write."""

    first: float
    last: float
    written_first: float | None
    written_last: float | None


class Flight(TypedDict):
    """So many turns at once. `right` of `turns` ended as they should, in each round."""

    turns: int
    right: int
    looks_missing: int
    steps_per_cpu_s: float
    cpu_s: float
    wall_s: float
    kib_per_turn: float | None
    rounds: int


class Known(TypedDict):
    """The properties of a subject without measurement, and why parts of it were not measured."""

    name: str
    python: str
    versions: dict[str, str]
    modules: list[str]
    notes: list[str]
    flight: dict[str, Flight]
    failed: dict[str, str]


class Measured(Known, total=False):
    """All that was measured of one subject. A part that failed is missing."""

    steps: dict[str, Steps]
    growth: Growth
    calls_per_step: float
    bytes: Bytes | None
    peak_mib: float
    import_ms: float
