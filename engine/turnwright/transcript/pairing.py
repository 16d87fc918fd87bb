"""Enforces pairing: each tool call has exactly one result, right after it (docs/rules.md#pairing).

Providers reject anything else with status 400, and then every later request of the conversation fails too. So each
request is checked before it is sent, and unpaired messages are repaired or rejected, as `Unpaired` says.

Ids are not unique: some providers count calls anew in each reply, some give none. So pairs are made by position. A
result belongs to the last message before it that has a call with its id, and within that message to the first open
call. It never belongs to an older message: a call that another call's result closes is worse than one with an unknown
outcome.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import is_not
from typing import Final, Literal

from msgspec import structs

from turnwright.errors import TurnwrightError
from turnwright.message import AnyPart, Message, ToolCallPart, ToolResultPart
from turnwright_states import CallStatus

#: What happens to unpaired messages: of an imported history, or made by a `history_processor`.
Unpaired = Literal["repair", "reject"]

#: The result of a call without one.
NO_RESULT: Final = "outcome unknown: no result of this call was recorded; verify before retrying"

#: The index of a message, and of a part in it.
_Place = tuple[int, int]


class UnpairedError(TurnwrightError):
    """A message list has a call without its result, or a result without its call. Names the message."""


class Paired:
    """Messages in which every call is followed by exactly one result, before the next message of another role.

    Each message is checked once, when it is added. So sending a growing conversation again costs only the new messages.
    The calls of the last assistant message may still be open.
    """

    __slots__ = ("_asked_at", "_open_calls", "messages")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        #: It begins with messages that were checked before.
        self.messages: tuple[Message, ...] = tuple(messages)
        #: The ids of the open calls, and the index of their message.
        self._open_calls: tuple[str, ...] = ()
        self._asked_at = 0

    def add(self, new: Sequence[Message]) -> None:
        """Add the next messages. Raises `UnpairedError`, and adds none, if one does not fit."""
        number, open_calls, asked_at = len(self.messages), [*self._open_calls], self._asked_at
        for message in new:
            calls: list[str] = []
            results: list[str] = []
            for part in message.parts:
                # The classes are final, and a failing `isinstance` takes ten times as long.
                if type(part) is ToolCallPart:
                    calls += (part.id,)
                elif type(part) is ToolResultPart:
                    results += (part.call,)
            role = message.role
            if calls and role != "assistant":
                raise UnpairedError(f"message {number}: a tool call in a message of role {role}")
            if role == "tool":
                if len(results) != 1 or results[0] not in open_calls:
                    raise UnpairedError(f"message {number}: a tool result that answers no open call")
                open_calls.remove(results[0])
            else:
                if open_calls:
                    raise _make_unanswered_error(asked_at, open_calls[0], f" before message {number}")
                if results:
                    raise UnpairedError(f"message {number}: a tool result in a message of role {role}")
                open_calls, asked_at = calls, number
            number += 1
        self.messages, self._open_calls, self._asked_at = (*self.messages, *new), tuple(open_calls), asked_at

    def followed_by(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return all messages and then these, which are not added. Raises `UnpairedError` if a call stays open."""
        whole = self
        if messages:
            whole = Paired(self.messages)
            whole._open_calls, whole._asked_at = self._open_calls, self._asked_at
            whole.add(messages)
        if whole._open_calls:
            raise _make_unanswered_error(whole._asked_at, whole._open_calls[0])
        return whole.messages


def _make_unanswered_error(asked_at: int, call: str, before: str = "") -> UnpairedError:
    return UnpairedError(f"message {asked_at}: call {call!r} has no result{before}")


def check_pairing(messages: Sequence[Message]) -> None:
    """Raise `UnpairedError` unless every call is followed by exactly one result."""
    Paired().followed_by(messages)


def repair_pairs(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """Return the messages with exactly one result after each call, and a note for each change.

    A paired list is returned unchanged. Otherwise results are moved to their calls, in call order, and other messages
    follow. A call without a result gets one of status `unknown`. The first result of a call counts. Results that belong
    to no open call, second results, and calls outside of assistant messages are left out. A note begins with the
    message's index. See docs/rules.md#pairing.
    """
    try:
        check_pairing(messages)
    except UnpairedError:
        repair = _Repair(messages)
        return repair.repaired_messages, [note for _, note in sorted(repair.notes, key=lambda note: note[0])]
    return list(messages), []


def rename_calls(messages: Iterable[Message], id_count: int = 0) -> list[Message]:
    """Return the messages of earlier turns with new call ids, so that none equals an id of the current turn.

    A result keeps its call. A result without a call gets an id that no call has. The messages follow others, in which
    `id_count` ids were given.
    """
    originals = list(messages)
    answers = _match_results(originals)
    names: dict[_Place, str] = {}

    def name(place: _Place) -> str:
        return names.setdefault(place, f"past{id_count + len(names) + 1:05d}")

    out: list[Message] = []
    for number, message in enumerate(originals):
        parts: list[AnyPart] = []
        for index, part in enumerate(message.parts):
            place = (number, index)
            if isinstance(part, ToolCallPart):
                parts.append(structs.replace(part, id=name(place)))
            elif isinstance(part, ToolResultPart):
                parts.append(structs.replace(part, call=name(answers.get(place, place))))
            else:
                parts.append(part)
        has_ids = any(map(is_not, parts, message.parts))
        out.append(structs.replace(message, parts=tuple(parts)) if has_ids else message)
    return out


class _Repair:
    """Repairs an unpaired list: the messages to send, and notes with the index of the message concerned.

    A result without a call is left out. It is not sent in another role: as a user message a tool's text would have the
    user's authority, and as an assistant message it would be the model's own. No call is invented for it either: the
    model would learn from arguments that it never gave.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.repaired_messages: list[Message] = []
        self.notes: list[tuple[int, str]] = []
        self._messages = messages
        answers = _match_results(messages)
        #: The position of each call's result.
        self._results: Mapping[_Place, _Place] = {call: result for result, call in answers.items()}
        spoke = -1
        for number, message in enumerate(messages):
            self._note_results(number, message, answers, spoke)
            message_without_results = self._without_stray_calls(number, message)
            if message_without_results is not None:
                self.repaired_messages.append(message_without_results)
                self._answer(number, message_without_results)
            if message.role != "tool":
                spoke = number

    def _note(self, number: int, text: str) -> None:
        self.notes.append((number, f"message {number}: {text}"))

    def _note_results(self, number: int, message: Message, answers: Mapping[_Place, _Place], spoke: int) -> None:
        """Note what happens to the results in a message. `spoke` is the last message before it that is not a tool's."""
        results = [(index, part) for index, part in enumerate(message.parts) if isinstance(part, ToolResultPart)]
        if message.role == "tool" and not results:
            self._note(number, "a tool message without a result is left out")
        for index, part in results:
            call_place = answers.get((number, index))
            if call_place is None:
                self._note(number, f"the result of {part.call!r} answers no open call: it is left out")
            elif message.role != "tool" or len(results) > 1 or call_place[0] != spoke:
                self._note(number, f"the result of {part.call!r} is moved to its call in message {call_place[0]}")

    def _without_stray_calls(self, number: int, message: Message) -> Message | None:
        """Return a message without results, and without calls outside of an assistant message."""
        misplaced_calls = message.calls if message.role != "assistant" else ()
        for call in misplaced_calls:
            self._note(number, f"the call {call.id!r} is in a message of role {message.role}: it is left out")
        if message.role == "tool":
            return None
        parts = tuple(
            part for part in message.parts if not isinstance(part, ToolResultPart) and part not in misplaced_calls
        )
        if len(parts) == len(message.parts):
            return message
        return structs.replace(message, parts=parts) if parts else None

    def _answer(self, number: int, message: Message) -> None:
        """Add the results of a message's calls."""
        places = [
            (number, index)
            for index, part in enumerate(self._messages[number].parts)
            if isinstance(part, ToolCallPart) and message.role == "assistant"
        ]
        arrivals = sorted(self._results[place] for place in places if place in self._results)
        if [at for at, _ in arrivals] == list(range(number + 1, number + 1 + len(places))):
            # Complete and in place: keep the imported order, as in a paired list.
            self.repaired_messages += [self._result(place) for place in arrivals]
            return
        for place, call in zip(places, message.calls, strict=True):
            if place in self._results:
                self.repaired_messages.append(self._result(self._results[place]))
            else:
                self._note(number, f"call {call.id!r} has no result: it is sent as unknown")
                self.repaired_messages.append(Message.result(call.id, call.name, NO_RESULT, CallStatus.UNKNOWN))

    def _result(self, place: _Place) -> Message:
        """Return the message of a result: its own, if that is a tool message without other results."""
        number, index = place
        message = self._messages[number]
        paired_parts = [part for part in message.parts if isinstance(part, ToolResultPart | ToolCallPart)]
        return (
            message
            if message.role == "tool" and len(paired_parts) == 1
            else Message(role="tool", parts=(message.parts[index],))
        )


def _match_results(messages: Sequence[Message]) -> dict[_Place, _Place]:
    """Return the position of the call that each result belongs to, without results that belong to none."""
    calls: dict[str, tuple[int, deque[_Place]]] = {}
    call_places: dict[_Place, _Place] = {}
    for number, message in enumerate(messages):
        for index, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart) and message.role == "assistant":
                asked_at, open_places = calls.get(part.id, (number, deque[_Place]()))
                if asked_at != number:
                    open_places = deque[_Place]()
                calls[part.id] = (number, open_places)
                open_places.append((number, index))
            elif isinstance(part, ToolResultPart) and part.call in calls:
                open_places = calls[part.call][1]
                if open_places:
                    call_places[number, index] = open_places.popleft()
    return call_places
