"""The messages of Anthropic's API, which several formats have: their types, and what a run has of them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace
from pydantic import JsonValue
from typing_extensions import override

from turnwright.model.anthropic.blocks import answered_by, hosted_id
from turnwright.model.anthropic.reply_builder import MessageBuilder
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright_audit.trajectories.atif import ResultStatus
from turnwright_audit.trajectories.readers.chat_messages import named_by_hash
from turnwright_audit.trajectories.readers.model_replies import UNREADABLE_CALL, RecordedReply
from turnwright_audit.trajectories.shapes import Shape, json_text

#: The words in which Claude Code denies a call, or says that it was canceled.
_DENIED: Final = re.compile(
    r"requires? approval|requested permissions to|has been (?:auto-)?denied|denied this tool"
    r"|doesn't want to (?:proceed|take this action)|a plan that was rejected by the user"
)
_CANCELED: Final = re.compile(
    r"\[Request interrupted by user|(?:<tool_use_error>)?(?:Cancell?ed\b|Sibling tool call errored)"
)
_LOOKED_AT: Final = 400
#: The types of calls: of the program's tools, of the server's, and of its MCP servers.
CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
#: The endings of the types of their results.
RESULTS: Final = ("tool_result", "_tool_result")
#: The blocks that the client reads. A block without a type is one of these.
_READ: Final = frozenset({*CALLS, "", "text", "thinking", "redacted_thinking"})
#: Texts that Claude Code adds in the user's role.
INTERRUPTED: Final = "[Request interrupted by user"
_NOTICE: Final = re.compile(
    r"\[Request interrupted by user[^\]\n]*\]|<system-reminder>.*?</system-reminder>", re.DOTALL
)


class Block(Struct):
    """A block of any type. `content` is that of a result."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None
    source: Any = None


Content = str | list[str | Block] | None


class Message(Struct):
    """A message of a request, or a response."""

    id: str | None = None
    role: str | None = None
    model: str | None = None
    content: Content = None
    stop_reason: str | None = None
    usage: Any = None


_BLOCK: Final = Shape(Block)


class MessageReplyBuilder(MessageBuilder):
    """Builds a reply whose calls include those of the tools that the provider runs, as far as they can be read."""

    @override
    def reply(self) -> ModelResponse:
        reply = super().reply()
        calls = [_hosted_call(block) for block in self.hosted_blocks if block is None or hosted_id(block)]
        return replace(reply, calls=(*calls, *reply.calls))

    def read_results(self) -> list[Block]:
        """Return the results of the tools that the provider runs."""
        blocks = [block for block in self.hosted_blocks if block is not None and answered_by(block)]
        return [result for block in blocks if (result := _BLOCK.convert(block)) is not None]


def _hosted_call(block: Mapping[str, JsonValue] | None) -> ResponseToolCall:
    if block is None:
        return UNREADABLE_CALL
    name, arguments = block.get("name"), block.get("input")
    return ResponseToolCall(
        name=name if isinstance(name, str) else "",
        arguments=arguments if isinstance(arguments, dict) else None,
        raw="" if isinstance(arguments, dict) else str(arguments or ""),
        id=hosted_id(block),
    )


def read_message(message: Message) -> RecordedReply[MessageReplyBuilder]:
    """Decode a message of the model that was recorded whole."""
    recorded_reply = RecordedReply(MessageReplyBuilder)
    recorded_reply.add({"type": "message", **fields_of(message)})
    return recorded_reply


def fields_of(message: Message) -> dict[str, Any]:
    """Return the fields of a message of the model as the client reads them."""
    return {
        "id": message.id,
        "model": message.model,
        "content": list(map(_readable_block, blocks_of(message.content))),
        "stop_reason": message.stop_reason,
        "usage": message.usage,
    }


def _readable_block(block: Block) -> dict[str, Any]:
    if block.type in _READ or block.type.endswith(RESULTS):
        return asdict(block)
    return {"type": "text", "text": text_of([block])}


def blocks_of(content: Content) -> list[Block]:
    """Return a content as blocks."""
    if content is None:
        return []
    if isinstance(content, str):
        return [Block("text", text=content)]
    return [Block("text", text=part) if isinstance(part, str) else part for part in content]


def text_of(blocks: Iterable[Block]) -> str:
    """Return the text of blocks, without thinking, calls and results. What is not text is named by a hash of it."""
    return "\n".join(
        block.text if block.text is not None else named_by_hash(block.type, block.source or block.content)
        for block in blocks
        if block.text or block.source is not None
    )


def is_notice(text: str) -> bool:
    """Whether a text in the user's role is nothing but reminders of the program and its mark of an interruption."""
    return text.lstrip().startswith((INTERRUPTED, "<system-reminder>")) and not _NOTICE.sub("", text).strip()


def status_of(block: Block, text: str) -> ResultStatus:
    """Return how the call of a result ended. `text` is that of the result."""
    if not block.is_error:
        of_server = isinstance(block.content, dict) and str(block.content.get("type")).endswith("_error")
        return "error" if of_server else "ok"
    if _CANCELED.match(text):
        return "canceled"
    return "denied" if _DENIED.search(text, 0, _LOOKED_AT) else "error"


def result_text(content: object) -> str:
    """Return the content of a result as text."""
    return "\n".join(map(_part_text, content)) if isinstance(content, list) else json_text(content)


def _part_text(part: object) -> str:
    if isinstance(part, dict):
        text = part.get("text")
        if isinstance(text, str):
            return text
        if part.get("type") in ("image", "document"):
            return named_by_hash(str(part["type"]), part.get("source"))
    return json_text(part)
