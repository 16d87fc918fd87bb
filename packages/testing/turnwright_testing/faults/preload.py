"""Imports of the process that the others are forked from, so that they import nothing more."""

import gc
import importlib
import importlib.util
from typing import Final

#: The modules that the first event loop, and the first connection to a database, would import.
_LATER: Final = ("anyio._backends._asyncio", "turnwright.runtime.engine", "turnwright_testing.faults.watched")
#: Likewise, where what they need is installed.
_OPTIONAL: Final = {
    "psycopg": "psycopg",
    "psycopg_pool": "psycopg_pool",
    "pytest": "turnwright_testing.runtime_suite.worker",
    "temporalio": "turnwright.runtime.temporal.runtime",
}

for _name in _LATER:
    importlib.import_module(_name)
for _package, _name in _OPTIONAL.items():
    if importlib.util.find_spec(_package) is not None:
        importlib.import_module(_name)
gc.freeze()  # a child need not look through all of this again
