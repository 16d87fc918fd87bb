"""The text that replaces a file that the API has no form for."""

import pytest

from turnwright.message import FilePart
from turnwright.model.http.attachments import in_words

TEXTS = [
    "text/plain",
    "text/markdown",
    "text/csv",
    "application/json",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/x-sh",
    "application/ld+json",
]


@pytest.mark.parametrize("media_type", TEXTS)
def test_text_file_is_quoted_with_the_name(media_type: str) -> None:
    part = FilePart.of("\ufeffé\n".encode(), media_type, "a.x")
    assert part.decoded_text == "é\n"
    assert in_words(part) == f"A file, a.x ({media_type}), holds:\n\né\n"


@pytest.mark.parametrize(
    "part",
    [
        FilePart.of(b"a", "image/svg+xml", "a.x"),
        FilePart.of(b"a", "audio/wav", "a.x"),
        FilePart.of(b"a", "application/zip", "a.x"),
        FilePart.of(b"\xff", "text/plain", "a.x"),
        FilePart.of(b" \n", "text/plain", "a.x"),
    ],
)
def test_other_file_is_named_as_not_shown(part: FilePart) -> None:
    assert part.decoded_text == ""
    assert in_words(part) == f"A file, a.x ({part.media_type}), cannot be shown here."


def test_linked_file_is_named_with_the_address() -> None:
    part = FilePart(media_type="text/csv", url="https://host/a.csv")
    assert part.decoded_text == ""
    assert in_words(part) == "A file, (text/csv), is at https://host/a.csv"
