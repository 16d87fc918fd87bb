"""Spans and metrics of turns, by the conventions of OpenTelemetry for generative AI.

Needs `pip install 'turnwright[otel]'`. What is told, and what is not, is written in `docs/telemetry.md`.
"""

from .telemetry import OpenTelemetry

__all__ = ["OpenTelemetry"]
