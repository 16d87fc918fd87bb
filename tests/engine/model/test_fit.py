"""Capabilities of models, and requests that are fitted to them without losing anything."""

import gc
import itertools
import operator
import re
import weakref
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from turnwright.message import (
    FilePart,
    Message,
    ReasoningPart,
    Role,
    StepStartPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from turnwright.model.capabilities import Capabilities
from turnwright.model.fit import fit, split_calls
from turnwright.model.protocol import ModelRequest, ToolChoice
from turnwright.transcript.pairing import check_pairing

NOTE = ToolSpec("note", "Note something.", {"type": "object", "properties": {}})
PICTURE = FilePart.of(b"png", "image/png")

DEFAULT = Capabilities()
NO_NONE = Capabilities(supports_tool_choice_none=False)
NEEDS_TOOLS = Capabilities(needs_tools_if_history_has_tools=True)
BEDROCK = Capabilities(needs_tools_if_history_has_tools=True, supports_tool_choice_none=False)
STRICT = Capabilities(strict_alternation=True)
SINGLE = Capabilities(parallel_tool_calls=False)
STRICT_AND_SINGLE = Capabilities(strict_alternation=True, parallel_tool_calls=False)


def asking(*ids: str, text: str = "") -> Message:
    return Message.assistant(
        text, [ToolCallPart(id=call_id, name="note", arguments={"id": call_id}) for call_id in ids]
    )


def result(call: str, text: str = "noted") -> Message:
    return Message.result(call, "note", text)


HI = Message.user("hi")
STOP = Message.user("Stop here.")
BATCH = (HI, asking("a"), result("a"))


def said(request: ModelRequest) -> list[tuple[str, str]]:
    """Return each message's role and text; a call by its id, a result by its call."""
    return [(message.role, _said(message)) for message in request.messages]


def _said(message: Message) -> str:
    results = [part.call for part in message.parts if isinstance(part, ToolResultPart)]
    return " ".join(filter(None, [message.text, *(call.id for call in message.calls), *results]))


# Most requests fit as they are.


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_fitting_request_is_the_same_object(choice: ToolChoice) -> None:
    request = ModelRequest((Message.system("be brief"), *BATCH, STOP), tools=(NOTE,), tool_choice=choice)
    assert fit(request, DEFAULT) is request


# Tools that may not be used.


def test_tools_are_left_out_if_choice_none_is_unsupported() -> None:
    request = ModelRequest((*BATCH, STOP), tools=(NOTE,), tool_choice="none")
    assert fit(request, NO_NONE) == structs.replace(request, tools=())


def test_model_with_required_tools_is_told_not_to_call() -> None:
    fitted = fit(ModelRequest((*BATCH, STOP), tools=(NOTE,), tool_choice="none"), BEDROCK)
    assert (fitted.tools, fitted.tool_choice) == ((NOTE,), "auto")
    assert fitted.messages[:-1] == (*BATCH, STOP)
    assert fitted.messages[-1].role == "user"
    assert "do not call any" in fitted.messages[-1].text


def test_tools_without_earlier_calls_can_be_left_out() -> None:
    assert fit(ModelRequest((HI,), tools=(NOTE,), tool_choice="none"), BEDROCK) == ModelRequest(
        (HI,), tool_choice="none"
    )


def test_calls_of_a_conversation_get_their_tools_defined() -> None:
    """An agent without tools continues with a session whose earlier agent had some."""
    reply = Message.assistant(calls=[ToolCallPart(id="b", name="erase"), ToolCallPart(id="c", name="note")])
    request = ModelRequest((*BATCH, reply, Message.result("b", "erase", ""), result("c"), STOP))
    fitted = fit(request, NEEDS_TOOLS)
    assert [tool.name for tool in fitted.tools] == ["note", "erase"]
    assert all(tool.parameters == {"type": "object"} and tool.description for tool in fitted.tools)
    assert fitted.tool_choice == "none"
    assert fitted.messages is request.messages
    assert fit(request, BEDROCK).tool_choice == "auto"
    assert "do not call any" in fit(request, BEDROCK).messages[-1].text


def test_usable_tools_stay() -> None:
    request = ModelRequest(BATCH, tools=(NOTE,))
    assert fit(request, BEDROCK) is request


# Taking turns.


def test_consecutive_messages_of_a_side_are_merged() -> None:
    messages = (
        Message.system("be brief"),
        Message.system("be kind"),
        Message.user("one", [PICTURE]),
        Message.user(""),
        Message.user("two"),
        Message.assistant("three"),
        asking("a", text="four"),
        result("a"),
    )
    fitted = fit(ModelRequest(messages), STRICT)
    assert said(fitted) == [
        ("system", "be brief\n\nbe kind"),
        ("user", "one\n\ntwo"),
        ("assistant", "three\n\nfour a"),
        ("tool", "a"),
    ]
    assert fitted.messages[1].files == (PICTURE,)


def test_the_assistant_speaks_between_results_and_the_user() -> None:
    fitted = fit(ModelRequest((*BATCH, STOP)), STRICT)
    assert said(fitted)[2:] == [("tool", "a"), ("assistant", "OK."), ("user", "Stop here.")]


def test_later_instructions_become_user_messages() -> None:
    messages = (Message.system("be brief"), HI, Message.system("be kind"), Message.system(""))
    assert said(fit(ModelRequest(messages), STRICT)) == [("system", "be brief"), ("user", "hi\n\nbe kind")]


def test_the_user_speaks_first() -> None:
    greeting = (Message.system("be brief"), Message.assistant("Hello!"), HI)
    assert [role for role, _ in said(fit(ModelRequest(greeting), STRICT))] == ["system", "user", "assistant", "user"]
    assert [role for role, _ in said(fit(ModelRequest(BATCH[1:]), STRICT))] == ["user", "assistant", "tool"]


def test_unsent_message_does_not_separate_messages() -> None:
    """An assistant's message of reasoning alone is not a turn: else two user messages would follow each other."""
    silent = Message(role="assistant", parts=(StepStartPart(step_number=1), ReasoningPart(text="hm")))
    assert said(fit(ModelRequest((HI, silent, STOP)), STRICT)) == [("user", "hi\n\nStop here.")]


# The last word.


def test_conversation_ending_with_the_assistant_gets_go_on() -> None:
    silent = Message(role="assistant", parts=(ReasoningPart(text="hm"),))
    request = ModelRequest((HI, Message.assistant("I think"), silent))
    assert said(fit(request, DEFAULT))[-1] == ("user", "Go on.")
    assert fit(request, Capabilities(allows_prefill=True)) is request


# One call at a time.


def test_several_calls_are_told_in_sequence() -> None:
    """Each has its result right behind it; what was said with them stays with the first."""
    thought = ReasoningPart(text="hm", details=({"type": "reasoning.encrypted", "data": "x"},))
    batch = asking("a", "b", "c", text="So.")
    batch = structs.replace(batch, parts=(thought, *batch.parts))
    results = (result("c"), result("a"), result("b"))
    fitted = fit(ModelRequest((HI, batch, *results, STOP)), SINGLE)
    assert said(fitted) == [
        ("user", "hi"),
        ("assistant", "So. a"),
        ("tool", "a"),
        ("assistant", "b"),
        ("tool", "b"),
        ("assistant", "c"),
        ("tool", "c"),
        ("user", "Stop here."),
    ]
    assert [thought in message.parts for message in fitted.messages if message.role == "assistant"] == [
        True,
        False,
        False,
    ]
    assert fitted.messages[6] is results[0]


# Anything, for anybody.

#: All there are.
ALL = tuple(
    Capabilities(
        supports_tool_choice_none=none,
        needs_tools_if_history_has_tools=needs,
        strict_alternation=strict,
        allows_prefill=prefill,
        parallel_tool_calls=parallel,
    )
    for none, needs, strict, prefill, parallel in itertools.product((False, True), repeat=5)
)

IDS = st.sampled_from(["", "a", "b", "call00001"])
NAMES = st.sampled_from(["note", "erase"])


@st.composite
def paired(draw: st.DrawFn) -> tuple[Message, ...]:
    """Any paired list, with a text of its own for each text, result and file, to distinguish them."""
    numbers = itertools.count()

    def text() -> TextPart:
        return TextPart(text=draw(st.sampled_from(["", " ", f"<{next(numbers)}>"])))

    def file() -> FilePart:
        return FilePart.of(f"{next(numbers)}".encode(), "image/png")

    out: list[Message] = []
    for kind in draw(st.lists(st.sampled_from(["system", "user", "shown", "said", "thought", "asked"]), max_size=8)):
        if kind == "asked":
            calls = draw(st.lists(st.builds(ToolCallPart, id=IDS, name=NAMES), min_size=1, max_size=3))
            out.append(Message(role="assistant", parts=(ReasoningPart(text="hm"), text(), *calls)))
            for call in draw(st.permutations(calls)):
                files = [file()] if draw(st.booleans()) else []
                out.append(Message.result(call.id, call.name, f"<{next(numbers)}>", files=files))
        elif kind == "thought":
            out.append(Message(role="assistant", parts=(ReasoningPart(text="hm"),)))
        elif kind == "shown":
            out.append(Message(role="user", parts=(text(), file(), text())))
        else:
            role: Role = "assistant" if kind == "said" else "system" if kind == "system" else "user"
            out.append(Message(role=role, parts=(text(), text())))
    return tuple(out)


REQUESTS = st.builds(
    ModelRequest,
    messages=paired(),
    tools=st.sampled_from([(), (NOTE,)]),
    tool_choice=st.sampled_from(["auto", "none", "required"]),
)


def words(messages: Sequence[Message]) -> list[str]:
    """The texts that were numbered, in their order."""
    return re.findall(r"<\d+>", " ".join(message.text for message in messages))


def exchanges(messages: Sequence[Message]) -> list[tuple[str, str, str]]:
    """Each call with the text of its result; ids are paired by occurrence."""
    out: list[tuple[str, str, str]] = []
    for number, message in enumerate(messages):
        results = [
            part
            for after in messages[number + 1 : number + 1 + len(message.calls)]
            for part in after.parts
            if isinstance(part, ToolResultPart)
        ]
        for call in message.calls:
            answer = next(part for part in results if part.call == call.id)
            results.remove(answer)
            out.append((call.id, call.name, answer.text))
    return out


def files(messages: Sequence[Message]) -> list[str]:
    file_parts = [
        file
        for message in messages
        for part in message.parts
        for file in ([part] if isinstance(part, FilePart) else part.files if isinstance(part, ToolResultPart) else [])
    ]
    return sorted(file.data for file in file_parts)


def heard(messages: Sequence[Message]) -> str:
    """Return a letter per message for its role; `c` is an assistant with calls. Unsent messages have none."""
    letters = {"system": "s", "user": "u", "tool": "t", "assistant": "a"}
    return "".join(
        "c" if message.calls else letters[message.role]
        for message in messages
        if message.role != "assistant" or message.text or message.calls
    )


@given(REQUESTS)
@example(ModelRequest((asking("a", "a"), result("a", "<1>"), result("a", "<2>"))))
def test_any_request_is_made_to_fit_any_model(request: ModelRequest) -> None:
    """Each flag's rule holds, pairs stay pairs, and no text, call, result or file is lost or changes its place."""
    for capabilities in ALL:
        fitted = fit(request, capabilities)
        check_pairing(fitted.messages)
        assert words(fitted.messages) == words(request.messages)
        assert exchanges(fitted.messages) == exchanges(request.messages)
        assert files(fitted.messages) == files(request.messages)
        assert (fitted.max_tokens, fitted.first) == (request.max_tokens, request.first)
        obeys(fitted, request, capabilities)


def obeys(fitted: ModelRequest, request: ModelRequest, capabilities: Capabilities) -> None:
    calls = [call for message in request.messages for call in message.calls]
    spoken = heard(fitted.messages)
    if not capabilities.supports_tool_choice_none:
        assert not fitted.tools or fitted.tool_choice != "none"
    if capabilities.needs_tools_if_history_has_tools and calls:
        assert fitted.tools
        assert request.tools or {tool.name for tool in fitted.tools} == {call.name for call in calls}
    if request.tool_choice == "none" and fitted.tools and fitted.tool_choice != "none":
        assert "do not call any" in fitted.messages[-1].text
    if capabilities.strict_alternation:
        assert re.fullmatch(r"s?(u(ct+)*a)*(u(ct+)*)?", spoken), spoken
    if not capabilities.allows_prefill:
        assert not spoken.endswith("a")
    if not capabilities.parallel_tool_calls:
        assert all(len(message.calls) <= 1 for message in fitted.messages)


@given(REQUESTS)
def test_fitted_request_needs_no_more_fitting(request: ModelRequest) -> None:
    for capabilities in ALL:
        fitted = fit(request, capabilities)
        assert fit(fitted, capabilities) is fitted


@given(REQUESTS)
def test_the_same_messages_always_give_the_same_objects(request: ModelRequest) -> None:
    """Encoders keep what they encoded by identity. Else each step would encode all that was ever made to fit."""
    result_ids = {id(message) for message in request.messages if message.role == "tool"}
    for capabilities in ALL:
        first, again = fit(request, capabilities).messages, fit(request, capabilities).messages
        assert list(map(id, first)) == list(map(id, again))
        assert result_ids <= set(map(id, first))


@pytest.mark.parametrize("capabilities", [STRICT, SINGLE, STRICT_AND_SINGLE])
def test_step_extends_the_fitted_messages_without_changes(capabilities: Capabilities) -> None:
    messages: tuple[Message, ...] = (HI, Message.user("there"))
    before: tuple[Message, ...] = ()
    for number in range(5):
        messages += (asking(f"{number}a", f"{number}b"), result(f"{number}a"), result(f"{number}b"))
        fitted = fit(ModelRequest((*messages, STOP)), capabilities).messages
        ended = fit(ModelRequest(messages), capabilities).messages
        assert all(old is new for old, new in zip(before, fitted, strict=False))
        before = ended


def test_fitted_messages_are_freed_with_the_messages() -> None:
    batch = (asking("a", "b"), result("a"), result("b"), Message.user("x"), Message.user("y"))
    references = [weakref.ref(message) for message in fit(ModelRequest(batch), STRICT_AND_SINGLE).messages]
    results = [weakref.ref(message) for message in batch]
    del batch
    gc.collect()
    assert [ref() for ref in results] == [None] * 5
    shared = [ref() for ref in references if ref() is not None]
    assert [message.text for message in shared if message] == ["Begin."]


# Replies with more calls than a message may have.


@pytest.mark.parametrize(("count", "groups"), [(128, [128]), (129, [128, 1]), (300, [128, 128, 44]), (512, [128] * 4)])
def test_a_reply_with_many_calls_becomes_several(count: int, groups: list[int]) -> None:
    ids = [f"call{number}" for number in range(count)]
    messages = [HI, asking(*ids, text="Looking."), *map(result, ids), STOP]
    split_messages = split_calls(messages, 128)
    assert [len(message.calls) for message in split_messages if message.role == "assistant"] == groups
    assert [message.text for message in split_messages if message.role == "assistant"] == [
        "Looking.",
        *[""] * (len(groups) - 1),
    ]
    check_pairing(split_messages)
    assert all(map(operator.is_, split_calls(messages, 128), split_messages))
