"""Sends spans and metrics by OTLP over HTTP, with a time-out. Loaded only if the environment asks for it."""

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

#: Seconds to send the rest when the command ends, where the environment sets no time-out.
_LAST: Final = 3.0
_NAMELESS: Final = "unknown_service"
#: The default size of the queue of spans, as in OpenTelemetry's specification.
_QUEUE: Final = 2048

Complain = Callable[[], None]


class Sender:
    """Sends the signals in `signals` (`TRACES`, `METRICS`) to the endpoint of OpenTelemetry's standard environment.

    `say` is called once if something could not be sent. If more spans end than fit into the queue, it is called when
    the first is lost, and at the end with the number. Spans and metrics of the tools are sent as well. Raises
    `ValueError` for an invalid value in the environment.
    """

    def __init__(self, signals: Sequence[str], say: Callable[[str], None]) -> None:
        self._say = say
        self._said = threading.Lock()
        self._queue = _queue_size()
        self._overflowed = threading.Lock()
        self._waiting = _UnsentSpans(self._queue, self._overflows)
        # The exporter logs several lines for each try. One line from here is enough.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith(_NAMELESS):
            resource = resource.merge(Resource({SERVICE_NAME: "turnwright"}))
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        readers: list[PeriodicExportingMetricReader] = []
        if "TRACES" in signals:
            self._tracers.add_span_processor(
                _CountingProcessor(_SpanExporter(self._lost, self._waiting), self._queue, self._waiting)
            )
        if "METRICS" in signals:
            readers.append(PeriodicExportingMetricReader(_MetricExporter(self._lost)))
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
        # If the collector accepts nothing, the queue is full as well, and a longer queue would not help.
        if not self._said.locked() and self._overflowed.acquire(blocking=False):
            limit = f"({self._queue} spans): raise {OTEL_BSP_MAX_QUEUE_SIZE}"
            self._say(f"spans are lost, because the queue is full {limit}")

    def _lost(self) -> None:
        if self._said.acquire(blocking=False):
            self._say("the collector does not accept the data, and spans or metrics are lost")


class _UnsentSpans:
    """Counts the sampled spans that ended and were not sent: they are in the queue, or were dropped by a full queue.

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
        """Count spans that are being sent. The rest is in the queue, or lost."""
        with self._counting:
            self.number -= number
            over = self.number > self._room
        if over:
            self._overflows()


class _CountingProcessor(BatchSpanProcessor):
    def __init__(self, exporter: SpanExporter, size: int, waiting: _UnsentSpans) -> None:
        super().__init__(exporter, max_queue_size=size)
        self._counts = waiting

    def on_end(self, span: ReadableSpan) -> None:
        super().on_end(span)
        # Counted once it is in the queue: before that it cannot be lost.
        if span.context is not None and span.context.trace_flags.sampled:
            self._counts.ended()


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, complain: Complain, waiting: _UnsentSpans) -> None:
        super().__init__()
        self._complain = complain
        self._waiting = waiting

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See `SpanExporter.export`. Raises nothing."""
        self._waiting.taken(len(spans))
        try:
            result = super().export(spans)
        except Exception:  # noqa: BLE001 (some versions raise the errors of their HTTP client)
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self._complain()
        return result


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, complain: Complain) -> None:
        super().__init__()
        self._complain = complain

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = None, **kwargs: object
    ) -> MetricExportResult:
        """See `MetricExporter.export`. Raises nothing."""
        try:
            result = super().export(metrics_data, timeout_millis, **kwargs)
        except Exception:  # noqa: BLE001 (some versions raise the errors of their HTTP client)
            result = MetricExportResult.FAILURE
        if result is not MetricExportResult.SUCCESS:
            self._complain()
        return result


def _seconds_to_send() -> float:
    try:
        return float(os.environ[OTEL_EXPORTER_OTLP_TIMEOUT])
    except (KeyError, ValueError):  # the exporter itself reports a value that is not a number
        return _LAST


def _queue_size() -> int:
    """Return the size of the queue. Raises `ValueError` for a value that is not a number."""
    given = os.environ.get(OTEL_BSP_MAX_QUEUE_SIZE, "").strip()
    try:
        return int(given or _QUEUE)
    except ValueError:
        raise ValueError(f"{OTEL_BSP_MAX_QUEUE_SIZE}={given} is not a number") from None
