"""Faults, injected on purpose: into stores, processes, disks, and clocks.

For those who want to know what their own tools and stores do when the process dies. A database server to stop and
start is in `turnwright_testing.postgres_server`; `python -m turnwright_testing.faults` runs the campaign of kills that
`docs/evidence.md` reports.
"""

from .clock import JumpingClock
from .disk import full_disk
from .kill import KillAt, KillingStore, kill_this_process
from .process import DriverProcess
from .store import FaultyStore
from .witness import Ran, Witness, WitnessLine
from .wrapper import StoreWrapper

__all__ = [
    "DriverProcess",
    "FaultyStore",
    "JumpingClock",
    "KillAt",
    "KillingStore",
    "Ran",
    "StoreWrapper",
    "Witness",
    "WitnessLine",
    "full_disk",
    "kill_this_process",
]
