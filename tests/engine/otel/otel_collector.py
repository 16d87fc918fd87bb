"""An engine's telemetry, kept in memory."""

import json
from collections.abc import Sequence

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from turnwright.otel import OpenTelemetry

Point = HistogramDataPoint | NumberDataPoint


class Collector:
    """A telemetry, and the spans and points that it received."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics])
        self.telemetry = OpenTelemetry(self.tracers, self.meters)
        self.full = OpenTelemetry(self.tracers, self.meters, capture_content=True)

    @property
    def tracer(self) -> Tracer:
        """A tracer of somebody else's, such as a tool."""
        return self.tracers.get_tracer("somebody")

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The spans that have ended, in the order in which they began."""
        return sorted(self._spans.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans whose name begins so."""
        return [span for span in self.spans if span.name.startswith(name)]

    def one(self, name: str) -> ReadableSpan:
        """The one span whose name begins so."""
        (span,) = self.named(name)
        return span

    def tree(self) -> list[str]:
        """The names of the spans, each below the one that it is in."""
        names = {span.context.span_id: span.name for span in self.spans if span.context is not None}
        depths: dict[int, int] = {}
        lines: list[str] = []

        def add(parent: int | None, depth: int) -> None:
            for span in self.spans:
                above = span.parent.span_id if span.parent is not None else None
                if above == parent and span.context is not None and span.context.span_id not in depths:
                    depths[span.context.span_id] = depth
                    lines.append("  " * depth + names[span.context.span_id])
                    add(span.context.span_id, depth + 1)

        add(None, 0)
        return lines

    def points(self, name: str) -> list[Point]:
        """Return the points of the metric with this name."""
        data = self._metrics.get_metrics_data()
        assert data is not None
        points: list[Point] = []
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        points += [
                            data_point for data_point in metric.data.data_points if isinstance(data_point, Point)
                        ]
        return points

    def everything(self) -> str:
        """All of it, as text."""
        data = self._metrics.get_metrics_data()
        return "".join(span.to_json() for span in self.spans) + ("" if data is None else data.to_json())


def attributes(span: ReadableSpan) -> dict[str, object]:
    """The attributes of a span."""
    return dict(span.attributes or {})


def said(span: ReadableSpan, name: str) -> object:
    """An attribute that is JSON."""
    return json.loads(str(attributes(span)[name]))


def moves(span: ReadableSpan) -> list[str]:
    """The transitions of a span: `STREAM>FINISHED answered`."""
    transitions: list[str] = []
    for event in span.events:
        event_attributes = dict(event.attributes or {})
        reason = event_attributes.get("turnwright.reason")
        way = f"{event_attributes['turnwright.transition.from']}>{event_attributes['turnwright.transition.to']}"
        transitions.append(way if reason is None else f"{way} {reason}")
    return transitions
