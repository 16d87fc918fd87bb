"""Faults, injected on purpose: into stores, processes, disks, and clocks.

For those who want to know what their own tools and stores do when the process dies.
"""

from .machine import JumpingClock, full_disk
from .process import DriverProcess
from .store import FaultyStore, KillAt, KillingStore, kill_this_process
from .witness import Ran, Witness, WitnessLine
from .wrapper import StoreCall, StoreWrapper

__all__ = [
    "DriverProcess",
    "FaultyStore",
    "JumpingClock",
    "KillAt",
    "KillingStore",
    "Ran",
    "StoreCall",
    "StoreWrapper",
    "Witness",
    "WitnessLine",
    "full_disk",
    "kill_this_process",
]
