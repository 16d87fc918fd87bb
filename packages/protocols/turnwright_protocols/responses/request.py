"""Read the requests of the Responses API: a prompt with its history, or answers to a paused turn."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pydantic import JsonValue

from turnwright import ToolResult
from turnwright.agent import Agent
from turnwright.errors import TurnNotFoundError
from turnwright.journal.answers import Answer, reject, settled
from turnwright.message import FilePart, Message
from turnwright_protocols.client_tools import ToolDeclaration
from turnwright_protocols.conversations import AnswerValue
from turnwright_protocols.http import JsonObject, RefusedRequestError, read_flag, wrong_field
from turnwright_states import Decision

from .response_encoder import SERVER

_ID: Final = re.compile(r"resp_([A-Za-z0-9._-]{1,128})_([0-9]{1,9})")
#: The most items of an input, and entries of metadata with their lengths.
_MOST_ITEMS: Final = 2000
_MOST_METADATA: Final = 16
_LONGEST: Final = 512
#: Items of earlier responses that the journal has, if the client sends them back.
_OURS: Final = frozenset({"mcp_call", "mcp_list_tools", "mcp_approval_request", "reasoning"})
#: Calls of the client's tools, and their results.
_CALL, _OUTPUT = "function_call", "function_call_output"
#: An item of an earlier response by its id, which begins with a kind and the id of its turn.
_REFERENCE: Final = "item_reference"
_ITEM_ID: Final = re.compile(r"(?:(?:msg|rs|fc|fco|mcp)_([A-Za-z0-9]{1,64})[-_]|([A-Za-z0-9]{1,64})/)[!-~]{1,256}")
_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
#: Settings that have a meaning for a model, which is the agent's to set. Their defaults are accepted.
_UNSUPPORTED: Final = ("conversation", "prompt", "context_management")


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """A request for a response: a prompt with the client's `tools`, or what a paused turn waits for.

    That is `answers` by the ids of interrupts with their turn, and `results` of the client's tools by the ids of calls.
    """

    model: JsonValue
    prompt: str = ""
    files: tuple[FilePart, ...] = ()
    history: tuple[Message, ...] = ()
    instructions: str = ""
    previous: str = ""
    answers: dict[str, AnswerValue] = field(default_factory=dict)
    results: dict[str, Callable[[], Answer]] = field(default_factory=dict)
    tools: tuple[ToolDeclaration, ...] = ()
    stream: bool = False
    background: bool = False
    metadata: dict[str, JsonValue] = field(default_factory=dict)
    text_format: JsonValue = None


def parse_id(identifier: str) -> tuple[str, int]:
    """Return the turn and the seq of a response's id. Raises `TurnNotFoundError`."""
    match = _ID.fullmatch(identifier)
    if match is None:
        raise TurnNotFoundError(identifier)
    return match[1], int(match[2])


def referenced_turns(value: JsonValue) -> dict[str, str]:
    """Return the turns of the items that an input has by reference, by the ids of these items.

    Raises `RefusedRequestError` for an id that no response has.
    """
    turns: dict[str, str] = {}
    for item in value if isinstance(value, list) and len(value) <= _MOST_ITEMS else ():
        if isinstance(item, dict) and item.get("type") == _REFERENCE:
            match = _ITEM_ID.fullmatch(str(item.get("id")))
            if match is None:
                raise _no_item()
            turns[match[0]] = match[1] or match[2]
    return turns


def replace_references(value: JsonValue, items: Mapping[str, Mapping[str, JsonValue]]) -> JsonValue:
    """Return the input with the items instead of their ids, without texts that were withdrawn.

    Raises `RefusedRequestError`.
    """
    new_items: list[JsonValue] = []
    for item in value if isinstance(value, list) else ():
        if not isinstance(item, dict) or item.get("type") != _REFERENCE:
            new_items.append(item)
            continue
        item_at_reference = items.get(str(item.get("id")))
        if item_at_reference is None:
            raise _no_item()
        if item_at_reference.get("status") != "incomplete":
            new_items.append({**item_at_reference})
    return new_items


def _no_item() -> RefusedRequestError:
    return RefusedRequestError(404, "input: there is no such item", field="input")


def read_request(body: JsonObject) -> ResponseRequest:
    """Read the body of `POST /responses`. Raises `RefusedRequestError`, which names the field."""
    if not isinstance(body.get("model"), str):
        raise wrong_field("model", "is missing: it is the agent's name")
    if body.get("store") is False:
        raise wrong_field("store", "must not be false: the journal keeps each turn")
    for name in _UNSUPPORTED:
        if body.get(name) is not None:
            raise wrong_field(name, "is not supported")
    previous = body.get("previous_response_id")
    if not isinstance(previous, str | None):
        raise wrong_field("previous_response_id", "must be a text")
    instructions = body.get("instructions")
    if not isinstance(instructions, str | None):
        raise wrong_field("instructions", "must be a text")
    text = body.get("text")
    items = _items(body.get("input"))
    answers, results = _answers(items), _results(items, continues=previous is not None)
    messages = _messages(items)
    prompt, files, history = "", tuple[FilePart, ...](), messages
    if not answers and not results:
        if not messages or messages[-1].role != "user":
            raise wrong_field("input", "must end with a message of the user")
        *history, last = messages
        prompt, files = last.text, last.files
    return ResponseRequest(
        model=body["model"],
        prompt=prompt,
        files=files,
        history=tuple(history),
        instructions=instructions or "",
        previous=previous or "",
        answers=answers,
        results=results,
        tools=() if body.get("tool_choice") == "none" else tuple(_tools(body.get("tools"))),
        stream=read_flag(body, "stream"),
        background=read_flag(body, "background"),
        metadata=_metadata(body.get("metadata")),
        text_format=text.get("format") if isinstance(text, dict) else None,
    )


def need_answer_format(agent: Agent, value: JsonValue, field: str) -> None:
    """Raise `RefusedRequestError` if a request wants JSON from an agent that answers with text.

    A typed agent answers in its own format, whatever the client's schema is.
    """
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in (None, "text") and not agent.is_typed:
        raise wrong_field(field, "the agent answers with text: give it an output type, or use a function for JSON")


def _tools(value: JsonValue) -> list[ToolDeclaration]:
    """Return the functions of the client."""
    if not isinstance(value, list | None):
        raise wrong_field("tools", "must be a list")
    tools: list[ToolDeclaration] = []
    for number, tool in enumerate(value or ()):
        if isinstance(tool, dict) and tool.get("type") == "mcp" and tool.get("server_label") == SERVER:
            continue  # the agent's own tools, as clients declare whose approvals they answer
        if not isinstance(tool, dict) or tool.get("type") != "function":
            raise wrong_field("tools", f"tool {number} is not of the type 'function': the agent has its own tools")
        tools.append(ToolDeclaration(tool.get("name"), tool.get("description"), tool.get("parameters")))
    return tools


def _results(items: Sequence[dict[str, JsonValue]], *, continues: bool) -> dict[str, Callable[[], Answer]]:
    """Return the results of the client's tools by the ids of their calls: the outputs after the last message.

    Earlier outputs belong to the history. A request that `continues` a response has no history.
    """
    results: dict[str, Callable[[], Answer]] = {}
    outputs: dict[str, JsonValue] = {}
    for item in items:
        if item.get("type") == _OUTPUT:
            reference, output = item.get("call_id"), item.get("output")
            if not isinstance(reference, str):
                raise wrong_field("input", "a function_call_output needs call_id and output")
            if outputs.setdefault(reference, output) != output:
                raise wrong_field("input", "a call has two different outputs")
            text, files = _content(output)
            results[reference] = partial(settled, ToolResult(text, files=files))
        elif item.get("type", "message") == "message":
            if results and continues:
                raise wrong_field("input", "a message cannot follow the outputs of calls: send it after the response")
            results.clear()
    return results


def _messages(items: Sequence[dict[str, JsonValue]]) -> list[Message]:
    """Return the messages of an input, with the calls of the client's tools that have their outputs."""
    calls: dict[JsonValue, dict[str, JsonValue]] = {}
    for item in items:
        if item.get("type") == _CALL:
            if not isinstance(item.get("call_id"), str):
                raise wrong_field("input", "a function_call needs a call_id")
            calls[str(item["call_id"])] = item
    messages: list[Message] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            messages.append(_message(item))
        elif kind == _OUTPUT and (call := calls.get(item.get("call_id"))) is not None:
            messages += _call_messages(call, item)
    return messages


def _call_messages(call: Mapping[str, JsonValue], output: Mapping[str, JsonValue]) -> tuple[Message, Message]:
    function: dict[str, JsonValue] = {"name": call.get("name"), "arguments": call.get("arguments")}
    tool_call: JsonValue = {"id": call.get("call_id"), "type": "function", "function": function}
    try:
        call_message = Message.from_chat({"role": "assistant", "content": None, "tool_calls": [tool_call]})
    except ValueError as error:
        raise wrong_field("input", f"a function_call: {error}") from None
    text, files = _content(output.get("output"))
    return call_message, Message.result(str(call.get("call_id")), str(call.get("name")), text, files=files)


def _metadata(value: JsonValue) -> dict[str, JsonValue]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > _MOST_METADATA:
        raise wrong_field("metadata", f"must be an object of at most {_MOST_METADATA} entries")
    if not all(
        isinstance(text, str) and len(text) <= _LONGEST and len(name) <= _LONGEST for name, text in value.items()
    ):
        raise wrong_field("metadata", f"must have texts of at most {_LONGEST} characters")
    return value


def _items(value: JsonValue) -> list[dict[str, JsonValue]]:
    if isinstance(value, str) and value.strip():
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_ITEMS:
        raise wrong_field("input", f"must be a text, or a list of 1 to {_MOST_ITEMS} items")
    items: list[dict[str, JsonValue]] = []
    for number, item in enumerate(value):
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(kind, str):
            raise wrong_field("input", f"item {number} is not an item")
        if kind in _OURS:
            continue
        if kind not in ("message", "mcp_approval_response", _CALL, _OUTPUT):
            raise wrong_field("input", f"item {number}: the type {kind[:40]!r} is not supported")
        items.append(item)
    return items


def _answers(items: Sequence[dict[str, JsonValue]]) -> dict[str, AnswerValue]:
    answers: dict[str, AnswerValue] = {}
    for item in items:
        if item.get("type") != "mcp_approval_response":
            continue
        name, approve, reason = item.get("approval_request_id"), item.get("approve"), item.get("reason")
        if not isinstance(name, str) or not isinstance(approve, bool) or not isinstance(reason, str | None):
            raise wrong_field("input", "an approval needs approval_request_id and approve")
        if name in answers:
            raise wrong_field("input", "an approval is answered twice")
        answers[name] = Answer(Decision.APPROVE) if approve else reject(reason or "")
    return answers


def _message(item: dict[str, JsonValue]) -> Message:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        raise wrong_field("input", "a message needs the role user, assistant, system or developer")
    text, files = _content(content)
    if not text.strip() and not files:
        raise wrong_field("input", "a message has no content")
    if role == "user":
        return Message.user(text, files)
    return Message.assistant(text) if role == "assistant" else Message.system(text)


def _content(content: JsonValue) -> tuple[str, tuple[FilePart, ...]]:
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, list):
        raise wrong_field("input", "a message has no content")
    texts: list[str] = []
    files: list[FilePart] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(part, dict) or not isinstance(kind, str):
            raise wrong_field("input", "a part of a message has no type")
        if kind in ("input_text", "output_text", "text", "refusal"):
            text = part.get("refusal" if kind == "refusal" else "text")
            if not isinstance(text, str):
                raise wrong_field("input", f"a part of type {kind} has no text")
            texts.append(text)
        elif kind == "input_image":
            files.append(_file("image/*", part.get("image_url"), ""))
        elif kind == "input_file":
            url = part.get("file_data") or part.get("file_url")
            files.append(_file("application/octet-stream", url, part.get("filename") or ""))
        else:
            raise wrong_field("input", f"a part of the type {kind[:40]!r} is not supported")
    return "\n".join(texts), tuple(files)


def _file(media_type: str, url: JsonValue, name: JsonValue) -> FilePart:
    if not isinstance(url, str) or not isinstance(name, str):
        raise wrong_field("input", "a file needs its content or its address; ids of files are not supported")
    try:
        return FilePart(media_type=media_type, url=url, name=name)
    except ValueError as error:
        raise wrong_field("input", f"a file: {error}") from None
