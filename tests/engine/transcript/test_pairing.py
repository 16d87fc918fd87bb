"""Each tool call has exactly one result, right after it; and no id of an earlier turn meets one of this.

What holds of any list at all is in `properties/test_pairing.py`.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.message import Message, ReasoningPart, Role, TextPart, ToolCallPart, ToolResultPart
from turnwright.transcript.pairing import NO_RESULT, UnpairedError, check_pairing, rename_calls, repair_pairs
from turnwright_states import CallStatus


def call(*ids: str) -> Message:
    return Message.assistant(calls=[ToolCallPart(id=name, name="note") for name in ids])


def result(name: str, text: str = "noted") -> Message:
    return Message.result(name, "note", text)


def unknown(name: str) -> Message:
    """Return the result for a call without one."""
    return Message.result(name, "note", NO_RESULT, CallStatus.UNKNOWN)


USER = Message.user("hi")
SAID = Message.assistant("Hello.")


PAIRED: list[tuple[Message, ...]] = [
    (),
    (USER, SAID),
    (USER, call("a"), result("a"), SAID),
    (USER, call("a", "b"), result("b"), result("a"), USER),
    (USER, call("a"), result("a"), call("a"), result("a")),
    (USER, call("a", "a"), result("a"), result("a")),
    (USER, call("", ""), result(""), result("")),
]


@pytest.mark.parametrize("messages", PAIRED)
def test_paired_messages_pass(messages: tuple[Message, ...]) -> None:
    check_pairing(messages)


@pytest.mark.parametrize("messages", PAIRED)
def test_paired_messages_are_repaired_to_the_same_objects(messages: tuple[Message, ...]) -> None:
    """The very same messages, for an adapter keeps each one's encoded form."""
    repaired_messages, notes = repair_pairs(messages)
    assert (list(map(id, repaired_messages)), notes) == (list(map(id, messages)), [])


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
        (
            (USER, Message(role="user", parts=call("a").parts), result("a")),
            "message 1: a tool call in a message of role user",
        ),
    ],
)
def test_unpaired_messages_are_named(messages: tuple[Message, ...], why: str) -> None:
    with pytest.raises(UnpairedError) as error:
        check_pairing(messages)
    assert str(error.value) == why


# Repairs.


def together(*messages: Message, role: Role = "tool") -> Message:
    """One message with the parts of several."""
    return Message(role=role, parts=tuple(part for message in messages for part in message.parts))


@pytest.mark.parametrize(
    ("messages", "expected", "notes"),
    [
        pytest.param(
            (USER, call("a"), USER),
            (USER, call("a"), unknown("a"), USER),
            ["message 1: call 'a' has no result: it is sent as unknown"],
            id="a call without a result is unknown",
        ),
        pytest.param(
            (USER, call("a", "b", "c"), result("c"), result("b")),
            (USER, call("a", "b", "c"), unknown("a"), result("b"), result("c")),
            ["message 1: call 'a' has no result: it is sent as unknown"],
            id="then results come in the order of their calls",
        ),
        pytest.param(
            (call("a"), USER, SAID, result("a"), USER),
            (call("a"), result("a"), USER, SAID, USER),
            ["message 3: the result of 'a' is moved to its call in message 0"],
            id="what was said in between comes after the results",
        ),
        pytest.param(
            (call("a"), call("b"), result("a"), result("b")),
            (call("a"), result("a"), call("b"), result("b")),
            ["message 2: the result of 'a' is moved to its call in message 0"],
            id="calls that were asked for at once in two messages",
        ),
        pytest.param(
            (USER, result("a"), SAID),
            (USER, SAID),
            ["message 1: the result of 'a' answers no open call: it is left out"],
            id="a result without a call is left out",
        ),
        pytest.param(
            (result("a"), call("a")),
            (call("a"), unknown("a")),
            [
                "message 0: the result of 'a' answers no open call: it is left out",
                "message 1: call 'a' has no result: it is sent as unknown",
            ],
            id="a result before its call is none",
        ),
        pytest.param(
            (call("a"), result("a", "first"), result("a", "second")),
            (call("a"), result("a", "first")),
            ["message 2: the result of 'a' answers no open call: it is left out"],
            id="the first result of a call stands",
        ),
        pytest.param(
            (call("a"), USER, call("a"), result("a", "the second's")),
            (call("a"), unknown("a"), USER, call("a"), result("a", "the second's")),
            ["message 0: call 'a' has no result: it is sent as unknown"],
            id="a result answers the last message that asks under its id",
        ),
        pytest.param(
            (call("a"), USER, call("a"), result("a", "1"), result("a", "2")),
            (call("a"), unknown("a"), USER, call("a"), result("a", "1")),
            [
                "message 0: call 'a' has no result: it is sent as unknown",
                "message 4: the result of 'a' answers no open call: it is left out",
            ],
            id="and never an older one",
        ),
        pytest.param(
            (call("", ""), USER, result("", "1")),
            (call("", ""), result("", "1"), unknown(""), USER),
            [
                "message 0: call '' has no result: it is sent as unknown",
                "message 2: the result of '' is moved to its call in message 0",
            ],
            id="one id twice in a message: the first open call is answered first",
        ),
        pytest.param(
            (call("a", "b"), together(result("a"), result("b")), USER),
            (call("a", "b"), result("a"), result("b"), USER),
            [
                "message 1: the result of 'a' is moved to its call in message 0",
                "message 1: the result of 'b' is moved to its call in message 0",
            ],
            id="two results in one message",
        ),
        pytest.param(
            (call("a"), together(result("a"), USER, role="user")),
            (call("a"), result("a"), USER),
            ["message 1: the result of 'a' is moved to its call in message 0"],
            id="a result among the user's words",
        ),
        pytest.param(
            (together(SAID, call("a"), result("a"), call("a"), result("a", "2"), role="assistant"), USER),
            (together(SAID, call("a", "a"), role="assistant"), result("a"), result("a", "2"), USER),
            [
                "message 0: the result of 'a' is moved to its call in message 0",
                "message 0: the result of 'a' is moved to its call in message 0",
            ],
            id="results beside their calls",
        ),
        pytest.param(
            (USER, together(result("a"), role="user"), SAID),
            (USER, SAID),
            ["message 1: the result of 'a' answers no open call: it is left out"],
            id="nothing is left of a message that held nothing else",
        ),
        pytest.param(
            (USER, together(USER, call("a"), role="user"), result("a")),
            (USER, USER),
            [
                "message 1: the call 'a' is in a message of role user: it is left out",
                "message 2: the result of 'a' answers no open call: it is left out",
            ],
            id="a call that no assistant made is none",
        ),
        pytest.param(
            (USER, Message(role="tool", parts=(TextPart(text="noted"),))),
            (USER,),
            ["message 1: a tool message without a result is left out"],
            id="a tool's message without a result",
        ),
        pytest.param(
            (call("a", "b"), result("b"), result("a"), result("z"), USER),
            (call("a", "b"), result("b"), result("a"), USER),
            ["message 3: the result of 'z' answers no open call: it is left out"],
            id="complete pairs keep their imported order",
        ),
    ],
)
def test_unpaired_messages_are_repaired_with_a_note(
    messages: tuple[Message, ...], expected: tuple[Message, ...], notes: list[str]
) -> None:
    assert repair_pairs(messages) == (list(expected), notes)


def test_other_parts_of_a_repaired_message_stay() -> None:
    """Reasoning goes back to the provider unchanged, with the call that it led to."""
    thought = Message(role="assistant", parts=(ReasoningPart(text="Hm."), *call("a").parts))
    assert repair_pairs([thought, USER])[0] == [thought, unknown("a"), USER]


def test_the_model_is_told_to_verify() -> None:
    (part,) = unknown("a").parts
    assert isinstance(part, ToolResultPart)
    assert (part.status, part.text) == (CallStatus.UNKNOWN, NO_RESULT)
    assert "verify before retrying" in NO_RESULT


# Names.


def test_ids_are_renamed_by_occurrence() -> None:
    """The n-th use of an id is another call than the one before."""
    messages = [USER, call("a", "b"), result("b"), result("a"), call("a"), result("a")]
    new = rename_calls(messages)
    assert [c.id for m in new for c in m.calls] == ["past00001", "past00002", "past00003"]
    check_pairing(new)
    assert [m.role for m in new] == [m.role for m in messages]


def test_id_used_twice_in_a_message_becomes_two_ids() -> None:
    new = rename_calls([call("a", "a"), result("a", "1"), result("a", "2")])
    check_pairing(new)
    assert [c.id for m in new for c in m.calls] == ["past00001", "past00002"]
    assert [part.call for m in new for part in m.parts if isinstance(part, ToolResultPart)] == [
        "past00001",
        "past00002",
    ]


def test_a_result_without_a_call_meets_no_call() -> None:
    """Its id may be that of a call which the present turn makes."""
    new = rename_calls([call("a"), result("a"), result("a"), result("call00001"), call("call00001")])
    ids = [part.call for m in new for part in m.parts if isinstance(part, ToolResultPart)]
    assert ids == ["past00001", "past00002", "past00003"]
    assert [c.id for m in new for c in m.calls] == ["past00001", "past00004"]


ids = st.lists(st.sampled_from(["a", "b", "call00001", "past00001", "past00002"]), min_size=1, max_size=4, unique=True)


@given(st.lists(ids, max_size=6))
def test_renaming_keeps_pairing_and_makes_ids_unique(steps: list[list[str]]) -> None:
    messages = [message for step in steps for message in (call(*step), *[result(name) for name in reversed(step)])]
    new = rename_calls(messages)
    check_pairing(new)
    call_ids = [c.id for m in new for c in m.calls]
    assert len(set(call_ids)) == len(call_ids) == sum(map(len, steps))
    assert not any(name.startswith("call") for name in call_ids)


@given(st.lists(ids, min_size=1, max_size=4), st.data())
def test_list_missing_a_message_of_a_call_is_refused(steps: list[list[str]], data: st.DataObject) -> None:
    messages = [message for step in steps for message in (call(*step), *[result(name) for name in step])]
    lost = data.draw(st.integers(0, len(messages) - 1))
    del messages[lost]
    with pytest.raises(UnpairedError):
        check_pairing(messages)
