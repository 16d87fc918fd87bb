"""Recordings of agents whose formats no reader knows, in the forms that they write. Each has a call.

They are our own small runs. Several have the roles, the blocks or the envelopes of a format that a reader knows.
"""

import json
from typing import Final

from pydantic import JsonValue


def _lines(*records: JsonValue) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def _said(role: str, *parts: JsonValue) -> JsonValue:
    return {"role": role, "content": [*parts]}


_TEXT: Final[JsonValue] = {"type": "text", "text": "I list the files."}
_LS: Final[JsonValue] = {"command": "ls"}
_AT: Final = "2026-07-13T14:48:14Z"

#: By the agent, and the form of its file.
FOREIGN: Final[dict[str, bytes]] = {
    "pi session": _lines(
        {"type": "model_change", "id": "a1", "parentId": None, "timestamp": _AT, "model": "glm", "role": "default"},
        {"type": "message", "id": "a2", "timestamp": _AT, "message": _said("user", {"type": "text", "text": "List."})},
        {
            "type": "message",
            "id": "a3",
            "message": _said(
                "assistant",
                {"type": "thinking", "thinking": "I list them."},
                {"type": "toolCall", "id": "c1", "name": "bash", "arguments": _LS},
            ),
        },
    ),
    "Cursor stream": _lines(
        {"role": "user", "message": {"content": [{"type": "text", "text": "List."}]}},
        {"role": "assistant", "message": {"content": [_TEXT, {"type": "tool_use", "name": "Bash", "input": _LS}]}},
    ),
    "Gemini CLI stream": _lines(
        {"type": "init", "timestamp": _AT, "session_id": "s1", "model": "gemini"},
        {"type": "message", "timestamp": _AT, "role": "user", "content": "List."},
        {"type": "message", "timestamp": _AT, "role": "assistant", "content": "I list them.", "delta": True},
        {"type": "tool_use", "timestamp": _AT, "tool_name": "ls", "tool_id": "ls-1", "parameters": {"path": "a"}},
        {"type": "message", "timestamp": _AT, "role": "assistant", "content": "Done.", "delta": True},
    ),
    "Gemini CLI session": json.dumps(
        {
            "sessionId": "s1",
            "messages": [
                {"id": "1", "timestamp": _AT, "type": "user", "content": "List."},
                {"id": "2", "type": "gemini", "content": "", "toolCalls": [{"id": "c", "name": "ls", "args": _LS}]},
            ],
        }
    ).encode(),
    "Gemini contents": json.dumps(
        [
            {"role": "user", "parts": [{"text": "List."}]},
            {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": _LS}}]},
        ]
    ).encode(),
    "Qwen Code session": _lines(
        {
            "uuid": "u1",
            "parentUuid": None,
            "sessionId": "s1",
            "type": "user",
            "message": {"role": "user", "parts": [{"text": "List."}]},
        },
        {
            "uuid": "u2",
            "parentUuid": "u1",
            "sessionId": "s1",
            "type": "assistant",
            "message": {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "ls", "args": _LS}}]},
        },
    ),
    "Copilot CLI events": _lines(
        {"type": "session.start", "data": {"sessionId": "s1"}, "id": "e1", "timestamp": _AT},
        {"type": "user.message", "data": {"content": "List."}, "id": "e2"},
        {
            "type": "assistant.message",
            "data": {"content": "", "toolRequests": [{"toolCallId": "c", "name": "bash", "arguments": _LS}]},
        },
    ),
    "Goose session": _lines(
        {"working_dir": "/w", "description": "d", "message_count": 2},
        {"role": "user", "created": 1, "content": [{"type": "text", "text": "List."}]},
        {
            "role": "assistant",
            "created": 2,
            "content": [
                {"type": "toolRequest", "id": "c", "toolCall": {"status": "success", "value": {"name": "shell"}}}
            ],
        },
    ),
    "Goose messages": json.dumps(
        {
            "messages": [
                _said("user", {"type": "text", "text": "List."}),
                _said("assistant", {"type": "toolRequest", "id": "c", "toolCall": {"value": {"name": "shell"}}}),
            ]
        }
    ).encode(),
    "Crush messages": json.dumps(
        [
            {"role": "user", "parts": [{"type": "text", "data": {"text": "List."}}]},
            {"role": "assistant", "parts": [{"type": "tool_call", "data": {"id": "c", "name": "ls", "input": "{}"}}]},
        ]
    ).encode(),
    "AI SDK messages": json.dumps(
        [
            _said("user", {"type": "text", "text": "List."}),
            _said("assistant", {"type": "tool-call", "toolCallId": "c", "toolName": "ls", "input": _LS}),
        ]
    ).encode(),
    "AI SDK interface messages": json.dumps(
        {
            "messages": [
                {"id": "1", "role": "user", "parts": [{"type": "text", "text": "List."}]},
                {"id": "2", "role": "assistant", "parts": [{"type": "tool-ls", "toolCallId": "c", "input": _LS}]},
            ]
        }
    ).encode(),
    "Continue session": json.dumps(
        {
            "sessionId": "s1",
            "history": [
                {"message": {"role": "user", "content": "List."}},
                {"message": {"role": "assistant", "content": "", "toolCalls": [{"id": "c", "function": {}}]}},
            ],
        }
    ).encode(),
    "Kiro conversation": json.dumps(
        {
            "conversation_id": "s1",
            "history": [
                {
                    "user": {"content": {"Prompt": {"prompt": "List."}}},
                    "assistant": {"ToolUse": {"content": "", "tool_uses": [{"id": "c", "name": "ls", "args": _LS}]}},
                }
            ],
        }
    ).encode(),
    "AutoGen messages": _lines(
        {"source": "user", "role": "user", "content": "List.", "type": "TextMessage"},
        {"source": "a", "role": "assistant", "content": [{"id": "c", "name": "ls"}], "type": "ToolCallRequestEvent"},
    ),
    "LangChain messages": json.dumps(
        {
            "messages": [
                {"type": "human", "data": {"content": "List."}},
                {"type": "ai", "data": {"content": "", "tool_calls": [{"id": "c", "name": "ls", "args": _LS}]}},
            ]
        }
    ).encode(),
    "messages of pydantic-ai": _lines(
        [
            {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "List."}]},
            {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "ls", "args": _LS}]},
        ]
    ),
    "ShareGPT": _lines(
        {
            "conversations": [
                {"from": "human", "value": "List."},
                {"from": "function_call", "value": '{"name": "ls"}'},
            ]
        }
    ),
    "chats of VS Code": _lines(
        {
            "requests": [
                {
                    "message": {"text": "List."},
                    "response": [{"kind": "toolInvocationSerialized", "toolId": "copilot_listDirectory"}],
                }
            ]
        }
    ),
}

#: Recordings that are read as another format and have no call: most of what they say is lost.
SILENT: Final[dict[str, bytes]] = {
    "Cursor stream": _lines(
        {"role": "user", "message": {"content": [{"type": "text", "text": "Hello."}]}},
        {"role": "assistant", "message": {"content": [{"type": "text", "text": "Hello!"}]}},
    ),
    "Gemini CLI stream": _lines(
        {"type": "init", "timestamp": _AT, "session_id": "s1", "model": "gemini"},
        {"type": "thought", "subject": "I greet."},
        {"type": "message", "timestamp": _AT, "role": "assistant", "content": "Hello!"},
        {"type": "result", "status": "success", "stats": {"total_tokens": 3}},
    ),
    "Qwen Code session": _lines(
        {"uuid": "u1", "parentUuid": None, "sessionId": "s1", "type": "user", "message": {"parts": [{"text": "Hi"}]}},
        {"uuid": "u2", "parentUuid": "u1", "sessionId": "s1", "type": "assistant", "message": {"parts": []}},
    ),
    "AI SDK interface messages": json.dumps(
        [{"id": role, "role": role, "parts": [{"type": "text", "text": "Hi."}]} for role in ("user", "assistant")]
    ).encode(),
}
