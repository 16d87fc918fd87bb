import gc

import pytest

from turnwright.errors import ConfigError
from turnwright.message import Message
from turnwright.model.encoding import Kept, checked_extra, dump


def test_a_message_is_encoded_once_for_as_long_as_it_lives() -> None:
    seen: list[str] = []

    def encode(message: Message) -> str:
        seen.append(message.text)
        return message.text.upper()

    kept = Kept(encode)
    first, second = Message.user("a"), Message.user("a")
    assert [kept.of(first), kept.of(first), kept.of(second)] == ["A", "A", "A"]
    assert seen == ["a", "a"], "messages that are equal are still two"
    del second
    gc.collect()
    assert len(kept) == 1


def test_json_is_written_shortly_and_half_a_surrogate_pair_is_replaced() -> None:
    assert dump({"a": "é\ud83d", "b": [1, None]}) == '{"a":"é\ufffd","b":[1,null]}'.encode()


def test_what_a_caller_adds_is_copied() -> None:
    given = {"a": 1}
    checked = checked_extra(given, {"b"})
    assert (checked, checked is given) == ({"a": 1}, False)
    assert checked_extra(None, ()) == {}


def test_what_cannot_be_added_is_refused_under_its_options_name() -> None:
    with pytest.raises(ConfigError, match="mine may not hold a, b: "):
        checked_extra({"b": 1, "a": 1, "c": 1}, {"a", "b"}, "mine")
    with pytest.raises(ConfigError, match="mine cannot be written as JSON"):
        checked_extra({"b": float("inf")}, (), "mine")


def test_what_is_added_is_a_mapping() -> None:
    with pytest.raises(ConfigError, match="thinking is a mapping of fields to their values, and not True"):
        checked_extra(True, (), "thinking")  # type: ignore[arg-type]
