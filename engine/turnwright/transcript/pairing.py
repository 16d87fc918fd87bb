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

    __slots__ = ("_asked_at", "_waiting", "messages")

    def __init__(self, paired: Iterable[Message] = ()) -> None:
        #: It begins with messages that were checked before.
        self.messages: tuple[Message, ...] = tuple(paired)
        #: The ids of the open calls, and the index of their message.
        self._waiting: tuple[str, ...] = ()
        self._asked_at = 0

    def add(self, new: Sequence[Message]) -> None:
        """Add the next messages. Raises `UnpairedError`, and adds none, if one does not fit."""
        number, waiting, asked_at = len(self.messages), [*self._waiting], self._asked_at
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
                if len(results) != 1 or results[0] not in waiting:
                    raise UnpairedError(f"message {number}: a tool result that answers no open call")
                waiting.remove(results[0])
            else:
                if waiting:
                    raise _unanswered(asked_at, waiting[0], f" before message {number}")
                if results:
                    raise UnpairedError(f"message {number}: a tool result in a message of role {role}")
                waiting, asked_at = calls, number
            number += 1
        self.messages, self._waiting, self._asked_at = (*self.messages, *new), tuple(waiting), asked_at

    def followed_by(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return all messages and then these, which are not added. Raises `UnpairedError` if a call stays open."""
        whole = self
        if messages:
            whole = Paired(self.messages)
            whole._waiting, whole._asked_at = self._waiting, self._asked_at
            whole.add(messages)
        if whole._waiting:
            raise _unanswered(whole._asked_at, whole._waiting[0])
        return whole.messages


def _unanswered(asked_at: int, call: str, before: str = "") -> UnpairedError:
    return UnpairedError(f"message {asked_at}: call {call!r} has no result{before}")


def check_pairing(messages: Sequence[Message]) -> None:
    """Raise `UnpairedError` unless every call is followed by exactly one result."""
    Paired().followed_by(messages)


def repaired(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
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
        return repair.sent, [note for _, note in sorted(repair.notes, key=lambda one: one[0])]
    return list(messages), []


def renamed(messages: Iterable[Message], known: int = 0) -> list[Message]:
    """Return the messages of earlier turns with new call ids, so that none equals an id of the current turn.

    A result keeps its call. A result without a call gets an id that no call has. The messages follow others, in which
    `known` ids were given.
    """
    given = list(messages)
    answers = _answers(given)
    names: dict[_Place, str] = {}

    def name(place: _Place) -> str:
        return names.setdefault(place, f"past{known + len(names) + 1:05d}")

    out: list[Message] = []
    for number, message in enumerate(given):
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
        self.sent: list[Message] = []
        self.notes: list[tuple[int, str]] = []
        self._messages = messages
        answers = _answers(messages)
        #: The position of each call's result.
        self._results: Mapping[_Place, _Place] = {call: result for result, call in answers.items()}
        spoke = -1
        for number, message in enumerate(messages):
            self._note_results(number, message, answers, spoke)
            rest = self._rest(number, message)
            if rest is not None:
                self.sent.append(rest)
                self._answer(number, rest)
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
            asked = answers.get((number, index))
            if asked is None:
                self._note(number, f"the result of {part.call!r} answers no open call: it is left out")
            elif message.role != "tool" or len(results) > 1 or asked[0] != spoke:
                self._note(number, f"the result of {part.call!r} is moved to its call in message {asked[0]}")

    def _rest(self, number: int, message: Message) -> Message | None:
        """Return a message without results, and without calls outside of an assistant message."""
        misplaced = message.calls if message.role != "assistant" else ()
        for call in misplaced:
            self._note(number, f"the call {call.id!r} is in a message of role {message.role}: it is left out")
        if message.role == "tool":
            return None
        kept = tuple(part for part in message.parts if not isinstance(part, ToolResultPart) and part not in misplaced)
        if len(kept) == len(message.parts):
            return message
        return structs.replace(message, parts=kept) if kept else None

    def _answer(self, number: int, rest: Message) -> None:
        """Add the results of a message's calls."""
        places = [
            (number, index)
            for index, part in enumerate(self._messages[number].parts)
            if isinstance(part, ToolCallPart) and rest.role == "assistant"
        ]
        arrived = sorted(self._results[place] for place in places if place in self._results)
        if [at for at, _ in arrived] == list(range(number + 1, number + 1 + len(places))):
            # Complete and in place: keep the imported order, as in a paired list.
            self.sent += [self._result(place) for place in arrived]
            return
        for place, call in zip(places, rest.calls, strict=True):
            if place in self._results:
                self.sent.append(self._result(self._results[place]))
            else:
                self._note(number, f"call {call.id!r} has no result: it is sent as unknown")
                self.sent.append(Message.result(call.id, call.name, NO_RESULT, CallStatus.UNKNOWN))

    def _result(self, place: _Place) -> Message:
        """Return the message of a result: its own, if that is a tool message without other results."""
        number, index = place
        message = self._messages[number]
        paired = [part for part in message.parts if isinstance(part, ToolResultPart | ToolCallPart)]
        return (
            message
            if message.role == "tool" and len(paired) == 1
            else Message(role="tool", parts=(message.parts[index],))
        )


def _answers(messages: Sequence[Message]) -> dict[_Place, _Place]:
    """Return the position of the call that each result belongs to, without results that belong to none."""
    asked: dict[str, tuple[int, deque[_Place]]] = {}
    found: dict[_Place, _Place] = {}
    for number, message in enumerate(messages):
        for index, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart) and message.role == "assistant":
                asked_at, waiting = asked.get(part.id, (number, deque[_Place]()))
                if asked_at != number:
                    waiting = deque[_Place]()
                asked[part.id] = (number, waiting)
                waiting.append((number, index))
            elif isinstance(part, ToolResultPart) and part.call in asked:
                waiting = asked[part.call][1]
                if waiting:
                    found[number, index] = waiting.popleft()
    return found
