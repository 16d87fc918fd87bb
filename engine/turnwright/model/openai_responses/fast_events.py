"""The most common event of the Responses API: a piece of text.

The plain path reads an event as JSON of any shape (see `reply_builder`, `reply_stream`); a long reply has thousands of
events. This module decodes the relevant fields. Every other field that the plain path reads must be null, so any other
event takes the plain path. A test compares both.
"""

from typing import Annotated, Final, Literal

import msgspec

# Indexes with more digits are not indexes to the plain path.
_Index = Annotated[int, msgspec.Meta(gt=-(10**9), lt=10**9)]


class QuickEvent(msgspec.Struct, gc=False):
    """A `response.output_text.delta` without an error in it."""

    type: Literal["response.output_text.delta"]
    output_index: _Index
    content_index: _Index
    delta: str
    item_id: str = ""
    response: None = None
    error: None = None
    object: None = None


#: Decodes a quick event. Raises one of `turnwright.model.http.reply_stream.NOT_QUICK` for any other event.
read_event: Final = msgspec.json.Decoder(QuickEvent).decode
