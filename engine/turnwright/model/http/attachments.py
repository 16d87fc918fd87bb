"""Files for APIs that take only some kinds of them: which kinds those are, and what is said of all others. No I/O."""

import base64
import re
from typing import Final

from turnwright.message import FilePart

#: The pictures that every model with eyes reads.
IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
#: A picture at an address, of which nothing else is known.
SOME_IMAGE: Final = "image/*"
PDF: Final = "application/pdf"
# Files that are text, whatever else their type says of them.
_TEXTUAL: Final = re.compile(
    r"text/.*|application/(?:.*\+|x-)?(?:json|jsonl|ndjson|xml|yaml|toml|markdown|javascript|sql|sh|tex)"
)


def media_type_of(part: FilePart) -> str:
    """The type under which APIs know it: `image/jpg` is nobody's name for a JPEG but people's."""
    return "image/jpeg" if part.media_type == "image/jpg" else part.media_type


def text_in(part: FilePart) -> str:
    """What a file of text holds. Empty for one that holds none, is no UTF-8, is of another kind or elsewhere."""
    if part.url or not _TEXTUAL.fullmatch(part.media_type):
        return ""
    try:
        text = base64.b64decode(part.data).decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""
    return text if text.strip() else ""


def in_words(part: FilePart) -> str:
    """What the model is told of a file that its API has no form for: its text, or where it is, and always its name."""
    named = f"{part.name} " if part.name else ""
    text = text_in(part)
    if text:
        return f"A file, {named}({part.media_type}), holds:\n\n{text}"
    where = f"is at {part.url}" if part.url else "cannot be shown here."
    return f"A file, {named}({part.media_type}), {where}"
