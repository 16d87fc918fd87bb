"""The models that `--model` names, and what is shown with a prompt: which API is asked, also by `resume`."""

import json
from typing import TYPE_CHECKING

import pytest

from turnwright.agent import Agent
from turnwright.cli.options import model_named, open_models
from turnwright.model.openai_chat.client import OpenAIChat

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint, Json

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def messages(*events: "Json") -> bytes:
    """A reply as Anthropic's API streams one."""
    return STREAM + b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def says(text: str) -> bytes:
    return messages(
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 5}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    )


def asks(question: str) -> bytes:
    return messages(
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 5}}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "t1", "name": "ask_user_input", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": json.dumps({"question": question})},
        },
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    )


@pytest.mark.parametrize(
    ("name", "base_url", "environment", "whole"),
    [
        (None, None, {}, "local"),
        ("local", None, {"OPENAI_API_KEY": "k"}, "local"),
        ("smollm2-135m-instruct", None, {}, "local"),
        (None, None, {"OPENAI_API_KEY": "k"}, "gpt-5-mini"),
        (None, "http://localhost:8080/v1", {}, "default"),
        (None, None, {"OPENAI_BASE_URL": "http://localhost:8080/v1"}, "default"),
        ("qwen3:8b", None, {}, "qwen3:8b"),
        ("anthropic:claude-opus-4-6", None, {}, "anthropic:claude-opus-4-6"),
        ("claude-opus-4-6", None, {}, "anthropic:claude-opus-4-6"),
        ("openai-responses:gpt-5-mini", None, {}, "openai-responses:gpt-5-mini"),
        ("claude-opus-4-6", "http://localhost:4000", {}, "claude-opus-4-6"),
        ("pydantic-ai:google:gemini-3-pro", None, {}, "pydantic-ai:google:gemini-3-pro"),
    ],
)
def test_unset_model_and_address_follow_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str | None, base_url: str | None, environment: dict[str, str], whole: str
) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert model_named(name, base_url) == whole


def test_address_applies_only_to_models_of_the_same_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sub-agent that names Claude is not asked at the address of the turn's own model, and another one is."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    served, find = open_models("small", Agent(name="A"), "http://localhost:8080/v1")
    assert find("small") is served
    assert "localhost:8080" in repr(find("large"))
    assert "api.anthropic.com" in repr(find("anthropic:claude-opus-4-6"))
    assert isinstance(find("large"), OpenAIChat)


def test_turn_of_claude_is_resumed_at_the_same_api(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(asks("Which?")).plays(says("The red one."))
    key = {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "OPENAI_BASE_URL": None}
    address = endpoint.url.removesuffix("/v1")
    paused = cli.run("run", "Choose", "--model", "anthropic:claude-x", "--base-url", address, "--json", env=key)
    assert paused.code == 3
    done = cli.run("resume", paused.turn, "--answer", "question-1=red", "--json", env=key)
    assert (done.code, done.last["text"]) == (0, "The red one.")
    assert {request.path for request in endpoint.requests} == {"/v1/messages"}
    assert [request.headers["x-api-key"] for request in endpoint.requests] == ["sk-ant-0123456789"] * 2
    assert [request.body["model"] for request in endpoint.requests] == ["claude-x", "claude-x"]
    usage = done.last["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["cost"]) == (10, 6, 0.0)


def test_claude_without_a_key_names_the_missing_variable(cli: "Cli") -> None:
    gone = {"ANTHROPIC_API_KEY": None, "ANTHROPIC_AUTH_TOKEN": None, "OPENAI_BASE_URL": None}
    done = cli.run("run", "hi", "--model", "claude-opus-4-6", env=gone)
    assert (done.code, done.out) == (2, "")
    assert "ANTHROPIC_API_KEY" in done.err


def responds(*items: "Json") -> bytes:
    """A reply as OpenAI's Responses API streams one, of complete items."""
    usage = {"input_tokens": 5, "output_tokens": 3}
    return messages(
        *({"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)),
        {"type": "response.completed", "response": {"status": "completed", "output": items, "usage": usage}},
    )


def test_turn_of_the_responses_api_sends_reasoning_back_after_a_pause(cli: "Cli", endpoint: "Endpoint") -> None:
    """Another process does, with the encrypted items that the journal kept."""
    arguments = json.dumps({"question": "Which?"})
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ask_user_input", "arguments": arguments}
    answer = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "The red one."}]}
    endpoint.plays(responds(sealed, call)).plays(responds(answer))
    name = ("--model", "openai-responses:gpt-x", "--base-url", endpoint.url)
    search = ("--setting", 'extra_body={"tools": [{"type": "web_search"}]}')
    paused = cli.run("run", "Choose", *name, *search, "--json")
    assert paused.code == 3, paused.err
    done = cli.run("resume", paused.turn, "--answer", "question-1=red", "--json")
    assert (done.code, done.last["text"]) == (0, "The red one.")
    assert {request.path for request in endpoint.requests} == {"/v1/responses"}
    assert [request.body["store"] for request in endpoint.requests] == [False, False]
    assert [request.body["tools"][-1] for request in endpoint.requests] == [{"type": "web_search"}] * 2
    items = endpoint.requests[1].body["input"]
    at = items.index(sealed)
    assert [item["type"] for item in items[at + 1 :]][:2] == ["function_call", "function_call_output"]
    assert done.last["usage"]["input_tokens"] == 10


def test_model_of_pydantic_ai_drives_a_turn(cli: "Cli") -> None:
    """Its own test model calls every tool that it is offered, and then it says what came of that."""
    pytest.importorskip("pydantic_ai")
    (cli.folder / "agents.md").write_text("---\nname: One\ntools: [list_files]\n---\n")
    done = cli.run("run", "hi", "--model", "pydantic-ai:test", "--agents", "agents.md", "--json")
    assert (done.code, done.last["outcome"]) == (0, "finished"), done.err
    assert [settled["status"] for settled in done.of("call_settled")]


def test_model_unknown_to_pydantic_ai_is_a_mistake(cli: "Cli") -> None:
    pytest.importorskip("pydantic_ai")
    done = cli.run("run", "hi", "--model", "pydantic-ai:nobody:nothing")
    assert (done.code, done.out) == (2, "")
    assert "nobody" in done.err


def test_picture_is_sent_with_the_prompt(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("A pixel.")
    (cli.folder / "pixel.png").write_bytes(b"\x89PNG")
    done = cli.run("run", "What is this?", "--file", "pixel.png")
    assert done.code == 0
    assert endpoint.requests[0].messages[-1]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
    ]


@pytest.mark.parametrize(("name", "words"), [("missing.png", "it cannot be read"), ("notes", "its type is unknown")])
def test_unsendable_file_is_a_mistake(cli: "Cli", endpoint: "Endpoint", name: str, words: str) -> None:
    (cli.folder / "notes").write_text("hi")
    done = cli.run("run", "What is this?", "--file", name)
    assert (done.code, done.out) == (2, "")
    assert f"file {name}: {words}" in done.err
    assert endpoint.requests == []
