"""Ids of turns, and names of processes."""

import os
import secrets


def new_id() -> str:
    """Return an id for a new turn."""
    return secrets.token_hex(8)


def child_id(turn: str, call: str) -> str:
    """Return the id of the turn that a call of `turn` runs (docs/rules.md#sub-agents)."""
    return f"{turn}:{call}"


def root_of(turn: str) -> str:
    """Return the outermost turn, which is `turn` itself or has it as a sub-agent at any depth."""
    return turn.partition(":")[0]


def process_name() -> str:
    """Return a unique name for this process. Process numbers alone are reused."""
    return f"{os.getpid()}-{secrets.token_hex(6)}"
