"""OpenTelemetry's API, or an error that says how to install it."""

try:
    from opentelemetry import context, metrics, trace
except ImportError as error:
    raise ImportError(
        f"turnwright.otel needs OpenTelemetry's API ({error}): pip install 'turnwright[otel]'", name=error.name
    ) from error

__all__ = ["context", "metrics", "trace"]
