"""Stores keep journals: in memory, in SQLite or in PostgreSQL."""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

from .address import StoreScheme, open_store
from .memory import MemoryStore
from .protocol import (
    NOBODY,
    NONE_ABANDONED,
    QUEUED,
    AbandonedDrivers,
    Changed,
    Claim,
    ClaimSpan,
    InboxItem,
    InboxKind,
    NewTurn,
    Queued,
    Status,
    Store,
    TurnRow,
)
from .sessions import SessionInfo

# An app that keeps its turns in memory or in PostgreSQL does not load SQLite, and few apps annotate turns.
if TYPE_CHECKING:
    from .annotations import Annotation, AnnotationKind, AnnotationStore
    from .sqlite.store import SqliteStore
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "SqliteStore": ".sqlite.store",
            **dict.fromkeys(("Annotation", "AnnotationKind", "AnnotationStore"), ".annotations"),
        },
    )

__all__ = [
    "NOBODY",
    "NONE_ABANDONED",
    "QUEUED",
    "AbandonedDrivers",
    "Annotation",
    "AnnotationKind",
    "AnnotationStore",
    "Changed",
    "Claim",
    "ClaimSpan",
    "InboxItem",
    "InboxKind",
    "MemoryStore",
    "NewTurn",
    "Queued",
    "SessionInfo",
    "SqliteStore",
    "Status",
    "Store",
    "StoreScheme",
    "TurnRow",
    "open_store",
]
