"""The shared part of the tables of a SQLite store: the connection, and how it is read and written."""

import sqlite3
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager


class SqliteTables(ABC):
    """Some tables of a SQLite database."""

    _db: sqlite3.Connection

    @abstractmethod
    def _reading(self) -> AbstractAsyncContextManager[None]:
        """Read in the block. Errors of SQLite become errors of the store."""

    @abstractmethod
    def _transaction(self) -> AbstractAsyncContextManager[None]:
        """Write in the block, all of it or nothing. Errors of SQLite become errors of the store."""
