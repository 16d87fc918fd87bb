"""Messages of A2A: prompts and answers that a client sends, questions that it is sent."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from a2a.types import Message, Part, Role
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from pydantic import JsonValue

from turnwright._base.frozen import deeper_than
from turnwright.errors import InvalidAnswerError
from turnwright.journal.answers import ANSWERABLE, Answer, parse_answer, reject
from turnwright.journal.questions import words
from turnwright.message import FilePart
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols.client_tools import read_settlement
from turnwright_protocols.conversations import AnswerValue
from turnwright_protocols.http import LONGEST_SESSION, wrong_field
from turnwright_protocols.items import APPROVALS, clean, clean_json
from turnwright_states import Decision, InterruptKind

#: The key of our metadata.
KEY: Final = "turnwright"
#: The most parts of a message.
_MOST_PARTS: Final = 1000
#: A data part with deeper JSON is text: protobuf reads at most 100 messages in each other, three for an object.
_DEEPEST: Final = 16
#: Integers from here on are not exact as doubles, which data parts have.
_EXACT: Final = 2**53
_UNKNOWN_TYPE: Final = "application/octet-stream"
_WORDS: Final = {Decision.APPROVE: "yes", Decision.REJECT: "no"}
_ALL_ANSWERS: Final = (
    'several questions are open: answer all in one message, with a data part {"answers": {id: answer}}'
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The content of a message: text, files, and the answers of its data part, by interrupt."""

    text: str
    files: tuple[FilePart, ...]
    answers: Mapping[str, JsonValue] | None


def read_prompt(message: Message) -> Prompt:
    """Read a message of a client. Raises `RefusedRequestError`."""
    if message.role not in (Role.ROLE_UNSPECIFIED, Role.ROLE_USER):
        raise wrong_field("role", "a client sends messages of the user")
    if not message.parts or len(message.parts) > _MOST_PARTS:
        raise wrong_field("parts", f"a message has 1 to {_MOST_PARTS} parts")
    if not 0 < len(message.message_id) <= LONGEST_SESSION or not message.message_id.isprintable():
        raise wrong_field("messageId", f"must have 1 to {LONGEST_SESSION} visible characters")
    texts: list[str] = []
    files: list[FilePart] = []
    answers: dict[str, JsonValue] | None = None
    for part in message.parts:
        match part.WhichOneof("content"):
            case "text":
                texts.append(part.text)
            case "data":
                data = from_value(part.data)
                named_answers = data.get("answers") if isinstance(data, dict) and data.keys() == {"answers"} else None
                if isinstance(named_answers, dict):
                    answers = {**(answers or {}), **named_answers}
                else:
                    texts.append(json.dumps(data, ensure_ascii=False))
            case "raw" | "url":
                files.append(_file(part))
            case _:
                raise wrong_field("parts", "a part has no content")
    return Prompt("\n".join(texts), tuple(files), answers)


def read_answers(
    prompt: Prompt, interrupts: Sequence[Interrupt], open_interrupts: Sequence[Interrupt], *, by: str
) -> dict[str, AnswerValue]:
    """Return the answers of a message to the interrupts of a pause, among them all `open_interrupts`.

    A call may go on waiting for its result. A text answers a single one. Raises `RefusedRequestError`, and
    `InvalidAnswerError` for an answer that does not fit.
    """
    if prompt.files:
        raise wrong_field("parts", "the task waits for an answer, which has no files")
    questions = [interrupt for interrupt in open_interrupts if interrupt.kind is not InterruptKind.RESULT]
    if prompt.answers is not None:
        by_id, ids = (
            {interrupt.id: interrupt for interrupt in interrupts},
            [interrupt.id for interrupt in questions],
        )
        if not set(ids) <= prompt.answers.keys() <= by_id.keys():
            raise wrong_field("answers", f"must answer these and no others: {', '.join(ids)}")
        return {name: _answer(by_id[name], value, ids) for name, value in prompt.answers.items()}
    if len(questions or open_interrupts) != 1:
        raise wrong_field("parts", _ALL_ANSWERS)
    (interrupt,) = questions or open_interrupts
    if interrupt.kind in APPROVALS and prompt.text.lstrip().startswith("{"):
        raise wrong_field("parts", "an approval by text is yes or no")
    parse_answer(tuple(open_interrupts), interrupt.id, prompt.text, by=by)
    return {interrupt.id: prompt.text}


def ask(interrupts: Sequence[Interrupt]) -> list[Part]:
    """Return the parts of a question: words for people, and data for programs."""
    text = "\n\n".join(clean(words(interrupt)) for interrupt in interrupts)
    return [Part(text=text), data_part({"interrupts": [*map(_describe, interrupts)]})]


def file_part(file: FilePart) -> Part:
    """Return a file as a part: an address, or its description, as its content is not sent back."""
    if file.url:
        return Part(url=file.url, media_type=file.media_type, filename=clean(file.name))
    return data_part({"file": {"mediaType": file.media_type, "name": file.name}})


def data_part(data: Mapping[str, JsonValue]) -> Part:
    """Return JSON as a part: as text if it nests deeper than a data part can be read."""
    clean_data = clean_json(data)
    if deeper_than(clean_data, _DEEPEST):
        return Part(text=json.dumps(clean_data, ensure_ascii=False), media_type="application/json")
    exact_data = {name: _exact(value) for name, value in clean_data.items()}
    return Part(data=ParseDict(exact_data, Value()), media_type="application/json")


def to_struct(data: Mapping[str, JsonValue]) -> Struct:
    """Return JSON as the metadata of a message."""
    return ParseDict({KEY: _exact(clean_json(data))}, Struct())


def from_value(value: Value) -> JsonValue:
    """Return JSON of a data part. Its numbers are doubles: those without a fraction become integers."""
    return _whole(MessageToDict(value))


def _file(part: Part) -> FilePart:
    media_type = part.media_type or _UNKNOWN_TYPE
    try:
        if part.WhichOneof("content") == "url":
            return FilePart(media_type=media_type, url=part.url, name=part.filename)
        return FilePart(media_type=media_type, data=base64.b64encode(part.raw).decode(), name=part.filename)
    except ValueError as error:
        raise wrong_field("parts", f"a file: {error}") from None


def _answer(interrupt: Interrupt, value: JsonValue, ids: Sequence[str]) -> str | bool | Answer:
    if isinstance(value, str | bool):
        return value
    if isinstance(value, dict) and interrupt.kind in APPROVALS and value.keys() == {"approved", "reason"}:
        is_approved, reason = value["approved"], value["reason"]
        if isinstance(is_approved, bool) and isinstance(reason, str):
            return Answer(Decision.APPROVE) if is_approved else reject(reason)
    if (settlement := read_settlement(interrupt, value, ids)) is not None:
        return settlement
    raise InvalidAnswerError(interrupt.id, "its answer has another form", ids, is_unfit=True)


def _describe(interrupt: Interrupt) -> JsonValue:
    """Return an interrupt with the words that its answer may be, if these are not a question's own choices."""
    fields = interrupt.to_json()
    if interrupt.kind is not InterruptKind.QUESTION:
        fields["choices"] = [_choice(interrupt.kind, decision) for decision in ANSWERABLE[interrupt.kind]]
    return fields


def _choice(kind: InterruptKind, decision: Decision) -> str:
    return _WORDS.get(decision, str(decision)) if kind in APPROVALS else str(decision)


def _exact(value: JsonValue) -> JsonValue:
    """Return JSON in which integers that a double would change are texts."""
    if isinstance(value, dict):
        return {name: _exact(item) for name, item in value.items()}
    if isinstance(value, list):
        return [*map(_exact, value)]
    return str(value) if isinstance(value, int) and not -_EXACT < value < _EXACT else value


def _whole(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [*map(_whole, value)]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT else value
