"""The local model, on top of llama.cpp's real server."""

import os
import signal
from pathlib import Path

import anyio
import pytest
from tests.engine.model.llama_cpp import MULTIPLY, PRODUCT, ask, children, gone_within, needs_model

from turnwright.message import Message, ToolCallPart
from turnwright.model.capabilities import Capabilities
from turnwright.model.local.model import LocalModel
from turnwright.model.model_settings import ModelSettings
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright_states import Finish


@needs_model
@pytest.mark.anyio
async def test_local_model_calls_a_tool_and_answers_with_the_result() -> None:
    model = LocalModel()
    try:
        _, reply = await ask(model, ModelRequest((PRODUCT,), (MULTIPLY,), first=True))
        (call,) = reply.calls
        assert call.arguments is not None
        part = ToolCallPart(id="t1", name=call.name, arguments=call.arguments)
        history = (PRODUCT, Message.assistant(calls=[part]), Message.result("t1", call.name, "391"))
        _, reply = await ask(model, ModelRequest(history, (MULTIPLY,)))
    finally:
        await model.aclose()
    assert model.name == "smollm2-135m-instruct"
    assert reply.text
    assert reply.calls == ()
    assert reply.finish is Finish.STOP


@needs_model
@pytest.mark.anyio
async def test_settings_reach_the_server() -> None:
    """Its own temperature is 0: the same request gets the same reply. A seed of a run gets another one, repeatedly."""
    model = LocalModel()

    async def reply(settings: ModelSettings | None, max_tokens: int = 12) -> ModelResponse:
        request = ModelRequest((Message.user("Write a story."),), max_tokens=max_tokens, settings=settings)
        return (await ask(model, request))[1]

    warm = ModelSettings(temperature=1.8, seed=7)
    try:
        plain = await reply(None)
        first, second = await reply(warm), await reply(warm)
        word = plain.text.split()[1]
        stopped = await reply(ModelSettings(stop_sequences=(word,)))
        short = await reply(ModelSettings(extra_body={"max_tokens": 2}))
    finally:
        await model.aclose()
    assert first.text == second.text != plain.text
    assert stopped.finish is Finish.STOP
    assert word not in stopped.text
    assert (short.finish, short.usage and short.usage.output_tokens) == (Finish.LENGTH, 2)


@needs_model
@pytest.mark.anyio
async def test_models_share_a_server_and_restart_after_a_crash() -> None:
    first_model, second_model = LocalModel(), LocalModel()
    request = ModelRequest((Message.user("Say hello."),), max_tokens=4)

    before = children()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, first_model, request)
            group.start_soon(ask, second_model, request)
        (pid,) = children() - before
        await second_model.aclose()
        assert children() - before == {pid}
        os.kill(pid, signal.SIGKILL)
        assert gone_within(pid, 60)
        await ask(first_model, request)
        (second,) = children() - before
        assert second != pid
    finally:
        await first_model.aclose()
        await second_model.aclose()
    assert children() == before


@needs_model
def test_model_serves_several_event_loops_in_turn() -> None:
    model = LocalModel()
    request = ModelRequest((Message.user("Say hello."),), max_tokens=4)
    anyio.run(ask, model, request)
    _, reply = anyio.run(ask, model, request)
    anyio.run(model.aclose)
    assert reply.text


@needs_model
@pytest.mark.anyio
async def test_proxy_of_the_environment_is_not_used_for_the_child_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    model = LocalModel()
    try:
        _, reply = await ask(model, ModelRequest((Message.user("Say hello."),), max_tokens=4))
    finally:
        await model.aclose()
    assert reply.text


@needs_model
def test_capabilities_of_a_local_model_follow_the_file_name(tmp_path: Path) -> None:
    assert LocalModel().capabilities == Capabilities()
    weights = tmp_path / "Ministral-3B-Q4_K_M.gguf"
    weights.write_bytes(b"GGUF")
    assert LocalModel(weights).capabilities == Capabilities(strict_alternation=True)
