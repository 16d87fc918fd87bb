"""The ids of turns."""

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
