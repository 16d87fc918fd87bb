"""The messages of Anthropic's API, which several formats have: their types, and what a run has of them."""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnwright_audit.trajectories.atif import ResultStatus, StepMetrics
from turnwright_audit.trajectories.readers.chat_messages import named_by_hash

#: The words in which Claude Code denies a call, or says that it was canceled.
_DENIED: Final = re.compile(
    r"requires? approval|requested permissions to|has been (?:auto-)?denied|denied this tool"
    r"|doesn't want to (?:proceed|take this action)"
)
_CANCELED: Final = re.compile(r"\[Request interrupted by user|(?:<tool_use_error>)?Cancell?ed\b")
_LOOKED_AT: Final = 400
#: The types of calls: of the program's tools, of the server's, and of its MCP servers.
CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
#: Texts that Claude Code adds in the user's role.
INTERRUPTED: Final = "[Request interrupted by user"
_NOTICE: Final = re.compile(
    r"\[Request interrupted by user[^\]\n]*\]|<system-reminder>.*?</system-reminder>", re.DOTALL
)


class Usage(Struct):
    """The tokens of one response. The input has neither what was read from the cache nor what was written to it."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    def metrics(self, cost: float | None = None) -> StepMetrics | None:
        """Return the usage as a step has it; None if it has no numbers."""
        given = (self.input_tokens, self.cache_read_input_tokens, self.cache_creation_input_tokens)
        known = [number for number in given if number is not None]
        if not known and self.output_tokens is None and cost is None:
            return None
        return StepMetrics(
            prompt_tokens=sum(known) if known else None,
            completion_tokens=self.output_tokens,
            cached_tokens=self.cache_read_input_tokens,
            cost_usd=cost,
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
    usage: Usage | None = None


def blocks_of(content: Content) -> list[Block]:
    """Return a content as blocks."""
    if content is None:
        return []
    if isinstance(content, str):
        return [Block("text", text=content)]
    return [Block("text", text=one) if isinstance(one, str) else one for one in content]


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
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(map(_part_text, content))
    return msgspec.json.encode(content).decode()


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text")
        if isinstance(text, str):
            return text
        if part.get("type") in ("image", "document"):
            return named_by_hash(str(part["type"]), part.get("source"))
    return msgspec.json.encode(part).decode()
