"""Read the request of a `useChat` client: only its last message counts, because the journal has the others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from pydantic import JsonValue

from turnwright.journal.answers import Answer, reject, settled
from turnwright.message import FilePart
from turnwright_protocols.client_tools import ToolDeclaration, client_error
from turnwright_protocols.conversations import AnswerValue
from turnwright_protocols.http import JsonObject, RefusedRequestError, wrong_field
from turnwright_states import Decision

#: The most answers and files of one request.
_MOST = 100
_SENT = "submit-message"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A new message with `prompt`, `files` and the page's `tools`; or what the paused turn `turn` waits for.

    That is `answers` by the ids of its interrupts, and `results` of the page's tools by the ids of its calls.
    """

    session: str
    prompt: str = ""
    files: tuple[FilePart, ...] = ()
    turn: str = ""
    answers: dict[str, AnswerValue] = field(default_factory=dict)
    results: dict[str, Callable[[], Answer]] = field(default_factory=dict)
    tools: tuple[ToolDeclaration, ...] = ()
    agent: JsonValue = None


def read_request(body: JsonObject) -> ChatRequest:
    """Read the body of a `POST`. Raises `RefusedRequestError`."""
    session, trigger = body.get("id"), body.get("trigger", _SENT)
    if not isinstance(session, str):
        raise wrong_field("id", "the chat's id is missing")
    if "/" in session or session in (".", ".."):
        raise wrong_field("id", "the chat's id must be a name in addresses")
    if trigger != _SENT:
        raise RefusedRequestError(409, "a turn cannot be generated again: send a new message", field="trigger")
    agent = body.get("agent")
    explicit = body.get("answers")
    if explicit is not None:
        turn, answers, _ = _one_turn(_explicit_answers(explicit), {})
        return ChatRequest(session, turn=turn, answers=answers, agent=agent)
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or not isinstance(last.get("parts"), list):
        raise wrong_field("messages", "there is no message with parts")
    parts = [part for part in last["parts"] if isinstance(part, dict)] if isinstance(last["parts"], list) else []
    if last.get("role") == "user":
        prompt, files = _content(parts)
        return ChatRequest(session, prompt, files, agent=agent, tools=tuple(_tools(body.get("tools"))))
    if last.get("role") != "assistant":
        raise wrong_field("messages", "the last message must be the user's, or have answers")
    turn, answers, results = _one_turn(list(_approvals(parts)), dict(_results(parts)))
    return ChatRequest(session, turn=turn, answers=answers, results=results, agent=agent)


def _tools(value: JsonValue) -> Iterator[ToolDeclaration]:
    """Yield the tools of the page: an object of declarations by name, as the SDK has tools, or a list of them."""
    if value is None:
        return
    if not isinstance(value, dict | list):
        raise wrong_field("tools", "must be an object of tools by name")
    for name, tool in value.items() if isinstance(value, dict) else ((None, tool) for tool in value):
        if not isinstance(tool, dict):
            raise wrong_field("tools", "a tool is not an object")
        parameters = tool.get("parameters", tool.get("inputSchema"))
        yield ToolDeclaration(tool.get("name") if name is None else name, tool.get("description"), parameters)


def _content(parts: list[dict[str, JsonValue]]) -> tuple[str, tuple[FilePart, ...]]:
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    if not all(isinstance(text, str) for text in texts):
        raise wrong_field("messages", "a text part has no text")
    prompt = "\n".join(map(str, texts))
    file_parts = [part for part in parts if part.get("type") == "file"]
    if len(file_parts) > _MOST:
        raise wrong_field("messages", f"at most {_MOST} files")
    files = tuple(map(_file, file_parts))
    if not prompt.strip() and not files:
        raise wrong_field("messages", "the last message is empty")
    return prompt, files


def _file(part: dict[str, JsonValue]) -> FilePart:
    url, media_type, name = part.get("url"), part.get("mediaType"), part.get("filename") or ""
    if not (isinstance(url, str) and isinstance(media_type, str) and isinstance(name, str)):
        raise wrong_field("messages", "a file part needs url and mediaType")
    try:
        return FilePart(media_type=media_type, url=url, name=name)
    except ValueError as error:
        raise wrong_field("messages", f"a file part: {error}") from None


def _approvals(parts: list[dict[str, JsonValue]]) -> Iterator[tuple[str, AnswerValue]]:
    """Yield the answers to approvals of the last message, by the ids that the client was sent."""
    for part in parts:
        approval = part.get("approval")
        if part.get("state") != "approval-responded" or not isinstance(approval, dict):
            continue
        identifier, is_approved, reason = approval.get("id"), approval.get("approved"), approval.get("reason", "")
        if not isinstance(identifier, str) or not isinstance(is_approved, bool) or not isinstance(reason, str | None):
            raise wrong_field("messages", "an approval needs an id and approved")
        yield identifier, Answer(Decision.APPROVE) if is_approved else reject(reason or "")


def _results(parts: list[dict[str, JsonValue]]) -> Iterator[tuple[str, Callable[[], Answer]]]:
    """Yield the outputs of the page's own tools in the last message, by the ids of their calls."""
    for part in parts:
        identifier, state = part.get("toolCallId"), part.get("state")
        if part.get("providerExecuted") is True or state not in ("output-available", "output-error"):
            continue
        if not isinstance(identifier, str):
            raise wrong_field("messages", "the output of a tool needs a toolCallId")
        if state == "output-error":
            yield identifier, partial(settled, error=client_error(part.get("errorText")))
        else:
            yield identifier, partial(settled, part.get("output"))


def _explicit_answers(answers: JsonValue) -> list[tuple[str, AnswerValue]]:
    if not isinstance(answers, dict):
        raise wrong_field("answers", "must be an object of ids and answers")
    pairs: list[tuple[str, AnswerValue]] = []
    for identifier, answer in answers.items():
        if not isinstance(answer, str | bool):
            raise wrong_field("answers", "an answer is a text, true or false")
        pairs.append((identifier, answer))
    return pairs


def _one_turn(
    pairs: list[tuple[str, AnswerValue]], results: dict[str, Callable[[], Answer]]
) -> tuple[str, dict[str, AnswerValue], dict[str, Callable[[], Answer]]]:
    """Return the turn of all answers and results, the answers by the ids of its interrupts, and the results by call."""
    if not pairs and not results:
        raise RefusedRequestError(409, "the request has no answer, and no new message", field="messages")
    turns = {identifier.partition("/")[0] for identifier in (*(name for name, _ in pairs), *results)}
    if len(turns) != 1 or len(pairs) > _MOST:
        raise RefusedRequestError(400, "the answers must belong to one turn", field="messages")
    answers = {identifier.partition("/")[2]: answer for identifier, answer in pairs}
    return turns.pop(), answers, {identifier.partition("/")[2]: result for identifier, result in results.items()}
