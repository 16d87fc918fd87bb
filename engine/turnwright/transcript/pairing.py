"""The one place that enforces pairing: each tool call has exactly one result, right after it (DESIGN 4.8).

Providers answer 400 to anything else, and every later request of the conversation fails with it. So each request is
checked again before it is sent, whatever made it, and what is unpaired is repaired or refused, as `Unpaired` says.

Ids are not unique: some providers count their calls anew in each reply, some give none at all. So pairs are made by
occurrence. A result answers the last message before it that asks under its id, and within that message the first call
that is still open. It never answers an older one: a call that is taken for done by another call's result is worse than
one whose outcome is unknown.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import structs

from turnwright.errors import TurnwrightError
from turnwright.message import AnyPart, Message, ToolCallPart, ToolResultPart
from turnwright_states import CallStatus

#: What is done about a history, or what a `history_processor` hook made of it, that is not paired.
Unpaired = Literal["repair", "reject"]

#: The text of the result that a call without one is given.
NO_RESULT: Final = "outcome unknown: no result of this call was recorded; verify before retrying"

#: The number of a message, and of a part in it.
_Place = tuple[int, int]


class UnpairedError(TurnwrightError):
    """A message list holds a call without its result, or a result without its call. Names the message."""


class Paired:
    """Messages in which every call is followed by exactly one result, before anybody else speaks.

    Each is looked at once, when it is added, so that who sends a conversation again and again, a little longer each
    time, pays for what is new. The calls of the last message that asks may still be open.
    """

    __slots__ = ("_asked_at", "_messages", "_waiting")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        #: The open calls, by id, and the number of the message that they are in.
        self._waiting: list[str] = []
        self._asked_at = 0

    def add(self, message: Message) -> None:
        """Add the next message. Raises `UnpairedError`, and leaves it out, where it does not follow."""
        calls: list[str] = []
        results: list[str] = []
        for part in message.parts:
            # Their classes are final; to ask whether it is an instance of one that it is not takes ten times as long.
            if type(part) is ToolCallPart:
                calls += (part.id,)
            elif type(part) is ToolResultPart:
                results += (part.call,)
        number, role = len(self._messages), message.role
        if calls and role != "assistant":
            raise UnpairedError(f"message {number}: a tool call in a message of role {role}")
        if role == "tool":
            if len(results) != 1 or results[0] not in self._waiting:
                raise UnpairedError(f"message {number}: a tool result that answers no open call")
            self._waiting.remove(results[0])
        else:
            if self._waiting:
                raise self._unanswered(f" before message {number}")
            if results:
                raise UnpairedError(f"message {number}: a tool result in a message of role {role}")
            self._waiting, self._asked_at = calls, number
        self._messages.append(message)

    def followed_by(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """All of them and then these, which are not added. Raises `UnpairedError` unless no call is left open."""
        whole = self
        if messages:
            whole = Paired()
            whole._messages, whole._waiting = self._messages.copy(), self._waiting.copy()
            whole._asked_at = self._asked_at
            for message in messages:
                whole.add(message)
        if whole._waiting:
            raise whole._unanswered()
        return tuple(whole._messages)

    def _unanswered(self, before: str = "") -> UnpairedError:
        return UnpairedError(f"message {self._asked_at}: call {self._waiting[0]!r} has no result{before}")


def check_pairing(messages: Sequence[Message]) -> None:
    """Raise `UnpairedError` unless every call is followed by exactly one result, before anybody else speaks."""
    Paired().followed_by(messages)


def repaired(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """The messages with every call answered once, right after the message that asks; and a note for each change.

    A paired list comes back as it is. In any other, results go to their calls, in the order of the calls, and what
    was said in between comes after them. A call without a result is given one of status `unknown`. The first result
    of a call stands. A result that answers no open call, a further one of the same call, and a call that no assistant
    made are left out. A note begins with the number of the message in `messages`. Source: DESIGN 4.8.
    """
    try:
        check_pairing(messages)
    except UnpairedError:
        repair = _Repair(messages)
        return repair.sent, [note for _, note in sorted(repair.notes, key=lambda one: one[0])]
    return list(messages), []


def renamed(messages: Iterable[Message]) -> list[Message]:
    """The messages of earlier turns with call ids of their own, so that none meets an id of the turn at hand.

    A result keeps its call. One that answers no call is given an id that no call has.
    """
    given = list(messages)
    answers = _answers(given)
    names: dict[_Place, str] = {}

    def name(place: _Place) -> str:
        return names.setdefault(place, f"past{len(names) + 1:05d}")

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
        out.append(structs.replace(message, parts=tuple(parts)))
    return out


class _Repair:
    """A list that is not paired: what is sent instead, and notes with the numbers of the messages they are about.

    A result without a call is left out, and not said in another role: as the user's words, a tool's would have the
    user's authority, and as the model's own they would be what it thinks. Nor is a call made up for it: the model
    would learn from arguments that it never gave.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.sent: list[Message] = []
        self.notes: list[tuple[int, str]] = []
        self._messages = messages
        answers = _answers(messages)
        #: The place of each call's result.
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
        """Say what becomes of the results in a message. `spoke` is the last message before it that is no tool's."""
        results = [(index, part) for index, part in enumerate(message.parts) if isinstance(part, ToolResultPart)]
        if message.role == "tool" and not results:
            self._note(number, "it is a tool's and holds no result: it is left out")
        for index, part in results:
            asked = answers.get((number, index))
            if asked is None:
                self._note(number, f"the result of {part.call!r} answers no open call: it is left out")
            elif message.role != "tool" or len(results) > 1 or asked[0] != spoke:
                self._note(number, f"the result of {part.call!r} is moved to its call in message {asked[0]}")

    def _rest(self, number: int, message: Message) -> Message | None:
        """What a message says in its own place: all but results, and calls that are not an assistant's."""
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
        """Send the results of a message's calls."""
        places = [
            (number, index)
            for index, part in enumerate(self._messages[number].parts)
            if isinstance(part, ToolCallPart) and rest.role == "assistant"
        ]
        arrived = sorted(self._results[place] for place in places if place in self._results)
        if [at for at, _ in arrived] == list(range(number + 1, number + 1 + len(places))):
            # Whole and in its place: it keeps the order in which it was brought, as in a list that is paired.
            self.sent += [self._result(place) for place in arrived]
            return
        for place, call in zip(places, rest.calls, strict=True):
            if place in self._results:
                self.sent.append(self._result(self._results[place]))
            else:
                self._note(number, f"call {call.id!r} has no result: it is sent as unknown")
                self.sent.append(Message.result(call.id, call.name, NO_RESULT, CallStatus.UNKNOWN))

    def _result(self, place: _Place) -> Message:
        """The message of a result: the one that it came in, if that is a tool's and holds no other."""
        number, index = place
        message = self._messages[number]
        paired = [part for part in message.parts if isinstance(part, ToolResultPart | ToolCallPart)]
        return (
            message
            if message.role == "tool" and len(paired) == 1
            else Message(role="tool", parts=(message.parts[index],))
        )


def _answers(messages: Sequence[Message]) -> dict[_Place, _Place]:
    """The place of the call that each result answers, without those that answer none."""
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
