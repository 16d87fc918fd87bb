"""The most common chunk of a chat completion: a piece of text, of reasoning, or of a call's arguments.

The plain path reads a chunk as JSON of any shape, with every field that some provider uses (see `reply_builder`,
`reply_stream`), in 160 function calls and 20 us; a long reply has thousands of chunks. This module decodes the relevant
fields in 20 calls and 2.5 us. Every other field that the plain path reads must be null, so any other chunk takes the
plain path. A test compares both.
"""

from typing import Final, Literal

import msgspec

Nothing = Literal[""] | None


class QuickFunction(msgspec.Struct, gc=False):
    """A piece of the arguments of a call that has begun."""

    arguments: str = ""
    name: Nothing = None


class QuickCall(msgspec.Struct, gc=False):
    """A piece of the call with this index."""

    index: int
    function: QuickFunction
    id: Nothing = None
    extra_content: None = None


class FastChoiceDelta(msgspec.Struct, gc=False):
    """The piece in a chunk."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[QuickCall] | None = None
    function_call: None = None
    refusal: Nothing = None
    reasoning_details: tuple[()] | None = None
    reasoning_text: Nothing = None
    thinking: Nothing = None
    thinking_blocks: tuple[()] | None = None


class QuickChoice(msgspec.Struct, gc=False):
    """The choice with index 0, continued."""

    delta: FastChoiceDelta
    index: Literal[0] | None = 0
    finish_reason: Nothing = None
    message: None = None
    usage: None = None
    error: None = None
    object: None = None
    type: None = None


class QuickChunk(msgspec.Struct, gc=False):
    """A chunk that continues one choice, without any error. Some providers send the usage with each."""

    choices: tuple[QuickChoice]
    usage: dict[str, object] | None = None
    kind: Literal["chat.completion.chunk", "chat.completion", ""] | None = msgspec.field(name="object", default=None)
    type: None = None
    error: None = None
    x_groq: None = None
    base_resp: None = None


#: Decodes a quick chunk. Raises one of `turnwright.model.http.reply_stream.NOT_QUICK` for any other chunk.
read_chunk: Final = msgspec.json.Decoder(QuickChunk).decode
