"""The whole suite."""

import pytest

from .annotations import AnnotationFacts
from .claim_spans import ClaimSpanFacts
from .claims import ClaimFacts
from .crowds import CrowdFacts
from .deletion import DeletionFacts
from .due import DueFacts
from .inboxes import InboxFacts
from .journal import JournalFacts
from .outbox import OutboxFacts
from .sessions import SessionFacts
from .summaries import SummaryFacts
from .turns import TurnFacts
from .watches import WatchFacts


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
    SummaryFacts,
    AnnotationFacts,
    OutboxFacts,
    WatchFacts,
):
    """Subclass it, and define a fixture `bench` that gives a `Bench`."""
