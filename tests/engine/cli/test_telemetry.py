"""Under `opentelemetry-instrument` the command line sends spans and metrics as OpenTelemetry's SDK is configured."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest
from tests.engine.cli.fixtures import INSTRUMENT

from turnwright import Agent, Engine
from turnwright.model import ScriptedModel

from .collector import Sink, collector

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint

TOOLS = '''
import threading
import time

from opentelemetry import trace

from turnwright import tool


@tool
async def look(place: int) -> str:
    """Look somewhere."""
    with trace.get_tracer("mine").start_as_current_span("looking"):
        return f"nothing at {place}"


@tool
async def leave_thread() -> str:
    """Start a thread that does not end."""
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return "it runs"


@tool(needs_approval=True)
async def erase() -> str:
    """Erase everything."""
    return "erased"
'''

RUN = ("run", "Tidy up", "--tools", "mine.py", "--json")

pytestmark = pytest.mark.skipif(
    not Path(*INSTRUMENT).exists(), reason="needs opentelemetry-instrument (`pip install opentelemetry-distro`)"
)


@pytest.fixture(autouse=True)
def _tools(cli: "Cli") -> None:
    cli.write("mine.py", TOOLS)


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A collector that counts."""
    with Sink() as sink:
        yield sink


def sent_to(url: str) -> dict[str, str]:
    """Return the variables that docs/telemetry.md names."""
    return {
        "OTEL_SERVICE_NAME": "turnwright",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_LOGS_EXPORTER": "none",
    }


def attributes_of(sink: Sink, name: str) -> dict[str, str]:
    """Return the attributes of the one span of that name."""
    (span,) = [span for span in sink.spans if span.name == name]
    return {attribute.key: attribute.value.string_value for attribute in span.attributes}


def submit_to(folder: Path) -> str:
    """Submit a turn that nobody drives yet, and return its id."""

    async def submit() -> str:
        async with Engine(model=ScriptedModel(), store=f"sqlite:///{folder}/turns.db") as engine:
            return await engine.submit(Agent(name="Tester"), "Tidy up")

    return anyio.run(submit)


def test_run_sends_spans_and_metrics_to_a_collector(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    """A tool's own span is below its call, and no text of the conversation is sent."""
    endpoint.calls(("look", {"place": 1})).says("Done.")
    with collector(sink, cli.folder) as url:
        done = cli.run(*RUN, instrumented=True, fresh=True, env=sent_to(url))
        assert (done.code, done.err) == (0, "")
        cli.await_until(lambda: len(sink.spans) == 5 and sink.metrics)
    names = {span.span_id: span.name for span in sink.spans}
    above = {span.name: names.get(span.parent_span_id) for span in sink.spans}
    (turn,) = [name for name in above if name.startswith("invoke_agent")]
    (chat,) = [name for name in above if name.startswith("chat")]
    assert above == {turn: None, chat: turn, "execute_tool look": turn, "looking": "execute_tool look"}
    attributes = attributes_of(sink, turn)
    assert (attributes["turnwright.turn.id"], attributes["turnwright.outcome"]) == (done.turn, "finished")
    assert sink.services == {"turnwright"}
    assert sink.measured >= {"gen_ai.client.inference.duration", "turnwright.turns"}
    assert not any(b"Tidy up" in request.SerializeToString() for request in sink.traces)


def test_resume_sends_the_rest_of_the_turn(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    endpoint.calls(("erase", {})).says("Erased.")
    paused = cli.run(*RUN, instrumented=True, env=sent_to(sink.url))
    assert paused.code == 3
    approval = ("--approve", paused.interrupts[0]["id"])
    resumed = cli.run("resume", paused.turn, *approval, instrumented=True, env=sent_to(sink.url))
    assert resumed.code == 0
    ids = [
        attribute.value.string_value
        for span in sink.spans
        for attribute in span.attributes
        if attribute.key == "turnwright.turn.id"
    ]
    assert set(ids) == {paused.turn}
    assert [span.name.split()[0] for span in sink.spans].count("invoke_agent") == 2


def test_worker_sends_telemetry_when_stopped_by_sigterm(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    turn = submit_to(cli.folder)
    endpoint.says("Done.")
    worker = cli.start("worker", "--tools", "mine.py", "--json", instrumented=True, fresh=True, env=sent_to(sink.url))
    worker.until("settled")
    done = worker.terminate().done()
    assert (done.code, done.err) == (0, "")
    assert attributes_of(sink, "invoke_agent Tester")["turnwright.turn.id"] == turn
    assert "turnwright.turns" in sink.measured


def test_serve_sends_telemetry_of_driven_turns(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    turn = submit_to(cli.folder)
    endpoint.says("Done.")
    child = cli.start("serve", "--drive", "--port", "0", "--json", instrumented=True, env=sent_to(sink.url))
    address = httpx.URL(child.until("started")["address"])
    with httpx.Client(base_url=address.copy_with(query=None), follow_redirects=True, timeout=200) as client:
        client.get(address)
        csrf = client.get(f"/turns/{turn}").text.partition('name="csrf" value="')[2].partition('"')[0]
        client.post(f"/turns/{turn}/resume", data={"csrf": csrf})
        cli.await_until(lambda: "Done." in cli.run("show", turn).out)
    done = child.terminate().done()
    assert (done.code, done.err) == (0, "")
    assert attributes_of(sink, "invoke_agent Tester")["turnwright.outcome"] == "finished"


def test_turn_stopped_by_sigterm_is_sent(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    endpoint.begins("I")
    running = cli.start(*RUN, instrumented=True, env=sent_to(sink.url))
    running.until("text_delta")
    assert running.terminate().done().code == 143
    values = {attribute.key: attribute.value.string_value for span in sink.spans for attribute in span.attributes}
    assert (values["turnwright.released"], values["turnwright.state"]) == ("canceled", "STREAM")


def test_turn_is_sent_even_if_a_thread_blocks_exit_handlers(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    """The process then ends without the handlers in which the SDK sends the rest."""
    endpoint.calls(("leave_thread", {})).says("Done.")
    done = cli.run(*RUN, instrumented=True, env=sent_to(sink.url))
    assert (done.code, done.err) == (0, "")
    assert [span.name.split()[0] for span in sink.spans].count("invoke_agent") == 1
    assert "turnwright.turns" in sink.measured


def test_exporters_are_chosen_by_the_sdk_configuration(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    """Metrics can be left out, and headers are sent but not shown."""
    endpoint.says("Done.")
    secret = "collector-secret"  # noqa: S105 (nobody's)
    chosen = {"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={secret}"}
    done = cli.run(*RUN, instrumented=True, env=sent_to(sink.url) | chosen)
    assert (len(sink.spans), sink.metrics) == (2, [])
    assert {headers["authorization"] for headers in sink.headers} == {secret}
    assert secret not in done.out + done.err


def test_missing_collector_does_not_change_the_turn(cli: "Cli", endpoint: "Endpoint") -> None:
    """The SDK logs that it could not send."""
    endpoint.says("Done.")
    with Sink() as gone:
        url = gone.url
    done = cli.run(*RUN, instrumented=True, env=sent_to(url) | {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"})
    assert (done.code, done.last["outcome"]) == (0, "finished")
    assert done.err.startswith("turnwright: ")


def test_variables_without_a_configured_sdk_send_nothing(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    endpoint.says("Done.")
    done = cli.run(*RUN, env=sent_to(sink.url))
    assert (done.code, done.err, sink.headers) == (0, "", [])


@pytest.mark.parametrize(
    ("first", "configured"),
    [
        ("", False),
        ("import opentelemetry.trace as t", False),
        (
            "import opentelemetry.trace as t, opentelemetry.sdk.trace as s; t.set_tracer_provider(s.TracerProvider())",
            True,
        ),
    ],
)
def test_telemetry_is_attached_if_a_provider_is_configured(first: str, configured: bool) -> None:
    """OpenTelemetry is not imported to find out."""
    code = f"""{first}
import sys, turnwright.cli.run, turnwright.cli.worker
from turnwright.cli.process import configured_telemetry
print(configured_telemetry() is not None, "opentelemetry" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{configured} {bool(first)}\n"
