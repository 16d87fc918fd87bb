"""The contract of every store, as pytest tests.

    class TestMyStore(StoreSuite):
        @pytest.fixture
        async def bench(self) -> AsyncIterator[Bench]:
            ...

The tests are marked `anyio` and run on its pytest plugin. Source: docs/rules.md#leases, and `turnwright.store.Store`.
"""

import pytest

from .annotations import AnnotationFacts
from .bench import Bench, Written
from .claim_spans import ClaimSpanFacts
from .claims import ClaimFacts
from .crowds import CrowdFacts
from .deletion import DeletionFacts
from .due import DueFacts
from .inboxes import InboxFacts
from .journal import JournalFacts
from .sessions import SessionFacts
from .turns import TurnFacts
from .watches import WatchFacts

__all__ = ["Bench", "StoreSuite", "Written"]


@pytest.mark.anyio
class StoreSuite(
    JournalFacts,
    ClaimFacts,
    InboxFacts,
    TurnFacts,
    ClaimSpanFacts,
    CrowdFacts,
    DeletionFacts,
    DueFacts,
    SessionFacts,
    AnnotationFacts,
    WatchFacts,
):
    """Subclass it, and define a fixture `bench` that gives a `Bench`."""
