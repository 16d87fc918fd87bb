"""Checks that concurrent calls of a store have an order: histories of tasks and processes, and a sequential model.

`StoreSuite` uses it. `run_history` records processes that are killed and stopped.
"""

from .calls import StoreCall, StoreResult
from .checker import Linearization, Operation, SequentialModel, linearize
from .concurrent import explain_history, record_history
from .history import StoreHistory, StoreOperation
from .processes import run_history
from .store_model import StoreModel

__all__ = [
    "Linearization",
    "Operation",
    "SequentialModel",
    "StoreCall",
    "StoreHistory",
    "StoreModel",
    "StoreOperation",
    "StoreResult",
    "explain_history",
    "linearize",
    "record_history",
    "run_history",
]
