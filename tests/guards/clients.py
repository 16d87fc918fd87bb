"""Scripted replies in the formats of three client libraries, and the pairs of calls and results in their messages."""

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from turnwright_guards.client_formats import ClientApi

Json = dict[str, Any]
#: (id, tool, arguments) of a call.
Call = tuple[str, str, Json]
PROMPT: Final = "What does the manual say?"


def chat(text: str = "", calls: Iterable[Call] = (), *, cut: bool = False) -> Json:
    """A chat completion."""
    tool_calls = [
        {"id": own, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for own, name, arguments in calls
    ]
    message = {"role": "assistant", "content": text or None, "refusal": None, "tool_calls": tool_calls or None}
    finish = "length" if cut else "tool_calls" if tool_calls else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "total_tokens": 110,
            "prompt_tokens_details": {"cached_tokens": 60},
            "completion_tokens_details": {"reasoning_tokens": 4},
        },
    }


def responses(text: str = "", calls: Iterable[Call] = (), *, cut: bool = False) -> Json:
    """A response of the Responses API, which reasons before each call."""
    output: list[Json] = []
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        output.append(
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        )
    for number, (own, name, arguments) in enumerate(calls):
        output.append({"type": "reasoning", "id": f"rs_{number}", "summary": []})
        output.append(
            {"type": "function_call", "id": f"fc_{number}", "call_id": own, "name": name}
            | {"arguments": json.dumps(arguments), "status": "completed"}
        )
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": "m",
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 100,
            "output_tokens": 10,
            "total_tokens": 110,
            "input_tokens_details": {"cached_tokens": 60},
            "output_tokens_details": {"reasoning_tokens": 4},
        },
    }


def anthropic(text: str = "", calls: Iterable[Call] = (), *, cut: bool = False) -> Json:
    """A message of Anthropic's API."""
    blocks: list[Json] = [{"type": "text", "text": text, "citations": None}] if text else []
    blocks += [{"type": "tool_use", "id": own, "name": name, "input": arguments} for own, name, arguments in calls]
    has_calls = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": blocks,
        "stop_reason": "max_tokens" if cut else "tool_use" if has_calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 30,
            "output_tokens": 10,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 10,
        },
    }


WRITERS: Final[dict[ClientApi, Callable[..., Json]]] = {"chat": chat, "responses": responses, "anthropic": anthropic}
NO_TOOLS: Final[dict[ClientApi, object]] = {"chat": "none", "responses": "none", "anthropic": {"type": "none"}}


def items_of(messages: list[Json]) -> list[tuple[str, str]]:
    """Return what a provider pairs, in order: ("call" or "result", id). Anything between them is ("said", role)."""
    items: list[tuple[str, str]] = []
    for message in messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        kind = message.get("type", "")
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        calls += [block["id"] for block in blocks if block["type"] == "tool_use"]
        calls += [message["call_id"]] if kind == "function_call" else []
        results = [message["tool_call_id"]] if message.get("role") == "tool" else []
        results += [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        results += [message["call_id"]] if kind == "function_call_output" else []
        items += [("call", own) for own in calls] + [("result", own) for own in results]
        if not calls and not results and kind != "reasoning":
            items.append(("said", str(message.get("role"))))
    return items


def check_pairs(messages: list[Json]) -> None:
    """Each call has exactly one result, before anything else is said."""
    open_calls: list[str] = []
    for kind, own in items_of(messages):
        if kind == "call":
            assert own not in open_calls
            open_calls.append(own)
        elif kind == "result":
            open_calls.remove(own)
        else:
            assert not open_calls, f"{open_calls} have no result"
    assert not open_calls
