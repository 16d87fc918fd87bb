"""Finds the spans in a recording: OTLP JSON, and what exporters of OpenTelemetry SDKs and of trace stores print."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pydantic import JsonValue

from turnwright_audit.trajectories.shapes import read_json, read_object
from turnwright_audit.trajectories.source import Recording, partial_documents, seconds_of

Attributes = dict[str, JsonValue]

#: Keys of lists that lead from a document to its spans.
_LEADS: Final = (
    *("resourceSpans", "resource_spans", "batches", "scopeSpans", "scope_spans"),
    *("instrumentationLibrarySpans", "spans", "data"),
)
#: Where the spans of a document can be, for one that is cut.
_PATHS: Final = (
    *("resourceSpans.item.scopeSpans.item.spans.item", "resource_spans.item.scope_spans.item.spans.item"),
    *("resourceSpans.item.instrumentationLibrarySpans.item.spans.item", "batches.item.scopeSpans.item.spans.item"),
    *("item.resourceSpans.item.scopeSpans.item.spans.item", "item.spans.item", "spans.item", "data.item", "item"),
)
_LARGEST: Final = 1e300
_SCALES: Final = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
#: Levels of nesting that are followed.
_DEPTH: Final = 16
_VALUES: Final = ("stringValue", "intValue", "doubleValue", "boolValue", "arrayValue", "kvlistValue", "bytesValue")


class SpanEvent(NamedTuple):
    """An event of a span."""

    name: str
    attributes: Attributes


class Span(NamedTuple):
    """A span, with flat attributes. Times are seconds since 1970; 0 if unknown. `error` is None if it has no error."""

    trace: str
    id: str
    parent: str
    name: str
    start: float
    end: float
    error: str | None
    attributes: Attributes
    events: list[SpanEvent]
    service: str

    def text(self, *keys: str) -> str:
        """Return the first of these attributes that is a text and not empty."""
        for key in keys:
            value = self.attributes.get(key)
            if isinstance(value, str) and value:
                return value
        return ""

    def number(self, *keys: str) -> float | None:
        """Return the first of these attributes that is a number, or the text of one."""
        for key in keys:
            number = as_number(self.attributes.get(key))
            if number is not None:
                return number
        return None


class SpanDump:
    """The spans of a recording. Once iterated, `unreadable` and `cut` say what could not be read."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.unreadable = 0
        self.cut = False

    def __iter__(self) -> Iterator[Span]:
        data = self._recording.data()
        if data is not None:
            document = read_json(data)
            if document is not None:
                yield from _spans(document, "")
                return
        ways = [self._pieces, self._sequence]
        if _is_sequence(self._recording):
            ways.reverse()
        for way in ways:
            self.unreadable, self.cut = 0, False
            has_spans = False
            for span in way():
                has_spans = True
                yield span
            if has_spans:
                return

    def _sequence(self) -> Iterator[Span]:
        """Yield the spans of objects that follow each other, one per line or printed over many lines."""
        parts: list[bytes] = []
        in_lines = False
        with self._recording.open() as stream:
            for raw in stream:
                line = raw.rstrip()
                document: JsonValue = None
                if line.startswith(b"{"):
                    self.unreadable += bool(parts)
                    document = read_object(line)
                    parts = [] if document else [line]
                    in_lines = in_lines or document is not None
                elif parts:
                    parts.append(line)
                    if line == b"}":
                        document = read_object(b"\n".join(parts))
                        self.unreadable += document is None
                        parts = []
                else:  # between printed spans there may be other output
                    self.unreadable += in_lines and bool(line)
                yield from _spans(document, "")
        self.cut = bool(parts)

    def _pieces(self) -> Iterator[Span]:
        """Yield the complete spans of a document that is cut, corrupt or huge."""
        for path in _PATHS:
            items = self._recording.items(path)
            has_spans = False
            for item in items:
                for span in _spans(item, ""):
                    has_spans = True
                    yield span
            self.cut = items.cut
            if has_spans:
                return


def holds_spans(recording: Recording) -> bool:
    """Whether the document, or a record of it, has the shape of spans."""
    document = recording.document
    begin = recording.head.find(b"\n{") if document is None else -1  # behind other output of the program
    if begin >= 0:
        documents = partial_documents(recording.head[begin:]).values
        document = documents[0] if documents else None
    if isinstance(document, list):
        document = document[0] if document else None
    return _shaped(document) or any(_shaped(record) for record in recording.records)


def as_number(value: JsonValue) -> float | None:
    """Return a number, also one that is given as text; None for one that nothing can be computed with."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _LARGEST else None


def _is_sequence(recording: Recording) -> bool:
    """Whether a second object begins a line of its own."""
    objects = 0
    for line in recording.raw_lines():
        if line.startswith(b"[") and not objects:
            return False
        objects += line.startswith(b"{")
        if objects > 1:
            return True
    return False


def _shaped(value: JsonValue) -> bool:
    if not isinstance(value, Mapping):
        return False
    if any(isinstance(value.get(key), list) for key in ("resourceSpans", "resource_spans", "batches")):
        return True
    for key in ("spans", "data"):
        inner = value.get(key)
        if isinstance(inner, list) and inner and _is_span(inner[0]):
            return True
    return _is_span(value)


def _is_span(value: JsonValue) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        return False
    context = value.get("context")
    ids: Mapping[str, JsonValue] = context if isinstance(context, Mapping) else value
    return any(ids.get(key) for key in ("span_id", "spanId")) and any(ids.get(key) for key in ("trace_id", "traceId"))


def _spans(value: JsonValue, service: str, depth: int = 0) -> Iterator[Span]:
    """Yield the spans of a document, through the lists that lead to them."""
    if depth > _DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _spans(item, service, depth + 1)
    elif isinstance(value, Mapping):
        if _is_span(value):
            yield _span(value, service)
            return
        service = _service(value.get("resource")) or service
        for key in _LEADS:
            inner = value.get(key)
            if isinstance(inner, list) and key == "spans":  # also those without ids
                yield from (_span(span, service) for span in inner if isinstance(span, Mapping))
            elif isinstance(inner, list):
                yield from _spans(inner, service, depth + 1)


def _span(value: Mapping[str, JsonValue], service: str) -> Span:
    context = value.get("context")
    ids: Mapping[str, JsonValue] = context if isinstance(context, Mapping) else value
    parent = value.get("parent")
    if isinstance(parent, Mapping):
        parent = parent.get("span_id") or parent.get("spanId")
    attributes = _attributes(value.get("attributes"))
    kind = value.get("span_kind")
    if isinstance(kind, str):
        attributes.setdefault("openinference.span.kind", kind)
    name = value.get("name")
    events = value.get("events")
    events_read = [_event(event) for event in events if isinstance(event, Mapping)] if isinstance(events, list) else []
    return Span(
        trace=_id(ids.get("trace_id") or ids.get("traceId")),
        id=_id(ids.get("span_id") or ids.get("spanId")),
        parent=_id(parent or value.get("parent_id") or value.get("parent_span_id") or value.get("parentSpanId")),
        name=name if isinstance(name, str) else "",
        start=_time(value.get("start_time") or value.get("startTimeUnixNano") or value.get("start_time_unix_nano")),
        end=_time(value.get("end_time") or value.get("endTimeUnixNano") or value.get("end_time_unix_nano")),
        error=_error(value, attributes, events_read),
        attributes=attributes,
        events=events_read,
        service=_service(value.get("resource")) or service,
    )


def _event(value: Mapping[str, JsonValue]) -> SpanEvent:
    name = value.get("name")
    return SpanEvent(name if isinstance(name, str) else "", _attributes(value.get("attributes")))


def _id(value: JsonValue) -> str:
    return str(value) if isinstance(value, str | int) and value and str(value).strip("0") else ""


def _service(resource: JsonValue) -> str:
    if not isinstance(resource, Mapping):
        return ""
    name = _attributes(resource.get("attributes")).get("service.name")
    return name if isinstance(name, str) and name != "unknown_service" else ""


def _attributes(value: JsonValue) -> Attributes:
    """Return flat attributes, of OTLP's list of keys and values, or of an object that may be nested."""
    if isinstance(value, list):
        pairs = [pair for pair in value if isinstance(pair, dict) and isinstance(pair.get("key"), str)]
        return {str(pair["key"]): _plain(pair.get("value")) for pair in pairs}
    if not isinstance(value, Mapping):
        return {}
    attributes: Attributes = {}
    for key, inner in value.items():
        _flatten(key, inner, attributes)
    return attributes


def _flatten(key: str, value: JsonValue, attributes: Attributes, depth: int = 0) -> None:
    attributes[key] = value
    if isinstance(value, Mapping) and depth < _DEPTH:
        for name, inner in value.items():
            _flatten(f"{key}.{name}", inner, attributes, depth + 1)


def _plain(value: JsonValue, depth: int = 0) -> JsonValue:
    """Return a value of OTLP JSON as a plain one."""
    if not isinstance(value, Mapping) or depth > _DEPTH:
        return None
    for key in _VALUES:
        inner = value.get(key)
        if inner is None:
            continue
        if key == "intValue":
            number = as_number(inner)
            return None if number is None else int(number)
        if key not in {"arrayValue", "kvlistValue"}:
            return inner
        items = inner.get("values") if isinstance(inner, Mapping) else None
        items = items if isinstance(items, list) else []
        if key == "arrayValue":
            return [_plain(item, depth + 1) for item in items]
        pairs = [pair for pair in items if isinstance(pair, dict)]
        return {str(pair.get("key")): _plain(pair.get("value"), depth + 1) for pair in pairs}
    return None


def _time(value: JsonValue) -> float:
    if isinstance(value, list) and len(value) == 2:  # noqa: PLR2004 (seconds and nanoseconds)
        seconds, nanos = as_number(value[0]), as_number(value[1])
        return (seconds or 0.0) + (nanos or 0.0) / 1e9
    number = as_number(value)
    if number is not None:
        return next((number / scale for least, scale in _SCALES if number > least), number)
    return (seconds_of(value) if isinstance(value, str) else None) or 0.0


def _error(value: Mapping[str, JsonValue], attributes: Mapping[str, object], events: list[SpanEvent]) -> str | None:
    """Return the words of the error with which a span ended; None if it has none."""
    status = value.get("status")
    fields: Mapping[str, JsonValue] = status if isinstance(status, Mapping) else {}
    code = str(fields.get("status_code") or fields.get("code") or value.get("status_code") or "UNSET")
    code = code.upper().rpartition("_")[2].rpartition(".")[2]
    kind = attributes.get("error.type")
    if code not in ("2", "ERROR") and (code in ("1", "OK") or not kind):
        return None
    words = fields.get("description") or fields.get("message") or value.get("status_message")
    if not words:
        messages = (event.attributes.get("exception.message") for event in events if event.name == "exception")
        words = next((message for message in messages if message), None)
    return words if isinstance(words, str) else kind if isinstance(kind, str) else ""
