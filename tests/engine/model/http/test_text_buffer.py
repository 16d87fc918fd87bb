import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.model.http.text_buffer import Meter, Pieces, TooLargeError, mend


def test_a_surrogate_pair_that_comes_in_two_pieces_is_one_character() -> None:
    text = Pieces(Meter())
    assert [text.add(piece) for piece in ("a\ud83d", "\ude00b")] == ["a", "😀b"]
    assert str(text) == "a😀b"


def test_half_a_pair_that_stays_alone_is_replaced() -> None:
    text = Pieces(Meter())
    text.add("a\ud83d")
    assert str(text) == "a\ufffd"
    text.add("b\ude00")
    assert str(text) == "a\ufffdb\ufffd"


def test_line_ends_are_kept_as_they_came() -> None:
    text = Pieces(Meter())
    text.add("a\r\nb\rc\n")
    assert str(text) == "a\r\nb\rc\n"


def test_the_meter_counts_all_that_share_it() -> None:
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
