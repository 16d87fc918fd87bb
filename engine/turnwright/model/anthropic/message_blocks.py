"""Imported history: messages of the Messages API, with their blocks, as messages of ours."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import cast

from pydantic import JsonValue

from turnwright.message import FilePart, Message, ReasoningPart, TextPart, ToolCallPart
from turnwright.model.http.json_text import read_text
from turnwright_states import CallStatus

from .blocks import CALL, THINKING, answered_by, hosted_id, is_thinking, order_of

Block = Mapping[str, JsonValue]


def has_blocks(message: Mapping[str, object]) -> bool:
    """Whether a message has blocks that the chat completions format does not have."""
    content = message.get("content")
    return isinstance(content, list | tuple) and any(map(_is_foreign, content))


def messages_of(message: Mapping[str, object], names: dict[str, str]) -> list[Message]:
    """Return the messages that a message of the Messages API is here: each result of a call is one.

    `names` has the tool of each call so far, and gets those of this message. Blocks may be mappings or objects of the
    SDK. Raises `ValueError` for another role, and for a block of another type.
    """
    role, content = message.get("role"), message.get("content")
    blocks = [_mapping(block) for block in cast("Sequence[object]", content)]
    if role == "assistant":
        names |= {_text(block, "id"): _text(block, "name") for block in blocks if block.get("type") == "tool_use"}
        return [_reply(blocks)]
    if role != "user":
        raise ValueError(f"a message with blocks must have the role user or assistant, not {role!r}")
    messages: list[Message] = []
    for is_result, group in groupby(blocks, lambda block: block.get("type") == "tool_result"):
        if is_result:
            messages += [_result(block, names) for block in group]
        else:
            messages.append(Message(role="user", parts=tuple(map(_part, group))))
    return messages


def _mapping(block: object) -> Block:
    """Return a block as a mapping: a response of the SDK has objects."""
    if isinstance(block, Mapping):
        return cast("Block", block)
    dump = getattr(block, "model_dump", None)
    if not callable(dump):
        raise ValueError(f"a block must be a mapping, not {type(block).__name__}")  # noqa: TRY004 (see Message.from_chat)
    return cast("Block", dump(mode="json", exclude_none=True))


def _is_foreign(block: object) -> bool:
    if not isinstance(block, Mapping):
        return hasattr(block, "model_dump")
    return block.get("type") in ("tool_use", "tool_result", "image", "document") or _is_kept(block)


def _is_kept(block: Block) -> bool:
    """Whether a block goes back to the provider as it is: thinking, and the work of the provider's own tools."""
    return is_thinking(block) or bool(hosted_id(block) or answered_by(block))


def _reply(blocks: Sequence[Block]) -> Message:
    thinking_blocks, texts, calls, order = list[Block](), list[str](), list[ToolCallPart](), list[str | int]()
    for block in blocks:
        if block.get("type") == "text":
            texts.append(_text(block, "text"))
            order.append(len(texts[-1]))
        elif block.get("type") == "tool_use":
            calls.append(_call(block))
            order.append(CALL)
        elif _is_kept(block):
            thinking_blocks.append(block)
            order.append(THINKING)
        else:
            raise _unknown(block)
    thoughts = "".join(_text(block, "thinking") for block in thinking_blocks)
    reasoning = (ReasoningPart(text=thoughts, details=(*thinking_blocks, *order_of(order))),) if thinking_blocks else ()
    text = "".join(texts)
    return Message(role="assistant", parts=(*reasoning, *((TextPart(text=text),) if text else ()), *calls))


def _call(block: Block) -> ToolCallPart:
    arguments = block.get("input")
    arguments = arguments if isinstance(arguments, dict) else {}
    return ToolCallPart(id=_text(block, "id"), name=_text(block, "name"), arguments=arguments)


def _result(block: Block, names: Mapping[str, str]) -> Message:
    call, content = _text(block, "tool_use_id"), block.get("content")
    parts = [TextPart(text=content)] if isinstance(content, str) else list(_parts(content))
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    files = [part for part in parts if isinstance(part, FilePart)]
    status = CallStatus.ERROR if block.get("is_error") else CallStatus.OK
    return Message.result(call, names.get(call, ""), text, status, files)


def _parts(content: JsonValue) -> Iterator[TextPart | FilePart]:
    for block in content if isinstance(content, list) else ():
        yield _part(_mapping(block))


def _part(block: Block) -> TextPart | FilePart:
    kind, source = block.get("type"), block.get("source")
    if kind == "text":
        return TextPart(text=_text(block, "text"))
    if kind not in ("image", "document") or not isinstance(source, Mapping):
        raise _unknown(block)
    name = _text(block, "title")
    match source.get("type"):
        case "base64":
            return FilePart(media_type=_text(source, "media_type"), data=_text(source, "data"), name=name)
        case "url":
            media_type = "image/*" if kind == "image" else "application/pdf"
            return FilePart(media_type=media_type, url=_text(source, "url"), name=name)
        case "text":
            return FilePart.of(_text(source, "data").encode(), "text/plain", name)
        case source_type:
            raise ValueError(
                f"the source of a block is of type {source_type!r}: only base64, url and text are supported"
            )


def _text(block: Block, field: str) -> str:
    return read_text(block.get(field))


def _unknown(block: Block) -> ValueError:
    return ValueError(
        f"content has a block of type {block.get('type')!r}: only text, thinking, tool_use, tool_result, image and"
        " document are supported"
    )
