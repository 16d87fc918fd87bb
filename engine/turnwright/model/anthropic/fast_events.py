"""The event of the Messages API that nearly all events are: a piece of text, of thinking, or of a call's arguments.

The plain way reads an event as JSON of any shape (see `reply_builder`, `reply_stream`). From the bytes to the delta
that is 110 function calls and 12 us, and a long reply has thousands of events. This is read at once, into the fields
that matter: 18 calls and 2 us. Each field that the plain way looks into is either given here or must be null, so that
an event that says anything else is no `QuickEvent` and goes the plain way. A test holds the two together.
"""

from typing import Final, Literal

import msgspec


class FastDelta(msgspec.Struct, gc=False):
    """What an event adds: of these fields, the one that its type names."""

    type: Literal["text_delta", "thinking_delta", "input_json_delta"]
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class QuickEvent(msgspec.Struct, gc=False):
    """A `content_block_delta` without an error in it."""

    type: Literal["content_block_delta"]
    index: int
    delta: FastDelta
    error: None = None
    object: None = None


#: Reads a quick event out of its data. Raises one of `turnwright.model.http.fast_json.NOT_QUICK` for any other.
read_event: Final = msgspec.json.Decoder(QuickEvent).decode
