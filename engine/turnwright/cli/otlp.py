"""Sends spans and metrics by OTLP over HTTP, and gives up in time. Loaded only where that is asked for."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_QUEUE_SIZE, OTEL_EXPORTER_OTLP_TIMEOUT
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from turnwright.otel import OpenTelemetry

#: Seconds in which what is left has to be sent when the command is over, where the environment sets no time-out.
_LAST: Final = 3.0
_NAMELESS: Final = "unknown_service"
#: How many spans may wait to be sent where the environment does not say: what OpenTelemetry's specification says.
_QUEUE: Final = 2048

Complain = Callable[[], None]


class Sender:
    """Sends the signals in `signals` (`TRACES`, `METRICS`) where OpenTelemetry's own environment says.

    `say` is told, once, that something could not be sent; and, where more spans end than can wait, that some are lost,
    and in the end how many. What tools trace and measure themselves is sent as well. Raises `ValueError` for a value in
    the environment that cannot be.
    """

    def __init__(self, signals: Sequence[str], say: Callable[[str], None]) -> None:
        self._say = say
        self._said = threading.Lock()
        self._queue = _queue_size()
        self._overflowed = threading.Lock()
        self._waiting = _Waiting(self._queue, self._overflows)
        # It tells of each try in several lines; that something is lost is told here, once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith(_NAMELESS):
            resource = resource.merge(Resource({SERVICE_NAME: "turnwright"}))
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        readers: list[PeriodicExportingMetricReader] = []
        if "TRACES" in signals:
            self._tracers.add_span_processor(_Queue(_Spans(self._lost, self._waiting), self._queue, self._waiting))
        if "METRICS" in signals:
            readers.append(PeriodicExportingMetricReader(_Metrics(self._lost)))
        self._meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        trace.set_tracer_provider(self._tracers)
        metrics.set_meter_provider(self._meters)
        self.telemetry = OpenTelemetry(self._tracers, self._meters)

    def close(self) -> None:
        ends = time.monotonic() + _seconds_to_send()
        last = [threading.Thread(target=one.shutdown, daemon=True) for one in (self._tracers, self._meters)]
        for thread in last:
            thread.start()
        for thread in last:
            thread.join(max(ends - time.monotonic(), 0.0))
        if any(thread.is_alive() for thread in last):
            self._lost()
        elif self._waiting.number > 0:
            self._overflows()
            if not self._said.locked():
                self._say(f"{self._waiting.number} spans were lost")

    def _overflows(self) -> None:
        # A collector that takes nothing fills the queue too, and a longer one would be no help.
        if not self._said.locked() and self._overflowed.acquire(blocking=False):
            room = f"more of them wait than there is room for ({self._queue}): {OTEL_BSP_MAX_QUEUE_SIZE} makes more"
            self._say(f"spans are lost, for {room}")

    def _lost(self) -> None:
        if self._said.acquire(blocking=False):
            self._say("the collector does not take what it is sent, and spans or metrics are lost")


class _Waiting:
    """How many sampled spans ended and were not taken to be sent: they wait, or were dropped by a full queue.

    `overflows` is called when some were certainly dropped.
    """

    def __init__(self, room: int, overflows: Complain) -> None:
        self._room = room
        self._overflows = overflows
        self._counting = threading.Lock()
        self.number = 0

    def ended(self) -> None:
        with self._counting:
            self.number += 1

    def taken(self, number: int) -> None:
        """So many are sent now. What is left is in the queue, or lost."""
        with self._counting:
            self.number -= number
            over = self.number > self._room
        if over:
            self._overflows()


class _Queue(BatchSpanProcessor):
    def __init__(self, exporter: SpanExporter, size: int, waiting: _Waiting) -> None:
        super().__init__(exporter, max_queue_size=size)
        self._counts = waiting

    def on_end(self, span: ReadableSpan) -> None:
        super().on_end(span)
        # Counted when it is in the queue: what is not there yet is not lost.
        if span.context is not None and span.context.trace_flags.sampled:
            self._counts.ended()


class _Spans(OTLPSpanExporter):
    def __init__(self, complain: Complain, waiting: _Waiting) -> None:
        super().__init__()
        self._complain = complain
        self._waiting = waiting

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See `SpanExporter.export`. It raises nothing, as that wants it."""
        self._waiting.taken(len(spans))
        try:
            result = super().export(spans)
        except Exception:  # noqa: BLE001 (some versions raise what their HTTP client does)
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self._complain()
        return result


class _Metrics(OTLPMetricExporter):
    def __init__(self, complain: Complain) -> None:
        super().__init__()
        self._complain = complain

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = None, **kwargs: object
    ) -> MetricExportResult:
        """See `MetricExporter.export`. It raises nothing, as that wants it."""
        try:
            result = super().export(metrics_data, timeout_millis, **kwargs)
        except Exception:  # noqa: BLE001 (some versions raise what their HTTP client does)
            result = MetricExportResult.FAILURE
        if result is not MetricExportResult.SUCCESS:
            self._complain()
        return result


def _seconds_to_send() -> float:
    try:
        return float(os.environ[OTEL_EXPORTER_OTLP_TIMEOUT])
    except (KeyError, ValueError):  # the exporter says so where it is no number
        return _LAST


def _queue_size() -> int:
    """How many spans may wait. Raises `ValueError` for what is no number."""
    said = os.environ.get(OTEL_BSP_MAX_QUEUE_SIZE, "").strip()
    try:
        return int(said or _QUEUE)
    except ValueError:
        raise ValueError(f"{OTEL_BSP_MAX_QUEUE_SIZE}={said} is no number") from None
