import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.model.http.text_buffer import Meter, Pieces, TooLargeError, mend


def test_surrogate_pair_in_two_pieces_is_a_single_character() -> None:
    text = Pieces(Meter())
    assert [text.add(piece) for piece in ("a\ud83d", "\ude00b")] == ["a", "😀b"]
    assert str(text) == "a😀b"


def test_lone_half_of_a_surrogate_pair_is_replaced() -> None:
    text = Pieces(Meter())
    text.add("a\ud83d")
    assert str(text) == "a\ufffd"
    text.add("b\ude00")
    assert str(text) == "a\ufffdb\ufffd"


def test_line_ends_are_kept_unchanged() -> None:
    text = Pieces(Meter())
    text.add("a\r\nb\rc\n")
    assert str(text) == "a\r\nb\rc\n"


def test_meter_counts_all_texts_together() -> None:
    meter = Meter(10)
    first, second = Pieces(meter), Pieces(meter)
    first.add("12345")
    second.add("67890")
    with pytest.raises(TooLargeError, match="longer than 10 characters"):
        first.add("1")


@given(pieces=st.lists(st.text(st.characters(exclude_categories=()))))
def test_the_deltas_are_the_text_and_can_be_encoded(pieces: list[str]) -> None:
    text = Pieces(Meter())
    deltas = "".join(text.add(piece) for piece in pieces)
    assert str(text) in {deltas, deltas + "\ufffd"}
    assert str(text) == mend("".join(pieces))
    str(text).encode()
