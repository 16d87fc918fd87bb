"""Stores: where the journal lives."""

from .address import open_store
from .memory import MemoryStore
from .protocol import NOBODY, Claim, InboxItem, InboxKind, NewTurn, Status, Store, TurnRow
from .sqlite import SqliteStore

__all__ = [
    "NOBODY",
    "Claim",
    "InboxItem",
    "InboxKind",
    "MemoryStore",
    "NewTurn",
    "SqliteStore",
    "Status",
    "Store",
    "TurnRow",
    "open_store",
]
