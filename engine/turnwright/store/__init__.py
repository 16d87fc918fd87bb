"""Stores keep journals: in memory, in SQLite or in PostgreSQL."""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# An app that keeps its turns in memory or in PostgreSQL does not load SQLite, and few apps annotate turns. The help of
# a command lists the addresses and needs no store.
if TYPE_CHECKING:
    from .address import StoreScheme, open_store
    from .annotations import Annotation, AnnotationKind, AnnotationStore
    from .memory import MemoryStore
    from .protocol import (
        NOBODY,
        NONE_ABANDONED,
        QUEUED,
        AbandonedDrivers,
        Changed,
        Claim,
        ClaimSpan,
        DueTurn,
        InboxItem,
        InboxKind,
        NewTurn,
        Queued,
        Status,
        Store,
        TurnRow,
    )
    from .sessions import SessionInfo
    from .sqlite.store import SqliteStore
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".address": "StoreScheme open_store",
            ".annotations": "Annotation AnnotationKind AnnotationStore",
            ".memory": "MemoryStore",
            ".protocol": (
                "AbandonedDrivers Changed Claim ClaimSpan DueTurn InboxItem InboxKind NOBODY NONE_ABANDONED NewTurn "
                "QUEUED Queued Status Store TurnRow"
            ),
            ".sessions": "SessionInfo",
            ".sqlite.store": "SqliteStore",
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
    "DueTurn",
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
