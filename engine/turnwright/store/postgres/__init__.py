"""The store in PostgreSQL."""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# The address can be parsed without loading the store.
if TYPE_CHECKING:
    from .store import PostgresStore
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".store": "PostgresStore",
        },
        extra="turnwright[postgres]",
    )

__all__ = ["PostgresStore"]
