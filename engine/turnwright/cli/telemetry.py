"""Telemetry of the command line: the providers that OpenTelemetry's SDK has configured for this process."""

import sys
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from turnwright.telemetry import Telemetry

#: Milliseconds for each provider to send the rest before the process ends at once.
_LAST: Final = 5000


@runtime_checkable
class _Buffered(Protocol):
    """A provider of the SDK. Those of the API alone hold nothing back."""

    def force_flush(self, timeout_millis: int) -> bool: ...


def configured_telemetry() -> "Telemetry | None":
    """Return spans and metrics for OpenTelemetry's global providers, or None if nothing has configured them.

    `opentelemetry-instrument` configures them before the command starts, and so may the file of a tool. OpenTelemetry
    takes long to import, so it is not imported to find out.
    """
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415 (an extra)

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    from turnwright.otel import OpenTelemetry  # noqa: PLC0415 (an extra)

    return OpenTelemetry()


def flush_telemetry() -> None:
    """Send what the SDK still holds. Only for a process that skips the exit handlers, in which the SDK does it."""
    if configured_telemetry() is None:
        return
    from opentelemetry import metrics, trace  # noqa: PLC0415 (an extra)

    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        if isinstance(provider, _Buffered):
            provider.force_flush(_LAST)
