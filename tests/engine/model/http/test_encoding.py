import gc
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import FilePart, Message
from turnwright.model.http.encoding import CHUNK, EncodedMessage, dump, extend_chunks, in_words
from turnwright.model.settings_mapping import checked_extra

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


def test_message_is_encoded_once_during_the_message_lifetime() -> None:
    texts: list[str] = []

    def encode(message: Message) -> str:
        texts.append(message.text)
        return message.text.upper()

    encoded: EncodedMessage[Message, str] = EncodedMessage(encode)
    first, second = Message.user("a"), Message.user("a")
    assert [encoded.of(first), encoded.of(first), encoded.of(second)] == ["A", "A", "A"]
    assert texts == ["a", "a"], "messages that are equal are still two"
    del second
    gc.collect()
    assert len(encoded) == 1


def test_json_is_written_shortly_and_half_a_surrogate_pair_is_replaced() -> None:
    assert dump({"a": "é\ud83d", "b": [1, None]}) == '{"a":"é\ufffd","b":[1,null]}'.encode()


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"a": 2**70, "b": -0.5, "c": 1e300, "d": 5e-324}, None),
        ({"a": float("nan"), "b": float("-inf")}, {"a": None, "b": None}),
        ({"a": float("nan"), "b": "\ud83d"}, {"a": None, "b": "\ufffd"}),
        ({None: 1, True: 2, 3: 4, 0.5: 6}, {"null": 1, "true": 2, "3": 4, "0.5": 6}),
        ({"a": ("é", "\u2028", "\x00", "\ud83d\ude00")}, {"a": ["é", "\u2028", "\x00", "\U0001f600"]}),
    ],
)
def test_non_standard_json_of_python_is_written(value: dict[str, JsonValue], read: JsonValue) -> None:
    """And NaN, which it writes although it is none, is null."""
    assert json.loads(dump(value)) == (read or value)


NESTED = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)


@given(st.fixed_dictionaries({"a": NESTED}))
def test_json_equals_the_output_of_the_standard_library(value: dict[str, JsonValue]) -> None:
    assert json.loads(dump(value)) == json.loads(json.dumps(value))


def test_non_json_object_is_not_sent() -> None:
    with pytest.raises(TypeError):
        dump({"a": object()})  # type: ignore[dict-item]


def test_short_pieces_become_a_single_chunk() -> None:
    assert extend_chunks((), []) == ()
    assert extend_chunks((), [b"a", b"b"]) == (b"ab",)
    assert extend_chunks((b"a",), [b"b", b"c"]) == (b"abc",)
    assert extend_chunks((b"a",), [b""]) == (b"a",)


def test_a_long_piece_is_not_copied() -> None:
    """It is a picture, as a rule."""
    long = b"a" * CHUNK
    chunks = extend_chunks((b"b",), [b"c", long, b"d"])
    assert chunks == (b"bc", long, b"d")
    assert chunks[1] is long
    assert extend_chunks(extend_chunks((), [long]), [b"b"]) == (long, b"b")


def test_extra_body_is_copied() -> None:
    extra = {"a": 1}
    checked = checked_extra(extra, {"b"})
    assert (checked, checked is extra) == ({"a": 1}, False)
    assert checked_extra(None, ()) == {}


def test_unusable_extra_body_is_refused_with_the_option_name() -> None:
    with pytest.raises(ConfigError, match="mine must not contain a, b: "):
        checked_extra({"b": 1, "a": 1, "c": 1}, {"a", "b"}, "mine")
    with pytest.raises(ConfigError, match="mine cannot be written as JSON"):
        checked_extra({"b": float("inf")}, (), "mine")


def test_extra_body_must_be_a_mapping() -> None:
    with pytest.raises(ConfigError, match="thinking must be a mapping of fields to values, not True"):
        checked_extra(True, (), "thinking")  # type: ignore[arg-type]


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
