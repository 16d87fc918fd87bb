"""The messages of spans, in the words of OpenTelemetry's GenAI conventions (each version), OpenInference and others."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pydantic import JsonValue

from turnwright.model.http.json_text import read_text
from turnwright.model.http.reply_builder import Builder
from turnwright.model.openai_chat.reply_builder import ReplyBuilder
from turnwright.model.openai_responses.reply_builder import ResponseBuilder
from turnwright_audit.trajectories.shapes import json_text, read_json

from .anthropic_blocks import MessageReplyBuilder
from .model_replies import read_reply
from .span_dump import Span

_INPUT: Final = (
    *("gen_ai.input.messages", "llm.input_messages", "gen_ai.prompt", "ai.prompt.messages", "input.messages"),
    "gcp.vertex.agent.llm_request",
)
_OUTPUT: Final = (
    *("gen_ai.output.messages", "llm.output_messages", "gen_ai.completion", "gen_ai.output", "genai.output"),
    "gcp.vertex.agent.llm_response",
)
_EVENT_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "choice",
}
_WHOLE_EVENTS: Final = {
    "gen_ai.content.prompt": "gen_ai.prompt",
    "gen_ai.content.completion": "gen_ai.completion",
}
#: Digits of the numbers in the names of flat attributes.
_LONGEST_NUMBER: Final = 10
_THOUGHTS: Final = {"reasoning", "thinking"}
_RESULTS: Final = {"tool_call_response", "tool_result", "toolResult", "function_response"}
_CALLS: Final = {"tool_call", "tool_use", "toolUse", "function_call", "tool-call"}

#: Texts that begin so are lists of parts.
_BLOCKS: Final = ('[{"type"', '[{"text"', '[{"toolUse"', '[{"toolResult"')


class SaidCall(NamedTuple):
    """A call in a message."""

    id: str | None
    name: str
    arguments: JsonValue


class Said(NamedTuple):
    """A message of a request or a reply. `results` are the results of calls in it: the call's id and the text."""

    role: str
    text: str
    reasoning: str
    calls: list[SaidCall]
    results: list[tuple[str, str]]
    finish: str


def request_messages(span: Span) -> list[Said]:
    """Return the messages that the model, or the agent, of a span received."""
    messages = _from_attributes(span, _INPUT) or [message for message in _from_events(span) if message.role != "choice"]
    system = as_value(span.attributes.get("gen_ai.system_instructions"))
    if system and not any(message.role == "system" for message in messages):
        text = json_text(system) if isinstance(system, str) else read_message({"content": system}).text
        messages.insert(0, Said("system", text, "", [], [], ""))
    return messages


def reply_messages(span: Span) -> list[Said]:
    """Return the messages that the model of a span replied with."""
    messages = _from_attributes(span, _OUTPUT) or [
        message for message in _from_events(span) if message.role == "choice"
    ]
    if messages:
        return messages
    text, calls = span.text("ai.response.text"), as_value(span.attributes.get("ai.response.toolCalls"))
    if text or calls:
        return [read_message({"role": "assistant", "content": text, "tool_calls": calls})]
    value = as_value(span.attributes.get("output.value"))
    if isinstance(value, Mapping):
        return [_read_response(value) or read_message(value)]
    return [read_message({"role": "assistant", "content": value})] if isinstance(value, str) else []


def conversation(span: Span) -> list[Said]:
    """Return the whole conversation that an agent's span may carry at its end."""
    return _from_attributes(span, ("pydantic_ai.all_messages", "all_messages_events", "gen_ai.output.messages"))


def read_message(value: Mapping[str, JsonValue]) -> Said:
    """Return a message of any of the known shapes."""
    for wrapper in ("message", "delta", "content"):
        inner = as_value(value.get(wrapper))
        if isinstance(inner, Mapping):
            value = {**value, **inner}
        elif inner and wrapper != "content":
            value = dict(value, content=inner)
    message = Said(
        role=read_text(value.get("role")),
        text="",
        reasoning=read_text(value.get("reasoning_content")),
        calls=[],
        results=[],
        finish=read_text(value.get("finish_reason") or value.get("stop_reason")),
    )
    texts: list[str] = []
    content = next((value[key] for key in ("parts", "contents", "content") if value.get(key)), None)
    thoughts = _parts(content, message, texts)
    more_fields = value.get("additional_kwargs")  # of LangChain
    call_list = as_value(
        value.get("tool_calls") or (more_fields.get("tool_calls") if isinstance(more_fields, Mapping) else None)
    )
    for call in call_list if isinstance(call_list, list) else ():
        _call(call, message)
    if "tool.name" in value:
        _call(value, message)
    _call(value.get("function_call"), message)
    text = "\n".join(texts)
    call_id = value.get("tool_call_id") or (value.get("id") if message.role == "tool" else None)
    if isinstance(call_id, str) and call_id and not message.results:
        message.results.append((call_id, text))
    return message._replace(text=text, reasoning="\n".join(filter(None, (message.reasoning, *thoughts))))


def _read_response(response: Mapping[str, JsonValue]) -> Said | None:
    """Decode the response of a provider; None for another value."""
    builder = _builder_of(response)
    if builder is None:
        return None
    reply = read_reply(builder, response)
    calls = [
        SaidCall(call.id or None, call.name, call.raw if call.arguments is None else dict(call.arguments))
        for call in reply.calls
        if call.name
    ]
    is_empty = not (reply.text or reply.reasoning or calls)
    return None if is_empty else Said("assistant", reply.text, reply.reasoning, calls, [], reply.finish_reason or "")


def _builder_of(response: Mapping[str, JsonValue]) -> type[Builder] | None:
    if isinstance(response.get("choices"), list):
        return ReplyBuilder
    if isinstance(response.get("output"), list):
        return ResponseBuilder
    return MessageReplyBuilder if response.get("type") == "message" else None


def as_value(value: JsonValue) -> JsonValue:
    """Return the JSON value of a text that is one; any other value as it is."""
    if isinstance(value, str) and value[:1] in {"[", "{", '"'}:
        document = read_json(value)
        return value if document is None else document
    return value


def _messages(value: JsonValue) -> Iterator[Said]:
    if isinstance(value, list):
        yield from (read_message(message) for message in value if isinstance(message, Mapping))
    elif isinstance(value, Mapping):
        inner = value.get("messages") or value.get("choices") or value.get("contents")
        yield from _messages(inner) if isinstance(inner, list) else [read_message(value)]
    elif isinstance(value, str) and value:
        yield read_message({"content": value})


def _from_attributes(span: Span, keys: tuple[str, ...]) -> list[Said]:
    for key in keys:
        value = span.attributes.get(key)
        messages = list(_messages(as_value(value))) if value else []
        if not messages:
            messages = [read_message(message) for message in _list_indexed(span, f"{key}.")]
        if messages:
            return messages
    return []


def _from_events(span: Span) -> Iterator[Said]:
    """Yield the messages in the events of a span, with `choice` as the role of a reply."""
    events: list[tuple[str, Mapping[str, JsonValue]]] = [(event.name, event.attributes) for event in span.events]
    event_list = as_value(span.attributes.get("events"))
    bodies = [body for body in event_list if isinstance(body, Mapping)] if isinstance(event_list, list) else []
    events.extend((read_text(body.get("event.name")), body) for body in bodies)
    for name, attributes in events:
        for part in ("gen_ai.input.messages", "gen_ai.output.messages"):
            for message in _messages(as_value(attributes.get(part))):
                yield message._replace(role="choice") if part == "gen_ai.output.messages" else message
        if name in _WHOLE_EVENTS:
            for message in _messages(as_value(attributes.get(_WHOLE_EVENTS[name]))):
                yield message._replace(role="choice") if name == "gen_ai.content.completion" else message
        role = _EVENT_ROLES.get(name)
        if role is not None:
            body = as_value(attributes.get("gen_ai.event.content"))
            yield read_message({**attributes, **(body if isinstance(body, Mapping) else {}), "role": role})._replace(
                role=role
            )


def _list_indexed(span: Span, prefix: str) -> list[dict[str, JsonValue]]:
    """Return the objects whose fields are attributes such as `PREFIX0.message.role`, in order."""
    tree: dict[str, JsonValue] = {}
    for key, value in span.attributes.items():
        if key.startswith(prefix):
            place = tree
            *path, last = key[len(prefix) :].split(".")
            for name in path:
                inner = place.setdefault(name, {})
                if not isinstance(inner, dict):
                    break
                place = inner
            else:
                place[last] = value
    return [item for item in _list_values(tree) if isinstance(item, dict)]


def _list_values(tree: dict[str, JsonValue]) -> list[JsonValue]:
    """Return the values of an object whose keys are numbers, and so at every depth."""
    numbered_values = sorted(
        (int(key), value)
        for key, value in tree.items()
        if key.isdecimal() and len(key) < _LONGEST_NUMBER and isinstance(value, dict)
    )
    return [_list_nested(value) for _, value in numbered_values]


def _list_nested(tree: JsonValue) -> JsonValue:
    if not isinstance(tree, dict) or not tree:
        return tree
    if all(key.isdecimal() for key in tree):
        return _list_values(tree)
    return {key: _list_nested(value) for key, value in tree.items()}


def _parts(content: JsonValue, message: Said, texts: list[str]) -> list[str]:
    """Add the text, calls and results of a message's content; return its reasoning."""
    content = as_value(content) if isinstance(content, str) and content.startswith(_BLOCKS) else content
    if not isinstance(content, list):
        if content is not None:
            texts.append(json_text(content))
        return []
    thoughts: list[str] = []
    for part in content:
        if not isinstance(part, Mapping):
            texts.append(json_text(part))
            continue
        inner = part.get("message_content")
        part = inner if isinstance(inner, Mapping) else part  # noqa: PLW2901 (the part itself, out of its wrapper)
        kind = read_text(part.get("type")) or next(iter(part), "")
        body = part.get(kind)
        body = body if isinstance(body, Mapping) else part
        if kind in _CALLS:
            _call(body, message)
        elif kind in _RESULTS:
            call_id = body.get("id") or body.get("tool_use_id") or body.get("toolUseId")
            value = next((body[key] for key in ("response", "result", "content") if key in body), None)
            message.results.append((read_text(call_id), _plain_text(value)))
        elif kind in _THOUGHTS:
            thoughts.append(read_text(part.get("content") or part.get("thinking") or part.get("text")))
        else:
            texts.append(read_text(part.get("text") or part.get("content")))
    return [text for text in thoughts if text]


def _plain_text(value: JsonValue) -> str:
    """Return the text of a result, out of its parts if it has some."""
    if isinstance(value, list) and value and all(isinstance(part, Mapping) and "text" in part for part in value):
        return "\n".join(read_text(part.get("text")) for part in value if isinstance(part, Mapping))
    return json_text(value)


def _call(value: "JsonValue | Mapping[str, JsonValue]", message: Said) -> None:
    if not isinstance(value, Mapping):
        return
    for wrapper in ("tool_call", "function"):
        inner = value.get(wrapper)
        if isinstance(inner, Mapping):
            value = {**value, **inner}
    name = value.get("name") or value.get("tool.name") or value.get("toolName") or value.get("function.name")
    if not isinstance(name, str) or not name:
        return
    keys = ("arguments", "input", "args", "tool.args", "function.arguments")
    arguments = next((value[key] for key in keys if key in value), None)
    call_id = value.get("id") or value.get("toolUseId") or value.get("toolCallId") or value.get("call_id")
    message.calls.append(SaidCall(call_id if isinstance(call_id, str) else None, name, arguments))
