"""Shared by the tests of OpenTelemetry."""

from collections.abc import Iterator

import pytest

from .told import Told


@pytest.fixture
def told() -> Iterator[Told]:
    """A telemetry that keeps all spans and points in memory."""
    told = Told()
    yield told
    told.tracers.shutdown()
    told.meters.shutdown()
