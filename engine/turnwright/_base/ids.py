"""The ids of turns, and the names of the processes that drive them."""

import os
import secrets


def new_id() -> str:
    """An id for a new turn."""
    return secrets.token_hex(8)


def child_id(turn: str, call: str) -> str:
    """The id of the turn that a call of `turn` drives (DESIGN 4.14)."""
    return f"{turn}:{call}"


def root_of(turn: str) -> str:
    """The turn that a person began, and whose sub-agent, near or far, `turn` is; `turn` itself if it is that."""
    return turn.partition(":")[0]


def process_name() -> str:
    """A name for this process that no process has twice. A process number alone would come again."""
    return f"{os.getpid()}-{secrets.token_hex(6)}"
