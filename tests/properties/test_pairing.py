"""Properties of the repair of any list of messages: cut, shuffled or invented."""

import json
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from turnwright.message import AnyPart, Message, TextPart, ToolCallPart, ToolResultPart
from turnwright.model.openai_chat.request import chat_messages
from turnwright.transcript.pairing import NO_RESULT, Paired, UnpairedError, check_pairing, rename_calls, repair_pairs
from turnwright_states import CallStatus

IDS = st.sampled_from(["", "a", "b", "call00001", "past00001"])

CALLS = st.builds(ToolCallPart, id=IDS, name=st.just("note"))
RESULTS = st.builds(ToolResultPart, call=IDS, name=st.just("note"), text=st.just(""))
TEXTS = st.just(TextPart(text=""))

#: Mostly what embedders bring, and now and then what no program should.
MESSAGES = st.one_of(
    st.builds(Message, role=st.sampled_from(["user", "system"]), parts=st.tuples(TEXTS)),
    st.builds(Message, role=st.just("assistant"), parts=st.lists(CALLS, min_size=1, max_size=3).map(tuple)),
    st.builds(Message, role=st.just("tool"), parts=st.tuples(RESULTS)),
    st.builds(
        Message,
        role=st.sampled_from(["user", "system", "assistant", "tool"]),
        parts=st.lists(CALLS | RESULTS | TEXTS, max_size=4).map(tuple),
    ),
)


def numbered(messages: Sequence[Message]) -> list[Message]:
    """The same messages with a text of its own for each text and each result, to distinguish them."""
    out: list[Message] = []
    for number, message in enumerate(messages):
        parts = tuple(
            part if isinstance(part, ToolCallPart) else structs.replace(part, text=f"{number}.{index}")
            for index, part in enumerate(message.parts)
        )
        out.append(structs.replace(message, parts=parts))
    return out


LISTS = st.lists(MESSAGES, max_size=10).map(numbered)


@st.composite
def paired_lists(draw: st.DrawFn) -> list[Message]:
    out: list[Message] = []
    for message in draw(st.lists(MESSAGES, max_size=5)):
        if message.role in ("user", "system"):
            out.append(Message.user("hi"))
            continue
        results = draw(st.permutations(message.calls))
        out.append(Message(role="assistant", parts=(TextPart(text="So."), *message.calls)))
        out += [Message.result(call.id, call.name, "noted") for call in results]
    return numbered(out)


def calls_of(messages: Sequence[Message]) -> list[str]:
    return [call.id for message in messages if message.role == "assistant" for call in message.calls]


def texts_of(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return the texts of all messages but those of tools."""
    return [
        (message.role, part.text)
        for message in messages
        if message.role != "tool"
        for part in message.parts
        if isinstance(part, TextPart)
    ]


def results_of(messages: Sequence[Message]) -> list[str]:
    """The texts of results, by call, in the order of the calls. Of a paired list."""
    texts: list[str] = []
    for number, message in enumerate(messages):
        waiting = [
            part
            for after in messages[number + 1 : number + 1 + len(message.calls)]
            for part in after.parts
            if isinstance(part, ToolResultPart)
        ]
        for call in message.calls:
            answer = next(part for part in waiting if part.call == call.id)
            waiting.remove(answer)
            texts.append(answer.text)
    return texts


def expected(messages: Sequence[Message]) -> list[str]:
    """The same by definition, call by call.

    A message's n-th call of an id has the n-th result of that id that comes after it is asked for, and before the next
    message asks under the same id.
    """
    numbered_parts: list[tuple[int, AnyPart]] = [
        (number, part)
        for number, message in enumerate(messages)
        for part in message.parts
        if isinstance(part, ToolResultPart) or (isinstance(part, ToolCallPart) and message.role == "assistant")
    ]
    texts: list[str] = []
    for at, (number, call) in enumerate(numbered_parts):
        if not isinstance(call, ToolCallPart):
            continue
        same = [(n, part) for n, part in numbered_parts[:at] if n == number and isinstance(part, ToolCallPart)]
        asked_again = next(
            (
                i
                for i, (n, p) in enumerate(numbered_parts)
                if n > number and isinstance(p, ToolCallPart) and p.id == call.id
            ),
            len(numbered_parts),
        )
        first = next(
            i
            for i, (n, p) in enumerate(numbered_parts)
            if n == number and isinstance(p, ToolCallPart) and p.id == call.id
        )
        texts.append(_answer(numbered_parts[first:asked_again], call.id, sum(part.id == call.id for _, part in same)))
    return texts


def _answer(numbered_parts: Sequence[tuple[int, AnyPart]], name: str, nth: int) -> str:
    """The text of the n-th result of an id, counting only those that came when a call was open."""
    waiting, answered = 0, 0
    for _, part in numbered_parts:
        if isinstance(part, ToolCallPart) and part.id == name:
            waiting += 1
        elif isinstance(part, ToolResultPart) and part.call == name and waiting:
            if answered == nth:
                return part.text
            waiting, answered = waiting - 1, answered + 1
    return NO_RESULT


def fault(messages: Sequence[Message]) -> str:
    """Return a list's first fault by the definition, from the complete list; empty if it is paired."""
    for number, message in enumerate(messages):
        asker = max((n for n in range(number) if messages[n].role != "tool"), default=-1)
        call_ids = [call.id for call in messages[asker].calls] if asker >= 0 else []
        answered = [part.call for message in messages[asker + 1 : number] for part in results_in(message)]
        still = without(call_ids, answered)
        if message.calls and message.role != "assistant":
            return f"message {number}: a tool call in a message of role {message.role}"
        if message.role == "tool":
            if len(results_in(message)) != 1 or results_in(message)[0].call not in still:
                return f"message {number}: a tool result that answers no open call"
        elif still:
            return f"message {asker}: call {still[0]!r} has no result before message {number}"
        elif results_in(message):
            return f"message {number}: a tool result in a message of role {message.role}"
    last = max((n for n, message in enumerate(messages) if message.role != "tool"), default=-1)
    rest = [part.call for message in messages[last + 1 :] for part in results_in(message)]
    still = without([call.id for call in messages[last].calls], rest) if last >= 0 else []
    return f"message {last}: call {still[0]!r} has no result" if still else ""


def results_in(message: Message) -> list[ToolResultPart]:
    return [part for part in message.parts if isinstance(part, ToolResultPart)]


def without(call_ids: Sequence[str], answered: Sequence[str]) -> list[str]:
    remaining = list(call_ids)
    for answered_id in answered:
        remaining.remove(answered_id)
    return remaining


def refused(check: Callable[[Sequence[Message]], object], messages: Sequence[Message]) -> str:
    """Return why `check` refuses the messages; empty if it accepts them."""
    try:
        check(messages)
    except UnpairedError as error:
        return str(error)
    return ""


@given(LISTS)
def test_refusal_names_exactly_the_first_fault(messages: list[Message]) -> None:
    assert refused(check_pairing, messages) == fault(messages)


@given(LISTS | paired_lists(), st.lists(MESSAGES, max_size=2))
def test_incremental_check_agrees_with_the_check_of_the_whole_list(
    messages: list[Message], once: list[Message]
) -> None:
    """Each list may be followed by messages for one call; those that do not fit are refused."""
    paired, so_far = Paired(), list[Message]()
    for message in messages:
        why = refused(paired.followed_by, once)
        assert why == fault([*so_far, *once])
        assert why or paired.followed_by(once) == (*so_far, *once)
        try:
            paired.add([message])
        except UnpairedError as error:
            assert str(error) == fault([*so_far, message])  # noqa: PT017 (either is right)
        else:
            so_far.append(message)
    assert refused(paired.followed_by, ()) == fault(so_far)


@given(LISTS)
def test_repaired_list_is_paired_and_stable(messages: list[Message]) -> None:
    request, _ = repair_pairs(messages)
    check_pairing(request)
    assert repair_pairs(request) == (request, [])


@given(paired_lists())
def test_paired_list_is_unchanged_by_repair(messages: list[Message]) -> None:
    check_pairing(messages)
    assert repair_pairs(messages) == (messages, [])


@given(LISTS)
def test_every_change_has_a_note(messages: list[Message]) -> None:
    """And nothing is noted of a list that could be sent as it is."""
    request, notes = repair_pairs(messages)
    try:
        check_pairing(messages)
    except UnpairedError:
        assert notes
        assert request != messages
    else:
        assert (request, notes) == (messages, [])


@given(LISTS)
def test_no_call_and_no_text_is_lost(messages: list[Message]) -> None:
    request, _ = repair_pairs(messages)
    assert calls_of(request) == calls_of(messages)
    assert texts_of(request) == texts_of(messages)


@given(LISTS)
def test_every_call_has_the_own_first_result_or_unknown(messages: list[Message]) -> None:
    request, _ = repair_pairs(messages)
    assert results_of(request) == expected(messages)


@given(LISTS)
def test_notes_count_every_omitted_and_invented_result(messages: list[Message]) -> None:
    request, notes = repair_pairs(messages)
    before, after = (
        [part for message in side for part in message.parts if isinstance(part, ToolResultPart)]
        for side in (messages, request)
    )
    invented = [part for part in after if part.text == NO_RESULT]
    assert all(part.status is CallStatus.UNKNOWN for part in invented)
    assert sum("it is sent as unknown" in note for note in notes) == len(invented)
    lost = {part.text for part in before} - {part.text for part in after}
    assert sum("answers no open call" in note for note in notes) == len(lost)


@given(LISTS)
def test_renaming_calls_changes_no_pair(messages: list[Message]) -> None:
    """Renamed first and then repaired, as a strict engine's would be, or the other way round."""
    new = rename_calls(messages)
    names = [call.id for message in new for call in message.calls]
    assert len(set(names)) == len(names)
    assert not any(name.startswith("call") for name in names)
    request = repair_pairs(new)[0]
    assert (
        results_of(request)
        == results_of(repair_pairs(messages)[0])
        == results_of(rename_calls(repair_pairs(messages)[0]))
    )


@given(LISTS)
def test_repaired_list_survives_the_chat_form(messages: list[Message]) -> None:
    """Through JSON, with the same calls in the same order, each followed by its result."""
    request, _ = repair_pairs(messages)
    read = [Message.from_chat(fields) for fields in json.loads(json.dumps(chat_messages(request)))]
    check_pairing(read)
    assert calls_of(read) == calls_of(request)
    # The form joins the texts of one message.
    assert "".join(text for _, text in texts_of(read)) == "".join(text for _, text in texts_of(request))
