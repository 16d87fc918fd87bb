"""The kinds of files that APIs accept, and texts that describe all others. No I/O."""

from typing import Final

from turnwright.message import FilePart

#: The kinds of pictures that every vision model reads.
IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
#: A picture at an address, of unknown kind.
SOME_IMAGE: Final = "image/*"
PDF: Final = "application/pdf"


def media_type_of(part: FilePart) -> str:
    """Return the media type that APIs know: people write `image/jpg` for `image/jpeg`."""
    return "image/jpeg" if part.media_type == "image/jpg" else part.media_type


def in_words(part: FilePart) -> str:
    """Describe a file that the API does not accept: its name, with its text or its address."""
    name = f"{part.name} " if part.name else ""
    text = part.decoded_text
    if text:
        return f"A file, {name}({part.media_type}), holds:\n\n{text}"
    where = f"is at {part.url}" if part.url else "cannot be shown here."
    return f"A file, {name}({part.media_type}), {where}"
