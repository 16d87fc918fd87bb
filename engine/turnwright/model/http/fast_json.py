"""The limits of quick events: one line of small JSON behind a fixed prefix.

`sse` frames everything that the format allows, and `json_text` reads all JSON that servers send. Most events need
neither: `reply_stream` cuts their data out of the bytes, and `openai_chat.fast_events` and `anthropic.fast_events`
decode the relevant fields. From any other event on, the plain path reads the stream. Tests compare both paths for all
kinds of events, and for recorded streams with changed bytes.
"""

from typing import Final

import msgspec

from .json_text import MAX_DEPTH

#: The errors that the decoders of quick events raise for other events.
NOT_QUICK: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
#: The largest quick event, in bytes. It is below 4,300, the most digits of a number that Python parses.
MOST: Final = 4096

# An object in an object takes at least five bytes, with its key, and a list two.
_OBJECT: Final = 5
_LIST: Final = 2


def is_flat(data: bytes) -> bool:
    """Whether JSON is certainly not nested too deep. The decoders skip unknown fields at any depth.

    The depth is at most the number of lists, and of the objects that fit beside them. That is usually low enough, so
    that the objects need not be counted.
    """
    lists = data.count(b"[")
    most = lists + (len(data) - lists * _LIST) / _OBJECT
    return most <= MAX_DEPTH or lists + data.count(b"{") <= MAX_DEPTH
