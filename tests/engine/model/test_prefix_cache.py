import weakref
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.message import Message, ToolCallPart
from turnwright.model.prefix_cache import PrefixCache

Messages = tuple[Message, ...]


class Taken:
    """Notes what is added to beginnings, and makes of them just their messages."""

    def __init__(self, steps: int = 1) -> None:
        self.additions: list[list[str]] = []
        self.beginnings = PrefixCache[Messages]((), self._add, is_sent=lambda message: bool(message.text), steps=steps)

    def of(self, *messages: Message) -> tuple[list[str], list[str]]:
        """The texts of the beginning, and those of the rest."""
        begun, rest = self.beginnings.of(messages)
        assert all(old is new for old, new in zip((*begun, *rest), messages, strict=True))
        return texts(begun), texts(rest)

    def _add(self, begun: Messages, messages: Sequence[Message]) -> Messages:
        self.additions.append(texts(messages))
        return (*begun, *messages)


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


def conversation(*says: str) -> Messages:
    """User and assistant in turn, the user first."""
    return tuple((Message.user, Message.assistant)[number % 2](text) for number, text in enumerate(says))


def test_prefix_ends_before_the_last_reply() -> None:
    """Messages behind the last reply may be for one call only."""
    cache = Taken()
    assert cache.of(*conversation("a", "b", "c", "d", "e")) == (["a", "b", "c"], ["d", "e"])
    assert cache.of(Message.user("a"), Message.user("b")) == ([], ["a", "b"])
    assert cache.of() == ([], [])


def test_prefix_may_end_some_replies_earlier() -> None:
    assert Taken(steps=2).of(*conversation("a", "b", "c", "d", "e")) == (["a"], ["b", "c", "d", "e"])
    assert Taken(steps=2).of(*conversation("a", "b", "c")) == ([], ["a", "b", "c"])


def test_unsent_reply_does_not_count_as_a_reply() -> None:
    assert Taken().of(*conversation("a", "b", "c", "", "e")) == (["a"], ["b", "c", "", "e"])


@pytest.mark.parametrize("steps", [1, 2])
def test_each_message_is_added_once(steps: int) -> None:
    cache = Taken(steps)
    messages = conversation(*map(str, range(21)))
    for end in range(1, len(messages) + 1):
        cache.of(*messages[:end], Message.user("a hint"))
    assert [text for addition in cache.additions for text in addition] == texts(messages[: 21 - 2 * steps])
    assert len(cache.beginnings) == 1, "the shorter ones are not wanted any more"


def test_the_same_request_again_adds_nothing() -> None:
    cache = Taken()
    messages = conversation("a", "b", "c", "d")
    assert cache.of(*messages) == cache.of(*messages)
    assert cache.additions == [["a", "b", "c"]]


def test_parallel_conversations_have_separate_prefixes() -> None:
    """One model serves many turns, some of which have the same history."""
    cache = Taken()
    history = conversation("a", "b")
    here = (*history, *conversation("c", "d", "e", "f"))
    there = (*history, *conversation("c2", "d2", "e2", "f2"))
    for end in (4, 6):
        for messages in (here, there):
            cache.of(*messages[:end])
    assert cache.additions == [["a", "b", "c"], ["a", "b", "c2"], ["d", "e"], ["d2", "e2"]]
    assert len(cache.beginnings) == 2


@pytest.mark.parametrize(
    "changed",
    [
        conversation("a2", "b", "c"),
        conversation("a", "b", "c"),
        (),
        conversation("a"),
        (*conversation("a", "b", "c"), Message.user("c2")),
    ],
)
def test_changed_earlier_messages_rebuild_the_prefix(changed: Messages) -> None:
    cache = Taken()
    end = conversation("", "d", "e", "f")[1:]
    cache.of(*conversation("a", "b", "c"), *end)
    cache.additions.clear()
    assert cache.of(*changed, *end) == ([*texts(changed), "d", "e"], ["f"])
    assert cache.additions == [[*texts(changed), "d", "e"]]
    assert len(cache.beginnings) == 1


def test_equal_messages_may_differ_on_the_wire() -> None:
    integer, true = (
        Message.assistant("x", [ToolCallPart(id="c", name="f", arguments={"a": value})]) for value in (1, True)
    )
    assert integer == true
    cache = Taken()
    prompt, last = Message.user("a"), Message.assistant("z")
    begun, _ = cache.beginnings.of((prompt, integer, last))
    again, _ = cache.beginnings.of((prompt, true, last))
    assert (begun[1] is integer, again[1] is true) == (True, True)


def test_moving_window_leaves_no_prefix_behind() -> None:
    cache = Taken()
    messages = conversation(*map(str, range(30)))
    for begin in range(20):
        cache.of(*messages[begin : begin + 10])
    assert len(cache.beginnings) == 1


@given(st.data())
def test_prefix_and_rest_together_are_the_messages(data: st.DataObject) -> None:
    """Messages may come in any order, also the same one twice."""
    known_messages = conversation(*"abcdefgh")
    cache = Taken(steps=data.draw(st.integers(1, 2)))
    for _ in range(8):
        cache.of(*data.draw(st.lists(st.sampled_from(known_messages))))


# Nothing outlives its turn.


def test_prefix_is_freed_with_the_messages() -> None:
    cache = Taken()
    messages = conversation(*map(str, range(20)))
    references = [weakref.ref(message) for message in messages]
    for end in range(len(messages)):
        cache.of(*messages[:end])
    del messages
    assert [ref() for ref in references] == [None] * 20, "without the help of the garbage collector"
    assert len(cache.beginnings) == 0


def test_prefix_containing_the_next_reply_is_not_kept() -> None:
    """It would hold what it is to go with."""
    cache = Taken()
    agreed = Message.assistant("OK")
    messages = (Message.user("a"), agreed, Message.user("b"), agreed, Message.user("c"))
    assert cache.of(*messages) == (["a", "OK", "b"], ["OK", "c"])
    assert len(cache.beginnings) == 0
    # As soon as there is another reply, it is.
    assert cache.of(*messages, Message.assistant("d"), Message.user("e"))[1] == ["d", "e"]
