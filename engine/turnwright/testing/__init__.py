"""For those who test what they build on Turnwright: stores that fail on purpose, and suites that a store must pass.

`store_suite` needs pytest and is imported by itself.
"""

from .faults import FaultyStore

__all__ = ["FaultyStore"]
