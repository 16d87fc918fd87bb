"""Spans and metrics of turns, by the conventions of OpenTelemetry for generative AI.

Needs `pip install 'turnwright[otel]'`. `docs/telemetry.md` lists what is sent, and what is not.
"""

from .telemetry import OpenTelemetry

__all__ = ["OpenTelemetry"]
