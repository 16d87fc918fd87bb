"""Telemetry of the command line, configured by OpenTelemetry's standard environment variables only."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from turnwright.errors import ConfigError

from . import process

if TYPE_CHECKING:
    from turnwright.telemetry import Telemetry

    from .otlp import Sender

_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
#: The signals, as they are called in OpenTelemetry's variables.
_SIGNALS: Final = ("TRACES", "METRICS")
_INSTALL: Final = "pip install 'turnwright[otel]' opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"


class Exporting:
    """The export of spans and metrics, if the environment asks for it. `telemetry` is for the engine.

    Raises `ConfigError` for an exporter or a protocol other than OTLP over HTTP, a wrong address, a value that
    OpenTelemetry refuses, and packages that are not installed.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.telemetry: Telemetry | None = None
        self._sender: Sender | None = None
        asked = asked_for(environment)
        if not asked:
            return
        try:
            from . import otlp  # noqa: PLC0415 (an extra, and half a second to import)
        except ImportError as error:
            raise ConfigError(
                f"{asked[0]}: OpenTelemetry cannot be imported ({error}): {_INSTALL}, or set OTEL_SDK_DISABLED=true"
            ) from error
        signals = [signal for signal in _SIGNALS if _wanted(environment, signal)]
        where = _where(environment)
        try:
            self._sender = otlp.Sender(signals, lambda why: process.say(f"telemetry: {why} ({where})"))
        except ValueError as error:
            raise ConfigError(f"OpenTelemetry refuses its environment: {error}") from error
        self.telemetry = self._sender.telemetry

    @contextmanager
    def sent(self) -> Iterator[None]:
        """Send the rest when the block ends, with or without an error, within a few seconds."""
        try:
            yield
        finally:
            if self._sender is not None:
                self._sender.close()


def asked_for(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the settings that ask for telemetry.

    Raises `ConfigError` for an exporter or a protocol that the command line does not have.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    for signal in _SIGNALS:
        if _wanted(environment, signal):
            _check(environment, signal)
    return [
        name
        for signal in _SIGNALS
        if _wanted(environment, signal)
        for name in (_ENDPOINT, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", f"OTEL_{signal}_EXPORTER")
        if environment.get(name, "").strip()
    ]


def _wanted(environment: Mapping[str, str], signal: str) -> bool:
    exporter = environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != "none"
    return any(environment.get(name, "").strip() for name in (_ENDPOINT, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))


def _check(environment: Mapping[str, str], signal: str) -> None:
    exporter = environment.get(f"OTEL_{signal}_EXPORTER", "").strip()
    if exporter and exporter.lower() != "otlp":
        raise ConfigError(f"OTEL_{signal}_EXPORTER={exporter}: the only exporter is otlp: write otlp, or none")
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", _PROTOCOL):
        protocol = environment.get(name, "").strip()
        if protocol:
            if protocol != "http/protobuf":
                raise ConfigError(f"{name}={protocol}: the only protocol is http/protobuf")
            return


def _where(environment: Mapping[str, str]) -> str:
    """Return the server without user, password and path, any of which may be a secret."""
    for name in (_ENDPOINT, *(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" for signal in _SIGNALS)):
        address = environment.get(name, "").strip()
        if address:
            try:
                parts = urlsplit(address)
            except ValueError as error:
                raise ConfigError(
                    f"{name} is not an address ({error}): write one such as http://localhost:4318"
                ) from error
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return "http://localhost:4318"
