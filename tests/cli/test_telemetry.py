"""The command line sends spans and metrics where the environment says, and waits for no collector for long."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from turnwright import Agent, Engine
from turnwright.cli.telemetry import asked_for
from turnwright.errors import ConfigError
from turnwright.model import ScriptedModel

from .collector import Sink, collector

if TYPE_CHECKING:
    from .conftest import Cli, Endpoint

TOOLS = '''
from opentelemetry import trace

from turnwright import tool


@tool
async def look(place: int) -> str:
    """Look somewhere."""
    with trace.get_tracer("mine").start_as_current_span("looking"):
        return f"nothing at {place}"


@tool
async def flood(number: int) -> str:
    """Make so many spans."""
    for _ in range(number):
        trace.get_tracer("mine").start_span("drop").end()
    return "flooded"


@tool(needs_approval=True)
async def erase() -> str:
    """Erase everything."""
    return "erased"
'''

RUN = ("run", "Tidy up", "--tools", "mine.py", "--json")


@pytest.fixture(autouse=True)
def _tools(cli: "Cli") -> None:
    cli.write("mine.py", TOOLS)


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A collector that counts."""
    with Sink() as sink:
        yield sink


def test_a_real_collector_receives_the_spans_and_the_metrics_of_a_turn(
    cli: "Cli", endpoint: "Endpoint", sink: Sink
) -> None:
    endpoint.calls(("look", {"place": 1})).says("Done.")
    with collector(sink, cli.folder) as url:
        # A collector is given its time: on a busy machine three seconds may be too short for it.
        done = cli.run(*RUN, env={"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "120"})
        assert (done.code, done.err) == (0, "")
        cli.await_until(lambda: len(sink.spans) == 5 and sink.metrics)
    names = {span.span_id: span.name for span in sink.spans}
    above = {span.name: names.get(span.parent_span_id) for span in sink.spans}
    (turn,) = [name for name in above if name.startswith("invoke_agent")]
    (chat,) = [name for name in above if name.startswith("chat")]
    assert above == {turn: None, chat: turn, "execute_tool look": turn, "looking": "execute_tool look"}
    assert len({span.trace_id for span in sink.spans}) == 1
    (root,) = [span for span in sink.spans if span.name == turn]
    told = {one.key: one.value.string_value for one in root.attributes}
    assert (told["turnwright.turn.id"], told["turnwright.outcome"]) == (done.turn, "finished")
    assert {event.name for event in root.events} == {"turnwright.transition"}
    assert sink.services == {"turnwright"}
    assert sink.measured >= {
        "gen_ai.client.inference.usage.input_tokens",
        "gen_ai.client.inference.duration",
        "turnwright.turns",
    }
    assert not any(b"Tidy up" in request.SerializeToString() for request in sink.traces)


def test_a_resumed_turn_is_sent_too_under_the_name_that_the_environment_gives(
    cli: "Cli", endpoint: "Endpoint", sink: Sink
) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, "OTEL_SERVICE_NAME": "mine"}
    endpoint.calls(("erase", {})).says("Erased.")
    paused = cli.run(*RUN, env=env)
    assert paused.code == 3
    resumed = cli.run("resume", paused.turn, "--approve", paused.interrupts[0]["id"], env=env)
    assert resumed.code == 0
    assert sink.services == {"mine"}
    ids = [one.value.string_value for span in sink.spans for one in span.attributes if one.key == "turnwright.turn.id"]
    assert set(ids) == {paused.turn}
    assert [span.name.split()[0] for span in sink.spans].count("invoke_agent") == 2


def test_a_worker_sends_what_it_drove_when_it_is_told_to_stop(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    async def submit() -> str:
        async with Engine(model=ScriptedModel(), store=f"sqlite:///{cli.folder}/turns.db") as engine:
            return await engine.submit(Agent(name="Tester"), "Tidy up")

    turn = anyio.run(submit)
    endpoint.says("Done.")
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url}
    worker = cli.start("worker", "--tools", "mine.py", "--json", env=env)
    worker.until("settled")
    done = worker.terminate().done()
    assert (done.code, done.err) == (0, "")
    (root,) = [span for span in sink.spans if span.name == "invoke_agent Tester"]
    assert {one.key: one.value.string_value for one in root.attributes}["turnwright.turn.id"] == turn
    assert "turnwright.turns" in sink.measured


def told_of(sink: Sink, name: str) -> dict[str, str]:
    """The attributes of the one span of that name."""
    (span,) = [span for span in sink.spans if span.name == name]
    return {one.key: one.value.string_value for one in span.attributes}


def test_what_the_pages_have_driven_is_sent(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    async def submit() -> str:
        async with Engine(model=ScriptedModel(), store=f"sqlite:///{cli.folder}/turns.db") as engine:
            return await engine.submit(Agent(name="Tester"), "Tidy up")

    turn = anyio.run(submit)
    endpoint.says("Done.")
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url}
    child = cli.start("serve", "--drive", "--port", "0", "--json", env=env)
    address = httpx.URL(child.until("started")["address"])
    with httpx.Client(base_url=address.copy_with(query=None), follow_redirects=True, timeout=200) as client:
        client.get(address)
        csrf = client.get(f"/turns/{turn}").text.partition('name="csrf" value="')[2].partition('"')[0]
        client.post(f"/turns/{turn}/resume", data={"csrf": csrf})
        cli.await_until(lambda: "Done." in cli.run("show", turn).out)
    done = child.terminate().done()
    assert (done.code, done.err) == (0, "")
    told = told_of(sink, "invoke_agent Tester")
    assert (told["turnwright.turn.id"], told["turnwright.outcome"]) == (turn, "finished")
    assert "turnwright.turns" in sink.measured


def test_pages_that_drive_nothing_send_nothing_and_do_not_mind_what_the_environment_says(cli: "Cli") -> None:
    child = cli.start("serve", "--port", "0", "--json", env={"OTEL_TRACES_EXPORTER": "console"})
    child.until("started")
    done = child.terminate().done()
    assert (done.code, done.err) == (0, "")


def test_a_fork_is_sent_and_what_it_copied_is_not(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    endpoint.calls(("look", {"place": 1})).says("Done.").says("Done again.")
    original = cli.run(*RUN)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url}
    places = [json.loads(line) for line in cli.run("fork", original.turn, "--json").out.splitlines()]
    forked = cli.run("fork", original.turn, "--at", str(places[-1]["at"]), "--tools", "mine.py", "--json", env=env)
    assert (forked.code, forked.err) == (0, "")
    (name,) = [span.name for span in sink.spans if span.name.startswith("invoke_agent")]
    assert told_of(sink, name)["turnwright.turn.id"] == forked.turn != original.turn
    assert [span.name.split()[0] for span in sink.spans].count("chat") == 1


def test_what_the_environment_asks_wrongly_is_said_before_a_turn_is_copied(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("look", {"place": 1})).says("Done.")
    original = cli.run(*RUN)
    refused = cli.run("fork", original.turn, "--at", "2", env={"OTEL_TRACES_EXPORTER": "console"})
    assert (refused.code, "OTEL_TRACES_EXPORTER=console" in refused.err) == (2, True)
    assert len(cli.run("turns", "--json").out.splitlines()) == 1


def test_a_turn_that_sigterm_stops_is_sent(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    endpoint.begins("I")
    running = cli.start(*RUN, env={"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url})
    running.until("text_delta")
    assert running.terminate().done().code == 143
    told = {one.key: one.value.string_value for span in sink.spans for one in span.attributes}
    assert (told["turnwright.released"], told["turnwright.state"]) == ("canceled", "STREAM")


def test_one_signal_alone_may_be_asked_for(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    endpoint.says("Done.")
    cli.run(*RUN, env={"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{sink.url}/v1/traces"})
    assert (len(sink.spans), sink.metrics) == (2, [])


def test_the_headers_of_the_environment_are_sent_and_shown_nowhere(
    cli: "Cli", endpoint: "Endpoint", sink: Sink
) -> None:
    endpoint.says("Done.")
    secret = "collector-secret"  # noqa: S105 (nobody's)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={secret}"}
    done = cli.run(*RUN, env=env)
    assert {headers["authorization"] for headers in sink.headers} == {secret}
    assert secret not in done.out + done.err


@pytest.mark.slow
@pytest.mark.parametrize("answers", [400, 503])
def test_a_collector_that_refuses_is_told_of_once_and_changes_nothing(
    cli: "Cli", endpoint: "Endpoint", answers: int
) -> None:
    endpoint.says("Done.")
    with Sink(answers) as sink:
        address = sink.url.replace("//", "//ann:pw@")
        done = cli.run(*RUN, env={"OTEL_EXPORTER_OTLP_ENDPOINT": address})
    assert (done.code, done.last["outcome"]) == (0, "finished")
    said = "the collector does not accept the data, and spans or metrics are lost"
    assert done.err == f"turnwright: telemetry: {said} ({sink.url})\n"


@pytest.mark.slow
def test_a_collector_that_never_answers_holds_nothing_up(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    """The last line of the turn is there while the collector is still waited for."""
    endpoint.says("Done.")
    sink.open.clear()
    running = cli.start(*RUN, env={"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url})
    running.until("turn_ended")
    done = running.done()
    assert not sink.open.is_set()
    assert (done.code, done.err.count("telemetry:"), done.err.count("\n")) == (0, 1, 1)


@pytest.mark.slow
def test_a_collector_that_is_not_there_is_told_of_in_a_line(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Done.")
    with Sink() as gone:
        address = gone.url
    done = cli.run(*RUN, env={"OTEL_EXPORTER_OTLP_ENDPOINT": address})
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert address in done.err


def test_spans_that_find_no_room_are_told_of_once_and_how_many(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    """The collector is there, and slow: all but the last hundred are lost, and those that it took before."""
    endpoint.calls(("flood", {"number": 5000})).says("Done.")
    room = {"OTEL_BSP_MAX_QUEUE_SIZE": "100", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100"}
    done = cli.run(*RUN, env={"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, **room})
    lost = 5004 - len(sink.spans)
    assert (done.code, lost > 0) == (0, True)
    last = f"turnwright: telemetry: {lost} spans were lost ({sink.url})\n"
    first = "spans are lost, because the queue is full (100 spans): raise OTEL_BSP_MAX_QUEUE_SIZE"
    assert done.err == f"turnwright: telemetry: {first} ({sink.url})\n{last}"


def test_spans_that_find_room_are_all_sent_and_nothing_is_said(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    endpoint.calls(("flood", {"number": 5000})).says("Done.")
    done = cli.run(*RUN, env={"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, "OTEL_BSP_MAX_QUEUE_SIZE": "10000"})
    assert (done.code, done.err, len(sink.spans)) == (0, "", 5004)


def test_spans_that_are_not_sampled_are_not_lost(cli: "Cli", endpoint: "Endpoint", sink: Sink) -> None:
    endpoint.calls(("flood", {"number": 5000})).says("Done.")
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, "OTEL_TRACES_SAMPLER": "always_off"}
    done = cli.run(*RUN, env=env)
    assert (done.code, done.err, sink.spans) == (0, "", [])


def test_nothing_is_loaded_where_nothing_is_asked_for() -> None:
    code = "import sys, turnwright.cli.run, turnwright.cli.worker\n"
    code += "from turnwright.cli.telemetry import Exporting; assert Exporting({}).telemetry is None\n"
    code += "print([m for m in sys.modules if m.startswith('opentelemetry')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_without_the_packages_it_says_what_to_install(cli: "Cli") -> None:
    code = "import sys; sys.modules['opentelemetry.sdk'] = None; from turnwright.cli import main; main()"
    env = {**cli.env, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://ann:pw@localhost:1"}
    command = [sys.executable, "-c", code, *RUN]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=cli.folder)
    assert ran.returncode == 2
    assert ran.stderr.startswith("turnwright: OTEL_EXPORTER_OTLP_ENDPOINT: OpenTelemetry cannot be imported (")
    assert "pip install 'turnwright[otel]' opentelemetry-sdk opentelemetry-exporter-otlp-proto-http" in ran.stderr
    assert "pw" not in ran.stderr


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "http://[::1",
            "OTLP_ENDPOINT is not an address (Invalid IPv6 URL)",
        ),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "OpenTelemetry refuses its environment: max_queue_size must be"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many", "its environment: OTEL_BSP_MAX_QUEUE_SIZE=many is not a number"),
    ],
)
def test_what_opentelemetry_cannot_take_is_a_mistake_of_the_environment_and_no_bug(
    cli: "Cli", name: str, value: str, words: str
) -> None:
    nowhere = "http://127.0.0.1:9"  # neither a model nor a collector is there
    done = cli.run(*RUN, "--base-url", nowhere, env={"OTEL_EXPORTER_OTLP_ENDPOINT": nowhere, name: value})
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert words in done.err


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, []),
        ({"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_ENDPOINT": " "}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1"}, ["OTEL_EXPORTER_OTLP_ENDPOINT"] * 2),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://h:1"}, ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"]),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ["OTEL_TRACES_EXPORTER"]),
        ({"OTEL_TRACES_EXPORTER": "none"}, []),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1", "OTEL_TRACES_EXPORTER": "none"},
            ["OTEL_EXPORTER_OTLP_ENDPOINT"],
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1", "OTEL_SDK_DISABLED": "true"}, []),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            ["OTEL_TRACES_EXPORTER"],
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, []),
    ],
)
def test_the_environment_says_what_is_sent(environment: dict[str, str], asked: list[str]) -> None:
    assert asked_for(environment) == asked


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "console"}, "OTEL_TRACES_EXPORTER=console: the only exporter is otlp"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: the only protocol is http/protobuf",
        ),
    ],
)
def test_what_it_does_not_have_it_says(environment: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        asked_for(environment)
