"""A real collector, and where it passes things on to: a server that reads OpenTelemetry's own messages."""

import gzip
import os
import socket
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

#: Seconds that a collector may take to start, and to pass things on.
PATIENCE = 200.0


class Sink(ThreadingHTTPServer):
    """Takes spans and metrics by OTLP over HTTP. `answers` is the status that it answers with."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answers: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Taker)
        self.answers = answers
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()
        #: Set when requests are to be answered, which is at once unless somebody clears it.
        self.open = threading.Event()
        self.open.set()

    @property
    def url(self) -> str:
        """The address to send to."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def spans(self) -> list[Span]:
        """The spans that came in."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def services(self) -> set[str]:
        """The names of the services that spans came from."""
        return {
            attribute.value.string_value
            for request in self.traces
            for resource in request.resource_spans
            for attribute in resource.resource.attributes
            if attribute.key == "service.name"
        }

    @property
    def measured(self) -> set[str]:
        """The names of the metrics that came in."""
        return {
            metric.name
            for request in self.metrics
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.over.set()
        self.open.set()
        self.shutdown()
        self.server_close()


class _Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        sink = self.server
        assert isinstance(sink, Sink)
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        sink.headers.append({name.lower(): value for name, value in self.headers.items()})
        sink.open.wait(PATIENCE)
        if sink.over.is_set():
            return
        if sink.answers == 200:
            if self.path == "/v1/traces":
                sink.traces.append(ExportTraceServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                sink.metrics.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(sink.answers)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is the base class's)
        """Say nothing."""


@contextmanager
def collector(sink: Sink, folder: Path) -> Iterator[str]:
    """Run a collector that passes on to the sink what it receives. Gives the address that it receives at."""
    spec = find_spec("rotel")
    if spec is None or spec.origin is None:
        pytest.skip("the collector (rotel) is not installed: it has no wheels for Python 3.14 and newer")
    http, grpc = _free_ports(2)
    command = [
        str(Path(spec.origin).parent / "rotel-agent"),
        "start",
        f"--otlp-http-endpoint=127.0.0.1:{http}",
        f"--otlp-grpc-endpoint=127.0.0.1:{grpc}",
        "--exporter=otlp",
        "--otlp-exporter-protocol=http",
        f"--otlp-exporter-endpoint={sink.url}",
        "--batch-timeout=50ms",
        f"--pid-file={folder / 'collector.pid'}",
        f"--log-file={folder / 'collector.log'}",
    ]
    with (folder / "collector.out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | _library_path())
    try:
        _await(lambda: process.poll() is not None or _listens(http))
        assert process.poll() is None, (folder / "collector.out").read_text()
        yield f"http://127.0.0.1:{http}"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _library_path() -> dict[str, str]:
    """Return the folder of libpython, which the collector links to, because the loader does not find every Python."""
    folders = [sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH")]
    return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, folders))}


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _await(holds: Callable[[], object]) -> None:
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends, "the collector does not listen"
        time.sleep(0.02)
