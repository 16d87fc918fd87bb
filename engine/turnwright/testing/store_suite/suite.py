"""The whole suite."""

import pytest

from .claims import ClaimFacts
from .deletion import DeletionFacts
from .inboxes import InboxFacts
from .journal import JournalFacts
from .turns import TurnFacts


@pytest.mark.anyio
class StoreSuite(JournalFacts, ClaimFacts, InboxFacts, TurnFacts, DeletionFacts):
    """Subclass it, and define a fixture `bench` that gives a `Bench`."""
