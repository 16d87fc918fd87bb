"""Shared by the tests of what is told to OpenTelemetry."""

from collections.abc import Iterator

import pytest

from .told import Told


@pytest.fixture
def told() -> Iterator[Told]:
    """A telemetry that keeps what it is told."""
    told = Told()
    yield told
    told.tracers.shutdown()
    told.meters.shutdown()
