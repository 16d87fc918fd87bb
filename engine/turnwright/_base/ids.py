"""Ids of turns, and names of processes."""

import os
import secrets
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

#: Makes a random text of so many bytes, in hexadecimal digits. A simulation sets another source, to be repeatable.
TOKENS: Final[ContextVar[Callable[[int], str]]] = ContextVar("tokens", default=secrets.token_hex)


def new_id() -> str:
    """Return an id for a new turn."""
    return TOKENS.get()(8)


def child_id(turn: str, call: str) -> str:
    """Return the id of the turn that a call of `turn` runs (docs/rules.md#sub-agents)."""
    return f"{turn}:{call}"


def root_of(turn: str) -> str:
    """Return the outermost turn, which is `turn` itself or has it as a sub-agent at any depth."""
    return turn.partition(":")[0]


def process_name() -> str:
    """Return a unique name for this process. Process numbers alone are reused."""
    return f"{os.getpid()}-{TOKENS.get()(6)}"
