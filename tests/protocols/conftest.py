"""The engine of the tests of protocols."""

from collections.abc import AsyncIterator

import pytest
from tests.protocols.subject import make_engine

from turnwright import Engine


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """Return an engine whose model does what the words of `subject.py` say."""
    async with make_engine() as engine:
        yield engine
