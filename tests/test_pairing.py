"""Each tool call has exactly one result, right after it; and no id of an earlier turn meets one of this."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.message import Message, ToolCallPart
from turnwright.pairing import UnpairedError, check_pairing, renamed


def call(*ids: str) -> Message:
    return Message.assistant(calls=[ToolCallPart(id=name, name="note") for name in ids])


def result(name: str) -> Message:
    return Message.result(name, "note", "noted")


USER = Message.user("hi")
SAID = Message.assistant("Hello.")


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (USER, SAID),
        (USER, call("a"), result("a"), SAID),
        (USER, call("a", "b"), result("b"), result("a"), USER),
        (USER, call("a"), result("a"), call("a"), result("a")),
        (USER, call("a", "a"), result("a"), result("a")),
    ],
)
def test_paired_messages_pass(messages: tuple[Message, ...]) -> None:
    check_pairing(messages)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ((USER, call("a")), "message 1: call 'a' has no result"),
        ((USER, call("a"), USER), "message 1: call 'a' has no result before message 2"),
        ((USER, call("a", "b"), result("a")), "message 1: call 'b' has no result"),
        ((USER, call("a"), SAID, result("a")), "message 1: call 'a' has no result before message 2"),
        ((USER, result("a")), "message 1: a tool result that answers no open call"),
        ((USER, call("a"), result("b")), "message 2: a tool result that answers no open call"),
        ((USER, call("a"), result("a"), result("a")), "message 3: a tool result that answers no open call"),
        ((Message(role="user", parts=result("a").parts),), "message 0: a tool result in a message of role user"),
        ((Message(role="tool"),), "message 0: a tool result that answers no open call"),
    ],
)
def test_unpaired_messages_are_named(messages: tuple[Message, ...], why: str) -> None:
    with pytest.raises(UnpairedError) as error:
        check_pairing(messages)
    assert str(error.value) == why


def test_ids_are_renamed_by_occurrence() -> None:
    """The n-th use of an id is another call than the one before."""
    messages = [USER, call("a", "b"), result("b"), result("a"), call("a"), result("a")]
    new = renamed(messages)
    assert [c.id for m in new for c in m.calls] == ["past00001", "past00002", "past00003"]
    check_pairing(new)
    assert [m.role for m in new] == [m.role for m in messages]


ids = st.lists(st.sampled_from(["a", "b", "call00001", "past00001", "past00002"]), min_size=1, max_size=4, unique=True)


@given(st.lists(ids, max_size=6))
def test_renaming_keeps_pairing_and_makes_ids_unique(steps: list[list[str]]) -> None:
    messages = [message for step in steps for message in (call(*step), *[result(name) for name in reversed(step)])]
    new = renamed(messages)
    check_pairing(new)
    made = [c.id for m in new for c in m.calls]
    assert len(set(made)) == len(made) == sum(map(len, steps))
    assert not any(name.startswith("call") for name in made)


@given(st.lists(ids, min_size=1, max_size=4), st.data())
def test_a_list_that_lost_one_message_of_a_call_is_refused(steps: list[list[str]], data: st.DataObject) -> None:
    messages = [message for step in steps for message in (call(*step), *[result(name) for name in step])]
    lost = data.draw(st.integers(0, len(messages) - 1))
    del messages[lost]
    with pytest.raises(UnpairedError):
        check_pairing(messages)
