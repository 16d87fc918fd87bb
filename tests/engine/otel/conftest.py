"""Shared by the tests of OpenTelemetry."""

from collections.abc import Iterator

import pytest

from .otel_collector import Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A telemetry that keeps all spans and points in memory."""
    collector = Collector()
    yield collector
    collector.tracers.shutdown()
    collector.meters.shutdown()
