"""Events of the Responses API, written down shortly, and a reply as the API sends it."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright.model.openai_responses.stream import ResponsesStream
from turnwright.model.protocol import ModelResponse

Event = dict[str, JsonValue]
Item = dict[str, JsonValue]

USAGE: Final[Event] = {
    "input_tokens": 25,
    "input_tokens_details": {"cached_tokens": 5},
    "output_tokens": 15,
    "output_tokens_details": {"reasoning_tokens": 8},
    "total_tokens": 40,
}
SEARCH: Final[Item] = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "weather"},
}


def sse(*events: Event, end: str = "\n", ascii_only: bool = False) -> bytes:
    """A stream of these events, as OpenAI writes it."""
    return "".join(
        f"event: {event['type']}{end}data: {json.dumps(event, ensure_ascii=ascii_only)}{end}{end}" for event in events
    ).encode("utf-8", "surrogatepass")


def created(**more: JsonValue) -> Event:
    response: Event = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "gpt-5-mini"}
    return {"type": "response.created", "response": {**response, "error": None, "output": [], "usage": None, **more}}


def added(index: JsonValue, item: Item) -> Event:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: JsonValue, item: Item) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def text(index: JsonValue, piece: str, part: JsonValue = 0, item_id: JsonValue = None) -> Event:
    place: Event = {"output_index": index, "content_index": part, "logprobs": []}
    ids: Event = {} if item_id is None else {"item_id": item_id}
    return {"type": "response.output_text.delta", **ids, **place, "delta": piece}


def summary(index: JsonValue, piece: str, part: int = 0) -> Event:
    return {
        "type": "response.reasoning_summary_text.delta",
        "output_index": index,
        "summary_index": part,
        "delta": piece,
    }


def arguments(index: JsonValue, piece: str, item_id: JsonValue = None) -> Event:
    ids: Event = {} if item_id is None else {"item_id": item_id}
    return {"type": "response.function_call_arguments.delta", **ids, "output_index": index, "delta": piece}


def completed(*output: JsonValue, **more: JsonValue) -> Event:
    response: Event = {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5-mini"}
    return {
        "type": "response.completed",
        "response": {**response, "error": None, "output": [*output], "usage": USAGE, **more},
    }


def incomplete(reason: str, *output: JsonValue) -> Event:
    more: Event = {"status": "incomplete", "incomplete_details": {"reason": reason}}
    return {**completed(*output, **more), "type": "response.incomplete"}


def failed(error: JsonValue) -> Event:
    return {**completed(status="failed", error=error, usage=None), "type": "response.failed"}


def message(*texts: str, item_id: str = "msg_1", **more: JsonValue) -> Item:
    content: list[JsonValue] = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {
        "type": "message",
        "id": item_id,
        "status": "completed",
        "role": "assistant",
        "content": content,
        **more,
    }


def call(name: str, raw: str, call_id: str = "call_1", item_id: str = "fc_1", **more: JsonValue) -> Item:
    return {
        "type": "function_call",
        "id": item_id,
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": raw,
        **more,
    }


def reasoning(*parts: str, sealed: str = "gAAAA", item_id: str = "rs_1", **more: JsonValue) -> Item:
    summary: list[JsonValue] = [{"type": "summary_text", "text": part} for part in parts]
    return {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": sealed, **more}


def kept(item: Item) -> dict[str, JsonValue]:
    """The entry of an item that goes back."""
    return {"type": "openai_response", "item": item}


def ordered(*order: JsonValue) -> dict[str, JsonValue]:
    """The entry of an order."""
    return {"type": "openai_response", "order": [*order]}


def streamed(index: int, item: Item, pieces: Sequence[str] | None = None) -> Iterator[Event]:
    """One item as the API streams it, its text or arguments in these pieces."""
    item_id, place = item["id"], {"output_index": index}
    match item["type"]:
        case "message":
            content = item["content"]
            assert isinstance(content, list)
            yield added(index, {**item, "content": [], "status": "in_progress"})
            for number, part in enumerate(content):
                assert isinstance(part, dict)
                field = "refusal" if part["type"] == "refusal" else "text"
                name = "response.refusal" if field == "refusal" else "response.output_text"
                where: Event = {"item_id": item_id, **place, "content_index": number}
                yield {"type": "response.content_part.added", **where, "part": {**part, field: ""}}
                for piece in [str(part[field])] if pieces is None or number else pieces:
                    yield {"type": f"{name}.delta", **where, "delta": piece}
                yield {"type": f"{name}.done", **where, field: part[field]}
                yield {"type": "response.content_part.done", **where, "part": part}
        case "function_call":
            yield added(index, {**item, "arguments": "", "status": "in_progress"})
            for piece in [str(item["arguments"])] if pieces is None else pieces:
                yield arguments(index, piece, item_id)
            whole: Event = {"item_id": item_id, **place, "arguments": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **whole}
        case "reasoning":
            parts = item["summary"]
            assert isinstance(parts, list)
            yield added(index, {**item, "summary": [], "encrypted_content": "begun"})
            for number, part in enumerate(parts):
                assert isinstance(part, dict)
                where = {"item_id": item_id, **place, "summary_index": number}
                yield {"type": "response.reasoning_summary_part.added", **where, "part": {**part, "text": ""}}
                for piece in [str(part["text"])] if pieces is None or number else pieces:
                    yield {"type": "response.reasoning_summary_text.delta", **where, "delta": piece}
                yield {"type": "response.reasoning_summary_text.done", **where, "text": part["text"]}
                yield {"type": "response.reasoning_summary_part.done", **where, "part": part}
        case kind:
            yield added(index, {**item, "status": "in_progress"})
            yield {"type": f"response.{kind}.searching", "item_id": item_id, **place}
    yield done(index, item)


def whole(*items: Item) -> list[Event]:
    """A reply of these items, as the API streams it."""
    return [created(), *(event for n, item in enumerate(items) for event in streamed(n, item)), completed(*items)]


def decode(*events: Event, more: bytes = b"") -> ResponsesStream:
    """A decoder that has been fed these events."""
    stream = ResponsesStream()
    stream.feed(sse(*events) + more)
    stream.end()
    return stream


def reply(*events: Event) -> ModelResponse:
    """The reply of these events, with a beginning and an end."""
    return decode(created(), *events, completed()).reply()
