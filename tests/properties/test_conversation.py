"""A turn's request, extended step by step, equals a request built from all its messages."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from turnwright import Agent
from turnwright.message import Message, StepStartPart, TextPart, ToolCallPart, ToolResultPart
from turnwright.transcript.history import History
from turnwright.transcript.pairing import UnpairedError, check_pairing, repair_pairs
from turnwright.transcript.request_builder import Conversation
from turnwright.transcript.transcript import Transcript
from turnwright_states import CallModel, Turn

AGENT = Agent(name="Tidier", instructions="You tidy up.")
STEP = CallModel(tools=True, max_tokens=None)
NUDGED = CallModel(tools=True, max_tokens=None, nudge=True)

IDS = st.sampled_from(["", "a", "b"])
CALLS = st.builds(ToolCallPart, id=IDS, name=st.just("note"), arguments=st.sampled_from([{"n": 1}, {"n": True}]))
RESULTS = st.builds(ToolResultPart, call=IDS, name=st.just("note"), text=st.sampled_from(["", "noted"]))
SILENT = st.builds(StepStartPart, step_number=st.integers(1, 3))
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "tool"]),
    parts=st.lists(CALLS | RESULTS | SILENT | st.just(TextPart(text="So.")), max_size=3).map(tuple),
)
#: What a step begins with: it is sent when it says something.
BEGUN = st.builds(Message, role=st.just("assistant"), parts=st.tuples(SILENT))


@st.composite
def steps(draw: st.DrawFn) -> list[Message]:
    """Draw the messages of a step: the reply with its calls, their results, and the user."""
    calls = draw(st.lists(CALLS, max_size=3))
    messages = [Message(role="assistant", parts=(draw(SILENT), *calls))]
    messages += [Message.result(call.id, call.name, "noted") for call in draw(st.permutations(calls))]
    return [*messages, *([Message.user("And now?")] if draw(st.booleans()) else [])]


#: Mostly what turns are made of, and now and then what no turn should be.
SAID = st.lists(st.one_of(steps(), steps(), steps(), st.lists(MESSAGES, max_size=2)), max_size=3).map(
    lambda lists: [message for messages in lists for message in messages]
)


class Told(Transcript):
    """A transcript of given messages."""

    is_open: tuple[Message, ...] = ()

    def tell(self, messages: Sequence[Message], is_open: Sequence[Message]) -> None:
        self.closed += messages
        self.is_open = tuple(is_open)

    @property
    def open(self) -> tuple[Message, ...]:
        return self.is_open


def hooked(data: st.DataObject, messages: tuple[Message, ...]) -> Sequence[Message] | None:
    """Draw the messages that a `history_processor` hook returns; None without a hook."""
    note = Message.user("It is noon.")
    at = data.draw(st.integers(0, len(messages)))
    kind = data.draw(st.sampled_from(["none", "same", "noted", "begun", "cut", "short", "without", "other", "equal"]))
    if kind == "other" and at < len(messages):
        return [*messages[:at], data.draw(MESSAGES), *messages[at + 1 :]]
    if kind == "equal" and at < len(messages):
        return [*messages[:at], structs.replace(messages[at]), *messages[at + 1 :]]
    histories: dict[str, Sequence[Message] | None] = {
        "same": messages,
        "noted": (*messages, note),
        "begun": [note, *messages],
        "cut": messages[at:],
        "short": list(messages[:at]),
        "without": [*messages[:at], *messages[at + 1 :]],
    }
    return histories.get(kind)


def plainly(messages: Sequence[Message], nudges: Sequence[Message]) -> list[Message]:
    spoken = [message for message in messages if message.says_something]
    return [Message.system(AGENT.fixed_instructions), *spoken, *nudges]


def same(messages: Sequence[Message], expected: Sequence[Message]) -> bool:
    """Whether they are the very same messages: encoders keep what they encoded by identity."""
    return messages[0] == expected[0] and list(map(id, messages[1:])) == list(map(id, expected[1:]))


@given(st.data(), st.booleans())
def test_extended_request_equals_a_rebuilt_request(data: st.DataObject, strict: bool) -> None:
    history, transcript, turn = History.of(repair_pairs(data.draw(SAID))[0]), Told(), Turn()
    conversation = Conversation(
        AGENT, history=history, transcript=transcript, all_tools=(), mode="reject" if strict else "repair"
    )
    for _ in range(data.draw(st.integers(1, 4))):
        transcript.tell(
            data.draw(SAID), data.draw(st.lists(BEGUN, max_size=1) | st.lists(MESSAGES, max_size=2) | steps())
        )
        messages = conversation.messages
        assert list(map(id, messages)) == list(map(id, (*history.messages, *transcript.closed, *transcript.open)))
        drawn_history, action = hooked(data, messages), data.draw(st.sampled_from([STEP, NUDGED]))
        nudges = [message for message in conversation.request(NUDGED, turn, []).messages[1:] if action is NUDGED]
        expected = plainly(messages if drawn_history is None else drawn_history, nudges)
        try:
            check_pairing(expected)
        except UnpairedError as error:
            if not strict:
                assert list(conversation.request(action, turn, drawn_history).messages) == repair_pairs(expected)[0]
                continue
            with pytest.raises(UnpairedError) as raised:
                conversation.request(action, turn, drawn_history)
            assert str(raised.value) == str(error)  # noqa: PT017 (either is right)
        else:
            request_messages = conversation.request(action, turn, drawn_history).messages
            assert same(
                request_messages[: len(request_messages) - len(nudges)], expected[: len(expected) - len(nudges)]
            )
            assert list(request_messages) == expected
