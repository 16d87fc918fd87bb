"""What is read quickly of a stream: events of one line of small JSON each, behind a head that is always the same.

`sse` frames whatever the format allows, and `json_text` reads whatever servers take for JSON. Most events need neither:
where they are as servers write them, their data is cut out of the bytes as it stands (`reply_stream`), and read into
the few fields that matter (`openai_chat.fast_events`, `anthropic.fast_events`). What is not so for certain is left to
the plain way, from that event on. Tests hold the two ways together, over events of all kinds and over what providers
send with any of its bytes changed.
"""

from typing import Final

import msgspec

from .json_text import MAX_DEPTH

#: What the decoders of quick events raise for any other.
NOT_QUICK: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
#: The largest quick event, in bytes. Python reads no number of more than 4,300 digits, and nobody sends such pieces.
MOST: Final = 4096

# An object takes five bytes at least, with the name of what is in it, and a list two.
_OBJECT: Final = 5
_LIST: Final = 2


def is_flat(data: bytes) -> bool:
    """Whether JSON is certainly not nested too deep: the decoders skip what they do not know, however deep it is.

    The most levels that fit are all the lists, and as many objects as there is room for beside them. Mostly that is
    few enough, and the objects need not be counted.
    """
    lists = data.count(b"[")
    most = lists + (len(data) - lists * _LIST) / _OBJECT
    return most <= MAX_DEPTH or lists + data.count(b"{") <= MAX_DEPTH
