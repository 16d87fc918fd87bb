"""Start and end of the local model's server."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import anyio
import pytest
from tests.engine.model.llama_cpp import alive, children, gone_within, needs_model

from turnwright.message import Message
from turnwright.model.local.model import LocalModel
from turnwright.model.local.server import LocalServer, read_line
from turnwright.model.protocol import ModelError, ModelRequest
from turnwright_states import Cause


@needs_model
def test_server_starts_once_stops_at_once_and_starts_again() -> None:
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
def test_stop_kills_a_server_ignoring_sigterm() -> None:
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
from turnwright.model.local.server import LocalServer
server = LocalServer()
server.start()
print(server.pid, flush=True)
{end}
"""


@needs_model
@pytest.mark.parametrize("end", ["time.sleep(60)", "os.fork(); time.sleep(6)"], ids=["alone", "survived by a fork"])
def test_server_dies_with_a_killed_parent(end: str) -> None:
    """A fork of the parent inherits the pipe by which the child knows that the parent lives."""
    program = [sys.executable, "-W", "error", "-c", PARENT.format(end=end)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        time.sleep(0.2)
        parent.kill()
    assert gone_within(pid, 60)


@needs_model
def test_server_dies_silently_with_an_ending_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PARENT.format(end="")], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert gone_within(int(done.stdout), 0)


@needs_model
def test_server_gets_no_provider_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-real-secret")
    server = LocalServer()
    try:
        server.start()
        environ_file = Path(f"/proc/{server.pid}/environ")
        if not environ_file.exists():
            pytest.skip("only Linux shows the environment of a process")
        assert b"a-real-secret" not in environ_file.read_bytes()
        assert server.api_key.encode() not in environ_file.with_name("cmdline").read_bytes()
        assert server.api_key not in repr(server)
    finally:
        server.stop()


@needs_model
def test_unloadable_weights_are_an_error_with_the_end_of_the_log(tmp_path: Path) -> None:
    weights = tmp_path / "broken.gguf"
    weights.write_bytes(b"GGUF and then nothing that makes sense")
    server = LocalServer(weights)
    with pytest.raises(ModelError, match="failed to load model") as caught:
        server.start()
    assert caught.value.cause is Cause.REJECTED
    assert str(weights) in str(caught.value)
    assert not server.running


@pytest.mark.parametrize(
    ("pieces", "closed", "line"),
    [
        ([b"http://127.0.0.1:1\n"], False, "http://127.0.0.1:1"),
        ([b"http:", b"//h\nmore"], False, "http://h"),
        ([b"http://127."], False, None),
        ([], False, None),
        ([b"x" * 5000], False, None),
        ([b"http://127."], True, ""),
        ([], True, ""),
    ],
)
def test_child_never_ending_a_line_is_not_waited_for(pieces: list[bytes], closed: bool, line: str | None) -> None:
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb", buffering=0) as stream:
        for piece in pieces:
            os.write(writes, piece)
        if closed:
            os.close(writes)
        assert read_line(stream, 0.01) == line
        if not closed:
            os.close(writes)


@needs_model
def test_slow_start_is_given_up() -> None:
    server = LocalServer(start_timeout=0.001)
    with pytest.raises(ModelError, match=r"not ready after 0\.001 s") as caught:
        server.start()
    assert caught.value.cause is Cause.TIMEOUT
    assert not server.running


@needs_model
@pytest.mark.anyio
async def test_closed_model_ends_the_server_of_a_canceled_first_call() -> None:
    before = children()
    model = LocalModel(threads=2)  # no other test shares this server
    with anyio.move_on_after(0.1) as scope:
        await anext(aiter(model.stream(ModelRequest((Message.user("Hello"),)))))
    assert scope.cancelled_caught, "it cannot have loaded its weights in a tenth of a second"
    await model.aclose()
    assert children() == before
