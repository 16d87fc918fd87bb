"""Read the request of a `useChat` client: only its last message counts, because the journal has the others."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import JsonValue

from turnwright.journal.answers import Answer, reject
from turnwright.message import FilePart
from turnwright_protocols.conversations import AnswerValue
from turnwright_protocols.http import JsonObject, RefusedRequestError
from turnwright_states import Decision

#: The most answers and files of one request.
_MOST = 100
_SENT = "submit-message"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A new message with `prompt` and `files`; or `answers` to the paused turn `turn`, by the ids of its interrupts."""

    session: str
    prompt: str = ""
    files: tuple[FilePart, ...] = ()
    turn: str = ""
    answers: dict[str, AnswerValue] = field(default_factory=dict)
    agent: JsonValue = None


def read_request(body: JsonObject) -> ChatRequest:
    """Read the body of a `POST`. Raises `RefusedRequestError`."""
    session, trigger = body.get("id"), body.get("trigger", _SENT)
    if not isinstance(session, str):
        raise RefusedRequestError(400, "id: the chat's id is missing", field="id")
    if trigger != _SENT:
        raise RefusedRequestError(409, "a turn cannot be generated again: send a new message", field="trigger")
    if body.get("tools"):
        raise RefusedRequestError(400, "tools: tools of the client are not supported here", field="tools")
    agent = body.get("agent")
    explicit = body.get("answers")
    if explicit is not None:
        turn, answers = _one_turn(_explicit_answers(explicit))
        return ChatRequest(session, turn=turn, answers=answers, agent=agent)
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or not isinstance(last.get("parts"), list):
        raise RefusedRequestError(400, "messages: there is no message with parts", field="messages")
    parts = [part for part in last["parts"] if isinstance(part, dict)] if isinstance(last["parts"], list) else []
    if last.get("role") == "user":
        prompt, files = _content(parts)
        return ChatRequest(session, prompt, files, agent=agent)
    if last.get("role") != "assistant":
        raise RefusedRequestError(
            400, "messages: the last message must be the user's, or have answers", field="messages"
        )
    turn, answers = _one_turn(list(_approvals(parts)))
    return ChatRequest(session, turn=turn, answers=answers, agent=agent)


def _content(parts: list[dict[str, JsonValue]]) -> tuple[str, tuple[FilePart, ...]]:
    texts = [part["text"] for part in parts if part.get("type") == "text"]
    if not all(isinstance(text, str) for text in texts):
        raise RefusedRequestError(400, "messages: a text part has no text", field="messages")
    prompt = "\n".join(map(str, texts))
    file_parts = [part for part in parts if part.get("type") == "file"]
    if len(file_parts) > _MOST:
        raise RefusedRequestError(400, f"messages: at most {_MOST} files", field="messages")
    files = tuple(map(_file, file_parts))
    if not prompt.strip() and not files:
        raise RefusedRequestError(400, "messages: the last message is empty", field="messages")
    return prompt, files


def _file(part: dict[str, JsonValue]) -> FilePart:
    url, media_type, name = part.get("url"), part.get("mediaType"), part.get("filename") or ""
    if not (isinstance(url, str) and isinstance(media_type, str) and isinstance(name, str)):
        raise RefusedRequestError(400, "messages: a file part needs url and mediaType", field="messages")
    try:
        return FilePart(media_type=media_type, url=url, name=name)
    except ValueError as error:
        raise RefusedRequestError(400, f"messages: a file part: {error}", field="messages") from None


def _approvals(parts: list[dict[str, JsonValue]]) -> Iterator[tuple[str, AnswerValue]]:
    """Yield the answers to approvals of the last message, by the ids that the client was sent."""
    for part in parts:
        approval = part.get("approval")
        if part.get("state") != "approval-responded" or not isinstance(approval, dict):
            continue
        identifier, approved, reason = approval.get("id"), approval.get("approved"), approval.get("reason", "")
        if not isinstance(identifier, str) or not isinstance(approved, bool) or not isinstance(reason, str | None):
            raise RefusedRequestError(400, "messages: an approval needs an id and approved", field="messages")
        yield identifier, Answer(Decision.APPROVE) if approved else reject(reason or "")


def _explicit_answers(answers: JsonValue) -> list[tuple[str, AnswerValue]]:
    if not isinstance(answers, dict):
        raise RefusedRequestError(400, "answers: must be an object of ids and answers", field="answers")
    pairs: list[tuple[str, AnswerValue]] = []
    for identifier, answer in answers.items():
        if not isinstance(answer, str | bool):
            raise RefusedRequestError(400, "answers: an answer is a text, true or false", field="answers")
        pairs.append((identifier, answer))
    return pairs


def _one_turn(pairs: list[tuple[str, AnswerValue]]) -> tuple[str, dict[str, AnswerValue]]:
    """Return the turn that all answers belong to, and the answers by the ids of its interrupts."""
    if not pairs:
        raise RefusedRequestError(409, "the request has no answer, and no new message", field="messages")
    turns = {identifier.partition("/")[0] for identifier, _ in pairs}
    if len(turns) != 1 or len(pairs) > _MOST:
        raise RefusedRequestError(400, "the answers must belong to one turn", field="messages")
    return turns.pop(), {identifier.partition("/")[2]: answer for identifier, answer in pairs}
