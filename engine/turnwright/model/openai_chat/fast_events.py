"""The chunk of a chat completion that nearly all chunks are: a piece of text, of reasoning, or of a call's arguments.

The plain way reads a chunk as JSON of any shape and looks into every field in which some provider has put something
(see `reply_builder`, `reply_stream`). From the bytes to the delta that is 160 function calls and 20 us a chunk, and a
long reply has thousands. This is read at once, into the fields that matter: 20 calls and 2.5 us. Each field that the
plain way looks into is either given here or must be null, so that a chunk that says anything else is no `QuickChunk`
and goes the plain way; a field that is not listed is one that the plain way does not look into either. A test holds
the two together.
"""

from typing import Final, Literal

import msgspec

Nothing = Literal[""] | None


class QuickFunction(msgspec.Struct, gc=False):
    """More of the arguments of a call that has begun."""

    arguments: str = ""
    name: Nothing = None


class QuickCall(msgspec.Struct, gc=False):
    """More of the call with this index."""

    index: int
    function: QuickFunction
    id: Nothing = None
    extra_content: None = None


class FastChoiceDelta(msgspec.Struct, gc=False):
    """What a chunk adds."""

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
    """The choice of index 0, going on."""

    delta: FastChoiceDelta
    index: Literal[0] | None = 0
    finish_reason: Nothing = None
    message: None = None
    usage: None = None
    error: None = None
    object: None = None
    type: None = None


class QuickChunk(msgspec.Struct, gc=False):
    """A chunk with one choice that goes on, and no error anywhere. Some providers send the usage with each."""

    choices: tuple[QuickChoice]
    usage: dict[str, object] | None = None
    kind: Literal["chat.completion.chunk", "chat.completion", ""] | None = msgspec.field(name="object", default=None)
    type: None = None
    error: None = None
    x_groq: None = None
    base_resp: None = None


#: Reads a quick chunk out of the bytes of one event. Raises one of `fast_json.NOT_QUICK` for any other.
read_chunk: Final = msgspec.json.Decoder(QuickChunk).decode
