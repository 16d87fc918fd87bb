"""Spans and metrics of turns, by the conventions of OpenTelemetry for generative AI.

Needs `pip install 'turnwright[otel]'`. `docs/telemetry.md` lists what is sent, and what is not.
"""

try:
    from .telemetry import OpenTelemetry
except ImportError as error:
    raise ImportError(
        f"turnwright.otel needs OpenTelemetry's API ({error}): pip install 'turnwright[otel]'", name=error.name
    ) from error

__all__ = ["OpenTelemetry"]
